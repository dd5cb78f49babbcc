/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets by which a linear layer can be asked for. */
#ifndef TEST_NN_LINEAR_SETS_H
#define TEST_NN_LINEAR_SETS_H

/** NULL, and the sets with products of their own that this processor runs. */
extern const char *sets[16];
extern int num_sets;
/** Those that the library has and the processor has not. */
extern const char *missing[16];
extern int num_missing;

/** Fills in both. */
void find_sets(void);

#endif
