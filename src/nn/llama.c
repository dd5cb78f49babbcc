/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama: pre-norm layers with RMSNorm, SwiGLU, grouped queries and rotated
 * queries and keys (Touvron et al. 2023), and sessions that keep what grows.
 *
 * A session's cache has for each layer a tensor (batch, 1, capacity, keys and
 * values); the rotations of all its positions are made when it is created.
 */
#include "attn/nn/models.h"

#include "cpu/large.h"
#include "nn/check.h"
#include "nn/linear.h"
#include "nn/llama.h"
#include "nn/memory.h"
#include "nn/names.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <stdlib.h>

struct attn_llama_session {
    const attn_llama *llama;
    int64_t batch, capacity, length;
    char *cache;      /* [layers][batch][capacity][keys and values] of the decoder's activations */
    float *rotations; /* [capacity][2 * pairs] */
    void *workspace;  /* grows to what the largest call has needed */
    size_t workspace_size;
};

/* ----------------------------------------------------------------- loading -- */

/** Fills in defaults, and checks what the layers do not check themselves. */
static attn_status complete_config(attn_llama_config *c, attn_rope_config *rope, const attn_llama_config *theirs,
                                   int rotated)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_llama_config");
    CHECK(attn_take_struct("config", c, sizeof *c, NN_LLAMA_CONFIG_FIRST, theirs));
    CHECK(nn_check_layer_type("config.activations", c->activations));
    CHECK(nn_check_length("config.layers", c->layers, 1));
    CHECK(nn_check_length("config.vocabulary", c->vocabulary, 1));
    attn_mha_config given = attn_mha_config_default(), attention;
    given.d_model = c->d_model;
    given.heads = c->heads;
    given.kv_heads = c->kv_heads;
    given.head_dim = c->head_dim;
    CHECK(nn_complete_mha_config(&attention, "config", &given));
    c->kv_heads = attention.kv_heads;
    c->head_dim = attention.head_dim;
    CHECK(attn_take_struct("config.rope", rope, sizeof *rope, NN_ROPE_CONFIG_FIRST, c->rope));
    if (!rotated)
        return attn_check_count("config.layers", sizeof(attn_block *), c->layers, 1, 1);
    if (!rope->pairs)
        rope->pairs = c->head_dim / 2;
    if (rope->pairs < 1 || rope->pairs > c->head_dim / 2)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.rope.pairs is %" PRId64 "; expected 1 to %" PRId64 ", half of the head size",
                         rope->pairs, c->head_dim / 2);
    /* The other fields of rope: a table without rows checks them. */
    CHECK(attn_rope_table(rope, NULL, 0, NULL));
    return attn_check_count("config.layers", sizeof(attn_block *), c->layers, 1, 1);
}

static attn_status load_blocks(attn_llama *llama, const struct nn_llama_kind *kind, struct nn_reader *reader)
{
    const attn_llama_config *c = &llama->config;
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config block = attn_block_config_default();
    attention.d_model = c->d_model;
    attention.heads = c->heads;
    attention.kv_heads = c->kv_heads;
    attention.head_dim = c->head_dim;
    block.attention = &attention;
    block.d_ff = c->d_ff;
    block.activation = kind->activation;
    block.gated = kind->gated;
    block.norm = kind->norm_kind;
    block.eps = c->eps;
    block.norm_first = 1;
    block.format = c->format;
    block.qk_norm = kind->qk_norm;
    block.post_norms = kind->post_norms;
    block.norm_plus_one = kind->norm_plus_one;
    block.cross = kind->cross;
    for (int64_t layer = 0; layer < c->layers; layer++) {
        struct nn_prefix name;
        CHECK(nn_numbered(&name, kind->prefix, kind->layers, layer));
        CHECK(nn_block_load(&llama->blocks[layer], &block, reader, name.text, kind->naming));
    }
    return ATTN_OK;
}

static attn_status load_norm(attn_llama *llama, const struct nn_llama_kind *kind, struct nn_reader *reader)
{
    attn_tensor gamma, beta;
    CHECK(nn_get_norm(reader, kind->prefix, kind->norm, llama->config.d_model, &gamma, &beta));
    CHECK(nn_copy_floats(&gamma, &llama->norm.gamma));
    for (int64_t c = 0; kind->norm_plus_one && c < llama->config.d_model; c++)
        llama->norm.gamma[c] += 1.0f;
    return nn_copy_floats(&beta, &llama->norm.beta);
}

static attn_status load_all(attn_llama *llama, const struct nn_llama_kind *kind, struct nn_reader *reader)
{
    const attn_llama_config *c = &llama->config;
    attn_tensor embedding, positions, head;
    CHECK(load_blocks(llama, kind, reader));
    CHECK(load_norm(llama, kind, reader));
    if (kind->words) {
        embedding = llama->embedding = *kind->words;
    } else {
        CHECK(nn_get(reader, kind->prefix, kind->embedding, c->vocabulary, c->d_model, &embedding));
        CHECK(nn_copy_weights(&embedding, &llama->embedding));
    }
    if (kind->positions) {
        CHECK(nn_get(reader, kind->prefix, kind->positions, kind->num_positions, c->d_model, &positions));
        CHECK(nn_copy_weights(&positions, &llama->positions));
    }
    if (kind->headless)
        return ATTN_OK;
    head = embedding;
    if (!c->tied)
        CHECK(nn_get(reader, "", "lm_head.weight", c->vocabulary, c->d_model, &head));
    return attn_linear_quantize(&llama->head, c->format, 1, &head, NULL);
}

const struct nn_llama_kind nn_llama_plain = {
    .prefix = "model.",
    .layers = "layers.",
    .embedding = "embed_tokens.weight",
    .norm = "norm",
    .naming = ATTN_NAMING_LLAMA,
    .norm_kind = ATTN_NORM_RMS,
    .activation = ATTN_ACTIVATION_SILU,
    .gated = 1,
};

/** Not read; the header says why. */
static const char *const known[] = {"*rotary_emb.inv_freq", NULL};
static const char *const known_tied[] = {"*rotary_emb.inv_freq", "lm_head.weight", NULL};

static attn_status copy_kind(attn_llama *llama, const struct nn_llama_kind *kind)
{
    llama->kind = *kind;
    llama->kind.windows = NULL;
    llama->kind.bias = NULL;
    if (kind->bias) {
        const attn_tensor table =
            attn_btc((float *)(uintptr_t)kind->bias->table, 1, llama->config.heads, kind->bias->buckets);
        float *copy;
        CHECK(nn_copy_floats(&table, &copy));
        llama->bias = *kind->bias;
        llama->bias.table = copy;
        llama->kind.bias = &llama->bias;
    }
    if (!kind->windows)
        return ATTN_OK;
    const size_t size = (size_t)llama->config.layers * sizeof *kind->windows;
    int64_t *windows = malloc(size);
    if (!windows)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of windows could not be allocated");
    llama->kind.windows = memcpy(windows, kind->windows, size);
    return ATTN_OK;
}

attn_status nn_llama_load(attn_llama **llama_out, const attn_llama_config *config, const struct nn_llama_kind *kind,
                          struct nn_reader *reader)
{
    attn_llama_config completed;
    attn_rope_config rope;
    CHECK(complete_config(&completed, &rope, config, nn_llama_rotates(kind)));
    attn_llama *llama = calloc(1, sizeof *llama + (size_t)completed.layers * sizeof *llama->blocks);
    if (!llama)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a decoder of %" PRId64 " layers could not be allocated",
                         completed.layers);
    llama->config = completed;
    llama->config.rope = &llama->rope;
    llama->rope = rope;
    attn_status status = copy_kind(llama, kind);
    if (!status)
        status = load_all(llama, kind, reader);
    llama->config.format = NULL;
    if (!status)
        status = nn_check_all_read(reader, "", kind->known ? kind->known : completed.tied ? known_tied : known);
    if (status)
        attn_llama_destroy(llama);
    else
        *llama_out = llama;
    return status;
}

attn_status attn_llama_load(attn_llama **llama, const attn_llama_config *config, const attn_weights *weights)
{
    if (!llama)
        return attn_fail(ATTN_INVALID_ARGUMENT, "llama is NULL; expected where to put the decoder");
    *llama = NULL;
    if (!config)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_llama_config");
    struct nn_reader reader;
    CHECK(nn_reader_open(&reader, "attn_llama_load", weights, ""));
    const attn_status status = nn_llama_load(llama, config, &nn_llama_plain, &reader);
    nn_reader_close(&reader);
    return status;
}

void attn_llama_destroy(attn_llama *llama)
{
    if (!llama)
        return;
    for (int64_t layer = 0; layer < llama->config.layers; layer++)
        attn_block_destroy(llama->blocks[layer]);
    attn_linear_destroy(llama->head);
    if (!llama->kind.words)
        free(llama->embedding.data);
    free((float *)(uintptr_t)llama->bias.table);
    free(llama->positions.data);
    free(llama->norm.gamma);
    free(llama->norm.beta);
    free((int64_t *)(uintptr_t)llama->kind.windows);
    free(llama);
}

/* ---------------------------------------------------------------- sessions -- */

/** Channels of a cached token: keys and values of all heads. */
static int64_t kv_channels(const attn_llama *llama)
{
    return 2 * llama->config.kv_heads * llama->config.head_dim;
}

static attn_status allocate_session(attn_llama_session *session)
{
    const attn_llama_config *c = &session->llama->config;
    /* Cannot overflow: the packed weights of as many layers are in memory. */
    const int64_t channels = c->layers * kv_channels(session->llama);
    const size_t size = attn_dtype_size(c->activations);
    CHECK(attn_check_count("capacity", size, session->batch, session->capacity, channels));
    CHECK(attn_check_count("capacity", sizeof(float), session->capacity, 2 * c->rope->pairs, 1));
    session->cache = attn_alloc_large((size_t)(session->batch * session->capacity * channels) * size);
    session->rotations = malloc((size_t)(session->capacity * 2 * c->rope->pairs) * sizeof(float));
    if (!session->cache || !session->rotations)
        return attn_fail(ATTN_OUT_OF_MEMORY,
                         "a cache for %" PRId64 " sequences of %" PRId64 " tokens could not be allocated",
                         session->batch, session->capacity);
    return attn_rope_table(c->rope, NULL, session->capacity, session->rotations);
}

attn_status attn_llama_session_create(attn_llama_session **session_out, const attn_llama *llama, int64_t batch,
                                      int64_t capacity)
{
    if (!session_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "session is NULL; expected where to put the session");
    *session_out = NULL;
    if (!llama)
        return attn_fail(ATTN_INVALID_ARGUMENT, "llama is NULL; expected a decoder");
    CHECK(nn_check_length("batch", batch, 1));
    CHECK(nn_check_length("capacity", capacity, 1));
    attn_llama_session *session = calloc(1, sizeof *session);
    if (!session)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a session could not be allocated");
    session->llama = llama;
    session->batch = batch;
    session->capacity = capacity;
    const attn_status status = allocate_session(session);
    if (status)
        attn_llama_session_destroy(session);
    else
        *session_out = session;
    return status;
}

void attn_llama_session_destroy(attn_llama_session *session)
{
    if (!session)
        return;
    free(session->cache);
    free(session->rotations);
    free(session->workspace);
    free(session);
}

int64_t attn_llama_session_length(const attn_llama_session *session)
{
    return session->length;
}

static attn_status check_session(const attn_llama_session *session)
{
    return session ? ATTN_OK : attn_fail(ATTN_INVALID_ARGUMENT, "session is NULL; expected a session");
}

attn_status attn_llama_session_truncate(attn_llama_session *session, int64_t length)
{
    CHECK(check_session(session));
    if (length < 0 || length > session->length)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "length is %" PRId64 "; expected 0 to %" PRId64 ", the tokens that the session holds", length,
                         session->length);
    session->length = length;
    return ATTN_OK;
}

/* ------------------------------------------------------------------ tokens -- */

static attn_status check_forward(const attn_llama_session *session, int64_t tokens, const int32_t *ids,
                                 const attn_tensor *logits, int num_threads)
{
    CHECK(check_session(session));
    const attn_llama_config *c = &session->llama->config;
    if (tokens < 1 || tokens > session->capacity - session->length)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "tokens is %" PRId64 "; expected 1 to %" PRId64
                         ", what the session has room for behind the %" PRId64 " that it holds",
                         tokens, session->capacity - session->length, session->length);
    CHECK(nn_check_ids("ids", ids, 0, session->batch * tokens, c->vocabulary));
    CHECK(nn_check_output("logits", logits, session->batch, NN_ANY, c->vocabulary));
    if (logits->shape[2] != 1 && logits->shape[2] != tokens)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "logits.shape[2] is %" PRId64 "; expected 1 for the last token, or %" PRId64 " for all",
                         logits->shape[2], tokens);
    return nn_check_threads(num_threads);
}

/** Working memory of a call: states, and that of a layer. */
struct pieces {
    void *hidden;
    void *block;
    size_t block_size;
};

static struct pieces take_pieces(struct nn_arena *arena, const attn_llama_session *session, int64_t tokens,
                                 const attn_block_inputs *inputs)
{
    const attn_llama *llama = session->llama;
    const attn_dtype dtype = llama->config.activations;
    struct pieces pieces = {
        .hidden = nn_take(arena, session->batch, tokens, llama->config.d_model, attn_dtype_size(dtype)),
    };
    struct nn_need need = {0};
    if (!arena->base)
        need = nn_block_need(llama->blocks[0], dtype, session->batch, tokens, inputs);
    pieces.block = nn_take_workspace(arena, need, &pieces.block_size);
    return pieces;
}

static attn_status grow_workspace(attn_llama_session *session, const struct nn_arena *measured)
{
    const size_t needed = nn_arena_size(measured);
    if (measured->status || needed <= session->workspace_size)
        return measured->status;
    free(session->workspace);
    session->workspace_size = 0;
    session->workspace = malloc(needed);
    if (!session->workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a workspace of %zu bytes could not be allocated", needed);
    session->workspace_size = needed;
    return ATTN_OK;
}

/** A layer's cache. */
static attn_tensor cache_of(const attn_llama_session *session, int64_t layer)
{
    const int64_t channels = kv_channels(session->llama), elements = session->batch * session->capacity * channels;
    const attn_dtype dtype = session->llama->config.activations;
    attn_tensor cache = attn_btc(session->cache + layer * elements * (int64_t)attn_dtype_size(dtype), session->batch,
                                 session->capacity, channels);
    cache.dtype = dtype;
    return cache;
}

attn_status nn_llama_normalise(const attn_llama *llama, const attn_tensor *hidden, const attn_tensor *out,
                               int num_threads)
{
    const attn_tensor gamma = attn_vector(llama->norm.gamma, llama->config.d_model),
                      beta = attn_vector(llama->norm.beta, llama->config.d_model);
    return attn_normalise(llama->kind.norm_kind, hidden, &gamma, llama->norm.beta ? &beta : NULL, llama->config.eps,
                          out, num_threads);
}

/** Multiplies f32 rows by a factor. */
static void scale_rows(const attn_tensor *t, float factor)
{
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t r = 0; r < t->shape[2]; r++) {
            float *row = nn_row_address(t, b, r);
            for (int64_t c = 0; c < t->shape[3]; c++)
                row[c] *= factor;
        }
}

attn_status nn_llama_logits(const attn_llama *llama, const attn_tensor *hidden, const attn_tensor *logits,
                            int num_threads)
{
    const attn_linear_options options = nn_linear_threads(num_threads);
    const float cap = llama->kind.logit_softcap;
    CHECK(nn_llama_normalise(llama, hidden, hidden, num_threads));
    CHECK(attn_linear_forward(llama->head, hidden, logits, &options));
    if (llama->kind.logit_scale != 0)
        scale_rows(logits, llama->kind.logit_scale);
    if (cap == 0)
        return ATTN_OK;
    scale_rows(logits, 1 / cap);
    CHECK(attn_activate(ATTN_ACTIVATION_TANH, logits, logits, num_threads));
    scale_rows(logits, cap);
    return ATTN_OK;
}

/** The logits of the last tokens, of as many as logits has. */
static attn_status generate(const attn_llama *llama, const attn_tensor *hidden, const attn_tensor *logits,
                            int num_threads)
{
    attn_tensor wanted = *hidden;
    wanted.shape[2] = logits->shape[2];
    wanted.data = nn_row_address(hidden, 0, hidden->shape[2] - logits->shape[2]);
    return nn_llama_logits(llama, &wanted, logits, num_threads);
}

attn_status attn_llama_forward(attn_llama_session *session, int64_t tokens, const int32_t *ids,
                               const attn_tensor *logits, int num_threads)
{
    CHECK(check_forward(session, tokens, ids, logits, num_threads));
    const attn_llama *llama = session->llama;
    const attn_llama_config *c = &llama->config;
    attn_tensor cache = cache_of(session, 0);
    const attn_tensor rotation =
        attn_btc(session->rotations + session->length * 2 * c->rope->pairs, 1, tokens, 2 * c->rope->pairs);
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    inputs.self = &params;
    inputs.cache = &cache;
    inputs.cached = session->length;
    inputs.rotation = &rotation;
    inputs.rope = ATTN_ROPE_HALF_SPLIT;
    inputs.num_threads = num_threads;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_pieces(&measured, session, tokens, &inputs);
    CHECK(grow_workspace(session, &measured));
    CHECK(nn_workspace_open(&w, session->workspace, session->workspace_size, &measured));
    const struct pieces pieces = take_pieces(&w.arena, session, tokens, &inputs);
    attn_tensor hidden = attn_btc(pieces.hidden, session->batch, tokens, c->d_model);
    hidden.dtype = c->activations;
    CHECK(attn_embed(&llama->embedding, ids, 1, 0, &hidden, num_threads));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        cache = cache_of(session, layer);
        CHECK(attn_block_forward(llama->blocks[layer], &hidden, &hidden, &inputs, pieces.block, pieces.block_size));
    }
    CHECK(generate(llama, &hidden, logits, num_threads));
    session->length += tokens;
    return ATTN_OK;
}
