/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The eight tensors of multi-head attention as a list, for what is said of each.
 */
#include "nn/mha.h"

#include <stdio.h>

/** Matrices and biases with what their shapes follow from. */
static const char *const names[NN_MHA_TENSORS] = {"w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o"};

enum { MATRICES = NN_MHA_TENSORS / 2 };

struct sizes {
    int64_t rows, columns;
};

static struct sizes sizes_of(const attn_mha_config *c, int i)
{
    const int64_t q = c->heads * c->head_dim, k = c->kv_heads * c->head_dim, v = c->kv_heads * c->value_dim;
    const struct sizes matrices[MATRICES] = {
        {q, c->d_model}, {k, c->d_memory}, {v, c->d_memory}, {c->d_out, c->heads * c->value_dim}};
    const struct sizes *of = &matrices[i % MATRICES];
    return i < MATRICES ? *of : (struct sizes){1, of->rows};
}

struct nn_mha_named nn_mha_name_weights(const char *prefix, const attn_mha_weights *w)
{
    const attn_tensor *const tensors[] = {&w->w_q, &w->w_k, &w->w_v, &w->w_o, &w->b_q, &w->b_k, &w->b_v, &w->b_o};
    struct nn_mha_named named;
    for (int i = 0; i < NN_MHA_TENSORS; i++) {
        named.tensors[i] = tensors[i];
        snprintf(named.names[i].text, sizeof named.names[i].text, "%s%s", prefix, names[i]);
    }
    return named;
}

void nn_mha_list_weights(struct nn_argument list[NN_MHA_TENSORS], const struct nn_mha_named *named)
{
    for (int i = 0; i < NN_MHA_TENSORS; i++)
        list[i] = (struct nn_argument){named->names[i].text, nn_wanted(named->tensors[i])};
}

attn_status nn_check_mha_weights(const attn_mha_config *config, const char *prefix, const attn_mha_weights *weights)
{
    const struct nn_mha_named named = nn_mha_name_weights(prefix, weights);
    for (int i = 0; i < MATRICES; i++) {
        const struct sizes s = sizes_of(config, i);
        const attn_tensor *bias = named.tensors[i + MATRICES];
        CHECK(nn_check_matrix(named.names[i].text, named.tensors[i], s.rows, s.columns));
        if (bias->data)
            CHECK(nn_check_vector(named.names[i + MATRICES].text, bias, s.rows));
    }
    return ATTN_OK;
}

attn_status nn_mha_check_sums(const attn_mha_config *config, const struct nn_mha_named *named)
{
    for (int i = 0; i < NN_MHA_TENSORS; i++) {
        const struct sizes s = sizes_of(config, i);
        if (named->tensors[i]->data)
            CHECK(nn_check_sums(named->names[i].text, named->tensors[i], s.rows, s.columns));
    }
    return ATTN_OK;
}
