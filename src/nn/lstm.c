/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running an LSTM. What x gives to the gates is one product for a direction and
 * some steps at a time, CHUNK_ROWS rows or more, which bounds the memory and
 * leaves the sums in a near cache for the steps that follow:
 *
 *     for each layer
 *         for each direction and group of sequences           tasks
 *             for each chunk of steps
 *                 gates = W x + b                             all tokens of the chunk
 *                 for each step t
 *                     gates[t] += U h                         all sequences of the group
 *                     c, h = the cell of the live sequences
 *
 * Steps depend on each other, sequences and directions do not. With enough of
 * them, a task has its own from the first step to the last and threads meet
 * once a layer; otherwise the product of every step is cut. A row of a product
 * does not depend on the others, so a sequence has the same bits either way.
 *
 * The type of x is that of h between the steps, in products and between layers;
 * gates and c are f32.
 *
 * A sequence that has ended keeps h and c; its rows in the products go on, and
 * are thrown away. The reverse direction walks down from the last token of the
 * longest sequence, and others join at theirs.
 */
#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/linear.h"
#include "nn/lstm.h"
#include "nn/memory.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>

/* Rows of a product of x: enough to be worth the weights' way from memory, in each sequence and together. */
#define CHUNK_STEPS 32
#define CHUNK_ROWS  256

/* Sequences of a task: fewer would read the weights of U for too few rows. */
#define GROUP_SEQUENCES 8

/** Working memory. */
struct pieces {
    void *h;        /* [directions][B][hidden] of the layer at work, of the type of x */
    float *c;       /* the same in f32 */
    float *gates;   /* [directions][B][chunk][4*hidden] */
    void *other[2]; /* [B][T][directions*hidden] of the type of x: what layers before the last write, if not out */
};

/** A layer at work. */
struct pass {
    const struct attn_lstm *lstm;
    const struct nn_lstm_layer *layer;
    int64_t number; /* of the layer */
    const attn_tensor *x, *out, *state;
    const int64_t *lengths;
    attn_dtype dtype; /* of h: that of the caller's x */
    struct pieces pieces;
    int64_t chunk;
    int threads;    /* of a product of a single step */
    int64_t groups; /* of sequences, a task for each and each direction */
};

/** The sequences of a task in a direction. */
struct group {
    const struct pass *pass;
    int64_t direction, first, count;
    int64_t steps; /* of the longest */
    int threads;
};

static int64_t chunk_of(int64_t batch, int64_t tokens)
{
    const int64_t for_rows = batch > 0 ? (CHUNK_ROWS + batch - 1) / batch : 1;
    const int64_t chunk = for_rows > CHUNK_STEPS ? for_rows : CHUNK_STEPS;
    return chunk < tokens ? chunk : tokens;
}

/** out_serves: out has the type of x, so that every second layer writes to it. */
static struct pieces take_pieces(struct nn_arena *arena, const attn_lstm *lstm, attn_dtype dtype, int out_serves,
                                 int64_t batch, int64_t tokens)
{
    const int64_t channels = lstm->directions * lstm->hidden, others = out_serves ? 1 : 2;
    const size_t size = attn_dtype_size(dtype);
    struct pieces pieces = {0};
    pieces.h = nn_take(arena, batch, channels, 1, size);
    pieces.c = nn_take(arena, batch, channels, 1, sizeof(float));
    pieces.gates = nn_take(arena, batch, chunk_of(batch, tokens), 4 * channels, sizeof(float));
    for (int64_t i = 0; i < others && i < lstm->num_layers - 1; i++)
        pieces.other[i] = nn_take(arena, batch, tokens, channels, size);
    return pieces;
}

size_t attn_lstm_workspace_size(const attn_lstm *lstm, int64_t batch, int64_t tokens)
{
    if (!lstm || batch < 0 || tokens < 0)
        return SIZE_MAX;
    struct nn_arena arena = {0};
    take_pieces(&arena, lstm, ATTN_F32, 0, batch, tokens); /* no types need more */
    return nn_arena_size(&arena);
}

/* ------------------------------------------------------------------ a group -- */

/** The first element of a sequence's row of h or c in a layer's pieces. */
static int64_t at_row(const struct group *g, int64_t sequence)
{
    const struct pass *p = g->pass;
    return (g->direction * p->x->shape[0] + sequence) * p->lstm->hidden;
}

static void *h_of(const struct group *g, int64_t sequence)
{
    const struct pass *p = g->pass;
    return (char *)p->pieces.h + at_row(g, sequence) * attn_element_size(p->dtype);
}

static float *c_of(const struct group *g, int64_t sequence)
{
    return g->pass->pieces.c + at_row(g, sequence);
}

/** The same row of the caller's state: 0 is h, 1 is c. */
static void *state_of(const struct group *g, int64_t which, int64_t sequence)
{
    const struct pass *p = g->pass;
    return nn_row_address(p->state, which,
                          (p->number * p->lstm->directions + g->direction) * p->x->shape[0] + sequence);
}

/** Copies a row of h or c, from one type to another. */
static void copy_row(const struct group *g, void *to, attn_dtype to_dtype, const void *from, attn_dtype from_dtype)
{
    const struct attn_lstm *lstm = g->pass->lstm;
    nn_copy_row(lstm->kernels, to, to_dtype, from, from_dtype, lstm->hidden);
}

static int64_t length_of(const struct pass *p, int64_t sequence)
{
    return p->lengths ? p->lengths[sequence] : p->x->shape[2];
}

static void begin(const struct group *g)
{
    const struct pass *p = g->pass;
    const size_t hidden = (size_t)p->lstm->hidden;
    for (int64_t b = g->first; b < g->first + g->count; b++) {
        if (p->state) {
            copy_row(g, h_of(g, b), p->dtype, state_of(g, 0, b), p->state->dtype);
            copy_row(g, c_of(g, b), ATTN_F32, state_of(g, 1, b), p->state->dtype);
        } else {
            memset(h_of(g, b), 0, hidden * attn_dtype_size(p->dtype));
            memset(c_of(g, b), 0, hidden * sizeof(float));
        }
    }
}

/** Where the direction writes of a token. */
static void *out_of(const struct group *g, int64_t sequence, int64_t token)
{
    const attn_tensor *out = g->pass->out;
    return (char *)nn_row_address(out, sequence, token) +
           g->direction * g->pass->lstm->hidden * attn_element_size(out->dtype);
}

/** The state goes back, and rows behind the lengths become 0. */
static void end(const struct group *g)
{
    const struct pass *p = g->pass;
    const size_t bytes = (size_t)p->lstm->hidden * attn_dtype_size(p->out->dtype);
    for (int64_t b = g->first; b < g->first + g->count; b++) {
        if (p->state) {
            copy_row(g, state_of(g, 0, b), p->state->dtype, h_of(g, b), p->dtype);
            copy_row(g, state_of(g, 1, b), p->state->dtype, c_of(g, b), ATTN_F32);
        }
        for (int64_t t = length_of(p, b); t < p->x->shape[2]; t++)
            memset(out_of(g, b, t), 0, bytes);
    }
}

/** A step's cells. */
struct cells {
    const struct group *group;
    float *gates;
    int64_t stride; /* of gates from one sequence to the next */
    int64_t token;
};

static void run_cells(const void *context, int64_t first, int64_t end_)
{
    const struct cells *cells = context;
    const struct group *g = cells->group;
    const struct pass *p = g->pass;
    for (int64_t i = first; i < end_; i++) {
        const int64_t b = g->first + i;
        if (cells->token < length_of(p, b))
            p->lstm->kernels->lstm_cell(&(struct nn_cell_work){
                .x = cells->gates + i * cells->stride,
                .c = c_of(g, b),
                .state = h_of(g, b),
                .out = out_of(g, b, cells->token),
                .state_dtype = p->dtype,
                .out_dtype = p->out->dtype,
                .n = p->lstm->hidden,
            });
    }
}

/* Operations of a cell for each channel, in the units of nn_threads(). */
#define CELL_OPERATIONS 20

/** What h gives to the gates of one token, and the cells. gates is that token of all sequences of the group. */
static void run_step(const struct group *g, const attn_tensor *gates, int64_t token)
{
    const struct pass *p = g->pass;
    const int64_t hidden = p->lstm->hidden;
    attn_tensor h = attn_btc(h_of(g, g->first), g->count, 1, hidden);
    h.dtype = p->dtype;
    attn_linear_options options = nn_linear_threads(g->threads);
    const struct cells cells = {g, gates->data, gates->stride[0], token};
    options.residual = gates;
    nn_linear_run(p->layer->from_h[g->direction], &h, &gates, &options);
    attn_run_ranges(g->count, nn_threads(g->threads, (double)g->count * (double)hidden * CELL_OPERATIONS), run_cells,
                    &cells);
}

/** Tokens first to first + count - 1 of all sequences of a group. */
static void run_chunk(const struct group *g, int64_t first, int64_t count)
{
    const struct pass *p = g->pass;
    const int64_t width = 4 * p->lstm->hidden;
    float *at = p->pieces.gates + (g->direction * p->x->shape[0] + g->first) * p->chunk * width;
    attn_tensor x = *p->x, gates = attn_btc(at, g->count, count, width), step = gates;
    const attn_tensor *outs[2] = {NULL, NULL};
    x.data = nn_row_address(p->x, g->first, first);
    x.shape[0] = g->count;
    x.shape[2] = count;
    outs[g->direction] = &gates;
    const attn_linear_options options = nn_linear_threads(g->threads);
    nn_linear_run(p->layer->from_x, &x, outs, &options);
    step.shape[2] = 1;
    for (int64_t s = 0; s < count; s++) {
        const int64_t t = g->direction ? count - 1 - s : s;
        step.data = at + t * width;
        run_step(g, &step, first + t);
    }
}

static void run_group(const struct group *g)
{
    begin(g);
    for (int64_t done = 0; done < g->steps; done += g->pass->chunk) {
        const int64_t left = g->steps - done, count = left < g->pass->chunk ? left : g->pass->chunk;
        run_chunk(g, g->direction ? left - count : done, count);
    }
    end(g);
}

/** Group number task % groups of direction task / groups. */
static struct group group_of(const struct pass *p, int64_t task, int threads)
{
    const int64_t batch = p->x->shape[0], number = task % p->groups, longer = batch % p->groups;
    struct group g = {.pass = p, .direction = task / p->groups, .threads = threads};
    g.first = batch / p->groups * number + (number < longer ? number : longer);
    g.count = batch / p->groups + (number < longer);
    for (int64_t b = g.first; b < g.first + g.count; b++)
        g.steps = length_of(p, b) > g.steps ? length_of(p, b) : g.steps;
    return g;
}

static void run_groups(const void *context, int64_t first, int64_t end_)
{
    const struct pass *p = context;
    for (int64_t task = first; task < end_; task++) {
        const struct group g = group_of(p, task, p->threads);
        run_group(&g);
    }
}

/* -------------------------------------------------------------------- calls -- */

/** Runs a layer on up to num_threads threads. */
static void run_layer(struct pass *p, int num_threads)
{
    const int64_t batch = p->x->shape[0], directions = p->lstm->directions, hidden = p->lstm->hidden;
    const double step = (double)batch * (double)hidden * ((double)hidden / 2 + CELL_OPERATIONS);
    const int for_all = nn_threads(num_threads, step * (double)directions * (double)p->x->shape[2]);
    const int for_step = nn_threads(num_threads, step);
    const int64_t most = batch / GROUP_SEQUENCES > 1 ? batch / GROUP_SEQUENCES : 1;
    const int64_t wanted = (for_all + directions - 1) / directions;
    p->groups = wanted < most ? wanted : most;
    p->threads = 1;
    int threads = for_all;
    if (directions * p->groups < for_step || directions * p->groups == 1) { /* too few tasks: products are cut */
        p->groups = 1;
        p->threads = num_threads;
        threads = 1;
    }
    attn_run_ranges(directions * p->groups, threads, run_groups, p);
}

static attn_status check_call(const attn_lstm *lstm, const attn_tensor *x, const int64_t *lengths,
                              const attn_tensor *state, const attn_tensor *out, int num_threads)
{
    if (!lstm)
        return attn_fail(ATTN_INVALID_ARGUMENT, "lstm is NULL; expected an LSTM");
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, lstm->input));
    CHECK(nn_check_lengths("lengths", lengths, x->shape[0], x->shape[2], "the tokens of x"));
    CHECK(nn_check_typed_output("out", out, x->shape[0], x->shape[2], lstm->directions * lstm->hidden));
    CHECK(attn_check_apart("out", out, "x", x, 0));
    if (state) {
        const int64_t each = lstm->num_layers * lstm->directions;
        CHECK(attn_check_count("state", sizeof(float), each, x->shape[0], 1));
        CHECK(nn_check_typed_output("state", state, 2, each * x->shape[0], lstm->hidden));
        CHECK(attn_check_apart("state", state, "x", x, 0));
        CHECK(attn_check_apart("state", state, "out", out, 0));
    }
    return nn_check_threads(num_threads);
}

attn_status attn_lstm_forward(const attn_lstm *lstm, const attn_tensor *x, const int64_t *lengths,
                              const attn_tensor *state, const attn_tensor *out, int num_threads, void *workspace,
                              size_t workspace_size)
{
    CHECK(check_call(lstm, x, lengths, state, out, num_threads));
    const int64_t batch = x->shape[0], tokens = x->shape[2];
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    const int out_serves = out->dtype == x->dtype;
    take_pieces(&measured, lstm, x->dtype, out_serves, batch, tokens);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    struct pass pass = {
        .lstm = lstm,
        .state = state,
        .lengths = lengths,
        .dtype = x->dtype,
        .pieces = take_pieces(&memory.arena, lstm, x->dtype, out_serves, batch, tokens),
        .chunk = chunk_of(batch, tokens),
    };
    attn_tensor between[2];
    for (int i = 0; i < 2; i++) {
        between[i] = attn_btc(pass.pieces.other[i], batch, tokens, lstm->directions * lstm->hidden);
        between[i].dtype = x->dtype;
    }
    if (out_serves)
        between[1] = *out;
    for (int64_t l = 0; l < lstm->num_layers && batch > 0; l++) {
        /* Layers write to two tensors in turns, of which out is one if it can be, and the last one to out. */
        pass.number = l;
        pass.layer = &lstm->layers[l];
        pass.x = l ? pass.out : x;
        pass.out = l == lstm->num_layers - 1 ? out : &between[(lstm->num_layers - l) % 2];
        run_layer(&pass, num_threads);
    }
    nn_workspace_close(&memory);
    return ATTN_OK;
}
