/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisation, activations, gates, lookups and sinusoidal positions: checks,
 * and the cut into rows.
 */
#include "nn/elementwise.h"

#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/product_rows.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <math.h>

/** Work on rows: which kernel, and the tensors whose rows it takes. */
struct rows_work {
    void (*kernel)(const struct nn_row_work *work);
    struct nn_row_work common;
    struct nn_row_grid grid;
    struct nn_grid_rows x, up, out;
};

static void run_rows(const void *context, int64_t first, int64_t end)
{
    const struct rows_work *w = context;
    while (first < end) {
        const int64_t batch = first / w->grid.tokens, token = first % w->grid.tokens;
        const int64_t left = w->grid.tokens - token;
        struct nn_row_work work = w->common;
        work.rows = end - first < left ? end - first : left;
        work.x = nn_rows_from(&w->x, batch, token);
        work.out = nn_rows_from(&w->out, batch, token);
        if (w->up.data)
            work.up = nn_rows_from(&w->up, batch, token);
        w->kernel(&work);
        first += work.rows;
    }
}

/** Runs a kernel over all rows; cost is operations for an element. */
static void for_rows(struct rows_work *w, const attn_tensor *x, const attn_tensor *up, const attn_tensor *out,
                     int num_threads, double cost)
{
    w->grid = nn_grid_of(x);
    nn_grid_fit(&w->grid, out);
    if (up)
        nn_grid_fit(&w->grid, up);
    w->x = nn_rows_in_grid(&w->grid, x);
    w->out = nn_rows_in_grid(&w->grid, out);
    if (up)
        w->up = nn_rows_in_grid(&w->grid, up);
    w->common.n = x->shape[3];
    const int64_t rows = w->grid.batch * w->grid.tokens;
    attn_run_ranges(rows, nn_threads(num_threads, (double)rows * (double)w->common.n * cost), run_rows, w);
}

/** out of the shape of x, either x itself or apart from it. */
static attn_status check_pair(const attn_tensor *x, const attn_tensor *out)
{
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, NN_ANY));
    CHECK(nn_check_typed_output("out", out, x->shape[0], x->shape[2], x->shape[3]));
    return attn_check_apart("out", out, "x", x, 1);
}

static attn_status check_weight(const char *name, const attn_tensor *w, const attn_tensor *x, const attn_tensor *out)
{
    if (!w)
        return ATTN_OK;
    CHECK(nn_check_vector(name, w, x->shape[3]));
    CHECK(attn_check_contiguous(name, w));
    return attn_check_apart("out", out, name, w, 0);
}

attn_status attn_normalise(attn_norm norm, const attn_tensor *x, const attn_tensor *gamma, const attn_tensor *beta,
                           float eps, const attn_tensor *out, int num_threads)
{
    if ((unsigned)norm > ATTN_NORM_RMS)
        return attn_fail(ATTN_INVALID_ARGUMENT, "norm is %d; expected an attn_norm", (int)norm);
    CHECK(check_pair(x, out));
    CHECK(check_weight("gamma", gamma, x, out));
    if (beta && norm == ATTN_NORM_RMS)
        return attn_fail(ATTN_INVALID_ARGUMENT, "beta is set; expected NULL with ATTN_NORM_RMS");
    CHECK(check_weight("beta", beta, x, out));
    CHECK(nn_check_eps("eps", eps));
    CHECK(nn_check_threads(num_threads));
    struct rows_work w = {.kernel = attn_nn_kernels_active()->normalise, .common = {.norm = norm, .eps = eps}};
    if (gamma)
        w.common.gamma = (struct nn_vector){gamma->data, gamma->dtype};
    if (beta)
        w.common.beta = (struct nn_vector){beta->data, beta->dtype};
    for_rows(&w, x, NULL, out, num_threads, 2);
    return ATTN_OK;
}

attn_status attn_activate(attn_activation activation, const attn_tensor *x, const attn_tensor *out, int num_threads)
{
    CHECK(nn_check_activation("activation", activation));
    CHECK(check_pair(x, out));
    CHECK(nn_check_threads(num_threads));
    struct rows_work w = {.kernel = attn_nn_kernels_active()->activate, .common = {.activation = activation}};
    for_rows(&w, x, NULL, out, num_threads, 4);
    return ATTN_OK;
}

attn_status attn_drop_activations(const attn_dropout *dropout, const attn_tensor *x, const attn_tensor *out,
                                  int num_threads)
{
    if (dropout && !(dropout->p >= 0.0f && dropout->p < 1.0f))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s->p is %g; expected 0 or more and less than 1", "dropout",
                         (double)dropout->p);
    CHECK(check_pair(x, out));
    CHECK(nn_check_threads(num_threads));
    nn_finish_rows(&(struct nn_finish){.from = x, .to = out, .dropout = dropout}, num_threads);
    return ATTN_OK;
}

attn_status attn_gate(attn_activation activation, const attn_tensor *gate, const attn_tensor *up,
                      const attn_tensor *out, int num_threads)
{
    CHECK(nn_check_activation("activation", activation));
    CHECK(nn_check_typed_activations("gate", gate, NN_ANY, NN_ANY, NN_ANY));
    CHECK(nn_check_typed_activations("up", up, gate->shape[0], gate->shape[2], gate->shape[3]));
    CHECK(nn_check_typed_output("out", out, gate->shape[0], gate->shape[2], gate->shape[3]));
    CHECK(attn_check_apart("out", out, "gate", gate, 1));
    CHECK(attn_check_apart("out", out, "up", up, 1));
    CHECK(nn_check_threads(num_threads));
    struct rows_work w = {.kernel = attn_nn_kernels_active()->gate, .common = {.activation = activation}};
    for_rows(&w, gate, up, out, num_threads, 4);
    return ATTN_OK;
}

/* ----------------------------------------------------------------- lookups -- */

struct lookups {
    const struct attn_nn_kernels *kernels;
    const struct nn_lookup *lookup;
    const attn_tensor *out;
    int accumulate;
};

/** Row number of a table, or nothing. */
static struct nn_vector row_of(const attn_tensor *table, int64_t number)
{
    if (!table)
        return (struct nn_vector){NULL, ATTN_F32};
    return (struct nn_vector){nn_weight_address(table, number, 0), table->dtype};
}

static void run_lookups(const void *context, int64_t first, int64_t end)
{
    const struct lookups *l = context;
    const struct nn_lookup *from = l->lookup;
    const int64_t tokens = l->out->shape[2];
    for (int64_t i = first; i < end; i++) {
        const int64_t place = !from->places ? 0 : from->place_ids ? from->place_ids[i] : from->first_place + i % tokens;
        const struct nn_embed_work work = {
            .row = row_of(from->table, from->ids[i]),
            .scale = from->scale,
            .accumulate = l->accumulate,
            .place = {row_of(from->places, place), row_of(from->kind, from->kind_ids ? from->kind_ids[i] : 0)},
            .n = l->out->shape[3],
            .out = nn_row_address(l->out, i / tokens, i % tokens),
            .out_dtype = l->out->dtype,
        };
        l->kernels->embed(&work);
    }
}

static void look_up(const struct nn_lookup *lookup, int accumulate, const attn_tensor *out, int num_threads)
{
    const struct lookups work = {attn_nn_kernels_active(), lookup, out, accumulate};
    const int64_t count = out->shape[0] * out->shape[2];
    attn_run_ranges(count, nn_threads(num_threads, (double)count * (double)out->shape[3]), run_lookups, &work);
}

void nn_look_up(const struct nn_lookup *lookup, const attn_tensor *out, int num_threads)
{
    look_up(lookup, 0, out, num_threads);
}

void nn_count_positions(int64_t num_sequences, const int64_t *offsets, int64_t first, int32_t *positions)
{
    for (int64_t s = 0; s < num_sequences; s++)
        for (int64_t t = offsets[s]; t < offsets[s + 1]; t++)
            positions[t] = (int32_t)(first + t - offsets[s]);
}

attn_status attn_embed(const attn_tensor *table, const int32_t *ids, float scale, int accumulate,
                       const attn_tensor *out, int num_threads)
{
    CHECK(nn_check_matrix("table", table, NN_ANY, NN_ANY));
    CHECK(attn_check_contiguous("table", table));
    CHECK(nn_check_typed_output("out", out, NN_ANY, NN_ANY, table->shape[3]));
    CHECK(attn_check_apart("out", out, "table", table, 0));
    CHECK(nn_check_row_numbers("table", table->shape[2], ids, out->shape[0] * out->shape[2]));
    CHECK(nn_check_scale("scale", scale));
    CHECK(nn_check_threads(num_threads));
    const struct nn_lookup lookup = {.table = table, .ids = ids, .scale = scale == 0 ? 1.0f : scale};
    look_up(&lookup, accumulate, out, num_threads);
    return ATTN_OK;
}

attn_status attn_sinusoidal(const int64_t *positions, int64_t num, int64_t channels, float *table)
{
    CHECK(nn_check_length("num", num, 0));
    CHECK(nn_check_length("channels", channels, 1));
    CHECK(attn_check_count("table", sizeof *table, num, channels, 1));
    if (!table && num)
        return attn_fail(ATTN_INVALID_ARGUMENT, "table is NULL; expected %" PRId64 " x %" PRId64 " floats", num,
                         channels);
    for (int64_t n = 0; n < num; n++)
        for (int64_t c = 0; c < channels; c++) {
            const double p = (double)(positions ? positions[n] : n);
            const double angle = p * pow(10000.0, -(double)(c / 2 * 2) / (double)channels);
            table[n * channels + c] = (float)(c % 2 ? cos(angle) : sin(angle));
        }
    return ATTN_OK;
}
