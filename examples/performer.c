/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far Performer is from the softmax that it estimates, by its number of features.
 *
 * Runs FAVOR+ (Choromanski et al. 2021) on what goes into two layers of
 * all-MiniLM-L6-v2 (tests/data/minilm.safetensors), and on random queries and keys of
 * the same shape (standard normal, and half of that), and compares it with exact attention: the root of the mean square
 * of the difference over that of the output, the mean of some draws of the projection. Prints a line for each number of
 * features; a second argument names a picture to be drawn of it (PNG).
 *
 * What is estimated is e^(q·k) by products of two factors that are far from it where q and k point the same way:
 * the longer they are, the more features it takes. Those of this encoder, which has learnt with a softmax, are
 * long; a Performer learns with its features. Exits with 1 unless more features come closer.
 */
#include <attn/attn.h>
#include <attn/linear_attention.h>

#include "plot/curves.h"
#include "plot/picture.h"
#include "sample.h"

#include <stdlib.h>

enum { INPUTS = 4, SIZES = 7, DRAWS = 8 };

static const int64_t features[SIZES] = {16, 32, 64, 128, 256, 512, 1024};

/* Queries, keys and values of a batch, and what attention makes of them. */
struct input {
    const char *name;
    attn_tensor q, k, v, exact;
    const int64_t *lengths;
};

static void fill_normal(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f; /* of twelve numbers between -1/2 and 1/2: as good as normal */
        for (int j = 0; j < 12; j++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) / 16777216.0f - 0.5f;
        }
        x[i] = sum;
    }
}

/* The root of the mean square of a - b, or of a where b is NULL, over tokens that there are. */
static double size_of(const struct input *input, const float *a, const float *b)
{
    const int64_t heads = input->q.shape[1], tokens = input->q.shape[2], d = input->v.shape[3];
    double sum = 0.0, count = 0.0;
    for (int64_t i = 0; i < input->q.shape[0] * heads; i++)
        for (int64_t t = 0; t < input->lengths[i / heads]; t++)
            for (int64_t c = 0; c < d; c++) {
                const int64_t at = (i * tokens + t) * d + c;
                const double x = (double)a[at] - (b ? (double)b[at] : 0.0);
                sum += x * x;
                count += 1.0;
            }
    return sqrt(sum / count);
}

/* The error with m features, the mean of all draws; negative after a sentence. */
static double error_of(const struct input *input, int64_t m, float *projection, float *out)
{
    const int64_t d = input->q.shape[3];
    const attn_tensor drawn = attn_bhtd(projection, 1, 1, m, d);
    attn_tensor to = input->exact;
    double sum = 0.0;
    to.data = out;
    attn_linear_attention_params params = attn_linear_attention_params_default();
    params.map = ATTN_FEATURES_POSITIVE;
    params.projection = &drawn;
    params.normalise = 1;
    params.bidirectional = 1;
    params.lengths = input->lengths;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        if (attn_draw_features(&drawn, 1, draw) ||
            attn_linear_attention(&input->q, &input->k, &input->v, &to, &params)) {
            fprintf(stderr, "performer: %s\n", attn_last_error());
            return -1.0;
        }
        sum += size_of(input, out, input->exact.data);
    }
    return sum / DRAWS / size_of(input, input->exact.data, NULL);
}

/* A panel for each input, over the logarithm of the number of features. Returns whether the picture stands. */
static int draw(const char *path, const struct input inputs[INPUTS], double error[INPUTS][SIZES])
{
    double x[SIZES];
    struct curve curve[INPUTS];
    struct canvas canvas;
    struct picture_target target = {.path = NULL};
    for (int n = 0; n < SIZES; n++)
        x[n] = log2((double)features[n]);
    for (int i = 0; i < INPUTS; i++)
        curve[i] = (struct curve){.name = inputs[i].name, .x = x, .y = error[i], .count = SIZES, .marks = true};
    const struct curves curves = {.title = "Performer beside exact attention",
                                  .subtitle = "error, of the size of the output; mean of 8 draws",
                                  .x_name = "log2 of the number of features",
                                  .curve = curve,
                                  .panels = INPUTS,
                                  .last = x[SIZES - 1]};
    attn_status status = plot_curves(&canvas, &curves);
    if (status == ATTN_OK) {
        status = picture_target(&target, path);
        if (status == ATTN_OK)
            status = picture_write(&canvas, &target);
    }
    picture_target_free(&target);
    canvas_free(&canvas);
    if (status != ATTN_OK)
        fprintf(stderr, "performer: %s: %s\n", path, attn_last_error());
    return status == ATTN_OK;
}

/* Prints the table, draws it if path is given; returns whether errors fall as they should. */
static int compare(const struct input inputs[INPUTS], const char *path, float *projection, float *out)
{
    double error[INPUTS][SIZES];
    printf("error of Performer, of the size of the output\n\n%8s", "features");
    for (int i = 0; i < INPUTS; i++)
        printf(" %10s", inputs[i].name);
    for (int n = 0; n < SIZES; n++) {
        printf("\n%8lld", (long long)features[n]);
        for (int i = 0; i < INPUTS; i++) {
            error[i][n] = error_of(&inputs[i], features[n], projection, out);
            if (error[i][n] < 0.0)
                return 0;
            printf(" %10.3f", error[i][n]);
        }
    }
    printf("\n");
    for (int i = 0; i < INPUTS; i++) {
        const double most = i == INPUTS - 1 ? 0.3 : 0.75;
        if (!(error[i][SIZES - 1] < most * error[i][0])) {
            fprintf(stderr, "performer: with %lld features the error on %s is %g; expected less than %g of %g\n",
                    (long long)features[SIZES - 1], inputs[i].name, error[i][SIZES - 1], most, error[i][0]);
            return 0;
        }
    }
    return !path || draw(path, inputs, error);
}

int main(int argc, char **argv)
{
    static const char *const names[INPUTS] = {"layer 0", "layer 5", "normal", "half"};
    struct sample samples[2];
    struct input inputs[INPUTS];
    if (argc < 2) {
        fprintf(stderr, "usage: performer tests/data/minilm.safetensors [PICTURE.png]\n");
        return 2;
    }
    memset(samples, 0, sizeof samples);
    int done = 0;
    if (!sample_load(&samples[0], argv[1], 0) || !sample_load(&samples[1], argv[1], 5))
        goto out;
    const int64_t b = samples[0].batch, h = samples[0].heads, t = samples[0].tokens, d = samples[0].head_dim;
    const size_t count = (size_t)(b * h * t * d);
    float *const memory = malloc((8 * count + (size_t)(features[SIZES - 1] * d)) * sizeof *memory);
    if (!memory)
        goto out;
    float *const halves = memory + 4 * count;
    for (int i = 0; i < 2; i++)
        inputs[i] = (struct input){.q = attn_bhtd(samples[i].q, b, h, t, d),
                                   .k = attn_bhtd(samples[i].k, b, h, t, d),
                                   .v = attn_bhtd(samples[i].v, b, h, t, d),
                                   .exact = attn_bhtd(samples[i].out, b, h, t, d)};
    fill_normal(memory, 3 * count, 1);
    for (size_t i = 0; i < 2 * count; i++) /* q and k */
        halves[i] = 0.5f * memory[i];
    inputs[2] = (struct input){.q = attn_bhtd(memory, b, h, t, d),
                               .k = attn_bhtd(memory + count, b, h, t, d),
                               .v = attn_bhtd(memory + 2 * count, b, h, t, d),
                               .exact = attn_bhtd(memory + 3 * count, b, h, t, d)};
    inputs[3] = inputs[2];
    inputs[3].q.data = halves;
    inputs[3].k.data = halves + count;
    inputs[3].exact.data = halves + 2 * count;
    for (int i = 0; i < INPUTS; i++) {
        inputs[i].name = names[i];
        inputs[i].lengths = samples[0].kv_len;
    }
    attn_params exact = attn_params_default();
    exact.kv_len = samples[0].kv_len;
    if (attn_forward(&inputs[2].q, &inputs[2].k, &inputs[2].v, &inputs[2].exact, &exact) ||
        attn_forward(&inputs[3].q, &inputs[3].k, &inputs[3].v, &inputs[3].exact, &exact))
        fprintf(stderr, "performer: %s\n", attn_last_error());
    else
        done = compare(inputs, argc > 2 ? argv[2] : NULL, memory + 8 * count, memory + 7 * count);
    free(memory);
out:
    sample_free(&samples[0]);
    sample_free(&samples[1]);
    return done ? 0 : 1;
}
