/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that neighbours in a batch share are read once for all of them
 * (src/driver/shared.c). Each sequence has the bits of a call for itself, whoever
 * shares what with whom: beside prompts and empty sequences, with padding, splits
 * of the keys, sinks and rows of NaN, for any number of threads and by shares.
 */
#include "dtype.h"
#include "properties.h"
#include "test_isa.h"

#include "attn/quantise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 24, MOST_HEADS = 48 };

/** A call over pages, and the arrays that its options point to. */
struct paged {
    attn_tensor q, k, v, out, lse, k_scale, v_scale;
    attn_params params;
    int64_t num, columns, queries[MOST_SEQUENCES];
    int64_t cu_q[MOST_SEQUENCES + 1], offset[MOST_SEQUENCES], kv_len[MOST_SEQUENCES], kv_start[MOST_SEQUENCES];
    float sinks[MOST_HEADS];
    int32_t *table;
    attn_ragged ragged;
};

/** The lengths of the sequences, of which most have few queries. */
static void draw_lengths(struct paged *p, struct rng *rng, int ragged, int64_t most_keys)
{
    p->num = rng_range(rng, 1, rng_percent(rng, 30) ? MOST_SEQUENCES : 6);
    const int same_start = rng_percent(rng, 70);
    const int64_t start = rng_percent(rng, 60) ? 0 : rng_range(rng, 1, 70);
    for (int64_t s = 0; s < p->num; s++) {
        p->queries[s] = !ragged ? 1 : rng_percent(rng, 70) ? 1 : RNG_PICK(rng, 0, 1, 2, 3, 7, 16, 32, 33, 60);
        p->cu_q[s + 1] = p->cu_q[s] + p->queries[s];
        p->kv_len[s] = rng_percent(rng, 90) ? rng_range(rng, most_keys / 2, most_keys) : rng_range(rng, 0, most_keys);
        p->kv_start[s] = same_start ? start : rng_range(rng, 0, 70);
        p->kv_start[s] = p->kv_start[s] < p->kv_len[s] ? p->kv_start[s] : p->kv_len[s];
        p->offset[s] = rng_percent(rng, 80) ? p->kv_len[s] - p->queries[s] : rng_range(rng, -2, p->kv_len[s]);
    }
    p->params.causal = (attn_causal)rng_range(rng, ATTN_CAUSAL_NONE, ATTN_CAUSAL_OFFSET);
    p->params.query_offset = p->params.causal == ATTN_CAUSAL_OFFSET ? p->offset : NULL;
    p->params.kv_len = p->kv_len;
    p->params.kv_start = rng_percent(rng, 50) ? p->kv_start : NULL;
}

/** Tables, of which one often begins like the one before it; of long ones up to the end of a split of the keys. */
static void draw_table(struct paged *p, struct rng *rng, int64_t pages, int64_t size)
{
    const int64_t split = 4096 / size;
    p->table = must_allocate(p->num * p->columns, sizeof *p->table);
    for (int64_t s = 0; s < p->num; s++) {
        int32_t *row = p->table + s * p->columns;
        const int64_t some =
            p->columns > split && rng_percent(rng, 50) ? split : rng_range(rng, p->columns / 2, p->columns);
        const int64_t common = s == 0 || rng_percent(rng, 15) ? 0 : some;
        for (int64_t i = 0; i < p->columns; i++)
            row[i] = i < common ? row[i - p->columns] : (int32_t)rng_range(rng, 0, pages - 1);
    }
}

/** Puts a pool into 8 bits. */
static void quantise(struct rng *rng, attn_tensor *pool, attn_tensor *scale)
{
    const attn_tensor wide = *pool;
    *scale = attn_bhtd(must_allocate(wide.shape[0] * wide.shape[1] * wide.shape[2], sizeof(float)), wide.shape[0],
                       wide.shape[1], wide.shape[2], 1);
    *pool =
        attn_bhtd(must_allocate(problem_count(&wide), 1), wide.shape[0], wide.shape[1], wide.shape[2], wide.shape[3]);
    pool->dtype = rng_percent(rng, 50) ? ATTN_I8 : ATTN_F8_E4M3;
    must_succeed(attn_quantise(&wide, pool, scale, 1), "attn_quantise");
    free(wide.data);
}

static void draw(struct paged *p, struct rng *rng, const char *isa)
{
    memset(p, 0, sizeof *p);
    p->params = attn_params_default();
    p->params.isa = isa;
    p->params.num_threads = (int)rng_range(rng, 1, 3);
    const int ragged = rng_percent(rng, 60);
    const int64_t most_keys =
        rng_percent(rng, 10) ? RNG_PICK(rng, 4096 + 150, 8192 + 150, 9000) : rng_range(rng, 1, 600);
    const int64_t size = RNG_PICK(rng, 1, 7, 16, 64), pages = rng_range(rng, 1, 2 * (most_keys / size + 1));
    draw_lengths(p, rng, ragged, most_keys);
    p->columns = most_keys / size + 1;
    draw_table(p, rng, pages, size);
    const int64_t kv_heads = rng_range(rng, 1, 2), heads = kv_heads * RNG_PICK(rng, 1, 1, 2, 3, 4, 8, 20);
    const int64_t dk = RNG_PICK(rng, 3, 16, 37, 64), dv = RNG_PICK(rng, 5, 16, 33, 64);
    const int64_t tq = ragged ? p->cu_q[p->num] + rng_range(rng, 0, 3) : 1, batch = ragged ? 1 : p->num;
    const attn_dtype dtype =
        test_isa_has_pairs(isa) ? ATTN_BF16 : (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F16);
    p->q = problem_tensor(rng, dtype, batch, heads, tq, dk);
    p->k = problem_tensor(rng, dtype, pages, kv_heads, size, dk);
    p->v = problem_tensor(rng, dtype, pages, kv_heads, size, dv);
    p->out = problem_tensor(rng, dtype, batch, heads, tq, dv);
    p->lse = problem_tensor(rng, ATTN_F32, batch, heads, tq, 1);
    p->params.lse = rng_percent(rng, 70) ? &p->lse : NULL;
    if (!test_isa_has_pairs(isa) && rng_percent(rng, 20)) {
        quantise(rng, &p->k, &p->k_scale);
        quantise(rng, &p->v, &p->v_scale);
        p->params.k_scale = &p->k_scale;
        p->params.v_scale = &p->v_scale;
    } else if (rng_percent(rng, 15)) { /* those who do not see it do not notice */
        tensor_set(rng_percent(rng, 50) ? &p->k : &p->v, rng_range(rng, 0, pages - 1), 0, rng_range(rng, 0, size - 1),
                   0, rng_percent(rng, 50) ? NAN : INFINITY);
    }
    for (int h = 0; h < MOST_HEADS; h++)
        p->sinks[h] = h % 3 == 1 ? -INFINITY : 2 * rng_normal(rng);
    p->params.softcap = rng_percent(rng, 20) ? 3.0f : 0.0f;
    p->params.sinks = rng_percent(rng, 25) ? p->sinks : NULL;
    p->params.block_table = p->table;
    p->params.block_table_stride = p->columns;
    p->params.page_size = size;
    p->ragged = (attn_ragged){.num_sequences = p->num, .cu_seqlens_q = p->cu_q};
    p->params.ragged = ragged ? &p->ragged : NULL;
}

static void free_paged(struct paged *p)
{
    void *const data[] = {p->q.data,   p->k.data,       p->v.data,       p->out.data,
                          p->lse.data, p->k_scale.data, p->v_scale.data, p->table};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
}

/** The queries of sequence s in q, or in a result. */
static attn_tensor queries_of(const struct paged *p, const attn_tensor *t, int64_t s)
{
    attn_tensor part = *t;
    const int64_t at = p->params.ragged ? p->cu_q[s] * t->stride[2] : s * t->stride[0];
    part.data = (char *)t->data + at * (int64_t)attn_dtype_size(t->dtype);
    part.shape[0] = 1;
    part.shape[2] = p->queries[s];
    return part;
}

/** Whether two tensors have the same numbers; a NaN is a NaN. */
static int same(const attn_tensor *a, const attn_tensor *b, const char *what, int64_t s)
{
    for (int64_t h = 0; h < a->shape[1]; h++)
        for (int64_t i = 0; i < a->shape[2]; i++)
            for (int64_t c = 0; c < a->shape[3]; c++) {
                const float x = tensor_get(a, 0, h, i, c), y = tensor_get(b, 0, h, i, c);
                if (memcmp(&x, &y, sizeof x) != 0 && !(isnan(x) && isnan(y))) {
                    printf("  %s of sequence %d [%d,%d,%d] is %.9g, and %.9g alone\n", what, (int)s, (int)h, (int)i,
                           (int)c, (double)x, (double)y);
                    return 0;
                }
            }
    return 1;
}

static int sequence_alone_is_same(const struct paged *p, struct rng *rng, int64_t s)
{
    const attn_tensor q = queries_of(p, &p->q, s), all_out = queries_of(p, &p->out, s);
    const attn_tensor all_lse = queries_of(p, &p->lse, s);
    attn_tensor out = problem_tensor(rng, p->out.dtype, 1, q.shape[1], q.shape[2], p->v.shape[3]);
    attn_tensor lse = problem_tensor(rng, ATTN_F32, 1, q.shape[1], q.shape[2], 1);
    attn_params params = p->params;
    const int64_t cu_q[] = {0, p->queries[s]};
    const attn_ragged one = {.num_sequences = 1, .cu_seqlens_q = cu_q};
    params.num_threads = 1;
    /* kernels of matrix registers, and of BFMMLA, leave the sums of ragged batches in order */
    const int in_order = strstr(params.isa, "amx") || strstr(params.isa, "bf16mm");
    const int stays_ragged = params.ragged && params.sums == ATTN_SUMS_FREE && in_order;
    params.ragged = stays_ragged ? &one : NULL;
    params.kv_len += s;
    params.kv_start += params.kv_start ? s : 0;
    params.query_offset += params.query_offset ? s : 0;
    params.block_table += s * p->columns;
    params.lse = params.lse ? &lse : NULL;
    must_succeed(attn_forward(&q, &p->k, &p->v, &out, &params), "attn_forward of a sequence alone");
    const int holds = same(&all_out, &out, "out", s) && (!params.lse || same(&all_lse, &lse, "lse", s));
    free(out.data);
    free(lse.data);
    return holds;
}

/** Runs the call, by shares of a plan if that is asked for; fills the results with something else first. */
static void run(struct paged *p, int shares)
{
    memset(p->out.data, 0x55, (size_t)problem_count(&p->out) * attn_dtype_size(p->out.dtype));
    memset(p->lse.data, 0x55, (size_t)problem_count(&p->lse) * sizeof(float));
    if (shares)
        problem_run_shares(&p->q, &p->k, &p->v, &p->out, &p->params);
    else
        must_succeed(attn_forward(&p->q, &p->k, &p->v, &p->out, &p->params), "attn_forward");
}

static int holds_for_all(struct paged *p, struct rng *rng)
{
    for (int64_t s = 0; s < p->num; s++)
        if (!sequence_alone_is_same(p, rng, s)) {
            printf("  num %d threads %d causal %d %s\n", (int)p->num, p->params.num_threads, (int)p->params.causal,
                   p->params.ragged ? "ragged" : "batch");
            return 0;
        }
    return 1;
}

static int sequences_alone(struct rng *rng, const char *isa)
{
    struct paged p;
    draw(&p, rng, isa);
    run(&p, 0);
    const int holds = holds_for_all(&p, rng);
    free_paged(&p);
    return holds;
}

static int by_shares(struct rng *rng, const char *isa)
{
    struct paged p;
    draw(&p, rng, isa);
    p.params.num_threads = (int)rng_range(rng, 2, 9);
    run(&p, 1);
    const int holds = holds_for_all(&p, rng);
    free_paged(&p);
    return holds;
}

/** Sums of an order of their own do not depend on who shares pages either. */
static int free_sums(struct rng *rng, const char *isa)
{
    struct paged p;
    draw(&p, rng, isa);
    p.params.sums = ATTN_SUMS_FREE;
    run(&p, 0);
    const int holds = holds_for_all(&p, rng);
    free_paged(&p);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {{"sequences of a batch, each alone", sequences_alone},
                                                 {"by shares of a plan", by_shares},
                                                 {"free sums", free_sums}};
    return properties_run(argc, argv, "test_shared_keys", properties, sizeof properties / sizeof *properties);
}
