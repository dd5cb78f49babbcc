/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions element by element. An array is gone through in C order, axis by
 * axis; where the file has Fortran order, each axis has its own step there.
 */
#include "io/stored.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/note.h"
#include "simd/half.h"

bool stored_as_is(const struct array_storage *stored)
{
    return !(stored->is_f64 || stored->swapped || stored->fortran);
}

/* One element; counts finite numbers that become infinite. */
static void convert_element(unsigned char *dst, const struct array_storage *stored, const unsigned char *src,
                            int64_t *infinite)
{
    unsigned char bytes[8];
    const size_t size = stored->element_size;
    for (size_t i = 0; i < size; i++)
        bytes[i] = src[stored->swapped ? size - 1 - i : i];
    if (!stored->is_f64) {
        memcpy(dst, bytes, size);
        return;
    }
    double wide;
    memcpy(&wide, bytes, sizeof wide);
    const float value = (float)wide;
    *infinite += isfinite(wide) && !isfinite(value);
    memcpy(dst, &value, sizeof value);
}

static void note_conversion(const struct array_storage *stored, const char *spec, int64_t infinite)
{
    char beyond[64] = "";
    if (infinite > 0)
        snprintf(beyond, sizeof beyond, "; %" PRId64 " values beyond its range became infinite", infinite);
    const bool first = stored->is_f64, second = stored->swapped;
    io_note("%s: converted: %s%s%s%s%s%s", spec, first ? "float64 to float32" : "", first && second ? ", " : "",
            second ? "big-endian to little-endian" : "", (first || second) && stored->fortran ? ", " : "",
            stored->fortran ? "Fortran order to C order" : "", beyond);
}

void stored_convert(void *dst, const struct array_shape *is, const struct array_storage *stored,
                    const unsigned char *src, const char *spec)
{
    const size_t size = array_dtype_size(is->dtype);
    int64_t at[ARRAY_MAX_DIMS] = {0}, step[ARRAY_MAX_DIMS], count = 1, infinite = 0, from = 0;
    for (int i = 0; i < is->ndim; i++) {
        step[i] = count;
        count *= is->shape[i];
    }
    unsigned char *to = dst;
    for (int64_t n = 0; n < count; n++, to += size) {
        convert_element(to, stored, src + (size_t)(stored->fortran ? from : n) * stored->element_size, &infinite);
        if (!stored->fortran)
            continue;
        /* The next index in C order: the last axis first. */
        for (int axis = is->ndim - 1; axis >= 0; axis--) {
            from += step[axis];
            if (++at[axis] < is->shape[axis])
                break;
            from -= step[axis] * at[axis];
            at[axis] = 0;
        }
    }
    note_conversion(stored, spec, infinite);
}

static float widened(const void *data, enum array_dtype dtype, size_t index)
{
    if (dtype == ARRAY_F32)
        return ((const float *)data)[index];
    const uint16_t half = ((const uint16_t *)data)[index];
    return dtype == ARRAY_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

attn_status stored_as_dtype(struct array *out, const struct array *in, enum array_dtype dtype, const char *what)
{
    struct array_shape is = in->is;
    is.dtype = dtype;
    CHECK(array_allocate(out, what, &is));
    const size_t count = out->size / array_dtype_size(dtype);
    int64_t infinite = 0;
    for (size_t i = 0; i < count; i++) {
        const float value = widened(in->data, in->is.dtype, i);
        float rounded = value;
        if (dtype == ARRAY_F32) {
            ((float *)out->data)[i] = value;
        } else {
            uint16_t *half = (uint16_t *)out->data + i;
            *half = dtype == ARRAY_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
            rounded = widened(out->data, dtype, i);
        }
        infinite += isfinite(value) && !isfinite(rounded);
    }
    if (infinite > 0)
        io_note("%s: %" PRId64 " values beyond the range of %s became infinite", what, infinite,
                array_dtype_name(dtype));
    return ATTN_OK;
}
