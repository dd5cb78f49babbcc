/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers' kernels for the instruction set that the core uses. Pairs of bf16
 * and int8 dot products are of no use here, so the sets that have them share
 * the kernels of those that lack them.
 */
#include "nn/kernels/nn_kernels.h"

extern const struct attn_nn_kernels attn_nn_kernels_scalar;
#if defined(__x86_64__)
extern const struct attn_nn_kernels attn_nn_kernels_avx2, attn_nn_kernels_avx512;
#elif defined(__aarch64__)
extern const struct attn_nn_kernels attn_nn_kernels_neon;
#endif

const struct attn_nn_kernels *attn_nn_kernels_active(void)
{
    switch (attn_isa_active()) {
#if defined(__x86_64__)
    case ATTN_ISA_AVX2:
        return &attn_nn_kernels_avx2;
    case ATTN_ISA_AVX512:
    case ATTN_ISA_AVX512_BF16:
        return &attn_nn_kernels_avx512;
#elif defined(__aarch64__)
    case ATTN_ISA_NEON:
    case ATTN_ISA_NEON_BF16:
        return &attn_nn_kernels_neon;
#endif
    default:
        return &attn_nn_kernels_scalar;
    }
}
