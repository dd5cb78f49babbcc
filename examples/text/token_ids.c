/* SPDX-License-Identifier: Apache-2.0 */
/* An array of token ids doubles when it is full. */
#include "token_ids.h"

#include <stdlib.h>

bool token_ids_add(struct token_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity > 0 ? 2 * ids->capacity : 64;
        int32_t *more = capacity <= SIZE_MAX / sizeof *more ? realloc(ids->ids, capacity * sizeof *more) : NULL;
        if (more == NULL)
            return false;
        ids->ids = more;
        ids->capacity = capacity;
    }
    ids->ids[ids->count++] = id;
    return true;
}

void token_ids_free(struct token_ids *ids)
{
    free(ids->ids);
    *ids = (struct token_ids){.ids = NULL};
}
