/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers' kernels for the instruction set that the core uses: those of the
 * same row of src/meson.build. A set that extends another one shares its kernels,
 * and may bring products of its own for linear layers.
 */
#include "cpu/cpu.h"
#include "nn/kernels/nn_kernels.h"

#include <stdio.h>
#include <string.h>

#define ATTN_NN_ISA_TABLE(table) extern const struct attn_nn_kernels attn_nn_kernels_##table;
#define ATTN_NN_ISA_ROW(name, extends, needs, table)
#include "nn_isa_rows.h"
#undef ATTN_NN_ISA_TABLE
#undef ATTN_NN_ISA_ROW

static const struct row {
    const char *name, *extends, *needs;
    const struct attn_nn_kernels *kernels; /* NULL: it brings nothing of its own */
} rows[] = {
#define ATTN_NN_ISA_TABLE(table)
#define ATTN_NN_ISA_ROW(name, extends, needs, table) {#name, extends, needs, table},
#include "nn_isa_rows.h"
#undef ATTN_NN_ISA_TABLE
#undef ATTN_NN_ISA_ROW
};

enum { NUM_ROWS = sizeof rows / sizeof *rows };

static const struct row *row_named(const char *name)
{
    for (int i = 0; i < NUM_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

/** The row that has the kernels which others share: itself, or what it extends in the end. */
static const struct row *base_of(const struct row *row)
{
    return row->extends[0] ? base_of(row_named(row->extends)) : row;
}

/** Whether this processor runs a row, and the system permits what it needs. */
static int runs(const struct row *row)
{
    return attn_cpu_has(row->needs) && (!row->extends[0] || runs(row_named(row->extends))) &&
           (!strstr(row->needs, "amxtile") || attn_cpu_permits_matrix());
}

static int has_products(const struct row *row, attn_multiply multiply)
{
    const struct attn_nn_kernels *kernels = row->kernels;
    return kernels && (multiply == ATTN_MULTIPLY_INT8   ? kernels->linear_int8 != NULL
                       : multiply == ATTN_MULTIPLY_BF16 ? kernels->linear_pairs != NULL
                                                        : kernels->linear != NULL);
}

const struct attn_nn_kernels *attn_nn_kernels_active(void)
{
    const struct row *const active = row_named(attn_isa_active());
    return base_of(active ? active : rows)->kernels;
}

/** The last row that extends one, multiplies int8 and runs, or what there was before. */
static const struct row *int8_extension(const struct row *extended, const struct row *best)
{
    for (int i = 0; i < NUM_ROWS; i++)
        if (strcmp(rows[i].extends, extended->name) == 0 && has_products(&rows[i], ATTN_MULTIPLY_INT8) &&
            runs(&rows[i]))
            best = &rows[i];
    return best;
}

int attn_nn_products_choose(struct nn_products *products, const char *isa, attn_multiply multiply, int grouped)
{
    const struct row *named = row_named(isa ? isa : attn_isa_active());
    if (!named)
        return 0;
    if (!runs(named))
        return -1;
    const struct row *const base = base_of(named), *best = has_products(named, multiply) ? named : base;
    if (!isa && multiply == ATTN_MULTIPLY_INT8) {
        best = int8_extension(base, best);
        if (!grouped && named != base) /* matrix registers, where these are what runs: their sums are of whole rows */
            best = int8_extension(named, best);
    }
    *products = (struct nn_products){best->name, base->kernels, best->kernels};
    return 1;
}

void attn_nn_isa_list(char *buffer, size_t size)
{
    size_t length = 0;
    for (int i = 0; i < NUM_ROWS && length < size; i++) {
        const char *const before = i == 0 ? "" : i + 1 < NUM_ROWS ? ", " : " or ";
        const int n = snprintf(buffer + length, size - length, "%s%s", before, rows[i].name);
        length += n > 0 ? (size_t)n : 0;
    }
}
