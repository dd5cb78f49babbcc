/* SPDX-License-Identifier: Apache-2.0 */
/* Errors in units, their largest and their root mean square, against those of the naive computation. */
#include "judge.h"

#include "cmocka_all.h"
#include "dtype.h"
#include "guard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int oracle_backwards;
attn_dtype oracle_type = ATTN_F32;

double oracle_keep(double x)
{
    return oracle_type == ATTN_F32 ? x : (double)dtype_round(oracle_type, (float)x);
}

const struct oracle *oracle_take(int n)
{
    oracle_backwards = n == 2;
    return n == 0 ? &oracle_f64 : &oracle_f32;
}

struct errors {
    double largest, sum_of_squares;
    int64_t at; /**< of the largest */
};

static void add_error(struct errors *e, int64_t at, double error)
{
    if (!isfinite(error))
        error = 1e30;
    e->sum_of_squares += error * error;
    if (error > e->largest) {
        e->largest = error;
        e->at = at;
    }
}

static double unit_of_tensor(const double *exact, int64_t n)
{
    double squares = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(exact[i])) {
            squares += exact[i] * exact[i];
            finite++;
        }
    return finite ? sqrt(squares / (double)finite) / 2 : 0;
}

static double size_of_row(const double *exact, int64_t channels, double least)
{
    for (int64_t c = 0; c < channels; c++)
        if (isfinite(exact[c]))
            least = fmax(least, fabs(exact[c]));
    return least;
}

/** Whether a result that is not finite is the right one. */
static int same_special(double exact, double got)
{
    return isnan(exact) ? isnan(got) : exact == got;
}

void judge(enum nn_kind kind, const char *what, const attn_tensor *t, double *const of[ORACLES], const double *size)
{
    const int64_t *n = t->shape, channels = n[3], rows = n[0] * n[1] * n[2], all = rows * channels;
    const double least = unit_of_tensor(of[0], all);
    const float smallest = oracle_type == ATTN_F16 ? 0x1p-24f : 0x1p-149f;
    const double u = oracle_type == ATTN_F32 ? 0x1p-24 : oracle_type == ATTN_BF16 ? 0x1p-8 : 0x1p-11;
    struct errors mine = {0}, naive[ORACLES] = {{0}};
    int64_t finite = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double row_size = size ? 0 : size_of_row(of[0] + r * channels, channels, least);
        for (int64_t c = 0; c < channels; c++) {
            const int64_t at = r * channels + c;
            const double got = (double)tensor_get(t, r / (n[1] * n[2]), r / n[2] % n[1], r % n[2], c);
            if (!isfinite(of[0][at])) {
                if (!same_special(of[0][at], got))
                    fail_msg("%s: %s of row %lld, channel %lld is %.9g; expected %g", guard_case_line, what,
                             (long long)r, (long long)c, got, of[0][at]);
                continue;
            }
            const double unit = u * (size ? size[at] : row_size) + (double)smallest;
            finite++;
            add_error(&mine, at, fabs(got - of[0][at]) / unit);
            for (int k = 1; k < ORACLES; k++)
                if (isfinite(of[k][at]))
                    add_error(&naive[k], at, fabs(of[k][at] - of[0][at]) / unit);
        }
    }
    if (finite == 0)
        return;
    const double floor = nn_tolerances[kind].floor;
    const double most = TOLERANCE_FACTOR * fmax(naive[1].largest, naive[2].largest) + floor;
    const double most_mean =
        TOLERANCE_FACTOR * sqrt(fmax(naive[1].sum_of_squares, naive[2].sum_of_squares) / (double)finite) + floor / 2;
    const double mean = sqrt(mine.sum_of_squares / (double)finite);
    if (getenv("NN_SHOW_ERRORS"))
        printf("%-10s %-24s largest %9.3g of %9.3g, mean %9.3g of %9.3g\n", nn_tolerances[kind].name, what,
               mine.largest, most, mean, most_mean);
    if (mine.largest <= most && (finite == 1 || mean <= most_mean))
        return;
    const int64_t r = mine.at / channels, c = mine.at % channels;
    fail_msg("%s: %s is off by up to %.4g units where %.4g are allowed, by %.4g in the mean where %.4g are; row %lld "
             "channel %lld is %.9g, expected %.17g",
             guard_case_line, what, mine.largest, most, mean, most_mean, (long long)r, (long long)c,
             (double)tensor_get(t, r / (n[1] * n[2]), r / n[2] % n[1], r % n[2], c), of[0][mine.at]);
}
