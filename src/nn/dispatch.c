/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers' kernels for the instruction set that the core uses: those of the
 * same row of src/meson.build. A set without a file in src/nn/isa brings what is
 * of no use here, such as pairs of bf16, and shares the kernels of the one that
 * it extends.
 */
#include "nn/kernels/nn_kernels.h"

#include <string.h>

#define ATTN_NN_ISA_TABLE(table) extern const struct attn_nn_kernels attn_nn_kernels_##table;
#define ATTN_NN_ISA_ROW(name, table)
#include "nn_isa_rows.h"
#undef ATTN_NN_ISA_TABLE
#undef ATTN_NN_ISA_ROW

static const struct {
    const char *name;
    const struct attn_nn_kernels *kernels;
} rows[] = {
#define ATTN_NN_ISA_TABLE(table)
#define ATTN_NN_ISA_ROW(name, table) {#name, &attn_nn_kernels_##table},
#include "nn_isa_rows.h"
#undef ATTN_NN_ISA_TABLE
#undef ATTN_NN_ISA_ROW
};

const struct attn_nn_kernels *attn_nn_kernels_active(void)
{
    const char *const active = attn_isa_active();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, active) == 0)
            return rows[i].kernels;
    return rows[0].kernels; /* scalar */
}
