/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of shapes, and how a row of it becomes a call. Memory of tensors is
 * mapped and, where nothing is computed, never touched, so that calls which
 * would need gigabytes cost nothing to cut.
 */
#include "shapes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SELF(name_, words_, batch_, heads_, t_, d_, causal_, ...)                                                      \
    {                                                                                                                  \
        .name = name_, .words = words_, .batch = batch_, .heads = heads_, .kv_heads = heads_, .tq = t_, .tk = t_,      \
        .d = d_, .causal = causal_, __VA_ARGS__                                                                        \
    }
#define GROUPED(name_, words_, batch_, heads_, kv_heads_, tq_, tk_, d_, ...)                                           \
    {                                                                                                                  \
        .name = name_, .words = words_, .batch = batch_, .heads = heads_, .kv_heads = kv_heads_, .tq = tq_, .tk = tk_, \
        .d = d_, .causal = ATTN_CAUSAL_BOTTOM_RIGHT, __VA_ARGS__                                                       \
    }

/* Of a head: T5's own. */
enum { T5_BUCKETS = 32 };

#define FULL   ATTN_CAUSAL_NONE
#define CAUSAL ATTN_CAUSAL_TOP_LEFT

const struct scaling_shape scaling_shapes[] = {
    SELF("encoder-128", "64 texts of 128 tokens, an encoder", 64, 12, 128, 64, FULL, 0),
    SELF("encoder-512", "32 texts of 512 tokens", 32, 12, 512, 64, FULL, 0),
    SELF("encoder-512-bf16", "the same in bf16", 32, 12, 512, 64, FULL, .dtype = ATTN_BF16),
    SELF("heads-2048", "8 heads", 1, 8, 2048, 128, FULL, 0),
    SELF("heads-2048-causal", "8 heads, causal", 1, 8, 2048, 128, CAUSAL, 0),
    SELF("heads-4096-bf16", "8 heads in bf16", 1, 8, 4096, 128, FULL, .dtype = ATTN_BF16),
    SELF("heads-4096-int8", "the same with int8 scores", 1, 8, 4096, 128, FULL, .dtype = ATTN_BF16, .qk = ATTN_QK_INT8),
    SELF("long-head", "one head", 1, 1, 16384, 64, FULL, 0),
    SELF("long-head-causal", "one head, causal", 1, 1, 16384, 128, CAUSAL, 0),
    SELF("long-head-causal-bf16", "the same in bf16", 1, 1, 16384, 128, CAUSAL, .dtype = ATTN_BF16),
    SELF("ragged", "64 texts of 32 to 2048 tokens", 64, 12, 2048, 64, FULL, .lengths = SCALING_TEXTS),
    SELF("ragged-causal", "the same, causal", 64, 12, 2048, 64, CAUSAL, .lengths = SCALING_TEXTS),
    SELF("window", "4 heads, a window of 512", 1, 4, 32768, 64, CAUSAL, .window = 511),
    GROUPED("decode-one", "a token behind 131072", 1, 32, 8, 1, 131072, 128, 0),
    GROUPED("decode-batch", "a token for 64 sequences of 4096", 64, 32, 8, 1, 4096, 128, 0),
    GROUPED("decode-pages", "the same, from pages", 64, 32, 8, 1, 4096, 128, .page = 16),
    GROUPED("decode-lengths", "the same, behind 512 to 8192 keys each", 64, 32, 8, 1, 8192, 128,
            .lengths = SCALING_LENGTHS, .page = 16),
    GROUPED("decode-common", "the same, 2048 of them of one prompt", 64, 32, 8, 1, 4096, 128, .page = 16,
            .common = 2048),
    GROUPED("chunk", "512 tokens of a prompt behind 32256", 1, 32, 8, 512, 32768, 128, 0),
    GROUPED("serving", "4 prompts of up to 1024 and 60 sequences with a token, up to 8192 keys", 64, 32, 8, 1024, 8192,
            128, .lengths = SCALING_SERVING, .page = 16),
    SELF("backward", "gradients of 8 heads", 1, 8, 2048, 64, FULL, .backward = true),
    SELF("backward-causal", "gradients of 8 heads, causal", 1, 8, 2048, 64, CAUSAL, .backward = true),
    SELF("backward-encoder", "gradients of 32 texts of 512 tokens", 32, 12, 512, 64, FULL, .backward = true),
    SELF("backward-ragged", "gradients of 64 texts of 32 to 2048 tokens", 64, 4, 2048, 64, FULL,
         .lengths = SCALING_TEXTS, .backward = true),
    SELF("backward-long-head", "gradients of one head, causal", 1, 1, 16384, 64, CAUSAL, .backward = true),
    SELF("backward-table", "gradients of 8 heads and of their biases by distance, as T5 has them", 1, 8, 2048, 64, FULL,
         .backward = true, .table = true),
    SELF("backward-bf16", "gradients of 8 heads in bf16", 1, 8, 4096, 64, CAUSAL, .dtype = ATTN_BF16, .backward = true),
    {.name = NULL},
};

bool scaling_shape_has(const struct scaling_shape *shape, const char *isa)
{
    const bool pairs = strstr(isa, "bf16") != NULL;
    return (shape->dtype == ATTN_BF16) == pairs;
}

static int failed(const struct scaling_shape *shape, const char *what)
{
    fprintf(stderr, "attn-scaling: %s: %s\n", shape->name, what);
    return -1;
}

/* ------------------------------------------------------------------ memory -- */

static size_t bytes_of(const attn_tensor *t)
{
    const size_t elements = (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]);
    return elements * (t->dtype == ATTN_F32 ? sizeof(float) : sizeof(uint16_t));
}

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/** Numbers between -1 and 1 without a pattern. */
static void fill(const attn_tensor *t, uint32_t seed)
{
    const size_t elements = bytes_of(t) / (t->dtype == ATTN_F32 ? sizeof(float) : sizeof(uint16_t));
    uint32_t state = seed;
    for (size_t i = 0; i < elements; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(int32_t)state * 0x1p-31f;
        if (t->dtype == ATTN_F32) {
            ((float *)t->data)[i] = x;
        } else {
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
        }
    }
}

/** A tensor in memory of its own; seed 0: nothing is written there. */
static int make_tensor(struct scaling_call *call, attn_tensor *t, int64_t batch, int64_t heads, int64_t tokens,
                       int64_t channels, attn_dtype dtype, uint32_t seed)
{
    *t = attn_bhtd(NULL, batch, heads, tokens, channels);
    t->dtype = dtype;
    t->data = map(bytes_of(t));
    if (!t->data)
        return failed(call->shape, "there is not enough memory for a tensor");
    if (seed > 0)
        fill(t, seed);
    return 0;
}

/* --------------------------------------------------------------- sequences -- */

static bool is_ragged(const struct scaling_shape *shape)
{
    return shape->lengths == SCALING_TEXTS || shape->lengths == SCALING_SERVING;
}

/** Tokens of sequence s: the query ones and all. */
static void lengths_of(const struct scaling_shape *shape, int64_t s, int64_t *queries, int64_t *keys)
{
    *queries = shape->tq;
    *keys = shape->tk;
    if (shape->lengths == SCALING_TEXTS) {
        /* a scramble of s, then lengths whose logarithms are evenly spread */
        const int64_t place = (s * 37 + 11) % shape->batch;
        int64_t length = shape->tq;
        for (int64_t i = place; i > 0; i--)
            length -= length * 6 / 100;
        *queries = *keys = length < 32 ? 32 : length;
    } else if (shape->lengths == SCALING_SERVING || shape->lengths == SCALING_LENGTHS) {
        const bool prompt = shape->lengths == SCALING_SERVING && s % 16 == 5;
        *queries = prompt ? shape->tq - s * 8 : 1;
        *keys = prompt ? *queries : 512 + (s * 2503) % (shape->tk - 511);
    }
}

/** The sums that a ragged batch names its sequences by; without one, lengths alone. */
static int make_sequences(struct scaling_call *call)
{
    const struct scaling_shape *shape = call->shape;
    const size_t count = (size_t)shape->batch + 1;
    call->cu_seqlens_q = calloc(count, sizeof(int64_t));
    call->cu_seqlens_k = calloc(count, sizeof(int64_t));
    call->kv_len = calloc(count, sizeof(int64_t));
    if (!call->cu_seqlens_q || !call->cu_seqlens_k || !call->kv_len)
        return failed(shape, "there is not enough memory for lengths");
    double pairs = 0;
    for (int64_t s = 0; s < shape->batch; s++) {
        int64_t queries, keys;
        lengths_of(shape, s, &queries, &keys);
        call->cu_seqlens_q[s + 1] = call->cu_seqlens_q[s] + queries;
        call->cu_seqlens_k[s + 1] = call->cu_seqlens_k[s] + keys;
        call->kv_len[s] = keys;
        const double q = (double)queries, k = (double)keys;
        if (shape->window > 0)
            pairs += q * (double)(shape->window + 1);
        else if (shape->causal != ATTN_CAUSAL_NONE)
            pairs += q * (k - (q - 1) / 2);
        else
            pairs += q * k;
    }
    call->work = pairs * (double)shape->heads * 2 * (double)shape->d *
                 ((shape->backward ? 2.5 : 1.0) + (shape->table ? 1.0 : 0.0));
    return 0;
}

static int64_t pages_of(const struct scaling_shape *shape)
{
    return (shape->tk + shape->page - 1) / shape->page;
}

/** Each sequence has pages of its own, behind those that all share. */
static int make_table(struct scaling_call *call)
{
    const struct scaling_shape *shape = call->shape;
    const int64_t columns = pages_of(shape), common = shape->common / shape->page;
    call->block_table = calloc((size_t)(shape->batch * columns), sizeof(int32_t));
    if (!call->block_table)
        return failed(shape, "there is not enough memory for a block table");
    for (int64_t s = 0; s < shape->batch; s++)
        for (int64_t i = 0; i < columns; i++)
            call->block_table[s * columns + i] = (int32_t)(i < common ? i : s * columns + i);
    return 0;
}

/* ------------------------------------------------------------------- calls -- */

static void run_alone(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    (void)user;
    for (int ith = 0; ith < shares; ith++)
        share(context, ith);
}

static int make_tensors(struct scaling_call *call, bool data)
{
    const struct scaling_shape *shape = call->shape;
    const bool ragged = is_ragged(shape);
    const int64_t batch = ragged ? 1 : shape->batch, tq = ragged ? call->cu_seqlens_q[shape->batch] : shape->tq;
    const int64_t tk = ragged ? call->cu_seqlens_k[shape->batch] : shape->tk, d = shape->d;
    const attn_dtype type = shape->dtype;
    const int64_t k_batch = shape->page ? shape->batch * pages_of(shape) : batch,
                  k_rows = shape->page ? shape->page : tk;
    if (make_tensor(call, &call->q, batch, shape->heads, tq, d, type, data ? 1 : 0) ||
        make_tensor(call, &call->k, k_batch, shape->kv_heads, k_rows, d, type, data ? 2 : 0) ||
        make_tensor(call, &call->v, k_batch, shape->kv_heads, k_rows, d, type, data ? 3 : 0) ||
        make_tensor(call, &call->out, batch, shape->heads, tq, d, type, 0))
        return -1;
    if (shape->table) {
        call->table = calloc((size_t)shape->heads * T5_BUCKETS * 2, sizeof *call->table);
        if (!call->table)
            return failed(shape, "there is not enough memory for a table");
    }
    if (!shape->backward)
        return 0;
    return make_tensor(call, &call->lse, batch, shape->heads, tq, 1, ATTN_F32, 0) ||
                   make_tensor(call, &call->dout, batch, shape->heads, tq, d, type, data ? 4 : 0) ||
                   make_tensor(call, &call->dq, batch, shape->heads, tq, d, type, 0) ||
                   make_tensor(call, &call->dk, k_batch, shape->kv_heads, k_rows, d, type, 0) ||
                   make_tensor(call, &call->dv, k_batch, shape->kv_heads, k_rows, d, type, 0)
               ? -1
               : 0;
}

static void set_params(struct scaling_call *call, const char *isa, bool executor)
{
    const struct scaling_shape *shape = call->shape;
    attn_params *p = &call->params;
    *p = attn_params_default();
    p->num_threads = call->threads;
    p->isa = isa;
    p->causal = shape->causal;
    p->qk = shape->qk;
    if (executor) {
        call->executor = attn_executor_default();
        call->executor.num_threads = call->threads;
        call->executor.run = run_alone;
        p->executor = &call->executor;
    }
    if (shape->window > 0) {
        call->window = (attn_window){.left = shape->window, .right = 0};
        p->window = &call->window;
    }
    if (is_ragged(shape)) {
        call->ragged = (attn_ragged){.num_sequences = shape->batch,
                                     .cu_seqlens_q = call->cu_seqlens_q,
                                     .cu_seqlens_k = shape->page ? NULL : call->cu_seqlens_k};
        p->ragged = &call->ragged;
    }
    if (shape->page) {
        p->block_table = call->block_table;
        p->block_table_stride = pages_of(shape);
        p->page_size = shape->page;
        p->kv_len = call->kv_len;
    }
    if (shape->backward) {
        p->lse = &call->lse;
        call->gradients = attn_gradients_default();
        call->gradients.out = &call->dout;
        call->gradients.q = &call->dq;
        call->gradients.k = &call->dk;
        call->gradients.v = &call->dv;
    }
    if (call->table) {
        call->bias = (attn_relative_bias){
            .kind = ATTN_BUCKETS_T5_BIDIRECTIONAL, .buckets = T5_BUCKETS, .max_distance = 128, .table = call->table};
        p->relative_bias = &call->bias;
        call->gradients.relative_bias = call->table + shape->heads * T5_BUCKETS;
    }
}

static attn_status make_plan(struct scaling_call *call)
{
    attn_status status;
    if (call->shape->backward) {
        status = attn_backward_plan_create(&call->backward_plan, &call->q, &call->k, &call->v, &call->out,
                                           &call->params, &call->gradients);
        call->workspace_size = attn_backward_plan_workspace_size(call->backward_plan);
    } else {
        status = attn_plan_create(&call->plan, &call->q, &call->k, &call->v, &call->out, &call->params);
        call->workspace_size = attn_plan_workspace_size(call->plan);
    }
    return status;
}

int scaling_call_open(struct scaling_call *call, const struct scaling_shape *shape, const char *isa, int threads,
                      bool executor, bool data)
{
    memset(call, 0, sizeof *call);
    call->shape = shape;
    call->threads = threads;
    if (make_sequences(call) || (shape->page && make_table(call)) || make_tensors(call, data)) {
        scaling_call_close(call);
        return -1;
    }
    set_params(call, isa, executor);
    /* what gradients are computed from, before the plan that is to be looked at */
    const bool forward = shape->backward && data;
    if ((forward && attn_forward(&call->q, &call->k, &call->v, &call->out, &call->params)) || make_plan(call)) {
        failed(shape, attn_last_error());
        scaling_call_close(call);
        return -1;
    }
    call->workspace = map(call->workspace_size);
    if (!call->workspace) {
        failed(shape, "there is not enough memory for the workspace");
        scaling_call_close(call);
        return -1;
    }
    return 0;
}

int scaling_call_begin(struct scaling_call *call)
{
    const attn_status status =
        call->backward_plan
            ? attn_backward_plan_begin(call->backward_plan, &call->q, &call->k, &call->v, &call->out, &call->params,
                                       &call->gradients, call->workspace, call->workspace_size)
            : attn_plan_begin(call->plan, &call->q, &call->k, &call->v, &call->out, &call->params, call->workspace,
                              call->workspace_size);
    return status ? failed(call->shape, attn_last_error()) : 0;
}

int scaling_call_run(struct scaling_call *call)
{
    const attn_status status =
        call->backward_plan
            ? attn_backward_plan_run(call->backward_plan, &call->q, &call->k, &call->v, &call->out, &call->params,
                                     &call->gradients, call->workspace, call->workspace_size)
            : attn_plan_run(call->plan, &call->q, &call->k, &call->v, &call->out, &call->params, call->workspace,
                            call->workspace_size);
    return status ? failed(call->shape, attn_last_error()) : 0;
}

int scaling_call_share(struct scaling_call *call, int phase, int ith, int nth)
{
    const attn_status status = call->backward_plan
                                   ? attn_backward_plan_run_share(call->backward_plan, call->workspace, phase, ith, nth)
                                   : attn_plan_run_share(call->plan, call->workspace, phase, ith, nth);
    return status ? failed(call->shape, attn_last_error()) : 0;
}

int scaling_call_phases(const struct scaling_call *call)
{
    return call->backward_plan ? attn_backward_plan_num_phases(call->backward_plan) : attn_plan_num_phases(call->plan);
}

void scaling_call_close(struct scaling_call *call)
{
    attn_tensor *const tensors[] = {&call->q,    &call->k,  &call->v,  &call->out, &call->lse,
                                    &call->dout, &call->dq, &call->dk, &call->dv};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i]->data)
            munmap(tensors[i]->data, bytes_of(tensors[i]));
    if (call->workspace)
        munmap(call->workspace, call->workspace_size);
    attn_plan_destroy(call->plan);
    attn_backward_plan_destroy(call->backward_plan);
    free(call->cu_seqlens_q);
    free(call->cu_seqlens_k);
    free(call->kv_len);
    free(call->table);
    free(call->block_table);
    memset(call, 0, sizeof *call);
}
