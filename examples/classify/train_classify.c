/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains the text classifier from scratch, as train_classifier.py does with
 * PyTorch: the same texts, layers, sizes, dropout and rates. docs/classify.md is
 * its page.
 *
 * All that is random follows from the seed and from what it is for: weights,
 * the order of an epoch, the dropout of a step. A checkpoint therefore holds the
 * parameters, what AdamW keeps of them and the losses so far, and a training
 * that goes on from it ends with the same weights, bit for bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch_order.h"
#include "io/config.h"
#include "file.h"
#include "network.h"
#include "trainer.h"

enum { BATCH = 64, LEAST_COUNT = 2, EMBEDDING = 64, HIDDEN = 64, ATTENTION = 64, EPOCHS = 6, SEED = 2014 };
static const double peak_rate = 5e-3, weight_decay = 0.05, max_norm = 1, warmup = 0.1, hide = 0.1;
static const float dropout = 0.65f;

/* Streams of random numbers behind those of the parameters. */
enum { STREAM_ORDER = 1000, STREAM_HIDE = 1000000 };

static const char usage[] =
    "Usage: train_classify --data FOLDER --out FOLDER [--seed N] [--epochs N]\n"
    "                      [--checkpoint-every STEPS] [--resume]\n"
    "\n"
    "Trains a text classifier on FOLDER/train.tsv and tests it on FOLDER/test.tsv, lines\n"
    "of CLASS TAB TEXT, such as examples/train/run writes. Then classify --model FOLDER uses it.\n"
    "The defaults are 6 epochs and the seed 2014.\n"
    "\n"
    "  -d, --data FOLDER  the texts\n";

/* A training. */
struct training {
    struct training_options options;
    struct samples train, test;
    struct lines classes;
    struct vocabulary vocabulary;
    struct network network;
    struct batch batch;
    struct trainer trainer;
    int64_t *order;  /* of the epoch at work, or of the tests */
    int64_t ordered; /* which epoch that is, or -1 */
};

/* ------------------------------------------------------------------ the data -- */

static attn_status read_samples(struct samples *samples, const char *folder, const char *name, struct lines *classes,
                                bool may_add)
{
    char *path = config_beside(folder, name);
    const attn_status status = path ? samples_read(samples, path, classes, may_add) : ATTN_OUT_OF_MEMORY;
    free(path);
    return status;
}

static attn_status read_data(struct training *t)
{
    CHECK(read_samples(&t->train, t->options.data, "train.tsv", &t->classes, true));
    CHECK(labelled_texts_sort_classes(&t->train.source, &t->classes));
    CHECK(read_samples(&t->test, t->options.data, "test.tsv", &t->classes, false));
    CHECK(samples_vocabulary(&t->train, LEAST_COUNT, &t->vocabulary));
    samples_number(&t->train, &t->vocabulary);
    samples_number(&t->test, &t->vocabulary);
    return ATTN_OK;
}

/* ----------------------------------------------------------------- training -- */

/* A word of the batch is hidden now and then, so that <unk> is learnt. */
static void hide_words(const struct training *t, int64_t step)
{
    const struct stream stream = {(uint64_t)t->options.seed, STREAM_HIDE + (uint64_t)step};
    for (int64_t i = 0; i < t->batch.count * t->batch.longest; i++)
        if (t->batch.ids[i] != WORD_PADDING && random_uniform(stream, (uint64_t)i) < hide)
            t->batch.ids[i] = WORD_UNKNOWN;
}

static attn_status learn(void *user, int64_t step, double *loss)
{
    struct training *t = user;
    const int64_t steps = t->trainer.steps_per_epoch, epoch = step / steps, first = step % steps * BATCH;
    if (t->ordered != epoch)
        CHECK(batch_order(t->train.lengths, t->train.count, BATCH,
                          (struct stream){(uint64_t)t->options.seed, STREAM_ORDER + (uint64_t)epoch}, t->order));
    t->ordered = epoch;
    const int64_t left = t->train.count - first;
    batch_fill(&t->batch, &t->train, t->order + first, left < BATCH ? left : BATCH);
    hide_words(t, step);
    return network_learn(&t->network, &t->batch, step, loss);
}

/* The share of the test texts that the network classifies rightly. */
static attn_status test(void *user, double *accuracy)
{
    struct training *t = user;
    int64_t right = 0;
    CHECK(batch_order(t->test.lengths, t->test.count, BATCH, (struct stream){0}, t->order));
    t->ordered = -1;
    for (int64_t first = 0; first < t->test.count; first += BATCH) {
        const int64_t left = t->test.count - first;
        batch_fill(&t->batch, &t->test, t->order + first, left < BATCH ? left : BATCH);
        CHECK(network_predict(&t->network, &t->batch));
        right += trainer_count_right(t->network.logits, t->batch.labels, t->batch.count, t->classes.count);
    }
    *accuracy = (double)right / (double)t->test.count;
    return ATTN_OK;
}

/* ---------------------------------------------------------------- the model -- */

static attn_status write_config(const struct training *t)
{
    const struct network_sizes *s = &t->network.sizes;
    char text[512];
    const int size = snprintf(text, sizeof text,
                              "{\n"
                              "  \"model_type\": \"lstm-attention-classifier\",\n"
                              "  \"vocab_size\": %lld,\n"
                              "  \"embedding_size\": %lld,\n"
                              "  \"hidden_size\": %lld,\n"
                              "  \"n_layers\": 1,\n"
                              "  \"bidirectional\": true,\n"
                              "  \"attention_size\": %lld,\n"
                              "  \"classes\": %lld,\n"
                              "  \"pad\": %d,\n"
                              "  \"unk\": %d,\n"
                              "  \"max_length\": %lld,\n"
                              "  \"tests\": %lld\n"
                              "}\n",
                              (long long)s->words, (long long)s->embedding, (long long)s->hidden,
                              (long long)s->attention, (long long)s->classes, WORD_PADDING, WORD_UNKNOWN,
                              (long long)t->test.longest, (long long)t->test.count);
    char *path = config_beside(t->options.out, "config.json");
    const attn_status status = path ? file_write(path, &(struct file_part){text, (size_t)size}, 1) : ATTN_OUT_OF_MEMORY;
    free(path);
    return status;
}

static attn_status write_model(const struct training *t)
{
    char *path = config_beside(t->options.out, "classifier.safetensors");
    attn_status status = path ? parameters_write(&t->network.parameters, path, false, NULL, 0) : ATTN_OUT_OF_MEMORY;
    free(path);
    if (status == ATTN_OK)
        status = file_write_lines(t->options.out, "vocab.txt", t->vocabulary.tokens, t->vocabulary.count);
    if (status == ATTN_OK)
        status =
            file_write_lines(t->options.out, "classes.txt", (const char *const *)t->classes.text, t->classes.count);
    return status == ATTN_OK ? write_config(t) : status;
}

/* ------------------------------------------------------------------ running -- */

static attn_status prepare(struct training *t)
{
    CHECK(read_data(t));
    const int64_t longest = t->test.longest > t->train.longest ? t->test.longest : t->train.longest;
    const int64_t most = t->test.count > t->train.count ? t->test.count : t->train.count;
    t->order = calloc((size_t)most, sizeof *t->order);
    if (!t->order)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for an order of %lld texts", (long long)most);
    t->ordered = -1;
    CHECK(batch_create(&t->batch, BATCH, longest));
    t->network.sizes =
        (struct network_sizes){t->vocabulary.count, EMBEDDING, HIDDEN, ATTENTION, t->classes.count, BATCH, longest};
    t->network.dropout = dropout;
    t->network.seed = (uint64_t)t->options.seed;
    return network_create(&t->network);
}

static void set_trainer(struct training *t)
{
    struct trainer *r = &t->trainer;
    r->program = "train_classify";
    r->title = "Training the text classifier";
    r->options = &t->options;
    r->parameters = &t->network.parameters;
    r->steps_per_epoch = (t->train.count + BATCH - 1) / BATCH;
    r->schedule = attn_schedule_default();
    r->schedule.kind = ATTN_SCHEDULE_COSINE;
    r->schedule.peak = peak_rate;
    r->schedule.steps = t->options.epochs * r->steps_per_epoch;
    r->schedule.warmup = (int64_t)(warmup * (double)r->schedule.steps);
    r->max_norm = max_norm;
    r->weight_decay = weight_decay;
    r->settings[0] = (struct trainer_setting){"set of training texts", (int64_t)t->train.source.digest};
    r->settings[1] = (struct trainer_setting){"set of test texts", (int64_t)t->test.source.digest};
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
        printf("%lld texts, %lld epochs, seed %lld: accuracy on %lld test texts %.2f %%; %lld steps in %.1f s\n",
               (long long)t.train.count, (long long)options->epochs, (long long)options->seed, (long long)t.test.count,
               100 * trainer_accuracy(&t.trainer), (long long)trainer_steps(&t.trainer), trainer_seconds(&t.trainer));
    trainer_close(&t.trainer);
    network_destroy(&t.network);
    batch_free(&t.batch);
    vocabulary_free(&t.vocabulary);
    samples_free(&t.train);
    samples_free(&t.test);
    lines_free(&t.classes);
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
    fprintf(stderr, "train_classify: %s\n", attn_last_error());
    return failure;
}
