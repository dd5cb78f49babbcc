/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn-bench's naive implementation (../../naive.c) on the caller's tensors:
 * softmax between two OpenBLAS products, in the best of its three ways to use
 * the threads. Only the struct that it reads is filled in here.
 */
#include "naive.h"
#include "restart.h"

#include <stdlib.h>
#include <string.h>

struct peers_naive {
    struct bench_case bcase;
    struct bench_problem problem;
    struct bench_naive naive;
};

/* naive.c asks for it to get other kernels of OpenBLAS; here Python has chosen them before, and is not to be replaced.
 */
void bench_restart(char *const *argv)
{
    (void)argv;
}

/* Seconds for which each way is tried. */
#define PROBE_TIME 0.02

struct peers_naive *peers_naive_create(int threads, const int64_t *sizes, int causal, void *q, void *k, void *v,
                                       void *mask, void *kv_len, void *out);
int peers_naive_run(struct peers_naive *p);
const char *peers_naive_strategy(const struct peers_naive *p);
const char *peers_naive_blas(void);
void peers_naive_destroy(struct peers_naive *p);

/* The loops for the widest instruction set that bench has any for and that runs here. */
static const struct bench_isa_kernels *widest_kernels(void)
{
    const struct bench_isa_kernels *kernels = bench_isa_kernels_get(attn_isa_active());
    for (int i = 0; kernels == NULL && attn_isa_name(i) != NULL; i++)
        kernels = bench_isa_kernels_get(attn_isa_name(i));
    return kernels;
}

/* sizes: batch, query heads, key heads, queries, keys, head size. The mask is bytes, queries x keys, for all heads. */
struct peers_naive *peers_naive_create(int threads, const int64_t *sizes, int causal, void *q, void *k, void *v,
                                       void *mask, void *kv_len, void *out)
{
    struct peers_naive *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    const int64_t b = sizes[0], hq = sizes[1], hkv = sizes[2], tq = sizes[3], tk = sizes[4], d = sizes[5];
    p->bcase.id = "peers";
    p->bcase.batch = b, p->bcase.heads = hq, p->bcase.kv_heads = hkv;
    p->bcase.tq = tq, p->bcase.tk = tk, p->bcase.d = d;
    p->bcase.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    p->bcase.bool_mask = mask != NULL, p->bcase.padded = kv_len != NULL;
    p->problem.bcase = &p->bcase;
    p->problem.batch = b, p->problem.tq = tq, p->problem.tk = tk;
    p->problem.params = attn_params_default();
    p->problem.params.causal = p->bcase.causal;
    p->problem.params.kv_len = kv_len;
    p->problem.q = attn_bhtd(q, b, hq, tq, d);
    p->problem.k = attn_bhtd(k, b, hkv, tk, d);
    p->problem.v = attn_bhtd(v, b, hkv, tk, d);
    p->problem.expected = attn_bhtd(out, b, hq, tq, d);
    p->problem.kv_len = kv_len;
    if (mask != NULL) {
        p->problem.mask.data = mask;
        p->problem.mask.dtype = ATTN_BOOL;
        p->problem.mask.shape[0] = p->problem.mask.shape[1] = 1;
        p->problem.mask.shape[2] = tq, p->problem.mask.shape[3] = tk;
        p->problem.mask.stride[2] = tk, p->problem.mask.stride[3] = 1;
    }
    if (bench_naive_create(&p->naive, &p->problem, widest_kernels(), threads, PROBE_TIME) != 0) {
        free(p);
        return NULL;
    }
    return p;
}

int peers_naive_run(struct peers_naive *p)
{
    return bench_naive_run(&p->naive) ? 0 : -1;
}

const char *peers_naive_strategy(const struct peers_naive *p)
{
    return bench_naive_strategy_name(p->naive.strategy);
}

const char *peers_naive_blas(void)
{
    return bench_naive_blas_core();
}

void peers_naive_destroy(struct peers_naive *p)
{
    if (p != NULL)
        bench_naive_destroy(&p->naive);
    free(p);
}
