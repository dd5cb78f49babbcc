/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random projections for positive features. Of each block of dk rows normal
 * numbers are drawn, their directions made orthogonal one after the other (twice,
 * so that what rounding leaves is removed, too), and each gets the length of
 * another row of normal numbers, so that a row by itself is distributed as one of
 * independent numbers is (Choromanski et al. 2021, section 2.4 and appendix F).
 */
#include "attn/linear_attention.h"

#include "api/check_internal.h"
#include "api/error.h"
#include "driver/tensors.h"
#include "kernels/philox.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Streams of numbers of a head: directions, and lengths. */
enum { DIRECTIONS, LENGTHS };

/** Standard normal number number c of a row (Box and Muller 1958): two of each pair of random words. */
static double normal(const uint32_t key[2], int64_t head, int stream, int64_t row, int64_t c)
{
    const uint32_t counter[4] = {(uint32_t)(c / 4), (uint32_t)row, (uint32_t)head, (uint32_t)stream};
    uint32_t word[4];
    attn_philox(counter, key, word);
    const int pair = (int)(c % 4) / 2 * 2;
    const double radius = sqrt(-2.0 * log(((double)word[pair] + 0.5) * 0x1p-32));
    const double angle = 2.0 * 3.14159265358979323846 * ((double)word[pair + 1] + 0.5) * 0x1p-32;
    return radius * (c % 2 ? sin(angle) : cos(angle));
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

/** Row i of a block becomes a direction at right angles to those before. */
static void make_orthogonal(double *block, int64_t i, int64_t n)
{
    double *const row = block + i * n;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < i; j++) {
            const double along = dot(row, block + j * n, n);
            for (int64_t c = 0; c < n; c++)
                row[c] -= along * block[j * n + c];
        }
    const double length = sqrt(dot(row, row, n));
    for (int64_t c = 0; c < n; c++)
        row[c] /= length;
}

static void draw_head(const attn_tensor *t, const uint32_t key[2], int64_t head, double *block)
{
    const int64_t m = t->shape[2], n = t->shape[3];
    for (int64_t row = 0; row < m; row++) {
        const int64_t i = row % n;
        double square = 0.0;
        for (int64_t c = 0; c < n; c++) {
            const double x = normal(key, head, LENGTHS, row, c);
            square += x * x;
            block[i * n + c] = normal(key, head, DIRECTIONS, row, c);
        }
        make_orthogonal(block, i, n);
        float *const to = (float *)t->data + head * attn_step_of(t, 1) + row * attn_step_of(t, 2);
        for (int64_t c = 0; c < n; c++)
            to[c] = (float)(sqrt(square) * block[i * n + c]);
    }
}

attn_status attn_draw_features(const attn_tensor *projection, uint64_t seed, uint64_t offset)
{
    CHECK(attn_check_tensor("projection", projection, CHECK_ALL));
    CHECK(attn_check_f32("projection", projection->dtype));
    CHECK(attn_check_axis("projection", projection, 0, 1, "one projection for the batch"));
    CHECK(attn_check_contiguous("projection", projection));
    CHECK(attn_check_distinct("projection", projection));
    const int64_t n = projection->shape[3];
    if (n > 4096)
        return attn_fail(ATTN_UNSUPPORTED, "projection.shape[3] is %" PRId64 "; expected at most 4096 channels", n);
    if (!attn_has_elements(projection))
        return ATTN_OK;
    double *const block = malloc((size_t)(n * n) * sizeof *block);
    if (!block)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for %" PRId64 " x %" PRId64 " numbers of a block", n, n);
    uint32_t key[2];
    attn_dropout_key(seed, offset, key);
    for (int64_t head = 0; head < projection->shape[1]; head++)
        draw_head(projection, key, head, block);
    free(block);
    return ATTN_OK;
}
