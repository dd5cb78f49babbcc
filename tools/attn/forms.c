/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the options, their values, and which of them need or exclude
 * which. An option that would mean nothing beside the others is refused: a
 * forgotten --rope must not pass for attention without rotations.
 */
#include "forms.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct option form_options[FORM_COUNT] = {
    [FORM_SOFTCAP] = {"softcap", 0, "X", "score = X tanh(score / X)", NULL},
    [FORM_HEAD_SCALE] = {"head-scale", 0, "X,X,...", "multiplies the scale of each query head", NULL},
    [FORM_SINKS] = {"sinks", 0, "X,X,...", "a logit per query head that has no value; or -inf", NULL},
    [FORM_ALIBI] = {"alibi", 0, NULL, "minus slope times distance, with the standard slopes", NULL},
    [FORM_ALIBI_SLOPES] = {"alibi-slopes", 0, "X,X,...", "the same with these slopes, one per query head", NULL},
    [FORM_BIAS] = {"relative-bias", 0, "FILE", "float32: query head, bucket; added by distance", NULL},
    [FORM_BUCKETS] = {"buckets", 0, "NAME", "clipped (default), t5 or t5-bidirectional", NULL},
    [FORM_MAX_DISTANCE] = {"max-distance", 0, "N",
                           "from there on a bucket is shared; default: half of the\n"
                           "buckets if clipped, 128 for T5",
                           NULL},
    [FORM_REL_K] = {"rel-k", 0, "FILE",
                    "disentangled attention: float32, 2 span rows of keys by\n"
                    "distance, per query head or for all; content to position",
                    NULL},
    [FORM_REL_Q] = {"rel-q", 0, "FILE", "the same with queries by distance; position to content", NULL},
    [FORM_REL_DELTA] = {"rel-delta", 0, "NAME",
                        "the distance that names a row of --rel-q: query-key\n"
                        "(default; published models) or key-query (the paper's\n"
                        "equation 4)",
                        NULL},
    [FORM_ROPE] = {"rope", 0, "NAME", "rotate q and k: half (c and c + pairs) or interleaved", NULL},
    [FORM_ROPE_PAIRS] = {"rope-pairs", 0, "N", "pairs of channels; default d/2", NULL},
    [FORM_ROPE_BASE] = {"rope-base", 0, "X", "default 10000", NULL},
    [FORM_ROPE_SCALING] = {"rope-scaling", 0, "NAME", "linear, ntk, yarn, llama3 or longrope; default: none", NULL},
    [FORM_ROPE_FACTOR] = {"rope-factor", 0, "X", "how much longer than in the training", NULL},
    [FORM_ROPE_LENGTH] = {"rope-original-length", 0, "N", "positions of the training, for yarn, llama3, longrope",
                          NULL},
    [FORM_ROPE_BETA_FAST] = {"rope-beta-fast", 0, "X", "yarn: rotations from which on a frequency stays; default 32",
                             NULL},
    [FORM_ROPE_BETA_SLOW] = {"rope-beta-slow", 0, "X",
                             "yarn: rotations below which one is divided by the factor;\n"
                             "default 1",
                             NULL},
    [FORM_ROPE_NO_TRUNCATION] = {"rope-no-truncation", 0, NULL, "yarn: what is between the two may begin between pairs",
                                 NULL},
    [FORM_ROPE_ATTENTION] = {"rope-attention-factor", 0, "X",
                             "yarn, longrope: multiplies sines and cosines; default:\n"
                             "what follows from the factor",
                             NULL},
    [FORM_ROPE_LOW] = {"rope-low-freq-factor", 0, "X", "llama3: default 1", NULL},
    [FORM_ROPE_HIGH] = {"rope-high-freq-factor", 0, "X", "llama3: default 4", NULL},
    [FORM_ROPE_SHORT] = {"rope-short-factor", 0, "X,X,...",
                         "longrope: divides each pair's frequency, in short sequences", NULL},
    [FORM_ROPE_LONG] = {"rope-long-factor", 0, "X,X,...", "longrope: the same in those longer than in the training",
                        NULL},
    [FORM_ROPE_TOKENS] = {"rope-length", 0, "N",
                          "longrope: tokens of the sequences, which make them short or\n"
                          "long; default: short",
                          NULL},
    [FORM_QUERY_OFFSET] = {"query-offset", 0, "N,N,...", "the position of query 0: one, or one per sequence", NULL},
    [FORM_WINDOW] = {"window", 0, "LEFT,RIGHT", "keys before and after a query's position; or inf", NULL},
    [FORM_FIRST_TOKENS] = {"first-tokens", 0, "N", "seen by every query in spite of the window", NULL},
    [FORM_GLOBAL] = {"global", 0, "N,N,...", "positions that see and are seen in spite of the window", NULL},
    [FORM_PREFIX] = {"prefix", 0, "N,N,...", "keys that causality does not hide: one, or one per\nsequence", NULL},
    [FORM_SEGMENTS] = {"segments", 0, "FILE",
                       "int32 or int64: batch, query; a query sees the keys of\n"
                       "its own segment",
                       NULL},
    [FORM_SEGMENTS_K] = {"segments-k", 0, "FILE", "the same for the keys; default: that of --segments", NULL},
    [FORM_TREE] = {"tree", 0, "FILE",
                   "int32 or int64: draft, or sequence, draft; the parent of\n"
                   "each drafted token among the drafts, or -1. The last keys\n"
                   "are the drafts, and so are the last queries, which see of\n"
                   "them their ancestors and themselves; --rope places drafts\n"
                   "by depth",
                   NULL},
    [FORM_CU_SEQLENS] = {"cu-seqlens", 0, "0,N,...",
                         "sequences without padding in one batch element:\n"
                         "the first token of each, and the end of the last",
                         NULL},
    [FORM_CU_SEQLENS_K] = {"cu-seqlens-k", 0, "0,N,...", "the same for the keys; default: --cu-seqlens", NULL},
    [FORM_PATTERN] = {"block-pattern", 0, "NAME", "longformer, bigbird or strided", NULL},
    [FORM_BLOCK] = {"block", 0, "N", "tokens along a block's side; default 64", NULL},
    [FORM_BLOCK_WINDOW] = {"block-window", 0, "N", "blocks seen on each side; default 1", NULL},
    [FORM_BLOCK_GLOBAL] = {"block-global", 0, "N", "first blocks that see and are seen by all; default 1", NULL},
    [FORM_BLOCK_RANDOM] = {"block-random", 0, "N", "random blocks of a row; default 3", NULL},
    [FORM_BLOCK_SEED] = {"block-seed", 0, "N", "of the random blocks; default 0", NULL},
    [FORM_BLOCK_STRIDE] = {"block-stride", 0, "N", "blocks; default: the root of the block rows", NULL},
    [FORM_BLOCK_HEADS] = {"block-heads", 0, "N", "bigbird: 1 (default), or all query heads, which choose apart", NULL},
    [FORM_BLOCK_OFFSETS] = {"block-offsets", 0, "FILE",
                            "a pattern of your own, as rows of a sparse matrix, of\n"
                            "one head or all, one after the other: int32 or int64,\n"
                            "where each row of blocks begins, and the end",
                            NULL},
    [FORM_BLOCK_COLUMNS] = {"block-columns", 0, "FILE", "int32 or int64: the blocks of keys in these rows, ascending",
                            NULL},
};

void forms_print_help(FILE *to, const struct option *options)
{
    static const struct {
        const char *title;
        enum form_option first, end;
    } groups[] = {
        {"Scores", FORM_SOFTCAP, FORM_ROPE},
        {"Rotary positions", FORM_ROPE, FORM_QUERY_OFFSET},
        {"Positions and visible keys", FORM_QUERY_OFFSET, FORM_CU_SEQLENS},
        {"Ragged batches", FORM_CU_SEQLENS, FORM_PATTERN},
        {"Block patterns", FORM_PATTERN, FORM_COUNT},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        fprintf(to, "\n%s:\n", groups[i].title);
        options_print(to, options + groups[i].first, (int)groups[i].end - (int)groups[i].first);
    }
}

static bool given(const struct forms *f, enum form_option option)
{
    return f->options[option].value != NULL;
}

/* The first option means something only beside the second, and only with one of the values if there are any. */
static const struct {
    enum form_option option, beside;
    const char *values[3];
} companions[] = {
    {FORM_BUCKETS, FORM_BIAS, {NULL}},
    {FORM_MAX_DISTANCE, FORM_BIAS, {NULL}},
    {FORM_REL_DELTA, FORM_REL_Q, {NULL}},
    {FORM_ROPE_PAIRS, FORM_ROPE, {NULL}},
    {FORM_ROPE_BASE, FORM_ROPE, {NULL}},
    {FORM_ROPE_SCALING, FORM_ROPE, {NULL}},
    {FORM_ROPE_FACTOR, FORM_ROPE_SCALING, {NULL}},
    {FORM_ROPE_LENGTH, FORM_ROPE_SCALING, {"yarn", "llama3", "longrope"}},
    {FORM_ROPE_BETA_FAST, FORM_ROPE_SCALING, {"yarn"}},
    {FORM_ROPE_BETA_SLOW, FORM_ROPE_SCALING, {"yarn"}},
    {FORM_ROPE_NO_TRUNCATION, FORM_ROPE_SCALING, {"yarn"}},
    {FORM_ROPE_ATTENTION, FORM_ROPE_SCALING, {"yarn", "longrope"}},
    {FORM_ROPE_LOW, FORM_ROPE_SCALING, {"llama3"}},
    {FORM_ROPE_HIGH, FORM_ROPE_SCALING, {"llama3"}},
    {FORM_ROPE_SHORT, FORM_ROPE_SCALING, {"longrope"}},
    {FORM_ROPE_LONG, FORM_ROPE_SCALING, {"longrope"}},
    {FORM_ROPE_TOKENS, FORM_ROPE_SCALING, {"longrope"}},
    {FORM_FIRST_TOKENS, FORM_WINDOW, {NULL}},
    {FORM_GLOBAL, FORM_WINDOW, {NULL}},
    {FORM_SEGMENTS_K, FORM_SEGMENTS, {NULL}},
    {FORM_CU_SEQLENS_K, FORM_CU_SEQLENS, {NULL}},
    {FORM_BLOCK_WINDOW, FORM_PATTERN, {"longformer", "bigbird"}},
    {FORM_BLOCK_GLOBAL, FORM_PATTERN, {"longformer", "bigbird"}},
    {FORM_BLOCK_RANDOM, FORM_PATTERN, {"bigbird"}},
    {FORM_BLOCK_SEED, FORM_PATTERN, {"bigbird"}},
    {FORM_BLOCK_STRIDE, FORM_PATTERN, {"strided"}},
    {FORM_BLOCK_HEADS, FORM_PATTERN, {"bigbird"}},
    {FORM_BLOCK_OFFSETS, FORM_BLOCK_COLUMNS, {NULL}},
    {FORM_BLOCK_COLUMNS, FORM_BLOCK_OFFSETS, {NULL}},
};

static attn_status check_companions(const struct forms *f)
{
    for (size_t i = 0; i < sizeof companions / sizeof companions[0]; i++) {
        const char *const *values = companions[i].values;
        const char *value = f->options[companions[i].beside].value;
        bool fits = value != NULL && values[0] == NULL;
        for (int n = 0; value != NULL && n < 3 && values[n] != NULL; n++)
            fits |= strcmp(value, values[n]) == 0;
        if (given(f, companions[i].option) && !fits)
            return io_fail(ATTN_INVALID_ARGUMENT, "option --%s has no effect without --%s%s%s%s%s%s%s",
                           f->options[companions[i].option].name, f->options[companions[i].beside].name,
                           values[0] != NULL ? " " : "", values[0] != NULL ? values[0] : "",
                           values[2] != NULL   ? ", "
                           : values[1] != NULL ? " or "
                                               : "",
                           values[1] != NULL ? values[1] : "", values[2] != NULL ? " or " : "",
                           values[2] != NULL ? values[2] : "");
    }
    if (given(f, FORM_ALIBI) && given(f, FORM_ALIBI_SLOPES))
        return io_fail(ATTN_INVALID_ARGUMENT, "--alibi and --alibi-slopes both give slopes; expected one of the two");
    if (given(f, FORM_BLOCK) && !given(f, FORM_PATTERN) && !given(f, FORM_BLOCK_OFFSETS))
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "option --block has no effect without --block-pattern or --block-offsets");
    if (given(f, FORM_PATTERN) && given(f, FORM_BLOCK_OFFSETS))
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--block-pattern and --block-offsets both give a pattern; expected one of the two");
    return ATTN_OK;
}

static attn_status check_need(const struct forms *f, enum form_option option, const char *by)
{
    const struct option *o = &f->options[option];
    return given(f, option)
               ? ATTN_OK
               : io_fail(ATTN_INVALID_ARGUMENT, "option --%s %s is missing; %s needs it", o->name, o->argument, by);
}

static attn_status check_needs(const struct forms *f, attn_causal causal)
{
    static const char *const alignments[] = {"none", "top-left", "bottom-right", "offset"};
    attn_rope_scaling scaling = f->rope_config.scaling;
    if (scaling != ATTN_ROPE_PLAIN)
        CHECK(check_need(f, FORM_ROPE_FACTOR, "--rope-scaling"));
    static const char *const lengths[] = {[ATTN_ROPE_YARN] = "--rope-scaling yarn",
                                          [ATTN_ROPE_LLAMA3] = "--rope-scaling llama3",
                                          [ATTN_ROPE_LONGROPE] = "--rope-scaling longrope"};
    if (lengths[scaling] != NULL)
        CHECK(check_need(f, FORM_ROPE_LENGTH, lengths[scaling]));
    if (scaling == ATTN_ROPE_LONGROPE) {
        CHECK(check_need(f, FORM_ROPE_SHORT, lengths[scaling]));
        CHECK(check_need(f, FORM_ROPE_LONG, lengths[scaling]));
    }
    if (causal == ATTN_CAUSAL_OFFSET)
        CHECK(check_need(f, FORM_QUERY_OFFSET, "--causal offset"));
    if (given(f, FORM_PREFIX) && causal == ATTN_CAUSAL_NONE)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "option --prefix has no effect without causality; expected --causal beside it");
    if (!given(f, FORM_QUERY_OFFSET) || causal == ATTN_CAUSAL_OFFSET)
        return ATTN_OK;
    if (causal != ATTN_CAUSAL_NONE)
        return io_fail(ATTN_INVALID_ARGUMENT, "option --query-offset contradicts --causal %s; expected --causal offset",
                       alignments[causal]);
    if (given(f, FORM_WINDOW) || given(f, FORM_ALIBI) || given(f, FORM_ALIBI_SLOPES) || given(f, FORM_BIAS) ||
        given(f, FORM_REL_K) || given(f, FORM_REL_Q) || given(f, FORM_ROPE))
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT,
                   "option --query-offset has no effect without --causal offset, --window, --alibi, "
                   "--alibi-slopes, --relative-bias, --rel-k, --rel-q or --rope");
}

static attn_status parse_scores(struct forms *f, attn_params *params)
{
    static const char *const buckets[] = {"clipped", "t5", "t5-bidirectional"};
    static const char *const deltas[] = {"query-key", "key-query"};
    const struct option *o = f->options;
    int kind = 0, delta = 0;
    long long distance = -1;
    CHECK(option_float(&o[FORM_SOFTCAP], true, &params->softcap));
    CHECK(option_reals(&o[FORM_HEAD_SCALE], false, &f->head_scale));
    CHECK(option_reals(&o[FORM_SINKS], true, &f->sinks));
    CHECK(option_reals(&o[FORM_ALIBI_SLOPES], false, &f->slopes));
    CHECK(option_choice(&o[FORM_BUCKETS], buckets, 3, &kind));
    CHECK(option_integer(&o[FORM_MAX_DISTANCE], 0, INT64_MAX, &distance));
    CHECK(option_choice(&o[FORM_REL_DELTA], deltas, 2, &delta));
    f->bias.kind = (attn_buckets)kind;
    f->bias.max_distance = distance;
    f->disentangled.delta = (attn_delta)delta;
    return ATTN_OK;
}

static attn_status parse_rope(struct forms *f)
{
    static const char *const layouts[] = {"half", "interleaved"};
    static const char *const scalings[] = {"linear", "ntk", "yarn", "llama3", "longrope"};
    const struct option *o = f->options;
    attn_rope_config *config = &f->rope_config;
    int layout = 0, scaling = 0;
    long long pairs = 0, length = 0, tokens = 0;
    *config = attn_rope_config_default();
    CHECK(option_choice(&o[FORM_ROPE], layouts, 2, &layout));
    CHECK(option_integer(&o[FORM_ROPE_PAIRS], 1, 2048, &pairs));
    CHECK(option_double(&o[FORM_ROPE_BASE], 1, INFINITY, &config->base));
    CHECK(option_choice(&o[FORM_ROPE_SCALING], scalings, 5, &scaling));
    CHECK(option_double(&o[FORM_ROPE_FACTOR], 1, INFINITY, &config->factor));
    CHECK(option_integer(&o[FORM_ROPE_LENGTH], 1, INT64_MAX, &length));
    CHECK(option_double(&o[FORM_ROPE_BETA_FAST], (double)FLT_MIN, INFINITY, &config->beta_fast));
    CHECK(option_double(&o[FORM_ROPE_BETA_SLOW], (double)FLT_MIN, INFINITY, &config->beta_slow));
    CHECK(option_double(&o[FORM_ROPE_ATTENTION], (double)FLT_MIN, (double)FLT_MAX, &config->attention_factor));
    CHECK(option_double(&o[FORM_ROPE_LOW], (double)FLT_MIN, INFINITY, &config->low_freq_factor));
    CHECK(option_double(&o[FORM_ROPE_HIGH], (double)FLT_MIN, INFINITY, &config->high_freq_factor));
    CHECK(option_doubles(&o[FORM_ROPE_SHORT], &f->short_factor));
    CHECK(option_doubles(&o[FORM_ROPE_LONG], &f->long_factor));
    CHECK(option_integer(&o[FORM_ROPE_TOKENS], 1, INT64_MAX, &tokens));
    config->no_truncation = given(f, FORM_ROPE_NO_TRUNCATION);
    config->short_factor = f->short_factor.values;
    config->long_factor = f->long_factor.values;
    config->length = tokens;
    f->rope.layout = (attn_rope_layout)layout;
    config->pairs = pairs;
    config->scaling = given(f, FORM_ROPE_SCALING) ? (attn_rope_scaling)(scaling + 1) : ATTN_ROPE_PLAIN;
    config->original_length = length;
    return ATTN_OK;
}

static attn_status parse_keys(struct forms *f)
{
    /* What a double holds, and rotations take. */
    static const int64_t furthest = INT64_C(1) << 53;
    const struct option *o = f->options;
    long long first = 0;
    CHECK(option_integers(&o[FORM_QUERY_OFFSET], -furthest, furthest, INTEGERS_PLAIN, &f->offsets));
    CHECK(option_integers(&o[FORM_WINDOW], 0, INT64_MAX, INTEGERS_INF, &f->sides));
    CHECK(option_integer(&o[FORM_FIRST_TOKENS], 0, INT64_MAX, &first));
    CHECK(option_integers(&o[FORM_GLOBAL], 0, INT64_MAX, INTEGERS_RISING, &f->global));
    CHECK(option_integers(&o[FORM_PREFIX], 0, INT64_MAX, INTEGERS_PLAIN, &f->prefixes));
    if (f->sides.values == NULL)
        return ATTN_OK;
    if (f->sides.count != 2)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--window is '%s'; expected LEFT,RIGHT, two whole numbers of at least 0, or inf",
                       o[FORM_WINDOW].value);
    f->window = (attn_window){.left = f->sides.values[0],
                              .right = f->sides.values[1],
                              .first_tokens = first,
                              .global = f->global.values,
                              .num_global = f->global.count};
    return ATTN_OK;
}

static attn_status check_start(const struct integers *cu, const struct option *option)
{
    if (cu->values == NULL || (cu->count > 1 && cu->values[0] == 0))
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT, "--%s is '%s'; expected 0, then the end of each sequence", option->name,
                   option->value);
}

static attn_status parse_sequences(struct forms *f)
{
    const struct option *o = f->options;
    CHECK(option_integers(&o[FORM_CU_SEQLENS], 0, INT64_MAX, INTEGERS_CLIMBING, &f->cu_q));
    CHECK(option_integers(&o[FORM_CU_SEQLENS_K], 0, INT64_MAX, INTEGERS_CLIMBING, &f->cu_k));
    CHECK(check_start(&f->cu_q, &o[FORM_CU_SEQLENS]));
    CHECK(check_start(&f->cu_k, &o[FORM_CU_SEQLENS_K]));
    if (f->cu_q.values != NULL && f->cu_k.values != NULL && f->cu_k.count != f->cu_q.count)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--cu-seqlens-k is '%s'; expected as many numbers as --cu-seqlens has, '%s'",
                       o[FORM_CU_SEQLENS_K].value, o[FORM_CU_SEQLENS].value);
    return ATTN_OK;
}

static attn_status parse_pattern(struct forms *f)
{
    static const char *const names[] = {"longformer", "bigbird", "strided"};
    const struct option *o = f->options;
    int kind = 0;
    f->block = 64;
    f->block_window = f->block_global = 1;
    f->block_random = 3;
    CHECK(option_choice(&o[FORM_PATTERN], names, 3, &kind));
    CHECK(option_integer(&o[FORM_BLOCK], 16, 1 << 30, &f->block));
    CHECK(option_integer(&o[FORM_BLOCK_WINDOW], 0, INT64_MAX, &f->block_window));
    CHECK(option_integer(&o[FORM_BLOCK_GLOBAL], 0, INT64_MAX, &f->block_global));
    CHECK(option_integer(&o[FORM_BLOCK_RANDOM], 0, INT64_MAX, &f->block_random));
    CHECK(option_integer(&o[FORM_BLOCK_SEED], 0, INT64_MAX, &f->block_seed));
    CHECK(option_integer(&o[FORM_BLOCK_STRIDE], 1, INT64_MAX, &f->block_stride));
    CHECK(option_integer(&o[FORM_BLOCK_HEADS], 1, INT64_MAX, &f->block_heads));
    if (f->block % 16 != 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "--block is '%s'; expected a multiple of 16", o[FORM_BLOCK].value);
    f->pattern_kind = (enum form_pattern)kind;
    return ATTN_OK;
}

attn_status forms_parse(struct forms *f, const struct option *options, attn_params *params)
{
    *f = (struct forms){.options = options};
    attn_status status = parse_scores(f, params);
    if (status == ATTN_OK)
        status = parse_rope(f);
    if (status == ATTN_OK)
        status = parse_keys(f);
    if (status == ATTN_OK)
        status = parse_sequences(f);
    if (status == ATTN_OK)
        status = parse_pattern(f);
    if (status == ATTN_OK)
        status = check_companions(f);
    if (status == ATTN_OK)
        status = check_needs(f, params->causal);
    if (status != ATTN_OK)
        forms_free(f);
    return status;
}
