/* SPDX-License-Identifier: Apache-2.0 */
/* The version, and the sizes of the element types: constants of the API that every layer may use. */
#include "attn/attn.h"

#include "kernels/kernels.h"

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

int attn_version(void)
{
    return ATTN_VERSION;
}

const char *attn_version_string(void)
{
    return TEXT(ATTN_VERSION_MAJOR) "." TEXT(ATTN_VERSION_MINOR) "." TEXT(ATTN_VERSION_PATCH);
}

const char *attn_dtype_name(attn_dtype dtype)
{
    static const char *const names[] = {"f32", "bf16", "f16", "bool", "i8", "u8", "f8_e4m3", "i4"};
    return (unsigned)dtype < sizeof names / sizeof *names ? names[dtype] : "unknown";
}

size_t attn_dtype_size(attn_dtype dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return 4;
    case ATTN_BF16:
    case ATTN_F16:
        return 2;
    case ATTN_BOOL:
    case ATTN_I8:
    case ATTN_U8:
    case ATTN_F8_E4M3:
        return 1;
    case ATTN_I4:
        break;
    }
    return 0;
}

size_t attn_row_size(attn_dtype dtype, int64_t channels)
{
    if (channels < 1)
        return 0;
    return dtype == ATTN_I4 ? (size_t)attn_row_bytes(dtype, channels) : (size_t)channels * attn_dtype_size(dtype);
}
