/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of normalisation, activations, gates and lookups: checks, and the
 * cut into rows. The formulas are those of kernels/norm_backward.h and
 * kernels/activation_backward.h; that of a lookup is
 *
 *     d_table[n] = sum over tokens t with ids[t] = n of scale d_out[t]
 *
 * Sums over rows are of chunks of rows whose number follows from the number of
 * rows alone, each with its own vector of sums; these are added in their order.
 * Sums of a table are cut by channels, so that each is made by one thread.
 */
#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/memory.h"
#include "nn/tensor_rows.h"

#include <string.h>

/** Work on rows: which kernel, and the tensors whose rows it takes; data NULL: not there. */
struct gradient_rows {
    void (*kernel)(const struct nn_gradient_work *work);
    struct nn_gradient_work common;
    struct nn_row_grid grid;
    struct nn_grid_rows x, up, d_out, d_x, d_up;
};

/** The tensors of a call; NULL: not there. */
struct gradient_tensors {
    const attn_tensor *x, *up, *d_out, *d_x, *d_up;
};

static void set_rows(struct gradient_rows *w, const struct gradient_tensors *of)
{
    const attn_tensor *const tensors[] = {of->up, of->d_out, of->d_x, of->d_up};
    struct nn_grid_rows *const rows[] = {&w->up, &w->d_out, &w->d_x, &w->d_up};
    w->grid = nn_grid_of(of->x);
    for (int t = 0; t < 4; t++)
        if (tensors[t])
            nn_grid_fit(&w->grid, tensors[t]);
    w->x = nn_rows_in_grid(&w->grid, of->x);
    for (int t = 0; t < 4; t++)
        if (tensors[t])
            *rows[t] = nn_rows_in_grid(&w->grid, tensors[t]);
    w->common.n = of->x->shape[3];
}

static struct attn_rows rows_or_none(const struct nn_grid_rows *rows, int64_t batch, int64_t token)
{
    return rows->data ? nn_rows_from(rows, batch, token) : (struct attn_rows){NULL, 0, ATTN_F32, NULL, 0};
}

/** Rows first to end - 1, with sums of their own. */
static void run_with_sums(const struct gradient_rows *w, int64_t first, int64_t end, float *d_gamma, float *d_beta)
{
    while (first < end) {
        const int64_t batch = first / w->grid.tokens, token = first % w->grid.tokens;
        const int64_t left = w->grid.tokens - token;
        struct nn_gradient_work work = w->common;
        work.rows = end - first < left ? end - first : left;
        work.x = rows_or_none(&w->x, batch, token);
        work.up = rows_or_none(&w->up, batch, token);
        work.d_out = rows_or_none(&w->d_out, batch, token);
        work.d_x = rows_or_none(&w->d_x, batch, token);
        work.d_up = rows_or_none(&w->d_up, batch, token);
        work.d_gamma = d_gamma;
        work.d_beta = d_beta;
        w->kernel(&work);
        first += work.rows;
    }
}

static void run_rows(const void *context, int64_t first, int64_t end)
{
    run_with_sums(context, first, end, NULL, NULL);
}

/** Runs a kernel over all rows; cost is operations for an element. */
static void for_rows(struct gradient_rows *w, const struct gradient_tensors *tensors, int num_threads, double cost)
{
    set_rows(w, tensors);
    const int64_t rows = w->grid.batch * w->grid.tokens;
    attn_run_ranges(rows, nn_threads(num_threads, (double)rows * (double)w->common.n * cost), run_rows, w);
}

static attn_status check_like(const char *name, const attn_tensor *t, const attn_tensor *x)
{
    return nn_check_typed_activations(name, t, x->shape[0], x->shape[2], x->shape[3]);
}

static attn_status check_gradient(const char *name, const attn_tensor *t, const attn_tensor *x)
{
    return nn_check_typed_output(name, t, x->shape[0], x->shape[2], x->shape[3]);
}

attn_status attn_activate_backward(attn_activation activation, const attn_tensor *x, const attn_tensor *d_out,
                                   const attn_tensor *d_x, int num_threads)
{
    CHECK(nn_check_activation("activation", activation));
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, NN_ANY));
    CHECK(check_like("d_out", d_out, x));
    CHECK(check_gradient("d_x", d_x, x));
    CHECK(attn_check_apart("d_x", d_x, "x", x, 1));
    CHECK(attn_check_apart("d_x", d_x, "d_out", d_out, 1));
    CHECK(nn_check_threads(num_threads));
    struct gradient_rows w = {.kernel = attn_nn_kernels_active()->activate_backward,
                              .common = {.activation = activation}};
    for_rows(&w, &(struct gradient_tensors){.x = x, .d_out = d_out, .d_x = d_x}, num_threads, 5);
    return ATTN_OK;
}

/** A gradient of a gate, which may be any of the tensors that are read. */
static attn_status check_gate_gradient(const char *name, const attn_tensor *t, const attn_tensor *gate,
                                       const attn_tensor *up, const attn_tensor *d_out)
{
    CHECK(check_gradient(name, t, gate));
    CHECK(attn_check_apart(name, t, "gate", gate, 1));
    CHECK(attn_check_apart(name, t, "up", up, 1));
    return attn_check_apart(name, t, "d_out", d_out, 1);
}

attn_status attn_gate_backward(attn_activation activation, const attn_tensor *gate, const attn_tensor *up,
                               const attn_tensor *d_out, const attn_tensor *d_gate, const attn_tensor *d_up,
                               int num_threads)
{
    CHECK(nn_check_activation("activation", activation));
    CHECK(nn_check_typed_activations("gate", gate, NN_ANY, NN_ANY, NN_ANY));
    CHECK(check_like("up", up, gate));
    CHECK(check_like("d_out", d_out, gate));
    if (!d_gate && !d_up)
        return attn_fail(ATTN_INVALID_ARGUMENT, "d_gate and d_up are NULL; expected one of them at least");
    if (d_gate)
        CHECK(check_gate_gradient("d_gate", d_gate, gate, up, d_out));
    if (d_up)
        CHECK(check_gate_gradient("d_up", d_up, gate, up, d_out));
    if (d_gate && d_up)
        CHECK(attn_check_apart("d_up", d_up, "d_gate", d_gate, 0));
    CHECK(nn_check_threads(num_threads));
    struct gradient_rows w = {.kernel = attn_nn_kernels_active()->gate_backward, .common = {.activation = activation}};
    for_rows(&w, &(struct gradient_tensors){gate, up, d_out, d_gate, d_up}, num_threads, 9);
    return ATTN_OK;
}

/* ------------------------------------------------------------------- norms -- */

/** Chunks with sums of their own: this many at most, and rows of a chunk at least. */
enum { MOST_CHUNKS = 64, LEAST_ROWS = 16 };

/** Rows of a chunk. */
static int64_t chunk_rows(int64_t rows)
{
    const int64_t wanted = rows / MOST_CHUNKS + (rows % MOST_CHUNKS != 0);
    return wanted > LEAST_ROWS ? wanted : LEAST_ROWS;
}

static int64_t chunks_of(int64_t rows)
{
    return rows / chunk_rows(rows) + (rows % chunk_rows(rows) != 0);
}

/** Sums of chunks, [chunks][channels]; NULL where none are wanted. */
struct pieces {
    float *gamma, *beta;
};

static struct pieces take_pieces(struct nn_arena *arena, int64_t rows, int64_t channels, const attn_norm_gradients *g)
{
    struct pieces pieces = {NULL, NULL};
    if (g->gamma)
        pieces.gamma = nn_take(arena, chunks_of(rows), channels, 1, sizeof(float));
    if (g->beta)
        pieces.beta = nn_take(arena, chunks_of(rows), channels, 1, sizeof(float));
    return pieces;
}

static attn_status take_gradients(attn_norm_gradients *ours, const attn_norm_gradients *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected where to put gradients");
    return attn_take_struct("gradients", ours, sizeof *ours, NN_NORM_GRADIENTS_FIRST, theirs);
}

size_t attn_normalise_backward_workspace_size(int64_t batch, int64_t tokens, int64_t channels,
                                              const attn_norm_gradients *gradients)
{
    attn_norm_gradients g;
    struct nn_arena arena = {0};
    if (nn_check_length("batch", batch, 0) || nn_check_length("tokens", tokens, 0) ||
        nn_check_length("channels", channels, 0) || take_gradients(&g, gradients) ||
        attn_check_count("x", sizeof(float), batch, tokens, channels))
        return SIZE_MAX;
    take_pieces(&arena, batch * tokens, channels, &g);
    return g.gamma || g.beta ? nn_arena_size(&arena) : 0;
}

struct norm_work {
    struct gradient_rows rows;
    int64_t num_rows, rows_of_chunk, chunks;
    struct pieces sums;
    const attn_norm_gradients *gradients;
};

static float *zeroed(float *sums, int64_t chunk, int64_t channels)
{
    return sums ? memset(sums + chunk * channels, 0, (size_t)channels * sizeof *sums) : NULL;
}

static void run_chunks(const void *context, int64_t first, int64_t end)
{
    const struct norm_work *w = context;
    const int64_t channels = w->rows.common.n;
    for (int64_t chunk = first; chunk < end; chunk++) {
        const int64_t row = chunk * w->rows_of_chunk, left = w->num_rows - row;
        run_with_sums(&w->rows, row, row + (left < w->rows_of_chunk ? left : w->rows_of_chunk),
                      zeroed(w->sums.gamma, chunk, channels), zeroed(w->sums.beta, chunk, channels));
    }
}

/** The sum of the chunks' sums of some channels, in the order of the chunks. */
static void join(const struct norm_work *w, const attn_tensor *to, const float *sums, int64_t first, int64_t end)
{
    float *const out = to->data;
    for (int64_t c = first; c < end; c++) {
        float sum = 0;
        for (int64_t chunk = 0; chunk < w->chunks; chunk++)
            sum += sums[chunk * w->rows.common.n + c];
        out[c] = w->gradients->accumulate ? out[c] + sum : sum;
    }
}

static void run_join(const void *context, int64_t first, int64_t end)
{
    const struct norm_work *w = context;
    if (w->gradients->gamma)
        join(w, w->gradients->gamma, w->sums.gamma, first, end);
    if (w->gradients->beta)
        join(w, w->gradients->beta, w->sums.beta, first, end);
}

/** A gradient of a vector of weights: apart from all that is read, and from the gradients before it. */
static attn_status check_weight_gradient(const char *name, const attn_tensor *t, const attn_tensor *x,
                                         const attn_tensor *gamma, const attn_tensor *d_out)
{
    CHECK(nn_check_vector(name, t, x->shape[3]));
    CHECK(attn_check_f32(name, t->dtype));
    CHECK(attn_check_contiguous(name, t));
    CHECK(attn_check_distinct(name, t));
    CHECK(attn_check_apart(name, t, "x", x, 0));
    if (gamma)
        CHECK(attn_check_apart(name, t, "gamma", gamma, 0));
    return attn_check_apart(name, t, "d_out", d_out, 0);
}

static attn_status check_norm_gradients(attn_norm norm, const attn_tensor *x, const attn_tensor *gamma,
                                        const attn_tensor *d_out, const attn_norm_gradients *g)
{
    if (!g->x && !g->gamma && !g->beta)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.x, gamma and beta are NULL; expected one of them at least");
    if (g->x) {
        CHECK(check_gradient("gradients.x", g->x, x));
        CHECK(attn_check_apart("gradients.x", g->x, "x", x, 0));
        if (gamma)
            CHECK(attn_check_apart("gradients.x", g->x, "gamma", gamma, 0));
        CHECK(attn_check_apart("gradients.x", g->x, "d_out", d_out, 1));
    }
    if (g->gamma) {
        CHECK(check_weight_gradient("gradients.gamma", g->gamma, x, gamma, d_out));
        if (g->x)
            CHECK(attn_check_apart("gradients.gamma", g->gamma, "gradients.x", g->x, 0));
    }
    if (g->beta) {
        if (norm == ATTN_NORM_RMS)
            return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.beta is set; expected NULL with ATTN_NORM_RMS");
        CHECK(check_weight_gradient("gradients.beta", g->beta, x, gamma, d_out));
        if (g->x)
            CHECK(attn_check_apart("gradients.beta", g->beta, "gradients.x", g->x, 0));
        if (g->gamma)
            CHECK(attn_check_apart("gradients.beta", g->beta, "gradients.gamma", g->gamma, 0));
    }
    if (g->num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.num_threads is %d; expected 0 or more", g->num_threads);
    return ATTN_OK;
}

attn_status attn_normalise_backward(attn_norm norm, const attn_tensor *x, const attn_tensor *gamma, float eps,
                                    const attn_tensor *d_out, const attn_norm_gradients *gradients, void *workspace,
                                    size_t workspace_size)
{
    attn_norm_gradients g;
    if ((unsigned)norm > ATTN_NORM_RMS)
        return attn_fail(ATTN_INVALID_ARGUMENT, "norm is %d; expected an attn_norm", (int)norm);
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, NN_ANY));
    if (gamma) {
        CHECK(nn_check_vector("gamma", gamma, x->shape[3]));
        CHECK(attn_check_contiguous("gamma", gamma));
    }
    CHECK(nn_check_eps("eps", eps));
    CHECK(check_like("d_out", d_out, x));
    CHECK(take_gradients(&g, gradients));
    CHECK(check_norm_gradients(norm, x, gamma, d_out, &g));

    const int64_t rows = x->shape[0] * x->shape[2], channels = x->shape[3];
    struct norm_work w = {
        .rows = {.kernel = attn_nn_kernels_active()->normalise_backward, .common = {.norm = norm, .eps = eps}},
        .num_rows = rows,
        .rows_of_chunk = chunk_rows(rows),
        .chunks = chunks_of(rows),
        .gradients = &g,
    };
    struct nn_arena measured = {0};
    struct nn_workspace memory = {.own = NULL};
    if (g.gamma || g.beta) {
        take_pieces(&measured, rows, channels, &g);
        CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
        w.sums = take_pieces(&memory.arena, rows, channels, &g);
    }
    if (gamma)
        w.rows.common.gamma = (struct nn_vector){gamma->data, gamma->dtype};
    set_rows(&w.rows, &(struct gradient_tensors){.x = x, .d_out = d_out, .d_x = g.x});
    attn_run_ranges(w.chunks, nn_threads(g.num_threads, (double)rows * (double)channels * 6), run_chunks, &w);
    if (g.gamma || g.beta)
        attn_run_ranges(channels, nn_threads(g.num_threads, (double)w.chunks * (double)channels), run_join, &w);
    nn_workspace_close(&memory);
    return ATTN_OK;
}

/* ----------------------------------------------------------------- lookups -- */

/** Channels that a thread takes at once: whole cache lines, if rows of the table begin with one. */
enum { GROUP = 16 };

struct table_work {
    const struct attn_nn_kernels *kernels;
    const int32_t *ids;
    const attn_tensor *d_out, *d_table;
    float scale;
};

static void clear_rows(const void *context, int64_t first, int64_t end)
{
    const attn_tensor *table = ((const struct table_work *)context)->d_table;
    for (int64_t row = first; row < end; row++)
        memset((char *)table->data + (table->shape[2] > 1 ? row * table->stride[2] * (int64_t)sizeof(float) : 0), 0,
               (size_t)table->shape[3] * sizeof(float));
}

/** Adds the rows of all tokens, of groups of channels first to end - 1. */
static void add_rows(const void *context, int64_t first, int64_t end)
{
    const struct table_work *w = context;
    const int64_t tokens = w->d_out->shape[2], count = w->d_out->shape[0] * tokens, channels = w->d_out->shape[3];
    const int64_t channel = first * GROUP, behind = end * GROUP < channels ? end * GROUP : channels;
    for (int64_t i = 0; i < count; i++) {
        const char *row = nn_row_address(w->d_out, i / tokens, i % tokens);
        const int64_t to = w->d_table->shape[2] > 1 ? w->ids[i] * w->d_table->stride[2] : 0;
        const struct nn_embed_work work = {
            .row = {row + channel * attn_element_size(w->d_out->dtype), w->d_out->dtype},
            .scale = w->scale,
            .accumulate = 1,
            .n = behind - channel,
            .out = (float *)w->d_table->data + to + channel,
            .out_dtype = ATTN_F32,
        };
        w->kernels->embed(&work);
    }
}

attn_status attn_embed_backward(const int32_t *ids, float scale, const attn_tensor *d_out, const attn_tensor *d_table,
                                int accumulate, int num_threads)
{
    CHECK(nn_check_typed_activations("d_out", d_out, NN_ANY, NN_ANY, NN_ANY));
    CHECK(nn_check_matrix("d_table", d_table, NN_ANY, d_out->shape[3]));
    CHECK(attn_check_f32("d_table", d_table->dtype));
    CHECK(attn_check_contiguous("d_table", d_table));
    CHECK(attn_check_distinct("d_table", d_table));
    CHECK(attn_check_apart("d_table", d_table, "d_out", d_out, 0));
    const int64_t count = d_out->shape[0] * d_out->shape[2], rows = d_table->shape[2], channels = d_out->shape[3];
    CHECK(nn_check_row_numbers("d_table", rows, ids, count));
    CHECK(nn_check_scale("scale", scale));
    CHECK(nn_check_threads(num_threads));
    const struct table_work w = {attn_nn_kernels_active(), ids, d_out, d_table, scale == 0 ? 1.0f : scale};
    /* Clearing reads nothing and computes nothing: a quarter of an operation for each number. */
    if (!accumulate && channels)
        attn_run_ranges(rows, nn_threads(num_threads, (double)rows * (double)channels / 4), clear_rows, &w);
    attn_run_ranges((channels + GROUP - 1) / GROUP, nn_threads(num_threads, (double)count * (double)channels), add_rows,
                    &w);
    return ATTN_OK;
}
