/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shared prefix, by two calls and attn_merge().
 *
 * Four sequences continue the same prompt. Its keys and values are stored once,
 * and one call lets the queries of all sequences, put behind each other on the
 * token axis, attend to them: each block of the prompt's keys is then read once
 * for all of them. A second call has each sequence attend to its own keys, of
 * which there are 40 here and none yet in one of them. attn_merge() joins the
 * two by their log-sum-exps. The program checks that this is what one call over
 * the copied keys gives, up to rounding.
 */
#include <attn/attn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, HEADS = 4, NEW = 8, PROMPT = 300, OWN = 40, DIM = 32 };
enum { ALL = PROMPT + OWN, OUT = SEQUENCES * HEADS * NEW * DIM, ROWS = SEQUENCES * HEADS * NEW };

static float q_data[OUT], prompt_k[HEADS * PROMPT * DIM], prompt_v[HEADS * PROMPT * DIM];
static float own_k[SEQUENCES * HEADS * OWN * DIM], own_v[SEQUENCES * HEADS * OWN * DIM];
static float all_k[SEQUENCES * HEADS * ALL * DIM], all_v[SEQUENCES * HEADS * ALL * DIM];
static float prompt_out[OUT], own_out[OUT], expected[OUT], prompt_lse[ROWS], own_lse[ROWS], expected_lse[ROWS];

/* Keys of its own that each sequence has so far. */
static const int64_t own_len[SEQUENCES] = {OWN, 17, 0, 1};

static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* The queries of all sequences against the prompt: (1, HEADS, SEQUENCES * NEW, DIM) by strides, nothing is copied. */
static attn_status attend_to_prompt(void)
{
    attn_tensor q = attn_bthd(q_data, 1, SEQUENCES * NEW, HEADS, DIM);
    attn_tensor out = attn_bthd(prompt_out, 1, SEQUENCES * NEW, HEADS, DIM);
    attn_tensor lse = attn_bthd(prompt_lse, 1, SEQUENCES * NEW, HEADS, 1);
    attn_tensor k = attn_bhtd(prompt_k, 1, HEADS, PROMPT, DIM), v = attn_bhtd(prompt_v, 1, HEADS, PROMPT, DIM);
    attn_params params = attn_params_default();
    params.lse = &lse;
    return attn_forward(&q, &k, &v, &out, &params);
}

/* The same memory as (SEQUENCES, HEADS, NEW, ...), each sequence against keys of its own. */
static attn_status attend_to_own(void)
{
    attn_tensor q = attn_bthd(q_data, SEQUENCES, NEW, HEADS, DIM);
    attn_tensor out = attn_bthd(own_out, SEQUENCES, NEW, HEADS, DIM);
    attn_tensor lse = attn_bthd(own_lse, SEQUENCES, NEW, HEADS, 1);
    attn_tensor k = attn_bhtd(own_k, SEQUENCES, HEADS, OWN, DIM), v = attn_bhtd(own_v, SEQUENCES, HEADS, OWN, DIM);
    attn_params params = attn_params_default();
    params.kv_len = own_len;
    params.lse = &lse;
    return attn_forward(&q, &k, &v, &out, &params);
}

/* Joins both in place: the result takes the place of the sequences' own part. */
static attn_status join(void)
{
    const attn_tensor parts[2] = {attn_bthd(prompt_out, SEQUENCES, NEW, HEADS, DIM),
                                  attn_bthd(own_out, SEQUENCES, NEW, HEADS, DIM)};
    const attn_tensor lses[2] = {attn_bthd(prompt_lse, SEQUENCES, NEW, HEADS, 1),
                                 attn_bthd(own_lse, SEQUENCES, NEW, HEADS, 1)};
    return attn_merge(2, parts, lses, &parts[1], &lses[1], 0);
}

static void append(float *to, const float *prompt, const float *own)
{
    for (int i = 0; i < SEQUENCES * HEADS; i++) {
        memcpy(to + (size_t)i * ALL * DIM, prompt + (size_t)(i % HEADS) * PROMPT * DIM, PROMPT * DIM * sizeof *to);
        memcpy(to + ((size_t)i * ALL + PROMPT) * DIM, own + (size_t)i * OWN * DIM, OWN * DIM * sizeof *to);
    }
}

/* One call in which every sequence has a copy of the prompt. */
static attn_status attend_to_all(void)
{
    append(all_k, prompt_k, own_k);
    append(all_v, prompt_v, own_v);
    attn_tensor q = attn_bthd(q_data, SEQUENCES, NEW, HEADS, DIM);
    attn_tensor out = attn_bthd(expected, SEQUENCES, NEW, HEADS, DIM);
    attn_tensor lse = attn_bthd(expected_lse, SEQUENCES, NEW, HEADS, 1);
    attn_tensor k = attn_bhtd(all_k, SEQUENCES, HEADS, ALL, DIM), v = attn_bhtd(all_v, SEQUENCES, HEADS, ALL, DIM);
    int64_t lengths[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++)
        lengths[i] = PROMPT + own_len[i];
    attn_params params = attn_params_default();
    params.kv_len = lengths;
    params.lse = &lse;
    return attn_forward(&q, &k, &v, &out, &params);
}

static double largest_difference(const float *x, const float *y, int n)
{
    double largest = 0;
    for (int i = 0; i < n; i++) {
        const double difference = fabs((double)x[i] - (double)y[i]);
        if (!(difference <= largest)) /* also when it is NaN */
            largest = difference;
    }
    return largest;
}

int main(void)
{
    fill(q_data, OUT, 1);
    fill(prompt_k, sizeof prompt_k / sizeof *prompt_k, 2);
    fill(prompt_v, sizeof prompt_v / sizeof *prompt_v, 3);
    fill(own_k, sizeof own_k / sizeof *own_k, 4);
    fill(own_v, sizeof own_v / sizeof *own_v, 5);
    if (attend_to_prompt() != ATTN_OK || attend_to_own() != ATTN_OK || join() != ATTN_OK ||
        attend_to_all() != ATTN_OK) {
        fprintf(stderr, "merge: %s\n", attn_last_error());
        return EXIT_FAILURE;
    }
    const double out = largest_difference(own_out, expected, OUT);
    const double lse = largest_difference(own_lse, expected_lse, ROWS);
    printf("prompt and own keys, joined, differ from one call by %.1e, their log-sum-exp by %.1e\n", out, lse);
    if (!(out <= 1e-6 && lse <= 4e-6)) {
        fprintf(stderr, "merge: that is more than rounding\n");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
