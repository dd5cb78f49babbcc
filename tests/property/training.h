/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random problems with what their backward pass reads, and gradients, for the
 * property tests of attn_backward().
 */
#ifndef PROPERTY_TRAINING_H
#define PROPERTY_TRAINING_H

#include "problem.h"

#include "attn/backward.h"

/** Gradients of rows, by number, that of tables by distance, and the bits of all of them. */
enum { DQ, DK, DV, GRADIENTS_OF_ROWS, OF_TABLES = GRADIENTS_OF_ROWS, ALL_GRADIENTS = 15, MAX_HEADS = 8 };

extern const char *const gradient_names[GRADIENTS_OF_ROWS];

/** A problem with what its backward pass reads. Views of it own nothing. */
struct training {
    struct problem p;
    attn_tensor out, lse, d_out, d_lse;  /**< d_lse: data NULL without it */
    attn_dtype types[GRADIENTS_OF_ROWS]; /**< of the gradients */
    float sinks[MAX_HEADS], slopes[MAX_HEADS];
    attn_dropout dropout;
    attn_tensor rel_k, rel_q; /**< f32; data NULL where there is none */
    attn_disentangled disentangled;
};

/** Gradients, contiguous; data NULL where one is not wanted. */
struct gradients {
    attn_tensor of[GRADIENTS_OF_ROWS];
    attn_tensor tables[2]; /**< those of rel_k and rel_q */
};

/** A contiguous tensor of the batch, heads and tokens of a shape. */
attn_tensor training_tensor(attn_dtype dtype, const int64_t shape[4], int64_t channels);

/** The forward pass of a training: out and lse. */
void training_forward(struct training *t);

/** Gradients of out and lse, and options that a problem has not; then the forward pass. */
void training_begin(struct training *t, struct rng *rng);

/** Terms by distance, some with tables that all heads share. */
void training_draw_tables(struct training *t, struct rng *rng);

/** Points params to the tables of this struct, after an assignment. */
void training_bind_tables(struct training *t);

/** A random problem, some of them with long rows, begun. */
void training_draw(struct training *t, struct rng *rng, const char *isa, int features);

void training_free(struct training *t);

/** The backward pass; wanted: bits of the gradients that are. */
struct gradients training_run(const struct training *t, unsigned wanted);
void gradients_free(struct gradients *g);

/**
 * Whether part has the bits of whole from (b, head h, token i) on, as far as it reaches. Says which gradient differs.
 */
int gradients_same_part(const char *what, const struct gradients *whole, int64_t b, const int64_t h[GRADIENTS_OF_ROWS],
                        const int64_t token[GRADIENTS_OF_ROWS], const struct gradients *part);
/** The same of all of them, tables included where both have them. */
int gradients_same(const char *what, const struct gradients *a, const struct gradients *b);

/** The partner of the callback that a training may have. */
attn_score_gradient_callback training_partner;

#endif
