/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of an attention call from the command line: the options that `run`
 * and `heatmap` share, the arrays they name, and the tensor views and
 * parameters that the library takes.
 */
#ifndef ATTN_TOOLS_INPUTS_H
#define ATTN_TOOLS_INPUTS_H

#include <attn/attn.h>

#include "forms.h"
#include "io/array.h"
#include "options.h"

/* The table of every command that computes begins with these, in this order. */
enum input_option {
    INPUT_HELP,
    INPUT_VERSION,
    INPUT_QUIET,
    INPUT_Q,
    INPUT_K,
    INPUT_LAYOUT,
    INPUT_CAUSAL,
    INPUT_MASK,
    INPUT_KV_LEN,
    INPUT_KV_START,
    INPUT_SCALE,
    INPUT_TEMPERATURE,
    INPUT_QK,
    INPUT_INPUTS,
    INPUT_SUMS,
    INPUT_ISA,
    INPUT_THREADS,
    INPUT_FORMS,
    INPUT_COUNT = INPUT_FORMS + FORM_COUNT
};

/* Fills the first INPUT_COUNT entries of a command's table. */
void inputs_options(struct option *options);
/* Prints them for --help: those before the forms, and the forms in groups. */
void inputs_print_general(FILE *to, const struct option *options);
void inputs_print_forms(FILE *to, const struct option *options);

struct inputs {
    struct option *options; /* the command's table */
    struct array q, k, v, mask;
    int64_t *kv_len, *kv_start; /* [sequences] or NULL */
    struct forms forms;
    int rank; /* of q, k and v: 2, 3 or 4 */
    bool bthd;
    attn_tensor q_view, k_view, v_view, mask_view;
    attn_params params; /* with everything but the requested outputs */
};

/* Reads the values of the options; no file is touched. */
attn_status inputs_parse(struct inputs *inputs, struct option *options);
/* Reads the arrays; v_spec is NULL when no values are wanted. mask_limit bounds the bytes of the mask. */
attn_status inputs_load(struct inputs *inputs, const char *v_spec, uint64_t mask_limit);
void inputs_free(struct inputs *inputs);

/* A view of an array of rank 2 to 4, of floats of any type, as (batch, head, token, channel). */
attn_tensor inputs_view(const struct array *array, bool bthd);
/* The type and shape of an array of rank 2 to 4 that holds the given tensor in the given layout. */
struct array_shape inputs_shape(enum array_dtype dtype, int rank, bool bthd, const int64_t shape[4]);

#endif
