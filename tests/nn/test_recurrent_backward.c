/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of an LSTM: against the oracle's, which differences of its forward
 * pass check, over directions, lengths, states and types; a sequence in parts
 * against the whole; the same bits on any threads, in any workspace and beside
 * any other sequences; NaN that stays where it belongs; wrong arguments.
 */
#include "differences.h"

/** An LSTM of one layer with its input, and where its gradients go. */
struct layer {
    attn_lstm_config config;
    attn_lstm_weights weights[2], d_weights[2];
    struct oracle_lstm_weights oracle_weights[2];
    struct oracle_lstm oracle;
    int64_t batch, tokens, hidden, directions;
    attn_tensor x, out, d_out, d_x, its_state, d_state;
    int64_t *lengths;
    int has_state, has_d_state;
    attn_lstm_gradients gradients;
};

/** Gives a tensor the values of another of its shape. */
static void copy_values(const attn_tensor *to, const attn_tensor *from)
{
    for (int64_t b = 0; b < to->shape[0]; b++)
        for (int64_t t = 0; t < to->shape[2]; t++)
            for (int64_t c = 0; c < to->shape[3]; c++)
                tensor_set(to, b, 0, t, c, tensor_get(from, b, 0, t, c));
}

/** Matrices and vectors of a direction, and places for their gradients. */
static void make_weights(struct layer *l, struct memory *m, int64_t d)
{
    const int64_t n = l->hidden, in = l->config.input;
    attn_lstm_weights *w = &l->weights[d], *to = &l->d_weights[d];
    struct oracle_lstm_weights *o = &l->oracle_weights[d];
    w->w_ih = random_matrix(m, random_dtype(m), 4 * n, in, 1 / sqrt((double)in));
    w->w_hh = random_matrix(m, random_dtype(m), 4 * n, n, 1 / sqrt((double)n));
    o->w_ih = read_all(m, &w->w_ih);
    o->w_hh = read_all(m, &w->w_hh);
    if (rng_percent(&m->rng, 70)) {
        w->b_ih = random_vector(m, random_dtype(m), 4 * n, 0.5, 0);
        o->b_ih = read_all(m, &w->b_ih);
    }
    if (rng_percent(&m->rng, 70)) {
        w->b_hh = random_vector(m, random_dtype(m), 4 * n, 0.5, 0);
        o->b_hh = read_all(m, &w->b_hh);
    }
    to->w_ih = place_sums(m, 4 * n, in);
    to->w_hh = place_sums(m, 4 * n, n);
    to->b_ih = place_sums(m, 1, 4 * n);
    to->b_hh = place_sums(m, 1, 4 * n);
}

/** hidden 0: any. */
static void layer_create(struct layer *l, struct memory *m, int64_t batch, int64_t tokens, int bidirectional,
                         int64_t hidden)
{
    memset(l, 0, sizeof *l);
    l->config = attn_lstm_config_default();
    l->config.input = RNG_PICK(&m->rng, 1, 3, 8, 15, 17, 24);
    l->config.hidden = l->hidden = hidden ? hidden : RNG_PICK(&m->rng, 1, 2, 7, 8, 9, 16, 17, 25, 48);
    l->config.layers = rng_percent(&m->rng, 50);
    l->config.bidirectional = bidirectional ? (int)rng_range(&m->rng, 1, 2) : 0;
    l->directions = bidirectional ? 2 : 1;
    l->batch = batch;
    l->tokens = tokens;
    l->oracle = (struct oracle_lstm){l->config.input, l->hidden, 1, l->directions, l->oracle_weights};
    for (int64_t d = 0; d < l->directions; d++)
        make_weights(l, m, d);
    l->x = random_rows(m, batch, tokens, l->config.input);
    l->out = place_rows(m, batch, tokens, l->directions * l->hidden);
    l->d_out = place_rows_of(m, random_dtype(m), batch, tokens, l->directions * l->hidden);
    fill(m, &l->d_out, 1);
    l->d_x = place_rows_of(m, ATTN_F32, batch, tokens, l->config.input);
    l->its_state = place_rows(m, 2, l->directions * batch, l->hidden);
    fill(m, &l->its_state, 0.5);
    l->d_state = place_rows_of(m, ATTN_F32, 2, l->directions * batch, l->hidden);
    fill(m, &l->d_state, 1);
    mark_output(m, &l->d_state);
    l->gradients = attn_lstm_gradients_default();
    l->gradients.x = &l->d_x;
    l->gradients.weights = l->d_weights;
    l->has_state = l->has_d_state = 1;
}

/** Runs the forward pass into out; the state that was given stays. */
static void run_forward(struct layer *l, struct memory *m)
{
    attn_lstm *lstm;
    attn_tensor last = place_rows_of(m, l->its_state.dtype, 2, l->directions * l->batch, l->hidden);
    copy_values(&last, &l->its_state);
    OK(attn_lstm_create(&lstm, &l->config, l->weights));
    OK(attn_lstm_forward(lstm, &l->x, l->lengths, l->has_state ? &last : NULL, &l->out, 1, NULL, 0));
    attn_lstm_destroy(lstm);
    mark_input(m, &l->out);
}

static attn_status run_backward(const struct layer *l, void *workspace, size_t size)
{
    return attn_lstm_backward(&l->config, l->weights, &l->x, l->lengths, l->has_state ? &l->its_state : NULL, &l->out,
                              &l->d_out, &l->gradients, workspace, size);
}

/** Padding may hold anything in all that is read. */
static void spoil_padding(struct layer *l)
{
    const attn_tensor *const tensors[] = {&l->x, &l->out, &l->d_out};
    for (int i = 0; i < 3; i++)
        for (int64_t b = 0; b < l->batch && l->lengths; b++)
            for (int64_t t = l->lengths[b]; t < l->tokens; t++)
                for (int64_t c = 0; c < tensors[i]->shape[3]; c++)
                    tensor_set(tensors[i], b, 0, t, c, c % 2 ? NAN : INFINITY);
}

static void random_lengths(struct layer *l, struct memory *m)
{
    if (rng_percent(&m->rng, 40))
        return;
    l->lengths = bytes(m, (size_t)l->batch * sizeof *l->lengths);
    for (int64_t b = 0; b < l->batch; b++)
        l->lengths[b] = rng_range(&m->rng, 0, l->tokens);
}

/* --------------------------------------------------------------- the oracle -- */

static struct oracle_sum no_sum(struct memory *m, int64_t n)
{
    return (struct oracle_sum){zeros(m, n), zeros(m, n)};
}

/** Zeros where the oracle adds. */
static struct oracle_lstm_gradients no_gradients(struct memory *m, const struct layer *l)
{
    struct oracle_lstm_gradients g = {.x = no_sum(m, l->batch * l->tokens * l->config.input)};
    g.h = zeros(m, l->directions * l->batch * l->hidden);
    g.c = zeros(m, l->directions * l->batch * l->hidden);
    for (int64_t d = 0; d < l->directions; d++) {
        g.w_ih[d] = no_sum(m, 4 * l->hidden * l->config.input);
        g.w_hh[d] = no_sum(m, 4 * l->hidden * l->hidden);
        g.bias[d] = no_sum(m, 4 * l->hidden);
    }
    return g;
}

/** Halves of what (2, ...) holds. */
static void read_state(struct memory *m, const attn_tensor *t, double *h, double *c)
{
    const int64_t n = t->shape[2] * t->shape[3];
    const double *both = read_all(m, t);
    memcpy(h, both, (size_t)n * sizeof *h);
    memcpy(c, both + n, (size_t)n * sizeof *c);
}

/** A linear function of all that the forward pass gives: the gradients are its factors. */
static double loss_of(struct memory *m, const struct layer *l, const double *x, const double *h0, const double *c0,
                      const double *d_out, const double *d_h, const double *d_c)
{
    const int64_t states = l->directions * l->batch * l->hidden,
                  outs = l->batch * l->tokens * l->directions * l->hidden;
    double *h = zeros(m, states), *c = zeros(m, states), *out = zeros(m, outs), sum = 0;
    memcpy(h, h0, (size_t)states * sizeof *h);
    memcpy(c, c0, (size_t)states * sizeof *c);
    oracle_take(0)->lstm(&l->oracle, l->batch, l->tokens, x, l->lengths, h, c, out);
    for (int64_t i = 0; i < outs; i++)
        sum += out[i] * d_out[i];
    for (int64_t i = 0; i < states; i++)
        sum += h[i] * d_h[i] + c[i] * d_c[i];
    return sum;
}

static void test_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 6; n++) {
        struct memory *m = memory_create("recurrent_backward oracle", n);
        struct layer l;
        layer_create(&l, m, 2, 3, n % 2 == 1, 0);
        l.lengths = bytes(m, 2 * sizeof *l.lengths);
        l.lengths[0] = 3;
        l.lengths[1] = (int64_t)n % 3;
        const int64_t states = l.directions * l.batch * l.hidden;
        double *h = zeros(m, states), *c = zeros(m, states), *d_h = zeros(m, states), *d_c = zeros(m, states);
        read_state(m, &l.its_state, h, c);
        read_state(m, &l.d_state, d_h, d_c);
        double *x = read_all(m, &l.x), *d_out = read_all(m, &l.d_out);
        struct oracle_lstm_gradients g = no_gradients(m, &l);
        memcpy(g.h, d_h, (size_t)states * sizeof *d_h);
        memcpy(g.c, d_c, (size_t)states * sizeof *d_c);
        oracle_take(0)->lstm_backward(&l.oracle, 2, 3, x, l.lengths, h, c, d_out, &g);
        const int64_t in = l.config.input, inputs = 2 * 3 * in, gates = 4 * l.hidden, last = l.directions - 1;
        const struct {
            const char *name;
            double *values;
            const double *gradient;
            int64_t count;
        } all[] = {
            {"x", x, g.x.sum, inputs},
            {"h", h, g.h, states},
            {"c", c, g.c, states},
            {"w_ih", (double *)l.oracle_weights[last].w_ih, g.w_ih[last].sum, gates * in},
            {"w_hh", (double *)l.oracle_weights[last].w_hh, g.w_hh[last].sum, gates * l.hidden},
            {"b_ih", (double *)l.oracle_weights[last].b_ih, g.bias[last].sum, gates},
            {"b_hh", (double *)l.oracle_weights[0].b_hh, g.bias[0].sum, gates},
        };
        for (size_t a = 0; a < sizeof all / sizeof *all; a++)
            for (int some = 0; all[a].values && some < 8; some++) {
                const int64_t i = rng_range(&m->rng, 0, all[a].count - 1);
                const double was = all[a].values[i], step = 1e-5;
                all[a].values[i] = was + step;
                const double above = loss_of(m, &l, x, h, c, d_out, d_h, d_c);
                all[a].values[i] = was - step;
                const double below = loss_of(m, &l, x, h, c, d_out, d_h, d_c);
                all[a].values[i] = was;
                if (!(fabs((above - below) / (2 * step) - all[a].gradient[i]) < 1e-7))
                    fail_msg("%s: the oracle's gradient of %s[%d] is %.9g; expected %.9g", guard_case_line, all[a].name,
                             (int)i, all[a].gradient[i], (above - below) / (2 * step));
            }
        memory_destroy(m);
    }
}

/* ------------------------------------------------------------------- values -- */

/** What sums have before, for gradients that are added. */
static void begin_sums(struct memory *m, const attn_tensor *t, const struct trio *to, double *sizes)
{
    const size_t count = (size_t)(t->shape[2] * t->shape[3]);
    fill(m, t, 1);
    mark_output(m, t);
    const double *before = read_all(m, t);
    for (int k = 0; k < ORACLES; k++)
        memcpy(to->of[k], before, count * sizeof *before);
    for (size_t i = 0; i < count; i++)
        sizes[i] = fabs(before[i]);
}

/** What reaches a step may be the little that is left of larger numbers: half of the root mean square at least. */
static const double *sizes_of_steps(double *sizes, int64_t n)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += sizes[i] * sizes[i];
    for (int64_t i = 0; i < n; i++)
        sizes[i] = fmax(sizes[i], sqrt(squares / (double)n) / 2);
    return sizes;
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(160); n++) {
        struct memory *m = memory_create("recurrent_backward against_oracle", n);
        run_in(m, random_activations(m));
        struct layer l;
        layer_create(&l, m, RNG_PICK(&m->rng, 0, 1, 2, 5, 9, 20), RNG_PICK(&m->rng, 0, 1, 2, 7, 20),
                     rng_percent(&m->rng, 50), 0);
        random_lengths(&l, m);
        l.has_state = rng_percent(&m->rng, 60);
        l.has_d_state = rng_percent(&m->rng, 60);
        run_forward(&l, m);
        const double *x = read_all(m, &l.x), *d_out = read_all(m, &l.d_out);
        struct oracle_lstm_gradients to[ORACLES];
        const int64_t states = l.directions * l.batch * l.hidden;
        double *h = zeros(m, states), *c = zeros(m, states);
        if (l.has_state)
            read_state(m, &l.its_state, h, c);
        for (int k = 0; k < ORACLES; k++) {
            to[k] = no_gradients(m, &l);
            if (l.has_d_state)
                read_state(m, &l.d_state, to[k].h, to[k].c);
        }
        l.gradients.accumulate = rng_percent(&m->rng, 40);
        struct trio sums[2][3];
        double *sizes[2][3];
        for (int64_t d = 0; d < l.directions; d++) {
            const attn_tensor *const tensors[] = {&l.d_weights[d].w_ih, &l.d_weights[d].w_hh, &l.d_weights[d].b_ih};
            for (int i = 0; i < 3; i++) {
                for (int k = 0; k < ORACLES; k++)
                    sums[d][i].of[k] = (i == 0 ? to[k].w_ih[d] : i == 1 ? to[k].w_hh[d] : to[k].bias[d]).sum;
                sizes[d][i] = (i == 0 ? to[0].w_ih[d] : i == 1 ? to[0].w_hh[d] : to[0].bias[d]).size;
                if (l.gradients.accumulate)
                    begin_sums(m, tensors[i], &sums[d][i], sizes[d][i]);
            }
            if (rng_percent(&m->rng, 30) || l.gradients.accumulate)
                l.d_weights[d].b_hh.data = NULL;
        }
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->lstm_backward(&l.oracle, l.batch, l.tokens, x, l.lengths, h, c, d_out, &to[k]);
        spoil_padding(&l);
        l.gradients.state = l.has_d_state ? &l.d_state : NULL;
        l.gradients.num_threads = (int)(n % 4);
        memory_seal(m);
        const size_t size = attn_lstm_backward_workspace_size(&l.config, l.batch, l.tokens, &l.gradients);
        void *workspace = n % 2 ? place_workspace(m, size) : NULL;
        OK(run_backward(&l, workspace, workspace ? size : 0));
        judge(NN_RECURRENT_BACKWARD, "d_x", &l.d_x, (double *const[]){to[0].x.sum, to[1].x.sum, to[2].x.sum},
              sizes_of_steps(to[0].x.size, l.batch * l.tokens * l.config.input));
        for (int64_t d = 0; d < l.directions; d++) {
            judge(NN_RECURRENT_BACKWARD, "d_w_ih", &l.d_weights[d].w_ih, sums[d][0].of, sizes[d][0]);
            judge(NN_RECURRENT_BACKWARD, "d_w_hh", &l.d_weights[d].w_hh, sums[d][1].of, sizes[d][1]);
            judge(NN_RECURRENT_BACKWARD, "d_b_ih", &l.d_weights[d].b_ih, sums[d][2].of, sizes[d][2]);
            if (l.d_weights[d].b_hh.data)
                assert_true(equal_bits(&l.d_weights[d].b_ih, &l.d_weights[d].b_hh));
        }
        if (l.has_d_state) {
            attn_tensor part = l.d_state;
            part.shape[0] = 1;
            judge(NN_RECURRENT_BACKWARD, "d_h", &part, (double *const[]){to[0].h, to[1].h, to[2].h}, NULL);
            part.data = advanced(&l.d_state, l.d_state.stride[0]).data;
            judge(NN_RECURRENT_BACKWARD, "d_c", &part, (double *const[]){to[0].c, to[1].c, to[2].c}, NULL);
        } else {
            const attn_tensor narrow = place_rows_of(m, ATTN_BF16, l.batch, l.tokens, l.config.input);
            l.gradients.x = &narrow;
            l.gradients.weights = NULL;
            OK(run_backward(&l, NULL, 0));
            assert_rounded("d_x", &narrow, &l.d_x);
        }
        memory_destroy(m);
    }
}

/* --------------------------------------------------------------------- bits -- */

/** Other threads and workspaces. 64 sequences with 32 channels are several groups, from two threads on. */
static void test_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(8); n++) {
        struct memory *m = memory_create("recurrent_backward bits", n);
        struct layer l;
        layer_create(&l, m, 64, 12, n % 2 == 1, n < 4 ? 32 : 0);
        random_lengths(&l, m);
        run_forward(&l, m);
        const attn_tensor start = place_rows_of(m, ATTN_F32, 2, l.directions * l.batch, l.hidden);
        fill(m, &start, 1);
        attn_tensor d_x[4], d_state[4];
        attn_lstm_weights d_weights[4][2];
        memory_seal(m);
        for (int threads = 1; threads <= 4; threads++) {
            const int i = threads - 1;
            d_x[i] = place_rows(m, l.batch, l.tokens, l.config.input);
            d_state[i] = place_rows(m, 2, l.directions * l.batch, l.hidden);
            for (int64_t d = 0; d < l.directions; d++) {
                d_weights[i][d].w_ih = place_sums(m, 4 * l.hidden, l.config.input);
                d_weights[i][d].w_hh = place_sums(m, 4 * l.hidden, l.hidden);
                d_weights[i][d].b_ih = place_sums(m, 1, 4 * l.hidden);
                d_weights[i][d].b_hh.data = NULL;
            }
            l.gradients.x = &d_x[i];
            l.gradients.state = &d_state[i];
            l.gradients.weights = d_weights[i];
            l.gradients.num_threads = threads;
            const size_t told = attn_lstm_backward_workspace_size(&l.config, l.batch, l.tokens, &l.gradients);
            char byte;
            REFUSES(m, run_backward(&l, &byte, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace_size is 1");
            const size_t least = said_least();
            assert_true(least <= told);
            for (int some = 0; some < 2; some++) {
                const size_t size = some ? told : least;
                struct guard guard = guard_create(size);
                copy_values(&d_state[i], &start);
                OK(run_backward(&l, guard_place(&guard, size, 1), size));
                assert_true(guard_intact(&guard));
                guard_destroy(&guard);
                assert_true(equal_bits(&d_x[0], &d_x[i]));
                assert_true(equal_bits(&d_state[0], &d_state[i]));
                for (int64_t d = 0; d < l.directions; d++) {
                    assert_true(equal_bits(&d_weights[0][d].w_ih, &d_weights[i][d].w_ih));
                    assert_true(equal_bits(&d_weights[0][d].w_hh, &d_weights[i][d].w_hh));
                    assert_true(equal_bits(&d_weights[0][d].b_ih, &d_weights[i][d].b_ih));
                }
            }
        }
        memory_destroy(m);
    }
    nn_end_refusals();
}

static void test_alone(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(10); n++) {
        struct memory *m = memory_create("recurrent_backward alone", n);
        struct layer l;
        layer_create(&l, m, 9, 8, n % 2 == 1, 0);
        random_lengths(&l, m);
        l.has_state = 0;
        l.gradients.weights = NULL;
        run_forward(&l, m);
        OK(run_backward(&l, NULL, 0));
        for (int64_t b = 0; b < l.batch; b++) {
            struct layer one = l;
            const attn_tensor d_x = place_rows(m, 1, l.tokens, l.config.input),
                              expected = slice(&l.d_x, b, 0, l.tokens);
            one.batch = 1;
            one.x = slice(&l.x, b, 0, l.tokens);
            one.out = slice(&l.out, b, 0, l.tokens);
            one.d_out = slice(&l.d_out, b, 0, l.tokens);
            one.lengths = l.lengths ? l.lengths + b : NULL;
            one.gradients.x = &d_x;
            OK(run_backward(&one, NULL, 0));
            assert_true(equal_bits(&d_x, &expected));
        }
        memory_destroy(m);
    }
}

static void expect_near(const char *what, const attn_tensor *got, const attn_tensor *expected)
{
    for (int64_t b = 0; b < got->shape[0]; b++)
        for (int64_t t = 0; t < got->shape[2]; t++)
            for (int64_t c = 0; c < got->shape[3]; c++) {
                const double a = tensor_get(got, b, 0, t, c), e = tensor_get(expected, b, 0, t, c);
                if (!(fabs(a - e) <= 1e-5 * (1 + fabs(e))))
                    fail_msg("%s: %s(%d, %d, %d) is %.9g; expected %.9g", guard_case_line, what, (int)b, (int)t, (int)c,
                             a, e);
            }
}

/**
 * Backwards through the second part of a sequence and then the first is backwards through all of it, but for the last
 * bits: c between the parts is that of the forward pass, whose sums have another order.
 */
static void test_parts(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(10); n++) {
        struct memory *m = memory_create("recurrent_backward parts", n);
        struct layer l;
        layer_create(&l, m, 5, 9, 0, 0);
        const int64_t first = rng_range(&m->rng, 0, 9);
        run_forward(&l, m);
        const attn_tensor whole = l.d_x, parts = place_rows(m, 5, 9, l.config.input);
        const attn_tensor d_state = place_rows(m, 2, 5, l.hidden), between = place_rows(m, 2, 5, l.hidden);
        copy_values(&d_state, &l.d_state);
        copy_values(&between, &l.its_state);
        l.gradients.weights = NULL;
        l.gradients.state = &l.d_state;
        OK(run_backward(&l, NULL, 0));
        /* The state between the parts. */
        struct layer part = l;
        attn_lstm *lstm;
        part.x.shape[2] = part.out.shape[2] = part.d_out.shape[2] = first;
        OK(attn_lstm_create(&lstm, &l.config, l.weights));
        OK(attn_lstm_forward(lstm, &part.x, NULL, &between, &part.out, 1, NULL, 0));
        attn_lstm_destroy(lstm);
        attn_tensor d_x = parts;
        part.gradients.x = &d_x;
        part.gradients.state = &d_state;
        for (int p = 1; p >= 0; p--) {
            const int64_t at = p ? first : 0, tokens = p ? 9 - first : first;
            part.x = l.x, part.out = l.out, part.d_out = l.d_out, d_x = parts;
            attn_tensor *const moved[] = {&part.x, &part.out, &part.d_out, &d_x};
            for (int i = 0; i < 4; i++) {
                *moved[i] = advanced(moved[i], at * moved[i]->stride[2]);
                moved[i]->shape[2] = tokens;
            }
            part.its_state = p ? between : l.its_state;
            OK(run_backward(&part, NULL, 0));
        }
        expect_near("d_x", &parts, &whole);
        expect_near("d_state", &d_state, &l.d_state);
        memory_destroy(m);
    }
}

/** Without d_out, only the state matters: that is a d_out of zeros. */
static void test_state_alone(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(10); n++) {
        struct memory *m = memory_create("recurrent_backward state_alone", n);
        struct layer l;
        layer_create(&l, m, 4, 6, n % 2 == 1, 0);
        random_lengths(&l, m);
        run_forward(&l, m);
        const attn_tensor start = place_rows(m, 2, l.directions * 4, l.hidden), first = l.d_x,
                          second = place_rows(m, 4, 6, l.config.input), zero = place_rows(m, 4, 6, l.d_out.shape[3]);
        copy_values(&start, &l.d_state);
        for (int64_t b = 0; b < 4; b++)
            for (int64_t t = 0; t < 6; t++)
                for (int64_t c = 0; c < zero.shape[3]; c++)
                    tensor_set(&zero, b, 0, t, c, 0);
        l.d_out = zero;
        l.gradients.state = &l.d_state;
        OK(run_backward(&l, NULL, 0));
        const attn_tensor before = place_rows(m, 2, l.directions * 4, l.hidden);
        copy_values(&before, &l.d_state);
        copy_values(&l.d_state, &start);
        l.gradients.x = &second;
        OK(attn_lstm_backward(&l.config, l.weights, &l.x, l.lengths, &l.its_state, &l.out, NULL, &l.gradients, NULL,
                              0));
        expect_near("d_x", &second, &first);
        expect_near("d_state", &l.d_state, &before);
        memory_destroy(m);
    }
}

/** A NaN of one sequence is in its own gradients, and in the sums. */
static void test_nan(void **state)
{
    (void)state;
    struct memory *m = memory_create("recurrent_backward nan", 0);
    struct layer l;
    layer_create(&l, m, 3, 5, 0, 0);
    l.has_state = 0;
    run_forward(&l, m);
    OK(run_backward(&l, NULL, 0));
    const attn_tensor clean = l.d_x, d_x = place_rows(m, 3, 5, l.config.input);
    tensor_set(&l.d_out, 1, 0, 2, 0, NAN);
    l.gradients.x = &d_x;
    OK(run_backward(&l, NULL, 0));
    for (int64_t b = 0; b < 3; b++)
        for (int64_t t = 0; t < 5; t++)
            for (int64_t c = 0; c < l.config.input; c++)
                assert_true(b == 1 && t <= 2 ? isnan(tensor_get(&d_x, b, 0, t, c))
                                             : tensor_get(&d_x, b, 0, t, c) == tensor_get(&clean, b, 0, t, c));
    assert_true(isnan(tensor_get(&l.d_weights[0].w_hh, 0, 0, 0, 0)));
    memory_destroy(m);
}

/* ------------------------------------------------------------------ refusals -- */

#define BACKWARD(config, weights, x, lengths, its_state, out, d_out, gradients)                                        \
    attn_lstm_backward(config, weights, x, lengths, its_state, out, d_out, gradients, NULL, 0)

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("recurrent_backward wrong_arguments", 0);
    struct layer l;
    layer_create(&l, m, 3, 4, 1, 0);
    run_forward(&l, m);
    const attn_linear_format format = attn_linear_format_default();
    const int64_t lengths[] = {4, 5, 0};
    const attn_lstm_config *c = &l.config;
    attn_lstm_gradients *g = &l.gradients;
    const attn_tensor *x = &l.x, *out = &l.out, *d_out = &l.d_out, *first = &l.its_state;
    memory_seal(m);
    REFUSES(m, BACKWARD(NULL, l.weights, x, NULL, first, out, d_out, g), ATTN_INVALID_ARGUMENT, "config is NULL");
    REFUSES(m, BACKWARD(CHANGED(attn_lstm_config, *c, layers = 2), l.weights, x, NULL, first, out, d_out, g),
            ATTN_INVALID_ARGUMENT, "config.layers is 2|expected 1");
    REFUSES(m, BACKWARD(CHANGED(attn_lstm_config, *c, format = &format), l.weights, x, NULL, first, out, d_out, g),
            ATTN_INVALID_ARGUMENT, "config.format is set");
    REFUSES(m, BACKWARD(c, NULL, x, NULL, first, out, d_out, g), ATTN_INVALID_ARGUMENT, "weights is NULL");
    REFUSES(m, BACKWARD(c, l.weights, NULL, NULL, first, out, d_out, g), ATTN_INVALID_ARGUMENT, "x is NULL");
    REFUSES(m, BACKWARD(c, l.weights, x, lengths, first, out, d_out, g), ATTN_INVALID_ARGUMENT, "lengths[1] is 5");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, x, out, d_out, g), ATTN_SHAPE_MISMATCH, "state.shape[0] is 3");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, NULL, d_out, g), ATTN_INVALID_ARGUMENT, "out is NULL");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, first, d_out, g), ATTN_SHAPE_MISMATCH, "out.shape[0] is 2");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, first, g), ATTN_SHAPE_MISMATCH, "d_out.shape[0] is 2");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, NULL, g), ATTN_INVALID_ARGUMENT,
            "d_out and gradients.state are NULL");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, NULL), ATTN_INVALID_ARGUMENT, "gradients is NULL");
    attn_lstm_gradients none = attn_lstm_gradients_default();
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, &none), ATTN_INVALID_ARGUMENT,
            "gradients has nothing to write; expected x, weights or state");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, CHANGED(attn_lstm_gradients, *g, x = x)),
            ATTN_INVALID_ARGUMENT, "gradients.x|overlaps x");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, CHANGED(attn_lstm_gradients, *g, state = first)),
            ATTN_INVALID_ARGUMENT, "gradients.state|overlaps state");
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, CHANGED(attn_lstm_gradients, *g, num_threads = -1)),
            ATTN_INVALID_ARGUMENT, "num_threads is -1");
    attn_lstm_weights wrong[2] = {l.d_weights[0], l.d_weights[1]};
    none.weights = wrong;
    wrong[1].w_hh.dtype = ATTN_BF16;
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, &none), ATTN_INVALID_ARGUMENT,
            "gradients.weights[1].w_hh.dtype is bf16; expected f32");
    wrong[1].w_hh = l.d_weights[0].w_hh;
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, &none), ATTN_INVALID_ARGUMENT,
            "gradients.weights[1].w_hh|overlaps gradients.weights[0].w_hh");
    wrong[1].w_hh = l.d_weights[1].w_hh;
    wrong[0].b_hh.shape[3]--;
    REFUSES(m, BACKWARD(c, l.weights, x, NULL, first, out, d_out, &none), ATTN_SHAPE_MISMATCH,
            "gradients.weights[0].b_hh.shape[3]");
    assert_true(attn_lstm_backward_workspace_size(NULL, 1, 1, g) == SIZE_MAX);
    assert_true(attn_lstm_backward_workspace_size(c, -1, 1, g) == SIZE_MAX);
    assert_true(attn_lstm_backward_workspace_size(c, 1, -1, g) == SIZE_MAX);
    assert_true(attn_lstm_backward_workspace_size(c, INT64_MAX, INT64_MAX, g) == SIZE_MAX);
    assert_true(attn_lstm_backward_workspace_size(c, 1, INT64_MAX, g) == SIZE_MAX);
    assert_true(attn_lstm_backward_workspace_size(c, 1, 1, NULL) == SIZE_MAX);
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),      cmocka_unit_test(test_against_oracle),  cmocka_unit_test(test_bits),
        cmocka_unit_test(test_alone),       cmocka_unit_test(test_parts),           cmocka_unit_test(test_nan),
        cmocka_unit_test(test_state_alone), cmocka_unit_test(test_wrong_arguments),
    };
    return NN_MAIN(tests);
}
