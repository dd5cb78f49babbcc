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
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "file.h"
#include "network.h"
#include "training_log.h"

enum { BATCH = 64, LEAST_COUNT = 2, EMBEDDING = 64, HIDDEN = 64, ATTENTION = 64, EPOCHS = 6, SEED = 2014 };
static const double peak_rate = 5e-3, weight_decay = 0.05, max_norm = 1, warmup = 0.1, hide = 0.1;
static const float dropout = 0.65f;

/* Streams of random numbers behind those of the parameters. */
enum { STREAM_ORDER = 1000, STREAM_HIDE = 1000000 };

struct options {
    const char *data, *out;
    int64_t seed, epochs, every;
    bool resume;
};

static void usage(void)
{
    printf("Usage: train_classify --data FOLDER --out FOLDER [--seed N] [--epochs N]\n"
           "                      [--checkpoint-every STEPS] [--resume]\n"
           "\n"
           "Trains a text classifier on FOLDER/train.tsv and tests it on FOLDER/test.tsv, lines\n"
           "of CLASS TAB TEXT, such as examples/train/run writes. Then classify --model FOLDER uses it.\n"
           "\n"
           "  -d, --data FOLDER  the texts\n"
           "  -o, --out FOLDER   where the model goes, with log.csv, curve.png and checkpoint.safetensors\n"
           "  -s, --seed N       of weights, order and dropout (default: %d)\n"
           "  -e, --epochs N     times that every text is read (default: %d)\n"
           "  -c, --checkpoint-every STEPS  write a checkpoint after so many steps (default: each epoch)\n"
           "  -r, --resume       go on from the checkpoint\n"
           "  -h, --help         print this text\n",
           SEED, EPOCHS);
}

/* A training. */
struct training {
    struct options options;
    struct samples train, test;
    struct lines classes;
    struct vocabulary vocabulary;
    struct network network;
    struct batch batch;
    struct training_log log;
    int64_t *order;   /* of the epoch at work, or of the tests */
    int64_t ordered;  /* which epoch that is, or -1 */
    char *checkpoint; /* its file */
};

/* ------------------------------------------------------------------ the data -- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static attn_status read_samples(struct samples *samples, const char *folder, const char *name, struct lines *classes,
                                bool may_add)
{
    char *path = config_beside(folder, name);
    const attn_status status = path ? samples_read(samples, path, classes, may_add) : ATTN_OUT_OF_MEMORY;
    free(path);
    return status;
}

/* Classes are numbered in the order of their names, whichever comes first in the file. */
static attn_status read_data(struct training *t)
{
    CHECK(read_samples(&t->train, t->options.data, "train.tsv", &t->classes, true));
    int32_t numbers[256];
    char *names[256];
    if (t->classes.count > 256)
        return io_fail(ATTN_INVALID_FILE, "%s/train.tsv has %lld classes; expected at most 256", t->options.data,
                       (long long)t->classes.count);
    memcpy(names, t->classes.text, (size_t)t->classes.count * sizeof *names);
    qsort(names, (size_t)t->classes.count, sizeof *names, by_name);
    for (int64_t i = 0; i < t->classes.count; i++)
        for (int64_t j = 0; j < t->classes.count; j++)
            if (t->classes.text[i] == names[j])
                numbers[i] = (int32_t)j;
    for (int64_t i = 0; i < t->train.count; i++)
        t->train.labels[i] = numbers[t->train.labels[i]];
    for (int64_t i = 0; i < t->classes.count; i++) {
        t->classes.text[i] = names[i];
        t->classes.size[i] = strlen(names[i]);
    }
    CHECK(read_samples(&t->test, t->options.data, "test.tsv", &t->classes, false));
    CHECK(samples_vocabulary(&t->train, LEAST_COUNT, &t->vocabulary));
    samples_number(&t->train, &t->vocabulary);
    samples_number(&t->test, &t->vocabulary);
    return ATTN_OK;
}

/* -------------------------------------------------------------- checkpoints -- */

enum { SETTINGS = 5 };

/* What a training that goes on must have in common with the one before. */
static void settings_of(const struct training *t, int64_t settings[SETTINGS])
{
    settings[0] = t->options.seed;
    settings[1] = t->options.epochs;
    settings[2] = t->train.count;
    settings[3] = (int64_t)t->train.digest;
    settings[4] = (int64_t)t->test.digest;
}

static struct array settings_array(int64_t *settings)
{
    return (struct array){.is = {.dtype = ARRAY_I64, .ndim = 1, .shape = {SETTINGS}},
                          .data = settings,
                          .size = SETTINGS * sizeof *settings};
}

static void list_extras(struct extra extras[1 + TRAINING_LOG_ARRAYS], struct array *settings, struct array *log)
{
    extras[0] = (struct extra){"training.settings", settings};
    for (int i = 0; i < TRAINING_LOG_ARRAYS; i++)
        extras[1 + i] = (struct extra){training_log_names[i], &log[i]};
}

static attn_status write_checkpoint(const struct training *t)
{
    int64_t values[SETTINGS];
    struct array settings = settings_array(values), log[TRAINING_LOG_ARRAYS];
    struct extra extras[1 + TRAINING_LOG_ARRAYS];
    settings_of(t, values);
    training_log_arrays(&t->log, log);
    list_extras(extras, &settings, log);
    CHECK(parameters_write(&t->network.parameters, t->checkpoint, true, extras, 1 + TRAINING_LOG_ARRAYS));
    return training_log_write(&t->log, t->options.out);
}

static attn_status take_checkpoint(struct training *t, const struct array *settings, const struct array *log)
{
    static const char *const meaning[SETTINGS] = {"seed", "number of epochs", "number of texts", "training texts",
                                                  "test texts"};
    int64_t values[SETTINGS];
    settings_of(t, values);
    if (settings->is.dtype != ARRAY_I64 || settings->size != sizeof values)
        return io_fail(ATTN_INVALID_FILE, "%s is no checkpoint of this program", t->checkpoint);
    for (int i = 0; i < SETTINGS; i++)
        if (((const int64_t *)settings->data)[i] != values[i])
            return io_fail(ATTN_INVALID_FILE, "%s is of a training with another %s", t->checkpoint, meaning[i]);
    return training_log_restore(&t->log, log, t->checkpoint);
}

static attn_status resume(struct training *t)
{
    struct array settings = {0}, log[TRAINING_LOG_ARRAYS] = {0};
    struct extra extras[1 + TRAINING_LOG_ARRAYS];
    list_extras(extras, &settings, log);
    attn_status status = parameters_read(&t->network.parameters, t->checkpoint, extras, 1 + TRAINING_LOG_ARRAYS);
    if (status == ATTN_OK)
        status = take_checkpoint(t, &settings, log);
    array_free(&settings);
    for (int i = 0; i < TRAINING_LOG_ARRAYS; i++)
        array_free(&log[i]);
    if (status == ATTN_OK)
        fprintf(stderr, "train_classify: goes on after step %lld\n", (long long)t->log.steps);
    return status;
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

static attn_status make_step(struct training *t)
{
    const int64_t step = t->log.steps, epoch = step / t->log.steps_per_epoch,
                  first = step % t->log.steps_per_epoch * BATCH;
    const struct parameters *p = &t->network.parameters;
    if (t->ordered != epoch)
        CHECK(samples_shuffle(&t->train, BATCH,
                              (struct stream){(uint64_t)t->options.seed, STREAM_ORDER + (uint64_t)epoch}, t->order));
    t->ordered = epoch;
    const int64_t left = t->train.count - first;
    batch_fill(&t->batch, &t->train, t->order + first, left < BATCH ? left : BATCH);
    hide_words(t, step);

    double loss, norm, rate;
    attn_adamw_options options = attn_adamw_options_default();
    CHECK(network_learn(&t->network, &t->batch, step, &loss));
    CHECK(attn_clip_gradients(p->all, p->count, max_norm, &norm, 0));
    CHECK(attn_schedule_rate(&t->log.schedule, step + 1, &rate));
    options.learning_rate = (float)rate;
    options.weight_decay = (float)weight_decay;
    CHECK(attn_adamw_step(p->all, p->count, step + 1, &options));
    training_log_step(&t->log, loss, norm);
    return ATTN_OK;
}

/* The share of the test texts that the network classifies rightly. */
static attn_status test(struct training *t, double *accuracy)
{
    int64_t right = 0;
    const int64_t classes = t->classes.count;
    CHECK(samples_shuffle(&t->test, BATCH, (struct stream){0}, t->order));
    t->ordered = -1;
    for (int64_t first = 0; first < t->test.count; first += BATCH) {
        const int64_t left = t->test.count - first;
        batch_fill(&t->batch, &t->test, t->order + first, left < BATCH ? left : BATCH);
        CHECK(network_predict(&t->network, &t->batch));
        for (int64_t i = 0; i < t->batch.count; i++) {
            const float *logits = t->network.logits + i * classes;
            int64_t best = 0;
            for (int64_t c = 1; c < classes; c++)
                best = logits[c] > logits[best] ? c : best;
            right += best == t->batch.labels[i];
        }
    }
    *accuracy = (double)right / (double)t->test.count;
    return ATTN_OK;
}

static attn_status train(struct training *t)
{
    const int64_t total = t->log.steps_per_epoch * t->log.epochs;
    while (t->log.steps < total) {
        CHECK(make_step(t));
        const bool ends_epoch = t->log.steps % t->log.steps_per_epoch == 0;
        if (ends_epoch) {
            double accuracy;
            CHECK(test(t, &accuracy));
            training_log_epoch(&t->log, accuracy);
        }
        if (ends_epoch || (t->options.every && t->log.steps % t->options.every == 0))
            CHECK(write_checkpoint(t));
    }
    return ATTN_OK;
}

/* ---------------------------------------------------------------- the model -- */

static attn_status write_lines(const char *folder, const char *name, const char *const *lines, int64_t count)
{
    char *path = config_beside(folder, name), *text = NULL;
    size_t size = 0;
    FILE *memory = path ? open_memstream(&text, &size) : NULL;
    for (int64_t i = 0; memory && i < count; i++)
        fprintf(memory, "%s\n", lines[i]);
    attn_status status =
        memory && fclose(memory) == 0 ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", name);
    if (status == ATTN_OK)
        status = file_write(path, &(struct file_part){text, size}, 1);
    free(text);
    free(path);
    return status;
}

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
        status = write_lines(t->options.out, "vocab.txt", t->vocabulary.tokens, t->vocabulary.count);
    if (status == ATTN_OK)
        status = write_lines(t->options.out, "classes.txt", (const char *const *)t->classes.text, t->classes.count);
    return status == ATTN_OK ? write_config(t) : status;
}

/* ------------------------------------------------------------------ running -- */

static attn_status prepare(struct training *t)
{
    t->checkpoint = config_beside(t->options.out, "checkpoint.safetensors");
    if (!t->checkpoint)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    if (!t->options.resume && access(t->checkpoint, F_OK) == 0)
        return io_fail(ATTN_INVALID_FILE, "%s is there: --resume goes on from it; remove it to begin anew",
                       t->checkpoint);
    CHECK(read_data(t));
    CHECK(file_make_folder(t->options.out));
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
    CHECK(network_create(&t->network));
    t->log.program = "train_classify";
    t->log.title = "Training the text classifier";
    t->log.epochs = t->options.epochs;
    t->log.steps_per_epoch = (t->train.count + BATCH - 1) / BATCH;
    t->log.schedule = attn_schedule_default();
    t->log.schedule.kind = ATTN_SCHEDULE_COSINE;
    t->log.schedule.peak = peak_rate;
    t->log.schedule.steps = t->log.epochs * t->log.steps_per_epoch;
    t->log.schedule.warmup = (int64_t)(warmup * (double)t->log.schedule.steps);
    return training_log_open(&t->log);
}

static attn_status run(const struct options *options)
{
    struct training t = {.options = *options};
    attn_status status = prepare(&t);
    if (status == ATTN_OK && options->resume)
        status = resume(&t);
    const int64_t first = t.log.steps;
    if (status == ATTN_OK)
        status = train(&t);
    if (status == ATTN_OK)
        status = write_model(&t);
    if (status == ATTN_OK) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        printf("%lld texts, %lld epochs, seed %lld: accuracy on %lld test texts %.2f %%; %lld steps in %.1f s\n",
               (long long)t.train.count, (long long)options->epochs, (long long)options->seed, (long long)t.test.count,
               100 * (double)t.log.accuracies[t.log.evaluations - 1], (long long)(t.log.steps - first),
               (double)(now.tv_sec - t.log.began.tv_sec) + 1e-9 * (double)(now.tv_nsec - t.log.began.tv_nsec));
    }
    training_log_close(&t.log);
    network_destroy(&t.network);
    batch_free(&t.batch);
    vocabulary_free(&t.vocabulary);
    samples_free(&t.train);
    samples_free(&t.test);
    lines_free(&t.classes);
    free(t.order);
    free(t.checkpoint);
    return status;
}

static attn_status take_number(int64_t *number, const char *option, const char *text, int64_t least)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > 1000000000)
        return io_fail(ATTN_INVALID_ARGUMENT, "--%s is '%s'; expected a number from %lld to 1000000000", option, text,
                       (long long)least);
    *number = value;
    return ATTN_OK;
}

static attn_status parse(struct options *o, int argc, char **argv)
{
    static const struct option known[] = {{"data", 1, NULL, 'd'},
                                          {"out", 1, NULL, 'o'},
                                          {"seed", 1, NULL, 's'},
                                          {"epochs", 1, NULL, 'e'},
                                          {"checkpoint-every", 1, NULL, 'c'},
                                          {"resume", 0, NULL, 'r'},
                                          {"help", 0, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "d:o:s:e:c:rh", known, NULL)) != -1) {
        switch (option) {
        case 'd':
            o->data = optarg;
            break;
        case 'o':
            o->out = optarg;
            break;
        case 's':
            CHECK(take_number(&o->seed, "seed", optarg, 0));
            break;
        case 'e':
            CHECK(take_number(&o->epochs, "epochs", optarg, 1));
            break;
        case 'c':
            CHECK(take_number(&o->every, "checkpoint-every", optarg, 1));
            break;
        case 'r':
            o->resume = true;
            break;
        case 'h':
            usage();
            exit(0);
        default:
            return io_fail(ATTN_INVALID_ARGUMENT, "see --help");
        }
    }
    if (optind < argc)
        return io_fail(ATTN_INVALID_ARGUMENT, "'%s' is too much; see --help", argv[optind]);
    if (!o->data || !o->out)
        return io_fail(ATTN_INVALID_ARGUMENT, "no %s is given; expected --data FOLDER and --out FOLDER",
                       o->data ? "--out" : "--data");
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = SEED, .epochs = EPOCHS};
    attn_status status = parse(&options, argc, argv);
    const int failure = status != ATTN_OK ? 2 : 1;
    if (status == ATTN_OK)
        status = run(&options);
    if (status == ATTN_OK)
        return 0;
    fprintf(stderr, "train_classify: %s\n", attn_last_error());
    return failure;
}
