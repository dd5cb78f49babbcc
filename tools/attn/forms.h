/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms of attention from the command line: options that change scores by
 * position or head, say which keys a query sees, or cut the tokens into
 * sequences. `run` and `heatmap` share them.
 */
#ifndef ATTN_TOOLS_FORMS_H
#define ATTN_TOOLS_FORMS_H

#include <attn/attn.h>
#include <attn/patterns.h>
#include <attn/rope.h>

#include "io/array.h"
#include "options.h"

/* In the order of --help. */
enum form_option {
    FORM_SOFTCAP,
    FORM_HEAD_SCALE,
    FORM_SINKS,
    FORM_ALIBI,
    FORM_ALIBI_SLOPES,
    FORM_BIAS,
    FORM_BUCKETS,
    FORM_MAX_DISTANCE,
    FORM_REL_K,
    FORM_REL_Q,
    FORM_REL_DELTA,
    FORM_ROPE,
    FORM_ROPE_PAIRS,
    FORM_ROPE_BASE,
    FORM_ROPE_SCALING,
    FORM_ROPE_FACTOR,
    FORM_ROPE_LENGTH,
    FORM_ROPE_BETA_FAST,
    FORM_ROPE_BETA_SLOW,
    FORM_ROPE_NO_TRUNCATION,
    FORM_ROPE_ATTENTION,
    FORM_ROPE_LOW,
    FORM_ROPE_HIGH,
    FORM_ROPE_SHORT,
    FORM_ROPE_LONG,
    FORM_ROPE_TOKENS,
    FORM_QUERY_OFFSET,
    FORM_WINDOW,
    FORM_FIRST_TOKENS,
    FORM_GLOBAL,
    FORM_PREFIX,
    FORM_SEGMENTS,
    FORM_SEGMENTS_K,
    FORM_TREE,
    FORM_CU_SEQLENS,
    FORM_CU_SEQLENS_K,
    FORM_PATTERN,
    FORM_BLOCK,
    FORM_BLOCK_WINDOW,
    FORM_BLOCK_GLOBAL,
    FORM_BLOCK_RANDOM,
    FORM_BLOCK_SEED,
    FORM_BLOCK_STRIDE,
    FORM_BLOCK_HEADS,
    FORM_BLOCK_OFFSETS,
    FORM_BLOCK_COLUMNS,
    FORM_COUNT
};

extern const struct option form_options[FORM_COUNT];

/* The values of --block-pattern. */
enum form_pattern { PATTERN_LONGFORMER, PATTERN_BIGBIRD, PATTERN_STRIDED };

/* The values of the options and what they become; parameters point into it. */
struct forms {
    const struct option *options; /* FORM_COUNT of the command's table */
    struct reals head_scale, sinks, slopes;
    struct doubles short_factor, long_factor;
    struct integers offsets, prefixes, sides, global, cu_q, cu_k;
    int64_t *query_offset, *prefix_len; /* [sequences] or NULL */
    attn_window window;
    attn_relative_bias bias;
    attn_disentangled disentangled;
    attn_tensor rel_k, rel_q;
    attn_rope_config rope_config;
    attn_rope_tables rope;
    attn_tensor rope_q, rope_k;
    attn_segments segments;
    attn_tree tree; /* ancestors by forms_whole_tree() alone */
    attn_ragged ragged;
    enum form_pattern pattern_kind;
    long long block, block_window, block_global, block_random, block_seed, block_stride, block_heads;
    attn_pattern *pattern;
    attn_block_mask blocks; /* of --block-offsets */
    struct array block_offsets, block_columns;
    struct array bias_table, rel_k_rows, rel_q_rows, rope_q_table, rope_k_table, q_segments, k_segments;
    struct array parents, depths; /* of drafts: [draft] or [sequence][draft]; depths as int64 */
    struct array ancestors;       /* [batch][query][words] */
};

void forms_print_help(FILE *to, const struct option *options);

/*
 * Reads the values of the options; no file is touched. params->causal is looked
 * at, softcap is set. options stay the caller's.
 */
attn_status forms_parse(struct forms *forms, const struct option *options, attn_params *params);

/* Sequences of a call with so many batch elements, and what one of them is called: a batch element, or sequence. */
int64_t forms_sequences(const struct forms *forms, int64_t batch);
const char *forms_sequence_name(const struct forms *forms);

/* Sets params->ragged and the arrays with one value per sequence; kv_len and kv_start come after it. */
attn_status forms_load_sequences(struct forms *forms, const attn_tensor *q, const attn_tensor *k, attn_params *params);
/* Reads the arrays, makes the tables and sets the rest of params, in which the lengths are set already. */
attn_status forms_load(struct forms *forms, const attn_tensor *q, const attn_tensor *k, attn_params *params);
/* The share of forms_load() in which it matters where tokens stand: --tree and --rope. */
attn_status forms_load_places(struct forms *forms, const attn_tensor *q, const attn_tensor *k, attn_params *params);
void forms_free(struct forms *forms);

/*
 * The drafts that query i of a sequence with so many queries sees, as a row of attn_tree.ancestors: the last query is
 * the last draft. A row has forms_tree_words() words.
 */
void forms_tree_row(const struct forms *forms, int64_t sequence, int64_t query, int64_t queries, uint64_t *row);
int64_t forms_tree_words(const struct forms *forms);
/* All rows, after forms_load(): only whoever needs them at once calls this. Nothing to do without --tree. */
attn_status forms_whole_tree(struct forms *forms, const attn_tensor *q, const attn_tensor *k,
                             const attn_params *params);

/* A sequence of a call: where its tokens are, and where its queries stand. */
struct sequence {
    int64_t first_query, queries, first_key, keys;
    int64_t offset; /* of query 0's position */
};

struct sequence forms_sequence(const attn_params *params, const attn_tensor *q, const attn_tensor *k, int64_t s);

#endif
