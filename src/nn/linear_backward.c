/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of y = x Wᵀ + b: checks, and the three products that they are.
 * That of the bias is a product with ones, by the same functions in the same
 * order as that of the weights.
 */
#include "nn/linear_backward.h"

#include "api/executor.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/gradient_products.h"

#include <inttypes.h>

struct nn_need nn_linear_backward_need(int num_threads)
{
    return nn_gradient_product_need(nn_all_threads(num_threads));
}

/** (1, 1, n, 1): the elements of a vector as rows. */
static attn_tensor vector_rows(const attn_tensor *vector)
{
    attn_tensor t = *vector;
    t.shape[2] = vector->shape[3];
    t.stride[2] = vector->stride[3];
    t.shape[3] = t.stride[3] = 1;
    return t;
}

void nn_linear_backward(const attn_tensor *weights, const attn_tensor *x, const attn_tensor *d_out,
                        const attn_linear_gradients *gradients, void *scratch, size_t size)
{
    const int threads = nn_all_threads(gradients->num_threads);
    const int64_t rows = d_out->shape[0] * d_out->shape[2], outputs = d_out->shape[3];
    if (gradients->x) {
        const struct nn_gradient_product product = {
            .left = {d_out, 0},
            .right = {weights, 1},
            .rows = rows,
            .columns = weights->shape[3],
            .terms = outputs,
            .to = gradients->x,
            .accumulate = gradients->accumulate_x,
        };
        nn_gradient_product(&product, threads, scratch, size);
    }
    if (gradients->weights) {
        const struct nn_gradient_product product = {
            .left = {d_out, 0},
            .right = {x, 0},
            .turned = 1,
            .rows = outputs,
            .columns = x->shape[3],
            .terms = rows,
            .to = gradients->weights,
            .accumulate = gradients->accumulate,
        };
        nn_gradient_product(&product, threads, scratch, size);
    }
    if (gradients->bias) {
        const attn_tensor to = vector_rows(gradients->bias);
        const struct nn_gradient_product product = {
            .left = {d_out, 0},
            .turned = 1,
            .rows = outputs,
            .columns = 1,
            .terms = rows,
            .to = &to,
            .accumulate = gradients->accumulate,
        };
        nn_gradient_product(&product, threads, scratch, size);
    }
}

/* ------------------------------------------------------------------- checks -- */

static attn_status take_gradients(attn_linear_gradients *ours, const attn_linear_gradients *gradients)
{
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    CHECK(attn_take_struct("gradients", ours, sizeof *ours, NN_LINEAR_GRADIENTS_FIRST, gradients));
    CHECK(attn_check_executor("gradients.executor", ours->executor));
    return nn_check_threads(ours->num_threads);
}

static attn_status check_all(const attn_tensor *weights, const attn_tensor *x, const attn_tensor *d_out,
                             const attn_linear_gradients *g)
{
    CHECK(nn_check_matrix("weights", weights, NN_ANY, NN_ANY));
    CHECK(nn_check_typed_activations("d_out", d_out, NN_ANY, NN_ANY, weights->shape[2]));
    if (!g->x && !g->weights && !g->bias)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients has no tensor; expected x, weights or bias");
    if (g->weights && !x)
        return attn_fail(ATTN_INVALID_ARGUMENT, "x is NULL; expected the input, for gradients.weights");
    if (x)
        CHECK(nn_check_typed_activations("x", x, d_out->shape[0], d_out->shape[2], weights->shape[3]));
    if (g->x)
        CHECK(nn_check_typed_output("gradients.x", g->x, d_out->shape[0], d_out->shape[2], weights->shape[3]));
    if (g->x && g->accumulate_x && g->x->dtype != ATTN_F32)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.x.dtype is %s; expected f32, as accumulate_x is set",
                         attn_dtype_name(g->x->dtype));
    if (g->weights)
        CHECK(nn_check_sums("gradients.weights", g->weights, weights->shape[2], weights->shape[3]));
    if (g->bias)
        CHECK(nn_check_sums("gradients.bias", g->bias, 1, weights->shape[2]));
    const struct nn_argument inputs[] = {{"weights", weights}, {"x", x}, {"d_out", d_out}};
    const struct nn_argument outputs[] = {
        {"gradients.x", g->x}, {"gradients.weights", g->weights}, {"gradients.bias", g->bias}};
    return nn_check_apart(outputs, 3, inputs, 3);
}

size_t attn_linear_backward_workspace_size(const attn_linear_gradients *gradients)
{
    attn_linear_gradients ours;
    if (take_gradients(&ours, gradients))
        return SIZE_MAX;
    const attn_executor *before = attn_executor_enter(ours.executor);
    struct nn_arena arena = {0};
    size_t size;
    nn_take_workspace(&arena, nn_linear_backward_need(ours.num_threads), &size);
    attn_executor_leave(before);
    return nn_arena_size(&arena);
}

attn_status attn_linear_backward(const attn_tensor *weights, const attn_tensor *x, const attn_tensor *d_out,
                                 const attn_linear_gradients *gradients, void *workspace, size_t workspace_size)
{
    attn_linear_gradients ours;
    CHECK(take_gradients(&ours, gradients));
    CHECK(check_all(weights, x, d_out, &ours));
    const attn_executor *before = attn_executor_enter(ours.executor);
    struct nn_arena measured = {0};
    struct nn_workspace w;
    size_t size;
    nn_take_workspace(&measured, nn_linear_backward_need(ours.num_threads), &size);
    const attn_status status = nn_workspace_open(&w, workspace, workspace_size, &measured);
    if (status == ATTN_OK) {
        void *scratch = nn_take_workspace(&w.arena, (struct nn_need){0}, &size);
        nn_linear_backward(weights, x, d_out, &ours, scratch, size);
        nn_workspace_close(&w);
    }
    attn_executor_leave(before);
    return status;
}
