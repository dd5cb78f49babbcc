/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the output: their list, and whether one is of the kernels that it names. */
#include "result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_result *bench_results_add(struct bench_results *results)
{
    if (results->count == results->capacity) {
        const int capacity = results->capacity > 0 ? 2 * results->capacity : 64;
        struct bench_result *rows = realloc(results->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL) {
            fputs("attn-bench: there is not enough memory for the results\n", stderr);
            return NULL;
        }
        results->rows = rows;
        results->capacity = capacity;
    }
    struct bench_result *row = &results->rows[results->count++];
    memset(row, 0, sizeof *row);
    return row;
}

void bench_results_destroy(struct bench_results *results)
{
    free(results->rows);
    memset(results, 0, sizeof *results);
}

/* A fraction of another set's peak would mean nothing, so the plan is asked what it will run. */
int bench_result_check_kernels(const struct bench_result *row)
{
    if (bench_plan_names(row->plan, row->isa))
        return 0;
    fprintf(stderr, "attn-bench: %s: the plan is '%s'; expected the kernels of %s\n", row->name, row->plan, row->isa);
    return -1;
}
