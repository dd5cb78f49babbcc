/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline, made as fast as its form allows, because a weak one proves
 * nothing: OpenBLAS with the kernels of the same instruction set as the
 * library, log2(e) folded into the scale so that the softmax is one SLEEF exp2
 * for each score, rows parallel, buffers allocated in advance, and the fastest
 * of three ways to use the threads for the case at hand.
 *
 * Keys behind kv_len are left out of the products, as any user would do. Keys
 * hidden by causality or by a mask are computed and then hidden: a dense
 * product cannot skip them, which is what "naive" means.
 */
#include "numbers.h"
#include "naive.h"
#include "pairs.h"
#include "restart.h"
#include "timing.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define LOG2_E 1.44269504088896341

/* Above this many operations one thread is not tried against several. */
#define SERIAL_FLOPS 1e9

static float *head_of(const attn_tensor *t, int64_t b, int64_t h)
{
    return (float *)t->data + b * t->stride[0] + h * t->stride[1];
}

/* Softmax of row i of the scores of one head; keys from `end` to `len` take no part. */
static void finish_row(const struct bench_naive *n, float *row, int64_t b, int64_t i, int64_t len)
{
    const struct bench_problem *p = n->problem;
    const int64_t end = bench_key_end(p, b, i);
    const uint8_t *live = NULL;
    if (p->mask.data != NULL)
        live = (const uint8_t *)p->mask.data + b * p->mask.stride[0] + i * p->mask.stride[2];
    n->kernels->softmax_row(row, end, live);
    memset(row + end, 0, (size_t)(len - end) * sizeof *row);
}

static void one_head(const struct bench_naive *n, int64_t b, int64_t h, float *scores)
{
    const struct bench_problem *p = n->problem;
    const struct bench_case *c = p->bcase;
    const int64_t kv_head = h / (c->heads / c->kv_heads);
    const int64_t len = p->kv_len != NULL ? p->kv_len[b] : c->tk;
    const int tq = (int)c->tq, keys = (int)len, d = (int)c->d, ld_scores = (int)c->tk;
    const float alpha = (float)(LOG2_E / sqrt((double)c->d));

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, tq, keys, d, alpha, head_of(&p->q, b, h), (int)p->q.stride[2],
                head_of(&p->k, b, kv_head), (int)p->k.stride[2], 0.0f, scores, ld_scores);
    if (n->strategy == BENCH_NAIVE_BLAS) {
#pragma omp parallel for num_threads(n->threads) schedule(guided)
        for (int64_t i = 0; i < c->tq; i++)
            finish_row(n, scores + i * c->tk, b, i, len);
    } else {
        for (int64_t i = 0; i < c->tq; i++)
            finish_row(n, scores + i * c->tk, b, i, len);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, tq, d, keys, 1.0f, scores, ld_scores,
                head_of(&p->v, b, kv_head), (int)p->v.stride[2], 0.0f, head_of(&p->expected, b, h),
                (int)p->expected.stride[2]);
}

int bench_naive_run(void *naive)
{
    const struct bench_naive *n = naive;
    const struct bench_case *c = n->problem->bcase;
    const int64_t num_heads = c->batch * c->heads;
    if (n->strategy == BENCH_NAIVE_HEADS) {
#pragma omp parallel for num_threads(n->num_buffers) schedule(dynamic)
        for (int64_t i = 0; i < num_heads; i++)
            one_head(n, i / c->heads, i % c->heads, n->scores + (int64_t)omp_get_thread_num() * c->tq * c->tk);
    } else {
        for (int64_t i = 0; i < num_heads; i++)
            one_head(n, i / c->heads, i % c->heads, n->scores);
    }
    return 1;
}

/* The library must not start threads of its own inside our parallel region, nor fewer than asked outside of it. */
static void select_strategy(struct bench_naive *n, enum bench_naive_strategy strategy)
{
    n->strategy = strategy;
    openblas_set_num_threads(strategy == BENCH_NAIVE_BLAS ? n->threads : 1);
}

int bench_naive_create(struct bench_naive *n, struct bench_problem *problem, const struct bench_isa_kernels *kernels,
                       int threads, double probe_time)
{
    const struct bench_case *c = problem->bcase;
    const bool by_heads = threads > 1 && c->batch * c->heads >= threads;
    const bool serial = threads == 1 || 4.0 * (double)(c->batch * c->heads * c->tq * c->tk * c->d) < SERIAL_FLOPS;
    const bool tried[] = {
        [BENCH_NAIVE_SERIAL] = serial, [BENCH_NAIVE_HEADS] = by_heads, [BENCH_NAIVE_BLAS] = threads > 1};

    *n = (struct bench_naive){.problem = problem, .kernels = kernels, .threads = threads};
    n->num_buffers = by_heads ? threads : 1;
    const int64_t num_scores = n->num_buffers * c->tq * c->tk;
    n->scores = bench_alloc_floats(num_scores);
    if (n->scores == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the %lld x %lld scores of the naive case %s\n",
                (long long)c->tq, (long long)c->tk, c->id);
        return -1;
    }

    double fastest = INFINITY;
    enum bench_naive_strategy chosen = by_heads      ? BENCH_NAIVE_HEADS
                                       : threads > 1 ? BENCH_NAIVE_BLAS
                                                     : BENCH_NAIVE_SERIAL;
    for (int s = BENCH_NAIVE_SERIAL; s <= BENCH_NAIVE_BLAS && probe_time > 0.0; s++) {
        if (!tried[s])
            continue;
        select_strategy(n, (enum bench_naive_strategy)s);
        const double took = bench_probe(bench_naive_run, n, probe_time);
        if (took < fastest) {
            fastest = took;
            chosen = (enum bench_naive_strategy)s;
        }
    }
    select_strategy(n, chosen);
    return 0;
}

void bench_naive_destroy(struct bench_naive *n)
{
    free(n->scores);
    n->scores = NULL;
}

const char *bench_naive_strategy_name(enum bench_naive_strategy strategy)
{
    static const char *const names[] = {
        [BENCH_NAIVE_SERIAL] = "serial", [BENCH_NAIVE_HEADS] = "heads", [BENCH_NAIVE_BLAS] = "blas"};
    return names[strategy];
}

/* OpenBLAS's name for its kernels of an instruction set; NULL where there is one set only, which it finds itself. */
static const char *core_of(const char *isa)
{
    const char *const f32 = bench_f32_isa(isa); /* its products are of floats all the same */
    if (bench_same_isa(f32, "avx512"))
        return "SkylakeX";
    if (bench_same_isa(f32, "avx2"))
        return "Haswell";
#if defined(__x86_64__)
    if (bench_same_isa(f32, "scalar"))
        return "Prescott";
#endif
    return NULL;
}

int bench_naive_select_blas(const char *isa, const char *core, char **argv)
{
    const char *wanted = core != NULL ? core : core_of(isa), *set = getenv("OPENBLAS_CORETYPE");
    if (wanted == NULL || strcmp(wanted, "environment") == 0 || strcasecmp(openblas_get_corename(), wanted) == 0)
        return 0;
    /* Set already and still not in use: this OpenBLAS does not have them. Starting again would go on for ever. */
    if (set != NULL && strcasecmp(set, wanted) == 0) {
        fprintf(stderr, "attn-bench: --blas is '%s'; expected kernels that this OpenBLAS has (it would use %s)\n",
                wanted, openblas_get_corename());
        return core != NULL ? -1 : 0;
    }
    if (setenv("OPENBLAS_CORETYPE", wanted, 1) == 0)
        bench_restart(argv);
    fprintf(stderr, "attn-bench: the program cannot start itself again; OpenBLAS uses %s instead of %s\n",
            openblas_get_corename(), wanted);
    return 0;
}

const char *bench_naive_blas_core(void)
{
    return openblas_get_corename();
}
