/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers: packing, and the cut of a product into tasks.
 *
 * The outputs of a part are cut into panels of as many as the register tile has
 * lanes; a panel is stored input by input, [inputs][lanes], so that a kernel
 * reads its weights from front to back. The last panel of a part has only the
 * vectors that it needs, the lanes behind the last output are 0. The panels of a
 * part lie behind each other, in the type that the weights came in: bf16 and f16
 * take half the memory, and half the time where weights come from far.
 *
 * Why not CBLAS: it repacks the weights in every call, which costs half of the
 * time when the rows are few, as they are for a sentence or a step of decoding,
 * and gives no promise that a row's bits stay the same among other rows.
 * docs/layers.md has the figures.
 */
#include "nn/linear.h"

#include "api/executor.h"
#include "driver/ranges.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct part {
    int64_t outputs;
    int64_t first_panel, panels;
    attn_dtype dtype; /* of weights */
    char *weights;    /* of the first panel */
    float *bias;      /* [panels * panel outputs], zeros where there is none */
};

struct attn_linear {
    const struct attn_nn_kernels *kernels;
    int64_t inputs, num_parts, panels;
    int64_t panel_outputs; /* of a full panel */
    void *memory;
    struct part parts[];
};

static int64_t rounded_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/** Bytes of a part's weights, or -1 on overflow. */
static int64_t weight_bytes(const struct attn_linear *linear, const struct part *part)
{
    int64_t bytes;
    if (part->outputs > INT64_MAX / 16 - linear->panel_outputs ||
        __builtin_mul_overflow(rounded_up(part->outputs, linear->kernels->lanes) * attn_element_size(part->dtype),
                               linear->inputs, &bytes) ||
        bytes > INT64_MAX - ATTN_ALIGN)
        return -1;
    return rounded_up(bytes, ATTN_ALIGN);
}

static void pack_part(const struct attn_linear *linear, const struct part *part, const attn_tensor *weight,
                      const attn_tensor *bias)
{
    const int lanes = linear->kernels->lanes;
    const ptrdiff_t size = attn_element_size(part->dtype);
    char *to = part->weights;
    for (int64_t first = 0; first < part->outputs; first += linear->panel_outputs) {
        const int64_t left = part->outputs - first, live = left < linear->panel_outputs ? left : linear->panel_outputs;
        const int64_t width = rounded_up(live, lanes);
        for (int64_t c = 0; c < linear->inputs; c++)
            for (int64_t o = 0; o < width; o++, to += size) {
                if (o < live)
                    memcpy(to, nn_weight_address(weight, first + o, c), (size_t)size);
                else
                    memset(to, 0, (size_t)size);
            }
    }
    for (int64_t o = 0; o < part->panels * linear->panel_outputs; o++)
        part->bias[o] = bias && o < part->outputs ? nn_weight_at(bias, 0, o) : 0.0f;
}

static int has_bias(const attn_tensor *biases, int64_t part)
{
    return biases && biases[part].data;
}

static attn_status check_weights(int64_t num_parts, const attn_tensor *weights, const attn_tensor *biases)
{
    CHECK(nn_check_length("num_parts", num_parts, 1));
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected %" PRId64 " matrices", num_parts);
    for (int64_t p = 0; p < num_parts; p++) {
        const struct nn_name weight = nn_name_of("weights", p, NULL), bias = nn_name_of("biases", p, NULL);
        CHECK(nn_check_matrix(weight.text, &weights[p], NN_ANY, p ? weights[0].shape[3] : NN_ANY));
        if (has_bias(biases, p))
            CHECK(nn_check_vector(bias.text, &biases[p], weights[p].shape[2]));
    }
    return ATTN_OK;
}

/** Sizes of the parts; returns the bytes of memory, or -1 on overflow. */
static int64_t lay_out(struct attn_linear *linear, const attn_tensor *weights)
{
    int64_t total = 0;
    for (int64_t p = 0; p < linear->num_parts; p++) {
        struct part *part = &linear->parts[p];
        part->outputs = weights[p].shape[2];
        part->dtype = weights[p].dtype;
        const int64_t bytes = weight_bytes(linear, part);
        if (bytes < 0)
            return -1;
        part->panels = (part->outputs + linear->panel_outputs - 1) / linear->panel_outputs;
        part->first_panel = linear->panels;
        linear->panels += part->panels;
        const int64_t floats = part->panels * linear->panel_outputs;
        if (__builtin_add_overflow(total, floats * (int64_t)sizeof(float), &total) ||
            __builtin_add_overflow(total, bytes, &total) || total > INT64_MAX / 2)
            return -1;
    }
    return total;
}

attn_status attn_linear_create(attn_linear **linear_out, int64_t num_parts, const attn_tensor *weights,
                               const attn_tensor *biases)
{
    if (!linear_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "linear is NULL; expected where to put the layer");
    *linear_out = NULL;
    CHECK(check_weights(num_parts, weights, biases));
    struct attn_linear *linear = calloc(1, sizeof *linear + (size_t)num_parts * sizeof *linear->parts);
    if (!linear)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a linear layer of %" PRId64 " parts could not be allocated", num_parts);
    linear->kernels = attn_nn_kernels_active();
    linear->panel_outputs = (int64_t)linear->kernels->panel_vectors * linear->kernels->lanes;
    linear->inputs = weights[0].shape[3];
    linear->num_parts = num_parts;
    const int64_t bytes = lay_out(linear, weights);
    if (bytes < 0) {
        free(linear);
        return attn_fail(ATTN_SIZE_OVERFLOW, "the packed weights would exceed 2^63 bytes");
    }
    linear->memory = aligned_alloc(ATTN_ALIGN, (size_t)rounded_up(bytes + 1, ATTN_ALIGN));
    if (!linear->memory) {
        free(linear);
        return attn_fail(ATTN_OUT_OF_MEMORY, "%" PRId64 " bytes of packed weights could not be allocated", bytes);
    }
    char *at = linear->memory;
    for (int64_t p = 0; p < num_parts; p++) {
        struct part *part = &linear->parts[p];
        part->weights = at;
        at += weight_bytes(linear, part);
    }
    float *bias = (float *)(void *)at;
    for (int64_t p = 0; p < num_parts; p++) {
        struct part *part = &linear->parts[p];
        part->bias = bias;
        bias += part->panels * linear->panel_outputs;
        pack_part(linear, part, &weights[p], has_bias(biases, p) ? &biases[p] : NULL);
    }
    *linear_out = linear;
    return ATTN_OK;
}

void attn_linear_destroy(attn_linear *linear)
{
    if (linear)
        free(linear->memory);
    free(linear);
}

int64_t attn_linear_inputs(const attn_linear *linear)
{
    return linear->inputs;
}

int64_t attn_linear_outputs(const attn_linear *linear, int64_t part)
{
    return part >= 0 && part < linear->num_parts ? linear->parts[part].outputs : 0;
}

/* ---------------------------------------------------------------- products -- */

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
static const struct part *part_of(const struct attn_linear *linear, int64_t panel)
{
    const struct part *part = linear->parts;
    while (panel >= part->first_panel + part->panels)
        part++;
    return part;
}

static void run_task(const struct product *product, int64_t task)
{
    const struct attn_linear *linear = product->linear;
    const int64_t panel = task % linear->panels, block = task / linear->panels;
    const int64_t batch = block / product->blocks, first = block % product->blocks * product->block_rows;
    const struct part *part = part_of(linear, panel);
    const attn_tensor *out = product->outs[part - linear->parts];
    if (!out)
        return;
    const int64_t at = (panel - part->first_panel) * linear->panel_outputs, left = part->outputs - at;
    const int lanes = linear->kernels->lanes;
    const struct nn_grid_rows grid_out = nn_rows_in_grid(&product->grid, out);
    const struct attn_rows x = nn_rows_from(&product->x, batch, first), to = nn_rows_from(&grid_out, batch, first);
    struct nn_linear_work work = {
        .x = nn_floats_of(&x),
        .rows = product->grid.tokens - first < product->block_rows ? product->grid.tokens - first : product->block_rows,
        .inputs = linear->inputs,
        .dtype = part->dtype,
        .panel = part->weights + at * linear->inputs * attn_element_size(part->dtype),
        .bias = part->bias + at,
        .outputs = (int)(left < linear->panel_outputs ? left : linear->panel_outputs),
        .activation = product->activation,
        .out = nn_floats_of(&to),
    };
    work.vectors = (work.outputs + lanes - 1) / lanes;
    work.out.data += at;
    if (product->residual) {
        const struct attn_rows added = nn_rows_from(&product->added, batch, first);
        work.residual = nn_floats_of(&added);
        work.residual.data += at;
    }
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
    product->block_rows = rounded_up((rows + product->blocks - 1) / product->blocks, 8);
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
    CHECK(nn_check_activations("x", x, NN_ANY, NN_ANY, linear->inputs));
    CHECK(attn_take_struct("options", ours, sizeof *ours, NN_LINEAR_OPTIONS_FIRST, options));
    CHECK(nn_check_activation("options.activation", ours->activation));
    CHECK(attn_check_executor("options.executor", ours->executor));
    return nn_check_threads(ours->num_threads);
}

static attn_status check_out(const char *name, const attn_tensor *out, const attn_tensor *x, int64_t outputs)
{
    CHECK(nn_check_output(name, out, x->shape[0], x->shape[2], outputs));
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
        CHECK(nn_check_activations("options.residual", ours.residual, x->shape[0], x->shape[2],
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
