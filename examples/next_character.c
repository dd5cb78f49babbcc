/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A language model that is trained from scratch: a Transformer layer that reads
 * the characters of a text and predicts the next one. Every step is a forward
 * pass, the backward passes in the opposite order, and AdamW:
 *
 *     x1 = layer(x0)                           pre-norm; causal, with the slopes of ALiBi for positions
 *     loss = cross-entropy(norm(x1) Whᵀ, the next characters)
 *
 * Usage: next_character FILE [STEPS]
 *
 * The last tenth of the text is held out. The program fails unless the model
 * predicts it better than the frequencies of pairs of characters do, which know
 * one character before.
 */
#include <attn/nn.h>
#include <attn/patterns.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHARACTERS = 128, T = 64, B = 8, N = B * T, D = 64, H = 4, FF = 128, STEPS = 300 };

/* Parameters, [rows][columns], in this order in memory. */
enum { TABLE, NORM_1, QUERY, KEY, VALUE, OUTPUT, NORM_2, UP, DOWN, NORM_3, HEAD, PARAMETERS };
static const int64_t shapes[PARAMETERS][2] = {{CHARACTERS, D}, {1, D},  {D, D},  {D, D}, {D, D},         {D, D},
                                              {1, D},          {FF, D}, {D, FF}, {1, D}, {CHARACTERS, D}};
static attn_parameter parameters[PARAMETERS];
static attn_tensor weights[PARAMETERS], d_weights[PARAMETERS];

/* The layer: its sizes, its weights and their gradients in those of the parameters, and what a pass keeps. */
static attn_mha_config attention;
static attn_block_config config;
static attn_mha_weights of_attention, d_of_attention;
static attn_block_weights of_layer, d_of_layer;
static attn_params params;
static attn_block_pass pass;

/* Rows of activations, and of their gradients. */
static float x0[N * D], x1[N * D], normed[N * D], logits[N * CHARACTERS], d_x[N * D];
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

/* Weights of the layer, or their gradients, in those of the parameters. */
static void place_layer(const attn_tensor *of, attn_mha_weights *mha, attn_block_weights *layer)
{
    *mha = attn_mha_weights_default();
    mha->w_q = of[QUERY], mha->w_k = of[KEY], mha->w_v = of[VALUE], mha->w_o = of[OUTPUT];
    *layer = attn_block_weights_default();
    layer->self = mha;
    layer->w_up = of[UP], layer->w_down = of[DOWN];
    layer->self_gamma = of[NORM_1], layer->network_gamma = of[NORM_2];
}

static void make_layer(void)
{
    attention = attn_mha_config_default();
    attention.d_model = D, attention.heads = H;
    config = attn_block_config_default();
    config.attention = &attention, config.d_ff = FF;
    config.activation = ATTN_ACTIVATION_GELU;
    config.norm = ATTN_NORM_RMS, config.norm_first = 1, config.eps = 1e-6f;
    place_layer(weights, &of_attention, &of_layer);
    place_layer(d_weights, &d_of_attention, &d_of_layer);
    params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.alibi_slopes = slopes;
    must(attn_alibi_slopes(slopes, H));
    pass = attn_block_pass_default();
    pass.self = &params;
    pass.kept_size = attn_block_kept_size(&config, ATTN_F32, B, T, 0);
    pass.kept = malloc(pass.kept_size); /* without it the backward pass would run the forward pass again */
    if (!pass.kept)
        exit(1);
}

/* The loss of the batch in ids and next; its gradient replaces the logits if it is wanted. */
static double forward(int wants_gradient)
{
    const attn_tensor embedded = rows_of(x0, D), out = rows_of(x1, D), rows = rows_of(normed, D),
                      scores = rows_of(logits, CHARACTERS);
    attn_linear *head;
    double loss;
    must(attn_embed(&weights[TABLE], ids, 0, 0, &embedded, 0));
    must(attn_block_train(&config, &of_layer, &embedded, &pass, &out, NULL, 0));
    must(attn_normalise(ATTN_NORM_RMS, &out, &weights[NORM_3], NULL, config.eps, &rows, 0));
    must(attn_linear_create(&head, 1, &weights[HEAD], NULL)); /* packed for this product: the next step has others */
    must(attn_linear_forward(head, &rows, &scores, NULL));
    attn_linear_destroy(head);
    must(attn_cross_entropy(&scores, next, 0, &loss, wants_gradient ? &scores : NULL, 0));
    return loss;
}

/* The gradients of all parameters; d is that of rows, of out and of embedded, one after the other. */
static void backward(void)
{
    const attn_tensor embedded = rows_of(x0, D), out = rows_of(x1, D), rows = rows_of(normed, D),
                      d_scores = rows_of(logits, CHARACTERS), d = rows_of(d_x, D);
    attn_linear_gradients of_head = attn_linear_gradients_default();
    of_head.x = &d, of_head.weights = &d_weights[HEAD];
    must(attn_linear_backward(&weights[HEAD], &rows, &d_scores, &of_head, NULL, 0));
    attn_norm_gradients of_norm = attn_norm_gradients_default();
    of_norm.x = &d, of_norm.gamma = &d_weights[NORM_3];
    must(attn_normalise_backward(ATTN_NORM_RMS, &out, &weights[NORM_3], config.eps, &d, &of_norm, NULL, 0));
    attn_block_gradients of_block = attn_block_gradients_default();
    of_block.x = &d, of_block.weights = &d_of_layer;
    must(attn_block_backward(&config, &of_layer, &embedded, &pass, &d, &of_block, NULL, 0));
    must(attn_embed_backward(ids, 0, &d, &d_weights[TABLE], 0, 0));
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
    make_parameters();
    make_layer();
    train(text, length, steps);
    const double model = evaluate(text + length, held), pairs = pairs_predict(text, length, text + length, held);
    printf("held out: %.3f nats a character; frequencies of pairs of characters: %.3f\n", model, pairs);
    for (int p = 0; p < PARAMETERS; p++)
        free(parameters[p].values);
    free(pass.kept);
    return model < pairs ? 0 : 1;
}
