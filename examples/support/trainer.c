/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a training, and its checkpoints. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/config.h"
#include "file.h"

/* -------------------------------------------------------------- checkpoints -- */

/* Seed and epochs, and those of the program. */
enum { ALL_SETTINGS = 2 + TRAINER_SETTINGS, EXTRAS = 1 + TRAINING_LOG_ARRAYS };

static void list_settings(const struct trainer *t, struct trainer_setting all[ALL_SETTINGS])
{
    all[0] = (struct trainer_setting){"seed", t->options->seed};
    all[1] = (struct trainer_setting){"number of epochs", t->options->epochs};
    for (int i = 0; i < TRAINER_SETTINGS; i++)
        all[2 + i] = t->settings[i];
}

static struct array settings_array(int64_t values[ALL_SETTINGS])
{
    return (struct array){.is = {.dtype = ARRAY_I64, .ndim = 1, .shape = {ALL_SETTINGS}},
                          .data = values,
                          .size = ALL_SETTINGS * sizeof *values};
}

static void list_extras(struct extra extras[EXTRAS], struct array *settings, struct array *log)
{
    extras[0] = (struct extra){"training.settings", settings};
    for (int i = 0; i < TRAINING_LOG_ARRAYS; i++)
        extras[1 + i] = (struct extra){training_log_names[i], &log[i]};
}

static attn_status write_checkpoint(const struct trainer *t)
{
    struct trainer_setting all[ALL_SETTINGS];
    int64_t values[ALL_SETTINGS];
    struct array settings = settings_array(values), log[TRAINING_LOG_ARRAYS];
    struct extra extras[EXTRAS];
    list_settings(t, all);
    for (int i = 0; i < ALL_SETTINGS; i++)
        values[i] = all[i].value;
    training_log_arrays(&t->log, log);
    list_extras(extras, &settings, log);
    CHECK(parameters_write(t->parameters, t->checkpoint, true, extras, EXTRAS));
    return training_log_write(&t->log, t->options->out);
}

static attn_status check_settings(const struct trainer *t, const struct array *settings)
{
    struct trainer_setting all[ALL_SETTINGS];
    list_settings(t, all);
    if (settings->is.dtype != ARRAY_I64 || settings->is.ndim != 1 || settings->is.shape[0] != ALL_SETTINGS)
        return io_fail(ATTN_INVALID_FILE, "%s is no checkpoint of %s", t->checkpoint, t->program);
    for (int i = 0; i < ALL_SETTINGS; i++)
        if (((const int64_t *)settings->data)[i] != all[i].value)
            return io_fail(ATTN_INVALID_FILE, "%s is of a training with another %s", t->checkpoint,
                           all[i].meaning ? all[i].meaning : "setting");
    return ATTN_OK;
}

static attn_status resume(struct trainer *t)
{
    struct array settings = {0}, log[TRAINING_LOG_ARRAYS] = {0};
    struct extra extras[EXTRAS];
    list_extras(extras, &settings, log);
    attn_status status = parameters_read(t->parameters, t->checkpoint, extras, EXTRAS);
    if (status == ATTN_OK)
        status = check_settings(t, &settings);
    if (status == ATTN_OK)
        status = training_log_restore(&t->log, log, t->checkpoint);
    array_free(&settings);
    for (int i = 0; i < TRAINING_LOG_ARRAYS; i++)
        array_free(&log[i]);
    if (status == ATTN_OK && !t->options->quiet)
        fprintf(stderr, "%s: goes on after step %lld\n", t->program, (long long)t->log.steps);
    return status;
}

/* ----------------------------------------------------------------- training -- */

static attn_status make_step(struct trainer *t)
{
    const struct parameters *p = t->parameters;
    const int64_t step = t->log.steps;
    double loss, norm, rate;
    attn_adamw_options options = attn_adamw_options_default();
    CHECK(t->learn(t->user, step, &loss));
    CHECK(attn_clip_gradients(p->all, p->count, t->max_norm, &norm, 0));
    CHECK(attn_schedule_rate(&t->schedule, step + 1, &rate));
    options.learning_rate = (float)rate;
    options.beta2 = (float)t->beta2;
    options.weight_decay = (float)t->weight_decay;
    CHECK(attn_adamw_step(p->all, p->count, step + 1, &options));
    training_log_step(&t->log, loss, norm);
    return ATTN_OK;
}

static attn_status train(struct trainer *t)
{
    const int64_t total = t->steps_per_epoch * t->options->epochs, every = t->options->every;
    while (t->log.steps < total) {
        CHECK(make_step(t));
        const bool ends_epoch = t->log.steps % t->steps_per_epoch == 0;
        if (ends_epoch) {
            double accuracy;
            CHECK(t->test(t->user, &accuracy));
            training_log_epoch(&t->log, accuracy);
        }
        if (ends_epoch || (every && t->log.steps % every == 0))
            CHECK(write_checkpoint(t));
    }
    return ATTN_OK;
}

attn_status trainer_run(struct trainer *t)
{
    t->checkpoint = config_beside(t->options->out, "checkpoint.safetensors");
    if (!t->checkpoint)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    if (!t->options->resume && access(t->checkpoint, F_OK) == 0)
        return io_fail(ATTN_INVALID_FILE, "%s is there: --resume goes on from it; remove it to begin anew",
                       t->checkpoint);
    CHECK(file_make_folder(t->options->out));
    t->log = (struct training_log){.program = t->program,
                                   .title = t->title,
                                   .steps_per_epoch = t->steps_per_epoch,
                                   .epochs = t->options->epochs,
                                   .schedule = t->schedule,
                                   .quiet = t->options->quiet};
    CHECK(training_log_open(&t->log));
    if (t->options->resume)
        CHECK(resume(t));
    return train(t);
}

void trainer_close(struct trainer *t)
{
    training_log_close(&t->log);
    free(t->checkpoint);
    t->checkpoint = NULL;
}

double trainer_accuracy(const struct trainer *t)
{
    return (double)t->log.accuracies[t->log.evaluations - 1];
}

int64_t trainer_steps(const struct trainer *t)
{
    return t->log.steps - t->log.first;
}

double trainer_seconds(const struct trainer *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - t->log.began.tv_sec) + 1e-9 * (double)(now.tv_nsec - t->log.began.tv_nsec);
}

int64_t trainer_count_right(const float *logits, const int32_t *labels, int64_t rows, int64_t classes)
{
    int64_t right = 0;
    for (int64_t r = 0; r < rows; r++, logits += classes) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            best = logits[c] > logits[best] ? c : best;
        right += best == labels[r];
    }
    return right;
}
