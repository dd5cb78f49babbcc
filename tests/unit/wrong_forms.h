/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of what can be wrong with the options that forms.h sets. */
#ifndef UNIT_WRONG_FORMS_H
#define UNIT_WRONG_FORMS_H

#include "forms.h"

#define CHANGED struct forms
#include "change.h"

#include <math.h>

#define MAX_CHANGES 6

struct wrong {
    unsigned forms;                   /**< what the call has before the changes */
    enum { IN_PLAN, IN_RUN } noticed; /**< when a plan is made, or only when it runs */
    attn_status status;               /**< INVALID, ... */
    const char *words;                /**< all of them stand in the sentence */
    struct change change[MAX_CHANGES];
};

struct wrong_table {
    const struct wrong *rows;
    size_t count;
};

extern const struct wrong_table wrong_scores, wrong_sequences, wrong_masks;

#define INVALID     ATTN_INVALID_ARGUMENT
#define MISMATCH    ATTN_SHAPE_MISMATCH
#define TOO_LARGE   ATTN_SIZE_OVERFLOW
#define UNSUPPORTED ATTN_UNSUPPORTED

#endif
