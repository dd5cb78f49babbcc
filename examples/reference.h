/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What several examples compare with: attention as a plain loop over queries
 * and keys, in double.
 *
 * What an option of the library does to a score the example says in a function
 * of its own, so the two sides have nothing in common but q, k and v.
 */
#ifndef EXAMPLES_REFERENCE_H
#define EXAMPLES_REFERENCE_H

#include <attn/attn.h>

#include <math.h>
#include <stdio.h>

#define REFERENCE_MAX_KEYS 512

/* A score in natural units from scale * q·k; -INFINITY hides the key. */
typedef double reference_score(const void *user, int head, int query, int key, double scaled);

/* One batch element; tensors are [head][token][channel]. */
struct reference {
    int heads, kv_heads, queries, keys, head_dim;
    const float *q, *k, *v;
    double scale;           /* 0: 1/sqrt(head_dim) */
    reference_score *score; /* NULL: the scaled product itself */
    const void *user;       /* handed to score */
    const float *sinks;     /* NULL, or one logit a head */
};

/* Small reproducible numbers between -1 and 1. */
static inline void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* Whether a call went well; says why if not. */
static inline int succeeded(const char *what, attn_status status)
{
    if (status != ATTN_OK)
        fprintf(stderr, "%s: %s\n", what, attn_last_error());
    return status == ATTN_OK;
}

/*
 * Roundings in f32 move a score of size s by some units of 2^-24·s, and an output, a mean of values below 1, by as
 * much. The comparison allows 16 of them.
 */
static inline double allowed(double largest_score)
{
    return 16 * ldexp(1, -24) * fmax(1, largest_score);
}

/* Whether two results are alike; a NaN never is. */
static inline int alike(const char *what, const float *x, const float *expected, size_t n, double limit)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double difference = fabs((double)x[i] - (double)expected[i]);
        if (!(difference <= limit)) {
            fprintf(stderr, "%s: element %zu is %g; expected %g\n", what, i, (double)x[i], (double)expected[i]);
            return 0;
        }
        largest = fmax(largest, difference);
    }
    printf("%s: differences up to %.1e\n", what, largest);
    return 1;
}

/* q·k of a query and a key, where query heads share key heads in groups. */
static inline double reference_dot(const struct reference *r, int head, int query, int key)
{
    const int group = head / (r->heads / r->kv_heads);
    const float *q = r->q + ((size_t)head * (size_t)r->queries + (size_t)query) * (size_t)r->head_dim;
    const float *k = r->k + ((size_t)group * (size_t)r->keys + (size_t)key) * (size_t)r->head_dim;
    double dot = 0;
    for (int c = 0; c < r->head_dim; c++)
        dot += (double)q[c] * (double)k[c];
    return dot;
}

/* One query: its scores become weights; returns the log-sum-exp, and the largest size of a score in *size. */
static inline double reference_weights(const struct reference *r, int head, int query, double *weights, double *size)
{
    const double scale = r->scale != 0 ? r->scale : 1 / sqrt(r->head_dim);
    const double sink = r->sinks != NULL ? (double)r->sinks[head] : -INFINITY;
    double top = sink, sum = 0;
    *size = 0;
    for (int j = 0; j < r->keys; j++) {
        const double scaled = scale * reference_dot(r, head, query, j);
        weights[j] = r->score != NULL ? r->score(r->user, head, query, j, scaled) : scaled;
        top = fmax(top, weights[j]);
        *size = fmax(*size, fmax(fabs(scaled), isinf(weights[j]) ? 0 : fabs(weights[j])));
    }
    if (isinf(top)) { /* no key is seen */
        for (int j = 0; j < r->keys; j++)
            weights[j] = 0;
        return -INFINITY;
    }
    for (int j = 0; j < r->keys; j++)
        sum += exp(weights[j] - top);
    sum += exp(sink - top);
    for (int j = 0; j < r->keys; j++)
        weights[j] = exp(weights[j] - top) / sum;
    return top + log(sum);
}

/* Compares out and, unless it is NULL, lse of a call with the plain loop. Returns 0 after a sentence if they differ. */
static inline int agrees(const char *what, const struct reference *r, const float *out, const float *lse)
{
    static double weights[REFERENCE_MAX_KEYS];
    double largest = 0;
    for (int row = 0; row < r->heads * r->queries; row++) {
        const int head = row / r->queries, query = row % r->queries, group = head / (r->heads / r->kv_heads);
        double size;
        const double expected_lse = reference_weights(r, head, query, weights, &size), limit = allowed(size);
        if (lse != NULL && !(fabs((double)lse[row] - expected_lse) <= limit)) {
            fprintf(stderr, "%s: log-sum-exp of head %d, query %d is %.9g; expected %.9g\n", what, head, query,
                    (double)lse[row], expected_lse);
            return 0;
        }
        for (int c = 0; c < r->head_dim; c++) {
            double expected = 0;
            for (int j = 0; j < r->keys; j++)
                expected +=
                    weights[j] *
                    (double)r->v[((size_t)group * (size_t)r->keys + (size_t)j) * (size_t)r->head_dim + (size_t)c];
            const double got = (double)out[(size_t)row * (size_t)r->head_dim + (size_t)c];
            if (!(fabs(got - expected) <= limit)) {
                fprintf(stderr, "%s: head %d, query %d, channel %d is %.9g; expected %.9g\n", what, head, query, c, got,
                        expected);
                return 0;
            }
            largest = fmax(largest, fabs(got - expected));
        }
    }
    printf("%s: differences from the plain loop up to %.1e\n", what, largest);
    return 1;
}

#endif
