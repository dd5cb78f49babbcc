/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results over disjoint sets of keys, joined one after the other:
 *
 *     m = max(a, b),  w = e^(a − m), u = e^(b − m),  out = (w out + u part) / (w + u),  a = m + ln(w + u)
 *
 * with a and b the log-sum-exps of out and part. attn_merge() does it for parts of any memory, of which those whose
 * log-sum-exp is -inf count for nothing. Here all of them have been computed, so that what is not finite in one whose
 * scores are all -inf, 0 times infinity or NaN, stays as it is in a single call.
 */
#include "mpi/join.h"

#include "driver/ranges.h"
#include "driver/threads.h"

#include <math.h>

struct mpi_sums mpi_sums_of(const struct mpi_sums *sums, int64_t first, int64_t count)
{
    struct mpi_sums some = *sums;
    if (first)
        some.out.data = (float *)sums->out.data + first * sums->out.stride[2];
    some.out.shape[2] = count;
    some.lse += first;
    return some;
}

/** Row number n of (B, H, T). */
struct row {
    int64_t b, h, t;
};

static struct row row_of(const attn_tensor *t, int64_t n)
{
    return (struct row){n / t->shape[2] / t->shape[1], n / t->shape[2] % t->shape[1], n % t->shape[2]};
}

static int64_t rows_of(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2];
}

static float *at(const attn_tensor *t, struct row row)
{
    return (float *)t->data + row.b * t->stride[0] + row.h * t->stride[1] + row.t * t->stride[2];
}

static double *lse_at(const struct mpi_sums *sums, struct row row)
{
    return sums->lse + row.b * sums->lse_stride[0] + row.h * sums->lse_stride[1] + row.t;
}

void mpi_begin_sums(const struct mpi_sums *sums, const attn_tensor *part_lse)
{
    for (int64_t n = 0; n < rows_of(&sums->out); n++) {
        const struct row row = row_of(&sums->out, n);
        *lse_at(sums, row) = (double)*at(part_lse, row);
    }
}

struct joint {
    const struct mpi_sums *sums;
    const attn_tensor *part, *part_lse;
};

static void join_rows(const void *context, int64_t first, int64_t end)
{
    const struct joint *joint = context;
    const struct mpi_sums *sums = joint->sums;
    for (int64_t n = first; n < end; n++) {
        const struct row row = row_of(&sums->out, n);
        double *lse = lse_at(sums, row);
        const double a = *lse, b = (double)*at(joint->part_lse, row), most = a > b || isnan(a) ? a : b;
        /* Without a key in either there is nothing to scale; what is not finite stays. */
        const double w = most == -INFINITY ? 0 : exp(a - most), u = most == -INFINITY ? 0 : exp(b - most);
        const double total = w + u > 0 ? w + u : isnan(w + u) ? NAN : 1;
        const float keep = (float)(w / total), take = (float)(u / total);
        float *x = at(&sums->out, row);
        const float *y = at(joint->part, row);
        for (int64_t c = 0; c < sums->out.shape[3]; c++)
            x[c] = keep * x[c] + take * y[c];
        *lse = most == -INFINITY ? most : most + log(w + u);
    }
}

void mpi_join(const struct mpi_sums *sums, const attn_tensor *part, const attn_tensor *part_lse, int num_threads)
{
    const struct joint joint = {sums, part, part_lse};
    const int64_t rows = rows_of(&sums->out);
    const int most = num_threads > 0 ? num_threads : attn_default_num_threads();
    attn_run_ranges(rows, attn_threads_worth((double)(rows * sums->out.shape[3]), ATTN_WORTH_COPY, most), join_rows,
                    &joint);
}

void mpi_write_lse(const struct mpi_sums *sums, const attn_tensor *lse)
{
    for (int64_t n = 0; n < rows_of(&sums->out); n++) {
        const struct row row = row_of(&sums->out, n);
        *at(lse, row) = (float)*lse_at(sums, row);
    }
}
