/* SPDX-License-Identifier: Apache-2.0 */
/* Random options of additive attention: everything that says which keys a query sees, in any company. */
#ifndef TEST_NN_ADDITIVE_FORMS_H
#define TEST_NN_ADDITIVE_FORMS_H

#include "memory.h"

/** Options, and what they point to. */
struct additive_form {
    attn_params params;
    int64_t sequences; /**< what arrays of lengths count: batch elements, or sequences of a ragged batch */
    attn_tensor mask;
    attn_window window;
    attn_block_mask blocks;
    attn_segments segments;
    attn_tree tree;
    attn_ragged ragged;
};

/** Belongs to the memory. Outputs on request are left to the test. */
struct additive_form *random_additive_form(struct memory *m, int64_t batch, int64_t tq, int64_t tk);

#endif
