/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's struct as this version knows it: struct_size, its first field, says
 * which version the caller was compiled with. An older struct is shorter, and
 * the fields that it lacks count as zero, which is every field's default. A
 * newer one is longer, and what stands behind the fields known here must not be
 * set, as it would be ignored. A size that no version can have is refused by its
 * number alone: what lies there may be no memory.
 */
#include "api/check.h"
#include "api/error.h"

/* Bytes by which a later version's struct may be longer than ours. */
#define MOST_BEHIND 4096

attn_status attn_take_struct(const char *name, void *ours, size_t our_size, size_t first_size, const void *theirs)
{
    size_t size = 0;
    if (theirs)
        memcpy(&size, theirs, sizeof size);
    if (theirs && size == our_size) {
        memcpy(ours, theirs, our_size);
        return ATTN_OK;
    }
    memset(ours, 0, our_size);
    memcpy(ours, &our_size, sizeof our_size);
    if (!theirs)
        return ATTN_OK;
    if (size < first_size || (size > our_size && size - our_size > MOST_BEHIND))
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "%s.struct_size is %zu; expected %zu to %zu: sizeof of the struct, as its _default() function "
                         "sets it",
                         name, size, first_size, our_size + MOST_BEHIND);
    for (size_t i = our_size; i < size; i++)
        if (((const unsigned char *)theirs)[i])
            return attn_fail(ATTN_UNSUPPORTED,
                             "%s.struct_size is %zu and a field behind the %zu bytes that version %s knows is set",
                             name, size, our_size, attn_version_string());
    memcpy(ours, theirs, size < our_size ? size : our_size);
    memcpy(ours, &our_size, sizeof our_size);
    return ATTN_OK;
}

attn_status attn_take_params(attn_params *ours, const attn_params *theirs)
{
    return attn_take_struct("params", ours, sizeof *ours, ATTN_FIRST_SIZE(attn_params, v_scale), theirs);
}
