/* SPDX-License-Identifier: Apache-2.0 */
/* A problem and how it is cut, in one line for people. */
#include "api/describe.h"

#include "driver/backward.h"
#include "driver/linear_backward.h"
#include "driver/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const causal[] = {"none", "top-left", "bottom-right", "offset"};

/** The options that are set, but for those that have places of their own in the line: " with window, dropout". */
static void list_options(const attn_params *p, char *text, size_t size)
{
    const struct {
        const char *name;
        int set;
    } options[] = {
        {"head_scale", p->head_scale != NULL},
        {"softcap", p->softcap != 0.0f},
        {"sinks", p->sinks != NULL},
        {"alibi_slopes", p->alibi_slopes != NULL},
        {"relative_bias", p->relative_bias != NULL},
        {"disentangled", p->disentangled != NULL},
        {"rope", p->rope != NULL},
        {"callback", p->callback != NULL},
        {"prefix_len", p->prefix_len != NULL},
        {"window", p->window != NULL},
        {"block_mask", p->block_mask != NULL},
        {"segments", p->segments != NULL},
        {"tree", p->tree != NULL},
        {"mask", p->mask != NULL},
        {"ragged", p->ragged != NULL},
        {"block_table", p->block_table != NULL},
        {"dropout", p->dropout != NULL},
        {"weight_callback", p->weight_callback != NULL},
        {"free sums", p->sums == ATTN_SUMS_FREE},
    };
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!options[i].set)
            continue;
        const int n = snprintf(text + length, size - length, "%s%s", length == 0 ? " with " : ", ", options[i].name);
        length += n > 0 && (size_t)n < size - length ? (size_t)n : 0;
    }
}

size_t attn_describe(const struct attn_problem *problem, const struct attn_geometry *g, char *buffer, size_t size)
{
    const attn_tensor *q = &problem->q, *k = &problem->k, *v = &problem->v;
    const char *const out = attn_dtype_name(problem->out.dtype);
    char options[256];
    const int rows = (int)g->rows_per_block;
    char together[96] = "";
    if (g->together > 1)
        snprintf(together, sizeof together, " of %" PRId64 " heads together%s", g->together,
                 problem->params.ragged ? " where a sequence has few queries" : "");
    char shared[80] = "";
    if (g->shared_rows > 0)
        snprintf(shared, sizeof shared, ", up to %" PRId64 " queries together over shared pages", g->shared_rows);
    const char *const task = g->parts > 1                                         ? "some splits for one query block"
                             : problem->params.key_sums || g->heads_per_task == 1 ? "one head"
                             : g->heads_per_task > 1                              ? "some heads"
                                                                                  : "one query block";
    list_options(&problem->params, options, sizeof options);
    char scores[64] = "exact scores";
    if (g->kernels.qk == ATTN_QK_INT8)
        snprintf(scores, sizeof scores, "int8 scores (%s)", g->kernels.score_isa);
    char keys[64] = "no key splits";
    if (g->parts > 1)
        snprintf(keys, sizeof keys, "%" PRId64 " key splits of %d in %" PRId64 " tasks", g->splits, ATTN_SPLIT_KEYS,
                 g->parts);
    const int n = snprintf(
        buffer, size,
        "forward q=%s k=%s v=%s out=%s B=%" PRId64 " Hq=%" PRId64 " Hkv=%" PRId64 " Tq=%" PRId64 " Tk=%" PRId64
        " dk=%" PRId64 " dv=%" PRId64
        " causal=%s%s: %s kernel, %s, %s weights, strips of %d queries, blocks of %d queries x %d keys, "
        "%" PRId64 " tasks of %s%s on %d thread%s, %s%s",
        attn_dtype_name(q->dtype), attn_dtype_name(k->dtype), attn_dtype_name(v->dtype), out, q->shape[0], q->shape[1],
        k->shape[1], q->shape[2], k->shape[2], q->shape[3], v->shape[3], causal[problem->params.causal], options,
        g->kernels.isa, scores, g->kernels.values->name, g->kernels.strip, rows, g->key_block, g->tasks, task, together,
        g->parallel, g->parallel == 1 ? "" : "s", keys, shared);
    return n > 0 ? (size_t)n : 0;
}

size_t attn_describe_backward(const struct attn_backward *b, char *buffer, size_t size)
{
    const struct attn_problem *p = &b->forward;
    const struct attn_geometry *g = &b->steps.geometry;
    const attn_tensor *q = &p->q, *k = &p->k, *v = &p->v;
    char options[256], wanted[24];
    list_options(&p->params, options, sizeof options);
    snprintf(wanted, sizeof wanted, "%s%s%s", attn_has_elements(&b->dq) ? " dq" : "",
             attn_has_elements(&b->dk) ? " dk" : "", attn_has_elements(&b->dv) ? " dv" : "");
    const int n = snprintf(buffer, size,
                           "backward%s q=%s k=%s v=%s out=%s B=%" PRId64 " Hq=%" PRId64 " Hkv=%" PRId64 " Tq=%" PRId64
                           " Tk=%" PRId64 " dk=%" PRId64 " dv=%" PRId64
                           " causal=%s%s: %s kernel, %s weights, strips of %d queries, blocks of %d keys, "
                           "%" PRId64 " tasks of %" PRId64 " keys%s on %d thread%s",
                           wanted, attn_dtype_name(q->dtype), attn_dtype_name(k->dtype), attn_dtype_name(v->dtype),
                           attn_dtype_name(p->out.dtype), q->shape[0], q->shape[1], k->shape[1], q->shape[2],
                           k->shape[2], q->shape[3], v->shape[3], causal[p->params.causal], options, g->kernels.isa,
                           g->kernels.values->name, g->kernels.strip, g->key_block, b->key_tasks, b->steps.shape.keys,
                           b->apart ? ", dq apart," : "", g->parallel, g->parallel == 1 ? "" : "s");
    return n > 0 ? (size_t)n : 0;
}

/** What a call of linear attention is asked for, up to the colon. */
static void describe_rule(const struct attn_linear_attention *call, char *text, size_t size)
{
    static const char *const rules[] = {"linear", "gated", "delta", "gated delta"};
    static const char *const maps[] = {"", " features=elu", " features=positive"};
    const attn_linear_attention_params *p = &call->params;
    const attn_tensor *q = &call->q, *k = &call->k, *v = &call->v;
    snprintf(text, size,
             "q=%s k=%s v=%s out=%s B=%" PRId64 " Hq=%" PRId64 " Hk=%" PRId64 " H=%" PRId64 " T=%" PRId64 " dk=%" PRId64
             " dv=%" PRId64 " rule=%s%s%s%s%s%s%s%s",
             attn_dtype_name(q->dtype), attn_dtype_name(k->dtype), attn_dtype_name(v->dtype),
             attn_dtype_name(call->out.dtype), v->shape[0], q->shape[1], k->shape[1], v->shape[1], v->shape[2],
             q->shape[3], v->shape[3], rules[(p->decay ? 1 : 0) + (p->beta ? 2 : 0)],
             p->decay && call->decay.shape[3] != 1 ? " by channel" : "", maps[p->map],
             p->normalise ? " normalised" : "", p->bidirectional ? " bidirectional" : "", p->resets ? " resets" : "",
             p->cu_seqlens ? " ragged" : "", p->lengths ? " lengths" : "");
}

size_t attn_describe_linear_attention(const struct attn_linear_attention *call, char *buffer, size_t size)
{
    const struct attn_geometry *g = &call->cut.geometry;
    char rule[384];
    describe_rule(call, rule, sizeof rule);
    const int n = snprintf(buffer, size,
                           "linear attention %s: %s kernel, states of %" PRId64 " rows, chunks of up to %d tokens, "
                           "%" PRId64 " tasks of up to %" PRId64 " columns on %d thread%s",
                           rule, g->kernels.isa, call->cut.shape.dk, ATTN_CHUNK, g->tasks, call->cut.shape.columns,
                           g->parallel, g->parallel == 1 ? "" : "s");
    return n > 0 ? (size_t)n : 0;
}

size_t attn_describe_linear_backward(const struct attn_linear_backward *call, char *buffer, size_t size)
{
    static const char *const sides[ATTN_SIDES] = {" dq", " dk", " dv"};
    const struct attn_geometry *g = &call->cut.geometry;
    char rule[384];
    describe_rule(&call->forward, rule, sizeof rule);
    const int n =
        snprintf(buffer, size,
                 "linear attention backward%s%s%s%s%s %s: %s kernel, states of %" PRId64 " rows, chunks of up to %d "
                 "tokens, %" PRId64 " tasks in %d phases on %d thread%s",
                 call->wants[ATTN_SIDE_Q] ? sides[ATTN_SIDE_Q] : "", call->wants[ATTN_SIDE_K] ? sides[ATTN_SIDE_K] : "",
                 call->wants[ATTN_SIDE_V] ? sides[ATTN_SIDE_V] : "", call->wants_decay ? " ddecay" : "",
                 call->wants_state ? " dstate" : "", rule, g->kernels.isa, call->cut.dk, ATTN_CHUNK, g->tasks,
                 g->num_phases, g->parallel, g->parallel == 1 ? "" : "s");
    return n > 0 ? (size_t)n : 0;
}
