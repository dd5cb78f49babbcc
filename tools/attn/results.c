/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays lack the leading dimensions that q lacks. The mean over the heads is taken here, as the library's weights are
 * those of each head: sums in double, from the first head on, rounded once.
 */
#include "results.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wording.h"

/* f32 of the last so many of four dimensions: (batch, head, query, key), say. */
static struct array_shape statistic_shape(int rank, const int64_t full[4], int last)
{
    struct array_shape is = {.dtype = ARRAY_F32, .ndim = rank - 4 + last};
    memcpy(is.shape, full + 4 - rank, (size_t)is.ndim * sizeof is.shape[0]);
    return is;
}

static attn_status allocate_statistic(struct results *r, enum result result, const char *what, int rank,
                                      const int64_t shape[4], int last)
{
    if (!r->wanted[result])
        return ATTN_OK;
    struct array_shape is = statistic_shape(rank, shape, last);
    CHECK(array_allocate(&r->arrays[result], what, &is));
    r->views[result] = attn_bhtd(r->arrays[result].data, shape[0], shape[1], shape[2], last == 3 ? 1 : shape[3]);
    return ATTN_OK;
}

/* (batch, query, key) for the file, and (batch, head, query, key) for the library. */
static attn_status allocate_average(struct results *r, int rank, const int64_t shape[4])
{
    const int64_t mean[4] = {1, shape[0], shape[2], shape[3]};
    struct array_shape all = {.dtype = ARRAY_F32, .ndim = 4, .shape = {shape[0], shape[1], shape[2], shape[3]}};
    struct array_shape is = statistic_shape(rank == 4 ? 3 : 2, mean, 4);
    CHECK(array_allocate(&r->of_heads, "the weights of all heads", &all));
    CHECK(array_allocate(&r->arrays[RESULT_WEIGHTS], "the weights", &is));
    r->views[RESULT_WEIGHTS] = attn_bhtd(r->of_heads.data, shape[0], shape[1], shape[2], shape[3]);
    return ATTN_OK;
}

static attn_status check_rows(const struct integers *rows, int64_t queries)
{
    for (int64_t i = 0; i < rows->count; i++) {
        if (rows->values[i] >= queries)
            return io_fail(ATTN_INVALID_ARGUMENT, "--weight-rows has %" PRId64 "; expected queries, 0 to %" PRId64,
                           rows->values[i], queries - 1);
    }
    return ATTN_OK;
}

attn_status results_allocate(struct results *r, const struct inputs *in, const struct kinds *kinds,
                             enum array_dtype out_dtype)
{
    const int64_t b = in->q_view.shape[0], h = in->q_view.shape[1], tq = in->q_view.shape[2];
    const int64_t tk = kinds_keys(kinds, in), rows = r->rows.values != NULL ? r->rows.count : tq;
    const int64_t out_shape[4] = {b, kinds_heads(kinds, in), tq, in->v_view.shape[3]};
    const int64_t statistics[4] = {b, h, tq, 1}, square[4] = {b, h, rows, tk}, sums[4] = {b, h, tk, 1};
    CHECK(check_rows(&r->rows, tq));
    struct array_shape is = inputs_shape(out_dtype, in->rank, in->bthd, out_shape);
    CHECK(array_allocate(&r->arrays[RESULT_OUT], "the output", &is));
    r->views[RESULT_OUT] = inputs_view(&r->arrays[RESULT_OUT], in->bthd);
    CHECK(allocate_statistic(r, RESULT_LSE, "the log-sum-exp", in->rank, statistics, 3));
    if (r->wanted[RESULT_WEIGHTS] && r->average)
        CHECK(allocate_average(r, in->rank, square));
    else
        CHECK(allocate_statistic(r, RESULT_WEIGHTS, "the weights", in->rank, square, 4));
    CHECK(allocate_statistic(r, RESULT_SCORES, "the scores", in->rank, square, 4));
    CHECK(allocate_statistic(r, RESULT_KEY_SUMS, "the sums over queries", in->rank, sums, 3));
    if (r->wanted[RESULT_KEY_SUMS])
        r->views[RESULT_KEY_SUMS] = attn_bhtd(r->arrays[RESULT_KEY_SUMS].data, b, h, 1, tk);
    if (r->wanted[RESULT_STATE]) {
        int64_t state[4];
        kinds_state(kinds, in, state);
        is = statistic_shape(in->params.ragged != NULL ? 4 : in->rank, state, 4);
        CHECK(array_allocate(&r->arrays[RESULT_STATE], "the state", &is));
        r->views[RESULT_STATE] = inputs_view(&r->arrays[RESULT_STATE], false);
    }
    return ATTN_OK;
}

const attn_tensor *results_view(const struct results *r, enum result result)
{
    return r->wanted[result] ? &r->views[result] : NULL;
}

void results_request(const struct results *r, attn_params *params)
{
    params->lse = results_view(r, RESULT_LSE);
    params->weights = results_view(r, RESULT_WEIGHTS);
    params->scores = results_view(r, RESULT_SCORES);
    params->key_sums = results_view(r, RESULT_KEY_SUMS);
    params->weight_rows = r->rows.values;
    params->num_weight_rows = r->rows.count;
}

void results_finish(struct results *r)
{
    if (!r->wanted[RESULT_WEIGHTS] || !r->average)
        return;
    const int64_t *shape = r->views[RESULT_WEIGHTS].shape, heads = shape[1], size = shape[2] * shape[3];
    const float *from = r->of_heads.data;
    float *to = r->arrays[RESULT_WEIGHTS].data;
    for (int64_t n = 0; n < shape[0] * size; n++) {
        double sum = 0;
        for (int64_t h = 0; h < heads; h++)
            sum += (double)from[(n / size * heads + h) * size + n % size];
        to[n] = (float)(sum / (double)heads);
    }
}

void results_free(struct results *r)
{
    for (int i = 0; i < RESULTS; i++)
        array_free(&r->arrays[i]);
    array_free(&r->of_heads);
    free(r->rows.values);
}
