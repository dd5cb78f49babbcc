/* SPDX-License-Identifier: Apache-2.0 */
/* The line on the terminal, log.csv, curve.png, and what a checkpoint keeps of them. */
#include "training_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/config.h"
#include "file.h"
#include "plot/curves.h"
#include "plot/picture.h"

/* Points of the curve of losses: each is a mean of neighbouring steps. */
enum { POINTS = 200, BAR = 24 };

const char *const training_log_names[TRAINING_LOG_ARRAYS] = {"log.losses", "log.norms", "log.accuracies"};

static int64_t total_of(const struct training_log *log)
{
    return log->steps_per_epoch * log->epochs;
}

attn_status training_log_open(struct training_log *log)
{
    const size_t total = (size_t)total_of(log) + 1;
    log->losses = calloc(total, sizeof *log->losses);
    log->norms = calloc(total, sizeof *log->norms);
    log->accuracies = calloc((size_t)log->epochs + 1, sizeof *log->accuracies);
    clock_gettime(CLOCK_MONOTONIC, &log->began);
    log->shown = log->began;
    if (!log->losses || !log->norms || !log->accuracies)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the losses of %lld steps", (long long)total_of(log));
    return ATTN_OK;
}

void training_log_close(struct training_log *log)
{
    free(log->losses);
    free(log->norms);
    free(log->accuracies);
    log->losses = log->norms = log->accuracies = NULL;
}

/* ----------------------------------------------------------------- terminal -- */

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + 1e-9 * (double)(to->tv_nsec - from->tv_nsec);
}

static void show(struct training_log *log)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t total = total_of(log);
    if (log->quiet || !isatty(STDERR_FILENO) || (log->steps < total && seconds_between(&log->shown, &now) < 0.1))
        return;
    log->shown = now;
    char bar[BAR + 1] = {0};
    for (int i = 0; i < BAR; i++)
        bar[i] = i < log->steps * BAR / total ? '#' : '.';
    const double each = seconds_between(&log->began, &now) / (double)(log->steps - log->first);
    fprintf(stderr, "\r%s: [%s] step %lld of %lld, loss %.3f, %.3g steps/s, %.0f s left \x1b[K", log->program, bar,
            (long long)log->steps, (long long)total, (double)log->losses[log->steps - 1], 1 / each,
            each * (double)(total - log->steps));
    if (log->steps == total)
        fputs("\r\x1b[K", stderr);
}

void training_log_step(struct training_log *log, double loss, double norm)
{
    log->losses[log->steps] = (float)loss;
    log->norms[log->steps++] = (float)norm;
    show(log);
}

void training_log_epoch(struct training_log *log, double accuracy)
{
    double sum = 0;
    for (int64_t i = 0; i < log->steps_per_epoch; i++)
        sum += (double)log->losses[log->evaluations * log->steps_per_epoch + i];
    log->accuracies[log->evaluations++] = (float)accuracy;
    if (log->quiet)
        return;
    if (isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
    fprintf(stderr, "%s: epoch %lld of %lld: mean loss %.4f, accuracy %.2f %%\n", log->program,
            (long long)log->evaluations, (long long)log->epochs, sum / (double)log->steps_per_epoch, 100 * accuracy);
}

/* -------------------------------------------------------------------- files -- */

static attn_status write_rows(const struct training_log *log, FILE *to)
{
    fputs("step,epoch,learning_rate,gradient_norm,loss,accuracy\n", to);
    for (int64_t i = 0; i < log->steps; i++) {
        double rate;
        CHECK(attn_schedule_rate(&log->schedule, i + 1, &rate));
        const int64_t epoch = i / log->steps_per_epoch;
        fprintf(to, "%lld,%lld,%.9g,%.9g,%.9g,", (long long)i + 1, (long long)epoch + 1, rate, (double)log->norms[i],
                (double)log->losses[i]);
        if ((i + 1) % log->steps_per_epoch == 0 && epoch < log->evaluations)
            fprintf(to, "%.9g", (double)log->accuracies[epoch]);
        fputc('\n', to);
    }
    return ATTN_OK;
}

static attn_status write_csv(const struct training_log *log, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    attn_status status = write_rows(log, memory);
    if (fclose(memory) != 0 && status == ATTN_OK)
        status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    if (status == ATTN_OK)
        status = file_write(path, &(struct file_part){text, size}, 1);
    free(text);
    return status;
}

static attn_status write_picture(const struct training_log *log, const char *path)
{
    double x[2][POINTS + 1], y[2][POINTS + 1];
    const int64_t width = (log->steps + POINTS - 1) / POINTS;
    int64_t points = 0, epochs = 0;
    for (int64_t first = 0; first < log->steps; first += width, points++) {
        const int64_t end = first + width < log->steps ? first + width : log->steps;
        double sum = 0;
        for (int64_t i = first; i < end; i++)
            sum += (double)log->losses[i];
        x[0][points] = (double)(first + end) / 2;
        y[0][points] = sum / (double)(end - first);
    }
    const int64_t stride = (log->evaluations + POINTS - 1) / POINTS;
    for (int64_t e = 0; e < log->evaluations; e += stride, epochs++) {
        x[1][epochs] = (double)((e + 1) * log->steps_per_epoch);
        y[1][epochs] = 100 * (double)log->accuracies[e];
    }
    char subtitle[80];
    snprintf(subtitle, sizeof subtitle, "%lld of %lld steps, %lld of %lld epochs", (long long)log->steps,
             (long long)total_of(log), (long long)log->evaluations, (long long)log->epochs);
    const struct curve curve[] = {
        {.name = "loss of the training texts", .x = x[0], .y = y[0], .count = points},
        {.name = "accuracy on the test texts in %", .x = x[1], .y = y[1], .count = epochs, .marks = true},
    };
    struct canvas canvas;
    attn_status status = plot_curves(&canvas, &(struct curves){.title = log->title,
                                                               .subtitle = subtitle,
                                                               .x_name = "step",
                                                               .curve = curve,
                                                               .panels = 2,
                                                               .last = (double)total_of(log)});
    struct picture_target target = {.path = NULL};
    if (status == ATTN_OK)
        status = picture_target(&target, path);
    if (status == ATTN_OK)
        status = picture_write(&canvas, &target);
    picture_target_free(&target);
    canvas_free(&canvas);
    return status;
}

attn_status training_log_write(const struct training_log *log, const char *folder)
{
    char *csv = config_beside(folder, "log.csv"), *picture = config_beside(folder, "curve.png");
    attn_status status = csv && picture ? write_csv(log, csv) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK)
        status = write_picture(log, picture);
    free(csv);
    free(picture);
    return status;
}

/* -------------------------------------------------------------- checkpoints -- */

static struct array array_of(float *values, int64_t count)
{
    return (struct array){.is = {.dtype = ARRAY_F32, .ndim = 1, .shape = {count}},
                          .data = values,
                          .size = (size_t)count * sizeof *values};
}

void training_log_arrays(const struct training_log *log, struct array arrays[TRAINING_LOG_ARRAYS])
{
    arrays[0] = array_of(log->losses, log->steps);
    arrays[1] = array_of(log->norms, log->steps);
    arrays[2] = array_of(log->accuracies, log->evaluations);
}

attn_status training_log_restore(struct training_log *log, const struct array arrays[TRAINING_LOG_ARRAYS],
                                 const char *path)
{
    const int64_t most[TRAINING_LOG_ARRAYS] = {total_of(log), total_of(log), log->epochs};
    float *const to[TRAINING_LOG_ARRAYS] = {log->losses, log->norms, log->accuracies};
    for (int i = 0; i < TRAINING_LOG_ARRAYS; i++)
        if (arrays[i].is.dtype != ARRAY_F32 || arrays[i].is.ndim != 1 || arrays[i].is.shape[0] > most[i] ||
            (i == 1 && arrays[1].is.shape[0] != arrays[0].is.shape[0]))
            return io_fail(ATTN_INVALID_FILE, "%s: %s is not that of a training of %lld steps in %lld epochs", path,
                           training_log_names[i], (long long)total_of(log), (long long)log->epochs);
    for (int i = 0; i < TRAINING_LOG_ARRAYS; i++)
        memcpy(to[i], arrays[i].data, arrays[i].size);
    log->steps = log->first = arrays[0].is.shape[0];
    log->evaluations = arrays[2].is.shape[0];
    return ATTN_OK;
}
