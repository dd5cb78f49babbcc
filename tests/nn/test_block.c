/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transformer layers: against the oracle under the names of PyTorch, BERT and
 * Llama, both norm orders, cross-attention, rotations and caches; equal bits;
 * missing weights; wrong arguments.
 */
#include "named.h"
#include "options.h"

struct layer {
    attn_block_config config;
    attn_mha_config attention;
    attn_naming naming;
    struct named *named;
    struct oracle_block oracle;
    attn_block *block;
    int64_t d_model, d_memory, kv_width;
};

static void layer_create(struct layer *l, struct memory *m, attn_naming naming, int cross)
{
    struct rng *rng = &m->rng;
    memset(l, 0, sizeof *l);
    l->config = attn_block_config_default();
    attn_block_config *c = &l->config;
    const int64_t kv_heads = rng_range(rng, 1, 2), group = naming == ATTN_NAMING_LLAMA ? rng_range(rng, 1, 3) : 1;
    const int64_t head_dim = RNG_PICK(rng, 4, 8, 16, 18);
    l->naming = naming;
    l->d_model = kv_heads * group * head_dim;
    l->d_memory = l->d_model;
    l->attention = attn_mha_config_default();
    l->attention.d_model = l->d_model, l->attention.heads = kv_heads * group;
    l->attention.kv_heads = group > 1 ? kv_heads : 0;
    c->attention = &l->attention;
    c->d_ff = RNG_PICK(rng, 8, 17, 48, 96);
    c->eps = 1e-5f;
    c->activation = rng_percent(rng, 50) ? ATTN_ACTIVATION_RELU : ATTN_ACTIVATION_GELU;
    c->norm_first = rng_percent(rng, 50);
    if (naming == ATTN_NAMING_BERT)
        c->norm_first = 0;
    if (naming == ATTN_NAMING_LLAMA) {
        c->norm_first = c->gated = 1;
        c->norm = ATTN_NORM_RMS;
        c->activation = ATTN_ACTIVATION_SILU;
        c->post_norms = rng_percent(rng, 30);
        c->norm_plus_one = rng_percent(rng, 30);
    }
    if (cross) {
        c->cross = 1;
        if (rng_percent(rng, 50))
            c->d_memory = l->d_memory = RNG_PICK(rng, 8, 12, 33);
    }
    l->kv_width = kv_heads * 2 * head_dim;
    l->named = named_create(m);
    const char *prefix = rng_percent(rng, 50) ? "" : "layers.3.";
    named_add_block(l->named, m, c, prefix, naming, rng_percent(rng, 70));
    l->oracle = named_block(l->named, c, prefix, naming);
    attn_weights *weights = named_weights(l->named);
    OK(attn_block_load(&l->block, c, weights, prefix, naming));
    attn_weights_destroy(weights);
}

static attn_tensor rotation(struct memory *m, int64_t batch, int64_t tokens, int64_t head_dim)
{
    attn_rope_config config = attn_rope_config_default();
    config.pairs = rng_range(&m->rng, 1, head_dim / 2);
    const attn_tensor table = place_dense(m, batch, 1, tokens, 2 * config.pairs);
    int64_t *positions = bytes(m, (size_t)(batch * tokens) * sizeof *positions);
    for (int64_t i = 0; i < batch * tokens; i++)
        positions[i] = i % tokens + 3 * (i / tokens);
    OK(attn_rope_table(&config, positions, batch * tokens, table.data));
    mark_input(m, &table);
    return table;
}

static void test_against_oracle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(150); n++) {
        struct memory *m = memory_create("block against_oracle", n);
        run_in(m, random_activations(m));
        const attn_naming naming = (attn_naming)(n % 3);
        const int cross = naming == ATTN_NAMING_TORCH && n % 2;
        const int64_t batch = RNG_PICK(&m->rng, 0, 1, 2, 3), tokens = RNG_PICK(&m->rng, 0, 1, 5, 17, 33);
        const int64_t tm = RNG_PICK(&m->rng, 0, 1, 7, 20);
        struct layer l;
        layer_create(&l, m, naming, cross);
        const struct oracle_mha *a = &l.oracle.self;
        const struct options_for self_of = {batch, a->heads, a->kv_heads, tokens, tokens, 0, 0};
        const struct options_for cross_of = {batch, a->heads, a->kv_heads, tokens, tm, 0, 0};
        struct options *self = random_options(m, &self_of), *of_cross = random_options(m, &cross_of);
        attn_block_inputs inputs = attn_block_inputs_default();
        struct oracle_block_inputs oracle_inputs = {0};
        const int has_self = rng_percent(&m->rng, 70);
        if (has_self)
            inputs.self = oracle_inputs.self = &self->params;
        attn_tensor table, memory, kv;
        if (naming == ATTN_NAMING_LLAMA && rng_percent(&m->rng, 80)) {
            table = rotation(m, rng_percent(&m->rng, 50) ? batch : 1, tokens, a->dk);
            inputs.rotation = oracle_inputs.rotation = &table;
            inputs.rope = oracle_inputs.rope = (attn_rope_layout)rng_range(&m->rng, 0, 1);
        }
        if (cross) {
            memory = random_rows(m, batch, tm, l.d_memory);
            if (rng_percent(&m->rng, 70))
                inputs.cross = oracle_inputs.cross = &of_cross->params;
            for (int64_t b = 0; b < batch && inputs.cross && of_cross->kv_len; b++)
                for (int64_t j = of_cross->kv_len[b]; j < tm; j++)
                    tensor_set(&memory, b, 0, j, 0, NAN);
            oracle_inputs.memory = read_all(m, &memory);
            oracle_inputs.tm = tm;
            if (rng_percent(&m->rng, 50)) {
                kv = place_rows(m, batch, tm, l.kv_width);
                OK(attn_block_project_memory(l.block, &memory, &kv, (int)(n % 4)));
                inputs.cross_kv = &kv;
            } else {
                inputs.memory = &memory;
            }
        }
        inputs.num_threads = (int)rng_range(&m->rng, 0, 3);
        const attn_tensor x = random_rows(m, batch, tokens, l.d_model);
        const struct trio y = trio(m, batch * tokens * l.d_model), w = trio(m, batch * a->heads * tokens * tokens);
        const struct trio cw = trio(m, batch * a->heads * tokens * tm);
        const double *xs = read_all(m, &x);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->block(&l.oracle, batch, tokens, xs, &oracle_inputs, y.of[k], w.of[k], cw.of[k]);
        memory_seal(m);
        const attn_tensor out = place_rows(m, batch, tokens, l.d_model);
        OK(attn_block_forward(l.block, &x, &out, &inputs, NULL, 0));
        judge(NN_BLOCK, "out", &out, y.of, NULL);
        double *sizes = zeros(m, batch * a->heads * tokens * (tokens + tm));
        for (int64_t i = 0; i < batch * a->heads * tokens * (tokens + tm); i++)
            sizes[i] = 1; /* a weight of 1 at most, of scores that went through norms */
        if (has_self && self->params.weights)
            judge(NN_WEIGHTS, "weights", &self->weights, w.of, sizes);
        if (inputs.cross && of_cross->params.weights)
            judge(NN_BLOCK, "cross weights", &of_cross->weights, cw.of, sizes);

        /* In place, in the caller's workspace. */
        const size_t size = attn_block_workspace_size(l.block, batch, tokens, &inputs);
        void *workspace = place_workspace(m, size);
        mark_output(m, &x);
        OK(attn_block_forward(l.block, &x, &x, &inputs, workspace, size));
        assert_true(equal_bits(&x, &out));
        attn_block_destroy(l.block);
        memory_destroy(m);
    }
    attn_block_destroy(NULL);
}

/** Prefill and steps over a cache against the whole sequence at once; rows behind the new ones are left alone. */
static void test_cache(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        struct memory *m = memory_create("block cache", n);
        run_in(m, random_activations(m));
        const int64_t batch = rng_range(&m->rng, 1, 3), tokens = RNG_PICK(&m->rng, 1, 6, 25, 70);
        struct layer l;
        layer_create(&l, m, n % 2 ? ATTN_NAMING_LLAMA : ATTN_NAMING_TORCH, 0);
        const attn_tensor x = random_rows(m, batch, tokens, l.d_model), out = place_rows(m, batch, tokens, l.d_model);
        const attn_tensor cache = place_rows(m, batch, tokens + 2, l.kv_width);
        const attn_tensor table = rotation(m, 1, tokens, l.oracle.self.dk);
        attn_params whole = attn_params_default(), step = attn_params_default();
        whole.causal = ATTN_CAUSAL_TOP_LEFT;
        step.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        const struct oracle_block_inputs oracle_inputs = {.self = &whole, .rotation = &table};
        const struct trio y = trio(m, batch * tokens * l.d_model);
        const double *xs = read_all(m, &x);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->block(&l.oracle, batch, tokens, xs, &oracle_inputs, y.of[k], NULL, NULL);
        memory_seal(m);
        for (int64_t done = 0; done < tokens;) {
            const int64_t count = done == 0 ? rng_range(&m->rng, 1, tokens)
                                            : rng_range(&m->rng, 1, tokens - done < 3 ? tokens - done : 3);
            attn_tensor some = x, its_out = out;
            const attn_tensor its_table = slice(&table, 0, done, count);
            some.shape[2] = its_out.shape[2] = count;
            some.data = advanced(&x, done * x.stride[2]).data;
            its_out.data = advanced(&out, done * out.stride[2]).data;
            attn_block_inputs inputs = attn_block_inputs_default();
            inputs.self = &step, inputs.cache = &cache, inputs.cached = done, inputs.rotation = &its_table;
            inputs.num_threads = (int)(done % 4);
            const size_t size = attn_block_workspace_size(l.block, batch, count, &inputs);
            char *workspace = n % 3 ? bytes(m, size) : NULL;
            OK(attn_block_forward(l.block, &some, &its_out, &inputs, workspace, workspace ? size : 0));
            done += count;
            for (int64_t b = 0; b < batch; b++)
                for (int64_t t = done; t < tokens + 2; t++)
                    for (int64_t c = 0; c < l.kv_width; c++) {
                        static const unsigned char pattern[] = {0xA5, 0xA5, 0xA5, 0xA5};
                        const attn_tensor at = advanced(&cache, b * cache.stride[0] + t * cache.stride[2] + c);
                        assert_memory_equal(at.data, pattern, attn_dtype_size(cache.dtype));
                    }
        }
        judge(NN_BLOCK, "out", &out, y.of, NULL);
        attn_block_destroy(l.block);
        memory_destroy(m);
    }
}

/**
 * Tensors of a call in types of their own, against the oracle in the narrowest of them; the out of a post-norm layer is
 * out in f32, rounded.
 */
static void test_types(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(90); n++) {
        struct memory *m = memory_create("block types", n);
        const attn_naming naming = (attn_naming)(n % 3);
        const int64_t batch = 2, tokens = RNG_PICK(&m->rng, 1, 9, 33), tm = 7, cross = naming == ATTN_NAMING_TORCH;
        const attn_dtype types[] = {random_activations(m), random_activations(m), random_activations(m)};
        struct layer l;
        layer_create(&l, m, naming, (int)cross);
        const attn_tensor x = place_rows_of(m, types[0], batch, tokens, l.d_model);
        const attn_tensor memory = place_rows_of(m, types[1], batch, tm, l.d_memory);
        const attn_tensor cache = place_rows_of(m, types[1], batch, tokens + 3, l.kv_width);
        const attn_tensor out = place_rows_of(m, types[2], batch, tokens, l.d_model);
        const attn_tensor wide = place_rows(m, batch, tokens, l.d_model);
        const attn_tensor kv = place_rows_of(m, types[2], batch, tm, l.kv_width);
        fill(m, &x, 1);
        fill(m, &memory, 1);
        for (int i = 0; i < 3; i++)
            oracle_type = types[i] == ATTN_BF16 || oracle_type == ATTN_F32 ? types[i] : oracle_type;
        attn_params causal = attn_params_default();
        causal.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        attn_block_inputs inputs = attn_block_inputs_default();
        inputs.self = &causal;
        inputs.cache = n % 2 ? &cache : NULL;
        if (cross && rng_percent(&m->rng, 50)) {
            OK(attn_block_project_memory(l.block, &memory, &kv, 0));
            inputs.cross_kv = &kv;
        } else if (cross) {
            inputs.memory = &memory;
        }
        const struct oracle_block_inputs of = {
            .self = &causal, .memory = cross ? read_all(m, &memory) : NULL, .tm = cross ? tm : 0};
        const struct trio y = trio(m, batch * tokens * l.d_model);
        const double *xs = read_all(m, &x);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->block(&l.oracle, batch, tokens, xs, &of, y.of[k], NULL, NULL);
        const size_t size = attn_block_workspace_size(l.block, batch, tokens, &inputs);
        void *workspace = place_workspace(m, size);
        memory_seal(m);
        OK(attn_block_forward(l.block, &x, &out, &inputs, workspace, size));
        judge(NN_BLOCK, "out", &out, y.of, NULL);
        if (!l.config.norm_first) {
            OK(attn_block_forward(l.block, &x, &wide, &inputs, NULL, 0));
            assert_rounded("out", &out, &wide);
        }
        attn_block_destroy(l.block);
        memory_destroy(m);
    }
}

static void test_row_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(30); n++) {
        struct memory *m = memory_create("block row_bits", n);
        run_in(m, random_activations(m));
        const int64_t batch = 7, tokens = RNG_PICK(&m->rng, 1, 9, 33), tm = 20;
        const int cross = n % 3 == 0 && n % 2;
        struct layer l;
        layer_create(&l, m, (attn_naming)(n % 3), cross);
        const attn_tensor x = random_rows(m, batch, tokens, l.d_model), memory = random_rows(m, batch, tm, l.d_memory);
        const attn_tensor all = place_rows(m, batch, tokens, l.d_model);
        attn_block_inputs inputs = attn_block_inputs_default();
        inputs.memory = cross ? &memory : NULL;
        inputs.num_threads = 1;
        OK(attn_block_forward(l.block, &x, &all, &inputs, NULL, 0));
        for (int64_t b = 0; b < batch; b++) {
            const attn_tensor one = slice(&x, b, 0, tokens), its = slice(&memory, b, 0, tm);
            const attn_tensor expected = slice(&all, b, 0, tokens), out = place_rows(m, 1, tokens, l.d_model);
            inputs.memory = cross ? &its : NULL;
            inputs.num_threads = 1 + (int)(b % 3);
            OK(attn_block_forward(l.block, &one, &out, &inputs, NULL, 0));
            assert_true(equal_bits(&out, &expected));
        }
        attn_block_destroy(l.block);
        memory_destroy(m);
    }
}

/** A ragged batch through a whole layer gives each sequence's own bits. */
static void test_ragged(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(20); n++) {
        struct memory *m = memory_create("block ragged", n);
        run_in(m, random_activations(m));
        const int64_t cu[4] = {0, 5, 5, 22};
        struct layer l;
        layer_create(&l, m, (attn_naming)(n % 3), 0);
        const attn_tensor x = random_rows(m, 1, 22, l.d_model), out = place_rows(m, 1, 22, l.d_model);
        const attn_ragged ragged = {3, cu, cu};
        attn_params p = attn_params_default();
        p.ragged = &ragged;
        attn_block_inputs inputs = attn_block_inputs_default();
        inputs.self = &p;
        OK(attn_block_forward(l.block, &x, &out, &inputs, NULL, 0));
        for (int s = 0; s < 3; s++) {
            const int64_t tokens = cu[s + 1] - cu[s];
            const attn_tensor one = slice(&x, 0, cu[s], tokens), expected = slice(&out, 0, cu[s], tokens);
            const attn_tensor its = place_rows(m, 1, tokens, l.d_model);
            OK(attn_block_forward(l.block, &one, &its, NULL, NULL, 0));
            assert_true(equal_bits(&its, &expected));
        }
        attn_block_destroy(l.block);
        memory_destroy(m);
    }
}

/* ---------------------------------------------------------------- refusals -- */

/** Each weight of a layer missing, of another shape and of another type: the sentence has its full name. */
static void test_load_refuses_weights(void **state)
{
    (void)state;
    for (int naming = 0; naming < 3; naming++) {
        struct memory *m = memory_for_refusals("block load_refuses_weights", (uint64_t)naming);
        struct layer l;
        layer_create(&l, m, (attn_naming)naming, naming == 0);
        attn_block_destroy(l.block);
        char prefix[NAMED_LENGTH] = "";
        if (strncmp(l.named->names[0], "layers.3.", 9) == 0)
            strcpy(prefix, "layers.3.");
        for (int64_t i = 0; i < l.named->num; i++) {
            struct named *copy = named_create(m);
            for (int change = 0; change < 3; change++) {
                memcpy(copy, l.named, sizeof *copy);
                const char *name = l.named->names[i];
                const size_t length = strlen(name);
                const int bias = length > 4 && strcmp(name + length - 4, "bias") == 0;
                if (change == 0 && (bias || strstr(name, "in_proj") || strstr(name, "_proj_weight")))
                    continue; /* may be missing, or other names are tried then */
                if (change == 0)
                    named_remove(copy, name, "");
                else if (change == 1)
                    copy->tensors[i].shape[3]--;
                else
                    copy->tensors[i].dtype = ATTN_I8;
                attn_weights *weights = named_weights(copy);
                l.block = (attn_block *)m;
                REFUSES(NULL, attn_block_load(&l.block, &l.config, weights, prefix, l.naming),
                        change == 1   ? ATTN_SHAPE_MISMATCH
                        : change == 2 ? ATTN_UNSUPPORTED
                                      : ATTN_INVALID_ARGUMENT,
                        name);
                assert_null(l.block);
                attn_weights_destroy(weights);
            }
        }
        memory_destroy(m);
    }
    nn_end_refusals();
}

static void test_load_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("block load_refuses", 0);
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config config = attn_block_config_default();
    attention.d_model = 8, attention.heads = 2;
    config.attention = &attention, config.d_ff = 12, config.eps = 1e-5f;
    struct named *named = named_create(m);
    named_add_block(named, m, &config, "p.", ATTN_NAMING_TORCH, 1);
    attn_weights *weights = named_weights(named);
    attn_block *block = (attn_block *)m;
#define LOAD_REFUSES(assignment, status, words)                                                                        \
    do {                                                                                                               \
        attn_block_config c = config;                                                                                  \
        attn_mha_config a = attention;                                                                                 \
        c.attention = &a;                                                                                              \
        assignment;                                                                                                    \
        block = (attn_block *)m;                                                                                       \
        REFUSES(m, attn_block_load(&block, &c, weights, "p.", ATTN_NAMING_TORCH), status, words);                      \
        assert_null(block);                                                                                            \
    } while (0)
    REFUSES(m, attn_block_load(NULL, &config, weights, "p.", ATTN_NAMING_TORCH), ATTN_INVALID_ARGUMENT,
            "block is NULL; expected where to put the layer");
    REFUSES(m, attn_block_load(&block, NULL, weights, "p.", ATTN_NAMING_TORCH), ATTN_INVALID_ARGUMENT,
            "config is NULL; expected an attn_block_config");
    assert_null(block);
    REFUSES(m, attn_block_load(&block, &config, NULL, "p.", ATTN_NAMING_TORCH), ATTN_INVALID_ARGUMENT,
            "weights is NULL; expected a set of named tensors");
    REFUSES(m, attn_block_load(&block, &config, weights, NULL, ATTN_NAMING_TORCH), ATTN_INVALID_ARGUMENT,
            "prefix is NULL; expected what stands before the names, or an empty string");
    attn_block_config other = config;
    other.qk_norm = 1;
    REFUSES(m, attn_block_load(&block, &other, weights, "p.", ATTN_NAMING_TORCH), ATTN_UNSUPPORTED,
            "config.qk_norm is set; expected 0, as these names have no norms of queries and keys");
    other.norm_plus_one = 1;
    REFUSES(m, attn_block_load(&block, &other, weights, "p.", ATTN_NAMING_LLAMA), ATTN_UNSUPPORTED,
            "config.norm_plus_one|qk_norm");
    other.qk_norm = 0, other.post_norms = 1, other.norm_first = 0;
    REFUSES(m, attn_block_load(&block, &other, weights, "p.", ATTN_NAMING_LLAMA), ATTN_INVALID_ARGUMENT,
            "config.post_norms|norm_first");
    other.norm_first = 1;
    REFUSES(m, attn_block_load(&block, &other, weights, "p.", ATTN_NAMING_BERT), ATTN_UNSUPPORTED,
            "config.post_norms is set; expected 0, as these names have no norms behind sublayers");
    other.cross = 1, other.post_norms = 0;
    REFUSES(m, attn_block_load(&block, &other, weights, "p.", ATTN_NAMING_BERT), ATTN_UNSUPPORTED,
            "config.cross is set; expected 0, as these names have no cross-attention");
    other.cross = 0, other.gated = 1;
    REFUSES(m, attn_block_load(&block, &other, weights, "p.", ATTN_NAMING_BERT), ATTN_UNSUPPORTED,
            "config.gated is set; expected 0, as these names have no gate");
    other = config, other.norm = ATTN_NORM_RMS;
    REFUSES(m, attn_block_load(&block, &other, weights, "p.", ATTN_NAMING_TORCH), ATTN_UNSUPPORTED,
            ".bias is in the weights; expected none with ATTN_NORM_RMS");
    REFUSES(m, attn_block_load(&block, &config, weights, "p.", (attn_naming)6), ATTN_INVALID_ARGUMENT,
            "naming is 6; expected an attn_naming");
    REFUSES(m, attn_block_load(&block, &config, weights, "other.", ATTN_NAMING_TORCH), ATTN_INVALID_ARGUMENT,
            "the set of weights has no tensor 'other.self_attn.in_proj_weight'; the nearest");
    LOAD_REFUSES(c.struct_size = 7, ATTN_INVALID_ARGUMENT, "struct_size|7");
    LOAD_REFUSES(a.struct_size = 9, ATTN_INVALID_ARGUMENT, "config.attention.struct_size|9");
    LOAD_REFUSES(c.attention = NULL, ATTN_INVALID_ARGUMENT, "config.attention is NULL; expected an attn_mha_config");
    LOAD_REFUSES(a.heads = 0, ATTN_INVALID_ARGUMENT, "heads|0");
    LOAD_REFUSES(a.heads = 3, ANY_ERROR, "8|3");
    LOAD_REFUSES(c.d_ff = -12, ATTN_INVALID_ARGUMENT, "d_ff|-12");
    LOAD_REFUSES(c.d_ff = 0, ATTN_INVALID_ARGUMENT, "d_ff|0");
    LOAD_REFUSES(c.activation = (attn_activation)70, ATTN_INVALID_ARGUMENT, "activation|70");
    LOAD_REFUSES(c.norm = (attn_norm)2, ATTN_INVALID_ARGUMENT, "config.norm is 2; expected an attn_norm");
    LOAD_REFUSES(c.eps = -1, ATTN_INVALID_ARGUMENT, "eps|-1");
    LOAD_REFUSES(c.eps = NAN, ATTN_INVALID_ARGUMENT, "eps|nan");
    LOAD_REFUSES(c.d_memory = 5, ATTN_INVALID_ARGUMENT,
                 "config.d_memory is 5; expected 0 without cross"); /* only with cross */
    LOAD_REFUSES(
        a.d_out = 9, ANY_ERROR,
        "config.attention.d_out is 9; expected 0 or d_model, 8, as x is added to it"); /* residuals need d_model */
    LOAD_REFUSES(a.d_memory = 9, ANY_ERROR, "config.attention.d_memory is 9");
    nn_end_refusals();
    attn_weights_destroy(weights);
    memory_destroy(m);
}

static void test_forward_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("block forward_refuses", 0);
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config config = attn_block_config_default();
    attention.d_model = 8, attention.heads = 2;
    config.attention = &attention, config.d_ff = 12, config.eps = 1e-5f;
    struct named *named = named_create(m);
    named_add_block(named, m, &config, "plain.", ATTN_NAMING_TORCH, 1);
    config.cross = 1, config.d_memory = 6;
    named_add_block(named, m, &config, "cross.", ATTN_NAMING_TORCH, 1);
    attn_weights *weights = named_weights(named);
    attn_block *plain, *cross;
    OK(attn_block_load(&cross, &config, weights, "cross.", ATTN_NAMING_TORCH));
    config.cross = 0, config.d_memory = 0;
    OK(attn_block_load(&plain, &config, weights, "plain.", ATTN_NAMING_TORCH));
    attn_weights_destroy(weights);
    const attn_tensor x = place_dense(m, 2, 1, 5, 8), out = place_dense(m, 2, 1, 5, 8),
                      mem = place_dense(m, 2, 1, 7, 6);
    const attn_tensor kv = place_dense(m, 2, 1, 7, 16), cache = place_dense(m, 2, 1, 9, 16);
    const attn_tensor table = place_dense(m, 1, 1, 5, 4);
    fill(m, &x, 1), fill(m, &mem, 1), fill(m, &kv, 1), fill(m, &table, 1);
    const attn_block_inputs none = attn_block_inputs_default();
    attn_params p = attn_params_default(), bad = attn_params_default();
    p.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    bad.temperature = -1;
    memory_seal(m);
#define X(assignment)              CHANGED(attn_tensor, x, assignment)
#define OUT(assignment)            CHANGED(attn_tensor, out, assignment)
#define RUN(block, xx, oo, inputs) attn_block_forward(block, xx, oo, inputs, NULL, 0)
#define IN(assignment)             CHANGED(attn_block_inputs, none, assignment)
    REFUSES(m, RUN(NULL, &x, &out, NULL), ATTN_INVALID_ARGUMENT, "block is NULL; expected a layer");
    REFUSES(m, RUN(plain, NULL, &out, NULL), ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(m, RUN(plain, &x, NULL, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, RUN(plain, X(shape[3] = 7), &out, NULL), ATTN_SHAPE_MISMATCH, "x.|7|8");
    REFUSES(m, RUN(plain, X(dtype = ATTN_I8), &out, NULL), ATTN_UNSUPPORTED, "x.|i8|f32, bf16 or f16");
    REFUSES(m, RUN(plain, X(stride[3] = 2), &out, NULL), ATTN_INVALID_ARGUMENT, "x.|2");
    REFUSES(m, RUN(plain, &x, OUT(shape[2] = 4), NULL), ATTN_SHAPE_MISMATCH, "out|4|5");
    REFUSES(m, RUN(plain, &x, OUT(stride[2] = 0), NULL), ATTN_INVALID_ARGUMENT, "out|0");
    REFUSES(m, RUN(plain, &x, OUT(data = (float *)x.data + 8), NULL), ATTN_INVALID_ARGUMENT, "out|x");
    REFUSES(m, RUN(plain, &x, &out, IN(struct_size = 5)), ATTN_INVALID_ARGUMENT, "struct_size|5");
    REFUSES(m, RUN(plain, &x, &out, IN(num_threads = -1)), ATTN_INVALID_ARGUMENT, "num_threads|-1");
    REFUSES(m, RUN(plain, &x, &out, IN(self = &bad)), ATTN_INVALID_ARGUMENT, "temperature|-1");
    REFUSES(m, RUN(plain, &x, &out, IN(memory = &mem)), ATTN_INVALID_ARGUMENT,
            "inputs.memory is set; expected NULL, as this layer has no cross-attention");
    REFUSES(m, RUN(plain, &x, &out, IN(cross_kv = &kv)), ATTN_INVALID_ARGUMENT, "cross_kv");
    REFUSES(m, RUN(plain, &x, &out, IN(cross = &p)), ATTN_INVALID_ARGUMENT, "cross");
    REFUSES(m, RUN(plain, &x, &out, IN(cached = 3)), ATTN_INVALID_ARGUMENT,
            "inputs.cached is 3; expected 0 without a cache");
    REFUSES(m, RUN(plain, &x, &out, IN(rope = ATTN_ROPE_INTERLEAVED)), ATTN_INVALID_ARGUMENT,
            "inputs.rope is 1; expected 0 without a rotation");
    REFUSES(m, RUN(cross, &x, &out, NULL), ATTN_INVALID_ARGUMENT, "memory");
    REFUSES(m, RUN(cross, &x, &out, IN(memory = WITHIN(attn_tensor, mem, shape[3] = 5))), ATTN_SHAPE_MISMATCH,
            "memory|5|6");
    REFUSES(m, RUN(cross, &x, &out, IN(memory = WITHIN(attn_tensor, mem, shape[0] = 1))), ATTN_SHAPE_MISMATCH,
            "memory|1|2");
    REFUSES(m, RUN(cross, &x, &out, IN(cross_kv = WITHIN(attn_tensor, kv, shape[3] = 15))), ATTN_SHAPE_MISMATCH,
            "cross_kv|15|16");
    REFUSES(m, RUN(cross, &x, CHANGED(attn_tensor, out, data = kv.data), IN(cross_kv = &kv)), ATTN_INVALID_ARGUMENT,
            "out|cross_kv");
    attn_block_inputs both = none;
    both.memory = &mem, both.cross_kv = &kv;
    REFUSES(m, RUN(cross, &x, &out, &both), ATTN_INVALID_ARGUMENT,
            "inputs.memory and inputs.cross_kv are both set; expected one of them");
    REFUSES(m, RUN(plain, &x, &out, IN(kv_layer = 1)), ATTN_INVALID_ARGUMENT,
            "inputs.kv_layer is 1; expected 0 without a kv_cache");
    REFUSES(m, RUN(plain, &x, &out, IN(rope = (attn_rope_layout)2)), ATTN_INVALID_ARGUMENT,
            "inputs.rope is 2; expected an attn_rope_layout");
    attn_cache_config pages = attn_cache_config_default();
    attn_cache *kv_cache;
    attn_block_inputs paged = none;
    pages.layers = 1, pages.kv_heads = 2, pages.dk = 4, pages.max_tokens = 16, pages.max_sequences = 1;
    OK(attn_cache_create(&kv_cache, &pages));
    paged.kv_cache = kv_cache;
    REFUSES(m, RUN(plain, &x, &out, &paged), ATTN_SHAPE_MISMATCH,
            "x.shape[0] is 2; expected 1, as sequences follow each other");
    REFUSES(m, RUN(plain, X(shape[0] = 1), OUT(shape[0] = 1), &paged), ATTN_SHAPE_MISMATCH,
            "x.shape[2] is 5; expected 0, the tokens of the cache's step");
    paged.rotation = &table;
    REFUSES(m, RUN(plain, &x, &out, &paged), ATTN_INVALID_ARGUMENT,
            "inputs.rotation and inputs.kv_cache are both set; expected one of them");
    const attn_tensor rotation = table;
    const attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &rotation, &rotation};
    attn_params rotated = attn_params_default();
    attn_block_inputs twice = none;
    rotated.rope = &rope, twice.self = &rotated, twice.rotation = &table;
    REFUSES(m, RUN(plain, &x, &out, &twice), ATTN_INVALID_ARGUMENT,
            "inputs.rotation and inputs.self->rope are both set; expected one of them");
    attn_cache_destroy(kv_cache);
    attn_block_inputs cached = none;
    cached.self = &p, cached.cache = &cache;
#define CACHED(assignment) CHANGED(attn_block_inputs, cached, assignment)
    REFUSES(m, RUN(plain, &x, &out, CACHED(cached = 5)), ANY_ERROR,
            "inputs.cached is 5; expected 0 to 4, so that the 5 tokens of x fit into the cache of 9");
    REFUSES(m, RUN(plain, &x, &out, CACHED(cached = -1)), ATTN_INVALID_ARGUMENT, "cached|-1");
    REFUSES(m, RUN(plain, &x, &out, CACHED(cached = INT64_MAX)), ANY_ERROR, "cached|9223372036854775807");
    REFUSES(m, RUN(plain, &x, &out, CACHED(cache = WITHIN(attn_tensor, cache, shape[3] = 17))), ATTN_SHAPE_MISMATCH,
            "cache|17|16");
    REFUSES(m, RUN(plain, &x, &out, CACHED(cache = WITHIN(attn_tensor, cache, shape[0] = 3))), ATTN_SHAPE_MISMATCH,
            "cache|3|2");
    REFUSES(m, RUN(plain, &x, &out, CACHED(cache = WITHIN(attn_tensor, cache, dtype = ATTN_I8))), ATTN_UNSUPPORTED,
            "cache|i8");
    REFUSES(m, RUN(plain, &x, &out, CACHED(cache = WITHIN(attn_tensor, cache, data = x.data))), ATTN_INVALID_ARGUMENT,
            "cache|x");
    REFUSES(m, RUN(plain, &x, &out, IN(rotation = WITHIN(attn_tensor, table, shape[2] = 4))), ATTN_SHAPE_MISMATCH,
            "rotation|4|5");
    REFUSES(m, RUN(plain, &x, &out, IN(rotation = WITHIN(attn_tensor, table, shape[3] = 3))), ATTN_SHAPE_MISMATCH,
            "inputs.rotation.shape[3] is 3; expected an even number up to 4, the head size");
    REFUSES(m, RUN(plain, &x, &out, IN(rotation = WITHIN(attn_tensor, table, dtype = ATTN_BF16))), ATTN_UNSUPPORTED,
            "rotation|bf16");
    REFUSES(m, attn_block_project_memory(plain, &mem, &kv, 0), ANY_ERROR,
            "block has no cross-attention; expected one made with config.cross");
    REFUSES(m, attn_block_project_memory(cross, NULL, &kv, 0), ATTN_INVALID_ARGUMENT, "memory|NULL");
    REFUSES(m, attn_block_project_memory(cross, &mem, CHANGED(attn_tensor, kv, shape[2] = 6), 0), ATTN_SHAPE_MISMATCH,
            "kv|6|7");
    const size_t size = attn_block_workspace_size(plain, 2, 5, NULL);
    REFUSES(m, attn_block_forward(plain, &x, &out, NULL, bytes(m, size), 1), ATTN_WORKSPACE_TOO_SMALL, "workspace");
    const size_t least = said_least();
    assert_true(least <= size); /* which is enough for other types, too */
    if (size > 0)
        REFUSES(m, attn_block_forward(plain, &x, &out, NULL, bytes(m, size), least - 1), ATTN_WORKSPACE_TOO_SMALL,
                "workspace");
    assert_true(attn_block_workspace_size(plain, INT64_MAX / 2, INT64_MAX / 2, NULL) == SIZE_MAX);
    assert_true(says("the workspace of this call would exceed 2^63 bytes"));
    nn_end_refusals();
    attn_mha_config sizes = attn_mha_config_default();
    OK(attn_mha_sizes(attn_block_attention(plain), &sizes));
    assert_int_equal(sizes.head_dim, 4);
    attn_block_destroy(plain);
    attn_block_destroy(cross);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_oracle), cmocka_unit_test(test_cache),
        cmocka_unit_test(test_types),          cmocka_unit_test(test_row_bits),
        cmocka_unit_test(test_ragged),         cmocka_unit_test(test_load_refuses_weights),
        cmocka_unit_test(test_load_refuses),   cmocka_unit_test(test_forward_refuses)};
    return NN_MAIN(tests);
}
