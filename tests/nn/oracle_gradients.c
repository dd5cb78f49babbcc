/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of an LSTM layer and of attention pooling, by their formulas, one sequence after the other. */
#include "real.h"

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
