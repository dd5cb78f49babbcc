/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of what the library calls things and what the command does. A name
 * is replaced where it stands as a whole; the longest that fits is taken, so
 * that a struct has a row beside those of its fields. Only sentences of the
 * library pass through here: in those of the file code a file may be named
 * params.mask.
 */
#include "wording.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "io/error.h"

static const struct {
    const char *name;
    const char *option[2]; /* by enum wording; NULL where the command cannot get such a sentence */
} words[] = {
    /* Tensors are named by what was read for them: an axis of a file may be another, by --layout and by rank. */
    {"q.shape[0]", {"the batch size of -q", NULL}},
    {"q.shape[1]", {"the number of heads of -q", NULL}},
    {"q.shape[2]", {"the number of tokens of -q", NULL}},
    {"q.shape[3]", {"the head size of -q", NULL}},
    {"q.dtype", {"the type of -q", NULL}},
    {"k.shape[0]", {"the batch size of -k", NULL}},
    {"k.shape[1]", {"the number of heads of -k", NULL}},
    {"k.shape[2]", {"the number of tokens of -k", NULL}},
    {"k.shape[3]", {"the head size of -k", NULL}},
    {"k.dtype", {"the type of -k", NULL}},
    {"v.shape[0]", {"the batch size of -v", NULL}},
    {"v.shape[1]", {"the number of heads of -v", NULL}},
    {"v.shape[2]", {"the number of tokens of -v", NULL}},
    {"v.shape[3]", {"the head size of -v", NULL}},
    {"v.dtype", {"the type of -v", NULL}},

    {"params.causal", {"--causal", NULL}},
    {"ATTN_CAUSAL_NONE", {"--causal none", NULL}},
    {"ATTN_CAUSAL_TOP_LEFT", {"--causal top-left", NULL}},
    {"ATTN_CAUSAL_BOTTOM_RIGHT", {"--causal bottom-right", NULL}},
    {"ATTN_CAUSAL_OFFSET", {"--causal offset", NULL}},
    {"params.mask", {"--mask", NULL}},
    {"params.kv_len", {"--kv-len", NULL}},
    {"params.kv_start", {"--kv-start", NULL}},
    {"params.scale", {"--scale", NULL}},
    {"params.temperature", {"--temperature", NULL}},
    {"params.qk", {"--qk", NULL}},
    {"ATTN_QK_INT8", {"int8", NULL}},
    {"params.inputs", {"--inputs", NULL}},
    {"params.sums", {"--sums", NULL}},
    {"params.k_scale", {"the scales of --kv-type for -k", NULL}},
    {"params.v_scale", {"the scales of --kv-type for -v", NULL}},
    {"params.isa", {"--isa", NULL}},
    {"params.num_threads", {"--threads", NULL}},
    {"params.lse", {"--lse", NULL}},
    {"params.weights", {"--weights", NULL}},
    {"params.weight_rows", {"--weight-rows", NULL}},
    {"params.num_weight_rows", {"the number of rows of --weight-rows", NULL}},
    {"params.key_sums", {"--key-sums", NULL}},
    {"params.scores", {"--scores", NULL}},
    {"params.score_stage", {"--score-stage", NULL}},
    {"params.dropout", {"--dropout", NULL}},
    {"params.dropout->p", {"--dropout", NULL}},
    {"params.dropout->seed", {"--seed", NULL}},
    {"params.dropout->offset", {"--offset", NULL}},

    {"params.softcap", {"--softcap", NULL}},
    {"params.head_scale", {"--head-scale", NULL}},
    {"params.sinks", {"--sinks", NULL}},
    {"params.alibi_slopes", {"--alibi-slopes", NULL}},
    {"params.relative_bias", {"--relative-bias", NULL}},
    {"params.relative_bias->table", {"--relative-bias", NULL}},
    {"params.relative_bias->buckets", {"the number of buckets of --relative-bias", NULL}},
    {"params.relative_bias->kind", {"--buckets", NULL}},
    {"params.relative_bias->max_distance", {"--max-distance", NULL}},
    {"max_distance", {"--max-distance", NULL}},
    {"params.disentangled", {"--rel-k or --rel-q", NULL}},
    {"params.disentangled->span", {"the span of --rel-k and --rel-q, half of their rows,", NULL}},
    {"params.disentangled->rel_k", {"--rel-k", NULL}},
    {"params.disentangled->rel_q", {"--rel-q", NULL}},
    {"params.disentangled->delta", {"--rel-delta", NULL}},

    {"params.rope", {"--rope", NULL}},
    {"params.rope->layout", {"--rope", NULL}},
    {"params.rope->q", {"the table of --rope for -q", NULL}},
    {"params.rope->k", {"the table of --rope for -k", NULL}},
    {"config.pairs", {"--rope-pairs", NULL}},
    {"config.base", {"--rope-base", NULL}},
    {"config.scaling", {"--rope-scaling", NULL}},
    {"config.factor", {"--rope-factor", NULL}},
    {"config.original_length", {"--rope-original-length", NULL}},
    {"config.beta_fast", {"--rope-beta-fast", NULL}},
    {"config.beta_slow", {"--rope-beta-slow", NULL}},
    {"beta_slow", {"--rope-beta-slow", NULL}},
    {"config.no_truncation", {"--rope-no-truncation", NULL}},
    {"config.attention_factor", {"--rope-attention-factor", NULL}},
    {"attention_factor", {"--rope-attention-factor", NULL}},
    {"config.low_freq_factor", {"--rope-low-freq-factor", NULL}},
    {"low_freq_factor", {"--rope-low-freq-factor", NULL}},
    {"config.high_freq_factor", {"--rope-high-freq-factor", NULL}},
    {"config.short_factor", {"--rope-short-factor", NULL}},
    {"config.long_factor", {"--rope-long-factor", NULL}},
    {"config.length", {"--rope-length", NULL}},
    {"ATTN_ROPE_PLAIN", {"no --rope-scaling", NULL}},
    {"ATTN_ROPE_LINEAR", {"--rope-scaling linear", NULL}},
    {"ATTN_ROPE_NTK", {"--rope-scaling ntk", NULL}},
    {"ATTN_ROPE_YARN", {"--rope-scaling yarn", NULL}},
    {"ATTN_ROPE_LLAMA3", {"--rope-scaling llama3", NULL}},
    {"ATTN_ROPE_LONGROPE", {"--rope-scaling longrope", NULL}},

    {"params.query_offset", {"--query-offset", NULL}},
    {"params.window", {"--window", NULL}},
    {"params.window->left", {"LEFT of --window", NULL}},
    {"params.window->right", {"RIGHT of --window", NULL}},
    {"params.window->first_tokens", {"--first-tokens", NULL}},
    {"params.window->global", {"--global", NULL}},
    {"params.window->num_global", {"the number of positions of --global", NULL}},
    {"params.prefix_len", {"--prefix", NULL}},
    {"params.segments", {"--segments", NULL}},
    {"params.segments->q", {"--segments", NULL}},
    {"params.segments->k", {"--segments-k", NULL}},
    {"params.tree", {"--tree", NULL}},
    {"params.tree->tokens", {"the number of drafts of --tree", NULL}},
    {"params.tree->ancestors", {"--tree", NULL}},
    {"params.ragged", {"--cu-seqlens", NULL}},
    {"params.ragged->num_sequences", {"the number of sequences of --cu-seqlens", NULL}},
    {"params.ragged->cu_seqlens_q", {"--cu-seqlens", NULL}},
    {"params.ragged->cu_seqlens_k", {"--cu-seqlens-k", NULL}},

    {"params.decay", {"--decay", NULL}},
    {"params.decay.shape[0]", {"the batch size of --decay", NULL}},
    {"params.decay.shape[1]", {"the number of heads of --decay", NULL}},
    {"params.decay.shape[2]", {"the number of tokens of --decay", NULL}},
    {"params.decay.shape[3]", {"the number of channels of --decay", NULL}},
    {"params.beta", {"--beta", NULL}},
    {"params.beta.shape[0]", {"the batch size of --beta", NULL}},
    {"params.beta.shape[1]", {"the number of heads of --beta", NULL}},
    {"params.beta.shape[2]", {"the number of tokens of --beta", NULL}},
    {"params.beta.shape[3]", {"the number of channels of --beta", NULL}},
    {"params.resets", {"--resets", NULL}},
    {"params.resets.shape[0]", {"the batch size of --resets", NULL}},
    {"params.resets.shape[1]", {"the number of heads of --resets", NULL}},
    {"params.resets.shape[2]", {"the number of tokens of --resets", NULL}},
    {"params.resets.shape[3]", {"the number of channels of --resets", NULL}},
    {"params.state_in", {"--state-in", NULL}},
    {"params.state_in.shape[0]", {"the number of sequences of --state-in", NULL}},
    {"params.state_in.shape[1]", {"the number of heads of --state-in", NULL}},
    {"params.state_in.shape[2]", {"the number of rows of --state-in", NULL}},
    {"params.state_in.shape[3]", {"the number of columns of --state-in", NULL}},
    {"params.state_out", {"--state-out", NULL}},
    {"the features of params.projection", {"those of --features", NULL}},
    {"params.projection", {"--projection", NULL}},
    {"params.projection.shape[0]", {"the batch size of --projection", NULL}},
    {"params.projection.shape[1]", {"the number of heads of --projection", NULL}},
    {"params.projection.shape[2]", {"the number of features of --projection", NULL}},
    {"params.projection.shape[3]", {"the number of channels of --projection", NULL}},
    {"params.map", {"--feature-map", NULL}},
    {"params.map POSITIVE", {"--kind performer", NULL}},
    {"params.normalise", {"--normalise", NULL}},
    {"params.bidirectional", {"--bidirectional", NULL}},
    {"params.cu_seqlens", {"--cu-seqlens", NULL}},
    {"params.num_sequences", {"the number of sequences of --cu-seqlens", NULL}},
    {"params.lengths", {"--kv-len", NULL}},

    {"projection.shape[3]", {"the head size of -q", NULL}},

    {"keys.shape[0]", {"the batch size of -k", NULL}},
    {"keys.shape[1]", {"the number of heads of -k", NULL}},
    {"projected.shape[0]", {"the batch size of -k", NULL}},
    {"config.d_query", {"the head size of -q", NULL}},
    {"config.d_key", {"the head size of -k", NULL}},
    {"config.d_attention", {"the number of rows of --wq", NULL}},
    {"config.temperature", {"--temperature", NULL}},
    {"config.w_q", {"--wq", NULL}},
    {"config.w_k", {"--wk", NULL}},
    {"config.bias", {"--score-bias", NULL}},
    {"config.w_q.shape[3]", {"the number of columns of --wq", NULL}},
    {"config.w_k.shape[2]", {"the number of rows of --wk", NULL}},
    {"config.w_k.shape[3]", {"the number of columns of --wk", NULL}},
    {"config.bias.shape[3]", {"the length of --score-bias", NULL}},
    {"config.v", {"--score-v", NULL}},
    {"config.v.shape[3]", {"the length of --score-v", NULL}},

    {"e.shape[1]", {"the number of heads of --project-k", NULL}},
    {"e.shape[3]", {"the number of tokens of --project-k", NULL}},
    {"the rows of e", {"those of --project-k", NULL}},
    {"f.shape[1]", {"the number of heads of --project-v", NULL}},
    {"f.shape[2]", {"the number of rows of --project-v", NULL}},
    {"f.shape[3]", {"the number of tokens of --project-v", NULL}},

    {"params.block_mask", {"--block-pattern", NULL}},
    {"params.block_mask->size", {"--block", NULL}},
    {"params.block_mask->rows", {"the number of block rows of --block-pattern", NULL}},
    {"params.block_mask->heads", {"--block-heads", NULL}},
    {"params.block_mask->offsets", {"--block-offsets", NULL}},
    {"params.block_mask->columns", {"--block-columns", NULL}},
    {"tq", {"the number of queries", "--tokens or --tq"}},
    {"tk", {"the number of keys", "--tokens or --tk"}},
    {"options.window", {"--block-window", "--window"}},
    {"options.global", {"--block-global", "--global"}},
    {"options.random", {"--block-random", "--random"}},
    {"options.heads", {"--block-heads", "--heads"}},
    {"options.seed", {"--block-seed", "--seed"}},
    {"options.causal", {"--causal", "--causal"}},
    {"options.stride", {"--block-stride", "--stride"}},
};

static bool is_part_of_name(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '_';
}

/* The option for the longest name that stands at text, and the length of that name. */
static const char *find(enum wording wording, const char *text, size_t *length)
{
    const char *option = NULL;
    *length = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i].name);
        bool whole = !is_part_of_name(words[i].name[n - 1]) || !is_part_of_name(text[n]);
        if (words[i].option[wording] != NULL && n > *length && strncmp(text, words[i].name, n) == 0 && whole) {
            option = words[i].option[wording];
            *length = n;
        }
    }
    return option;
}

attn_status reworded(enum wording wording, attn_status status)
{
    if (status == ATTN_OK)
        return status;
    char sentence[1024] = "";
    size_t used = 0;
    const char *from = attn_last_error();
    for (char before = ' '; *from != '\0' && used + 1 < sizeof sentence;) {
        size_t length;
        bool starts = !is_part_of_name(before) && before != '.' && before != '>' && before != '-';
        const char *option = starts ? find(wording, from, &length) : NULL;
        if (option == NULL) {
            sentence[used++] = before = *from++;
            continue;
        }
        int written = snprintf(sentence + used, sizeof sentence - used, "%s", option);
        used += (size_t)written < sizeof sentence - used ? (size_t)written : sizeof sentence - used - 1;
        from += length;
        before = ' ';
    }
    sentence[used] = '\0';
    return io_fail(status, "%s", sentence);
}
