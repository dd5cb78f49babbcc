/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentences in, embeddings out: a sentence encoder from the folder that sentence-transformers saves it in. Prints each
 * line of standard input with the other one that is most like it, by the cosine of their embeddings.
 *
 *     embed_sentences FOLDER < sentences.txt
 *
 * The command attn embed is this with options, batches of many texts, and files of embeddings.
 */
#include <attn/nn.h>
#include <attn/text.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 1000 };

static char *lines[MOST_LINES];
static int64_t offsets[MOST_LINES + 1]; /* of each line's tokens, behind each other */

static int fail(const char *what)
{
    fprintf(stderr, "embed_sentences: %s: %s\n", what, attn_last_error());
    return 1;
}

static int64_t read_lines(void)
{
    size_t room = 0;
    int64_t count = 0;
    while (count < MOST_LINES && getline(&lines[count], &room, stdin) >= 0) {
        lines[count][strcspn(lines[count], "\n")] = '\0';
        room = 0;
        count++;
    }
    return count;
}

/* Appends the tokens of a text to ids, which has *room. */
static attn_status add_tokens(const attn_tokenizer *tokenizer, const char *text, int64_t most, int32_t **ids,
                              int64_t line)
{
    attn_encode_options options = attn_encode_options_default();
    attn_encoding tokens = attn_encoding_default();
    options.max_tokens = most; /* the rest of a longer text is left off */
    attn_status status = attn_tokenizer_encode(tokenizer, text, strlen(text), &options, &tokens);
    if (status == ATTN_OK) {
        offsets[line + 1] = offsets[line] + tokens.count;
        int32_t *larger = realloc(*ids, (size_t)(offsets[line + 1] + 1) * sizeof *larger);
        if (larger) {
            memcpy(larger + offsets[line], tokens.ids, (size_t)tokens.count * sizeof *larger);
            *ids = larger;
        } else {
            status = ATTN_OUT_OF_MEMORY;
        }
    }
    attn_encoding_free(&tokens);
    return status;
}

static double cosine(const float *a, const float *b, int64_t width)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t c = 0; c < width; c++) {
        ab += (double)a[c] * (double)b[c];
        aa += (double)a[c] * (double)a[c];
        bb += (double)b[c] * (double)b[c];
    }
    return ab / sqrt(aa * bb);
}

static void print_most_alike(const float *rows, int64_t count, int64_t width)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t best = -1;
        double greatest = -2;
        for (int64_t j = 0; j < count; j++) {
            const double c = cosine(rows + i * width, rows + j * width, width);
            if (j != i && c > greatest) {
                greatest = c;
                best = j;
            }
        }
        printf("%s\n", lines[i]);
        if (best >= 0)
            printf("    %.3f  %s\n", greatest, lines[best]);
    }
}

int main(int argc, char **argv)
{
    attn_tokenizer *tokenizer;
    attn_model *model;
    attn_model_info info = attn_model_info_default();
    if (argc != 2) {
        fprintf(stderr, "Usage: embed_sentences FOLDER < sentences.txt\n");
        return 2;
    }
    if (attn_tokenizer_open(&tokenizer, argv[1]) != ATTN_OK)
        return fail("the tokenizer");
    if (attn_model_open(&model, argv[1], NULL) != ATTN_OK || attn_model_describe(model, &info) != ATTN_OK)
        return fail("the model");

    int32_t *ids = NULL;
    const int64_t count = read_lines();
    for (int64_t i = 0; i < count; i++)
        if (add_tokens(tokenizer, lines[i], info.max_tokens, &ids, i) != ATTN_OK)
            return fail(lines[i]);

    /* All sentences in one call, without padding: a row for each, pooled as the folder says. */
    float *rows = calloc((size_t)(count * info.d_model) + 1, sizeof *rows);
    if (!rows)
        return 1;
    const attn_tensor embeddings = attn_btc(rows, 1, count, info.d_model);
    attn_model_batch batch = attn_model_batch_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    batch.num_sequences = count, batch.offsets = offsets, batch.ids = ids;
    outputs.embeddings = &embeddings;
    if (attn_model_encode(model, &batch, &outputs) != ATTN_OK)
        return fail("the embeddings");
    print_most_alike(rows, count, info.d_model);

    for (int64_t i = 0; i < count; i++)
        free(lines[i]);
    free(rows);
    free(ids);
    attn_model_close(model);
    attn_tokenizer_close(tokenizer);
    return 0;
}
