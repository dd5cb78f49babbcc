/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention in training: what a call gives, taken and checked.
 */
#include "nn/mha_training.h"

#include "nn/check.h"

attn_status nn_mha_take_training_config(attn_mha_config *ours, const attn_mha_config *config)
{
    CHECK(nn_complete_mha_config(ours, "config", config));
    if (ours->format)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.format is set; expected NULL: gradients are those of weights "
                                                "as they are given");
    return ATTN_OK;
}

attn_status nn_mha_take_gradients(struct nn_mha_pass *pass, const attn_mha_gradients *gradients)
{
    pass->options = attn_gradients_default();
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    CHECK(attn_take_struct("gradients", &pass->gradients, sizeof pass->gradients, NN_MHA_GRADIENTS_FIRST, gradients));
    if (pass->gradients.weights)
        CHECK(attn_take_struct("gradients.weights", &pass->sums, sizeof pass->sums, NN_MHA_WEIGHTS_FIRST,
                               pass->gradients.weights));
    const attn_gradients *options = pass->gradients.options;
    if (!options)
        return ATTN_OK;
    CHECK(attn_take_struct("gradients.options", &pass->options, sizeof pass->options,
                           ATTN_FIRST_SIZE(attn_gradients, mask), options));
    if (pass->options.out || pass->options.lse || pass->options.q || pass->options.k || pass->options.v)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "gradients.options has out, lse, q, k or v; expected NULL: they are made "
                         "in between");
    return ATTN_OK;
}

attn_status nn_mha_take_training_params(struct nn_mha_pass *pass, const attn_params *params)
{
    CHECK(attn_take_params(&pass->params, params));
    CHECK(nn_check_threads(pass->params.num_threads));
    if (pass->params.lse || pass->params.weights || pass->params.key_sums || pass->params.scores)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params has an output on request; expected none: they are those of the "
                                                "forward pass");
    return ATTN_OK;
}

attn_status nn_mha_pass_size(struct nn_mha_pass *pass, const attn_tensor *memory)
{
    const attn_mha_config *c = &pass->config;
    pass->memory = memory ? memory : pass->x;
    pass->dtype = pass->x->dtype;
    pass->batch = pass->x->shape[0];
    pass->q_tokens = pass->x->shape[2];
    pass->k_tokens = pass->memory->shape[2];
    pass->crosses = memory != NULL;
    pass->narrow_x = pass->gradients.x && pass->gradients.x->dtype != ATTN_F32;
    pass->narrow_memory = pass->gradients.memory && pass->gradients.memory->dtype != ATTN_F32;
    if (!memory && c->d_memory != c->d_model)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "memory is NULL; expected a tensor of %lld channels, as keys are not made from x",
                         (long long)c->d_memory);
    return ATTN_OK;
}

attn_status nn_mha_check_inputs(struct nn_mha_pass *pass, const attn_mha_weights *weights, const attn_tensor *memory,
                                void *kept, size_t kept_size, const char *kept_name)
{
    const attn_mha_config *c = &pass->config;
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_mha_weights");
    CHECK(attn_take_struct("weights", &pass->weights, sizeof pass->weights, NN_MHA_WEIGHTS_FIRST, weights));
    CHECK(nn_check_mha_weights(c, "weights.", &pass->weights));
    CHECK(nn_check_typed_activations("x", pass->x, NN_ANY, NN_ANY, c->d_model));
    if (memory)
        CHECK(nn_check_typed_activations("memory", memory, pass->x->shape[0], NN_ANY, c->d_memory));
    CHECK(nn_mha_pass_size(pass, memory));
    pass->kept = kept;
    pass->is_kept = kept != NULL;
    const size_t size = nn_mha_kept_size(c, pass->dtype, pass->batch, pass->q_tokens, pass->k_tokens);
    if (kept && kept_size < size)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "%s is %zu; expected %zu bytes or more", kept_name, kept_size, size);
    return ATTN_OK;
}

enum { INPUTS = NN_MHA_TENSORS + 2 };

/** All that a call reads, but d_out. */
static void list_inputs(struct nn_argument list[INPUTS], const struct nn_mha_named *weights,
                        const struct nn_mha_pass *pass, const attn_tensor *memory)
{
    nn_mha_list_weights(list, weights);
    list[NN_MHA_TENSORS] = (struct nn_argument){"x", pass->x};
    list[NN_MHA_TENSORS + 1] = (struct nn_argument){"memory", memory};
}

attn_status nn_mha_check_out(const struct nn_mha_pass *pass, const attn_tensor *memory)
{
    const struct nn_mha_named weights = nn_mha_name_weights("weights.", &pass->weights);
    const struct nn_argument outputs[] = {{"out", pass->out}};
    struct nn_argument inputs[INPUTS];
    CHECK(nn_check_typed_output("out", pass->out, pass->batch, pass->q_tokens, pass->config.d_out));
    list_inputs(inputs, &weights, pass, memory);
    return nn_check_apart(outputs, 1, inputs, INPUTS);
}

static attn_status check_apart(const struct nn_mha_pass *pass, const attn_tensor *memory,
                               const struct nn_mha_named *sums)
{
    const struct nn_mha_named weights = nn_mha_name_weights("weights.", &pass->weights);
    struct nn_argument inputs[INPUTS + 1], outputs[NN_MHA_TENSORS + 2];
    list_inputs(inputs, &weights, pass, memory);
    inputs[INPUTS] = (struct nn_argument){"d_out", pass->d_out};
    nn_mha_list_weights(outputs, sums);
    outputs[NN_MHA_TENSORS] = (struct nn_argument){"gradients.x", pass->gradients.x};
    outputs[NN_MHA_TENSORS + 1] = (struct nn_argument){"gradients.memory", pass->gradients.memory};
    return nn_check_apart(outputs, NN_MHA_TENSORS + 2, inputs, INPUTS + 1);
}

attn_status nn_mha_check_gradients(const struct nn_mha_pass *pass, const attn_tensor *memory)
{
    const attn_mha_config *c = &pass->config;
    const attn_mha_gradients *g = &pass->gradients;
    CHECK(nn_check_typed_activations("d_out", pass->d_out, pass->batch, pass->q_tokens, c->d_out));
    if (!g->x && !g->memory && !g->weights && !g->options)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "gradients has nothing to write; expected x, memory, weights or options");
    if (g->memory && !memory)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.memory is set without memory; expected NULL");
    if (g->x)
        CHECK(nn_check_typed_output("gradients.x", g->x, pass->batch, pass->q_tokens, c->d_model));
    if (g->memory)
        CHECK(nn_check_typed_output("gradients.memory", g->memory, pass->batch, pass->k_tokens, c->d_memory));
    const struct nn_mha_named sums = nn_mha_name_weights("gradients.weights.", &pass->sums);
    CHECK(nn_mha_check_sums(c, &sums));
    return check_apart(pass, memory, &sums);
}
