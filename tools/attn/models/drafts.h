/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts for speculative decoding (Leviathan et al. 2023): guesses at what comes
 * next, as a tree that the model verifies in one call (Miao et al. 2023,
 * "SpecInfer"). They are what followed the last tokens where these stood in the
 * text before: names, quotations and code repeat themselves. No second model is
 * needed for that.
 */
#ifndef ATTN_TOOLS_MODELS_DRAFTS_H
#define ATTN_TOOLS_MODELS_DRAFTS_H

#include <stdint.h>

/* Drafts that a tree may have, beside its root. */
#define DRAFTS_MOST 63

/* Node 0 is the last token of the text, which the model has not read yet; the others are drafts. */
struct drafts {
    int count;
    int32_t ids[DRAFTS_MOST + 1];
    int parents[DRAFTS_MOST + 1]; /* a node's parent comes before it; that of node 0 is -1 */
    int depths[DRAFTS_MOST + 1];
};

/* The drafts behind ids[count], 1 or more tokens: most of them at most. */
void drafts_make(struct drafts *drafts, const int32_t *ids, int64_t count, int most);

/* The child of a node that has an id; -1: none. */
int drafts_child(const struct drafts *drafts, int node, int32_t id);

#endif
