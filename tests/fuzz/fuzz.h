/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a fuzz target offers. libFuzzer calls LLVMFuzzerTestOneInput alone; the
 * driver in standalone.c also needs valid files to start from and counts what
 * was accepted, so that a run that never got past the first check shows.
 */
#ifndef ATTN_TESTS_FUZZ_FUZZ_H
#define ATTN_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Parses the bytes as a whole file; aborts when an accepted file breaks a promise of the parser. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs that the parser has accepted so far. */
extern unsigned long fuzz_accepted;

/* Valid file number index in at most capacity bytes; its length, or 0 when there are no more. */
size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity);

/* Words of the format that mutations insert; ends with NULL. */
extern const char *const fuzz_words[];

/* Not assert(): it must also hold in a release build. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                              \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
