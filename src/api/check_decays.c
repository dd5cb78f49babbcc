/* SPDX-License-Identifier: Apache-2.0 */
/*
 * That decays are up to 0. They are as many numbers as keys have, at worst, so
 * threads share them; each is looked at once, however many heads or tokens it is for.
 * Nothing is said of those behind lengths and offsets, which no token reads.
 */
#include "api/check_linear_attention.h"

#include "api/error.h"
#include "api/executor.h"
#include "driver/ranges.h"
#include "driver/tensors.h"
#include "driver/threads.h"
#include "kernels/element.h"

#include <inttypes.h>
#include <stdatomic.h>

struct decays {
    const attn_tensor *t; /**< as the caller has it: with axes of length 1 */
    const struct attn_linear_attention *call;
    atomic_int *wrong;
};

/** Tokens of a batch element of the decays that are read. */
static int64_t tokens_read(const struct decays *d, int64_t batch)
{
    const attn_linear_attention_params *p = &d->call->params;
    int64_t most = p->cu_seqlens ? p->cu_seqlens[d->call->num_sequences] : p->lengths ? 0 : d->call->q.shape[2];
    for (int64_t b = 0; p->lengths && b < d->call->q.shape[0]; b++)
        if ((b == batch || d->t->shape[0] == 1) && p->lengths[b] > most)
            most = p->lengths[b];
    return most < d->t->shape[2] ? most : d->t->shape[2];
}

/** Where the numbers of a token of head number i, of all batch elements, begin. */
static int64_t place_of(const attn_tensor *t, int64_t i, int64_t token)
{
    return i / t->shape[1] * attn_step_of(t, 0) + i % t->shape[1] * attn_step_of(t, 1) + token * attn_step_of(t, 2);
}

/** Whether n numbers, step apart, are no decays. */
static int are_wrong(const attn_tensor *t, int64_t at, int64_t n, int64_t step)
{
    int wrong = 0;
    if (t->dtype == ATTN_F32 && step == 1) {
        const float *const x = (const float *)t->data + at;
        for (int64_t i = 0; i < n; i++)
            wrong |= !(x[i] <= 0.0f);
        return wrong;
    }
    for (int64_t i = 0; i < n; i++)
        wrong |= !(element_at(t->dtype, t->data, at + i * step) <= 0.0f);
    return wrong;
}

/** Tokens first..end-1 of a head. */
static int tokens_are_wrong(const attn_tensor *t, int64_t head, int64_t first, int64_t end)
{
    if (t->shape[3] == 1)
        return first < end && are_wrong(t, place_of(t, head, first), end - first, attn_step_of(t, 2));
    for (int64_t token = first; token < end; token++)
        if (are_wrong(t, place_of(t, head, token), t->shape[3], attn_step_of(t, 3)))
            return 1;
    return 0;
}

static void look_at(const void *context, int64_t first, int64_t end)
{
    const struct decays *d = context;
    const int64_t tokens = d->t->shape[2];
    for (int64_t i = first; i < end;) {
        const int64_t head = i / tokens, token = i % tokens, left = tokens - token;
        const int64_t n = left < end - i ? left : end - i, read = tokens_read(d, head / d->t->shape[1]);
        if (tokens_are_wrong(d->t, head, token, token + n < read ? token + n : read))
            atomic_store_explicit(d->wrong, 1, memory_order_relaxed);
        i += n;
    }
}

/** Says which one it is. */
static attn_status fail(const struct decays *d)
{
    const attn_tensor *t = d->t;
    for (int64_t i = 0; i < t->shape[0] * t->shape[1]; i++)
        for (int64_t token = 0; token < tokens_read(d, i / t->shape[1]); token++)
            for (int64_t c = 0; c < t->shape[3]; c++) {
                const float x = element_at(t->dtype, t->data, place_of(t, i, token) + c * attn_step_of(t, 3));
                if (!(x <= 0.0f))
                    return attn_fail(ATTN_INVALID_ARGUMENT,
                                     "params.decay[%" PRId64 "][%" PRId64 "][%" PRId64 "][%" PRId64
                                     "] is %g; expected a number up to 0",
                                     i / t->shape[1], i % t->shape[1], token, c, (double)x);
            }
    return ATTN_OK;
}

attn_status attn_check_decays(const struct attn_linear_attention *call, enum check_depth depth)
{
    const attn_linear_attention_params *p = &call->params;
    if (!p->decay || !attn_has_elements(&call->decay) || !attn_has_elements(p->decay))
        return ATTN_OK;
    atomic_int wrong;
    atomic_init(&wrong, 0);
    const struct decays d = {.t = p->decay, .call = call, .wrong = &wrong};
    const int64_t rows = d.t->shape[0] * d.t->shape[1] * d.t->shape[2];
    const int most = depth & CHECK_ON_THREADS ? attn_threads_asked(p->executor, p->num_threads) : 1;
    const int threads = attn_threads_worth((double)rows * (double)d.t->shape[3], ATTN_WORTH_COPY, most);
    const attn_executor *const before = attn_executor_enter(p->executor);
    attn_run_ranges(rows, threads, look_at, &d);
    attn_executor_leave(before);
    return atomic_load_explicit(&wrong, memory_order_relaxed) ? fail(&d) : ATTN_OK;
}
