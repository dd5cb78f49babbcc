/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line that describes a random case, and the check that nothing but its
 * outputs was written.
 */
#include "case_draw.h"

#include "dtype.h"
#include "tolerance.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int case_check_memory(const struct test_case *c, char *message, size_t size)
{
    static const char *const names[SLOTS] = {
        "q",
        "k",
        "v",
        "mask",
        "kv_len",
        "kv_start",
        "query_offset",
        "weight_rows",
        "prefix_len",
        "window->global",
        "block_mask->offsets",
        "block_mask->columns",
        "segments->q",
        "segments->k",
        "tree->ancestors",
        "ragged->cu_seqlens_q",
        "ragged->cu_seqlens_k",
        "head_scale",
        "sinks",
        "alibi_slopes",
        "relative_bias->table",
        "disentangled->rel_k",
        "disentangled->rel_q",
        "rope->q",
        "rope->k",
        "k (in pages)",
        "v (in pages)",
        "block_table",
        "kv_len (of pages)",
        "k (quantised)",
        "v (quantised)",
        "k_scale",
        "v_scale",
        "gradients.out",
        "gradients.lse",
        "out",
        "lse",
        "weights",
        "key_sums",
        "scores",
        "gradients.q",
        "gradients.k",
        "gradients.v",
        "gradients.mask",
        "gradients.alibi_slopes",
        "gradients.relative_bias",
        "gradients.sinks",
        "gradients.head_scale",
        "gradients.rel_k",
        "gradients.rel_q",
        "workspace",
    };
    const attn_tensor *outputs[SLOT_LAST_OUTPUT - SLOT_FIRST_OUTPUT + 1] = {&c->out, c->params.lse, c->params.weights,
                                                                            c->params.key_sums, c->params.scores};
    for (int of = 0; of < GRADIENTS; of++)
        outputs[SLOT_D_Q - SLOT_FIRST_OUTPUT + of] = c->d_written[of];
    for (int slot = 0; slot < SLOTS; slot++) {
        const struct guard *guard = &c->guard[slot];
        if (!guard_intact(guard)) {
            snprintf(message, size, "memory beside %s was written", names[slot]);
            return 0;
        }
        if (case_reads(c, slot) && guard->used && memcmp(guard->data, c->snapshot[slot], guard->used) != 0) {
            snprintf(message, size, "the input %s was changed", names[slot]);
            return 0;
        }
        if (!case_reads(c, slot) && slot <= SLOT_LAST_OUTPUT && outputs[slot - SLOT_FIRST_OUTPUT] &&
            !place_gaps_intact(guard, outputs[slot - SLOT_FIRST_OUTPUT])) {
            snprintf(message, size, "a gap between the rows of %s was written", names[slot]);
            return 0;
        }
    }
    return 1;
}

/** Text of which what does not fit is left out. */
struct line {
    char *buffer;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void say(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(line->buffer + line->length, line->size - line->length, format, arguments);
    va_end(arguments);
    if (n > 0)
        line->length = line->length + (size_t)n < line->size ? line->length + (size_t)n : line->size - 1;
}

static void say_tensor(struct line *line, const char *name, const attn_tensor *t)
{
    if (t)
        say(line,
            " %s:%s(%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ")/(%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ")",
            name, attn_dtype_name(t->dtype), t->shape[0], t->shape[1], t->shape[2], t->shape[3], t->stride[0],
            t->stride[1], t->stride[2], t->stride[3]);
}

static void say_array(struct line *line, const char *name, const int64_t *values, int64_t n)
{
    if (!values)
        return;
    say(line, " %s:", name);
    for (int64_t i = 0; i < n && i < 10; i++)
        say(line, "%s%" PRId64, i ? "," : "", values[i]);
}

/** A number per head, of which the first ones do. */
static void say_floats(struct line *line, const char *name, const float *values, int64_t n)
{
    if (!values)
        return;
    say(line, " %s:", name);
    for (int64_t i = 0; i < n && i < 4; i++)
        say(line, "%s%g", i ? "," : "", (double)values[i]);
}

static void say_hiding(struct line *line, const struct test_case *c)
{
    const attn_params *p = &c->params;
    const int64_t sequences = case_sequences(c);
    if (p->ragged) {
        say_array(line, "cu_seqlens_q", p->ragged->cu_seqlens_q, sequences + 1);
        say_array(line, "cu_seqlens_k", p->ragged->cu_seqlens_k, sequences + 1);
    }
    say_array(line, "kv_len", p->kv_len, sequences);
    say_array(line, "kv_start", p->kv_start, sequences);
    say_array(line, "query_offset", p->query_offset, sequences);
    say_array(line, "prefix_len", p->prefix_len, sequences);
    if (p->window) {
        say(line, " window:%" PRId64 ",%" PRId64 ",first %" PRId64, p->window->left, p->window->right,
            p->window->first_tokens);
        say_array(line, "global", p->window->global, p->window->num_global);
    }
    if (p->block_mask)
        say(line, " block_mask:%" PRId64 "(%" PRId64 "x%" PRId64 " rows,%" PRId64 " blocks)", p->block_mask->size,
            p->block_mask->heads, p->block_mask->rows,
            p->block_mask->offsets[(p->block_mask->heads > 1 ? p->block_mask->heads : 1) * p->block_mask->rows]);
    if (p->segments)
        say(line, " segments");
    if (p->tree)
        say(line, " tree:%" PRId64, p->tree->tokens);
}

static void say_terms(struct line *line, const struct test_case *c)
{
    static const char *const buckets[] = {"clipped", "t5", "t5-bidirectional"};
    static const char *const callback[] = {"nothing", "add", "halve", "hide", "overwrite", "bend"};
    static const char *const weight_callback[] = {"nothing", "clear", "steer", "overwrite"};
    const attn_params *p = &c->params;
    const int64_t heads = c->q.shape[1];
    if (p->sums)
        say(line, " sums:free");
    say_floats(line, "head_scale", p->head_scale, heads);
    if (p->softcap != 0)
        say(line, " softcap:%g", (double)p->softcap);
    say_floats(line, "sinks", p->sinks, heads);
    say_floats(line, "alibi", p->alibi_slopes, heads);
    if (p->relative_bias)
        say(line, " relative_bias:%s(%" PRId64 ",%" PRId64 ")", buckets[p->relative_bias->kind],
            p->relative_bias->buckets, p->relative_bias->max_distance);
    if (p->disentangled) {
        say_tensor(line, "rel_k", p->disentangled->rel_k);
        say_tensor(line, p->disentangled->delta == ATTN_DELTA_KEY_QUERY ? "rel_q(key-query)" : "rel_q",
                   p->disentangled->rel_q);
    }
    if (p->rope) {
        say(line, " rope:%s", p->rope->layout == ATTN_ROPE_INTERLEAVED ? "interleaved" : "half-split");
        say_tensor(line, "rope_q", p->rope->q);
        say_tensor(line, "rope_k", p->rope->k);
    }
    if (p->callback)
        say(line, " callback:%s(%g)", callback[c->callback.kind], (double)c->callback.size);
    if (p->weight_callback)
        say(line, " weight_callback:%s", weight_callback[c->weight_callback.kind]);
    if (p->dropout)
        say(line, " dropout:%g,seed %" PRIu64 ",offset %" PRIu64, (double)p->dropout->p, p->dropout->seed,
            p->dropout->offset);
}

void case_describe(const struct test_case *c, char *buffer, size_t size)
{
    static const char *const values[] = {"normal", "huge", "inf", "nan", "denormal", "constant"};
    static const char *const causal[] = {"none", "top-left", "bottom-right", "offset"};
    static const char *const entry[] = {"attn_forward", "attn_plan_run", "attn_plan_run_share"};
    static const char *const stage[] = {"scores-raw", "scores-scaled", "scores-capped", "scores-masked"};
    const attn_params *p = &c->params;
    struct line line = {buffer, size, 0};
    say(&line, "%s values:%s causal:%s threads:%d scale:%g temperature:%g%s", entry[c->entry], values[c->values],
        causal[p->causal], p->num_threads, (double)p->scale, (double)p->temperature, c->packed ? " packed" : "");
    say_tensor(&line, "q", &c->q);
    say_tensor(&line, "k", &c->k);
    say_tensor(&line, "v", &c->v);
    say_tensor(&line, "out", &c->out);
    if (c->called.params.block_table) {
        say_tensor(&line, "k-pages", &c->called.k);
        say_tensor(&line, "v-pages", &c->called.v);
        say(&line, " columns:%" PRId64, c->called.params.block_table_stride);
    }
    if (c->called.params.k_scale) {
        say_tensor(&line, "k-stored", &c->called.k);
        say_tensor(&line, "k_scale", c->called.params.k_scale);
    }
    if (c->called.params.v_scale) {
        say_tensor(&line, "v-stored", &c->called.v);
        say_tensor(&line, "v_scale", c->called.params.v_scale);
    }
    say_hiding(&line, c);
    say_terms(&line, c);
    say_tensor(&line, "mask", p->mask);
    say_tensor(&line, "lse", p->lse);
    say_tensor(&line, p->weight_rows ? "weight-rows" : "weights", p->weights);
    say_tensor(&line, "key_sums", p->key_sums);
    say_tensor(&line, stage[p->score_stage], p->scores);
    say_tensor(&line, "dout", c->gradients.out);
    say_tensor(&line, "dlse", c->gradients.lse);
    for (int of = 0; of < GRADIENTS; of++)
        say_tensor(&line, tolerance_gradient_table[of].output, c->d_written[of]);
}
