/* SPDX-License-Identifier: Apache-2.0 */
/* Makes random weights under the names of PyTorch and Transformers, and the oracle's layers of them. */
#include "named.h"

struct named *named_create(struct memory *m)
{
    struct named *n = bytes(m, sizeof *n);
    n->num = 0;
    return n;
}

void named_add(struct named *n, struct memory *m, attn_dtype dtype, int64_t rows, int64_t columns, double scale,
               double mean, const char *prefix, const char *name)
{
    assert_true(n->num < NAMED_MAX);
    attn_tensor t =
        attn_matrix(bytes(m, (size_t)((rows ? rows : 1) * columns) * sizeof(float)), rows ? rows : 1, columns);
    t.dtype = dtype;
    for (int64_t i = 0; i < t.shape[2]; i++)
        for (int64_t c = 0; c < columns; c++)
            tensor_set(&t, 0, 0, i, c, (float)(mean + scale * (double)rng_normal(&m->rng)));
    snprintf(n->names[n->num], NAMED_LENGTH, "%s%s", prefix, name);
    n->tensors[n->num] = t;
    n->values[n->num++] = read_all(m, &t);
}

static int64_t find(const struct named *n, const char *prefix, const char *name)
{
    char whole[NAMED_LENGTH];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    for (int64_t i = 0; i < n->num; i++)
        if (strcmp(n->names[i], whole) == 0)
            return i;
    return -1;
}

const double *named_values(const struct named *n, const char *prefix, const char *name)
{
    const int64_t i = find(n, prefix, name);
    return i < 0 ? NULL : n->values[i];
}

attn_tensor *named_tensor(struct named *n, const char *prefix, const char *name)
{
    const int64_t i = find(n, prefix, name);
    assert_true(i >= 0);
    return &n->tensors[i];
}

void named_remove(struct named *n, const char *prefix, const char *name)
{
    const int64_t i = find(n, prefix, name);
    assert_true(i >= 0);
    n->num--;
    memmove(n->names[i], n->names[i + 1], (size_t)(n->num - i) * sizeof n->names[0]);
    memmove(&n->tensors[i], &n->tensors[i + 1], (size_t)(n->num - i) * sizeof n->tensors[0]);
    memmove(&n->values[i], &n->values[i + 1], (size_t)(n->num - i) * sizeof n->values[0]);
}

attn_weights *named_weights(const struct named *n)
{
    const char *names[NAMED_MAX];
    attn_weights *weights;
    for (int64_t i = 0; i < n->num; i++)
        names[i] = n->names[i];
    OK(attn_weights_create(&weights, n->num, names, n->tensors));
    return weights;
}

char *named_file(const struct named *n, struct memory *m, size_t *size)
{
    static const char *const types[] = {"F32", "BF16", "F16"};
    size_t data = 0, header = 8;
    for (int64_t i = 0; i < n->num; i++)
        data += (size_t)(n->tensors[i].shape[2] * n->tensors[i].shape[3]) * attn_dtype_size(n->tensors[i].dtype);
    char *file = bytes(m, 8 + (size_t)(n->num + 1) * (NAMED_LENGTH + 120) + data), *text = file + 8;
    size_t at = 0;
    *text++ = '{';
    for (int64_t i = 0; i < n->num; i++) {
        const attn_tensor *t = &n->tensors[i];
        const size_t bytes_of_it = (size_t)(t->shape[2] * t->shape[3]) * attn_dtype_size(t->dtype);
        text += sprintf(text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", n->names[i], types[t->dtype]);
        text += t->shape[2] == 1 ? sprintf(text, "%lld", (long long)t->shape[3])
                                 : sprintf(text, "%lld,%lld", (long long)t->shape[2], (long long)t->shape[3]);
        text += sprintf(text, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes_of_it);
        at += bytes_of_it;
    }
    *text++ = '}';
    while ((text - file) % 8)
        *text++ = ' ';
    header = (size_t)(text - file) - 8;
    for (int i = 0; i < 8; i++)
        file[i] = (char)(unsigned char)(header >> (8 * i) & 0xff);
    for (int64_t i = 0; i < n->num; i++) {
        const attn_tensor *t = &n->tensors[i];
        const size_t bytes_of_it = (size_t)(t->shape[2] * t->shape[3]) * attn_dtype_size(t->dtype);
        memcpy(text, t->data, bytes_of_it);
        text += bytes_of_it;
    }
    *size = (size_t)(text - file);
    return file;
}

static const char *joined(const char *a, const char *b)
{
    static char text[4][NAMED_LENGTH];
    static int next;
    char *it = text[next++ % 4];
    snprintf(it, NAMED_LENGTH, "%s%s", a, b);
    return it;
}

void named_add_dense(struct named *n, struct memory *m, int64_t out, int64_t in, int bias, const char *prefix,
                     const char *name)
{
    named_add(n, m, random_dtype(m), out, in, 1 / sqrt((double)in), 0, prefix, joined(name, ".weight"));
    if (bias)
        named_add(n, m, random_dtype(m), 0, out, 0.2, 0, prefix, joined(name, ".bias"));
}

void named_add_norm(struct named *n, struct memory *m, attn_norm kind, int64_t channels, const char *prefix,
                    const char *name)
{
    named_add(n, m, random_dtype(m), 0, channels, 0.2, 1, prefix, joined(name, ".weight"));
    if (kind == ATTN_NORM_LAYER)
        named_add(n, m, random_dtype(m), 0, channels, 0.2, 0, prefix, joined(name, ".bias"));
}

struct oracle_dense named_dense(const struct named *n, int64_t out, int64_t in, const char *prefix, const char *name)
{
    return (struct oracle_dense){out, in, named_values(n, prefix, joined(name, ".weight")),
                                 named_values(n, prefix, joined(name, ".bias"))};
}

struct oracle_norm named_norm(const struct named *n, attn_norm kind, int64_t channels, float eps, const char *prefix,
                              const char *name)
{
    return (struct oracle_norm){kind, channels, named_values(n, prefix, joined(name, ".weight")),
                                named_values(n, prefix, joined(name, ".bias")), (double)eps};
}

/* ------------------------------------------------------------------ layers -- */

struct names {
    const char *q, *k, *v, *o; /**< of the self-attention; q NULL: one in_proj_weight */
    const char *gate, *up, *down, *norms[3];
};

/** Those of norms with post_norms: in front of attention and the network, and behind them. */
static const char *const post_norms[] = {"input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm",
                                         "post_feedforward_layernorm"};

static const struct names names_of[] = {
    [ATTN_NAMING_TORCH] =
        {NULL, NULL, NULL, "self_attn.out_proj", NULL, "linear1", "linear2", {"norm1", "norm2", "norm3"}},
    [ATTN_NAMING_BERT] = {"attention.self.query",
                          "attention.self.key",
                          "attention.self.value",
                          "attention.output.dense",
                          NULL,
                          "intermediate.dense",
                          "output.dense",
                          {"attention.output.LayerNorm", "output.LayerNorm", NULL}},
    [ATTN_NAMING_LLAMA] = {"self_attn.q_proj",
                           "self_attn.k_proj",
                           "self_attn.v_proj",
                           "self_attn.o_proj",
                           "mlp.gate_proj",
                           "mlp.up_proj",
                           "mlp.down_proj",
                           {"input_layernorm", "post_attention_layernorm", NULL}},
};

/** Sizes with defaults filled in, as the header says. */
static attn_mha_config filled(attn_mha_config c)
{
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.head_dim = c.head_dim ? c.head_dim : c.d_model / c.heads;
    c.value_dim = c.value_dim ? c.value_dim : c.head_dim;
    c.d_memory = c.d_memory ? c.d_memory : c.d_model;
    c.d_out = c.d_out ? c.d_out : c.d_model;
    return c;
}

/** in_proj_weight where all three are of one width, else a weight each; one in_proj_bias in either case. */
static void add_torch_attention(struct named *n, struct memory *m, const attn_mha_config *c, int biases,
                                const char *prefix)
{
    const int64_t q = c->heads * c->head_dim, k = c->kv_heads * c->head_dim, v = c->kv_heads * c->value_dim;
    const double scale = 1 / sqrt((double)c->d_model);
    if (c->d_memory == c->d_model) {
        named_add(n, m, random_dtype(m), q + k + v, c->d_model, scale, 0, prefix, "in_proj_weight");
    } else {
        named_add(n, m, random_dtype(m), q, c->d_model, scale, 0, prefix, "q_proj_weight");
        named_add(n, m, random_dtype(m), k, c->d_memory, scale, 0, prefix, "k_proj_weight");
        named_add(n, m, random_dtype(m), v, c->d_memory, scale, 0, prefix, "v_proj_weight");
    }
    if (biases)
        named_add(n, m, random_dtype(m), 0, q + k + v, 0.2, 0, prefix, "in_proj_bias");
    named_add_dense(n, m, c->d_out, c->heads * c->value_dim, biases, prefix, "out_proj");
}

static struct oracle_mha torch_attention(const struct named *n, const attn_mha_config *c, const char *prefix)
{
    struct oracle_mha o = {c->heads, c->kv_heads, c->head_dim, c->value_dim, {0}, {0}, {0}, {0}};
    const int64_t q = c->heads * c->head_dim, k = c->kv_heads * c->head_dim, v = c->kv_heads * c->value_dim;
    const double *w = named_values(n, prefix, "in_proj_weight"), *b = named_values(n, prefix, "in_proj_bias");
    o.q = (struct oracle_dense){q, c->d_model, w ? w : named_values(n, prefix, "q_proj_weight"), b};
    o.k = (struct oracle_dense){k, c->d_memory, w ? w + q * c->d_model : named_values(n, prefix, "k_proj_weight"),
                                b ? b + q : NULL};
    o.v = (struct oracle_dense){v, c->d_memory, w ? w + (q + k) * c->d_model : named_values(n, prefix, "v_proj_weight"),
                                b ? b + q + k : NULL};
    o.o = named_dense(n, c->d_out, c->heads * c->value_dim, prefix, "out_proj");
    return o;
}

void named_add_block(struct named *n, struct memory *m, const attn_block_config *config, const char *prefix,
                     attn_naming naming, int biases)
{
    const struct names *names = &names_of[naming];
    const attn_mha_config c = filled(*config->attention);
    if (names->q) {
        named_add_dense(n, m, c.heads * c.head_dim, c.d_model, biases, prefix, names->q);
        named_add_dense(n, m, c.kv_heads * c.head_dim, c.d_model, biases, prefix, names->k);
        named_add_dense(n, m, c.kv_heads * c.value_dim, c.d_model, biases, prefix, names->v);
        named_add_dense(n, m, c.d_model, c.heads * c.value_dim, biases, prefix, names->o);
    } else {
        char self[NAMED_LENGTH];
        snprintf(self, sizeof self, "%sself_attn.", prefix);
        add_torch_attention(n, m, &c, biases, self);
    }
    if (config->cross) {
        char cross[NAMED_LENGTH];
        attn_mha_config of_cross = c;
        of_cross.d_memory = config->d_memory ? config->d_memory : c.d_model;
        snprintf(cross, sizeof cross, "%smultihead_attn.", prefix);
        add_torch_attention(n, m, &of_cross, biases, cross);
    }
    if (config->gated)
        named_add_dense(n, m, config->d_ff, c.d_model, biases, prefix, names->gate);
    named_add_dense(n, m, config->d_ff, c.d_model, biases, prefix, names->up);
    named_add_dense(n, m, c.d_model, config->d_ff, biases, prefix, names->down);
    for (int i = 0; i < 2 + !!config->cross && !config->post_norms; i++)
        named_add_norm(n, m, config->norm, c.d_model, prefix, names->norms[i]);
    for (int i = 0; i < 4 && config->post_norms; i++)
        named_add_norm(n, m, config->norm, c.d_model, prefix, post_norms[i]);
}

struct oracle_block named_block(const struct named *n, const attn_block_config *config, const char *prefix,
                                attn_naming naming)
{
    const struct names *names = &names_of[naming];
    const attn_mha_config c = filled(*config->attention);
    struct oracle_block o = {.d_model = c.d_model,
                             .d_ff = config->d_ff,
                             .activation = config->activation,
                             .gated = config->gated,
                             .norm_first = config->norm_first,
                             .has_cross = config->cross,
                             .post_norms = config->post_norms,
                             .norm_plus_one = config->norm_plus_one};
    if (names->q) {
        o.self = (struct oracle_mha){c.heads, c.kv_heads, c.head_dim, c.value_dim, {0}, {0}, {0}, {0}};
        o.self.q = named_dense(n, c.heads * c.head_dim, c.d_model, prefix, names->q);
        o.self.k = named_dense(n, c.kv_heads * c.head_dim, c.d_model, prefix, names->k);
        o.self.v = named_dense(n, c.kv_heads * c.value_dim, c.d_model, prefix, names->v);
        o.self.o = named_dense(n, c.d_model, c.heads * c.value_dim, prefix, names->o);
    } else {
        char self[NAMED_LENGTH];
        snprintf(self, sizeof self, "%sself_attn.", prefix);
        o.self = torch_attention(n, &c, self);
    }
    if (config->cross) {
        char cross[NAMED_LENGTH];
        attn_mha_config of_cross = c;
        of_cross.d_memory = config->d_memory ? config->d_memory : c.d_model;
        snprintf(cross, sizeof cross, "%smultihead_attn.", prefix);
        o.cross = torch_attention(n, &of_cross, cross);
    }
    if (config->gated)
        o.gate = named_dense(n, config->d_ff, c.d_model, prefix, names->gate);
    o.up = named_dense(n, config->d_ff, c.d_model, prefix, names->up);
    o.down = named_dense(n, c.d_model, config->d_ff, prefix, names->down);
    for (int i = 0; i < 2 + !!config->cross; i++)
        o.norms[i] =
            named_norm(n, config->norm, c.d_model, config->eps, prefix, o.post_norms ? post_norms[i] : names->norms[i]);
    for (int i = 0; i < 2 && o.post_norms; i++)
        o.after[i] = named_norm(n, config->norm, c.d_model, config->eps, prefix, post_norms[2 + i]);
    return o;
}

/* ------------------------------------------------------------------ models -- */

void layer_prefix(char text[NAMED_LENGTH], const char *prefix, const char *name, int64_t layer)
{
    snprintf(text, NAMED_LENGTH, "%s%s.%lld.", prefix, name, (long long)layer);
}

int32_t *random_ids(struct memory *m, int64_t n, int64_t vocabulary)
{
    int32_t *ids = bytes(m, (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_range(&m->rng, 0, vocabulary - 1);
    return ids;
}

struct trio trio_at(const struct trio *all, int64_t offset)
{
    return (struct trio){{all->of[0] + offset, all->of[1] + offset, all->of[2] + offset}};
}

void refuses_weights(struct memory *m, const struct named *named,
                     attn_status (*load)(const attn_weights *weights, void *user), void *user)
{
    struct named *copy = bytes(m, sizeof *copy);
    for (int64_t i = 0; i < named->num; i++)
        for (int change = 0; change < 2; change++) {
            const char *name = named->names[i];
            const size_t length = strlen(name);
            if (change == 0 && (strcmp(name + length - 4, "bias") == 0 || strstr(name, "in_proj")))
                continue; /* biases may be missing; other names are tried for in_proj */
            memcpy(copy, named, sizeof *copy);
            if (change == 0)
                named_remove(copy, name, "");
            else
                copy->tensors[i].shape[3]--;
            attn_weights *weights = named_weights(copy);
            REFUSES(NULL, load(weights, user), change ? ATTN_SHAPE_MISMATCH : ATTN_INVALID_ARGUMENT, name);
            attn_weights_destroy(weights);
        }
}
