/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention from the names of PyTorch's nn.MultiheadAttention: one
 * matrix for query, key and value one below the other, or three where their
 * inputs differ.
 */
#include "nn/check.h"
#include "nn/mha.h"
#include "nn/names.h"

/** Rows first.. to first + n - 1 of a matrix, or elements of a vector; data NULL stays. */
static attn_tensor slice(const attn_tensor *t, int axis, int64_t first, int64_t n)
{
    attn_tensor part = *t;
    if (t->data)
        part.data = (char *)t->data + first * t->stride[axis] * (int64_t)attn_dtype_size(t->dtype);
    part.shape[axis] = n;
    return part;
}

attn_status nn_mha_load(attn_mha **mha, const attn_mha_config *c, struct nn_reader *reader, const char *prefix)
{
    const int64_t q = c->heads * c->head_dim, k = c->kv_heads * c->head_dim, v = c->kv_heads * c->value_dim;
    attn_mha_weights w = attn_mha_weights_default();
    attn_tensor bias;
    if (nn_has(reader, prefix, "bias_k") || nn_has(reader, prefix, "bias_v"))
        return attn_fail(ATTN_UNSUPPORTED,
                         "%sbias_k or bias_v is in the weights; extra keys (add_bias_kv) are not "
                         "supported",
                         prefix);
    /* PyTorch keeps three matrices where they read rows of different lengths. */
    const int apart = nn_has(reader, prefix, "q_proj_weight") || nn_has(reader, prefix, "k_proj_weight") ||
                      nn_has(reader, prefix, "v_proj_weight") || c->d_memory != c->d_model;
    if (apart) {
        CHECK(nn_get(reader, prefix, "q_proj_weight", q, c->d_model, &w.w_q));
        CHECK(nn_get(reader, prefix, "k_proj_weight", k, c->d_memory, &w.w_k));
        CHECK(nn_get(reader, prefix, "v_proj_weight", v, c->d_memory, &w.w_v));
    } else {
        attn_tensor all;
        CHECK(nn_get(reader, prefix, "in_proj_weight", q + k + v, c->d_model, &all));
        w.w_q = slice(&all, 2, 0, q);
        w.w_k = slice(&all, 2, q, k);
        w.w_v = slice(&all, 2, q + k, v);
    }
    CHECK(nn_get_optional(reader, prefix, "in_proj_bias", 0, q + k + v, &bias));
    w.b_q = slice(&bias, 3, 0, q);
    w.b_k = slice(&bias, 3, q, k);
    w.b_v = slice(&bias, 3, q + k, v);
    CHECK(nn_get(reader, prefix, "out_proj.weight", c->d_out, c->heads * c->value_dim, &w.w_o));
    CHECK(nn_get_optional(reader, prefix, "out_proj.bias", 0, c->d_out, &w.b_o));
    return attn_mha_create(mha, c, &w);
}

attn_status attn_mha_load(attn_mha **mha, const attn_mha_config *config, const attn_weights *weights,
                          const char *prefix)
{
    if (!mha)
        return attn_fail(ATTN_INVALID_ARGUMENT, "mha is NULL; expected where to put the layer");
    *mha = NULL;
    attn_mha_config completed;
    struct nn_reader reader;
    CHECK(nn_complete_mha_config(&completed, "config", config));
    CHECK(nn_reader_open(&reader, "attn_mha_load", weights, prefix));
    attn_status status = nn_mha_load(mha, &completed, &reader, prefix);
    if (!status)
        status = nn_check_all_read(&reader, prefix, NULL);
    nn_reader_close(&reader);
    if (status) {
        attn_mha_destroy(*mha);
        *mha = NULL;
    }
    return status;
}
