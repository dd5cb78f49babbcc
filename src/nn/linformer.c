/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linformer (Wang et al. 2020, equation 7): keys and values become r rows each,
 * sums over their tokens with learned weights, and attention to these rows is a
 * call of the core.
 *
 *     K' = E K, V' = F V    sums of products, all sequences and heads in one run: gradient_products.h
 *     out                   the core, with K' and V' for keys and values
 *
 * Rows of E are the left factor as they lie, rows of K the right one: neither is
 * packed. A sequence's sums end at its own length, so that padding is not read;
 * where there is nothing to sum, the core is told that there are no keys. Both
 * steps work in the same memory, one after the other.
 */
#include "api/call.h"
#include "api/executor.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/gradient_products.h"
#include "nn/memory.h"

#include <inttypes.h>

/** What is asked for. */
struct call {
    const attn_tensor *q, *k, *v, *e, *f, *out;
    attn_params params;
    const int64_t *kv_len; /**< the caller's, or NULL; the core gets another one */
};

/** Working memory. */
struct pieces {
    struct nn_progress *progress;
    void *keys, *values; /**< projected */
    int64_t *live;       /**< [B] of the projected keys: all or none */
    void *scratch;       /**< of either step */
    size_t scratch_size;
};

static int64_t rank_of(const struct call *c)
{
    return c->e->shape[2];
}

/* ------------------------------------------------------------------- checks -- */

/** Options of attn_params that have no meaning here, or no kernel. */
static attn_status check_refused(const attn_params *p)
{
    static const char sums[] = "a projected key is a sum over the keys of all positions";
    static const char rows[] = "keys are projected from (B, Hkv, Tk, dk) in f32, bf16 or f16";
    const struct {
        const char *name, *reason;
        int set;
    } refused[] = {
        {"alibi_slopes", sums, p->alibi_slopes != NULL},
        {"relative_bias", sums, p->relative_bias != NULL},
        {"disentangled", sums, p->disentangled != NULL},
        {"rope", sums, p->rope != NULL},
        {"causal", sums, p->causal != ATTN_CAUSAL_NONE},
        {"query_offset", sums, p->query_offset != NULL},
        {"kv_start", sums, p->kv_start != NULL},
        {"prefix_len", sums, p->prefix_len != NULL},
        {"window", sums, p->window != NULL},
        {"block_mask", sums, p->block_mask != NULL},
        {"segments", sums, p->segments != NULL},
        {"tree", sums, p->tree != NULL},
        {"mask", sums, p->mask != NULL},
        {"ragged", rows, p->ragged != NULL},
        {"block_table", rows, p->block_table != NULL},
        {"block_table_stride", rows, p->block_table_stride != 0},
        {"page_size", rows, p->page_size != 0},
        {"k_scale", rows, p->k_scale != NULL},
        {"v_scale", rows, p->v_scale != NULL},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].set)
            return attn_fail(ATTN_UNSUPPORTED, "params.%s is set; attn_linformer_forward() cannot have it, as %s",
                             refused[i].name, refused[i].reason);
    return ATTN_OK;
}

/** Keys or values. */
static attn_status check_rows(const char *name, const attn_tensor *t, enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_float(name, t->dtype));
    return depth & CHECK_TENSORS ? attn_check_contiguous(name, t) : ATTN_OK;
}

/** A projection of what lies in k. */
static attn_status check_projection(const char *name, const attn_tensor *t, const attn_tensor *k,
                                    enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_float(name, t->dtype));
    CHECK(attn_check_axis(name, t, 0, 1, "as all sequences have the same projection"));
    CHECK(attn_check_one_or(name, t, 1, k->shape[1]));
    if (t->shape[3] < k->shape[2])
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "%s.shape[3] is %" PRId64 "; expected %" PRId64 " or more, the tokens of k", name, t->shape[3],
                         k->shape[2]);
    return ATTN_OK;
}

/** The last axis of an output on request, of which the core would say that it has the tokens of k. */
static attn_status check_wide(const char *name, const attn_tensor *t, int64_t rank)
{
    return t ? attn_check_axis(name, t, 3, rank, "the rows of e") : ATTN_OK;
}

/** All that the core, given projected keys, does not see. */
static attn_status check_call(struct call *c, const attn_params *params, enum check_depth depth)
{
    CHECK(check_rows("k", c->k, depth));
    CHECK(check_rows("v", c->v, depth));
    CHECK(attn_check_axis("v", c->v, 0, c->k->shape[0], "the batch of k"));
    CHECK(attn_check_axis("v", c->v, 1, c->k->shape[1], "the heads of k"));
    CHECK(attn_check_axis("v", c->v, 2, c->k->shape[2], "the tokens of k"));
    CHECK(check_projection("e", c->e, c->k, depth));
    if (c->f) {
        CHECK(check_projection("f", c->f, c->k, depth));
        CHECK(attn_check_axis("f", c->f, 2, rank_of(c), "the rows of e"));
    }
    CHECK(attn_take_params(&c->params, params));
    CHECK(check_refused(&c->params));
    CHECK(check_wide("params.weights", c->params.weights, rank_of(c)));
    CHECK(check_wide("params.key_sums", c->params.key_sums, rank_of(c)));
    CHECK(check_wide("params.scores", c->params.scores, rank_of(c)));
    CHECK(attn_check_executor("params.executor", c->params.executor));
    c->kv_len = c->params.kv_len;
    if (depth & CHECK_ARRAYS)
        CHECK(nn_check_lengths("params.kv_len", c->kv_len, c->k->shape[0], c->k->shape[2], "the tokens of k"));
    if (c->params.num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_threads is %d; expected 0 or more", c->params.num_threads);
    return ATTN_OK;
}

/** That no output lies on what the core does not know of: those have been checked by it. */
static attn_status check_apart(const struct call *c)
{
    const attn_params *p = &c->params;
    const attn_tensor lengths = {
        (void *)(uintptr_t)c->kv_len, ATTN_U8, {1, 1, 1, c->k->shape[0] * (int64_t)sizeof *c->kv_len}, {0, 0, 0, 1}};
    const struct nn_argument inputs[] = {
        {"k", c->k}, {"v", c->v}, {"e", c->e}, {"f", c->f}, {"params.kv_len", c->kv_len ? &lengths : NULL}};
    const struct nn_argument outputs[] = {{"out", c->out},
                                          {"params.lse", p->lse},
                                          {"params.weights", p->weights},
                                          {"params.key_sums", p->key_sums},
                                          {"params.scores", p->scores}};
    return nn_check_apart(outputs, 5, inputs, 5);
}

/* ------------------------------------------------------------------- memory -- */

/** (B, Hkv, r, channels) in the type of what is projected. Strides are those of memory only where there is some. */
static attn_tensor projected_view(const attn_tensor *from, int64_t rank, void *data)
{
    attn_tensor t = {data, from->dtype, {from->shape[0], from->shape[1], rank, from->shape[3]}, {0, 0, 0, 1}};
    if (data) {
        t.stride[2] = t.shape[3];
        t.stride[1] = t.stride[2] * rank;
        t.stride[0] = t.stride[1] * t.shape[1];
    }
    return t;
}

/** Checks the core's part of a call; live: of the projected keys, or NULL. */
static attn_status make_core(struct attn_call *core, const struct call *c, const struct pieces *pieces,
                             const int64_t *live, enum check_depth depth)
{
    const attn_tensor keys = projected_view(c->k, rank_of(c), pieces->keys);
    const attn_tensor values = projected_view(c->v, rank_of(c), pieces->values);
    attn_params params = c->params;
    params.kv_len = live;
    return attn_call_make(core, c->q, &keys, &values, c->out, &params, depth);
}

/** The threads that the larger of the two projections is worth. */
static int projecting_threads(const struct call *c)
{
    const int64_t channels = c->k->shape[3] > c->v->shape[3] ? c->k->shape[3] : c->v->shape[3];
    const int asked = nn_all_threads(c->params.num_threads);
    const double operations = (double)c->k->shape[0] * (double)c->k->shape[1] * (double)rank_of(c) * (double)channels *
                              (double)(c->k->shape[2] + 1) / 8;
    return nn_threads(asked < ATTN_MAX_THREADS ? asked : ATTN_MAX_THREADS, operations);
}

static attn_status measure(struct nn_need *need, const struct call *c)
{
    struct attn_call core;
    CHECK(make_core(&core, c, &(struct pieces){0}, c->kv_len, CHECK_SHAPES));
    *need = nn_larger_need((struct nn_need){attn_call_size(&core), attn_call_least_size(&core)},
                           nn_gradient_product_need(projecting_threads(c)));
    return ATTN_OK;
}

static struct pieces take_pieces(struct nn_arena *arena, const struct call *c)
{
    const int64_t batch = c->k->shape[0], heads = c->k->shape[1];
    struct pieces pieces;
    struct nn_need need = {0};
    if (!arena->base) /* first, as it checks all sizes */
        arena->status = measure(&need, c);
    pieces.progress = nn_take_progress(arena);
    pieces.keys = nn_take(arena, batch * heads, rank_of(c), c->k->shape[3], attn_dtype_size(c->k->dtype));
    pieces.values = nn_take(arena, batch * heads, rank_of(c), c->v->shape[3], attn_dtype_size(c->v->dtype));
    pieces.live = nn_take(arena, c->kv_len ? batch : 0, 1, 1, sizeof *pieces.live);
    pieces.scratch = nn_take_workspace(arena, need, &pieces.scratch_size);
    return pieces;
}

size_t attn_linformer_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                     const attn_tensor *e, const attn_tensor *f, const attn_tensor *out,
                                     const attn_params *params)
{
    struct call c = {.q = q, .k = k, .v = v, .e = e, .f = f, .out = out};
    if (check_call(&c, params, CHECK_SHAPES))
        return SIZE_MAX;
    const attn_executor *before = attn_executor_enter(c.params.executor);
    struct nn_arena arena = {0};
    take_pieces(&arena, &c);
    attn_executor_leave(before);
    return nn_arena_size(&arena);
}

/* ------------------------------------------------------------------ running -- */

/** The projections of all sequences and heads of keys, or of values. */
struct projections {
    const attn_tensor *from, *by;
    const int64_t *kv_len;
    attn_tensor to;
};

/** A head of a sequence. */
static attn_tensor head_of(const attn_tensor *t, int64_t b, int64_t h)
{
    const int64_t at = (t->shape[0] > 1 ? b * t->stride[0] : 0) + (t->shape[1] > 1 ? h * t->stride[1] : 0);
    return (attn_tensor){(char *)t->data + at * attn_element_size(t->dtype),
                         t->dtype,
                         {1, 1, t->shape[2], t->shape[3]},
                         {0, 0, t->stride[2], t->stride[3]}};
}

/** A product for each head of each sequence. */
static void describe(const void *context, int64_t n, struct nn_listed_product *listed)
{
    const struct projections *p = context;
    const int64_t b = n / p->to.shape[1], h = n % p->to.shape[1];
    const int64_t terms = p->kv_len ? p->kv_len[b] : p->from->shape[2];
    struct nn_gradient_product *product = &listed->product;
    *product = (struct nn_gradient_product){.rows = p->to.shape[2], .columns = p->to.shape[3], .terms = terms};
    if (!product->rows || !product->columns)
        return;
    listed->to = head_of(&p->to, b, h);
    product->to = &listed->to;
    if (!terms) /* nor are there, perhaps, factors */
        return;
    listed->left = head_of(p->by, 0, h);
    listed->right = head_of(p->from, b, h);
    product->left = (struct nn_factor){&listed->left, 1};
    product->right = (struct nn_factor){&listed->right, 0};
}

/** The products of keys or of values, and what they are made of. */
struct projecting {
    struct projections projections;
    struct nn_gradient_products products; /**< context not set yet */
};

static struct projecting projecting_of(const struct call *c, const attn_tensor *from, const attn_tensor *by, void *to,
                                       int isa, const struct pieces *pieces)
{
    return (struct projecting){.projections = {from, by, c->kv_len, projected_view(from, rank_of(c), to)},
                               .products = {
                                   .count = from->shape[0] * from->shape[1],
                                   .describe = describe,
                                   .most_terms = from->shape[2],
                                   .isa = isa,
                                   .begun = &pieces->progress->begun,
                               }};
}

static attn_status run(const struct call *c, const struct pieces *pieces)
{
    struct attn_call core;
    CHECK(make_core(&core, c, pieces, NULL, CHECK_ALL));
    CHECK(check_apart(c));
    if (c->kv_len) { /* what the core sees of it is written now that all else is right */
        for (int64_t b = 0; b < c->k->shape[0]; b++)
            pieces->live[b] = c->kv_len[b] ? rank_of(c) : 0;
        CHECK(make_core(&core, c, pieces, pieces->live, CHECK_ALL));
    }
    const int threads = nn_all_threads(c->params.num_threads), isa = core.problem.isa;
    struct projecting both[] = {projecting_of(c, c->k, c->e, pieces->keys, isa, pieces),
                                projecting_of(c, c->v, c->f ? c->f : c->e, pieces->values, isa, pieces)};
    int64_t tasks = attn_geometry_tasks(&core.geometry);
    for (int i = 0; i < 2; i++) {
        both[i].products.context = &both[i].projections;
        tasks += nn_gradient_product_tasks(&both[i].products, threads, pieces->scratch_size);
    }
    nn_progress_begin(pieces->progress, tasks);
    core.geometry.begun = &pieces->progress->begun;
    for (int i = 0; i < 2; i++)
        nn_gradient_products(&both[i].products, threads, pieces->scratch, pieces->scratch_size);
    return attn_call_run(&core, pieces->scratch, pieces->scratch_size);
}

attn_status attn_linformer_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                   const attn_tensor *e, const attn_tensor *f, const attn_tensor *out,
                                   const attn_params *params, void *workspace, size_t workspace_size)
{
    struct call c = {.q = q, .k = k, .v = v, .e = e, .f = f, .out = out};
    CHECK(check_call(&c, params, CHECK_ALL));
    const attn_executor *before = attn_executor_enter(c.params.executor);
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_pieces(&measured, &c);
    attn_status status = nn_workspace_open(&memory, workspace, workspace_size, &measured);
    if (!status) {
        const struct pieces pieces = take_pieces(&memory.arena, &c);
        status = run(&c, &pieces);
        nn_workspace_close(&memory);
    }
    attn_executor_leave(before);
    return status;
}
