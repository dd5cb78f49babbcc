/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embeddings beside reference ones. A cosine says how far a single embedding is
 * off; what embeddings are used for, finding what is most alike, depends on the
 * order of similarities, of which Spearman's rank correlation is a measure:
 * Pearson's correlation of the ranks, equal numbers sharing the mean of theirs.
 */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/array.h"
#include "io/error.h"

/* What each precision promises, docs/embed.md has it, too. */
static const struct {
    double cosine, correlation;
} least[] = {
    [PRECISION_F32] = {0.99999, 0.99999},
    [PRECISION_BF16] = {0.9995, 0.999},
    [PRECISION_INT8] = {0.995, 0.99},
};

double embedding_dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double cosine_of(const float *a, const float *b, int64_t width)
{
    return embedding_dot(a, b, width) / sqrt(embedding_dot(a, a, width) * embedding_dot(b, b, width));
}

/* A similarity, and which one it is. */
struct similarity {
    double cosine;
    int64_t pair;
};

static int by_cosine(const void *a, const void *b)
{
    const double x = ((const struct similarity *)a)->cosine, y = ((const struct similarity *)b)->cosine;
    return (x > y) - (x < y);
}

/* The ranks of the cosines of all pairs, taken off their mean; sorted is for scratch. */
static void rank_pairs(const float *embeddings, int64_t count, int64_t width, struct similarity *sorted, double *ranks)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < i; j++, pairs++)
            sorted[pairs] =
                (struct similarity){cosine_of(embeddings + i * width, embeddings + j * width, width), pairs};
    qsort(sorted, (size_t)pairs, sizeof *sorted, by_cosine);
    for (int64_t first = 0, end; first < pairs; first = end) {
        for (end = first + 1; end < pairs && sorted[end].cosine == sorted[first].cosine;)
            end++;
        for (int64_t i = first; i < end; i++)
            ranks[sorted[i].pair] = (double)(first + end - pairs) / 2;
    }
}

/* NaN where there is no order to compare: fewer than three sentences, or all pairs alike. */
static attn_status correlate(const float *a, const float *b, int64_t count, int64_t width, double *correlation)
{
    const int64_t pairs = count * (count - 1) / 2;
    struct similarity *sorted = calloc((size_t)pairs + 1, sizeof *sorted);
    double *ranks = calloc((size_t)pairs + 1, 2 * sizeof *ranks);
    if (sorted && ranks) {
        double *others = ranks + pairs, products = 0, squares = 0, other_squares = 0;
        rank_pairs(a, count, width, sorted, ranks);
        rank_pairs(b, count, width, sorted, others);
        for (int64_t i = 0; i < pairs; i++) {
            products += ranks[i] * others[i];
            squares += ranks[i] * ranks[i];
            other_squares += others[i] * others[i];
        }
        *correlation =
            pairs > 1 && other_squares > 0 ? (squares > 0 ? products / sqrt(squares * other_squares) : 0) : NAN;
    }
    free(sorted);
    free(ranks);
    return sorted && ranks ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld pairs", (long long)pairs);
}

static attn_status judge(const float *a, const float *b, int64_t count, int64_t width, enum precision precision)
{
    double lowest = 1, correlation = NAN;
    for (int64_t i = 0; i < count; i++) {
        const double cosine = cosine_of(a + i * width, b + i * width, width);
        if (!(cosine >= lowest)) { /* a NaN is the lowest, and stays it */
            lowest = cosine;
            if (isnan(cosine))
                break;
        }
    }
    if (!isnan(lowest))
        CHECK(correlate(a, b, count, width, &correlation));
    printf("lowest cosine of %lld sentences: %.9f\n", (long long)count, lowest);
    if (!isnan(correlation))
        printf("rank correlation of %lld similarities: %.9f\n", (long long)(count * (count - 1) / 2), correlation);
    if (!(lowest >= least[precision].cosine))
        return io_fail(ATTN_INVALID_FILE, "the lowest cosine is %.9f; expected %g or more", lowest,
                       least[precision].cosine);
    if (correlation < least[precision].correlation)
        return io_fail(ATTN_INVALID_FILE, "the rank correlation of similarities is %.9f; expected %g or more",
                       correlation, least[precision].correlation);
    return ATTN_OK;
}

attn_status compare_embeddings(const float *embeddings, int64_t count, int64_t width, const char *spec,
                               enum precision precision)
{
    struct array reference;
    CHECK(array_load(&reference, spec));
    attn_status status;
    if (reference.is.dtype != ARRAY_F32 || reference.is.ndim != 2 || reference.is.shape[0] != count ||
        reference.is.shape[1] != width) {
        char shape[ARRAY_SHAPE_TEXT];
        status = io_fail(ATTN_INVALID_FILE, "%s is %s of shape %s; expected float32 of shape (%lld, %lld)", spec,
                         array_dtype_name(reference.is.dtype), array_shape_text(&reference.is, shape), (long long)count,
                         (long long)width);
    } else {
        status = judge(embeddings, reference.data, count, width, precision);
    }
    array_free(&reference);
    return status;
}
