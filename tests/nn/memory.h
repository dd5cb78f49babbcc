/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors for tests, each in memory of its own before a page that may not be
 * touched, with gaps of a pattern between its rows; what was written where is
 * found out afterwards. And the assertions that the tests of layers share.
 */
#ifndef TEST_NN_MEMORY_H
#define TEST_NN_MEMORY_H

#include "cmocka_all.h"
#include "dtype.h"
#include "guard.h"
#include "judge.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_BUFFERS = 256, MEMORY_ARRAYS = 1024 };

struct buffer {
    attn_tensor tensor;
    struct guard guard;
    size_t size;
    int is_input;
    unsigned char *sealed;
};

struct memory {
    struct rng rng;
    attn_dtype dtype; /**< of what place_rows() makes */
    int num_buffers, num_arrays;
    struct buffer buffers[MEMORY_BUFFERS];
    void *arrays[MEMORY_ARRAYS];
};

/** The seed of this run (rng_seed_of_run()). */
uint64_t nn_seed(void);
/** So many of n random cases as slow surroundings have time for: all unless ATTN_CHECK_CASES is below 2000. */
uint64_t cases(uint64_t n);

/** Empty memory for case n of a test, with its random numbers; names the case for messages. */
struct memory *memory_create(const char *test, uint64_t n);
/** The same with random numbers that no run changes, as sentences of refusals name lengths that are drawn. */
struct memory *memory_for_refusals(const char *test, uint64_t n);
/** Checks that gaps and margins are as they were, and inputs since memory_seal(), and frees all. */
void memory_destroy(struct memory *m);

/** Has place_rows() make tensors of a type from now on, f32 at first, and the oracle compute in it. */
void run_in(struct memory *m, attn_dtype dtype);

/** f32 in half of the cases, else bf16 or f16, for run_in(). */
attn_dtype random_activations(struct memory *m);

/** (batch, 1, tokens, channels), unwritten, with random gaps between rows and batch elements. */
attn_tensor place_rows(struct memory *m, int64_t batch, int64_t tokens, int64_t channels);
/** The same of another type. */
attn_tensor place_rows_of(struct memory *m, attn_dtype dtype, int64_t batch, int64_t tokens, int64_t channels);
/** f32 without gaps, of four axes. */
attn_tensor place_dense(struct memory *m, int64_t batch, int64_t heads, int64_t tokens, int64_t channels);
/** An unwritten (1, 1, rows, columns) of a type, now and then stored by columns. */
attn_tensor place_matrix(struct memory *m, attn_dtype dtype, int64_t rows, int64_t columns);

/** Fills a placed tensor with normal numbers times scale, rounded to its type; it counts as an input from now on. */
void fill(struct memory *m, const attn_tensor *t, double scale);
/** Marks a tensor whose values a test has set as an input. */
void mark_input(struct memory *m, const attn_tensor *t);
/** Marks a tensor whose values a call reads and replaces. */
void mark_output(struct memory *m, const attn_tensor *t);
/** place and fill. */
attn_tensor random_rows(struct memory *m, int64_t batch, int64_t tokens, int64_t channels);
attn_tensor random_matrix(struct memory *m, attn_dtype dtype, int64_t rows, int64_t columns, double scale);
attn_tensor random_vector(struct memory *m, attn_dtype dtype, int64_t n, double scale, double mean);
/** f32, bf16 or f16. */
attn_dtype random_dtype(struct memory *m);

/** All elements, contiguous, as doubles; freed with the memory. */
double *read_all(struct memory *m, const attn_tensor *t);
/** n zeros, freed with the memory. */
double *zeros(struct memory *m, int64_t n);
/** The sizes of n numbers, freed with the memory. */
double *absolute(struct memory *m, const double *x, int64_t n);
/** n bytes of 0xA5, freed with the memory. */
void *bytes(struct memory *m, size_t n);
/** An array for each oracle. */
struct trio {
    double *of[ORACLES];
};
struct trio trio(struct memory *m, int64_t n);

/**
 * Sizes for judge() of what has gone through a softmax: a score of size s that is off by u s changes a weight by that
 * part of it. Each element of row r gets its row's largest number, and least at the least, times (1 + s[r / same]).
 */
double *softmax_sizes(struct memory *m, const double *exact, int64_t rows, int64_t channels, double least,
                      const double *s, int64_t same);

/** Remembers what all tensors hold. */
void memory_seal(struct memory *m);
/** Whether nothing has changed since, outputs included. */
int memory_untouched(const struct memory *m);

/** Whether two tensors of one shape hold the same bits. */
int equal_bits(const attn_tensor *a, const attn_tensor *b);
/** That got is expected, which is f32, rounded to got's type. */
void assert_rounded(const char *what, const attn_tensor *got, const attn_tensor *expected);
/** The rows of one batch element from a token on, a view. */
attn_tensor slice(const attn_tensor *t, int64_t batch, int64_t first_token, int64_t tokens);

/** The same shape so many elements further on. */
attn_tensor advanced(const attn_tensor *t, int64_t elements);

/** Whether the last error's sentence holds every one of words, which are separated by '|'. */
int says(const char *words);

/** The bytes that the last sentence, about a workspace that is too small, asks for. */
size_t said_least(void);

/** A call that must succeed. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const attn_status ok_status = (call);                                                                          \
        if (ok_status != ATTN_OK)                                                                                      \
            fail_msg("%s: %s: status %d, \"%s\"", guard_case_line, #call, (int)ok_status, attn_last_error());          \
    } while (0)

/** For REFUSES: the header leaves open which status it is. */
#define ANY_ERROR ((attn_status)-1)

/** A call that must fail with a status and a sentence, and leave all of the memory as it was sealed. */
#define REFUSES(m, call, expected, words)                                                                              \
    do {                                                                                                               \
        const attn_status refusal_status = (call);                                                                     \
        nn_check_refusal(m, refusal_status, expected, words, #call, __FILE__, __LINE__);                               \
    } while (0)

/** Counts what is wrong and goes on, so that one run shows all of it; nn_end_refusals() fails if there was any. */
void nn_check_refusal(const struct memory *m, attn_status status, attn_status expected, const char *words,
                      const char *call, const char *file, int line);
void nn_end_refusals(void);

/** A copy of something with one assignment: CHANGED(x, stride[3] = 2). */
#define CHANGED(type, object, assignment)                                                                              \
    __extension__({                                                                                                    \
        static type changed_copy;                                                                                      \
        changed_copy = (object);                                                                                       \
        changed_copy.assignment;                                                                                       \
        (const type *)&changed_copy;                                                                                   \
    })

/** The same for use within its assignment. */
#define WITHIN(type, object, assignment)                                                                               \
    __extension__({                                                                                                    \
        static type inner_copy;                                                                                        \
        inner_copy = (object);                                                                                         \
        inner_copy.assignment;                                                                                         \
        (const type *)&inner_copy;                                                                                     \
    })

/** Prints the seed and the instruction set, and runs tests. */
#define NN_MAIN(tests) (nn_begin(), cmocka_run_group_tests(tests, NULL, NULL))
void nn_begin(void);

#endif
