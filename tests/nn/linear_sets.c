/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out which instruction sets a linear layer can be made for. */
#include "linear_sets.h"

#include "memory.h"

const char *sets[16], *missing[16];
int num_sets, num_missing;

void find_sets(void)
{
    static const char *const names[] = {"scalar",
                                        "avx2",
                                        "avx2_int8",
                                        "avx512",
                                        "avx512_int8",
                                        "avx512_bf16",
                                        "amx_bf16",
                                        "amx_int8",
                                        "emulated_amx_bf16",
                                        "emulated_amx_int8",
                                        "neon",
                                        "neon_int8"};
    const float one = 1;
    const attn_tensor w = attn_matrix(&one, 1, 1);
    sets[num_sets++] = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        attn_linear *linear;
        attn_linear_format format = attn_linear_format_default();
        format.isa = names[i];
        const attn_status status = attn_linear_quantize(&linear, &format, 1, &w, NULL);
        if (status == ATTN_OK)
            sets[num_sets++] = names[i];
        else if (status == ATTN_UNSUPPORTED)
            missing[num_missing++] = names[i];
        attn_linear_destroy(linear);
    }
    assert_true(num_sets >= 2);
}
