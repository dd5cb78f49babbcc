/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings beside reference ones: how far each is off, and whether what is similar stays similar. */
#ifndef ATTN_EXAMPLES_EMBED_COMPARE_H
#define ATTN_EXAMPLES_EMBED_COMPARE_H

#include "encoder.h"

/* The scalar product of two embeddings, in double. */
double embedding_dot(const float *a, const float *b, int64_t width);

/*
 * Prints the lowest cosine of embeddings[count][width] with those in a file, and the rank correlation (Spearman 1904)
 * of the cosines of all pairs; an error if either is below what a precision promises.
 */
attn_status compare_embeddings(const float *embeddings, int64_t count, int64_t width, const char *spec,
                               enum precision precision);

#endif
