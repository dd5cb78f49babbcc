/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands of the functions of a tile: drawn, placed between guard pages, and
 * compared; and what a mask hides, one lane after the other.
 */
#ifndef KERNELS_OPERANDS_H
#define KERNELS_OPERANDS_H

#include "products.h"
#include "rows.h"
#include "timing.h"

/** Channels that a row of a tile has at most. */
#define MAX_CHANNELS 320

/** The shape of a tile, and what its numbers are. */
struct tile_shape {
    int nv, n; /**< vectors of queries, keys */
    int64_t d; /**< channels */
    int plain; /**< for timing: nothing but usual numbers, without gaps, and no mask */
    int wild;  /**< some NaN, Inf and huge numbers are among the others */
    attn_dtype dtype;
};

/** One tile of a row of a table: checks one case, or with cycles times it. */
struct tile_case {
    const struct kernel_set *set;
    struct run *run;
    int64_t number;
    struct rng *rng;
    struct tile_shape shape;
    double *cycles; /**< NULL: check */
};

typedef void tile_function(const struct tile_case *c);

/** The spec of a row. */
struct tile_row {
    tile_function *function;
};

/* A row of tiles: its name, what it needs, and its function. */
#define TILE_ROW(name, needed, called)                                                                                 \
    {                                                                                                                  \
        name, needed, &(const struct tile_row)                                                                         \
        {                                                                                                              \
            called                                                                                                     \
        }                                                                                                              \
    }

/** Runs all cases of a row, for a group's check and time. Matrix registers have been entered. */
void check_tiles(const struct row *row, const struct kernel_set *set, struct run *run);
double time_tile(const struct row *row, const struct kernel_set *set);

/** Forgets all operands. */
void operands_begin(void);

/** Space for an operand, of which nothing but the canary is known. */
void *operand_place(const struct tile_case *c, size_t size);

/** Whether nothing has been written beside an operand since operands_begin(). */
int operands_intact(void);

/** Floats of a usual size, with some wild ones if the case has those. */
float *operand_floats(const struct tile_case *c, int64_t n);
float draw_number(const struct tile_case *c);

/** The same numbers in another place, for a reference that computes in place. Valid until operands_begin(). */
void *operand_copy(const void *at, size_t size);

/** n rows of width elements, in any order and with gaps; stride is 0 where rows point at single ones. */
struct drawn_rows {
    struct attn_rows rows; /**< for callers of a strided matrix */
    const char *pointers[ATTN_KEY_BLOCK];
};
struct drawn_rows draw_rows(const struct tile_case *c, attn_dtype dtype, int n, int64_t width);

/** A type that K and V may have: a quantised one, or the one that is given. */
attn_dtype draw_stored_type(const struct tile_case *c, attn_dtype otherwise);

/** Element i of row r, as a float: of quantised rows the product with its scale. */
float element_of(const struct drawn_rows *rows, int r, int64_t i);

/** The two factors, of rows that are quantised; else the element and 1. */
float number_of(const struct drawn_rows *rows, int r, int64_t i);
float scale_of(const struct drawn_rows *rows, int r, int64_t i);

/** n rows of words, for K or V: their address and stride. pack as in struct kernel_set. */
struct drawn_words {
    const char *at;
    ptrdiff_t stride;
};
struct drawn_words draw_words(const struct tile_case *c, int pack, int n, int64_t words);

/** A mask of any kind; none if the shape is plain. */
struct attn_tile_mask draw_mask(const struct tile_case *c);
int mask_sees(const struct attn_tile_mask *mask, int j, int lane);
float mask_bias_of(const struct attn_tile_mask *mask, int j, int lane);

/** The score of a lane with the mask put on; factor multiplies it first where a bias is added to a raw one, else 1. */
float masked(const struct kernel_set *set, const struct attn_tile_mask *mask, int j, int lane, int raw, float factor,
             float x);

/** Reports an element that differs in more than a NaN's payload. */
void expect_float(const struct tile_case *c, const char *what, int64_t i, int64_t lane, float got, float expected);
void expect_word(const struct tile_case *c, const char *what, int64_t i, int64_t lane, uint32_t got, uint32_t expected);

/** Ends of vectors that do not fall, up to n; the last one is at least least. */
int *draw_ends(const struct tile_case *c, int n, int least);

/** How sums go on, and where one does. */
enum attn_accumulate draw_mode(const struct tile_case *c);
float start_of(enum attn_accumulate mode, float o, float alpha);

/** An operation of the set, and one on a single vector, by its name. */
void call_operation(const struct kernel_set *set, const char *name, const struct call *call);
void apply(const struct kernel_set *set, const char *name, float *out, const float *in);

/** Words of a row of Q or K. */
int64_t score_words(const struct tile_case *c);

/** Lets a call be timed instead of checked; ends the function that calls it. */
#define TIME_IF_WANTED(c, call)                                                                                        \
    do {                                                                                                               \
        if ((c)->cycles) {                                                                                             \
            struct timing timing = {0};                                                                                \
            while (timing_goes_on(&timing))                                                                            \
                for (int64_t repetition = 0; repetition < timing.repeat; repetition++)                                 \
                    call;                                                                                              \
            *(c)->cycles = timing_result(&timing);                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
