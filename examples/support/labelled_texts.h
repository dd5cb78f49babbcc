/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with their classes, to train and to test with: files with a line CLASS TAB TEXT for each. */
#ifndef ATTN_EXAMPLES_LABELLED_TEXTS_H
#define ATTN_EXAMPLES_LABELLED_TEXTS_H

#include "io/lines.h"

/* Begins as {0}. */
struct labelled_texts {
    struct lines lines;
    const char **text; /* [count] behind their classes, in lines */
    size_t *size;      /* [count] */
    int32_t *labels;   /* [count] numbers of classes */
    int64_t count;
    uint64_t digest; /* of all texts and classes: another one for other samples */
};

/*
 * Reads a file. Classes that are not among classes yet are added if may_add, and
 * an error if not.
 */
attn_status labelled_texts_read(struct labelled_texts *texts, const char *path, struct lines *classes, bool may_add);
/* Gives classes the order of their names, whichever came first in the file that added them; 256 at most. */
attn_status labelled_texts_sort_classes(struct labelled_texts *texts, struct lines *classes);
void labelled_texts_free(struct labelled_texts *texts);

#endif
