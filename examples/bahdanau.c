/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder and decoder of Bahdanau et al. 2015 in small: a bidirectional LSTM
 * reads two sentences of different lengths in one padded batch, and a decoder
 * takes a few steps, in each of which its state looks for the annotations that
 * it needs. What the keys give to the scores is projected once a sentence.
 *
 * Weights are fixed small numbers, so the attention means nothing, but every
 * number is compared with plain loops in double: the annotations, the weights,
 * the contexts, the states.
 */
#include "reference.h"

#include <attn/nn.h>

#include <stdlib.h>

enum {
    BATCH = 2,
    TOKENS = 7,
    STEPS = 3,
    INPUT = 6,
    HIDDEN = 5,
    ANNOTATION = 2 * HIDDEN, /* both directions */
    ATTENTION = 8,
    STATE = 9,
    WORD = 4,
    UNIT = WORD + ANNOTATION
};

static const int64_t lengths[BATCH] = {TOKENS, 4};

/* Weights of the encoder by direction, of the score, of the decoder's unit; sentences, and words that it is fed. */
static float w_ih[2][4 * HIDDEN * INPUT], w_hh[2][4 * HIDDEN * HIDDEN], b_ih[2][4 * HIDDEN], b_hh[2][4 * HIDDEN];
static float w_q[ATTENTION * STATE], w_k[ATTENTION * ANNOTATION], b_score[ATTENTION], v_score[ATTENTION];
static float unit_ih[3 * STATE * UNIT], unit_hh[3 * STATE * STATE], unit_b_ih[3 * STATE], unit_b_hh[3 * STATE];
static float sentences[BATCH][TOKENS][INPUT], words[STEPS][BATCH][WORD];

/* What the library and the plain loops compute. */
struct results {
    float annotations[BATCH][TOKENS][ANNOTATION];
    float weights[STEPS][BATCH][TOKENS], contexts[STEPS][BATCH][ANNOTATION], states[STEPS][BATCH][STATE];
};

/* ----------------------------------------------------------- the plain loops -- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Row r of a matrix times x, and a bias. */
static double row_times(const float *matrix, int r, int columns, const double *x, const float *bias)
{
    double sum = bias != NULL ? (double)bias[r] : 0;
    for (int c = 0; c < columns; c++)
        sum += (double)matrix[r * columns + c] * x[c];
    return sum;
}

static void expect_annotations(struct results *to, int b, int direction)
{
    double h[HIDDEN] = {0}, c[HIDDEN] = {0};
    for (int s = 0; s < (int)lengths[b]; s++) {
        const int t = direction ? (int)lengths[b] - 1 - s : s;
        double x[INPUT], gates[4 * HIDDEN];
        for (int i = 0; i < INPUT; i++)
            x[i] = (double)sentences[b][t][i];
        for (int g = 0; g < 4 * HIDDEN; g++)
            gates[g] = row_times(w_ih[direction], g, INPUT, x, b_ih[direction]) +
                       row_times(w_hh[direction], g, HIDDEN, h, b_hh[direction]);
        for (int j = 0; j < HIDDEN; j++) {
            c[j] = sigmoid(gates[HIDDEN + j]) * c[j] + sigmoid(gates[j]) * tanh(gates[2 * HIDDEN + j]);
            h[j] = sigmoid(gates[3 * HIDDEN + j]) * tanh(c[j]);
            to->annotations[b][t][direction * HIDDEN + j] = (float)h[j];
        }
    }
}

/* Weights over the live annotations of a sentence, and their mean. */
static void expect_context(struct results *to, int step, int b, const double *state, double *context)
{
    const int live = (int)lengths[b];
    double scores[TOKENS], total = 0;
    for (int j = 0; j < live; j++) {
        double annotation[ANNOTATION];
        for (int c = 0; c < ANNOTATION; c++)
            annotation[c] = (double)to->annotations[b][j][c];
        scores[j] = 0;
        for (int a = 0; a < ATTENTION; a++)
            scores[j] += (double)v_score[a] * tanh(row_times(w_q, a, STATE, state, NULL) +
                                                   row_times(w_k, a, ANNOTATION, annotation, b_score));
        total += exp(scores[j]);
    }
    for (int j = 0; j < live; j++) {
        const double weight = exp(scores[j]) / total;
        to->weights[step][b][j] = (float)weight;
        for (int c = 0; c < ANNOTATION; c++)
            context[c] += weight * (double)to->annotations[b][j][c];
    }
}

static void expect_step(struct results *to, int step, int b, double *state)
{
    double x[UNIT] = {0}, from_x[3 * STATE], from_h[3 * STATE];
    expect_context(to, step, b, state, x + WORD);
    for (int i = 0; i < WORD; i++)
        x[i] = (double)words[step][b][i];
    for (int g = 0; g < 3 * STATE; g++) {
        from_x[g] = row_times(unit_ih, g, UNIT, x, unit_b_ih);
        from_h[g] = row_times(unit_hh, g, STATE, state, unit_b_hh);
    }
    for (int j = 0; j < STATE; j++) {
        const double reset = sigmoid(from_x[j] + from_h[j]);
        const double update = sigmoid(from_x[STATE + j] + from_h[STATE + j]);
        const double fresh = tanh(from_x[2 * STATE + j] + reset * from_h[2 * STATE + j]);
        state[j] = (1 - update) * fresh + update * state[j];
        to->states[step][b][j] = (float)state[j];
    }
    for (int c = 0; c < ANNOTATION; c++)
        to->contexts[step][b][c] = (float)x[WORD + c];
}

static void expect(struct results *to)
{
    for (int b = 0; b < BATCH; b++) {
        double state[STATE] = {0};
        expect_annotations(to, b, 0);
        expect_annotations(to, b, 1);
        for (int step = 0; step < STEPS; step++)
            expect_step(to, step, b, state);
    }
}

/* --------------------------------------------------------------- the library -- */

static int encode(struct results *to)
{
    attn_lstm_config config = attn_lstm_config_default();
    attn_lstm_weights weights[2];
    attn_lstm *lstm;
    config.input = INPUT;
    config.hidden = HIDDEN;
    config.bidirectional = 1;
    for (int d = 0; d < 2; d++) {
        weights[d].w_ih = attn_matrix(w_ih[d], 4 * HIDDEN, INPUT);
        weights[d].w_hh = attn_matrix(w_hh[d], 4 * HIDDEN, HIDDEN);
        weights[d].b_ih = attn_vector(b_ih[d], 4 * HIDDEN);
        weights[d].b_hh = attn_vector(b_hh[d], 4 * HIDDEN);
    }
    if (!succeeded("encoder", attn_lstm_create(&lstm, &config, weights)))
        return 0;
    const attn_tensor x = attn_btc(sentences, BATCH, TOKENS, INPUT);
    const attn_tensor out = attn_btc(to->annotations, BATCH, TOKENS, ANNOTATION);
    const int good = succeeded("encoder", attn_lstm_forward(lstm, &x, lengths, NULL, &out, 0, NULL, 0));
    attn_lstm_destroy(lstm);
    return good;
}

static int decode(const attn_alignment *alignment, const attn_bahdanau *decoder, struct results *to)
{
    static float projected_data[BATCH][TOKENS][ATTENTION], state_data[BATCH][STATE];
    const attn_tensor annotations = attn_btc(to->annotations, BATCH, TOKENS, ANNOTATION);
    const attn_tensor projected = attn_btc(projected_data, BATCH, TOKENS, ATTENTION);
    const attn_tensor state = attn_btc(state_data, BATCH, 1, STATE);
    if (!succeeded("keys", attn_alignment_project(alignment, &annotations, &projected, 0)))
        return 0;
    for (int step = 0; step < STEPS; step++) {
        const attn_tensor word = attn_btc(words[step], BATCH, 1, WORD);
        const attn_tensor context = attn_btc(to->contexts[step], BATCH, 1, ANNOTATION);
        const attn_tensor weights = attn_btc(to->weights[step], BATCH, 1, TOKENS);
        if (!succeeded("step", attn_bahdanau_forward(decoder, &word, &projected, &annotations, lengths, &state,
                                                     &context, &weights, 0, NULL, 0)))
            return 0;
        memcpy(to->states[step], state_data, sizeof state_data);
    }
    return 1;
}

static int run(struct results *to)
{
    attn_alignment_config score = attn_alignment_config_default();
    score.score = ATTN_SCORE_ADDITIVE;
    score.d_query = STATE;
    score.d_key = ANNOTATION;
    score.d_attention = ATTENTION;
    score.w_q = attn_matrix(w_q, ATTENTION, STATE);
    score.w_k = attn_matrix(w_k, ATTENTION, ANNOTATION);
    score.bias = attn_vector(b_score, ATTENTION);
    score.v = attn_vector(v_score, ATTENTION);
    attn_alignment *alignment;
    if (!encode(to) || !succeeded("score", attn_alignment_create(&alignment, &score)))
        return 0;

    attn_bahdanau_config config = attn_bahdanau_config_default();
    config.alignment = alignment;
    config.embedding = WORD;
    config.annotation = ANNOTATION;
    config.hidden = STATE;
    config.w_ih = attn_matrix(unit_ih, 3 * STATE, UNIT);
    config.w_hh = attn_matrix(unit_hh, 3 * STATE, STATE);
    config.b_ih = attn_vector(unit_b_ih, 3 * STATE);
    config.b_hh = attn_vector(unit_b_hh, 3 * STATE);
    attn_bahdanau *decoder;
    int good = succeeded("decoder", attn_bahdanau_create(&decoder, &config));
    if (good)
        good = decode(alignment, decoder, to);
    attn_bahdanau_destroy(decoder);
    attn_alignment_destroy(alignment);
    return good;
}

#define FILL(array, state) fill((float *)(array), sizeof(array) / sizeof(float), state)

int main(void)
{
    static struct results got, expected;
    FILL(w_ih, 1), FILL(w_hh, 2), FILL(b_ih, 3), FILL(b_hh, 4);
    FILL(w_q, 5), FILL(w_k, 6), FILL(b_score, 7), FILL(v_score, 8);
    FILL(unit_ih, 9), FILL(unit_hh, 10), FILL(unit_b_ih, 11), FILL(unit_b_hh, 12);
    FILL(sentences, 13), FILL(words, 14);
    /* What stands behind a sentence does not matter. */
    for (int i = 0; i < INPUT; i++)
        sentences[1][lengths[1]][i] = NAN;
    expect(&expected);
    if (!run(&got))
        return EXIT_FAILURE;
    for (int b = 0; b < BATCH; b++)
        for (int step = 0; step < STEPS; step++) {
            printf("sentence %d, step %d:", b, step);
            for (int t = 0; t < TOKENS; t++)
                printf(" %.3f", (double)got.weights[step][b][t]);
            printf("\n");
        }
    const size_t steps = STEPS * BATCH;
    return alike("annotations", got.annotations[0][0], expected.annotations[0][0], BATCH * TOKENS * ANNOTATION,
                 allowed(8)) &&
                   alike("weights", got.weights[0][0], expected.weights[0][0], steps * TOKENS, allowed(8)) &&
                   alike("contexts", got.contexts[0][0], expected.contexts[0][0], steps * ANNOTATION, allowed(8)) &&
                   alike("states", got.states[0][0], expected.states[0][0], steps * STATE, allowed(8))
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}
