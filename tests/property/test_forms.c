/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that say which keys a query sees, in two ways that mean the same:
 * a window without ends, a prefix of all keys, a tree that is a chain, all
 * blocks of a pattern, segments and ragged batches; and dropout, whose
 * decisions follow from indices alone. Bits are compared where the visible keys
 * are those of another call in the same places; where keys are gathered or
 * hidden in another way, close.h says how far apart two results may be.
 */
#include "close.h"
#include "dtype.h"
#include "properties.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int endless_window(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    const attn_window window = {.left = ATTN_UNLIMITED, .right = ATTN_UNLIMITED};
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&changed, &p);
    changed.params.window = &window;
    return same_and_free(&p, &changed);
}

/** A window that ends at the query's own position is causality. */
static int window_to_the_left(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    const attn_window window = {.left = ATTN_UNLIMITED, .right = 0};
    problem_random(&p, rng, isa, WITH_MASK | WITH_LENGTHS);
    p.params.causal = (attn_causal)RNG_PICK(rng, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_OFFSET);
    problem_bind(&p, p.params.kv_len != NULL, p.params.kv_start != NULL, p.params.causal == ATTN_CAUSAL_OFFSET);
    problem_copy(&changed, &p);
    changed.params.causal = ATTN_CAUSAL_NONE; /* with the same query_offset, if any */
    changed.params.window = &window;
    return same_and_free(&p, &changed);
}

static int prefix_of_all_keys(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    int64_t prefix[PROBLEM_MAX_BATCH];
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&changed, &p);
    for (int64_t b = 0; b < p.q.shape[0]; b++)
        prefix[b] = p.k.shape[2] + (int64_t)RNG_PICK(rng, 0, 1, 1000, INT64_MAX / 2);
    p.params.causal = ATTN_CAUSAL_NONE;
    p.params.query_offset = NULL;
    changed.params.prefix_len = prefix;
    if (changed.params.causal == ATTN_CAUSAL_NONE)
        changed.params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    return same_and_free(&p, &changed);
}

/** Causality among the last keys, said by causality or by the bits of a chain. */
static int chain_is_causality(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, 0);
    while (p.q.shape[2] > p.k.shape[2]) {
        problem_free(&p);
        problem_random(&p, rng, isa, 0);
    }
    const int64_t batch = p.q.shape[0], tq = p.q.shape[2], words = (tq + 63) / 64;
    uint64_t *ancestors = must_allocate(batch * tq * words, sizeof *ancestors);
    for (int64_t row = 0; row < batch * tq; row++)
        for (int64_t t = 0; t <= row % tq; t++)
            ancestors[row * words + t / 64] |= (uint64_t)1 << (t % 64);
    const attn_tree tree = {tq, ancestors};
    problem_copy(&changed, &p);
    p.params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    changed.params.tree = &tree;
    const int holds = same_and_free(&p, &changed);
    free(ancestors);
    return holds;
}

/** A pattern with all blocks, or those with a key that causality shows. */
static int all_blocks(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    const int64_t tq = p.q.shape[2], tk = p.k.shape[2], size = RNG_PICK(rng, 16, 32, 48, 64, 128);
    const int64_t rows = (tq + size - 1) / size, columns = (tk + size - 1) / size;
    const int lower = p.params.causal == ATTN_CAUSAL_TOP_LEFT && rng_percent(rng, 70);
    int64_t *offsets = must_allocate(rows + 1, sizeof *offsets), n = 0;
    int32_t *list = must_allocate(rows * columns, sizeof *list);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns && (!lower || c <= r); c++)
            list[n++] = (int32_t)c;
        offsets[r + 1] = n;
    }
    const attn_block_mask pattern = {.size = size, .heads = 1, .rows = rows, .offsets = offsets, .columns = list};
    problem_copy(&changed, &p);
    changed.params.block_mask = &pattern;
    const int holds = close_and_free(&p, &changed, &p, 0);
    free(offsets);
    free(list);
    return holds;
}

/** Random options of each kind, written out as a boolean mask. */
static int forms_are_masks(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_CAUSAL | WITH_LENGTHS);
    const int64_t batch = p.q.shape[0], heads = p.q.shape[1], tq = p.q.shape[2], tk = p.k.shape[2];
    const int64_t global[] = {tk / 3, tk - 1};
    const attn_window window = {.left = rng_range(rng, 0, 40),
                                .right = rng_percent(rng, 50) ? rng_range(rng, 0, 40) : ATTN_UNLIMITED,
                                .first_tokens = rng_percent(rng, 50) ? rng_range(rng, 0, 6) : 0,
                                .global = global,
                                .num_global = tk > 1 && rng_percent(rng, 40) ? 2 : 0};
    int32_t *ids = must_allocate(batch * (tq + tk), sizeof *ids);
    for (int64_t i = 0; i < batch * (tq + tk); i++)
        ids[i] = (int32_t)rng_range(rng, -1, 1);
    const attn_segments segments = {ids, ids + batch * tq};
    const int which = (int)rng_range(rng, 1, 3);
    if (p.params.causal == ATTN_CAUSAL_NONE && rng_percent(rng, 50))
        p.params.query_offset = p.query_offset;
    p.params.window = which & 1 ? &window : NULL;
    p.params.segments = which & 2 ? &segments : NULL;
    uint8_t *live = must_allocate(batch * heads * tq * tk, 1);
    for (int64_t at = 0; at < batch * heads * tq * tk; at++)
        live[at] = (uint8_t)oracle_key_is_live(&p.params, tq, tk, at / (tk * tq * heads), at / (tk * tq) % heads,
                                               at / tk % tq, at % tk);
    problem_copy(&changed, &p);
    changed.mask = attn_bhtd(live, batch, heads, tq, tk);
    changed.mask.dtype = ATTN_BOOL;
    changed.params.causal = ATTN_CAUSAL_NONE;
    changed.params.window = NULL;
    changed.params.segments = NULL;
    problem_bind(&changed, 0, 0, 0);
    const int holds = close_and_free(&p, &changed, &p, 0);
    free(ids);
    return holds;
}

/* ----------------------------------------------------------- ragged batches -- */

/** A problem of one batch element, cut into sequences. */
struct cut {
    struct problem whole;
    int64_t num, cu_q[5], cu_k[5], len[4], offset[4];
    attn_ragged ragged;
};

static void random_cut(struct cut *cut, struct rng *rng, const char *isa)
{
    struct problem *p = &cut->whole;
    problem_random(p, rng, isa, 0);
    while (p->q.shape[0] > 1) {
        problem_free(p);
        problem_random(p, rng, isa, 0);
    }
    cut->num = rng_range(rng, 1, 4);
    cut->cu_q[0] = cut->cu_k[0] = 0;
    for (int64_t s = 0; s < cut->num; s++) {
        cut->cu_q[s + 1] = rng_range(rng, cut->cu_q[s], p->q.shape[2]);
        cut->cu_k[s + 1] = rng_range(rng, cut->cu_k[s], p->k.shape[2]);
        cut->len[s] = rng_range(rng, 0, cut->cu_k[s + 1] - cut->cu_k[s]);
        cut->offset[s] = rng_range(rng, -5, 20);
    }
    cut->ragged = (attn_ragged){cut->num, cut->cu_q, cut->cu_k};
    p->params.ragged = &cut->ragged;
    p->params.causal = (attn_causal)rng_range(rng, 0, 3);
    p->params.query_offset = p->params.causal == ATTN_CAUSAL_OFFSET ? cut->offset : NULL;
    p->params.kv_len = rng_percent(rng, 40) ? cut->len : NULL;
}

static void take_tokens(attn_tensor *t, int64_t first, int64_t end)
{
    t->data = (char *)t->data + first * t->stride[2] * (int64_t)attn_dtype_size(t->dtype);
    t->shape[2] = end - first;
}

/** A view of one sequence as a batch of its own: not freed. */
static struct problem one_sequence(const struct cut *cut, int64_t s)
{
    struct problem part = cut->whole;
    take_tokens(&part.q, cut->cu_q[s], cut->cu_q[s + 1]);
    take_tokens(&part.k, cut->cu_k[s], cut->cu_k[s + 1]);
    take_tokens(&part.v, cut->cu_k[s], cut->cu_k[s + 1]);
    part.params.ragged = NULL;
    part.params.query_offset = part.params.query_offset ? cut->offset + s : NULL;
    part.params.kv_len = part.params.kv_len ? cut->len + s : NULL;
    return part;
}

/** Whether sequence s has, in the whole result, the bits that it has alone; weights of others' keys must be 0. */
static int sequence_equal(const struct cut *cut, const struct result *whole, const struct result *one, int64_t s)
{
    const int64_t first_key = cut->cu_k[s];
    for (int64_t h = 0; h < whole->heads; h++) {
        for (int64_t i = 0; i < one->tq; i++) {
            const int64_t w = h * whole->tq + cut->cu_q[s] + i, r = h * one->tq + i;
            const float *weights = whole->weights + w * whole->tk;
            if (memcmp(result_row(whole, w), result_row(one, r), result_row_size(one)) != 0 ||
                memcmp(whole->lse + w, one->lse + r, sizeof *one->lse) != 0)
                return 0;
            for (int64_t j = 0; j < whole->tk; j++) {
                const int mine = j >= first_key && j < first_key + one->tk;
                const float expected = mine ? one->weights[r * one->tk + j - first_key] : 0;
                if (memcmp(weights + j, &expected, sizeof expected) != 0)
                    return 0;
            }
        }
        if (one->tk > 0 && memcmp(whole->key_sums + h * whole->tk + first_key, one->key_sums + h * one->tk,
                                  (size_t)one->tk * sizeof *one->key_sums) != 0)
            return 0;
    }
    return 1;
}

static int ragged_is_each_alone(struct rng *rng, const char *isa)
{
    struct cut cut;
    random_cut(&cut, rng, isa);
    struct result whole = problem_run(&cut.whole);
    int holds = 1;
    for (int64_t s = 0; s < cut.num && holds; s++) {
        const struct problem part = one_sequence(&cut, s);
        struct result one = problem_run(&part);
        holds = sequence_equal(&cut, &whole, &one, s);
        if (!holds)
            printf("  sequence %d of %d alone has other bits\n", (int)s, (int)cut.num);
        result_free(&one);
    }
    for (int64_t h = 0; h < whole.heads; h++)
        for (int64_t i = cut.cu_q[cut.num]; i < whole.tq; i++) {
            const int64_t row = h * whole.tq + i;
            holds = holds && whole.lse[row] == -INFINITY;
            for (int64_t c = 0; c < whole.dv; c++)
                holds = holds && result_out(&whole, row * whole.dv + c) == 0;
        }
    result_free(&whole);
    problem_free(&cut.whole);
    return holds;
}

/** What stands in other sequences does not matter, be it NaN. */
static int other_sequences(struct rng *rng, const char *isa)
{
    struct cut cut;
    struct problem changed;
    random_cut(&cut, rng, isa);
    const int64_t s = rng_range(rng, 0, cut.num - 1);
    const float garbage = rng_percent(rng, 50) ? NAN : INFINITY;
    problem_copy(&changed, &cut.whole);
    changed.params.query_offset = cut.whole.params.query_offset;
    changed.params.kv_len = cut.whole.params.kv_len;
    attn_tensor *const all[] = {&changed.q, &changed.k, &changed.v};
    for (int n = 0; n < 3; n++) {
        const int64_t *cu = n ? cut.cu_k : cut.cu_q;
        for (int64_t h = 0; h < all[n]->shape[1]; h++)
            for (int64_t i = 0; i < all[n]->shape[2]; i++)
                for (int64_t c = 0; c < all[n]->shape[3] && (i < cu[s] || i >= cu[s + 1]); c++)
                    tensor_set(all[n], 0, h, i, c, garbage);
    }
    struct result a = problem_run(&cut.whole), b = problem_run(&changed);
    int holds = 1;
    for (int64_t row = 0; row < a.heads * a.tq && holds; row++)
        if (row % a.tq >= cut.cu_q[s] && row % a.tq < cut.cu_q[s + 1])
            holds = memcmp(result_row(&a, row), result_row(&b, row), result_row_size(&a)) == 0 &&
                    memcmp(a.lse + row, b.lse + row, sizeof *a.lse) == 0 &&
                    memcmp(a.weights + row * a.tk, b.weights + row * a.tk, (size_t)a.tk * sizeof *a.weights) == 0;
    result_free(&a);
    result_free(&b);
    problem_free(&changed);
    problem_free(&cut.whole);
    return holds;
}

/** Sequences behind each other are segments of one. */
static int sorted_segments(struct rng *rng, const char *isa)
{
    struct cut cut;
    struct problem changed;
    random_cut(&cut, rng, isa);
    cut.whole.params.causal = ATTN_CAUSAL_NONE;
    cut.whole.params.query_offset = NULL;
    cut.whole.params.kv_len = NULL;
    const int64_t tq = cut.whole.q.shape[2], tk = cut.whole.k.shape[2];
    int32_t *ids = must_allocate(tq + tk, sizeof *ids);
    for (int64_t i = 0; i < tq; i++)
        for (int64_t s = 0; s < cut.num; s++)
            ids[i] += i >= cut.cu_q[s + 1];
    for (int64_t j = 0; j < tk; j++) {
        for (int64_t s = 0; s < cut.num; s++)
            ids[tq + j] += j >= cut.cu_k[s + 1];
        if (j >= cut.cu_k[cut.num]) /* behind the last sequence: not seen by the queries there */
            ids[tq + j] = -1;
    }
    const attn_segments segments = {ids, ids + tq};
    problem_copy(&changed, &cut.whole);
    changed.params.ragged = NULL;
    changed.params.segments = &segments;
    const int holds = close_and_free(&cut.whole, &changed, &cut.whole, 0);
    free(ids);
    return holds;
}

/* ----------------------------------------------------------------- dropout -- */

static attn_dropout random_dropout(struct rng *rng)
{
    return (attn_dropout){.p = (float)(0.05 + 0.9 * rng_uniform(rng)), .seed = rng_bits(rng), .offset = rng_bits(rng)};
}

static int dropout_of_nothing(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    attn_dropout dropout = random_dropout(rng);
    dropout.p = 0;
    problem_random(&p, rng, isa, WITH_ALL);
    problem_copy(&changed, &p);
    changed.params.dropout = &dropout;
    return same_and_free(&p, &changed);
}

static int dropout_and_threads(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    const attn_dropout dropout = random_dropout(rng);
    problem_for_threads(&p, rng, isa, 3);
    problem_copy(&changed, &p);
    p.params.dropout = changed.params.dropout = &dropout;
    changed.params.num_threads = 3;
    return same_and_free(&p, &changed);
}

/** The weights are those without dropout times 0 or 1/(1-p), the right ones, at about the right rate. */
static int dropped_weights(struct rng *rng, const char *isa)
{
    struct problem p;
    const attn_dropout dropout = random_dropout(rng);
    problem_random(&p, rng, isa, WITH_ALL);
    struct result plain = problem_run(&p);
    p.params.dropout = &dropout;
    struct result r = problem_run(&p);
    const double factor = 1 / (1 - (double)dropout.p), rows = (double)(r.batch * r.heads * r.tq);
    double kept = 0;
    int holds = memcmp(plain.lse, r.lse, (size_t)rows * sizeof *r.lse) == 0;
    for (int64_t row = 0; row < r.batch * r.heads * r.tq && holds; row++) {
        const struct oracle_query query =
            oracle_query_at(&p.params, r.tq, r.tk, row / (r.heads * r.tq), row / r.tq % r.heads, row % r.tq);
        for (int64_t j = 0; j < r.tk && holds; j++) {
            const int keeps = oracle_keeps(&p.params, &query, j);
            const double before = (double)plain.weights[row * r.tk + j];
            kept += keeps;
            holds = close_enough("weight", row * r.tk + j, (double)r.weights[row * r.tk + j],
                                 keeps ? factor * before : 0, keeps ? 4e-7 * factor * before + 1e-36 : 0);
        }
    }
    const double n = rows * (double)r.tk, expected = n * (1 - (double)dropout.p);
    if (holds && fabs(kept - expected) > 6 * sqrt(n * (double)dropout.p * (1 - (double)dropout.p)) + 1) {
        printf("  %.0f of %.0f weights are kept, about %.0f are expected\n", kept, n, expected);
        holds = 0;
    }
    result_free(&plain);
    result_free(&r);
    problem_free(&p);
    return holds;
}

/** Global queries have a strip of their own, but for calls that ask for weights: the same bits of out and lse. */
static int global_queries_apart(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    int64_t global[8], count = 0;
    for (int64_t t = 0; t < p.k.shape[2] && count < 8; t += rng_range(rng, 1, 40))
        global[count++] = t;
    const attn_window window = {.left = rng_range(rng, 0, 30),
                                .right = rng_range(rng, 0, 30),
                                .first_tokens = rng_range(rng, 0, 2),
                                .global = global,
                                .num_global = count};
    p.params.window = &window;
    struct result together = problem_run(&p), apart = result_allocate(&p);
    struct call call;
    call_initialize(&call, &p, &apart);
    call.params.weights = call.params.key_sums = NULL;
    call.params.weight_rows = NULL;
    call.params.num_weight_rows = 0;
    must_succeed(attn_forward(&p.q, &p.k, &p.v, &call.out, &call.params), "global queries apart");
    const int64_t rows = apart.batch * apart.heads * apart.tq;
    const int holds = memcmp(apart.out, together.out, (size_t)rows * result_row_size(&apart)) == 0 &&
                      memcmp(apart.lse, together.lse, (size_t)rows * sizeof *apart.lse) == 0;
    result_free(&together);
    result_free(&apart);
    problem_free(&p);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"a window without ends", endless_window},
        {"a window to the left is causality", window_to_the_left},
        {"a prefix of all keys", prefix_of_all_keys},
        {"a chain is causality", chain_is_causality},
        {"a pattern of all blocks", all_blocks},
        {"windows and segments are masks", forms_are_masks},
        {"ragged sequences alone", ragged_is_each_alone},
        {"other ragged sequences", other_sequences},
        {"sorted segments are a ragged batch", sorted_segments},
        {"global queries apart", global_queries_apart},
        {"dropout of nothing", dropout_of_nothing},
        {"dropout and threads", dropout_and_threads},
        {"dropped weights", dropped_weights},
    };
    return properties_run(argc, argv, "test_forms", properties, sizeof properties / sizeof *properties);
}
