/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's options as this version knows them: struct_size says which version
 * the caller was compiled with.
 */
#include "api/check.h"
#include "api/error.h"

attn_status attn_take_params(attn_params *ours, const attn_params *theirs)
{
    *ours = attn_params_default();
    if (!theirs)
        return ATTN_OK;
    const size_t size = theirs->struct_size;
    if (size < sizeof *ours)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.struct_size is %zu; expected %zu: start from attn_params_default()", size,
                         sizeof *ours);
    for (size_t i = sizeof *ours; i < size; i++)
        if (((const unsigned char *)theirs)[i])
            return attn_fail(ATTN_UNSUPPORTED,
                             "params.struct_size is %zu and a field behind the %zu bytes that version %s knows is set",
                             size, sizeof *ours, attn_version_string());
    memcpy(ours, theirs, sizeof *ours);
    ours->struct_size = sizeof *ours;
    return ATTN_OK;
}
