/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of attention that `run` computes besides the softmax of q·k: the
 * values of --kind, the options that belong to them, and the calls of the
 * library that they are. forms.h has what changes the softmax itself.
 */
#ifndef ATTN_TOOLS_KINDS_H
#define ATTN_TOOLS_KINDS_H

#include <attn/attn.h>
#include <attn/linear_attention.h>

#include "inputs.h"
#include "io/array.h"
#include "options.h"

/* The values of --kind. */
enum kind {
    KIND_SOFTMAX,
    KIND_ADDITIVE,
    KIND_LINEAR,
    KIND_GATED,
    KIND_DELTA,
    KIND_GATED_DELTA,
    KIND_PERFORMER,
    KIND_LINFORMER,
    KIND_COUNT
};

extern const char *const kind_names[KIND_COUNT];

/* In the order of --help. */
enum kind_option {
    OPTION_KIND,
    OPTION_WQ,
    OPTION_WK,
    OPTION_SCORE_V,
    OPTION_SCORE_BIAS,
    OPTION_DECAY,
    OPTION_BETA,
    OPTION_STATE_IN,
    OPTION_STATE_OUT,
    OPTION_RESETS,
    OPTION_FEATURE_MAP,
    OPTION_NORMALISE,
    OPTION_BIDIRECTIONAL,
    OPTION_FEATURES,
    OPTION_PROJECTION,
    OPTION_PROJECT_K,
    OPTION_PROJECT_V,
    KIND_OPTIONS
};

extern const struct option kind_options[KIND_OPTIONS];

struct kinds {
    enum kind kind;
    const struct option *options; /* KIND_OPTIONS of the command's table */
    attn_feature_map map;
    int64_t features;
    struct array arrays[KIND_OPTIONS]; /* empty where an option was not given, or names no input */
    attn_tensor views[KIND_OPTIONS];
};

void kinds_print_help(FILE *to, const struct option *options);

/*
 * Reads the values of the options, and refuses every option of the command's table, of count entries, that has no
 * meaning with the kind. Those of kind_options begin at own. No file is touched.
 */
attn_status kinds_parse(struct kinds *kinds, const struct option *table, int count, const struct option *own);
/* Whether the option names a file that is read. */
bool kinds_reads(enum kind_option option);
/* Reads the arrays; those that have tokens are in the layout of q. */
attn_status kinds_load(struct kinds *kinds, bool bthd);
void kinds_free(struct kinds *kinds);
/* What was read, or NULL. */
const attn_tensor *kinds_tensor(const struct kinds *kinds, enum kind_option option);

/* Sizes of results. */
int64_t kinds_heads(const struct kinds *kinds, const struct inputs *in); /* of the output */
int64_t kinds_keys(const struct kinds *kinds, const struct inputs *in);  /* that a query has weights of */
/* (sequence, head, row, column) of a state. */
void kinds_state(const struct kinds *kinds, const struct inputs *in, int64_t shape[4]);

/*
 * The calls. params is that of the inputs with outputs on request. The rows of a Performer's projection follow from
 * draw's seed and offset; state is where the last one goes, or NULL.
 */
attn_status kinds_linear(const struct kinds *kinds, const struct inputs *in, const attn_tensor *out,
                         const attn_params *params, const attn_tensor *state, const attn_dropout *draw);
attn_status kinds_additive(const struct kinds *kinds, const struct inputs *in, const attn_tensor *out,
                           const attn_params *params);
attn_status kinds_linformer(const struct kinds *kinds, const struct inputs *in, const attn_tensor *out,
                            const attn_params *params);
/* Fails if this build lacks the calls of the kind, for want of libattn_nn. */
attn_status kinds_built(enum kind kind);

#endif
