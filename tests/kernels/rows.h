/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What check_kernels is made of.
 *
 * A row is something that is checked and timed by itself: an operation of the
 * simd headers, an exponential, a function of the tables that the library's
 * kernels are. A set is one choice of headers, compiled with
 * the flags of its instruction set (set.c); it has the code, and no expectation.
 * What a row has to give is computed in files that are compiled once, for the
 * baseline, so that no set's flags reach the reference.
 *
 * A group is a file of rows. check_kernels.c runs every row of every group on
 * every set.
 */
#ifndef KERNELS_ROWS_H
#define KERNELS_ROWS_H

#include "kernels/kernels.h"
#include "random.h"

#include <stddef.h>
#include <stdint.h>

/** Cases of a row where nothing else is said; a row whose samples are no cases has thinner ones below that. */
#define DEFAULT_CASES 5000

#define MAX_INPUTS    4
#define MAX_OUTPUTS   2
#define MAX_LANES     16

/** What a set may have beside what all have; a row says what it needs. */
enum feature {
    HAS_PAIRS = 1,       /**< words of two bf16 (dot_bf16_*.h) */
    HAS_INT8 = 2,        /**< scores of int8 (score_int8_*.h) */
    HAS_FIRST_LANES = 4, /**< vm_first(), which only x86's masked loads and stores need */
    HAS_SCORES = 8,      /**< a table of its own in the library, as opposed to that of the set that it extends */
    HAS_VALUES = 16,
    HAS_VECTORS = 32,
    HAS_FLOAT_VALUES = 64,   /**< HAS_VALUES, with words that are floats */
    HAS_MATRIX = 128,        /**< matrix registers (matrix_*.h), which tiles are multiplied on */
    HAS_NO_MATRIX = 256,     /**< tiles are multiplied in vectors, for which their operands lie row by row */
    HAS_TABLE = 512,         /**< weights by a table (exp2_table_*.h) */
    HAS_VALUE_GROUPS = 1024, /**< VF_GROUP is above 1 (dot_*mm_*.h) */
    HAS_SCORE_GROUPS = 2048, /**< VS_GROUP is (score_*mm_*.h) */
    HAS_MATRIX_INT8 = 4096,  /**< matrix registers multiply int8, too */
    HAS_NO_TABLE = 8192,     /**< weights by a polynomial */
    HAS_FEW = 16384,         /**< vectors that few queries would leave lanes of empty */
    HAS_FEW_SCORES = 32768,  /**< and products with keys as lanes, */
    HAS_FEW_VALUES = 65536,  /**< with channels as lanes */
    HAS_GRADIENTS = 131072,  /**< sums over queries */
    HAS_STATES = 262144,     /**< linear attention */
    HAS_QUARTERS = 524288,   /**< operations on the quarters of a vector */
    HAS_INT4 = 1048576,      /**< words of two bf16 out of ATTN_I4 (int4_*.h) */
    HAS_F8 = 2097152         /**< the same out of E4M3 (f8_*.h) */
};

struct kernel_set;

/** One call of an operation: addresses as the operation gets them, and the number of elements for those with a tail. */
struct call {
    const struct kernel_set *set;
    int n;
    const void *in[MAX_INPUTS];
    void *out[MAX_OUTPUTS];
    double *exact;    /**< for the reference of a function whose result may be off: what it should be */
    ptrdiff_t stride; /**< of matrix operations: bytes from row to row, of all inputs and outputs */
};

/** An operation between loads and stores, repeat times (1 or more). */
struct set_operation {
    const char *name;
    void (*run)(const struct call *call, int64_t repeat);
};

/** dst[i] = 2^src[i], n being a multiple of the set's lanes. */
typedef void exp2_function(float *dst, const float *src, int64_t n);

struct kernel_set {
    const char *name;
    const char *needs; /**< for attn_cpu_has() */
    const struct attn_isa_kernels *kernels;
    const struct attn_isa_kernels *extends; /**< those of the set that it extends; the same where there is none */
    unsigned features;                      /**< those that its headers bring */
    int lanes;                              /**< VF_LEN */
    int strip_vectors;                      /**< VF_STRIP */
    int value_pack;                         /**< VF_PACK */
    int score_pack;                         /**< VS_PACK */
    int value_group;                        /**< VF_GROUP */
    int score_group;                        /**< VS_GROUP */
    int query_offset;                       /**< VS_OFFSET, which makes Q's bytes unsigned; 0 without int8 */
    int two_roundings;                      /**< vf_fma rounds its product, too */
    int narrow_flushes;                     /**< vw_pair takes denormals for 0 */
    int round_to_odd;                       /**< vf_dot of pairs is AArch64's */
    const struct set_operation *operations;
    size_t num_operations;
    exp2_function *exp2;        /**< as the kernels compute it */
    exp2_function *exp2_linked; /**< SLEEF's function of this instruction set */
    exp2_function *exp2_finz;   /**< SLEEF's form with the same bits on all sets with FMA; NULL without FMA */
    float exp2_most;            /**< above 0, arguments that are below this one have SLEEF's bits, too */
};

/** Most queries that kernels of the set may be given as few, if it has such kernels. */
static inline int most_few(const struct kernel_set *set)
{
    return set->lanes == 8 ? 8 : set->lanes / 2;
}

/** A run of the program, and what it has found. */
struct run {
    uint64_t seed;
    int64_t cases;
    int64_t only; /**< the one case to run, or -1 */
    int all;      /**< exhaustive where a row has that */
    const char *row, *set;
    int64_t failures; /**< of this row on this set */
};

struct row {
    const char *name;
    unsigned needs; /**< enum feature */
    const void *spec;
};

/** check and time take one of its rows and a set that has the code; has_code says whether it does. */
struct group {
    const char *name;
    const struct row *rows;
    size_t num_rows;
    int (*has_code)(const struct row *row, const struct kernel_set *set);
    void (*check)(const struct row *row, const struct kernel_set *set, struct run *run);
    double (*time)(const struct row *row, const struct kernel_set *set); /**< cycles a call */
};

extern const struct group group_vector_operations, group_word_operations, group_exp2, group_scores, group_values,
    group_int4_operations, group_f8_operations, group_vectors, group_matrix, group_matrix_operations,
    group_weights_table, group_few, group_side_by_side, group_gradients, group_stored, group_states,
    group_state_products, group_state_steps, group_state_columns;

/** Counts a failure; the first few of a row print the sentence and the command that repeats the case (-1: none). */
void report_failure(struct run *run, int64_t number, const char *format, ...) __attribute__((format(printf, 3, 4)));

/** The generator of case number of the running row, which is the same on every set; sets the line for faults. */
struct rng begin_case(const struct run *run, int64_t number);

#endif
