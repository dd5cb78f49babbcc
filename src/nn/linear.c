/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers: checks of a product, and its cut into tasks, panels x blocks of rows. linear_create.c has the panels.
 */
#include "nn/linear.h"

#include "api/executor.h"
#include "driver/ranges.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/linear_layer.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>

/** A product that has been checked. */
struct product {
    const struct attn_linear *linear;
    const attn_tensor *const *outs;
    const attn_tensor *residual;
    attn_activation activation;
    struct nn_row_grid grid;
    struct nn_grid_rows x, added;
    int64_t block_rows, blocks; /* rows of a task; blocks of each batch of the grid */
};

/** The part of panel number panel of a layer. */
static const struct linear_part *part_of(const struct attn_linear *linear, int64_t panel)
{
    const struct linear_part *part = linear->parts;
    while (panel >= part->first_panel + part->panels)
        part++;
    return part;
}

/** Rows from one on, and in them from a channel on. */
static struct attn_rows rows_from(const struct nn_grid_rows *grid, int64_t batch, int64_t token, int64_t channel)
{
    struct attn_rows rows = nn_rows_from(grid, batch, token);
    rows.data = (char *)rows.data + channel * attn_element_size(rows.dtype);
    return rows;
}

static void run_task(const struct product *product, int64_t task)
{
    const struct attn_linear *linear = product->linear;
    const int64_t panel = task % linear->panels, block = task / linear->panels;
    const int64_t batch = block / product->blocks, first = block % product->blocks * product->block_rows;
    const struct linear_part *part = part_of(linear, panel);
    const attn_tensor *out = product->outs[part - linear->parts];
    if (!out)
        return;
    const int64_t at = (panel - part->first_panel) * linear->panel_outputs, left = part->outputs - at;
    const int lanes = linear->kernels->lanes;
    const struct nn_grid_rows grid_out = nn_rows_in_grid(&product->grid, out);
    struct nn_linear_work work = {
        .x = nn_rows_from(&product->x, batch, first),
        .rows = product->grid.tokens - first < product->block_rows ? product->grid.tokens - first : product->block_rows,
        .inputs = linear->inputs,
        .dtype = part->dtype,
        .panel = part->weights + at * linear->inputs * attn_element_size(part->dtype),
        .bias = part->bias + at,
        .outputs = (int)(left < linear->panel_outputs ? left : linear->panel_outputs),
        .activation = product->activation,
        .out = rows_from(&grid_out, batch, first, at),
    };
    work.vectors = (work.outputs + lanes - 1) / lanes;
    if (product->residual)
        work.residual = rows_from(&product->added, batch, first, at);
    linear->kernels->linear(&work);
}

static void run_tasks(const void *context, int64_t first, int64_t end)
{
    for (int64_t task = first; task < end; task++)
        run_task(context, task);
}

/* The rows of x that a task reads again for every panel should stay in L2. */
#define ROWS_BYTES ((int64_t)512 << 10)

static int64_t rows_of_a_task(int64_t inputs)
{
    const int64_t fit = inputs ? ROWS_BYTES / 4 / inputs / 8 * 8 : NN_LINEAR_ROWS;
    return fit < 32 ? 32 : fit > NN_LINEAR_ROWS ? NN_LINEAR_ROWS : fit;
}

static void run_product(struct product *product, const attn_tensor *x, int num_threads)
{
    const struct attn_linear *linear = product->linear;
    int64_t outputs = 0;
    product->grid = nn_grid_of(x);
    for (int64_t p = 0; p < linear->num_parts; p++)
        if (product->outs[p]) {
            nn_grid_fit(&product->grid, product->outs[p]);
            outputs += linear->parts[p].outputs;
        }
    if (product->residual)
        nn_grid_fit(&product->grid, product->residual);
    product->x = nn_rows_in_grid(&product->grid, x);
    if (product->residual)
        product->added = nn_rows_in_grid(&product->grid, product->residual);
    const int64_t rows = product->grid.tokens, most = rows_of_a_task(linear->inputs);
    if (rows == 0 || product->grid.batch == 0)
        return;
    /* Blocks of one size: the last should not be a small rest. */
    product->blocks = (rows + most - 1) / most;
    product->block_rows = nn_rounded_up((rows + product->blocks - 1) / product->blocks, 8);
    product->blocks = (rows + product->block_rows - 1) / product->block_rows;
    /* Reading a weight takes as long as its products with about eight rows. */
    const double all_rows = (double)product->grid.batch * (double)rows;
    const double operations = (all_rows > 8 ? all_rows / 8 : 1) * (double)outputs * (double)linear->inputs;
    attn_run_ranges(product->grid.batch * product->blocks * linear->panels, nn_threads(num_threads, operations),
                    run_tasks, product);
}

/** Checks what the two products have in common. */
static attn_status check_product(const attn_linear *linear, const attn_tensor *x, attn_linear_options *ours,
                                 const attn_linear_options *options)
{
    if (!linear)
        return attn_fail(ATTN_INVALID_ARGUMENT, "linear is NULL; expected a layer");
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, linear->inputs));
    CHECK(attn_take_struct("options", ours, sizeof *ours, NN_LINEAR_OPTIONS_FIRST, options));
    CHECK(nn_check_activation("options.activation", ours->activation));
    CHECK(attn_check_executor("options.executor", ours->executor));
    return nn_check_threads(ours->num_threads);
}

static attn_status check_out(const char *name, const attn_tensor *out, const attn_tensor *x, int64_t outputs)
{
    CHECK(nn_check_typed_output(name, out, x->shape[0], x->shape[2], outputs));
    return attn_check_apart(name, out, "x", x, 0);
}

void nn_linear_run(const attn_linear *linear, const attn_tensor *x, const attn_tensor *const *outs,
                   const attn_linear_options *options)
{
    struct product product = {
        .linear = linear,
        .outs = outs,
        .residual = options->residual,
        .activation = options->activation,
    };
    const attn_executor *before = attn_executor_enter(options->executor);
    run_product(&product, x, options->num_threads);
    attn_executor_leave(before);
}

attn_status attn_linear_forward(const attn_linear *linear, const attn_tensor *x, const attn_tensor *out,
                                const attn_linear_options *options)
{
    attn_linear_options ours;
    CHECK(check_product(linear, x, &ours, options));
    if (linear->num_parts != 1)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "linear has %" PRId64 " parts; expected 1, or a call of attn_linear_forward_parts()",
                         linear->num_parts);
    CHECK(check_out("out", out, x, linear->parts[0].outputs));
    if (ours.residual) {
        CHECK(nn_check_typed_activations("options.residual", ours.residual, x->shape[0], x->shape[2],
                                         linear->parts[0].outputs));
        CHECK(attn_check_apart("out", out, "options.residual", ours.residual, 1));
    }
    nn_linear_run(linear, x, &out, &ours);
    return ATTN_OK;
}

attn_status attn_linear_forward_parts(const attn_linear *linear, const attn_tensor *x, const attn_tensor *const *outs,
                                      const attn_linear_options *options)
{
    attn_linear_options ours;
    CHECK(check_product(linear, x, &ours, options));
    if (ours.residual)
        return attn_fail(ATTN_UNSUPPORTED, "options.residual is set; expected NULL with several parts");
    if (!outs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "outs is NULL; expected %" PRId64 " tensors", linear->num_parts);
    for (int64_t p = 0; p < linear->num_parts; p++) {
        if (!outs[p])
            continue;
        const struct nn_name name = nn_name_of("outs", p, NULL);
        CHECK(check_out(name.text, outs[p], x, linear->parts[p].outputs));
        for (int64_t before = 0; before < p; before++)
            if (outs[before])
                CHECK(attn_check_apart(name.text, outs[p], nn_name_of("outs", before, NULL).text, outs[before], 0));
    }
    nn_linear_run(linear, x, outs, &ours);
    return ATTN_OK;
}
