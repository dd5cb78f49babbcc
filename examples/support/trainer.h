/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training: steps of AdamW with clipped gradients, tests after each epoch,
 * a log, and checkpoints after which it goes on bit for bit. What a step learns
 * must follow from its number alone.
 */
#ifndef ATTN_EXAMPLES_TRAINER_H
#define ATTN_EXAMPLES_TRAINER_H

#include "parameters.h"
#include "training_log.h"

/* What the command line of a training has; parsed by training_options(). */
struct training_options {
    const char *data, *out;
    const char *model; /* the folder of a model to begin with, where takes_model */
    bool takes_model;  /* set by the program */
    int64_t seed, epochs;
    int64_t every; /* steps from checkpoint to checkpoint; 0: those of an epoch */
    bool resume;
    bool quiet;
};

/*
 * Reads --data, --out, --model where the program takes one, --seed, --epochs, --checkpoint-every, --resume, --quiet,
 * and --version and --help, which end the program. What is in options are the defaults.
 */
attn_status training_options(struct training_options *options, int argc, char **argv, const char *usage);
/* Lines for the usage of a program, one for each option but --data. */
extern const char training_options_usage[];

/* A number that a training must have in common with the one whose checkpoint it goes on from. */
struct trainer_setting {
    const char *meaning; /* "seed" */
    int64_t value;
};

enum { TRAINER_SETTINGS = 8 };

struct trainer {
    /* Set by the program. */
    const char *program, *title;
    const struct training_options *options;
    struct parameters *parameters;
    int64_t steps_per_epoch;
    attn_schedule schedule; /* of steps_per_epoch * epochs steps */
    double max_norm, weight_decay;
    double beta2;                                      /* of AdamW; 0: 0.999 */
    struct trainer_setting settings[TRAINER_SETTINGS]; /* beside seed and epochs; the last have no meaning */
    void *user;
    attn_status (*learn)(void *user, int64_t step, double *loss); /* gradients of a step, from 0 */
    attn_status (*test)(void *user, double *accuracy);

    /* Its own. */
    struct training_log log;
    char *checkpoint; /* its file */
};

/*
 * Makes the folder, takes the checkpoint if it is to go on from one, and trains. The folder gets log.csv, curve.png and
 * checkpoint.safetensors. Close it afterwards, whatever the status.
 */
attn_status trainer_run(struct trainer *trainer);
void trainer_close(struct trainer *trainer);

/* How many of rows of logits are largest at their labels. */
int64_t trainer_count_right(const float *logits, const int32_t *labels, int64_t rows, int64_t classes);

/* After trainer_run(): the last accuracy, the steps that this program made, and their seconds. */
double trainer_accuracy(const struct trainer *trainer);
int64_t trainer_steps(const struct trainer *trainer);
double trainer_seconds(const struct trainer *trainer);

#endif
