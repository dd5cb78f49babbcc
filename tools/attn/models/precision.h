/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command that say in which precision a model is kept and computed. */
#ifndef ATTN_TOOLS_MODELS_PRECISION_H
#define ATTN_TOOLS_MODELS_PRECISION_H

#include <attn/nn/model.h>

#include "options.h"

/* --precision, and what other options put in its place. */
struct precision {
    attn_linear_format format;
    attn_dtype activations;
};

/* What --help says of --precision. */
#define PRECISION_HELP                                                                                                 \
    "f32, bf16, int8 or int4: what weights are rounded to, and with them\n"                                            \
    "what is multiplied; default: as in the file, and f32"

/*
 * Reads --precision; and, each NULL where a command has none, --multiply, --group and --activations, which change what
 * follows from it.
 */
attn_status precision_read(struct precision *out, const struct option *precision, const struct option *multiply,
                           const struct option *group, const struct option *activations);

#endif
