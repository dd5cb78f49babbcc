/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers: checks of a product, and its cut into tasks, panels x blocks of rows. linear_create.c has the panels.
 */
#include "nn/linear.h"

#include "api/executor.h"
#include "cpu/cpu.h"
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
    int64_t chunks;             /* runs of panels: each is a task of a block */
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

/* Integers of the rows of a task, on its stack: at least one row of as many inputs as there may be. */
#define QUANT_BYTES ((int64_t)160 << 10)

/** Lays out the integers of a row, its starts and its scales; returns the bytes of all. */
static int64_t lay_out_row(const struct attn_linear *linear, struct nn_integer_rows *rows)
{
    const int64_t group = linear->group, most = group ? linear->inputs / group + (linear->inputs % group != 0) : 1;
    const int64_t groups = most ? most : 1;
    rows->starts = (ptrdiff_t)nn_rounded_up(linear->inputs, ATTN_ALIGN);
    rows->scales = rows->starts + (ptrdiff_t)(groups * (int64_t)sizeof(int32_t));
    return nn_rounded_up(rows->scales + (group ? groups * (int64_t)sizeof(float) : 0), ATTN_ALIGN);
}

/** A run of panels of one part, full ones if they are more than one. */
static void run_panels(const struct product *product, const struct linear_part *part, int64_t panel, int64_t panels,
                       int64_t batch, int64_t first, struct nn_linear_work *work)
{
    const struct attn_linear *linear = product->linear;
    const attn_tensor *out = product->outs[part - linear->parts];
    if (!out)
        return;
    const struct attn_nn_kernels *base = linear->products.base, *kernels = linear->products.extend;
    const int64_t at = (panel - part->first_panel) * linear->panel_outputs, left = part->outputs - at;
    const struct nn_grid_rows grid_out = nn_rows_in_grid(&product->grid, out);
    work->kind = part->kind;
    work->panels = (int)panels;
    work->panel_bytes = (ptrdiff_t)(linear->panel_outputs * nn_panel_column(linear, part));
    work->scale_bytes = (ptrdiff_t)(linear->panel_outputs * nn_scale_column(linear));
    work->panel = part->weights + at * nn_panel_column(linear, part);
    work->scale = part->scale ? part->scale + at * nn_scale_column(linear) : NULL;
    work->bias = part->bias + at;
    work->outputs = (int)(left < linear->panel_outputs ? left : linear->panel_outputs);
    work->vectors = (work->outputs + base->lanes - 1) / base->lanes;
    work->out = rows_from(&grid_out, batch, first, at);
    if (product->residual)
        work->residual = rows_from(&product->added, batch, first, at);
    if (linear->multiply == ATTN_MULTIPLY_INT8)
        kernels->linear_int8(work);
    else if (linear->multiply == ATTN_MULTIPLY_BF16 && kernels->linear_pairs)
        kernels->linear_pairs(work);
    else
        base->linear(work);
}

/** One block of rows, made integers in quants if there is room for them, unless they are there; and a run of panels. */
static void run_task(const struct product *product, int64_t task, struct nn_integer_rows *quants, int ready)
{
    const struct attn_linear *linear = product->linear;
    const int64_t chunk = task % product->chunks, block = task / product->chunks;
    const int64_t batch = block / product->blocks, first = block % product->blocks * product->block_rows;
    struct nn_linear_work work = {
        .x = nn_rows_from(&product->x, batch, first),
        .round_x = linear->multiply == ATTN_MULTIPLY_BF16,
        .quants = quants,
        .rows = product->grid.tokens - first < product->block_rows ? product->grid.tokens - first : product->block_rows,
        .fetches_ahead = attn_cpu_fetches_ahead(),
        .widens_beside = attn_cpu_widens_beside(),
        .inputs = linear->inputs,
        .group = linear->group,
        .activation = product->activation,
        .finish = linear->products.base->finish,
    };
    if (quants && !ready) {
        const struct nn_quantize_work quantize = {
            .x = work.x,
            .rows = work.rows,
            .inputs = work.inputs,
            .group = work.group,
            .offset = linear->parts[0].kind == NN_PANEL_QUADS ? linear->products.extend->int8_offset : 8,
            .to = quants,
        };
        linear->products.extend->quantize(&quantize);
    }
    int64_t panel = chunk * linear->panels / product->chunks;
    const int64_t end = (chunk + 1) * linear->panels / product->chunks;
    while (panel < end) {
        const struct linear_part *part = part_of(linear, panel);
        const int64_t full = part->first_panel + part->outputs / linear->panel_outputs - panel;
        int64_t run = end - panel < NN_LINEAR_RUN ? end - panel : NN_LINEAR_RUN;
        run = full < 1 ? 1 : full < run ? full : run;
        run_panels(product, part, panel, run, batch, first, &work);
        panel += run;
    }
}

static void run_tasks(const void *context, int64_t first, int64_t end)
{
    for (int64_t task = first; task < end; task++)
        run_task(context, task, NULL, 0);
}

static void run_integer_tasks(const void *context, int64_t first, int64_t end)
{
    const struct product *product = context;
    int8_t bytes[QUANT_BYTES] __attribute__((aligned(ATTN_ALIGN)));
    struct nn_integer_rows quants;
    quants.bytes = bytes;
    quants.pitch = (ptrdiff_t)lay_out_row(product->linear, &quants);
    for (int64_t task = first; task < end; task++)
        run_task(product, task, &quants, task > first && task % product->chunks != 0);
}

/* Rows of x in f32 that are read where they lie, by each panel again, should stay in L2, unless L3 is as good. */
#define ROWS_BYTES ((int64_t)512 << 10)

/** Rows of a task at most: a multiple of 16, or less than 16. */
static int64_t rows_of_a_task(const struct attn_linear *linear)
{
    if (linear->multiply != ATTN_MULTIPLY_INT8) {
        int wide = 0;
        for (int64_t p = 0; p < linear->num_parts; p++)
            wide |= linear->parts[p].kind == NN_PANEL_F32;
        if (!wide || linear->inputs == 0 || attn_cpu_has_fast_l3())
            return NN_LINEAR_ROWS;
        const int64_t fit = ROWS_BYTES / 4 / linear->inputs / 16 * 16;
        return fit < 32 ? 32 : fit > NN_LINEAR_ROWS ? NN_LINEAR_ROWS : fit;
    }
    struct nn_integer_rows rows;
    const int64_t room = QUANT_BYTES / lay_out_row(linear, &rows);
    return room < 16 ? room : room > NN_LINEAR_ROWS ? NN_LINEAR_ROWS : room / 16 * 16;
}

/* Tasks of each thread, so that none waits long for the last; of integers fewer, as each makes its rows ready first. */
#define TASKS_OF_A_THREAD 4
#define INTEGER_TASKS     2

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
    const int64_t rows = product->grid.tokens, most = rows_of_a_task(linear);
    if (rows == 0 || product->grid.batch == 0)
        return;
    /* Blocks of one size: the last should not be a small rest. */
    product->blocks = (rows + most - 1) / most;
    product->block_rows = most < 16 ? most : nn_rounded_up((rows + product->blocks - 1) / product->blocks, 16);
    product->blocks = (rows + product->block_rows - 1) / product->block_rows;
    /* Reading a weight takes as long as its products with about eight rows. */
    const double all_rows = (double)product->grid.batch * (double)rows;
    const double operations = (all_rows > 8 ? all_rows / 8 : 1) * (double)outputs * (double)linear->inputs;
    const int threads = nn_threads(num_threads, operations);
    const int64_t all_blocks = product->grid.batch * product->blocks;
    const int integers = linear->multiply == ATTN_MULTIPLY_INT8;
    /* A task makes its rows of x ready, integers once for all its panels, others for each run of them. */
    const int64_t each = integers ? INTEGER_TASKS : TASKS_OF_A_THREAD;
    const int64_t needed = (each * threads + all_blocks - 1) / all_blocks;
    const int64_t runs = integers ? 1 : (linear->panels + NN_LINEAR_RUN - 1) / NN_LINEAR_RUN;
    const int64_t fewest = needed > runs ? needed : runs, turns = (all_blocks * fewest + threads - 1) / threads;
    /* As many as take the same number of turns, in which no thread has nothing to do. */
    product->chunks = turns * threads / all_blocks;
    product->chunks = product->chunks < linear->panels ? product->chunks : linear->panels;
    attn_run_ranges(all_blocks * product->chunks, threads, integers ? run_integer_tasks : run_tasks, product);
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
