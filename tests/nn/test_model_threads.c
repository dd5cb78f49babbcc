/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of libattn_nn that runs on several threads, models included: all of
 * its parts run on the executor of the call or of the process, and none on
 * OpenMP's threads; a workspace that was measured for other threads serves, and
 * an executor that is exchanged in the middle of a call does no harm. Linked
 * statically, so that teams of threads and checks can be watched.
 */
#include "named.h"
#include "options.h"

#include "api/check.h"
#include "attn/nn.h"
#include "driver/threads.h"

enum { MOST = 1024, D = 128, HEADS = 4, HIDDEN = 128, WORDS = 2000, TARGETS = 128, BATCH = 8, STEPS = 3 };

/* ----------------------------------------------------------------- watching -- */

/** Executors of the tests, and teams of several threads by who had them. */
enum { OF_PROCESS, OF_CALL, OF_SELF, NUM_EXECUTORS, OPENMP = NUM_EXECUTORS, OTHER };
static attn_executor executors[NUM_EXECUTORS];
static int teams[OTHER + 1];

void __real_attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context);
void __wrap_attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context);

void __wrap_attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context)
{
    int owner = team->executor ? OTHER : OPENMP;
    for (int i = 0; i < NUM_EXECUTORS; i++)
        if (team->executor == &executors[i])
            owner = i;
    teams[owner] += team->size > 1;
    __real_attn_run_shares(team, share, context);
}

/** The process gets OF_PROCESS after so many checks of the core. */
static int checks_until_exchange;

attn_status __real_attn_check(struct attn_problem *problem, const attn_tensor *q, const attn_tensor *k,
                              const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                              enum check_depth depth);
attn_status __wrap_attn_check(struct attn_problem *problem, const attn_tensor *q, const attn_tensor *k,
                              const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                              enum check_depth depth);

attn_status __wrap_attn_check(struct attn_problem *problem, const attn_tensor *q, const attn_tensor *k,
                              const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                              enum check_depth depth)
{
    const attn_status status = __real_attn_check(problem, q, k, v, out, params, depth);
    if (checks_until_exchange && --checks_until_exchange == 0)
        OK(attn_set_executor(&executors[OF_PROCESS]));
    return status;
}

/** All shares on the calling thread. */
static void run_in_turn(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    (void)user;
    for (int ith = shares - 1; ith >= 0; ith--)
        share(context, ith);
}

/* ------------------------------------------------------------------- models -- */

static struct {
    struct memory *memory;
    attn_linear *linear;
    attn_block *post_norm, *gated, *cross;
    attn_bert *bert;
    attn_llama *llama;
    attn_transformer *transformer;
    attn_lstm *lstm;
    attn_alignment *alignment;
    attn_bahdanau *step;
    attn_pool *pool;
} made;

static int64_t tokens; /* of a call, up to MOST */
static float x_data[MOST * D], matrix[4 * D * D];
static int32_t ids[2 * MOST];

static void make_blocks(struct named *n, attn_mha_config *a)
{
    attn_block_config post_norm = attn_block_config_default(), gated = post_norm, cross;
    post_norm.attention = gated.attention = a;
    post_norm.d_ff = gated.d_ff = D;
    post_norm.activation = ATTN_ACTIVATION_GELU, gated.activation = ATTN_ACTIVATION_SILU;
    post_norm.eps = gated.eps = 1e-5f;
    gated.gated = 1, gated.norm = ATTN_NORM_RMS, gated.norm_first = 1;
    cross = post_norm;
    cross.cross = cross.norm_first = 1;
    named_add_block(n, made.memory, &post_norm, "bert.encoder.layer.0.", ATTN_NAMING_BERT, 1);
    named_add_block(n, made.memory, &gated, "model.layers.0.", ATTN_NAMING_LLAMA, 0);
    named_add_block(n, made.memory, &post_norm, "t.encoder.layers.0.", ATTN_NAMING_TORCH, 1);
    named_add_block(n, made.memory, &cross, "t.decoder.layers.0.", ATTN_NAMING_TORCH, 1);
    attn_weights *weights = named_weights(n);
    OK(attn_block_load(&made.post_norm, &post_norm, weights, "t.encoder.layers.0.", ATTN_NAMING_TORCH));
    OK(attn_block_load(&made.gated, &gated, weights, "model.layers.0.", ATTN_NAMING_LLAMA));
    OK(attn_block_load(&made.cross, &cross, weights, "t.decoder.layers.0.", ATTN_NAMING_TORCH));
    attn_weights_destroy(weights);
}

static void make_models(struct named *n)
{
    struct memory *m = made.memory;
    attn_bert_config bert = attn_bert_config_default();
    attn_llama_config llama = attn_llama_config_default();
    attn_transformer_config transformer = attn_transformer_config_default();
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "bert.", "embeddings.word_embeddings.weight");
    named_add(n, m, ATTN_F32, MOST, D, 1, 0, "bert.", "embeddings.position_embeddings.weight");
    named_add(n, m, ATTN_F32, 2, D, 1, 0, "bert.", "embeddings.token_type_embeddings.weight");
    named_add_norm(n, m, ATTN_NORM_LAYER, D, "bert.", "embeddings.LayerNorm");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "model.embed_tokens.weight");
    named_add_norm(n, m, ATTN_NORM_RMS, D, "", "model.norm");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "t.", "src_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "t.", "tgt_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "t.", "generator.weight");
    bert.layers = 1, bert.positions = MOST, bert.activation = ATTN_ACTIVATION_GELU;
    llama.layers = 1, llama.tied = 1;
    transformer.encoder_layers = transformer.decoder_layers = 1, transformer.positions = MOST;
    bert.d_model = llama.d_model = transformer.d_model = bert.d_ff = llama.d_ff = transformer.d_ff = D;
    bert.heads = llama.heads = transformer.heads = HEADS;
    bert.vocabulary = llama.vocabulary = transformer.source_vocabulary = transformer.target_vocabulary = WORDS;
    bert.eps = llama.eps = transformer.eps = 1e-5f;
    transformer.eos = WORDS - 1;
    attn_weights *weights = named_weights(n);
    OK(attn_bert_load(&made.bert, &bert, weights, "bert."));
    OK(attn_transformer_load(&made.transformer, &transformer, weights, "t."));
    OK(attn_weights_ignore(weights, 2, (const char *const[]){"bert.*", "t.*"}));
    OK(attn_llama_load(&made.llama, &llama, weights));
    attn_weights_destroy(weights);
}

static void make_others(void)
{
    attn_lstm_config lstm = attn_lstm_config_default();
    attn_alignment_config additive = attn_alignment_config_default();
    attn_bahdanau_config step = attn_bahdanau_config_default();
    const attn_tensor square = attn_matrix(matrix, D, D), v = attn_vector(matrix, D);
    const attn_lstm_weights direction = {.w_ih = attn_matrix(matrix, 4 * HIDDEN, D),
                                         .w_hh = attn_matrix(matrix, 4 * HIDDEN, HIDDEN)};
    const attn_lstm_weights directions[] = {direction, direction};
    OK(attn_linear_create(&made.linear, 1, &square, NULL));
    lstm.input = D, lstm.hidden = HIDDEN, lstm.bidirectional = 1;
    OK(attn_lstm_create(&made.lstm, &lstm, directions));
    additive.score = ATTN_SCORE_ADDITIVE;
    additive.d_query = HIDDEN, additive.d_key = D, additive.d_attention = D;
    additive.w_q = attn_matrix(matrix, D, HIDDEN), additive.w_k = square, additive.v = v;
    OK(attn_alignment_create(&made.alignment, &additive));
    step.alignment = made.alignment;
    step.embedding = step.annotation = D, step.hidden = HIDDEN;
    step.w_ih = attn_matrix(matrix, 3 * HIDDEN, 2 * D), step.w_hh = attn_matrix(matrix, 3 * HIDDEN, HIDDEN);
    OK(attn_bahdanau_create(&made.step, &step));
    OK(attn_pool_create(&made.pool, &square, NULL, &v));
}

static int make(void **state)
{
    (void)state;
    attn_mha_config attention = attn_mha_config_default();
    made.memory = memory_create("model_threads", 0);
    struct named *n = named_create(made.memory);
    attention.d_model = D, attention.heads = HEADS;
    for (int i = 0; i < 4 * D * D; i++)
        matrix[i] = rng_normal(&made.memory->rng) / 16;
    for (int i = 0; i < MOST * D; i++)
        x_data[i] = rng_normal(&made.memory->rng);
    for (int i = 0; i < 2 * MOST; i++)
        ids[i] = i * 7 % MOST;
    for (int i = 0; i < NUM_EXECUTORS; i++) {
        executors[i] = attn_executor_default();
        executors[i].num_threads = 4;
        executors[i].run = run_in_turn;
    }
    make_blocks(n, &attention);
    make_models(n);
    make_others();
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    attn_linear_destroy(made.linear);
    attn_block_destroy(made.post_norm);
    attn_block_destroy(made.gated);
    attn_block_destroy(made.cross);
    attn_bert_destroy(made.bert);
    attn_llama_destroy(made.llama);
    attn_transformer_destroy(made.transformer);
    attn_lstm_destroy(made.lstm);
    attn_bahdanau_destroy(made.step);
    attn_alignment_destroy(made.alignment);
    attn_pool_destroy(made.pool);
    memory_destroy(made.memory);
    return 0;
}

/* -------------------------------------------------------------------- calls -- */

/** How a call is made. */
struct how {
    int num_threads;
    const attn_executor *executor; /* the call's own */
    const attn_executor *of_self;  /* of a layer's self-attention */
    void *workspace;
    size_t size;
};

static attn_tensor x_rows(void)
{
    return attn_btc(x_data, 1, tokens, D);
}

static attn_status run_linear(const struct how *how, float *to)
{
    attn_linear_options options = attn_linear_options_default();
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    options.num_threads = how->num_threads, options.executor = how->executor;
    return attn_linear_forward(made.linear, &x, &out, &options);
}

static attn_status run_elementwise(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D), table = attn_matrix(x_data, MOST, D);
    const attn_tensor twice = attn_btc(to, 2, tokens, D);
    attn_status status = attn_normalise(ATTN_NORM_LAYER, &x, NULL, NULL, 1e-5f, &out, how->num_threads);
    if (!status)
        status = attn_activate(ATTN_ACTIVATION_GELU, &out, &out, how->num_threads);
    if (!status)
        status = attn_gate(ATTN_ACTIVATION_SILU, &out, &x, &out, how->num_threads);
    return status ? status : attn_embed(&table, ids, 1, 1, &twice, how->num_threads);
}

/** The options of a layer without cross-attention. */
static attn_block_inputs inputs_of(const struct how *how, attn_params *self)
{
    attn_block_inputs inputs = attn_block_inputs_default();
    *self = attn_params_default();
    self->executor = how->of_self;
    inputs.self = self;
    inputs.num_threads = how->num_threads, inputs.executor = how->executor;
    return inputs;
}

static attn_status run_post_norm(const struct how *how, float *to)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    return attn_block_forward(made.post_norm, &x, &out, &inputs, how->workspace, how->size);
}

static size_t post_norm_size(const struct how *how)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    return attn_block_workspace_size(made.post_norm, 1, tokens, &inputs);
}

static attn_status run_gated(const struct how *how, float *to)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    return attn_block_forward(made.gated, &x, &out, &inputs, how->workspace, how->size);
}

static size_t gated_size(const struct how *how)
{
    attn_params self;
    const attn_block_inputs inputs = inputs_of(how, &self);
    return attn_block_workspace_size(made.gated, 1, tokens, &inputs);
}

static attn_status run_cross(const struct how *how, float *to)
{
    attn_params self;
    attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows(), out = attn_btc(to, 1, tokens, D);
    inputs.memory = &x;
    return attn_block_forward(made.cross, &x, &out, &inputs, how->workspace, how->size);
}

static size_t cross_size(const struct how *how)
{
    attn_params self;
    attn_block_inputs inputs = inputs_of(how, &self);
    const attn_tensor x = x_rows();
    inputs.memory = &x;
    return attn_block_workspace_size(made.cross, 1, tokens, &inputs);
}

static attn_status run_project_memory(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), kv = attn_btc(to, 1, tokens, 2 * D);
    return attn_block_project_memory(made.cross, &x, &kv, how->num_threads);
}

static attn_status run_bert(const struct how *how, float *to)
{
    const int64_t offsets[] = {0, tokens / 4, tokens};
    const attn_tensor hidden = attn_btc(to, 1, tokens, D);
    return attn_bert_forward(made.bert, 2, offsets, ids, &hidden, NULL, how->num_threads, how->workspace, how->size);
}

static size_t bert_size(const struct how *how)
{
    return attn_bert_workspace_size(made.bert, 2, tokens, how->num_threads);
}

/** A session whose workspace has been made on one thread goes on with more. */
static attn_status run_llama(const struct how *how, float *to)
{
    attn_llama_session *session;
    const attn_tensor logits = attn_btc(to, 1, 1, WORDS), more = attn_btc(to + WORDS, 1, 1, WORDS);
    OK(attn_llama_session_create(&session, made.llama, 1, tokens));
    attn_status status = attn_llama_forward(session, tokens / 2, ids, &logits, 1);
    memset(teams, 0, sizeof teams);
    if (!status)
        status = attn_llama_forward(session, tokens / 2, ids + tokens / 2, &more, how->num_threads);
    attn_llama_session_destroy(session);
    return status;
}

static attn_status run_encode(const struct how *how, float *to)
{
    const attn_tensor memory = attn_btc(to, 1, tokens, D);
    return attn_transformer_encode(made.transformer, 1, tokens, ids, NULL, &memory, how->num_threads);
}

static attn_status run_score(const struct how *how, float *to)
{
    const attn_tensor memory = x_rows(), logits = attn_btc(to, 1, TARGETS, WORDS);
    return attn_transformer_score(made.transformer, &memory, NULL, TARGETS, ids, &logits, NULL, how->num_threads);
}

static attn_status run_decode(const struct how *how, float *to)
{
    int32_t found[STEPS];
    const attn_tensor memory = x_rows();
    attn_decoding decoding = attn_decoding_default();
    attn_hypothesis best = {.ids = found};
    decoding.beams = 4, decoding.max_length = STEPS;
    decoding.num_threads = how->num_threads, decoding.executor = how->executor;
    const attn_status status = attn_transformer_decode(made.transformer, &memory, NULL, &decoding, &best);
    for (int64_t i = 0; !status && i < best.length; i++)
        to[i] = (float)best.ids[i];
    if (!status)
        memcpy(to + STEPS, &best.log_prob, sizeof best.log_prob);
    return status;
}

static attn_status run_lstm(const struct how *how, float *to)
{
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D);
    const attn_tensor out = attn_btc(to, BATCH, tokens / BATCH, 2 * HIDDEN);
    return attn_lstm_forward(made.lstm, &x, NULL, NULL, &out, how->num_threads, how->workspace, how->size);
}

static size_t lstm_size(const struct how *how)
{
    (void)how;
    return attn_lstm_workspace_size(made.lstm, BATCH, tokens / BATCH);
}

static attn_status run_step(const struct how *how, float *to)
{
    const attn_tensor word = attn_btc(x_data, BATCH, 1, D), keys = attn_btc(x_data, BATCH, tokens / BATCH, D);
    const attn_tensor state = attn_btc(to, BATCH, 1, HIDDEN), context = attn_btc(to + BATCH * HIDDEN, BATCH, 1, D);
    return attn_bahdanau_forward(made.step, &word, &keys, &keys, NULL, &state, &context, NULL, how->num_threads,
                                 how->workspace, how->size);
}

static size_t step_size(const struct how *how)
{
    (void)how;
    return attn_bahdanau_workspace_size(made.step, BATCH, tokens / BATCH);
}

static attn_status run_pool(const struct how *how, float *to)
{
    const attn_tensor x = attn_btc(x_data, BATCH, tokens / BATCH, D), out = attn_btc(to, BATCH, 1, D);
    return attn_pool_forward(made.pool, &x, NULL, &out, NULL, how->num_threads, how->workspace, how->size);
}

static size_t pool_size(const struct how *how)
{
    (void)how;
    return attn_pool_workspace_size(made.pool, BATCH, tokens / BATCH);
}

static attn_status run_project(const struct how *how, float *to)
{
    const attn_tensor x = x_rows(), projected = attn_btc(to, 1, tokens, D);
    return attn_alignment_project(made.alignment, &x, &projected, how->num_threads);
}

/** Every call, and the parts of it that find work for several threads. */
static const struct call {
    const char *name;
    attn_status (*run)(const struct how *how, float *to);
    size_t (*size)(const struct how *how); /* NULL: takes no workspace */
    const char *own;                       /* the struct that an executor of its own stands in, or NULL */
    int parts;
} calls[] = {
    {"linear", run_linear, NULL, "options", 1},
    {"elementwise", run_elementwise, NULL, NULL, 4},
    /* q, k and v, attention, out; norm; up, down; norm */
    {"post-norm layer", run_post_norm, post_norm_size, "inputs", 7},
    /* and a gate */
    {"gated layer", run_gated, gated_size, "inputs", 8},
    /* and q; k and v of the memory, attention, out; norm */
    {"layer with memory", run_cross, cross_size, "inputs", 12},
    {"project_memory", run_project_memory, NULL, NULL, 1},
    /* norm of the embeddings, and the layer */
    {"bert", run_bert, bert_size, NULL, 8},
    /* half of the tokens: the layer but for its norms, and the last product */
    {"llama", run_llama, NULL, NULL, 7},
    {"encode", run_encode, NULL, NULL, 7},
    /* the layer but for its norms, and the last product */
    {"score", run_score, NULL, NULL, 10},
    /* keys and values of the memory; attention to it in all steps but the first; the last product in each */
    {"decode", run_decode, NULL, "decoding", 6},
    {"lstm", run_lstm, lstm_size, NULL, 1},
    {"bahdanau", run_step, step_size, NULL, 1},
    {"pool", run_pool, pool_size, NULL, 2},
    {"project", run_project, NULL, NULL, 1},
};
enum { CALLS = sizeof calls / sizeof *calls, NUMBERS = 2 * MOST * D };

static float expected[NUMBERS], got[NUMBERS];

/** Makes a call, and compares with what one thread without an executor has made. */
static void run(const struct call *call, const struct how *how)
{
    snprintf(guard_case_line, sizeof guard_case_line, "%s, %d threads, %zu bytes", call->name, how->num_threads,
             how->size);
    memset(got, 0, sizeof got);
    memset(teams, 0, sizeof teams);
    OK(call->run(how, got));
    if (memcmp(got, expected, sizeof got) != 0)
        fail_msg("%s: other bits", guard_case_line);
}

static void run_expected(const struct call *call)
{
    memset(expected, 0, sizeof expected);
    OK(call->run(&(struct how){.num_threads = 1}, expected));
}

/* -------------------------------------------------------------------- tests -- */

/** Who had the teams of a call; nobody else had any. */
static void check_teams(const struct call *call, int owner, int number)
{
    for (int i = 0; i <= OTHER; i++)
        if (teams[i] != (i == owner ? number : 0))
            fail_msg("%s: %d teams of %s %d; expected %d", call->name, teams[i], i < OPENMP ? "executor" : "OpenMP", i,
                     i == owner ? number : 0);
}

static void test_executors(void **state)
{
    (void)state;
    tokens = MOST;
    for (int i = 0; i < CALLS; i++) {
        const struct call *call = &calls[i];
        run_expected(call);
        OK(attn_set_executor(&executors[OF_PROCESS]));
        run(call, &(struct how){0});
        check_teams(call, OF_PROCESS, call->parts);
        if (call->own) {
            run(call, &(struct how){.executor = &executors[OF_CALL]});
            check_teams(call, OF_CALL, call->parts);
        }
        OK(attn_set_executor(NULL));
        assert_null(attn_executor_of(NULL)); /* and it is nobody's any more */
    }
}

/** An executor of the self-attention has its three parts, and the layer's the others. */
static void test_executor_of_self(void **state)
{
    (void)state;
    tokens = MOST;
    for (int i = 0; i < CALLS; i++) {
        const struct call *call = &calls[i];
        if (!call->own || strcmp(call->own, "inputs") != 0)
            continue;
        run_expected(call);
        run(call, &(struct how){.executor = &executors[OF_CALL], .of_self = &executors[OF_SELF]});
        assert_int_equal(teams[OF_SELF], 3);
        teams[OF_SELF] = 0;
        check_teams(call, OF_CALL, call->parts - 3);
    }
}

static void test_wrong_executors(void **state)
{
    (void)state;
    tokens = BATCH;
    const attn_executor none = attn_executor_default();
    attn_executor no_run = executors[OF_CALL];
    no_run.run = NULL;
    for (int i = 0; i < CALLS; i++) {
        char words[80];
        if (!calls[i].own)
            continue;
        memset(got, 0, sizeof got);
        memset(expected, 0, sizeof expected);
        snprintf(words, sizeof words, "%s.executor.num_threads is 0;", calls[i].own);
        REFUSES(NULL, calls[i].run(&(struct how){.executor = &none}, got), ATTN_INVALID_ARGUMENT, words);
        snprintf(words, sizeof words, "%s.executor.run is NULL;", calls[i].own);
        REFUSES(NULL, calls[i].run(&(struct how){.executor = &no_run}, got), ATTN_INVALID_ARGUMENT, words);
        assert_memory_equal(got, expected, sizeof got);
        if (calls[i].size)
            assert_true(calls[i].size(&(struct how){.executor = &none}) == SIZE_MAX);
    }
    nn_end_refusals();
}

/** A size that was told for one number of threads serves any other. */
static void test_workspace_of_other_threads(void **state)
{
    (void)state;
    static const int counts[] = {1, 3, 8};
    tokens = MOST / 4;
    for (int i = 0; i < CALLS; i++) {
        const struct call *call = &calls[i];
        if (!call->size)
            continue;
        run_expected(call);
        for (int asked = 0; asked < 3; asked++)
            for (int used = 0; used < 3; used++) {
                struct how how = {.num_threads = counts[asked]};
                how.size = call->size(&how);
                how.num_threads = counts[used];
                struct guard guard = guard_create(how.size);
                how.workspace = guard_place(&guard, how.size, 1);
                run(call, &how);
                assert_true(guard_intact(&guard));
                guard_destroy(&guard);
            }
    }
}

/** The size that the refusal of a small workspace names is enough, and the least. */
static void test_least_workspace(void **state)
{
    (void)state;
    tokens = MOST / 4;
    for (int i = 0; i < CALLS; i++) {
        const struct call *call = &calls[i];
        struct how how = {.num_threads = 4, .size = 1};
        char small[1];
        if (!call->size)
            continue;
        run_expected(call);
        memset(got, 0, sizeof got);
        how.workspace = small;
        assert_int_equal(call->run(&how, got), ATTN_WORKSPACE_TOO_SMALL);
        assert_int_equal(sscanf(attn_last_error(), "workspace_size is 1; expected %zu bytes or more", &how.size), 1);
        assert_true(how.size <= call->size(&how));
        struct guard guard = guard_create(how.size);
        how.workspace = guard_place(&guard, how.size, 1);
        how.size--;
        assert_int_equal(call->run(&how, got), ATTN_WORKSPACE_TOO_SMALL);
        for (int n = 0; n < NUMBERS; n++)
            assert_true(got[n] == 0.0f);
        how.size++;
        run(call, &how);
        guard_destroy(&guard);
    }
}

/** Another thread sets an executor with more threads while a call is measured, and takes it away for the next call. */
static void test_exchanged_executor(void **state)
{
    (void)state;
    tokens = MOST / 4;
    attn_executor one = executors[OF_CALL];
    one.num_threads = 1;
    executors[OF_PROCESS].num_threads = 8;
    for (int i = 0; i < CALLS; i++) {
        const struct call *call = &calls[i];
        run_expected(call);
        for (int checks = 1; checks <= 4; checks++) {
            struct how how = {0};
            OK(attn_set_executor(&one));
            how.size = call->size ? call->size(&how) : 0;
            struct guard guard = guard_create(how.size ? how.size : 1);
            if (call->size)
                how.workspace = guard_place(&guard, how.size, 1);
            checks_until_exchange = checks;
            run(call, &how);
            checks_until_exchange = 0;
            if (call->size)
                assert_true(guard_intact(&guard));
            guard_destroy(&guard);
        }
        OK(attn_set_executor(NULL));
    }
    executors[OF_PROCESS].num_threads = 4;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_executors),       cmocka_unit_test(test_executor_of_self),
        cmocka_unit_test(test_wrong_executors), cmocka_unit_test(test_workspace_of_other_threads),
        cmocka_unit_test(test_least_workspace), cmocka_unit_test(test_exchanged_executor),
    };
    guard_catch_faults();
    nn_begin();
    return cmocka_run_group_tests(tests, make, destroy);
}
