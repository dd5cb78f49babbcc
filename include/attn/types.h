/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file types.h
 * @brief What every header of libattn uses: version, status codes, tensors.
 *
 * attn.h includes this file; include that one.
 */
#ifndef ATTN_TYPES_H
#define ATTN_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name Version */
/**@{*/
#define ATTN_VERSION_MAJOR 0 /**< grows with a change that breaks users */
#define ATTN_VERSION_MINOR 1 /**< grows with new features */
#define ATTN_VERSION_PATCH 0 /**< grows with corrections */
/** The version as one number: major·10000 + minor·100 + patch. */
#define ATTN_VERSION (ATTN_VERSION_MAJOR * 10000 + ATTN_VERSION_MINOR * 100 + ATTN_VERSION_PATCH)
/**@}*/

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

/** ATTN_VERSION of the library that is linked, which may be newer than this header. @since 0.1 */
ATTN_API int attn_version(void);
/** The same as text, "0.1.0". Static storage. @since 0.1 */
ATTN_API const char *attn_version_string(void);

/* ---------------------------------------------------------------- status -- */

/** Result of every call that can fail. The values are pinned for ever. */
typedef enum attn_status {
    ATTN_OK = 0,                  /**< done */
    ATTN_INVALID_ARGUMENT = 1,    /**< a NULL, a NaN, an index or a value out of its range */
    ATTN_SHAPE_MISMATCH = 2,      /**< tensors or arrays whose shapes do not fit together */
    ATTN_SIZE_OVERFLOW = 3,       /**< a product of sizes or strides exceeds 63 bits */
    ATTN_UNSUPPORTED = 4,         /**< a valid request that this version or machine cannot serve */
    ATTN_OUT_OF_MEMORY = 5,       /**< memory could not be allocated */
    ATTN_WORKSPACE_TOO_SMALL = 6, /**< the caller's workspace is smaller than the plan needs */
    ATTN_INVALID_FILE = 7,        /**< a file cannot be read, or is not what it should be */
    ATTN_CACHE_FULL = 8,          /**< an attn_cache has no room for a further sequence, or for further tokens */
    ATTN_PEER_LOST = 9            /**< another process did not answer in time, or a message to or from it failed */
} attn_status;

/** The name of a status, e.g. "shape mismatch"; "unknown status" for other values. Static storage. @since 0.1 */
ATTN_API const char *attn_status_string(attn_status status);

/**
 * A sentence about the last call on this thread that failed, e.g.
 * "params.kv_len[2] is 130; expected 0 to 128, the tokens of k". Empty if none has
 * failed. Valid until another call fails on the same thread. @since 0.1
 */
ATTN_API const char *attn_last_error(void);

/* --------------------------------------------------------------- tensors -- */

/** Element types. The values are pinned. */
typedef enum attn_dtype {
    ATTN_F32 = 0,
    ATTN_BF16 = 1, /**< the upper half of an f32: 8 bits of significand, 1 of them implicit */
    ATTN_F16 = 2,  /**< IEEE 754 binary16: 11 bits of significand, up to 65504 */
    ATTN_BOOL = 3, /**< one byte, non-zero is true (boolean masks: attend) */
    ATTN_I8 = 4,
    ATTN_U8 = 5,
    /**
     * One byte, 8-bit floating point as OCP defines E4M3 (E4M3FN elsewhere): 4 bits of significand, 1 of them implicit,
     * up to 448, no infinities; 0x7f and 0xff are NaN. For k and v with scales: attn_params.k_scale. @since 0.1
     */
    ATTN_F8_E4M3 = 6,
    /**
     * Four bits, two's complement, -8 to 7, for k and v with a scale for each ATTN_I4_GROUP channels:
     * attn_params.k_scale. A group is 16 bytes: byte i has channel i of the group in its low four bits and channel
     * i + 16 in the others. A row begins with a whole group and ends with one, of which the numbers behind the last
     * channel are not looked at. Strides count channels, two to a byte, and those of batch, head and token are
     * multiples of ATTN_I4_GROUP. @since 0.1
     */
    ATTN_I4 = 7
} attn_dtype;

/** Channels of an ATTN_I4 tensor that have one scale. */
#define ATTN_I4_GROUP 32

/** Bytes of one element; 0 for ATTN_I4, two of which are a byte, and for an unknown type. @since 0.1 */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);
/**
 * Bytes of a row of so many channels side by side: of ATTN_I4 16 for each group that has begun. 0 for an unknown type
 * and for less than one channel. @since 0.1
 */
ATTN_API size_t attn_row_size(attn_dtype dtype, int64_t channels);
/** "f32", "bf16", "f16", "bool", "i8", "u8", "f8_e4m3" or "i4"; "unknown" for other values. Static storage.
 * @since 0.1 */
ATTN_API const char *attn_dtype_name(attn_dtype dtype);

/**
 * A strided view of memory that the caller owns. Frozen (docs/abi.md).
 * The axes are batch, head, token, channel. Element (b,h,t,c) is at
 * data[b*stride[0] + h*stride[1] + t*stride[2] + c*stride[3]].
 * Strides count elements, may be negative, and 0 broadcasts an input. Channels
 * of q, k, v and out are contiguous (stride[3] == 1; free when shape[3] <= 1).
 * data must be aligned to the element size only. The stride of an axis of
 * length 1 is not looked at, nor is data or any stride of a tensor that has an
 * axis of length 0.
 */
typedef struct attn_tensor {
    void *data;        /**< element (0,0,0,0); may be NULL when a length is 0 */
    attn_dtype dtype;  /**< type of the elements */
    int64_t shape[4];  /**< batch, head, token, channel */
    int64_t stride[4]; /**< the same axes, in elements */
} attn_tensor;

/** a * b, a stride of a contiguous tensor. Wraps around for a tensor too large to exist, which every call refuses.
 * @since 0.1 */
static inline int64_t attn_stride(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/** A contiguous f32 tensor laid out [batch][head][token][channel]. @since 0.1 */
static inline attn_tensor attn_bhtd(const void *data, int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    attn_tensor t;
    t.data = (void *)(uintptr_t)data;
    t.dtype = ATTN_F32;
    t.shape[0] = batch, t.shape[1] = heads, t.shape[2] = tokens, t.shape[3] = channels;
    t.stride[3] = 1;
    t.stride[2] = channels;
    t.stride[1] = attn_stride(tokens, channels);
    t.stride[0] = attn_stride(heads, t.stride[1]);
    return t;
}

/** A contiguous f32 tensor laid out [batch][token][head][channel], the output layout of a projection. @since 0.1 */
static inline attn_tensor attn_bthd(const void *data, int64_t batch, int64_t tokens, int64_t heads, int64_t channels)
{
    attn_tensor t;
    t.data = (void *)(uintptr_t)data;
    t.dtype = ATTN_F32;
    t.shape[0] = batch, t.shape[1] = heads, t.shape[2] = tokens, t.shape[3] = channels;
    t.stride[3] = 1;
    t.stride[1] = channels;
    t.stride[2] = attn_stride(heads, channels);
    t.stride[0] = attn_stride(tokens, t.stride[2]);
    return t;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTN_TYPES_H */
