/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sliding windows: a text that is decoded token by token, and a document with
 * global tokens.
 *
 * A model with a window looks at the last tokens only, so the cost of a step
 * does not grow with the text. If it also keeps seeing the very first tokens,
 * it stays sane on endless texts (Xiao et al. 2023, "Efficient streaming
 * language models with attention sinks"). Encoders for long documents have a
 * window to both sides and some global tokens, which see and are seen by all
 * (Beltagy et al. 2020, "Longformer").
 *
 * The program writes the same rules into a boolean mask and compares. Decoding
 * with a growing key/value cache must give the bits of the whole text at once.
 */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, TOKENS = 300, HEAD_DIM = 32 };
enum { LEFT = 31, FIRST = 4, REACH = 10 };

static const int64_t questions[] = {0, 1, 150};
enum { NUM_GLOBAL = sizeof questions / sizeof *questions };

static float q_data[HEADS * TOKENS * HEAD_DIM], out_data[HEADS * TOKENS * HEAD_DIM];
static float k_data[KV_HEADS * TOKENS * HEAD_DIM], v_data[KV_HEADS * TOKENS * HEAD_DIM];
static float expected[HEADS * TOKENS * HEAD_DIM], decoded[HEADS * TOKENS * HEAD_DIM];
static unsigned char mask_data[TOKENS][TOKENS]; /* [query][key] */

static int is_global(int64_t token)
{
    for (int i = 0; i < NUM_GLOBAL; i++)
        if (questions[i] == token)
            return 1;
    return 0;
}

/* Attention over the whole text, with the mask alone. */
static int with_mask(float *out)
{
    attn_tensor q = attn_bhtd(q_data, 1, HEADS, TOKENS, HEAD_DIM), k = attn_bhtd(k_data, 1, KV_HEADS, TOKENS, HEAD_DIM);
    attn_tensor v = attn_bhtd(v_data, 1, KV_HEADS, TOKENS, HEAD_DIM), o = attn_bhtd(out, 1, HEADS, TOKENS, HEAD_DIM);
    attn_tensor mask = {mask_data, ATTN_BOOL, {1, 1, TOKENS, TOKENS}, {0, 0, TOKENS, 1}};
    attn_params params = attn_params_default();
    params.mask = &mask;
    return succeeded("mask", attn_forward(&q, &k, &v, &o, &params));
}

/* Attention of num queries from first on, over the tokens up to the last of them: the cache as it is by then. */
static int with_window(int first, int num, attn_causal causal, const attn_window *window, float *out)
{
    const int64_t tokens = first + num, head = TOKENS * HEAD_DIM;
    attn_tensor q = {q_data + first * HEAD_DIM, ATTN_F32, {1, HEADS, num, HEAD_DIM}, {0, head, HEAD_DIM, 1}};
    attn_tensor o = {out + first * HEAD_DIM, ATTN_F32, {1, HEADS, num, HEAD_DIM}, {0, head, HEAD_DIM, 1}};
    attn_tensor k = {k_data, ATTN_F32, {1, KV_HEADS, tokens, HEAD_DIM}, {0, head, HEAD_DIM, 1}}, v = k;
    v.data = v_data;
    attn_params params = attn_params_default();
    params.causal = causal;
    params.window = window;
    return succeeded("window", attn_forward(&q, &k, &v, &o, &params));
}

static int streaming(void)
{
    const attn_window window = {.left = LEFT, .right = 0, .first_tokens = FIRST};
    for (int i = 0; i < TOKENS; i++)
        for (int j = 0; j < TOKENS; j++)
            mask_data[i][j] = j <= i && (j >= i - LEFT || j < FIRST);
    /* The prompt in one piece, then one token after the other: the last query is the last token of the cache. */
    if (!with_mask(expected) || !with_window(0, TOKENS, ATTN_CAUSAL_BOTTOM_RIGHT, &window, out_data) ||
        !with_window(0, 200, ATTN_CAUSAL_BOTTOM_RIGHT, &window, decoded))
        return 0;
    for (int token = 200; token < TOKENS; token++)
        if (!with_window(token, 1, ATTN_CAUSAL_BOTTOM_RIGHT, &window, decoded))
            return 0;
    if (memcmp(decoded, out_data, sizeof out_data) != 0) {
        fprintf(stderr, "streaming: decoding token by token gives other bits than the whole text\n");
        return 0;
    }
    return alike("streaming, against a mask", out_data, expected, sizeof out_data / sizeof *out_data, allowed(4));
}

static int document(void)
{
    const attn_window window = {.left = REACH, .right = REACH, .global = questions, .num_global = NUM_GLOBAL};
    for (int i = 0; i < TOKENS; i++)
        for (int j = 0; j < TOKENS; j++)
            mask_data[i][j] = abs(i - j) <= REACH || is_global(i) || is_global(j);
    return with_mask(expected) && with_window(0, TOKENS, ATTN_CAUSAL_NONE, &window, out_data) &&
           alike("global tokens, against a mask", out_data, expected, sizeof out_data / sizeof *out_data, allowed(4));
}

int main(void)
{
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    return streaming() && document() ? EXIT_SUCCESS : EXIT_FAILURE;
}
