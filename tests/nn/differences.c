/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against differences in double, of the fourth order. */
#include "differences.h"

double root_mean_square(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

static double slope_at(double *value, loss_fn *loss, void *context)
{
    const double was = *value, step = 1e-4;
    double at[4];
    for (int p = 0; p < 4; p++) {
        *value = was + step * (p < 2 ? p - 2 : p - 1);
        at[p] = loss(context);
    }
    *value = was;
    return (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * step);
}

void assert_differences(struct memory *m, const struct varied *all, size_t count, loss_fn *loss, void *context,
                        struct closeness tolerance)
{
    for (size_t a = 0; a < count; a++) {
        const attn_tensor *g = all[a].gradient;
        if (!all[a].values || !g->data)
            continue;
        const int64_t n = g->shape[0] * g->shape[2] * g->shape[3];
        if (n == 0)
            continue;
        const double *got = read_all(m, g);
        const double scale = fmax(root_mean_square(got, n), tolerance.least) + 1e-3;
        for (int some = 0; some < 6; some++) {
            const int64_t i = rng_range(&m->rng, 0, n - 1);
            const double slope = slope_at(&all[a].values[i], loss, context);
            if (!(fabs(got[i] - slope) <= tolerance.rounding * (fabs(slope) + 3 * scale)))
                fail_msg("%s: the gradient of %s[%d] is %.9g; expected %.9g, and %.3g is usual", guard_case_line,
                         all[a].name, (int)i, got[i], slope, scale);
        }
    }
}

attn_tensor place_sums(struct memory *m, int64_t rows, int64_t columns)
{
    return place_rows_of(m, ATTN_F32, 1, rows, columns);
}

struct oracle_dense random_dense(struct memory *m, int64_t out, int64_t in, attn_tensor *w, attn_tensor *b,
                                 attn_tensor *d_w, attn_tensor *d_b)
{
    struct oracle_dense dense = {out, in, NULL, NULL};
    *w = random_matrix(m, random_dtype(m), out, in, 1 / sqrt((double)in));
    *d_w = place_sums(m, out, in);
    *d_b = place_sums(m, 1, out);
    dense.w = read_all(m, w);
    if (rng_percent(&m->rng, 70)) {
        *b = random_vector(m, random_dtype(m), out, 0.3, 0);
        dense.b = read_all(m, b);
    }
    return dense;
}
