/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line that describes a random case of linear attention, and the check that
 * nothing but its outputs was written.
 */
#include "linear_case.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const slot_names[LINEAR_SLOTS] = {
    "q", "k", "v", "decay", "beta", "resets", "state_in", "cu_seqlens", "lengths", "out", "state_out", "workspace"};

int linear_case_check_memory(const struct linear_case *c, char *message, size_t size)
{
    for (int slot = 0; slot < LINEAR_SLOTS; slot++) {
        const struct guard *guard = &c->guard[slot];
        const attn_tensor *output = slot == LINEAR_SLOT_OUT         ? &c->out
                                    : slot == LINEAR_SLOT_STATE_OUT ? c->params.state_out
                                                                    : NULL;
        if (!guard_intact(guard)) {
            snprintf(message, size, "memory beside %s was written", slot_names[slot]);
            return 0;
        }
        if (slot < LINEAR_SLOT_OUT && guard->used && memcmp(guard->data, c->snapshot[slot], guard->used) != 0) {
            snprintf(message, size, "the input %s was changed", slot_names[slot]);
            return 0;
        }
        if (output && !place_gaps_intact(guard, output)) {
            snprintf(message, size, "a gap between the rows of %s was written", slot_names[slot]);
            return 0;
        }
    }
    return 1;
}

struct text {
    char *at;
    size_t left;
};

static void append(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    const size_t used = n > 0 && (size_t)n < text->left ? (size_t)n : text->left ? text->left - 1 : 0;
    text->at += used;
    text->left -= used;
}

static void append_tensor(struct text *text, const char *name, const attn_tensor *t)
{
    const int64_t *n = t->shape, *s = t->stride;
    append(text,
           "%s %s (%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ") strides (%" PRId64 ",%" PRId64 ",%" PRId64
           ",%" PRId64 "), ",
           name, attn_dtype_name(t->dtype), n[0], n[1], n[2], n[3], s[0], s[1], s[2], s[3]);
}

void linear_case_describe(const struct linear_case *c, char *buffer, size_t size)
{
    static const char *const entries[LINEAR_ENTRIES] = {"one call", "in a workspace", "plan", "shares"};
    static const char *const decays[DECAYS] = {"no", "ordinary", "fast", "strong", "0", "-inf", "-1e30", "mixed"};
    struct text text = {buffer, size};
    const attn_linear_attention_params *p = &c->params;
    append_tensor(&text, c->packed ? "packed: q" : "q", &c->q);
    append_tensor(&text, "k", &c->k);
    append_tensor(&text, "v", &c->v);
    append_tensor(&text, "out", &c->out);
    if (p->decay)
        append_tensor(&text, "decay", p->decay);
    if (p->beta)
        append_tensor(&text, "beta", p->beta);
    if (p->state_in)
        append_tensor(&text, "state_in", p->state_in);
    if (p->state_out && !c->in_place)
        append_tensor(&text, "state_out", p->state_out);
    if (p->resets)
        append_tensor(&text, "resets", p->resets);
    if (p->cu_seqlens) {
        append(&text, "cu_seqlens");
        for (int64_t s = 0; s <= p->num_sequences; s++)
            append(&text, " %" PRId64, p->cu_seqlens[s]);
        append(&text, ", ");
    }
    if (p->lengths) {
        append(&text, "lengths");
        for (int64_t b = 0; b < c->v.shape[0]; b++)
            append(&text, " %" PRId64, p->lengths[b]);
        append(&text, ", ");
    }
    append(&text, "%s%s decay, scale %g, %d threads, %s", c->in_place ? "in place, " : "", decays[c->decays],
           (double)p->scale, p->num_threads, entries[c->entry]);
    if (c->entry == LINEAR_SHARES)
        append(&text, " of %d", c->nth);
    if (c->planted)
        append(&text, ", %d planted", c->planted);
}
