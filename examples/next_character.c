/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A language model that is trained from scratch: a Transformer layer that reads
 * the characters of a text and predicts the next one. Every step is the forward
 * passes of libattn and libattn_nn, the backward passes in the opposite order,
 * and AdamW:
 *
 *     x1 = x0 + attention(norm(x0)) Woᵀ        causal, with the slopes of ALiBi for positions
 *     x2 = x1 + gelu(norm(x1) W1ᵀ) W2ᵀ
 *     loss = cross-entropy(norm(x2) Whᵀ, the next characters)
 *
 * Usage: next_character FILE [STEPS]
 *
 * The last tenth of the text is held out. The program fails unless the model
 * predicts it better than the frequencies of pairs of characters do, which know
 * one character before.
 */
#include <attn/backward.h>
#include <attn/nn.h>
#include <attn/patterns.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHARACTERS = 128, T = 64, B = 8, N = B * T, D = 64, H = 4, FF = 128, STEPS = 300 };

/* Parameters, [rows][columns], in this order in memory. */
enum { TABLE, NORM_1, QKV, OUTPUT, NORM_2, UP, DOWN, NORM_3, HEAD, PARAMETERS };
static const int64_t shapes[PARAMETERS][2] = {{CHARACTERS, D}, {1, D},  {3 * D, D}, {D, D},         {1, D},
                                              {FF, D},         {D, FF}, {1, D},     {CHARACTERS, D}};
static attn_parameter parameters[PARAMETERS];
static attn_tensor weights[PARAMETERS], d_weights[PARAMETERS];

/* Activations that the backward pass reads, and gradients of activations. */
static float x0[N * D], n1[N * D], qkv[N * 3 * D], heads[N * D], lse[N * H], x1[N * D], n2[N * D], up[N * FF],
    hidden[N * FF], x2[N * D], n3[N * D], logits[N * CHARACTERS];
static float d_x[N * D], d_n[N * D], d_qkv[N * 3 * D], d_heads[N * D], d_hidden[N * FF];
static float slopes[H];
static int32_t ids[N], next[N];

static void must(attn_status status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "next_character: %s\n", attn_last_error());
    exit(1);
}

static unsigned state = 1;

static unsigned draw(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* ------------------------------------------------------------------ the model -- */

/* Matrices begin uniform with a variance of 1 / columns, norms at 1. */
static void make_parameters(void)
{
    for (int p = 0; p < PARAMETERS; p++) {
        const int64_t rows = shapes[p][0], columns = shapes[p][1], count = rows * columns;
        const float width = rows == 1 ? 0 : sqrtf(3.0f / (float)columns);
        float *memory = calloc((size_t)count, 4 * sizeof *memory);
        if (!memory)
            exit(1);
        for (int64_t i = 0; i < count; i++)
            memory[i] = rows == 1 ? 1 : width * ((float)draw() / 8388608.0f - 1);
        parameters[p] = (attn_parameter){.values = memory,
                                         .gradients = memory + count,
                                         .mean = memory + 2 * count,
                                         .square = memory + 3 * count,
                                         .count = count,
                                         .decays = rows > 1};
        weights[p] = rows == 1 ? attn_vector(memory, columns) : attn_matrix(memory, rows, columns);
        d_weights[p] = weights[p];
        d_weights[p].data = memory + count;
    }
}

static attn_tensor rows_of(float *data, int64_t channels)
{
    return attn_btc(data, B, T, channels);
}

/* Heads of rows of D channels that are pitch floats apart. */
static attn_tensor heads_of(float *data, int64_t pitch)
{
    attn_tensor t = attn_bthd(data, B, T, H, D / H);
    t.stride[0] = T * pitch;
    t.stride[2] = pitch;
    return t;
}

/* y = x Wᵀ + residual. The weights of this step are packed for this product. */
static void multiply(int p, float *x, float *y, float *residual)
{
    const attn_tensor from = rows_of(x, shapes[p][1]), to = rows_of(y, shapes[p][0]),
                      add = rows_of(residual, shapes[p][0]);
    attn_linear *linear;
    attn_linear_options options = attn_linear_options_default();
    options.residual = residual ? &add : NULL;
    must(attn_linear_create(&linear, 1, &weights[p], NULL));
    must(attn_linear_forward(linear, &from, &to, &options));
    attn_linear_destroy(linear);
}

static void multiply_back(int p, float *x, float *d_y, float *d_out)
{
    const attn_tensor from = rows_of(x, shapes[p][1]), to = rows_of(d_out, shapes[p][1]),
                      d = rows_of(d_y, shapes[p][0]);
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.x = &to;
    gradients.weights = &d_weights[p];
    must(attn_linear_backward(&weights[p], &from, &d, &gradients, NULL, 0));
}

static void normalise(int p, float *x, float *y)
{
    const attn_tensor from = rows_of(x, D), to = rows_of(y, D);
    must(attn_normalise(ATTN_NORM_RMS, &from, &weights[p], NULL, 1e-6f, &to, 0));
}

/* What comes back through a norm goes to the residual stream. */
static void normalise_back(int p, float *x, float *d_y)
{
    const attn_tensor from = rows_of(x, D), d = rows_of(d_y, D);
    attn_norm_gradients gradients = attn_norm_gradients_default();
    gradients.x = &d;
    gradients.gamma = &d_weights[p];
    must(attn_normalise_backward(ATTN_NORM_RMS, &from, &weights[p], 1e-6f, &d, &gradients, NULL, 0));
    for (int i = 0; i < N * D; i++)
        d_x[i] += d_y[i];
}

static attn_params attention_params(const attn_tensor *lse_rows)
{
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.alibi_slopes = slopes;
    params.lse = lse_rows;
    return params;
}

/* The loss of the batch in ids and next; its gradient replaces the logits if it is wanted. */
static double forward(int wants_gradient)
{
    const attn_tensor embedded = rows_of(x0, D), q = heads_of(qkv, 3 * D), k = heads_of(qkv + D, 3 * D),
                      v = heads_of(qkv + 2 * D, 3 * D), out = heads_of(heads, D), lse_rows = attn_bhtd(lse, B, H, T, 1);
    const attn_tensor before = rows_of(up, FF), after = rows_of(hidden, FF), scores = rows_of(logits, CHARACTERS);
    const attn_params params = attention_params(&lse_rows);
    double loss;
    must(attn_embed(&weights[TABLE], ids, 0, 0, &embedded, 0));
    normalise(NORM_1, x0, n1);
    multiply(QKV, n1, qkv, NULL);
    must(attn_forward(&q, &k, &v, &out, &params));
    multiply(OUTPUT, heads, x1, x0);
    normalise(NORM_2, x1, n2);
    multiply(UP, n2, up, NULL);
    must(attn_activate(ATTN_ACTIVATION_GELU, &before, &after, 0));
    multiply(DOWN, hidden, x2, x1);
    normalise(NORM_3, x2, n3);
    multiply(HEAD, n3, logits, NULL);
    must(attn_cross_entropy(&scores, next, 0, &loss, wants_gradient ? &scores : NULL, 0));
    return loss;
}

/* The gradients of all parameters; d_x is that of the residual stream. */
static void backward(void)
{
    const attn_tensor q = heads_of(qkv, 3 * D), k = heads_of(qkv + D, 3 * D), v = heads_of(qkv + 2 * D, 3 * D),
                      out = heads_of(heads, D), lse_rows = attn_bhtd(lse, B, H, T, 1);
    const attn_tensor d_q = heads_of(d_qkv, 3 * D), d_k = heads_of(d_qkv + D, 3 * D),
                      d_v = heads_of(d_qkv + 2 * D, 3 * D), d_out = heads_of(d_heads, D);
    const attn_tensor before = rows_of(up, FF), d_after = rows_of(d_hidden, FF), d_embedded = rows_of(d_x, D);
    const attn_params params = attention_params(&lse_rows);
    for (int i = 0; i < N * D; i++)
        d_x[i] = 0;
    multiply_back(HEAD, n3, logits, d_n);
    normalise_back(NORM_3, x2, d_n);
    multiply_back(DOWN, hidden, d_x, d_hidden);
    must(attn_activate_backward(ATTN_ACTIVATION_GELU, &before, &d_after, &d_after, 0));
    multiply_back(UP, n2, d_hidden, d_n);
    normalise_back(NORM_2, x1, d_n);
    multiply_back(OUTPUT, heads, d_x, d_heads);
    attn_gradients gradients = attn_gradients_default();
    gradients.out = &d_out;
    gradients.q = &d_q;
    gradients.k = &d_k;
    gradients.v = &d_v;
    must(attn_backward(&q, &k, &v, &out, &params, &gradients));
    multiply_back(QKV, n1, d_qkv, d_n);
    normalise_back(NORM_1, x0, d_n);
    must(attn_embed_backward(ids, 0, &d_embedded, &d_weights[TABLE], 0, 0));
}

/* ------------------------------------------------------------------- the text -- */

static void take_sequence(int b, const unsigned char *from)
{
    for (int t = 0; t < T; t++) {
        ids[b * T + t] = from[t];
        next[b * T + t] = from[t + 1];
    }
}

static double train(const unsigned char *text, long length, long steps)
{
    attn_schedule schedule = attn_schedule_default();
    schedule.kind = ATTN_SCHEDULE_COSINE;
    schedule.peak = 0.01;
    schedule.warmup = steps / 10;
    schedule.steps = steps;
    attn_adamw_options adamw = attn_adamw_options_default();
    adamw.weight_decay = 0.01f;
    double loss = 0, rate;
    for (long step = 1; step <= steps; step++) {
        for (int b = 0; b < B; b++)
            take_sequence(b, text + draw() % (unsigned)(length - T));
        loss = forward(1);
        backward();
        must(attn_clip_gradients(parameters, PARAMETERS, 1, NULL, 0));
        must(attn_schedule_rate(&schedule, step, &rate));
        adamw.learning_rate = (float)rate;
        must(attn_adamw_step(parameters, PARAMETERS, step, &adamw));
        if (step == 1 || step % 50 == 0)
            printf("step %4ld: loss %.3f\n", step, loss);
    }
    return loss;
}

/* The mean loss on a text, from its beginning. */
static double evaluate(const unsigned char *text, long length)
{
    double sum = 0;
    long batches = 0;
    for (long at = 0; at + N < length; at += N, batches++) {
        for (int b = 0; b < B; b++)
            take_sequence(b, text + at + b * T);
        sum += forward(0);
    }
    return batches ? sum / (double)batches : 0;
}

/* What the frequencies of pairs of characters in one text say of another, each pair counted once more. */
static double pairs_predict(const unsigned char *seen, long length, const unsigned char *text, long held)
{
    static double pairs[CHARACTERS][CHARACTERS], first[CHARACTERS];
    double sum = 0;
    for (int a = 0; a < CHARACTERS; a++) {
        first[a] = CHARACTERS;
        for (int b = 0; b < CHARACTERS; b++)
            pairs[a][b] = 1;
    }
    for (long i = 0; i + 1 < length; i++) {
        pairs[seen[i]][seen[i + 1]]++;
        first[seen[i]]++;
    }
    for (long i = 0; i + 1 < held; i++)
        sum -= log(pairs[text[i]][text[i + 1]] / first[text[i]]);
    return sum / (double)(held - 1);
}

int main(int argc, char **argv)
{
    static unsigned char text[1 << 20];
    const long steps = argc > 2 ? strtol(argv[2], NULL, 10) : STEPS;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file || steps < 1) {
        fprintf(stderr, "Usage: next_character FILE [STEPS]\n");
        return 2;
    }
    long length = (long)fread(text, 1, sizeof text, file);
    fclose(file);
    for (long i = 0; i < length; i++)
        text[i] = text[i] < CHARACTERS ? text[i] : '?';
    const long held = length / 10;
    length -= held;
    if (held < 2 * N) {
        fprintf(stderr, "next_character: %s has %ld bytes; expected %d or more\n", argv[1], length + held, 20 * N);
        return 2;
    }
    must(attn_alibi_slopes(slopes, H));
    make_parameters();
    train(text, length, steps);
    const double model = evaluate(text + length, held), pairs = pairs_predict(text, length, text + length, held);
    printf("held out: %.3f nats a character; frequencies of pairs of characters: %.3f\n", model, pairs);
    for (int p = 0; p < PARAMETERS; p++)
        free(parameters[p].values);
    return model < pairs ? 0 : 1;
}
