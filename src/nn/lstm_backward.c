/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of an LSTM layer, through time. Of the forward pass only h is
 * kept, in out; with h known, the sums of the gates are two products for all
 * tokens at once, so that computing them again is cheaper than the first time:
 *
 *     live tokens of x, and h before each step, to rows           packing
 *     for each direction
 *         gates = x Wᵀ + h Uᵀ                                     all tokens
 *     for each direction and group of sequences                   tasks
 *         for each step, as in the forward pass
 *             gates, c                                            element by element
 *         for each step, backwards
 *             d_gates, d_c                                        element by element, d_gates in place of gates
 *             d_h = d_gates U
 *     for each direction
 *         d_W = d_gatesᵀ x,  d_U = d_gatesᵀ h,  d_b               all tokens
 *     d_x = sum over directions of d_gates W                      all tokens
 *
 * Rows are in the order of steps, and within a step from the longest sequence to
 * the shortest: the live ones of a step are neighbours, and a step's product has
 * no row too many. A row's bits do not depend on what stands beside it, and sums
 * over rows are made after all steps, so neither groups nor threads matter.
 */
#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/gradient_products.h"
#include "nn/linear_backward.h"
#include "nn/lstm_backward.h"
#include "nn/memory.h"
#include "nn/product_rows.h"
#include "nn/tensor_rows.h"

/* Sequences of a task: fewer would read the weights of U for too few rows. */
#define GROUP_SEQUENCES 8

/* Operations of a token's cells for each channel, in the units of nn_threads(). */
#define CELL_OPERATIONS 60

/** Which row a token has: that of step t of the sequence of rank i is start[t] + i. */
struct packing {
    int64_t *order; /* [B] sequences, the longest first */
    int64_t *start; /* [T + 1] rows of the steps */
    int64_t steps;  /* of the longest */
};

/** Working memory; rows are those of the packing. */
struct pieces {
    struct packing packing;
    float *bias;   /* [directions][4*hidden] */
    float *turned; /* [input or hidden][4*hidden]: weights with rows and columns exchanged */
    float *x;      /* [rows][input]: x, in the end its gradient */
    float *h;      /* [directions][rows][hidden]: h before the step */
    float *c;      /* [directions][rows][hidden]: c after it */
    float *gates;  /* [directions][rows][4*hidden]: sums, then gates, then the gradients of the sums */
    float *first;  /* [directions][B][hidden], by rank: c before the first step */
    float *d_h;    /* the same: the gradient of h that the step behind gives */
    float *d_c;
    void *scratch; /* of products */
    size_t scratch_size;
};

/** A call. */
struct call {
    const struct attn_nn_kernels *kernels;
    const attn_lstm_weights *weights;
    const attn_tensor *x, *state, *out, *d_out;
    const int64_t *lengths;
    attn_lstm_gradients gradients;
    int64_t batch, tokens, input, hidden, directions;
    int threads;
    struct pieces pieces;
    int64_t groups;
    size_t share; /* bytes of scratch of a task's products */
    int shares;
};

/** A task's products have a part of the scratch memory each, aligned. */
static struct nn_need scratch_need(int num_threads)
{
    const int threads = nn_all_threads(num_threads);
    struct nn_need need = nn_linear_backward_need(threads);
    need.size += (size_t)threads * ATTN_ALIGN;
    return need;
}

static struct pieces take_pieces(struct nn_arena *arena, const attn_lstm_config *c, int64_t batch, int64_t tokens,
                                 int num_threads)
{
    const int64_t directions = nn_lstm_directions(c), gates = 4 * c->hidden;
    const int64_t in = c->input > c->hidden ? c->input : c->hidden;
    struct pieces p = {0};
    p.packing.order = nn_take(arena, batch, 1, 1, sizeof(int64_t));
    p.packing.start = nn_take(arena, tokens < INT64_MAX ? tokens + 1 : tokens, 1, 1, sizeof(int64_t));
    p.bias = nn_take(arena, directions, gates, 1, sizeof(float));
    p.turned = nn_take(arena, in, gates, 1, sizeof(float));
    p.x = nn_take(arena, batch, tokens, c->input, sizeof(float));
    p.h = nn_take(arena, batch, tokens, directions * c->hidden, sizeof(float));
    p.c = nn_take(arena, batch, tokens, directions * c->hidden, sizeof(float));
    p.gates = nn_take(arena, batch, tokens, directions * gates, sizeof(float));
    p.first = nn_take(arena, batch, directions * c->hidden, 1, sizeof(float));
    p.d_h = nn_take(arena, batch, directions * c->hidden, 1, sizeof(float));
    p.d_c = nn_take(arena, batch, directions * c->hidden, 1, sizeof(float));
    p.scratch = nn_take_workspace(arena, scratch_need(num_threads), &p.scratch_size);
    return p;
}

/* ------------------------------------------------------------------ packing -- */

static int64_t length_of(const struct call *call, int64_t sequence)
{
    return call->lengths ? call->lengths[sequence] : call->tokens;
}

/** Sorts the sequences by counting: start is [0] before, and has the rows after. */
static void sort_sequences(const struct call *call, struct packing *p)
{
    const int64_t tokens = call->tokens;
    /* start[t] counts sequences of length tokens - t, then it is the rank that the next of them gets. */
    memset(p->start, 0, (size_t)(tokens + 1) * sizeof *p->start);
    for (int64_t b = 0; b < call->batch; b++)
        p->start[tokens - length_of(call, b)]++;
    for (int64_t t = 0, rank = 0; t <= tokens; t++) {
        const int64_t count = p->start[t];
        p->start[t] = rank;
        rank += count;
    }
    for (int64_t b = 0; b < call->batch; b++)
        p->order[p->start[tokens - length_of(call, b)]++] = b;
    /* Live at step t are all that are longer: from the shortest up. */
    p->steps = call->batch ? length_of(call, p->order[0]) : 0;
    int64_t rows = 0, live = call->batch;
    for (int64_t t = 0; t <= tokens; t++) {
        while (live > 0 && length_of(call, p->order[live - 1]) <= t)
            live--;
        p->start[t] = rows;
        rows += live;
    }
}

static int64_t rows_of(const struct call *call)
{
    return call->pieces.packing.start[call->tokens];
}

/** The caller's state of a direction and sequence: 0 is h, 1 is c. */
static void *state_of(const struct call *call, const attn_tensor *state, int64_t which, int64_t direction,
                      int64_t sequence)
{
    return nn_row_address(state, which, direction * call->batch + sequence);
}

/** A row of h or c from the caller's state, zeros without one. */
static void take_state(const struct call *call, float *to, const attn_tensor *state, int64_t which, int64_t direction,
                       int64_t sequence)
{
    if (state)
        nn_copy_row(call->kernels, to, ATTN_F32, state_of(call, state, which, direction, sequence), state->dtype,
                    call->hidden);
    else
        memset(to, 0, (size_t)call->hidden * sizeof *to);
}

/** Where a tensor has the channels of a direction for a token. */
static char *token_of(const struct call *call, const attn_tensor *t, int64_t sequence, int64_t token, int64_t direction)
{
    return (char *)nn_row_address(t, sequence, token) + direction * call->hidden * attn_element_size(t->dtype);
}

/** h before a step. */
static void take_h(const struct call *call, float *to, int64_t direction, int64_t sequence, int64_t token)
{
    const int64_t before = direction ? token + 1 : token - 1;
    if (before < 0 || before == length_of(call, sequence))
        take_state(call, to, call->state, 0, direction, sequence);
    else
        nn_copy_row(call->kernels, to, ATTN_F32, token_of(call, call->out, sequence, before, direction),
                    call->out->dtype, call->hidden);
}

/** Row r of rows of a direction, [directions][rows][channels]. */
static float *row_at(const struct call *call, float *rows, int64_t direction, int64_t row, int64_t channels)
{
    return rows + (direction * rows_of(call) + row) * channels;
}

/** A row of what belongs to a sequence, [directions][B][hidden]. */
static float *rank_at(const struct call *call, float *ranks, int64_t direction, int64_t rank)
{
    return ranks + (direction * call->batch + rank) * call->hidden;
}

static void gather_sequences(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    const struct pieces *p = &call->pieces;
    for (int64_t rank = first; rank < end; rank++) {
        const int64_t b = p->packing.order[rank];
        for (int64_t t = 0; t < length_of(call, b); t++) {
            const int64_t row = p->packing.start[t] + rank;
            nn_copy_row(call->kernels, p->x + row * call->input, ATTN_F32, nn_row_address(call->x, b, t),
                        call->x->dtype, call->input);
            for (int64_t d = 0; d < call->directions; d++)
                take_h(call, row_at(call, p->h, d, row, call->hidden), d, b, t);
        }
        for (int64_t d = 0; d < call->directions; d++) {
            take_state(call, rank_at(call, p->first, d, rank), call->state, 1, d, b);
            take_state(call, rank_at(call, p->d_h, d, rank), call->gradients.state, 0, d, b);
            take_state(call, rank_at(call, p->d_c, d, rank), call->gradients.state, 1, d, b);
        }
    }
}

static void scatter_sequences(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    const struct pieces *p = &call->pieces;
    const attn_tensor *d_x = call->gradients.x, *d_state = call->gradients.state;
    for (int64_t rank = first; rank < end; rank++) {
        const int64_t b = p->packing.order[rank], length = length_of(call, b);
        for (int64_t t = 0; d_x && t < length; t++)
            nn_copy_row(call->kernels, nn_row_address(d_x, b, t), d_x->dtype,
                        p->x + (p->packing.start[t] + rank) * call->input, ATTN_F32, call->input);
        for (int64_t t = length; d_x && t < call->tokens; t++)
            memset(nn_row_address(d_x, b, t), 0, (size_t)(call->input * attn_element_size(d_x->dtype)));
        for (int64_t d = 0; d_state && d < call->directions; d++) {
            nn_copy_row(call->kernels, state_of(call, d_state, 0, d, b), d_state->dtype, rank_at(call, p->d_h, d, rank),
                        ATTN_F32, call->hidden);
            nn_copy_row(call->kernels, state_of(call, d_state, 1, d, b), d_state->dtype, rank_at(call, p->d_c, d, rank),
                        ATTN_F32, call->hidden);
        }
    }
}

/* ------------------------------------------------------------------ a group -- */

/** Sequences of neighbouring ranks, in one direction. */
struct group {
    const struct call *call;
    int64_t direction, first, count; /* ranks */
    int threads;                     /* of a product, and what it works in */
    void *scratch;
    size_t scratch_size;
};

/** How many of the group's sequences are live at a step. */
static int64_t live_of(const struct group *g, int64_t step)
{
    const int64_t *start = g->call->pieces.packing.start;
    const int64_t live = start[step + 1] - start[step] - g->first;
    return live < 0 ? 0 : live < g->count ? live : g->count;
}

/** A cell's rows. */
static struct nn_cell_gradient_work cell_of(const struct group *g, int64_t step, int64_t rank)
{
    const struct call *call = g->call;
    const struct pieces *p = &call->pieces;
    const int64_t d = g->direction, hidden = call->hidden, *start = p->packing.start;
    const int64_t sequence = p->packing.order[rank], before = d ? step + 1 : step - 1;
    const int is_first = before < 0 || before == length_of(call, sequence);
    struct nn_cell_gradient_work work = {
        .gates = row_at(call, p->gates, d, start[step] + rank, 4 * hidden),
        .bias = p->bias + d * 4 * hidden,
        .c_before = is_first ? rank_at(call, p->first, d, rank) : row_at(call, p->c, d, start[before] + rank, hidden),
        .c = row_at(call, p->c, d, start[step] + rank, hidden),
        .d_h = rank_at(call, p->d_h, d, rank),
        .d_c = rank_at(call, p->d_c, d, rank),
        .n = hidden,
    };
    if (call->d_out)
        work.d_out = (struct nn_vector){token_of(call, call->d_out, sequence, step, d), call->d_out->dtype};
    return work;
}

/** Step number n of the group's direction, of steps. */
static int64_t step_of(const struct group *g, int64_t n, int64_t steps)
{
    return g->direction ? steps - 1 - n : n;
}

/** d_h of the step before. */
static void multiply_back(const struct group *g, int64_t step, int64_t live)
{
    const struct call *call = g->call;
    const struct pieces *p = &call->pieces;
    const int64_t row = p->packing.start[step] + g->first, hidden = call->hidden;
    const attn_tensor d_gates = attn_btc(row_at(call, p->gates, g->direction, row, 4 * hidden), 1, live, 4 * hidden);
    const attn_tensor d_h = attn_btc(rank_at(call, p->d_h, g->direction, g->first), 1, live, hidden);
    const struct nn_gradient_product product = {
        .left = {&d_gates, 0},
        .right = {&call->weights[g->direction].w_hh, 1},
        .rows = live,
        .columns = hidden,
        .terms = 4 * hidden,
        .to = &d_h,
    };
    nn_gradient_product(&product, g->threads, g->scratch, g->scratch_size);
}

static void run_group(const struct group *g)
{
    const struct call *call = g->call;
    const int64_t steps = g->count ? length_of(call, call->pieces.packing.order[g->first]) : 0;
    for (int64_t n = 0; n < steps; n++) {
        const int64_t step = step_of(g, n, steps), live = live_of(g, step);
        for (int64_t i = 0; i < live; i++) {
            const struct nn_cell_gradient_work work = cell_of(g, step, g->first + i);
            call->kernels->lstm_gates(&work);
        }
    }
    for (int64_t n = steps - 1; n >= 0; n--) {
        const int64_t step = step_of(g, n, steps), live = live_of(g, step);
        for (int64_t i = 0; i < live; i++) {
            const struct nn_cell_gradient_work work = cell_of(g, step, g->first + i);
            call->kernels->lstm_cell_backward(&work);
        }
        multiply_back(g, step, live);
    }
}

/** The first rank of a group: groups have about as many rows each. */
static int64_t group_begin(const struct call *call, int64_t group)
{
    if (group == call->groups)
        return call->batch;
    int64_t rank = 0, rows = 0;
    const double wanted = (double)rows_of(call) * (double)group / (double)call->groups;
    while (rank < call->batch && (double)rows < wanted)
        rows += length_of(call, call->pieces.packing.order[rank++]);
    return rank;
}

/** Every so manieth task, in scratch memory of its own. */
static void run_shares(const void *context, int64_t first, int64_t end)
{
    const struct call *call = context;
    const int64_t tasks = call->directions * call->groups;
    for (int64_t share = first; share < end; share++)
        for (int64_t task = share; task < tasks; task += call->shares) {
            struct group g = {
                .call = call,
                .direction = task / call->groups,
                .first = group_begin(call, task % call->groups),
                .threads = tasks > 1 ? 1 : call->threads,
                .scratch = (char *)call->pieces.scratch + (size_t)share * call->share,
                .scratch_size = call->share,
            };
            g.count = group_begin(call, task % call->groups + 1) - g.first;
            run_group(&g);
        }
}

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value < most ? value : most;
}

/** Runs all steps. */
static void run_groups(struct call *call)
{
    const size_t least = scratch_need(1).least;
    const double hidden = (double)call->hidden, rows = (double)rows_of(call) * (double)call->directions;
    const int threads = nn_threads(call->threads, rows * hidden * (hidden / 2 + CELL_OPERATIONS));
    const int64_t room = clamp((int64_t)(call->pieces.scratch_size / least), 1, threads);
    call->groups = clamp((room + call->directions - 1) / call->directions, 1, call->batch / GROUP_SEQUENCES);
    if (call->groups < 1)
        call->groups = 1;
    const int64_t tasks = call->directions * call->groups;
    call->shares = (int)clamp(room, 1, tasks);
    call->share = call->pieces.scratch_size / (size_t)call->shares / ATTN_ALIGN * ATTN_ALIGN;
    attn_run_ranges(call->shares, call->shares, run_shares, call);
}

/* ------------------------------------------------------------------- a call -- */

/** Rows of a direction as a tensor. */
static attn_tensor rows_tensor(const struct call *call, float *rows, int64_t direction, int64_t channels)
{
    return attn_btc(row_at(call, rows, direction, 0, channels), 1, rows_of(call), channels);
}

/** to = (or with accumulate: += ) rows turned weights. */
static void multiply(const struct call *call, const attn_tensor *rows, const attn_tensor *weights,
                     const attn_tensor *to, int accumulate)
{
    const struct nn_product_place place = {call->threads, call->pieces.scratch, call->pieces.scratch_size};
    nn_multiply_rows(&place, rows, weights, call->pieces.turned, to, accumulate);
}

/** The sums of the gates, but the biases. */
static void multiply_all(const struct call *call)
{
    const struct pieces *p = &call->pieces;
    for (int64_t d = 0; d < call->directions; d++) {
        const attn_tensor gates = rows_tensor(call, p->gates, d, 4 * call->hidden);
        const attn_tensor x = attn_btc(p->x, 1, rows_of(call), call->input);
        const attn_tensor h = rows_tensor(call, p->h, d, call->hidden);
        multiply(call, &x, &call->weights[d].w_ih, &gates, 0);
        multiply(call, &h, &call->weights[d].w_hh, &gates, 1);
    }
}

static void run_weights(const struct call *call, int64_t d)
{
    const struct pieces *p = &call->pieces;
    const attn_lstm_weights *weights = &call->weights[d], *to = &call->gradients.weights[d];
    const attn_tensor d_gates = rows_tensor(call, p->gates, d, 4 * call->hidden);
    const attn_tensor x = attn_btc(p->x, 1, rows_of(call), call->input);
    const attn_tensor h = rows_tensor(call, p->h, d, call->hidden);
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.accumulate = call->gradients.accumulate;
    gradients.num_threads = call->threads;
    gradients.weights = nn_wanted(&to->w_ih);
    gradients.bias = nn_wanted(&to->b_ih);
    nn_linear_backward(&weights->w_ih, &x, &d_gates, &gradients, p->scratch, p->scratch_size);
    gradients.weights = nn_wanted(&to->w_hh);
    gradients.bias = nn_wanted(&to->b_hh);
    nn_linear_backward(&weights->w_hh, &h, &d_gates, &gradients, p->scratch, p->scratch_size);
}

/** d_x of both directions, in the place of x. */
static void run_x(const struct call *call)
{
    const struct pieces *p = &call->pieces;
    const attn_tensor to = attn_btc(p->x, 1, rows_of(call), call->input);
    for (int64_t d = 0; d < call->directions; d++) {
        const attn_tensor d_gates = rows_tensor(call, p->gates, d, 4 * call->hidden);
        const struct nn_gradient_product product = {
            .left = {&d_gates, 0},
            .right = {&call->weights[d].w_ih, 1},
            .rows = to.shape[2],
            .columns = call->input,
            .terms = 4 * call->hidden,
            .to = &to,
            .accumulate = d > 0,
        };
        nn_gradient_product(&product, call->threads, p->scratch, p->scratch_size);
    }
}

static void run(struct call *call)
{
    sort_sequences(call, &call->pieces.packing);
    const double elements = (double)call->batch * (double)call->tokens * (double)(call->input + call->hidden);
    const int copying = nn_threads(call->threads, elements / 4);
    nn_add_lstm_biases(call->weights, call->directions, 4 * call->hidden, call->pieces.bias);
    attn_run_ranges(call->batch, copying, gather_sequences, call);
    multiply_all(call);
    run_groups(call);
    for (int64_t d = 0; call->gradients.weights && d < call->directions; d++)
        run_weights(call, d);
    if (call->gradients.x)
        run_x(call);
    attn_run_ranges(call->batch, copying, scatter_sequences, call);
}

/* -------------------------------------------------------------------- calls -- */

size_t attn_lstm_backward_workspace_size(const attn_lstm_config *config, int64_t batch, int64_t tokens,
                                         const attn_lstm_gradients *gradients)
{
    attn_lstm_config c;
    attn_lstm_gradients g;
    if (nn_take_lstm_backward_config(&c, config) || nn_take_lstm_gradients(&g, gradients) ||
        nn_check_length("batch", batch, 0) || nn_check_length("tokens", tokens, 0))
        return SIZE_MAX;
    struct nn_arena arena = {0};
    take_pieces(&arena, &c, batch, tokens, g.num_threads);
    return nn_arena_size(&arena);
}

attn_status attn_lstm_backward(const attn_lstm_config *config, const attn_lstm_weights *weights, const attn_tensor *x,
                               const int64_t *lengths, const attn_tensor *state, const attn_tensor *out,
                               const attn_tensor *d_out, const attn_lstm_gradients *gradients, void *workspace,
                               size_t workspace_size)
{
    attn_lstm_config c;
    struct call call = {.weights = weights, .x = x, .state = state, .out = out, .d_out = d_out, .lengths = lengths};
    CHECK(nn_take_lstm_backward_config(&c, config));
    CHECK(nn_take_lstm_gradients(&call.gradients, gradients));
    CHECK(nn_check_lstm_backward(&c, weights, x, lengths, state, out, d_out, &call.gradients));
    call.kernels = attn_nn_kernels_active();
    call.batch = x->shape[0];
    call.tokens = x->shape[2];
    call.input = c.input;
    call.hidden = c.hidden;
    call.directions = nn_lstm_directions(&c);
    const int num_threads = call.gradients.num_threads;
    call.threads = nn_all_threads(num_threads);
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_pieces(&measured, &c, call.batch, call.tokens, num_threads);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    call.pieces = take_pieces(&memory.arena, &c, call.batch, call.tokens, num_threads);
    run(&call);
    nn_workspace_close(&memory);
    return ATTN_OK;
}
