/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a training tells about itself: a line on the terminal while it runs, and
 * files with the loss of every step and the accuracy after every epoch, as CSV
 * and as a picture.
 */
#ifndef ATTN_EXAMPLES_TRAINING_LOG_H
#define ATTN_EXAMPLES_TRAINING_LOG_H

#include <attn/nn.h>
#include <time.h>

#include "io/array.h"

struct training_log {
    const char *program, *title;
    int64_t steps_per_epoch, epochs;
    attn_schedule schedule; /* of the learning rates */
    int64_t steps;          /* that there are losses and norms for */
    int64_t evaluations;    /* epochs that there are accuracies for */
    float *losses, *norms;  /* [steps_per_epoch * epochs] */
    float *accuracies;      /* [epochs] */
    struct timespec began, shown;
    int64_t first; /* steps that were there when the program began */
    bool quiet;    /* nothing is told but by files */
};

/* program, title, steps_per_epoch, epochs, schedule and quiet are set. */
attn_status training_log_open(struct training_log *log);
void training_log_close(struct training_log *log);

/* Adds a step. On a terminal the line shows it, a few times a second, unless quiet. */
void training_log_step(struct training_log *log, double loss, double norm);
/* Adds the accuracy after an epoch, and says so, unless quiet. */
void training_log_epoch(struct training_log *log, double accuracy);

/* Writes FOLDER/log.csv and FOLDER/curve.png. */
attn_status training_log_write(const struct training_log *log, const char *folder);

/* The arrays that a checkpoint keeps, "log.losses", "log.norms", "log.accuracies", in this order. */
enum { TRAINING_LOG_ARRAYS = 3 };
extern const char *const training_log_names[TRAINING_LOG_ARRAYS];
void training_log_arrays(const struct training_log *log, struct array arrays[TRAINING_LOG_ARRAYS]);
/* Takes them back. path is for sentences. */
attn_status training_log_restore(struct training_log *log, const struct array arrays[TRAINING_LOG_ARRAYS],
                                 const char *path);

#endif
