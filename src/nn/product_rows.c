/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of training on weights as they lie, and what follows them.
 */
#include "nn/product_rows.h"

#include "api/environment.h"
#include "dispatch.h"
#include "driver/ranges.h"
#include "kernels/philox.h"
#include "nn/check.h"
#include "nn/gradient_products.h"
#include "nn/tensor_rows.h"

/** Weights that are turned. */
struct turning {
    const attn_tensor *weights;
    const struct attn_vector_kernels *vectors;
    float *to;
};

/** Some groups of rows, as many as a vector has lanes, become columns; what is no whole group is copied one by one. */
static void turn_groups(const void *context, int64_t first, int64_t end)
{
    const struct turning *w = context;
    const attn_tensor *t = w->weights;
    const int64_t rows = t->shape[2], columns = t->shape[3];
    const int lanes = w->vectors->lanes;
    for (int64_t group = first; group < end; group++) {
        const int64_t row = group * lanes;
        const char *at[ATTN_MAX_STRIP];
        if (row + lanes <= rows && (columns == 1 || t->stride[3] == 1)) {
            for (int i = 0; i < lanes; i++)
                at[i] = nn_weight_address(t, row + i, 0);
            w->vectors->read_rows(w->to + row, (ptrdiff_t)rows, lanes, at, t->dtype, lanes, columns, 1.0f);
            continue;
        }
        for (int64_t r = row; r < row + lanes && r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                w->to[c * rows + r] = nn_weight_at(t, r, c);
    }
}

void nn_turn_weights(const attn_tensor *weights, float *to, int num_threads)
{
    const struct attn_kernels kernels = attn_kernels_plain(attn_environment()->max_isa);
    const struct turning w = {weights, kernels.vectors, to};
    const int64_t lanes = w.vectors->lanes, groups = (weights->shape[2] + lanes - 1) / lanes;
    attn_run_ranges(groups, nn_threads(num_threads, (double)weights->shape[2] * (double)weights->shape[3]), turn_groups,
                    &w);
}

static void multiply(const struct nn_product_place *place, const struct nn_gradient_product *product)
{
    nn_gradient_product(product, nn_all_threads(place->num_threads), place->scratch, place->size);
}

void nn_multiply_rows(const struct nn_product_place *place, const attn_tensor *rows, const attn_tensor *w,
                      float *turned, const attn_tensor *to, int accumulate)
{
    const attn_tensor right = attn_matrix(turned, w->shape[3], w->shape[2]);
    nn_turn_weights(w, turned, place->num_threads);
    multiply(place, &(struct nn_gradient_product){
                        .left = {rows, 0},
                        .right = {&right, 1},
                        .rows = rows->shape[0] * rows->shape[2],
                        .columns = w->shape[2],
                        .terms = w->shape[3],
                        .to = to,
                        .accumulate = accumulate,
                    });
}

void nn_multiply_back(const struct nn_product_place *place, const attn_tensor *d, const attn_tensor *w,
                      const attn_tensor *to, int accumulate)
{
    multiply(place, &(struct nn_gradient_product){
                        .left = {d, 0},
                        .right = {w, 1},
                        .rows = d->shape[0] * d->shape[2],
                        .columns = w->shape[3],
                        .terms = w->shape[2],
                        .to = to,
                        .accumulate = accumulate,
                    });
}

static void add_row(const struct nn_finish *w, int64_t batch, int64_t token)
{
    struct nn_embed_work work = {
        .row = {nn_row_address(w->from, batch, token), w->from->dtype},
        .scale = 1,
        .n = w->to->shape[3],
        .out = nn_row_address(w->to, batch, token),
        .out_dtype = w->to->dtype,
    };
    struct nn_vector *place = work.place; /* the first one that is NULL is the end */
    if (w->bias)
        *place++ = (struct nn_vector){w->bias, ATTN_F32};
    if (w->residual)
        *place = (struct nn_vector){nn_row_address(w->residual, batch, token), w->residual->dtype};
    attn_nn_kernels_active()->embed(&work);
}

static void drop_row(const struct nn_finish *w, int64_t batch, int64_t token)
{
    struct nn_drop_work work = {
        .x = nn_row_address(w->from, batch, token),
        .out = nn_row_address(w->to, batch, token),
        .bias = w->bias,
        .residual = w->residual ? nn_row_address(w->residual, batch, token) : NULL,
        .dtype = w->from->dtype,
        .out_dtype = w->to->dtype,
        .batch = batch,
        .token = token,
        .n = w->to->shape[3],
        .threshold = attn_dropout_threshold(w->dropout->p),
        .scale = (float)(1 / (1 - (double)w->dropout->p)),
    };
    attn_dropout_key(w->dropout->seed, w->dropout->offset, work.key);
    attn_nn_kernels_active()->drop(&work);
}

static void finish_rows(const void *context, int64_t first, int64_t end)
{
    const struct nn_finish *w = context;
    const int64_t tokens = w->to->shape[2];
    for (int64_t r = first; r < end; r++)
        (w->dropout ? drop_row : add_row)(w, r / tokens, r % tokens);
}

void nn_finish_rows(const struct nn_finish *finish, int num_threads)
{
    struct nn_finish ours = *finish;
    const int64_t rows = ours.to->shape[0] * ours.to->shape[2];
    if (ours.dropout && ours.dropout->p == 0.0f)
        ours.dropout = NULL;
    const double cost = (double)rows * (double)ours.to->shape[3] * (ours.dropout ? 6 : 0.5);
    attn_run_ranges(rows, nn_threads(num_threads, cost), finish_rows, &ours);
}

void nn_take_bias(float *to, const attn_tensor *bias, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = bias->data ? nn_weight_at(bias, 0, i) : 0.0f;
}
