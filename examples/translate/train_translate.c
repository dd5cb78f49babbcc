/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains the translator of dates from scratch, as train_translator.py does with
 * PyTorch: the same pairs, layers, sizes, curriculum and rates. docs/translate.md
 * is its page.
 *
 * All that is random follows from the seed and from what it is for: the weights,
 * and which pairs a step learns from. A training that goes on from a checkpoint
 * therefore ends with the same weights, bit for bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/config.h"
#include "curriculum.h"
#include "file.h"
#include "trained_translator.h"
#include "trainer.h"
#include "translator.h"

enum { WIDTH = 128, HEADS = 4, LAYERS = 2, INNER = 256, MOST_TEXT = 96, MOST_OUTPUT = 16, BEAMS = 4 };
enum { BATCH = 64, EPOCH = 100, EPOCHS = 13, WARM_UP = 100, SHORTEST = 12, TESTED = 32, SEED = 1987 };
static const double peak_rate = 3e-3, beta2 = 0.98, weight_decay = 0.01, max_norm = 1, growth = 0.4;
static const float eps = 1e-5f;

static const char usage[] =
    "Usage: train_translate --data FOLDER --out FOLDER [--seed N] [--epochs N]\n"
    "                       [--checkpoint-every STEPS] [--resume]\n"
    "\n"
    "Trains a translator of dates on FOLDER/train.tsv and tests it on FOLDER/test.tsv, lines\n"
    "of DATE TAB TEXT, such as examples/train/run writes. Then translate --model FOLDER uses it.\n"
    "An epoch is 100 steps of 64 pairs. The defaults are 13 epochs and the seed 1987.\n"
    "\n"
    "  -d, --data FOLDER  the pairs\n";

/* A training. */
struct training {
    struct training_options options;
    struct date_pairs train, test;
    struct alphabet alphabet;
    struct translator_sizes sizes;
    struct trained_translator translator;
    struct pair_batch batch;
    struct trainer trainer;
    int64_t *order; /* pairs of all steps */
};

/* ----------------------------------------------------------------- training -- */

static attn_status learn(void *user, int64_t step, double *loss)
{
    struct training *t = user;
    CHECK(pair_batch_fill(&t->batch, &t->train, &t->alphabet, t->order + step * BATCH, BATCH));
    return trained_translator_learn(&t->translator, &t->batch, loss);
}

/* The translator that the weights make now. */
static attn_status make_translator(const struct training *t, struct translator **translator)
{
    attn_weights *weights;
    CHECK(trained_translator_weights(&t->translator, &weights));
    const attn_status status = translator_create(translator, &t->sizes, &t->alphabet, weights);
    attn_weights_destroy(weights);
    return status;
}

/* The share of the test texts whose dates greedy search finds. */
static attn_status test(void *user, double *accuracy)
{
    const struct training *t = user;
    const struct lines *texts = &t->test.texts, *dates = &t->test.dates;
    struct translator *translator;
    struct lines found = {0};
    int64_t right = 0;
    CHECK(make_translator(t, &translator));
    attn_status status = ATTN_OK;
    for (int64_t first = 0; status == ATTN_OK && first < texts->count; first += TESTED) {
        const int64_t left = texts->count - first;
        status = translator_run(translator, texts, first, left < TESTED ? left : TESTED, 1, &found);
    }
    for (int64_t i = 0; status == ATTN_OK && i < texts->count; i++)
        right += strcmp(found.text[i], dates->text[i]) == 0;
    *accuracy = (double)right / (double)texts->count;
    lines_free(&found);
    translator_close(translator);
    return status;
}

/* ---------------------------------------------------------------- the model -- */

static attn_status write_config(const struct training *t)
{
    const attn_transformer_config *c = &t->sizes.config;
    char text[1024];
    const int size =
        snprintf(text, sizeof text,
                 "{\n"
                 "  \"model_type\": \"encoder-decoder\",\n"
                 "  \"d_model\": %lld,\n"
                 "  \"n_head\": %lld,\n"
                 "  \"n_encoder_layers\": %lld,\n"
                 "  \"n_decoder_layers\": %lld,\n"
                 "  \"d_ff\": %lld,\n"
                 "  \"norm_first\": true,\n"
                 "  \"final_norm\": true,\n"
                 "  \"activation\": \"relu\",\n"
                 "  \"layer_norm_eps\": %.3g,\n"
                 "  \"vocab_size\": %lld,\n"
                 "  \"pad\": %d,\n"
                 "  \"bos\": %d,\n"
                 "  \"eos\": %d,\n"
                 "  \"embedding_scale\": \"sqrt(d_model)\",\n"
                 "  \"positions\": \"sinusoidal\",\n"
                 "  \"max_length\": %lld,\n"
                 "  \"max_output_length\": %lld,\n"
                 "  \"beam\": %lld,\n"
                 "  \"tests\": %lld\n"
                 "}\n",
                 (long long)c->d_model, (long long)c->heads, (long long)c->encoder_layers, (long long)c->decoder_layers,
                 (long long)c->d_ff, (double)c->eps, (long long)c->source_vocabulary, ALPHABET_PAD, ALPHABET_BOS,
                 ALPHABET_EOS, (long long)c->positions, (long long)t->sizes.max_output, (long long)t->sizes.beams,
                 (long long)t->test.texts.count);
    char *path = config_beside(t->options.out, "config.json");
    const attn_status status = path ? file_write(path, &(struct file_part){text, (size_t)size}, 1) : ATTN_OUT_OF_MEMORY;
    free(path);
    return status;
}

static attn_status write_lines(const struct training *t, const char *name, const struct lines *lines)
{
    return file_write_lines(t->options.out, name, (const char *const *)lines->text, lines->count);
}

static attn_status write_model(const struct training *t)
{
    char *path = config_beside(t->options.out, "translator.safetensors");
    const attn_status status =
        path ? parameters_write(&t->translator.parameters, path, false, NULL, 0) : ATTN_OUT_OF_MEMORY;
    free(path);
    CHECK(status);
    CHECK(write_lines(t, "alphabet.txt", &t->alphabet.names));
    CHECK(write_lines(t, "test.txt", &t->test.texts));
    CHECK(write_lines(t, "expected.txt", &t->test.dates));
    return write_config(t);
}

/* ------------------------------------------------------------------ running -- */

static attn_status read_pairs(struct date_pairs *pairs, const char *folder, const char *name)
{
    char *path = config_beside(folder, name);
    /* The end is a token of the output, too. */
    const attn_status status = path ? date_pairs_read(pairs, path, MOST_OUTPUT - 1, MOST_TEXT) : ATTN_OUT_OF_MEMORY;
    free(path);
    return status;
}

static attn_status read_data(struct training *t)
{
    bool occurs[256] = {false};
    CHECK(read_pairs(&t->train, t->options.data, "train.tsv"));
    CHECK(read_pairs(&t->test, t->options.data, "test.tsv"));
    date_pairs_mark(&t->train, occurs);
    date_pairs_mark(&t->test, occurs);
    return alphabet_make(&t->alphabet, occurs);
}

static attn_status make_translator_to_train(struct training *t)
{
    attn_transformer_config *c = &t->sizes.config;
    struct trained_translator *n = &t->translator;
    *c = attn_transformer_config_default();
    c->encoder_layers = c->decoder_layers = LAYERS;
    c->d_model = WIDTH, c->heads = HEADS, c->d_ff = INNER;
    c->source_vocabulary = c->target_vocabulary = t->alphabet.names.count;
    c->positions = MOST_TEXT;
    c->activation = ATTN_ACTIVATION_RELU;
    c->eps = eps;
    c->norm_first = c->final_norms = 1;
    c->bos = ALPHABET_BOS, c->eos = ALPHABET_EOS;
    t->sizes.max_output = MOST_OUTPUT;
    t->sizes.beams = BEAMS;
    n->config = *c;
    n->most_pairs = BATCH;
    n->longest_date = t->train.longest_date;
    n->longest_text = t->train.longest_text;
    n->seed = (uint64_t)t->options.seed;
    CHECK(pair_batch_create(&t->batch, BATCH, n->longest_date, n->longest_text));
    return trained_translator_create(n);
}

static attn_status prepare(struct training *t)
{
    const struct curriculum curriculum = {.batch = BATCH,
                                          .steps = EPOCH * t->options.epochs,
                                          .seed = (uint64_t)t->options.seed,
                                          .shortest = SHORTEST,
                                          .longest = MOST_TEXT,
                                          .growth = growth};
    CHECK(read_data(t));
    t->order = calloc((size_t)(curriculum.steps * BATCH), sizeof *t->order);
    if (!t->order)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the pairs of %lld steps", (long long)curriculum.steps);
    CHECK(curriculum_order(&curriculum, &t->train, t->order));
    return make_translator_to_train(t);
}

static void set_trainer(struct training *t)
{
    struct trainer *r = &t->trainer;
    r->program = "train_translate";
    r->title = "Training the translator of dates";
    r->options = &t->options;
    r->parameters = &t->translator.parameters;
    r->steps_per_epoch = EPOCH;
    r->schedule = attn_schedule_default();
    r->schedule.kind = ATTN_SCHEDULE_COSINE;
    r->schedule.peak = peak_rate;
    r->schedule.steps = t->options.epochs * EPOCH;
    r->schedule.warmup = WARM_UP;
    r->max_norm = max_norm;
    r->weight_decay = weight_decay;
    r->beta2 = beta2;
    r->settings[0] = (struct trainer_setting){"set of training pairs", (int64_t)t->train.digest};
    r->settings[1] = (struct trainer_setting){"set of test pairs", (int64_t)t->test.digest};
    r->user = t;
    r->learn = learn;
    r->test = test;
}

static attn_status run(const struct training_options *options)
{
    struct training t = {.options = *options};
    attn_status status = prepare(&t);
    if (status == ATTN_OK) {
        set_trainer(&t);
        status = trainer_run(&t.trainer);
    }
    if (status == ATTN_OK)
        status = write_model(&t);
    if (status == ATTN_OK)
        printf("%lld pairs, %lld epochs, seed %lld: %lld test texts translated exactly %.2f %%; %lld steps in %.1f s\n",
               (long long)t.train.texts.count, (long long)options->epochs, (long long)options->seed,
               (long long)t.test.texts.count, 100 * trainer_accuracy(&t.trainer), (long long)trainer_steps(&t.trainer),
               trainer_seconds(&t.trainer));
    trainer_close(&t.trainer);
    trained_translator_destroy(&t.translator);
    pair_batch_free(&t.batch);
    alphabet_free(&t.alphabet);
    date_pairs_free(&t.train);
    date_pairs_free(&t.test);
    free(t.order);
    return status;
}

int main(int argc, char **argv)
{
    struct training_options options = {.seed = SEED, .epochs = EPOCHS};
    attn_status status = training_options(&options, argc, argv, usage);
    const int failure = status != ATTN_OK ? 2 : 1;
    if (status == ATTN_OK)
        status = run(&options);
    if (status == ATTN_OK)
        return 0;
    fprintf(stderr, "train_translate: %s\n", attn_last_error());
    return failure;
}
