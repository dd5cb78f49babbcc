/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block-sparse attention by a BigBird pattern.
 *
 * The pattern goes into params.block_mask, and only the blocks that it lists
 * are computed: time and traffic follow their number. The program compares the
 * result with a dense call that has the same blocks in a boolean mask of every
 * query and key, which is what one would write without patterns. Each of the
 * four heads has random blocks of its own.
 */
#include <attn/attn.h>
#include <attn/patterns.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 4, TOKENS = 1000, DIM = 64, BLOCK = 32, COUNT = HEADS * TOKENS * DIM };

static float q_data[COUNT], k_data[COUNT], v_data[COUNT], out_data[COUNT], expected[COUNT];
static unsigned char dense[HEADS][TOKENS][TOKENS];

static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* Writes every listed block into the boolean mask. */
static void fill_mask(const attn_block_mask *blocks)
{
    for (int head = 0; head < HEADS; head++) {
        for (int query = 0; query < TOKENS; query++) {
            const int64_t row = head * blocks->rows + query / BLOCK;
            for (int64_t i = blocks->offsets[row]; i < blocks->offsets[row + 1]; i++) {
                const int first = blocks->columns[i] * BLOCK;
                for (int key = first; key < first + BLOCK && key < TOKENS; key++)
                    dense[head][query][key] = 1;
            }
        }
    }
}

static int compare(void)
{
    double largest = 0;
    for (int i = 0; i < COUNT; i++) {
        const double difference = fabs((double)out_data[i] - (double)expected[i]);
        if (!(difference <= largest)) /* also when it is NaN */
            largest = difference;
    }
    printf("it differs from the dense call with a boolean mask by %.1e\n", largest);
    if (largest <= 2e-6)
        return EXIT_SUCCESS;
    fprintf(stderr, "block_sparse: that is more than rounding\n");
    return EXIT_FAILURE;
}

int main(void)
{
    fill(q_data, COUNT, 1);
    fill(k_data, COUNT, 2);
    fill(v_data, COUNT, 3);
    attn_tensor q = attn_bhtd(q_data, 1, HEADS, TOKENS, DIM), out = attn_bhtd(out_data, 1, HEADS, TOKENS, DIM);
    attn_tensor k = attn_bhtd(k_data, 1, HEADS, TOKENS, DIM), v = attn_bhtd(v_data, 1, HEADS, TOKENS, DIM);
    attn_tensor reference = attn_bhtd(expected, 1, HEADS, TOKENS, DIM);
    attn_tensor mask = attn_bhtd(dense, 1, HEADS, TOKENS, TOKENS);
    mask.dtype = ATTN_BOOL;

    attn_pattern *pattern;
    const attn_bigbird options = {.window = 1, .global = 1, .random = 3, .seed = 1, .heads = HEADS, .causal = 1};
    if (attn_pattern_bigbird(&pattern, TOKENS, TOKENS, BLOCK, &options) != ATTN_OK) {
        fprintf(stderr, "block_sparse: %s\n", attn_last_error());
        return EXIT_FAILURE;
    }
    printf("%.1f %% of the blocks are listed\n", 100 * attn_pattern_density(pattern));
    fill_mask(attn_pattern_block_mask(pattern));

    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT; /* within the blocks on the diagonal */
    params.block_mask = attn_pattern_block_mask(pattern);
    attn_status status = attn_forward(&q, &k, &v, &out, &params);
    if (status == ATTN_OK) {
        params.block_mask = NULL;
        params.mask = &mask;
        status = attn_forward(&q, &k, &v, &reference, &params);
    }
    if (status != ATTN_OK)
        fprintf(stderr, "block_sparse: %s\n", attn_last_error());
    attn_pattern_destroy(pattern);
    return status == ATTN_OK ? compare() : EXIT_FAILURE;
}
