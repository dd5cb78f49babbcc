/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of an LSTM layer, of attention pooling, of alignments and of a step of Bahdanau's decoder, by their
 * formulas, one sequence after the other.
 */
#include "real.h"

#include "oracle_score.h"

/** What a sequence's steps have, in their order: arrays of [length] rows. */
struct steps {
    double *h, *c; /* before step 0 in row 0, after step s in row s + 1 */
    double *gates; /* [4][hidden] after their functions */
};

static void run_steps(const struct oracle_lstm *l, const struct oracle_lstm_weights *w, int64_t length,
                      const double *const *x, struct steps *s)
{
    const int64_t n = l->hidden;
    for (int64_t step = 0; step < length; step++) {
        double *gates = s->gates + step * 4 * n, *h = s->h + step * n, *c = s->c + step * n;
        for (int64_t row = 0; row < 4 * n; row++) {
            real sum = (real)ORACLE(oracle_dot)(l->input, w->w_ih + row * l->input, x[step]) +
                       (real)ORACLE(oracle_dot)(n, w->w_hh + row * n, h);
            sum += (w->b_ih ? (real)w->b_ih[row] : 0) + (w->b_hh ? (real)w->b_hh[row] : 0);
            gates[row] = KEPT(row / n == 2 ? tanh(sum) : sigmoid(sum));
        }
        for (int64_t i = 0; i < n; i++) {
            const real next = (real)gates[n + i] * (real)c[i] + (real)gates[i] * (real)gates[2 * n + i];
            c[n + i] = KEPT(next);
            h[n + i] = KEPT((real)gates[3 * n + i] * tanh(next));
        }
    }
}

/** Gates of a step to the gradients of their sums; d_c to that of the step before. */
static void cell_backward(int64_t n, double *gates, const double *c_before, const double *c, const double *d_h,
                          double *d_c)
{
    for (int64_t i = 0; i < n; i++) {
        const real in = (real)gates[i], forget = (real)gates[n + i], cell = (real)gates[2 * n + i];
        const real out = (real)gates[3 * n + i], t = tanh((real)c[i]);
        const real d = (real)d_c[i] + (real)d_h[i] * out * (1 - t * t);
        gates[i] = KEPT(d * cell * in * (1 - in));
        gates[n + i] = KEPT(d * (real)c_before[i] * forget * (1 - forget));
        gates[2 * n + i] = KEPT(d * in * (1 - cell * cell));
        gates[3 * n + i] = KEPT((real)d_h[i] * t * out * (1 - out));
        d_c[i] = KEPT(d * forget);
    }
}

/** The elements of a row that is a result itself have the errors of the largest. */
static double largest(int64_t n, const double *x)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/** to[i] += sum_r row[r] matrix[r][i] for rows of n; to begins at an element. The elements of row are of a size. */
static void add_turned(int64_t rows, int64_t n, const double *row, const double *matrix, const struct oracle_sum *sums,
                       int64_t first, double size)
{
    double *to = sums->sum + first;
    for (int64_t i = 0; sums->size && i < n; i++)
        for (int64_t r = 0; r < rows; r++)
            sums->size[first + i] += size * fabs(matrix[r * n + i]);
    for (int64_t i = 0; i < n; i++) {
        real sum = (real)to[i];
        for (int64_t r = 0; r < rows; r++)
            sum += (real)row[r] * (real)matrix[r * n + i];
        to[i] = KEPT(sum);
    }
}

/** to[r][i] += row[r] other[i], with elements of row of a size. */
static void add_outer(int64_t rows, int64_t n, const double *row, const double *other, const struct oracle_sum *to,
                      double size)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            to->sum[r * n + i] = (double)((real)to->sum[r * n + i] + (real)row[r] * (real)other[i]);
            if (to->size)
                to->size[r * n + i] += size * fabs(other[i]);
        }
}

void ORACLE(oracle_lstm_backward)(const struct oracle_lstm *l, int64_t batch, int64_t tokens, const double *x,
                                  const int64_t *lengths, const double *h, const double *c, const double *d_out,
                                  struct oracle_lstm_gradients *to)
{
    const int64_t n = l->hidden, width = l->directions * n;
    struct steps s = {new_array((tokens + 1) * n), new_array((tokens + 1) * n), new_array(tokens * 4 * n)};
    const double **rows = calloc((size_t)tokens + 1, sizeof *rows);
    if (!rows)
        abort();
    for (int64_t direction = 0; direction < l->directions; direction++)
        for (int64_t b = 0; b < batch; b++) {
            const int64_t length = lengths ? lengths[b] : tokens, part = (direction * batch + b) * n;
            double *d_h = to->h + part, *d_c = to->c + part;
            for (int64_t step = 0; step < length; step++)
                rows[step] = x + (b * tokens + (direction ? length - 1 - step : step)) * l->input;
            memcpy(s.h, h + part, (size_t)n * sizeof *s.h);
            memcpy(s.c, c + part, (size_t)n * sizeof *s.c);
            run_steps(l, &l->weights[direction], length, rows, &s);
            for (int64_t step = length - 1; step >= 0; step--) {
                const int64_t token = b * tokens + (direction ? length - 1 - step : step);
                double *gates = s.gates + step * 4 * n;
                for (int64_t i = 0; i < n; i++)
                    d_h[i] = KEPT((real)d_h[i] + (real)d_out[token * width + direction * n + i]);
                cell_backward(n, gates, s.c + step * n, s.c + (step + 1) * n, d_h, d_c);
                const double size = largest(4 * n, gates);
                memset(d_h, 0, (size_t)n * sizeof *d_h);
                add_turned(4 * n, n, gates, l->weights[direction].w_hh, &(struct oracle_sum){d_h, NULL}, 0, 0);
                add_turned(4 * n, l->input, gates, l->weights[direction].w_ih, &to->x, token * l->input, size);
                add_outer(4 * n, l->input, gates, rows[step], &to->w_ih[direction], size);
                add_outer(4 * n, n, gates, s.h + step * n, &to->w_hh[direction], size);
                add_outer(4 * n, 1, gates, &(double){1}, &to->bias[direction], size);
            }
        }
    free(s.h);
    free(s.c);
    free(s.gates);
    free(rows);
}

static double absolute_dot(int64_t n, const double *a, const double *b)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += fabs(a[i] * b[i]);
    return sum;
}

void ORACLE(oracle_pool_backward)(const struct oracle_alignment *a, int64_t batch, int64_t tokens, const double *x,
                                  const int64_t *lengths, const double *d_out, struct oracle_pool_gradients *to)
{
    const int64_t n = a->d_attention, channels = a->d_key;
    double *u = new_array(tokens * n), *p = new_array(tokens), *d_p = new_array(tokens), *d_u = new_array(n);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t length = lengths ? lengths[b] : tokens;
        const double *rows = x + b * tokens * channels, *d = d_out + b * channels;
        real top = -(real)INFINITY, sum = 0, mean = 0;
        double mean_size = 0;
        for (int64_t t = 0; t < length; t++) {
            for (int64_t i = 0; i < n; i++)
                u[t * n + i] =
                    (double)tanh((real)ORACLE(oracle_dot)(channels, a->w_k + i * channels, rows + t * channels) +
                                 (a->b ? (real)a->b[i] : 0));
            p[t] = ORACLE(oracle_dot)(n, a->v, u + t * n);
            d_p[t] = ORACLE(oracle_dot)(channels, d, rows + t * channels);
            top = (real)p[t] > top ? (real)p[t] : top;
        }
        for (int64_t t = 0; t < length; t++) {
            p[t] = (double)exp((real)p[t] - top);
            sum += (real)p[t];
        }
        for (int64_t t = 0; t < length; t++) {
            p[t] = (double)((real)p[t] / sum);
            mean += (real)p[t] * (real)d_p[t];
            mean_size += p[t] * absolute_dot(channels, d, rows + t * channels);
        }
        for (int64_t t = 0; t < length; t++) {
            const real d_s = (real)p[t] * ((real)d_p[t] - mean);
            const double d_s_size = p[t] * (absolute_dot(channels, d, rows + t * channels) + mean_size);
            const double size = d_s_size * largest(n, a->v);
            const int64_t at = (b * tokens + t) * channels;
            for (int64_t i = 0; i < n; i++) {
                const real tanh_of = (real)u[t * n + i];
                d_u[i] = (double)(d_s * (real)a->v[i] * (1 - tanh_of * tanh_of));
            }
            add_outer(1, channels, p + t, d, &(struct oracle_sum){to->x.sum + at, to->x.size ? to->x.size + at : NULL},
                      p[t]);
            add_turned(n, channels, d_u, a->w_k, &to->x, at, size);
            add_outer(n, channels, d_u, rows + t * channels, &to->w, size);
            add_outer(n, 1, d_u, &(double){1}, &to->bias, size);
            add_outer(1, n, &(double){(double)d_s}, u + t * n, &to->v, d_s_size);
        }
    }
    free(u);
    free(p);
    free(d_p);
    free(d_u);
}

/** One query and one key of an alignment, whose score has a gradient. */
struct pair {
    int64_t query, key; /* rows of all */
    real d_s;
    double d_s_size;
};

/** What a pair's score gives, where it is v·tanh(part + key). */
static void pair_additive(const struct oracle_alignment *a, const double *part, const double *q,
                          const double *projected, const struct pair *pair, struct oracle_align_gradients *to)
{
    const int64_t n = a->d_attention;
    double *d_z = new_array(n), *u = new_array(n);
    for (int64_t c = 0; c < n; c++) {
        const real t = tanh((real)part[pair->query * n + c] + (real)projected[pair->key * n + c]);
        u[c] = (double)t;
        d_z[c] = (double)(pair->d_s * (real)a->v[c] * (1 - t * t));
    }
    const double size = pair->d_s_size * largest(n, a->v), d_s = (double)pair->d_s;
    const struct oracle_sum projected_sum = {to->projected.sum + pair->key * n,
                                             to->projected.size ? to->projected.size + pair->key * n : NULL};
    add_outer(n, 1, d_z, &(double){1}, &projected_sum, size);
    add_turned(n, a->d_query, d_z, a->w_q, &to->q, pair->query * a->d_query, size);
    add_outer(n, a->d_query, d_z, q + pair->query * a->d_query, &to->w_q, size);
    add_outer(1, n, &d_s, u, &to->score_v, pair->d_s_size);
    free(d_z);
    free(u);
}

/** The same where the score is a product. */
static void pair_dot(const struct oracle_alignment *a, const double *q, const double *projected,
                     const struct pair *pair, struct oracle_align_gradients *to)
{
    const int64_t n = a->d_query, query = pair->query * n, key = pair->key * n;
    const double scale = a->score == ATTN_SCORE_SCALED_DOT && n ? 1 / sqrt((double)n) : 1;
    const double d_s = (double)(pair->d_s * (real)scale);
    const double size = pair->d_s_size * scale;
    const struct oracle_sum of_q = {to->q.sum + query, to->q.size ? to->q.size + query : NULL};
    const struct oracle_sum of_key = {to->projected.sum + key, to->projected.size ? to->projected.size + key : NULL};
    add_outer(1, n, &d_s, projected + key, &of_q, size);
    add_outer(1, n, &d_s, q + query, &of_key, size);
}

/** What the score of a pair is a sum of: one of this size that is off by u of it changes its weight by that part. */
static double score_size(const struct oracle_alignment *a, const double *part, const double *q, const double *projected,
                         const struct pair *pair)
{
    const int64_t n = a->d_attention;
    double size = 0;
    if (a->score != ATTN_SCORE_ADDITIVE) {
        size = absolute_dot(a->d_query, q + pair->query * a->d_query, projected + pair->key * a->d_query);
        return a->score == ATTN_SCORE_SCALED_DOT && a->d_query ? size / sqrt((double)a->d_query) : size;
    }
    for (int64_t c = 0; c < n; c++)
        size += fabs(a->v[c] * (double)tanh((real)part[pair->query * n + c] + (real)projected[pair->key * n + c]));
    return size;
}

void ORACLE(oracle_align_backward)(const struct oracle_alignment *a, int64_t batch, int64_t tq, int64_t tk, int64_t dv,
                                   const double *q, const double *projected, const double *v, const attn_params *params,
                                   const double *d_out, const double *d_size, struct oracle_align_gradients *to)
{
    const int is_additive = a->score == ATTN_SCORE_ADDITIVE;
    const real temperature = a->temperature != 0 ? (real)a->temperature : 1;
    double *out = new_array(batch * tq * dv), *weights = new_array(batch * tq * tk), *d_p = new_array(tk);
    double *part = new_array(batch * tq * a->d_attention);
    ORACLE(oracle_align)(a, batch, tq, tk, dv, q, projected, v, params, out, weights, NULL);
    if (is_additive) {
        const struct oracle_dense dense = {a->d_attention, a->d_query, a->w_q, NULL};
        ORACLE(oracle_linear)(&dense, batch * tq, q, ATTN_ACTIVATION_NONE, NULL, part);
    }
    for (int64_t row = 0; row < batch * tq; row++) {
        const int64_t b = row / tq, i = row % tq;
        const double *d = d_out + row * dv, *size = d_size ? d_size + row * dv : d, *p = weights + row * tk;
        real mean = 0;
        double mean_size = 0;
        for (int64_t j = 0; j < tk; j++) {
            if (!oracle_key_is_live(params, tq, tk, b, 0, i, j))
                continue;
            d_p[j] = ORACLE(oracle_dot)(dv, d, v + (b * tk + j) * dv);
            mean += (real)p[j] * (real)d_p[j];
            mean_size += p[j] * absolute_dot(dv, size, v + (b * tk + j) * dv);
        }
        for (int64_t j = 0; j < tk; j++) {
            const int64_t key = b * tk + j;
            if (!oracle_key_is_live(params, tq, tk, b, 0, i, j))
                continue;
            const struct oracle_sum of_v = {to->v.sum + key * dv, NULL};
            struct pair pair = {row, key, (real)p[j] * ((real)d_p[j] - mean) / temperature, 0};
            const double of_score = score_size(a, part, q, projected, &pair) / (double)temperature +
                                    fabs((double)oracle_bias(params, b, 0, i, j));
            const double p_size = p[j] * (1 + of_score);
            pair.d_s_size = p_size * (absolute_dot(dv, size, v + key * dv) + mean_size) / (double)temperature;
            add_outer(1, dv, p + j, d, &of_v, 0);
            for (int64_t c = 0; to->v.size && c < dv; c++)
                to->v.size[key * dv + c] += p_size * fabs(size[c]);
            if (is_additive)
                pair_additive(a, part, q, projected, &pair, to);
            else
                pair_dot(a, q, projected, &pair, to);
        }
    }
    free(out);
    free(weights);
    free(d_p);
    free(part);
}

/** Sum number i of a GRU's gates from one side. */
static real gru_sum(int64_t i, const double *w, int64_t n, const double *x, const double *bias)
{
    return (real)ORACLE(oracle_dot)(n, w + i * n, x) + (bias ? (real)bias[i] : 0);
}

/** Row r of rows of n of a sum. */
static struct oracle_sum row_of(const struct oracle_sum *sum, int64_t r, int64_t n)
{
    return (struct oracle_sum){sum->sum + r * n, sum->size ? sum->size + r * n : NULL};
}

/**
 * Gradients of a GRU's step for one sequence: adds to those of weights and the input, replaces that of the state.
 * Elements of x are sums of terms of x_size.
 */
static void gru_backward(const struct oracle_gru *g, const double *x, const double *x_size, const double *state,
                         const struct oracle_sum *d_state, const struct oracle_sum *d_input,
                         struct oracle_bahdanau_gradients *to)
{
    const int64_t n = g->hidden;
    double *d_x = new_array(3 * n), *d_h = new_array(3 * n), size = 0;
    for (int64_t i = 0; i < n; i++) {
        const real from_h = gru_sum(2 * n + i, g->w_hh, n, state, g->b_hh);
        const real r = sigmoid(gru_sum(i, g->w_ih, g->input, x, g->b_ih) + gru_sum(i, g->w_hh, n, state, g->b_hh));
        const real z =
            sigmoid(gru_sum(n + i, g->w_ih, g->input, x, g->b_ih) + gru_sum(n + i, g->w_hh, n, state, g->b_hh));
        const real fresh = tanh(gru_sum(2 * n + i, g->w_ih, g->input, x, g->b_ih) + r * from_h);
        const real d = (real)d_state->sum[i], d_fresh = d * (1 - z) * (1 - fresh * fresh);
        d_x[i] = d_h[i] = (double)(d_fresh * from_h * r * (1 - r));
        d_x[n + i] = d_h[n + i] = (double)(d * ((real)state[i] - fresh) * z * (1 - z));
        d_x[2 * n + i] = (double)d_fresh;
        d_h[2 * n + i] = (double)(d_fresh * r);
        d_state->sum[i] = (double)(d * z);
        if (d_state->size)
            d_state->size[i] += fabs((double)(d * z));
        /* What is left of a difference may be little: what counts are its terms. */
        const real of_fresh = fabs(d * (1 - z)), of_update = fabs(d * z * (1 - z)) * (fabs((real)state[i]) + 1);
        size = fmax(size, (double)fmax(of_update, of_fresh * fmax((real)1, fabs(from_h) * r * (1 - r))));
    }
    add_turned(3 * n, g->input, d_x, g->w_ih, d_input, 0, size);
    add_turned(3 * n, n, d_h, g->w_hh, d_state, 0, size);
    add_outer(3 * n, g->input, d_x, x, &(struct oracle_sum){to->w_ih.sum, NULL}, 0);
    for (int64_t i = 0; to->w_ih.size && i < 3 * n * g->input; i++)
        to->w_ih.size[i] += size * fabs(x_size[i % g->input]);
    add_outer(3 * n, n, d_h, state, &to->w_hh, size);
    add_outer(3 * n, 1, d_x, &(double){1}, &to->b_ih, size);
    add_outer(3 * n, 1, d_h, &(double){1}, &to->b_hh, size);
    free(d_x);
    free(d_h);
}

void ORACLE(oracle_bahdanau_backward)(const struct oracle_alignment *a, const struct oracle_gru *gru, int64_t batch,
                                      int64_t tokens, int64_t annotation, const double *word, const double *projected,
                                      const double *annotations, const int64_t *lengths, const double *state,
                                      const double *d_context, struct oracle_bahdanau_gradients *to)
{
    const int64_t embedding = gru->input - annotation, n = gru->hidden;
    attn_params params = attn_params_default();
    params.kv_len = lengths;
    double *context = new_array(batch * annotation), *weights = new_array(batch * tokens);
    double *d_all = new_array(batch * annotation), *size_all = new_array(batch * annotation);
    double *input = new_array(gru->input), *input_size = new_array(gru->input);
    double *absolute = new_array(batch * tokens * annotation), *context_size = new_array(batch * annotation);
    for (int64_t i = 0; i < batch * tokens * annotation; i++)
        absolute[i] = fabs(annotations[i]);
    ORACLE(oracle_align)
    (a, batch, 1, tokens, annotation, state, projected, absolute, &params, context_size, weights, NULL);
    ORACLE(oracle_align)
    (a, batch, 1, tokens, annotation, state, projected, annotations, &params, context, weights, NULL);
    for (int64_t b = 0; b < batch; b++) {
        const struct oracle_sum d_input = {new_array(gru->input), new_array(gru->input)};
        const struct oracle_sum d_state = row_of(&to->state, b, n), d_word = row_of(&to->word, b, embedding);
        memcpy(input, word + b * embedding, (size_t)embedding * sizeof *input);
        memcpy(input + embedding, context + b * annotation, (size_t)annotation * sizeof *input);
        memcpy(input_size, input, (size_t)embedding * sizeof *input);
        memcpy(input_size + embedding, context_size + b * annotation, (size_t)annotation * sizeof *input);
        gru_backward(gru, input, input_size, state + b * n, &d_state, &d_input, to);
        memcpy(d_word.sum, d_input.sum, (size_t)embedding * sizeof *input);
        if (d_word.size)
            memcpy(d_word.size, d_input.size, (size_t)embedding * sizeof *input);
        for (int64_t i = 0; i < annotation; i++) {
            const double more = d_context ? d_context[b * annotation + i] : 0;
            d_all[b * annotation + i] = (double)((real)d_input.sum[embedding + i] + (real)more);
            size_all[b * annotation + i] = d_input.size[embedding + i] + fabs(more);
        }
        free(d_input.sum);
        free(d_input.size);
    }
    to->attention.q = to->state;
    ORACLE(oracle_align_backward)
    (a, batch, 1, tokens, annotation, state, projected, annotations, &params, d_all, size_all, &to->attention);
    free(context);
    free(weights);
    free(input);
    free(input_size);
    free(absolute);
    free(context_size);
    free(d_all);
    free(size_all);
}
