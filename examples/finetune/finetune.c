/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapts a sentence encoder, such as all-MiniLM-L6-v2, to classes of texts. First
 * the encoder stays as it is, and logistic regression on what it pools shows what
 * that gives; then all weights are trained from there. docs/finetune.md is the page.
 *
 * All that is random follows from the seed and from what it is for, so that a
 * training that goes on from a checkpoint ends with the same weights, bit for bit.
 */
#include <stdio.h>
#include <stdlib.h>

#include "batch_order.h"
#include "io/config.h"
#include "file.h"
#include "frozen.h"
#include "settings.h"
#include "trainer.h"

enum { BATCH = 32, EPOCHS = 3, SEED = 2014 };
static const double peak_rate = 1e-4, weight_decay = 0.01, max_norm = 1, warmup = 0.1;
static const float dropout = 0.1f;

/* The streams of random numbers of orders, behind those of the parameters. */
enum { STREAM_ORDER = 1000 };

static const char usage[] = "Usage: finetune --model FOLDER --data FOLDER --out FOLDER [--seed N] [--epochs N]\n"
                            "                [--checkpoint-every STEPS] [--resume]\n"
                            "\n"
                            "Adapts a sentence encoder to the classes of DATA/train.tsv and tests it on\n"
                            "DATA/test.tsv, lines of CLASS TAB TEXT. The defaults are 3 epochs and the seed 2014.\n"
                            "\n"
                            "  -m, --model FOLDER the encoder: config.json, tokenizer.json, model.safetensors,\n"
                            "                     modules.json\n"
                            "  -d, --data FOLDER  the texts\n";

/* A training. */
struct training {
    struct training_options options;
    struct settings settings;
    attn_tokenizer *tokenizer;
    struct token_texts train, test;
    struct lines classes;
    struct adapted_encoder encoder;
    struct token_batch batch;
    struct trainer trainer;
    int64_t *order;  /* of the epoch at work, or of the tests */
    int64_t ordered; /* which epoch that is, or -1 */
};

/* ----------------------------------------------------------------- training -- */

static attn_status learn(void *user, int64_t step, double *loss)
{
    struct training *t = user;
    const int64_t steps = t->trainer.steps_per_epoch, epoch = step / steps, first = step % steps * BATCH;
    if (t->ordered != epoch)
        CHECK(batch_order(t->train.lengths, t->train.count, BATCH,
                          (struct stream){(uint64_t)t->options.seed, STREAM_ORDER + (uint64_t)epoch}, t->order));
    t->ordered = epoch;
    const int64_t left = t->train.count - first;
    token_batch_fill(&t->batch, &t->train, t->order + first, left < BATCH ? left : BATCH);
    return adapted_encoder_learn(&t->encoder, &t->batch, step, loss);
}

/* The share of the test texts that are classified rightly. */
static attn_status test(void *user, double *accuracy)
{
    struct training *t = user;
    int64_t right = 0;
    CHECK(batch_order(t->test.lengths, t->test.count, BATCH, (struct stream){0}, t->order));
    t->ordered = -1;
    for (int64_t first = 0; first < t->test.count; first += BATCH) {
        const int64_t left = t->test.count - first;
        token_batch_fill(&t->batch, &t->test, t->order + first, left < BATCH ? left : BATCH);
        CHECK(adapted_encoder_predict(&t->encoder, &t->batch));
        right += trainer_count_right(t->encoder.logits, t->batch.labels, t->batch.count, t->classes.count);
    }
    *accuracy = (double)right / (double)t->test.count;
    return ATTN_OK;
}

/* ------------------------------------------------------------------ running -- */

static attn_status read_texts(struct token_texts *texts, struct training *t, const char *name, bool may_add)
{
    char *path = config_beside(t->options.data, name);
    const attn_status status =
        path ? token_texts_read(texts, path, t->tokenizer, t->settings.max_tokens, &t->classes, may_add)
             : ATTN_OUT_OF_MEMORY;
    free(path);
    return status;
}

static attn_status make_encoder(struct training *t)
{
    struct adapted_encoder *e = &t->encoder;
    e->config = t->settings.bert;
    e->classes = t->classes.count;
    e->most_texts = BATCH;
    e->longest = t->test.longest > t->train.longest ? t->test.longest : t->train.longest;
    e->dropout = dropout;
    e->seed = (uint64_t)t->options.seed;
    CHECK(token_batch_create(&t->batch, BATCH, e->longest));
    char *path = config_beside(t->options.model, "model.safetensors");
    const attn_status status = path ? adapted_encoder_create(e, path, "") : ATTN_OUT_OF_MEMORY;
    free(path);
    return status;
}

static attn_status prepare(struct training *t)
{
    CHECK(settings_read(&t->settings, t->options.model));
    CHECK(attn_tokenizer_open(&t->tokenizer, t->options.model));
    CHECK(read_texts(&t->train, t, "train.tsv", true));
    CHECK(labelled_texts_sort_classes(&t->train.source, &t->classes));
    CHECK(read_texts(&t->test, t, "test.tsv", false));
    const int64_t most = t->test.count > t->train.count ? t->test.count : t->train.count;
    t->order = calloc((size_t)most, sizeof *t->order);
    if (!t->order)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for an order of %lld texts", (long long)most);
    t->ordered = -1;
    CHECK(make_encoder(t));
    if (t->options.resume)
        return ATTN_OK;
    double frozen;
    CHECK(frozen_fit(&t->encoder, &t->batch, &t->train, &t->test, &frozen));
    printf("the encoder as it is, with logistic regression: accuracy on %lld test texts %.2f %%\n",
           (long long)t->test.count, 100 * frozen);
    fflush(stdout);
    return ATTN_OK;
}

static void set_trainer(struct training *t)
{
    struct trainer *r = &t->trainer;
    r->program = "finetune";
    r->title = "Adapting the sentence encoder";
    r->options = &t->options;
    r->parameters = &t->encoder.parameters;
    r->steps_per_epoch = (t->train.count + BATCH - 1) / BATCH;
    r->schedule = attn_schedule_default();
    r->schedule.kind = ATTN_SCHEDULE_LINEAR;
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

static attn_status write_model(const struct training *t)
{
    char *path = config_beside(t->options.out, "model.safetensors");
    attn_status status = path ? parameters_write(&t->encoder.parameters, path, false, NULL, 0) : ATTN_OUT_OF_MEMORY;
    free(path);
    if (status == ATTN_OK)
        status =
            file_write_lines(t->options.out, "classes.txt", (const char *const *)t->classes.text, t->classes.count);
    return status;
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
    adapted_encoder_destroy(&t.encoder);
    token_batch_free(&t.batch);
    token_texts_free(&t.train);
    token_texts_free(&t.test);
    lines_free(&t.classes);
    attn_tokenizer_close(t.tokenizer);
    free(t.order);
    return status;
}

int main(int argc, char **argv)
{
    struct training_options options = {.seed = SEED, .epochs = EPOCHS, .takes_model = true};
    attn_status status = training_options(&options, argc, argv, usage);
    const int failure = status != ATTN_OK ? 2 : 1;
    if (status == ATTN_OK)
        status = run(&options);
    if (status == ATTN_OK)
        return 0;
    fprintf(stderr, "finetune: %s\n", attn_last_error());
    return failure;
}
