/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding far beyond the positions of the training.
 *
 * A model that was trained on 4096 positions is stretched to 32768 by YaRN.
 * Its queries and keys are rotated in place, as the projection has laid them
 * out, and go through causal attention. Rotated products depend on distances
 * only: the same tokens at the beginning of the text and 30000 tokens later
 * must attend alike, which the program checks; and without a rotation they
 * must not, or nothing would have been shown.
 */
#include <attn/attn.h>
#include <attn/rope.h>

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 200, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64 };
enum { LATER = 30000, TRAINED = 4096, FACTOR = 8 };

/* Small reproducible numbers between -1 and 1. */
static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* A row of cosines and sines for each token, which all heads share. */
static attn_status make_table(float *table, int64_t first_position)
{
    int64_t positions[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        positions[i] = first_position + i;
    attn_rope_config config = attn_rope_config_default();
    config.pairs = HEAD_DIM / 2;
    config.scaling = ATTN_ROPE_YARN;
    config.factor = FACTOR;
    config.original_length = TRAINED;
    return attn_rope_table(&config, positions, TOKENS, table);
}

/* Attention of the tokens at first_position and behind; without a rotation where that is negative. */
static attn_status attend(int64_t first_position, float *out_data)
{
    static float q_data[TOKENS * HEADS * HEAD_DIM], k_data[TOKENS * KV_HEADS * HEAD_DIM];
    static float v_data[TOKENS * KV_HEADS * HEAD_DIM], table_data[TOKENS * HEAD_DIM];
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    const attn_tensor q = attn_bthd(q_data, 1, TOKENS, HEADS, HEAD_DIM);
    const attn_tensor k = attn_bthd(k_data, 1, TOKENS, KV_HEADS, HEAD_DIM);
    const attn_tensor v = attn_bthd(v_data, 1, TOKENS, KV_HEADS, HEAD_DIM);
    const attn_tensor out = attn_bthd(out_data, 1, TOKENS, HEADS, HEAD_DIM);
    const attn_tensor table = attn_bhtd(table_data, 1, 1, TOKENS, HEAD_DIM);

    attn_status status = ATTN_OK;
    if (first_position >= 0) {
        status = make_table(table_data, first_position);
        if (status == ATTN_OK)
            status = attn_rope(&q, &table, ATTN_ROPE_HALF_SPLIT, &q, 0);
        if (status == ATTN_OK)
            status = attn_rope(&k, &table, ATTN_ROPE_HALF_SPLIT, &k, 0);
    }
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    if (status == ATTN_OK)
        status = attn_forward(&q, &k, &v, &out, &params);
    if (status != ATTN_OK)
        fprintf(stderr, "rope: %s\n", attn_last_error());
    return status;
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double difference = (double)a[i] - (double)b[i];
        if (!(difference <= largest && -difference <= largest))
            largest = difference < 0 ? -difference : difference;
    }
    return largest;
}

int main(void)
{
    enum { ELEMENTS = TOKENS * HEADS * HEAD_DIM };
    static float early[ELEMENTS], late[ELEMENTS], unrotated[ELEMENTS];
    if (attend(0, early) != ATTN_OK || attend(LATER, late) != ATTN_OK || attend(-1, unrotated) != ATTN_OK)
        return EXIT_FAILURE;
    const double shift = largest_difference(early, late, ELEMENTS);
    const double rotation = largest_difference(early, unrotated, ELEMENTS);
    printf("%d tokens at position 0 and at position %d: outputs differ by %.1e\n", TOKENS, LATER, shift);
    printf("with and without the rotation: by %.1e\n", rotation);
    if (!(shift <= 1e-5)) {
        fprintf(stderr, "rope: outputs %d positions apart differ by %g; expected 1e-5 at most\n", LATER, shift);
        return EXIT_FAILURE;
    }
    if (!(rotation >= 1e-2)) {
        fprintf(stderr, "rope: the rotation changes outputs by %g; expected 1e-2 at least\n", rotation);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
