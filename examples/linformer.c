/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linformer beside exact attention: errors and times for growing ranks.
 *
 * Queries, keys and values change slowly along the sequence, as those of a trained
 * model may: each channel is a sum of a few slow waves. The projection of rank r
 * takes means of T / r neighbours, one of those that the paper names; a model would
 * learn a better one. One matrix serves all heads, and the keys as well as the
 * values. The smaller r, the less there is to compute and the larger the error; at
 * r = T the matrix is the identity, and the result is that of exact attention.
 */
#include "reference.h"

#include <attn/nn.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 4, TOKENS = 1024, DIM = 32, COUNT = HEADS * TOKENS * DIM, WAVES = 4 };

static float q_data[COUNT], k_data[COUNT], v_data[COUNT], exact[COUNT], out_data[COUNT];
static float means[TOKENS * TOKENS]; /* of any rank */

/* Each channel of each head: waves with up to 8 periods in the sequence. */
static void fill_waves(float *x, unsigned state)
{
    float wave[2 * WAVES];
    for (int series = 0; series < HEADS * DIM; series++) {
        fill(wave, 2 * WAVES, state + (unsigned)series);
        for (int t = 0; t < TOKENS; t++) {
            double sum = 0;
            for (int w = 0; w < WAVES; w++)
                sum += (double)wave[2 * w] * sin(6.2832 * ((2 * w + 2) * (double)t / TOKENS + (double)wave[2 * w + 1]));
            x[(series / DIM * TOKENS + t) * DIM + series % DIM] = (float)sum;
        }
    }
}

/* Row i has 1 / n for each of its n neighbours. */
static void fill_means(int rank)
{
    const int n = TOKENS / rank;
    memset(means, 0, sizeof means);
    for (int t = 0; t < TOKENS; t++)
        means[t / n * TOKENS + t] = 1 / (float)n;
}

/* The size of the difference as a part of that of exact attention. */
static double error_of(const float *x)
{
    double squares = 0, all = 0;
    for (int i = 0; i < COUNT; i++) {
        const double difference = (double)x[i] - (double)exact[i];
        squares += difference * difference;
        all += (double)exact[i] * (double)exact[i];
    }
    return sqrt(squares / all);
}

static double milliseconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int main(void)
{
    fill_waves(q_data, 1);
    fill_waves(k_data, 1001);
    fill_waves(v_data, 2001);
    const attn_tensor q = attn_bhtd(q_data, 1, HEADS, TOKENS, DIM), k = attn_bhtd(k_data, 1, HEADS, TOKENS, DIM);
    const attn_tensor v = attn_bhtd(v_data, 1, HEADS, TOKENS, DIM), out = attn_bhtd(out_data, 1, HEADS, TOKENS, DIM);
    const attn_tensor whole = attn_bhtd(exact, 1, HEADS, TOKENS, DIM);
    double start = milliseconds();
    if (!succeeded("attn_forward", attn_forward(&q, &k, &v, &whole, NULL)))
        return EXIT_FAILURE;
    printf("exact attention to %d keys: %.2f ms\n", TOKENS, milliseconds() - start);

    double before = INFINITY;
    for (int rank = 16; rank <= TOKENS; rank *= 4) {
        fill_means(rank);
        const attn_tensor e = attn_matrix(means, rank, TOKENS);
        start = milliseconds();
        if (!succeeded("attn_linformer_forward", attn_linformer_forward(&q, &k, &v, &e, NULL, &out, NULL, NULL, 0)))
            return EXIT_FAILURE;
        const double time = milliseconds() - start, error = error_of(out_data);
        printf("rank %4d: %.2f ms, error %.1e\n", rank, time, error);
        if (!(error < before)) {
            fprintf(stderr, "rank %d: expected an error below %g, that of the rank before\n", rank, before);
            return EXIT_FAILURE;
        }
        before = error;
    }
    if (before <= 1e-6)
        return EXIT_SUCCESS;
    fprintf(stderr, "expected the identity to give exact attention\n");
    return EXIT_FAILURE;
}
