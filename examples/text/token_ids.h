/* SPDX-License-Identifier: Apache-2.0 */
/* An array of token ids that grows. */
#ifndef ATTN_EXAMPLES_TEXT_TOKEN_IDS_H
#define ATTN_EXAMPLES_TEXT_TOKEN_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An array of the caller's that grows as needed and can be used again; begins as {0}. */
struct token_ids {
    int32_t *ids;
    size_t count;
    size_t capacity;
    bool cut; /* the text had more tokens than there may be */
};

/* Adds an id. False, and nothing is added, if memory is short. */
bool token_ids_add(struct token_ids *ids, int32_t id);
void token_ids_free(struct token_ids *ids);

#endif
