/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of Gated DeltaNet as a language model runs it: a prompt in one call, then
 * token by token, with the state carried on in place; and the same tokens in one call.
 *
 * 16 heads of queries and keys have 32 states, two for each head of keys. Keys have the length 1, a token forgets
 * some of what is there (decay) and corrects some of what its key says (beta). Prints how far
 * the two ways are from each other, and what a state takes; checks both.
 */
#include <attn/linear_attention.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_HEADS = 16, STATES = 32, D = 64, PROMPT = 300, NEW = 20, T = PROMPT + NEW };

static float q_data[T * KEY_HEADS * D], k_data[T * KEY_HEADS * D], v_data[T * STATES * D];
static float decay_data[T * STATES], beta_data[T * STATES];
static float state_data[STATES * D * D], whole_state_data[STATES * D * D];
static float out_data[T * STATES * D], whole_data[T * STATES * D];

static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* Rows of the length 1. */
static void normalise(float *x, size_t rows)
{
    for (size_t r = 0; r < rows; r++, x += D) {
        float square = 0.0f;
        for (int c = 0; c < D; c++)
            square += x[c] * x[c];
        for (int c = 0; c < D; c++)
            x[c] /= sqrtf(square);
    }
}

/* Tokens first..first+n-1 of a tensor as a projection leaves it: (1, heads, n, channels). */
static attn_tensor tokens(float *data, int64_t first, int64_t n, int64_t heads, int64_t channels)
{
    return attn_bthd(data + first * heads * channels, 1, n, heads, channels);
}

static int run(int64_t first, int64_t n, attn_tensor *state, float *to)
{
    const attn_tensor q = tokens(q_data, first, n, KEY_HEADS, D), k = tokens(k_data, first, n, KEY_HEADS, D);
    const attn_tensor v = tokens(v_data, first, n, STATES, D), out = tokens(to, first, n, STATES, D);
    const attn_tensor decay = tokens(decay_data, first, n, STATES, 1), beta = tokens(beta_data, first, n, STATES, 1);
    attn_linear_attention_params params = attn_linear_attention_params_default();
    params.decay = &decay;
    params.beta = &beta;
    params.state_in = params.state_out = state;
    if (attn_linear_attention(&q, &k, &v, &out, &params) == ATTN_OK)
        return 1;
    fprintf(stderr, "gated_delta: %s\n", attn_last_error());
    return 0;
}

static float largest_difference(const float *a, const float *b, size_t n)
{
    float largest = 0.0f;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(a[i] - b[i]));
    return largest;
}

int main(void)
{
    attn_tensor state = attn_bhtd(state_data, 1, STATES, D, D);
    attn_tensor whole_state = attn_bhtd(whole_state_data, 1, STATES, D, D);
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    fill(decay_data, sizeof decay_data / sizeof *decay_data, 4);
    fill(beta_data, sizeof beta_data / sizeof *beta_data, 5);
    normalise(k_data, (size_t)T * KEY_HEADS);
    for (int i = 0; i < T * STATES; i++) {
        decay_data[i] = -0.1f * fabsf(decay_data[i]);
        beta_data[i] = 1.0f / (1.0f + expf(-beta_data[i]));
    }

    if (!run(0, PROMPT, &state, out_data))
        return 1;
    for (int64_t t = PROMPT; t < T; t++)
        if (!run(t, 1, &state, out_data))
            return 1;
    if (!run(0, T, &whole_state, whole_data))
        return 1;

    const float out = largest_difference(out_data, whole_data, sizeof out_data / sizeof *out_data);
    const float kept = largest_difference(state_data, whole_state_data, sizeof state_data / sizeof *state_data);
    printf("a prompt of %d tokens and %d more, one by one, against all in one call:\n", PROMPT, NEW);
    printf("outputs differ by at most %.1e, states by %.1e\n", (double)out, (double)kept);
    printf("%d states take %zu KiB, however long the text is; keys and values of %d tokens would take %zu KiB\n",
           STATES, sizeof state_data / 1024, T, (sizeof k_data + sizeof v_data) / 1024);
    return out < 1e-5f && kept < 1e-5f ? 0 : 1;
}
