/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Transformer layer in training: what a call gives, taken and checked.
 */
#include "nn/block_training.h"

#include "api/check.h"
#include "api/executor.h"
#include "nn/check.h"

#include <stdio.h>

/* ------------------------------------------------------------ config, options -- */

static attn_status take_config(struct nn_block_run *run, const attn_block_config *config)
{
    attn_mha_config *self = &run->attention[NN_SELF].config, *cross = &run->attention[NN_CROSS].config;
    CHECK(nn_complete_block_config(&run->config, self, config));
    const char *inference = run->config.qk_norm         ? "qk_norm"
                            : run->config.post_norms    ? "post_norms"
                            : run->config.norm_plus_one ? "norm_plus_one"
                                                        : NULL;
    if (inference)
        return attn_fail(ATTN_UNSUPPORTED, "config.%s is set; expected 0 in training", inference);
    if (self->format)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.%s is set; expected NULL: training reads weights as they are "
                         "given",
                         run->config.format ? "format" : "attention->format");
    run->config.attention = self;
    *cross = *self;
    cross->d_memory = run->config.d_memory;
    return ATTN_OK;
}

static attn_status check_dropout(const char *name, const attn_dropout *dropout)
{
    if (dropout && !(dropout->p >= 0.0f && dropout->p < 1.0f))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s->p is %g; expected 0 or more and less than 1", name,
                         (double)dropout->p);
    return ATTN_OK;
}

attn_status nn_block_take_pass(struct nn_block_run *run, const attn_block_config *config, const attn_block_pass *pass)
{
    CHECK(take_config(run, config));
    CHECK(attn_take_struct("pass", &run->pass, sizeof run->pass, NN_BLOCK_PASS_FIRST, pass));
    CHECK(attn_check_executor("pass.executor", run->pass.executor));
    CHECK(nn_check_threads(run->pass.num_threads));
    CHECK(check_dropout("pass.dropout", run->pass.dropout));
    CHECK(check_dropout("pass.hidden_dropout", run->pass.hidden_dropout));
    if (!run->config.cross && (run->pass.cross || run->pass.memory))
        return attn_fail(ATTN_INVALID_ARGUMENT, "pass.%s is set; expected NULL, as this layer has no cross-attention",
                         run->pass.cross ? "cross" : "memory");
    CHECK(nn_mha_take_training_params(&run->attention[NN_SELF], run->pass.self));
    CHECK(nn_mha_take_training_params(&run->attention[NN_CROSS], run->pass.cross));
    for (int s = NN_SELF; s < NN_NETWORK; s++) {
        run->attention[s].params.num_threads = run->pass.num_threads;
        run->attention[s].params.executor = NULL;
    }
    return ATTN_OK;
}

/** Weights, or gradients of weights, with those of the attentions. */
static attn_status take_weights(struct nn_block_run *run, const char *name, attn_block_weights *ours,
                                const attn_block_weights *theirs)
{
    const int sums = ours == &run->sums;
    CHECK(attn_take_struct(name, ours, sizeof *ours, NN_BLOCK_WEIGHTS_FIRST, theirs));
    const struct {
        const char *name;
        const attn_mha_weights *weights;
    } attentions[NN_NETWORK] = {{sums ? "gradients.weights->self" : "weights.self", ours->self},
                                {sums ? "gradients.weights->cross" : "weights.cross", ours->cross}};
    for (int s = NN_SELF; s < NN_NETWORK; s++) {
        struct nn_mha_pass *a = &run->attention[s];
        if (s == NN_CROSS && !run->config.cross) {
            if (attentions[s].weights)
                return attn_fail(ATTN_INVALID_ARGUMENT,
                                 "%s is set; expected NULL, as this layer has no cross-attention", attentions[s].name);
            continue;
        }
        if (attentions[s].weights)
            CHECK(attn_take_struct(attentions[s].name, sums ? &a->sums : &a->weights, sizeof a->weights,
                                   NN_MHA_WEIGHTS_FIRST, attentions[s].weights));
        else if (!sums)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected an attn_mha_weights", attentions[s].name);
    }
    return ATTN_OK;
}

/** Gradients of an attention's options. */
static attn_status take_options(struct nn_mha_pass *attention, const attn_gradients *options)
{
    attn_mha_gradients g = attn_mha_gradients_default();
    g.options = options;
    return nn_mha_take_gradients(attention, &g);
}

attn_status nn_block_take_gradients(struct nn_block_run *run, const attn_block_gradients *gradients)
{
    attn_block_gradients *g = &run->gradients;
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected what to write");
    CHECK(attn_take_struct("gradients", g, sizeof *g, NN_BLOCK_GRADIENTS_FIRST, gradients));
    if (!run->config.cross && (g->memory || g->cross_options))
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "gradients.%s is set; expected NULL, as this layer has no cross-attention",
                         g->memory ? "memory" : "cross_options");
    if (g->weights)
        CHECK(take_weights(run, "gradients.weights", &run->sums, g->weights));
    CHECK(take_options(&run->attention[NN_SELF], g->self_options));
    return take_options(&run->attention[NN_CROSS], g->cross_options);
}

/* -------------------------------------------------------------------- tensors -- */

/** Tensors of weights beside those of attention. */
enum { ALL = NN_BLOCK_TENSORS, OTHERS = ALL - 2 * NN_MHA_TENSORS };

/** All tensors of weights, or of their gradients, under the names that sentences have for them. */
struct named_weights {
    struct nn_mha_named attention[NN_NETWORK];
    const attn_tensor *others[OTHERS];
    struct nn_name names[OTHERS];
};

static void name_weights(struct named_weights *named, const char *prefix, const attn_block_weights *w,
                         const attn_mha_weights *self, const attn_mha_weights *cross)
{
    static const char *const names[OTHERS] = {"w_gate",      "b_gate",     "w_up",          "b_up",
                                              "w_down",      "b_down",     "self_gamma",    "self_beta",
                                              "cross_gamma", "cross_beta", "network_gamma", "network_beta"};
    const attn_tensor *const tensors[OTHERS] = {&w->w_gate,      &w->b_gate,     &w->w_up,          &w->b_up,
                                                &w->w_down,      &w->b_down,     &w->self_gamma,    &w->self_beta,
                                                &w->cross_gamma, &w->cross_beta, &w->network_gamma, &w->network_beta};
    char attention[64];
    snprintf(attention, sizeof attention, "%sself->", prefix);
    named->attention[NN_SELF] = nn_mha_name_weights(attention, self);
    snprintf(attention, sizeof attention, "%scross->", prefix);
    named->attention[NN_CROSS] = nn_mha_name_weights(attention, cross);
    for (int i = 0; i < OTHERS; i++) {
        named->others[i] = tensors[i];
        snprintf(named->names[i].text, sizeof named->names[i].text, "%s%s", prefix, names[i]);
    }
}

/** For nn_check_apart(). */
static void list_weights(struct nn_argument list[ALL], const struct named_weights *named)
{
    nn_mha_list_weights(list, &named->attention[NN_SELF]);
    nn_mha_list_weights(list + NN_MHA_TENSORS, &named->attention[NN_CROSS]);
    for (int i = 0; i < OTHERS; i++)
        list[2 * NN_MHA_TENSORS + i] = (struct nn_argument){named->names[i].text, nn_wanted(named->others[i])};
}

/** The shape of one of the other tensors; rows 0: a layer of this config has none. */
static void shape_of(const struct nn_block_run *run, int i, int64_t *rows, int64_t *columns)
{
    const attn_block_config *c = &run->config;
    const int64_t d = c->attention->d_model, gate = c->gated ? c->d_ff : 0, cross = c->cross ? 1 : 0;
    const int64_t beta = c->norm == ATTN_NORM_RMS ? 0 : 1;
    const int64_t shapes[OTHERS][2] = {
        {gate, d}, {gate ? 1 : 0, gate}, {c->d_ff, d},       {1, c->d_ff}, {d, c->d_ff}, {1, d}, {1, d},
        {beta, d}, {cross, d},           {cross && beta, d}, {1, d},       {beta, d}};
    *rows = shapes[i][0];
    *columns = shapes[i][1];
}

/** The other tensors. Matrices, the even ones before the norms, have to be there. */
static attn_status check_others(const struct nn_block_run *run, const struct named_weights *named, int sums)
{
    enum { NORMS = 6 };
    for (int i = 0; i < OTHERS; i++) {
        const attn_tensor *t = named->others[i];
        const char *name = named->names[i].text;
        int64_t rows, columns;
        shape_of(run, i, &rows, &columns);
        if (!rows && t->data)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s has data; expected NULL, as this layer has none", name);
        if (!rows || (!t->data && (sums || i % 2 != 0 || i >= NORMS)))
            continue;
        if (sums)
            CHECK(nn_check_sums(name, t, rows, columns));
        else if (i % 2 == 0 && i < NORMS)
            CHECK(nn_check_matrix(name, t, rows, columns));
        else
            CHECK(nn_check_vector(name, t, columns));
        if (!sums && i >= NORMS)
            CHECK(attn_check_contiguous(name, t));
    }
    return ATTN_OK;
}

attn_status nn_block_check_inputs(struct nn_block_run *run, const attn_block_weights *weights, const attn_tensor *x)
{
    struct named_weights named;
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected an attn_block_weights");
    CHECK(take_weights(run, "weights", &run->weights, weights));
    name_weights(&named, "weights.", &run->weights, &run->attention[NN_SELF].weights,
                 &run->attention[NN_CROSS].weights);
    for (int s = NN_SELF; s <= nn_block_last_attention(run); s++)
        CHECK(nn_check_mha_weights(&run->attention[s].config, s == NN_SELF ? "weights.self->" : "weights.cross->",
                                   &run->attention[s].weights));
    CHECK(check_others(run, &named, 0));
    CHECK(nn_check_typed_activations("x", x, NN_ANY, NN_ANY, run->config.attention->d_model));
    const attn_tensor *memory = run->pass.memory;
    if (run->config.cross && !memory)
        return attn_fail(ATTN_INVALID_ARGUMENT, "pass.memory is NULL; expected a tensor, as this layer has "
                                                "cross-attention");
    if (memory)
        CHECK(nn_check_typed_activations("pass.memory", memory, x->shape[0], NN_ANY, run->config.d_memory));
    run->x = x;
    run->dtype = x->dtype;
    run->batch = x->shape[0];
    run->tokens = x->shape[2];
    run->memory_tokens = memory ? memory->shape[2] : 0;
    const size_t kept = nn_block_kept_size(run);
    if (kept == SIZE_MAX)
        return attn_fail(ATTN_INVALID_ARGUMENT, "x has a shape for which more bytes are kept than can be counted");
    if (run->pass.kept && run->pass.kept_size < kept)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "pass.kept_size is %zu; expected %zu bytes or more",
                         run->pass.kept_size, kept);
    return ATTN_OK;
}

static void list_tensors(const attn_block_weights *w, const attn_mha_weights *self, const attn_mha_weights *cross,
                         const attn_tensor *tensors[NN_BLOCK_TENSORS])
{
    struct named_weights named;
    name_weights(&named, "", w, self, cross);
    for (int s = NN_SELF; s < NN_NETWORK; s++)
        for (int i = 0; i < NN_MHA_TENSORS; i++)
            *tensors++ = named.attention[s].tensors[i];
    for (int i = 0; i < OTHERS; i++)
        *tensors++ = named.others[i];
}

void nn_block_list_tensors(const struct nn_block_run *run, const attn_tensor *weights[NN_BLOCK_TENSORS],
                           const attn_tensor *sums[NN_BLOCK_TENSORS])
{
    const struct nn_mha_pass *self = &run->attention[NN_SELF], *cross = &run->attention[NN_CROSS];
    list_tensors(&run->weights, &self->weights, &cross->weights, weights);
    list_tensors(&run->sums, &self->sums, &cross->sums, sums);
}

/** All that a call reads, but d_out. */
static int list_inputs(struct nn_argument list[ALL + 2], struct named_weights *named, const struct nn_block_run *run)
{
    name_weights(named, "weights.", &run->weights, &run->attention[NN_SELF].weights, &run->attention[NN_CROSS].weights);
    list_weights(list, named);
    list[ALL] = (struct nn_argument){"x", run->x};
    list[ALL + 1] = (struct nn_argument){"pass.memory", run->pass.memory};
    return ALL + 2;
}

attn_status nn_block_check_out(const struct nn_block_run *run, const attn_tensor *out)
{
    struct named_weights named;
    struct nn_argument inputs[ALL + 2];
    const struct nn_argument outputs[] = {{"out", out}};
    CHECK(nn_check_typed_output("out", out, run->batch, run->tokens, run->config.attention->d_model));
    const int num = list_inputs(inputs, &named, run);
    return nn_check_apart(outputs, 1, inputs, num);
}

attn_status nn_block_check_gradients(const struct nn_block_run *run, const attn_tensor *d_out)
{
    const attn_block_gradients *g = &run->gradients;
    struct named_weights named, sums;
    struct nn_argument inputs[ALL + 2], outputs[ALL + 2];
    CHECK(nn_check_typed_activations("d_out", d_out, run->batch, run->tokens, run->config.attention->d_model));
    if (!g->x && !g->memory && !g->weights && !g->self_options && !g->cross_options)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "gradients has nothing to write; expected x, memory, weights, self_options or cross_options");
    if (g->x)
        CHECK(nn_check_typed_output("gradients.x", g->x, run->batch, run->tokens, d_out->shape[3]));
    if (g->memory)
        CHECK(
            nn_check_typed_output("gradients.memory", g->memory, run->batch, run->memory_tokens, run->config.d_memory));
    if (g->memory && g->accumulate_memory)
        CHECK(attn_check_f32("gradients.memory", g->memory->dtype));
    name_weights(&sums, "gradients.weights->", &run->sums, &run->attention[NN_SELF].sums,
                 &run->attention[NN_CROSS].sums);
    for (int s = NN_SELF; s <= nn_block_last_attention(run); s++)
        CHECK(nn_mha_check_sums(&run->attention[s].config, &sums.attention[s]));
    CHECK(check_others(run, &sums, 1));
    list_weights(outputs, &sums);
    outputs[ALL] = (struct nn_argument){"gradients.x", g->x};
    outputs[ALL + 1] = (struct nn_argument){"gradients.memory", g->memory};
    const int num = list_inputs(inputs, &named, run);
    CHECK(nn_check_apart(outputs, ALL + 2, inputs, num));
    for (int i = 0; i < ALL + 2; i++)
        if (outputs[i].tensor)
            CHECK(attn_check_apart(outputs[i].name, outputs[i].tensor, "d_out", d_out, i == ALL));
    return ATTN_OK;
}
