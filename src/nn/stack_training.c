/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of an encoder or a decoder in training. */
#include "nn/stack_training.h"

#include "nn/block_training.h"
#include "nn/check.h"

#include <inttypes.h>

/** What a layer is told, forwards and backwards alike. */
struct call {
    attn_params self, cross;
    attn_dropout of_added, of_hidden, of_self, of_cross;
    attn_block_pass pass;
};

int nn_stack_keeps_all(const struct nn_stack *s)
{
    return s->run->pass.kept && s->run->pass.keep == ATTN_KEEP_ALL;
}

static void set_call(struct call *call, const struct nn_stack *s, int64_t layer)
{
    static char elsewhere; /* stands for memory that is only measured */
    const struct nn_model_run *run = s->run;
    const attn_model_pass *p = &run->pass;
    const int64_t place = NN_PLACES_OF_LAYER * (s->before + layer + 1);
    call->self = call->cross = attn_params_default();
    call->self.ragged = &s->self;
    call->self.causal = s->causal;
    call->self.dropout = nn_model_dropout(run, p->attention_dropout, place + NN_PLACE_SELF, &call->of_self);
    call->pass = attn_block_pass_default();
    call->pass.self = &call->self;
    if (s->config.cross) {
        call->cross.ragged = &s->cross;
        call->cross.dropout = nn_model_dropout(run, p->attention_dropout, place + NN_PLACE_CROSS, &call->of_cross);
        call->pass.cross = &call->cross;
        call->pass.memory = s->memory;
    }
    call->pass.dropout = nn_model_dropout(run, p->dropout, place, &call->of_added);
    call->pass.hidden_dropout = nn_model_dropout(run, p->hidden_dropout, place + NN_PLACE_HIDDEN, &call->of_hidden);
    if (nn_stack_keeps_all(s)) {
        call->pass.kept = s->kept ? s->kept + (size_t)layer * s->kept_size : &elsewhere;
        call->pass.kept_size = s->kept_size;
    }
    call->pass.num_threads = p->num_threads;
}

attn_status nn_stack_check_config(const struct nn_stack *s)
{
    struct nn_block_run run = {.batch = 0};
    return nn_block_take_pass(&run, &s->config, NULL);
}

/* -------------------------------------------------------------------- memory -- */

void nn_stack_take(struct nn_arena *arena, struct nn_stack *s, int is_kept)
{
    const struct nn_model_run *run = s->run;
    s->num_inputs = is_kept || s->layers < 2 ? s->layers : 2;
    s->inputs = nn_take(arena, s->num_inputs, s->tokens, s->config.attention->d_model, attn_dtype_size(run->dtype));
    if (!is_kept || run->pass.keep != ATTN_KEEP_ALL)
        return;
    s->kept_size = attn_block_kept_size(&s->config, run->dtype, 1, s->tokens, s->memory_tokens);
    s->kept = nn_take(arena, s->layers, 1, 1, s->kept_size);
}

attn_status nn_stack_need(const struct nn_stack *s, struct nn_need *need)
{
    struct nn_block_run run = {.is_backward = s->run->is_backward, .dtype = s->run->dtype, .batch = 1};
    struct call call;
    *need = (struct nn_need){0};
    if (!s->layers)
        return ATTN_OK;
    set_call(&call, s, 0);
    CHECK(nn_block_take_pass(&run, &s->config, &call.pass));
    if (run.is_backward) {
        const attn_block_gradients none = attn_block_gradients_default();
        CHECK(nn_block_take_gradients(&run, &none));
    }
    run.tokens = s->tokens;
    run.memory_tokens = s->memory_tokens;
    return nn_block_run_need(&run, need);
}

attn_tensor nn_stack_input(const struct nn_stack *s, int64_t layer)
{
    const int64_t d_model = s->config.attention->d_model, at = layer % s->num_inputs;
    const size_t size = (size_t)(s->tokens * d_model) * attn_dtype_size(s->run->dtype);
    return nn_model_rows(s->inputs + (size_t)at * size, s->run->dtype, s->tokens, d_model);
}

/** Where a layer's output goes in a forward pass. */
static attn_tensor output_of(const struct nn_stack *s, int64_t layer)
{
    return layer < s->layers - 1 ? nn_stack_input(s, layer + 1) : *s->out;
}

/* -------------------------------------------------------------------- checks -- */

int64_t nn_stack_arrays(const struct nn_stack *s)
{
    return 2 * s->layers * NN_BLOCK_TENSORS;
}

static void add_arrays(const struct nn_stack *s, const struct nn_block_run *run, int64_t layer, int are_gradients,
                       struct nn_arrays *arrays)
{
    const attn_tensor *weights[NN_BLOCK_TENSORS], *sums[NN_BLOCK_TENSORS];
    struct nn_array as = {
        .owner = are_gradients ? "gradients." : "weights.", .name = s->name, .layer = layer, .written = are_gradients};
    nn_block_list_tensors(run, weights, sums);
    for (int i = 0; i < NN_BLOCK_TENSORS; i++) {
        /* A vector that is missing is the same one in a layer that is used again. */
        const void *same = weights[i]->data ? weights[i]->data : (const char *)s->weights[layer] + i;
        as.weights = are_gradients && s->run->accumulate ? same : NULL;
        nn_arrays_add(arrays, are_gradients ? sums[i] : weights[i], &as);
    }
}

static attn_block_gradients gradients_of(const struct nn_stack *s, int64_t layer, const attn_tensor *d)
{
    attn_block_gradients g = attn_block_gradients_default();
    g.x = d;
    g.memory = s->d_memory;
    g.weights = s->gradients ? s->gradients[layer] : NULL;
    g.accumulate = s->run->accumulate;
    g.accumulate_memory = layer < s->layers - 1;
    return g;
}

static attn_status check_layer(const struct nn_stack *s, int64_t layer, const attn_tensor *d, struct nn_arrays *arrays)
{
    struct nn_block_run run = {.is_backward = s->run->is_backward};
    struct call call;
    const attn_tensor x = nn_stack_input(s, layer);
    set_call(&call, s, layer);
    CHECK(nn_block_take_pass(&run, &s->config, &call.pass));
    CHECK(nn_block_check_inputs(&run, s->weights[layer], &x));
    add_arrays(s, &run, layer, 0, arrays);
    if (!run.is_backward) {
        const attn_tensor to = output_of(s, layer);
        return nn_block_check_out(&run, &to);
    }
    const attn_block_gradients g = gradients_of(s, layer, d);
    CHECK(nn_block_take_gradients(&run, &g));
    CHECK(nn_block_check_gradients(&run, d));
    add_arrays(s, &run, layer, 1, arrays);
    return ATTN_OK;
}

attn_status nn_stack_check(const struct nn_stack *s, const attn_tensor *d, struct nn_arrays *arrays)
{
    if (!s->weights && s->layers)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights.%s is NULL; expected %" PRId64 " layers", s->name, s->layers);
    for (int64_t layer = 0; layer < s->layers; layer++) {
        const attn_status status = check_layer(s, layer, d, arrays);
        if (status)
            return attn_fail(status, "%s[%" PRId64 "]: %s", s->name, layer, attn_last_error());
    }
    return ATTN_OK;
}

/* -------------------------------------------------------------------- passes -- */

attn_status nn_stack_forward(const struct nn_stack *s)
{
    for (int64_t layer = 0; layer < s->layers; layer++) {
        const attn_tensor x = nn_stack_input(s, layer);
        const attn_tensor to = output_of(s, layer);
        struct call call;
        set_call(&call, s, layer);
        CHECK(attn_block_train(&s->config, s->weights[layer], &x, &call.pass, &to, s->run->scratch,
                               s->run->scratch_size));
    }
    return ATTN_OK;
}

int64_t nn_stack_lowest(const struct nn_stack *s)
{
    int64_t lowest = 0;
    while (lowest < s->layers && !(s->gradients && s->gradients[lowest]))
        lowest++;
    return lowest;
}

attn_status nn_stack_backward(const struct nn_stack *s, int64_t lowest, const attn_tensor *d)
{
    for (int64_t layer = s->layers - 1; layer >= lowest; layer--) {
        const attn_tensor x = nn_stack_input(s, layer);
        const attn_block_gradients g = gradients_of(s, layer, d);
        struct call call;
        set_call(&call, s, layer);
        CHECK(attn_block_backward(&s->config, s->weights[layer], &x, &call.pass, d, &g, s->run->scratch,
                                  s->run->scratch_size));
    }
    return ATTN_OK;
}
