/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file training.h
 * @brief The parts of training that are no layers: a loss, clipping of gradients, AdamW, learning rates.
 *
 * Nothing here allocates, and results have the same bits whatever the number of threads. num_threads is that of
 * attn_params.
 */
#ifndef ATTN_NN_TRAINING_H
#define ATTN_NN_TRAINING_H

#include "attn/nn/tensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Cross-entropy of rows of logits with their labels, and its gradient.
 *
 * The loss of a row is -sum_c t_c log p_c with p = softmax(logits) and the targets t of label smoothing (Szegedy et al.
 * 2016, section 7): t_c = s / classes, and 1 - s more for the row's label. A row with a negative label is left out: it
 * is not read, and its gradient is 0. Arithmetic is in f32 on differences from the row's largest logit, sums of rows
 * are in double, and a gradient is rounded once: in bf16 it is the one in f32, rounded.
 *
 * A logit may be -Inf, the probability is 0 then; if its target is not 0 the loss is +Inf. A row that counts and has a
 * NaN, +Inf, or nothing but -Inf makes the loss NaN, and its own gradients.
 *
 * @param logits f32, bf16 or f16 (B, 1, T, classes), channels contiguous, 1 class or more
 * @param labels [B*T] 0 to classes - 1, or negative
 * @param label_smoothing s, 0 to 1
 * @param loss   the mean over the rows that count, 0 if there are none; NULL: not wanted
 * @param d_logits f32, bf16 or f16 (B, 1, T, classes), written: the gradient of that mean. May be logits (of one type
 *               then), and must not otherwise overlap an input. NULL: not wanted; loss and d_logits are not both NULL
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cross_entropy(const attn_tensor *logits, const int32_t *labels, float label_smoothing,
                                        double *loss, const attn_tensor *d_logits, int num_threads);

/**
 * An array of parameters with what training keeps for each: contiguous f32 arrays of the caller's of count elements.
 * All arrays of all parameters of a call lie apart: parameters that two layers share are in the list once.
 */
typedef struct attn_parameter {
    float *values;    /**< for attn_adamw_step() alone */
    float *gradients; /**< for all calls */
    float *mean;      /**< AdamW's first moment, zeros at the beginning; for attn_adamw_step() alone */
    float *square;    /**< AdamW's second moment, likewise */
    int64_t count;    /**< 0 or more; with 0 the arrays may be NULL */
    int decays;       /**< not 0: weight decay applies. Biases and norms commonly have none */
} attn_parameter;

/**
 * The Euclidean norm of all gradients together, with sums in double: finite for finite gradients, else Inf or NaN.
 *
 * @param parameters [num]; their gradients are read
 * @param num        0 or more
 * @param norm       set
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_gradient_norm(const attn_parameter *parameters, int64_t num, double *norm, int num_threads);

/**
 * Scales all gradients by max_norm / norm if their norm, that of attn_gradient_norm(), is larger than max_norm (Pascanu
 * et al. 2013, algorithm 1). If it is Inf or NaN they stay as they are, and *norm tells: skip the step then.
 *
 * @param parameters [num]; their gradients are read and scaled
 * @param num        0 or more
 * @param max_norm   0 or more; with INFINITY nothing is scaled
 * @param norm       set to the norm before scaling; NULL: not wanted
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_clip_gradients(const attn_parameter *parameters, int64_t num, double max_norm, double *norm,
                                         int num_threads);

/** Options of attn_adamw_step(). Zero is every field's default except struct_size. */
typedef struct attn_adamw_options {
    size_t struct_size;  /**< sizeof of this struct as the caller compiled it */
    float learning_rate; /**< 0 or more: of this step, that of attn_schedule_rate() say */
    float beta1;         /**< 0 stands for 0.9; less than 1 */
    float beta2;         /**< 0 stands for 0.999; less than 1 */
    float eps;           /**< 0 stands for 1e-8 */
    float weight_decay;  /**< 0 or more */
    int num_threads;     /**< as in attn_params */
} attn_adamw_options;

/** Options with every field at its default. @since 0.1, experimental */
static inline attn_adamw_options attn_adamw_options_default(void)
{
    attn_adamw_options o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    return o;
}

/**
 * One step of AdamW (Loshchilov & Hutter 2019, algorithm 2), with the factors of PyTorch's torch.optim.AdamW: for the
 * gradient g of each value w, with mean m and square v,
 *
 *     m = m + (1 - beta1) (g - m)
 *     v = beta2 v + (1 - beta2) g²
 *     u = m / (1 - beta1^step) / (sqrt(v) / sqrt(1 - beta2^step) + eps)
 *     w = w - (learning_rate weight_decay w + learning_rate u)
 *
 * without the first product if the parameter does not decay; in f32, with factors that are computed in double and
 * rounded once. The bits are the same on all instruction sets.
 *
 * @param parameters [num]; values, mean and square are replaced
 * @param num        0 or more
 * @param step       1 for the first step, then 2, 3, ...
 * @param options    as above; NULL is the default, with a learning rate of 0
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_adamw_step(const attn_parameter *parameters, int64_t num, int64_t step,
                                     const attn_adamw_options *options);

/** What the learning rate does after warm-up. */
typedef enum attn_schedule_kind {
    ATTN_SCHEDULE_CONSTANT = 0, /**< stays at peak */
    ATTN_SCHEDULE_LINEAR = 1,   /**< goes straight to final */
    ATTN_SCHEDULE_COSINE = 2,   /**< goes to final along half a cosine (Loshchilov & Hutter 2017, without restarts) */
    ATTN_SCHEDULE_INVERSE_SQRT = 3 /**< peak sqrt(max(warmup, 1) / step) (Vaswani et al. 2017, section 5.3) */
} attn_schedule_kind;

/** The last value of attn_schedule_kind. */
#define ATTN_SCHEDULE_LAST ATTN_SCHEDULE_INVERSE_SQRT

/** Learning rates of a training. Zero is every field's default except struct_size. */
typedef struct attn_schedule {
    size_t struct_size;      /**< sizeof of this struct as the caller compiled it */
    attn_schedule_kind kind; /**< what comes after warm-up */
    double peak;             /**< the rate at the end of warm-up, 0 or more */
    double final;            /**< linear and cosine: the rate at step steps and after it; elsewhere not looked at */
    int64_t warmup;          /**< steps in which the rate rises from 0, at step 0, to peak; 0: none */
    int64_t steps; /**< linear and cosine: where final is reached, 1 or more and not before the end of warm-up;
                      elsewhere not looked at */
} attn_schedule;

/** A schedule with every field at its default. @since 0.1, experimental */
static inline attn_schedule attn_schedule_default(void)
{
    attn_schedule s;
    memset(&s, 0, sizeof s);
    s.struct_size = sizeof s;
    return s;
}

/**
 * The learning rate of a step: peak step / warmup before step warmup, then what kind says. Steps that are counted from
 * 1 have the rates that the papers give; step 0 without warm-up has peak.
 *
 * @param schedule not NULL
 * @param step     0 or more
 * @param rate     set
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_schedule_rate(const attn_schedule *schedule, int64_t step, double *rate);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_TRAINING_H */
