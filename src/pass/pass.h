/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a pass share: strips, runs of keys, units.
 *
 * A pass walks over the keys of one block of queries. A strip is the queries
 * that a tile covers, one in each lane. A block of keys is a step of the online
 * softmax; a run is a range of it outside of which a strip sees nothing of the
 * block. A unit is a strip and a run: a tile, with its mask and with what it
 * leaves between its steps (scores, weights, values). Nothing here depends on
 * the instruction set; the functions of work->kernels do.
 */
#ifndef ATTN_PASS_H
#define ATTN_PASS_H

#include "pass/pages.h"
#include "pass/scratch.h"
#include "pass/work.h"

#include <string.h>

/** What a softmax over keys leaves of a strip, and goes on from. */
struct sums {
    float *o, *m, *l;
};

/** Rows that a strip asks for, beside its products if it can. */
enum strip_asks {
    ASKS_QUERIES = 1, /**< the queries of the strip behind it */
    ASKS_OUT = 2      /**< its own rows of out, which will be written */
};

/** A strip of queries. */
struct strip {
    float *q, *o, *m, *l, *factor, *validity, *shift, *reach; /**< its parts of what struct attn_scratch describes */
    int64_t first;                                            /**< its first query within the block of queries */
    const int64_t *gathered; /**< [rows] its queries, rising; NULL: those from first on */
    int rows, nv, width;     /**< queries, vectors, lanes */
    int few;                 /**< o lies row by row, for values_of_few() */
    int started;             /**< o holds something */
    int asks;                /**< of enum strip_asks, what it has not yet asked for */
    struct sums whole, next; /**< where o, m and l are: of all splits, and of one that is to be joined to those */
    int joined;              /**< whole holds what earlier splits have given */
    int32_t first_label, last_label; /**< smallest and largest of its rows' documents */
};

/** What a pass has found for struct attn_looks. */
struct scale_looks {
    int64_t rows;
    int wrong;
};

/** One block of queries at work. */
struct pass {
    const struct attn_work *work;
    const struct attn_vector_kernels *vectors;
    const struct attn_score_kernels *scores;
    const struct attn_value_kernels *values;
    struct attn_scratch scratch;
    int run_step; /**< runs begin at multiples of it from the first key of a block */
    struct strip strips[ATTN_MAX_STRIPS + 1];
    int64_t num_strips;
    int64_t end; /**< behind the last key that some strip sees */
    /* Global queries see all keys: they have a strip of their own, the last one, so that their neighbours need not. */
    int64_t gathered[ATTN_MAX_STRIP];
    struct scale_looks *looks; /**< NULL: nobody asks */
    float *called;             /**< where scores go before a callback changes them; NULL: nowhere */
    int few;                   /**< all queries are few: K and V need not become words */
    int side_by_side; /**< rows of K and V are, and queries see them all: side_by_side.c has another order for that */
    int blocks;       /**< of keys that are there at once */
    int num_gathered; /**< 0: none, or they stay with their neighbours */
};

/** Cuts the block of queries into strips; leaves q to attn_pack_strip(). */
void attn_begin_pass(struct pass *pass, const struct attn_work *work);

/** Row i. */
static inline char *row_of(const struct attn_rows *rows, int64_t i)
{
    return (char *)rows->data + i * rows->stride;
}

/** Query of a lane, within the block of queries. */
static inline int64_t query_of(const struct strip *strip, int lane)
{
    return strip->gathered ? strip->gathered[lane] : strip->first + lane;
}

/** Token of a query, counted from that of row 0, and its head. */
static inline int64_t token_of(const struct attn_view *view, int64_t query)
{
    return view->heads == 1 ? query : query / view->heads;
}

static inline int64_t head_of(const struct attn_view *view, int64_t query)
{
    return view->heads == 1 ? 0 : query % view->heads;
}

/** Token of a lane. */
static inline int64_t token_in(const struct attn_view *view, const struct strip *strip, int lane)
{
    return token_of(view, query_of(strip, lane));
}

/** How far a query's place is from that of row 0, where tokens and heads are so far apart. */
static inline ptrdiff_t query_offset(const struct attn_view *view, ptrdiff_t token_step, ptrdiff_t head_step,
                                     int64_t query)
{
    return token_of(view, query) * token_step + head_of(view, query) * head_step;
}

/** A query's row. */
static inline char *query_row(const struct attn_view *view, const struct attn_rows *rows, ptrdiff_t head_step,
                              int64_t query)
{
    return (char *)rows->data + query_offset(view, rows->stride, head_step, query);
}

/** Pointers to n rows of a strip, from lane first on. */
static inline void strip_rows(const struct attn_view *view, const struct attn_rows *rows, ptrdiff_t head_step,
                              const struct strip *strip, int first, int n, char **pointers)
{
    for (int i = 0; i < n; i++)
        pointers[i] = query_row(view, rows, head_step, query_of(strip, first + i));
}

/** Pointers to n rows from row first on. */
static inline void row_pointers(const struct attn_rows *rows, int64_t first, int n, char **pointers)
{
    for (int i = 0; i < n; i++)
        pointers[i] = row_of(rows, first + i);
}

/** A number of natural units in base 2; what is finite stays finite. */
float attn_in_base2(float natural);

/** The bucket of a query that stands distance behind its key. */
int64_t attn_distance_bucket(const struct attn_distance_bias *bias, int64_t distance);

/* ---------------------------------------------------- what a strip sees -- */

enum run_kind {
    RUN_WHOLE,    /**< every row sees every key */
    RUN_DIAGONAL, /**< causality alone hides keys */
    RUN_DISTANCE, /**< rows see keys by their distance: causality and window */
    RUN_MIXED     /**< anything: written down key by key */
};

/** Keys lo..hi-1 of a block. */
struct run {
    enum run_kind kind;
    int lo, hi;
};

/** A block of keys while its runs are looked for: what is the same for all strips. */
struct span {
    int64_t first;
    int size;
    int32_t first_label, last_label;   /**< smallest and largest of its documents */
    int64_t first_global, last_global; /**< its first and last global keys; last before first: none */
};

/** Global queries of a block of queries, in gathered if there are at most ATTN_MAX_STRIP; returns how many. */
int64_t attn_global_queries(const struct attn_work *work, int64_t gathered[ATTN_MAX_STRIP]);

/** The span of a block that begins at key first, size keys long. */
struct span attn_span_at(const struct attn_work *work, int64_t first, int size);

/** The first run of a block at or behind key from of it. Returns 0 if the strip sees no key from there on. */
int attn_next_run(const struct pass *pass, const struct strip *strip, const struct span *span, int from,
                  struct run *run);

/** From first, a multiple of the block's size, on: the next block of keys that one of the strips may see. */
int64_t attn_next_block(const struct pass *pass, const struct strip *strips, int64_t num_strips, int64_t first);

/** With a pattern: the first key at or behind from that a strip's row of blocks lists, and the end of those that follow
 * without a gap. Both are num_keys if there is none. */
void attn_next_listed(const struct attn_work *work, const struct strip *strip, int64_t from, int64_t *lo, int64_t *hi);

/** Whether a strip is the first one in its block of queries, or in its group, to see a block of keys. */
static inline int leads(const struct attn_work *work, const struct strip *strip)
{
    return work->group ? strip->first % work->group == 0 : strip->first == 0;
}

/** The keys, counted from the first, behind which no row of the block of queries sees one. */
int64_t attn_visible_end(const struct attn_work *work);

/** Clears the bytes, pitch apart, of what a strip does not see of n keys from first on, by rules. Rows behind the
 * strip's last keep theirs or lose them; nobody looks. */
void attn_hide_by_rules(const struct pass *pass, const struct strip *strip, int64_t first, int n, uint8_t *live,
                        ptrdiff_t pitch);

/* ------------------------------------------------------------- splits -- */

/**
 * The first split of the keys, from number split on, of which some strip may see something, and the first such block of
 * keys from its first one on; -1: none. The first split is there even if it is not seen at all: a sink stands before
 * its keys, and of every block of queries something is left.
 */
int64_t attn_next_split(const struct pass *pass, int64_t split, int64_t *first);

/** How many attn_next_split() goes through. */
int64_t attn_count_splits(const struct pass *pass);

/** Points a strip to where its next split's sums go, and clears them. */
void attn_begin_split(const struct pass *pass, struct strip *strip);

/** Joins what a split has given to what there was; o, m and l are of all keys so far then. */
void attn_end_split(const struct pass *pass, struct strip *strip);

/** Puts what a split has given to strip i into a partial of it. */
void attn_keep_partial(const struct pass *pass, int64_t i, char *partial);

/* --------------------------------------------------- sums of shared keys -- */

/** Whether a pass leaves its sums to others, which go on from them. */
static inline int leaves_sums(const struct attn_work *work)
{
    return work->sums && work->sums_keys == 0;
}

/** Whether so many keys are some splits, and nothing of a further one. */
static inline int is_split_end(int64_t keys)
{
    return keys > 0 && keys % ATTN_SPLIT_KEYS == 0;
}

/** Leaves the sums of strip i, which has gone over all keys, in work->sums; ends its last split if no key of it is left
 * to others. */
void attn_leave_sums(struct pass *pass, int64_t i);

/** Begins strip i with the sums that are there. */
void attn_take_sums(struct pass *pass, int64_t i);

/** Writes the results of all strips, whose sums are of all keys. */
void attn_finish_strips(struct pass *pass);

/* -------------------------------------------------------------- tiles -- */

/** A block of keys: rows of words of K and of V. */
struct key_block {
    const char *k; /**< rows of the block's first key, of which only those of lo..hi-1 are there; NULL: no words, the
                        queries are few and read K where it lies */
    const char *v; /**< the same; NULL: no words yet */
    ptrdiff_t k_stride, v_stride;
    int64_t first;
    int size;
    int lo, hi;           /**< keys that some strip sees; lo is a multiple of run_step */
    int v_finite;         /**< -1: not looked at yet */
    const float *k_scale; /**< of int8 scores, as in struct attn_packed_keys */
    const int32_t *k_start;
    float longest; /**< the longest of a whole block's keys; -1: not looked at yet */
};

/** A tile at work. */
struct unit {
    struct strip *strip;
    struct run run;
    int n; /**< keys of the run */
    struct attn_tile_mask mask;
    const float *factor; /**< what its scores are still to be multiplied by; NULL: nothing */
    float max[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
};

/** n rows turned by rows of a table from row first on, as floats in dst, [n][dk]; where rows lie there, in place. */
struct attn_rows attn_rotated_rows(const struct attn_work *work, const struct attn_rows *table, int64_t first,
                                   const struct attn_rows *rows, int n, float *dst);

/** Makes Q^T of a strip times a scale, rotated where that is asked for. */
void attn_pack_strip(const struct pass *pass, const struct strip *strip, float scale);

/** The block of keys of a span, of which keys lo..hi-1 are wanted, in the place of a number of scratch memory. */
struct key_block attn_key_block_at(const struct pass *pass, const struct span *span, int lo, int hi, int number,
                                   int with_values);

/** Whether so many queries of a strip are few: most of a vector's lanes would have none. Where sums are free, so are
 * more, if kernels take them. */
static inline int attn_are_few(const struct pass *pass, int queries)
{
    const struct attn_vector_kernels *vectors = pass->vectors;
    return queries <= vectors->few && (2 * queries <= vectors->lanes || pass->work->free_sums);
}

/** Makes words of the block's values, in the place of a number, or finds them in memory. */
void attn_pack_values(const struct pass *pass, struct key_block *keys, int number);

/** Whether the scores of few queries are made from K where it lies. */
int attn_few_take_rows(const struct pass *pass);

/** Whether scores of keys of a type add their lanes up, and so take the queries row by row. */
static inline int attn_sums_across(const struct attn_work *work, attn_dtype dtype)
{
    return work->free_sums && (work->kernels->exact_pairs || !attn_turns_faster(dtype));
}

/** Whether scales of V may multiply weights. */
static inline int attn_frees_scales(const struct attn_work *work)
{
    return work->free_sums && (work->kernels->exact_pairs || work->kernels->values->keys_per_word == 1);
}

/** Whether they do: what becomes of a hidden value that is not finite has to be decided where it lies. */
static inline int attn_scales_weights(const struct attn_work *work)
{
    return attn_frees_scales(work) && attn_is_quantised(work->v.dtype) &&
           (work->kernels->exact_pairs || work->v.dtype != ATTN_I4);
}

/** Where a strip's queries lie row by row, as attn_turn_queries() leaves them. */
float *attn_query_rows(const struct pass *pass, const struct strip *strip);

/** Blocks of keys that attn_side_by_side() goes over at once. */
#define ATTN_SIDE_BLOCKS 32

/** Queries that are few on any instruction set, at most. */
#define ATTN_MAX_FEW 8

/** So many, or as many as there is room for the scores of. */
static inline int attn_side_blocks(const struct pass *pass)
{
    const int room = pass->work->kernels->strip / pass->strips[0].rows;
    return room < ATTN_SIDE_BLOCKS ? room : ATTN_SIDE_BLOCKS;
}

/** Whether a pass that does nothing else to scores and weights is of one query that attn_side_by_side() can take. */
int attn_is_side_by_side(const struct pass *pass);

/** Adds keys lo..hi-1 of some blocks, all of which the pass's only query sees. */
void attn_side_by_side(struct pass *pass, int num_blocks, const struct key_block *keys);

/** Writes a strip's packed queries row by row, for scores_free(). */
void attn_turn_queries(const struct pass *pass, const struct strip *strip);

/** Scores of a strip of few queries and keys lo..lo+n-1 of a block, as the operands say but for K. */
void attn_few_scores(const struct pass *pass, const struct strip *strip, const struct key_block *keys, int lo, int n,
                     struct attn_score_operands *operands, float *max);

/** attn_unit_values() of few queries, which must see every key of ends[0] or meet finite values only. */
void attn_few_values(const struct pass *pass, const struct key_block *keys, const struct unit *unit, int n,
                     enum attn_accumulate mode, const float *alpha);

/** Whether V is finite where a unit has keys: numbers and scales of a quantised type. */
int attn_stored_values_are_finite(const struct pass *pass, const struct key_block *keys, const struct unit *unit);

/** attn_few_values() where it is not, query by query: what one does not see is 0. */
void attn_few_values_seen(const struct pass *pass, const struct key_block *keys, const struct unit *unit, int n,
                          enum attn_accumulate mode, const float *alpha);

/** The mask of a strip's rows and the keys of a run, of which first is the first. */
struct attn_tile_mask attn_mask_of(const struct pass *pass, const struct strip *strip, int64_t first, int n,
                                   enum run_kind run);

/**
 * First step of a unit: the scores of its keys in scratch->s, with their mask, and their maxima. Where the mask says
 * MASK_DEAD nothing is computed.
 */
void attn_unit_scores(const struct pass *pass, const struct key_block *keys, struct unit *unit);

/**
 * Scores of the first n keys of a block, in scratch->s: no key is hidden, nothing is added for its place. Those of
 * ATTN_SCORES_RAW are of the scale that the strip is packed with, the others in base 2. Not ATTN_SCORES_MASKED.
 */
void attn_unmasked_scores(const struct pass *pass, const struct key_block *keys, const struct strip *strip, int n,
                          attn_score_stage stage);

/**
 * Third step of a unit: its values, added to the strip's output. ends are the keys that each vector's lanes see, and
 * are changed; alpha is that of ACCUMULATE_RESCALE.
 */
void attn_unit_values(const struct pass *pass, struct key_block *keys, const struct unit *unit, int *ends,
                      enum attn_accumulate mode, const float *alpha);

/** Whether there are terms that depend on a query or key and the distance between them. */
static inline int has_relative(const struct attn_work *work)
{
    return work->relative.k.data || work->relative.q.data;
}

/** Adds such terms to a tile's scores s. first is the tile's first key, k its row. */
void attn_add_relative(const struct pass *pass, const struct strip *strip, int64_t first, const char *k,
                       ptrdiff_t k_stride, int n, float *s);

/**
 * Recomputes a strip's weights from its final m and 1/l, and hands them out. With a callback of weights, what that
 * leaves of them meets V: the strip's output is made here, normalised.
 */
void attn_strip_weights(const struct pass *pass, struct strip *strip, const float *inverse);

/** Hands a strip's scores out. Its queries may be packed anew for that, and must not be wanted afterwards. */
void attn_strip_scores(const struct pass *pass, struct strip *strip);

#endif
