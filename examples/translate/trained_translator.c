/* SPDX-License-Identifier: Apache-2.0 */
/* An encoder-decoder, forwards and backwards, on parameters that change at every step. */
#include "trained_translator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "random.h"

/* ----------------------------------------------------------------- creation -- */

/* Parameters in their order: those of the embeddings; of each encoder layer; of each decoder layer; the rest. */
enum { OF_EMBEDDINGS = 2, OF_ATTENTION = 4, OF_NETWORK = 4, OF_NORM = 2 };

/* How a parameter begins. */
enum start { ZEROS, ONES, NORMAL, UNIFORM };

/* Adds a parameter; rows 0 stands for a vector. size: the deviation, or the bound. */
static attn_status add(struct trained_translator *t, const char *prefix, const char *name, int64_t rows,
                       int64_t columns, enum start start, double size)
{
    char full[96];
    int which;
    snprintf(full, sizeof full, "%s%s", prefix, name);
    CHECK(parameters_add(&t->parameters, full, rows, columns, &which));
    const struct stream stream = {t->seed, (uint64_t)which};
    float *values = t->parameters.all[which].values;
    for (int64_t i = 0; i < t->parameters.all[which].count; i++)
        values[i] = start == ONES      ? 1
                    : start == NORMAL  ? (float)(size * random_normal(stream, (uint64_t)i))
                    : start == UNIFORM ? (float)(size * (2 * random_uniform(stream, (uint64_t)i) - 1))
                                       : 0;
    return ATTN_OK;
}

/* Glorot & Bengio 2010, as nn.Transformer has it for all its matrices. */
static attn_status add_matrix(struct trained_translator *t, const char *prefix, const char *name, int64_t rows,
                              int64_t columns)
{
    return add(t, prefix, name, rows, columns, UNIFORM, sqrt(6 / (double)(rows + columns)));
}

/* As nn.Linear has it; inputs: columns of its matrix. */
static attn_status add_bias(struct trained_translator *t, const char *prefix, const char *name, int64_t count,
                            int64_t inputs)
{
    return add(t, prefix, name, 0, count, UNIFORM, 1 / sqrt((double)inputs));
}

static attn_status add_norm(struct trained_translator *t, const char *prefix, const char *norm)
{
    char name[48];
    snprintf(name, sizeof name, "%s.weight", norm);
    CHECK(add(t, prefix, name, 0, t->config.d_model, ONES, 0));
    snprintf(name, sizeof name, "%s.bias", norm);
    return add(t, prefix, name, 0, t->config.d_model, ZEROS, 0);
}

/* Projections of queries, keys and values are one matrix, below each other. */
static attn_status add_attention(struct trained_translator *t, const char *prefix, const char *attention)
{
    const int64_t d = t->config.d_model;
    char full[64];
    snprintf(full, sizeof full, "%s%s.", prefix, attention);
    CHECK(add_matrix(t, full, "in_proj_weight", 3 * d, d));
    CHECK(add(t, full, "in_proj_bias", 0, 3 * d, ZEROS, 0));
    CHECK(add_matrix(t, full, "out_proj.weight", d, d));
    return add(t, full, "out_proj.bias", 0, d, ZEROS, 0);
}

static attn_status add_layer(struct trained_translator *t, const char *stack, int64_t layer, bool decodes)
{
    const int64_t d = t->config.d_model, ff = t->config.d_ff;
    char prefix[48];
    snprintf(prefix, sizeof prefix, "%s.layers.%lld.", stack, (long long)layer);
    CHECK(add_attention(t, prefix, "self_attn"));
    if (decodes)
        CHECK(add_attention(t, prefix, "multihead_attn"));
    CHECK(add_matrix(t, prefix, "linear1.weight", ff, d));
    CHECK(add_bias(t, prefix, "linear1.bias", ff, d));
    CHECK(add_matrix(t, prefix, "linear2.weight", d, ff));
    CHECK(add_bias(t, prefix, "linear2.bias", d, ff));
    CHECK(add_norm(t, prefix, "norm1"));
    CHECK(add_norm(t, prefix, "norm2"));
    return decodes ? add_norm(t, prefix, "norm3") : ATTN_OK;
}

static attn_status add_all(struct trained_translator *t)
{
    const attn_transformer_config *c = &t->config;
    const double deviation = 1 / sqrt((double)c->d_model);
    CHECK(add(t, "src_embedding.", "weight", c->source_vocabulary, c->d_model, NORMAL, deviation));
    CHECK(add(t, "tgt_embedding.", "weight", c->target_vocabulary, c->d_model, NORMAL, deviation));
    for (int64_t i = 0; i < c->encoder_layers; i++)
        CHECK(add_layer(t, "encoder", i, false));
    for (int64_t i = 0; i < c->decoder_layers; i++)
        CHECK(add_layer(t, "decoder", i, true));
    CHECK(add_norm(t, "encoder.", "norm"));
    CHECK(add_norm(t, "decoder.", "norm"));
    /* nn.Linear begins its matrix with the bound of its bias. */
    CHECK(add(t, "generator.", "weight", c->target_vocabulary, c->d_model, UNIFORM, deviation));
    return add_bias(t, "generator.", "bias", c->target_vocabulary, c->d_model);
}

/* Rows of queries, keys and values of what is one parameter. */
static attn_tensor third(const attn_tensor *all, int which, int64_t d)
{
    const float *data = all->data;
    return all->shape[2] == 1 ? attn_vector(data + which * d, d) : attn_matrix(data + which * d * d, d, d);
}

static const attn_tensor *place_attention(const attn_tensor *p, int64_t d, attn_mha_weights *w)
{
    *w = attn_mha_weights_default();
    w->w_q = third(&p[0], 0, d), w->w_k = third(&p[0], 1, d), w->w_v = third(&p[0], 2, d);
    w->b_q = third(&p[1], 0, d), w->b_k = third(&p[1], 1, d), w->b_v = third(&p[1], 2, d);
    w->w_o = p[2], w->b_o = p[3];
    return p + OF_ATTENTION;
}

static const attn_tensor *place_layers(const attn_tensor *p, int64_t layers, int64_t d, bool decode,
                                       struct trained_layers *l)
{
    for (int64_t i = 0; i < layers; i++) {
        attn_block_weights *w = &l->all[i];
        *w = attn_block_weights_default();
        p = place_attention(p, d, &l->self[i]);
        w->self = &l->self[i];
        if (decode) {
            p = place_attention(p, d, &l->cross[i]);
            w->cross = &l->cross[i];
        }
        w->w_up = p[0], w->b_up = p[1], w->w_down = p[2], w->b_down = p[3];
        p += OF_NETWORK;
        w->self_gamma = p[0], w->self_beta = p[1];
        p += OF_NORM;
        if (decode) {
            w->cross_gamma = p[0], w->cross_beta = p[1];
            p += OF_NORM;
        }
        w->network_gamma = p[0], w->network_beta = p[1];
        p += OF_NORM;
        l->list[i] = w;
    }
    return p;
}

/* Weights of the model, or their gradients, in parameters. */
static void place(const attn_tensor *p, const attn_transformer_config *c, struct trained_weights *w)
{
    w->all = attn_transformer_weights_default();
    w->all.source_embedding = p[0], w->all.target_embedding = p[1];
    p = place_layers(p + OF_EMBEDDINGS, c->encoder_layers, c->d_model, false, &w->encoder);
    p = place_layers(p, c->decoder_layers, c->d_model, true, &w->decoder);
    w->all.encoder = w->encoder.list, w->all.decoder = w->decoder.list;
    w->all.encoder_gamma = p[0], w->all.encoder_beta = p[1];
    w->all.decoder_gamma = p[2], w->all.decoder_beta = p[3];
    w->all.generator = p[4], w->all.generator_bias = p[5];
}

static attn_model_pass pass_of(const struct trained_translator *t)
{
    attn_model_pass pass = attn_model_pass_default();
    pass.kept = t->kept;
    pass.kept_size = t->kept_size;
    return pass;
}

static attn_status make_memory(struct trained_translator *t)
{
    const int64_t source = t->most_pairs * t->longest_text, target = t->most_pairs * (t->longest_date + 1);
    const attn_model_pass pass = pass_of(t);
    t->kept_size = attn_transformer_kept_size(&t->config, source, target, ATTN_KEEP_ALL);
    t->workspace_size = attn_transformer_training_workspace_size(&t->config, t->most_pairs, source, target, &pass);
    if (t->kept_size == SIZE_MAX || t->workspace_size == SIZE_MAX)
        return io_fail(ATTN_UNSUPPORTED, "%s", attn_last_error());
    const bool there = (t->kept = malloc(t->kept_size)) && (t->workspace = malloc(t->workspace_size)) &&
                       (t->logits = malloc((size_t)(target * t->config.target_vocabulary) * sizeof(float)));
    return there ? ATTN_OK
                 : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for batches of %lld pairs", (long long)t->most_pairs);
}

attn_status trained_translator_create(struct trained_translator *t)
{
    const attn_transformer_config *c = &t->config;
    if (c->encoder_layers > TRAINED_LAYERS || c->decoder_layers > TRAINED_LAYERS)
        return io_fail(ATTN_UNSUPPORTED, "the model has %lld and %lld layers; expected at most %d",
                       (long long)c->encoder_layers, (long long)c->decoder_layers, TRAINED_LAYERS);
    CHECK(add_all(t));
    place(t->parameters.values, c, &t->weights);
    place(t->parameters.gradients, c, &t->gradients);
    return make_memory(t);
}

void trained_translator_destroy(struct trained_translator *t)
{
    free(t->kept);
    free(t->workspace);
    free(t->logits);
    parameters_free(&t->parameters);
}

/* ------------------------------------------------------------------- passes -- */

attn_status trained_translator_learn(struct trained_translator *t, const struct pair_batch *b, double *loss)
{
    const attn_model_pass pass = pass_of(t);
    const attn_tensor logits =
        attn_btc(t->logits, 1, b->target_offsets[b->pairs.num_pairs], t->config.target_vocabulary);
    CHECK(attn_transformer_train(&t->config, &t->weights.all, &b->pairs, &pass, &logits, t->workspace,
                                 t->workspace_size));
    CHECK(attn_cross_entropy(&logits, b->labels, 0, loss, &logits, 0));
    return attn_transformer_backward(&t->config, &t->weights.all, &b->pairs, &pass, &logits, &t->gradients.all, 0,
                                     t->workspace, t->workspace_size);
}

attn_status trained_translator_weights(const struct trained_translator *t, attn_weights **weights)
{
    return attn_weights_create(weights, t->parameters.count, (const char *const *)t->parameters.names,
                               t->parameters.values);
}
