/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in one call.
 *
 * Eight query heads share two key/value heads (grouped-query attention) over a
 * short causal sequence, and the call also returns the log-sum-exp. Because a
 * causal query sees only keys up to its own position, the first output row of
 * every head must be the first value row itself, to the bit: its softmax has
 * one term, whose weight is 1. The program checks that, so it can serve as a
 * smoke test of an installed library too.
 *
 *     cc simple.c -o simple $(pkg-config --cflags --libs attn)
 */
#include <attn/attn.h>

#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, KV_HEADS = 2, TOKENS = 100, HEAD_DIM = 64 };

/* Small reproducible numbers between -1 and 1. */
static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

static int first_row_is_first_value(const float *out, const float *v)
{
    for (int head = 0; head < HEADS; head++) {
        const float *row = out + (size_t)head * TOKENS * HEAD_DIM;
        const float *value = v + (size_t)(head / (HEADS / KV_HEADS)) * TOKENS * HEAD_DIM;
        for (int c = 0; c < HEAD_DIM; c++) {
            if (row[c] != value[c]) {
                fprintf(stderr, "simple: head %d channel %d is %g; expected %g\n", head, c, (double)row[c],
                        (double)value[c]);
                return 0;
            }
        }
    }
    return 1;
}

int main(void)
{
    static float q_data[HEADS * TOKENS * HEAD_DIM], out_data[HEADS * TOKENS * HEAD_DIM];
    static float k_data[KV_HEADS * TOKENS * HEAD_DIM], v_data[KV_HEADS * TOKENS * HEAD_DIM];
    static float lse_data[HEADS * TOKENS];
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);

    attn_tensor q = attn_bhtd(q_data, 1, HEADS, TOKENS, HEAD_DIM);
    attn_tensor k = attn_bhtd(k_data, 1, KV_HEADS, TOKENS, HEAD_DIM);
    attn_tensor v = attn_bhtd(v_data, 1, KV_HEADS, TOKENS, HEAD_DIM);
    attn_tensor out = attn_bhtd(out_data, 1, HEADS, TOKENS, HEAD_DIM);
    attn_tensor lse = attn_bhtd(lse_data, 1, HEADS, TOKENS, 1);

    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.lse = &lse;
    if (attn_forward(&q, &k, &v, &out, &params) != ATTN_OK) {
        fprintf(stderr, "simple: %s\n", attn_last_error());
        return EXIT_FAILURE;
    }
    if (!first_row_is_first_value(out_data, v_data)) {
        return EXIT_FAILURE;
    }
    printf("libattn %s (%s): %d heads over %d key/value heads, %d tokens, head size %d\n", attn_version_string(),
           attn_isa_active(), HEADS, KV_HEADS, TOKENS, HEAD_DIM);
    printf("last row of head 0: out %.6f %.6f ..., log-sum-exp %.6f\n", (double)out_data[(TOKENS - 1) * HEAD_DIM],
           (double)out_data[(TOKENS - 1) * HEAD_DIM + 1], (double)lse_data[TOKENS - 1]);
    return EXIT_SUCCESS;
}
