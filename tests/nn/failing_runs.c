/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of small models, and runs in which one allocation after the other fails. */
#include "failing_runs.h"

#include "ledger.h"

void failing_make(struct made *made, struct memory *m)
{
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config block = attn_block_config_default();
    attention.d_model = D, attention.heads = HEADS;
    block.attention = &attention, block.d_ff = FF;
    memset(made, 0, sizeof *made);
    made->named = named_create(m);
    named_add(made->named, m, ATTN_F32, WORDS, D, 1, 0, "bert.", "embeddings.word_embeddings.weight");
    named_add(made->named, m, ATTN_F32, PLACES, D, 1, 0, "bert.", "embeddings.position_embeddings.weight");
    named_add(made->named, m, ATTN_F32, 2, D, 1, 0, "bert.", "embeddings.token_type_embeddings.weight");
    named_add_norm(made->named, m, ATTN_NORM_LAYER, D, "bert.", "embeddings.LayerNorm");
    named_add_block(made->named, m, &block, "bert.encoder.layer.0.", ATTN_NAMING_BERT, 1);
    named_add_block(made->named, m, &block, "bert.encoder.layer.1.", ATTN_NAMING_BERT, 1);
    for (int layer = 0; layer < 2; layer++)
        for (int reverse = 0; reverse < 2; reverse++) {
            const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
            for (int kind = 0; kind < 4; kind++) {
                char name[NAMED_LENGTH];
                snprintf(name, sizeof name, "%s_l%d%s", kinds[kind], layer, reverse ? "_reverse" : "");
                const int64_t columns = kind == 0 ? (layer ? 2 * HIDDEN : D) : kind == 1 ? HIDDEN : 4 * HIDDEN;
                named_add(made->named, m, ATTN_F32, kind < 2 ? 4 * HIDDEN : 0, columns, 0.5, 0, "rnn.", name);
            }
        }
    named_add(made->named, m, ATTN_F32, WORDS, D, 1, 0, "", "model.embed_tokens.weight");
    named_add_norm(made->named, m, ATTN_NORM_RMS, D, "", "model.norm");
    attn_block_config llama = block;
    llama.gated = 1, llama.norm = ATTN_NORM_RMS;
    named_add_block(made->named, m, &llama, "model.layers.0.", ATTN_NAMING_LLAMA, 0);
    named_add(made->named, m, ATTN_F32, WORDS, D, 0.3, 0, "", "src_embedding.weight");
    named_add(made->named, m, ATTN_F32, WORDS, D, 0.3, 0, "", "tgt_embedding.weight");
    named_add(made->named, m, ATTN_F32, WORDS, D, 0.3, 0, "", "generator.weight");
    named_add_block(made->named, m, &block, "encoder.layers.0.", ATTN_NAMING_TORCH, 1);
    block.cross = 1;
    named_add_block(made->named, m, &block, "decoder.layers.0.", ATTN_NAMING_TORCH, 1);
    named_add(made->named, m, ATTN_F32, ATTENTION, D, 0.5, 0, "pool.", "w");
    named_add(made->named, m, ATTN_F32, 0, ATTENTION, 0.5, 0, "pool.", "v");
    made->weights = named_weights(made->named);
    OK(attn_weights_ignore(made->weights, 1, (const char *const[]){"*"})); /* models that know nothing of each other */
    made->x = attn_btc(made->x_data, 1, TOKENS, D);
    made->out = attn_btc(made->out_data, 1, TOKENS, D);
    made->seen = attn_bhtd(made->seen_data, 1, HEADS, TOKENS, TOKENS);
    for (int i = 0; i < TOKENS * D; i++)
        made->x_data[i] = (float)(i % 7) * 0.25f - 0.7f;
}

attn_alignment_config failing_alignment(attn_score score)
{
    static float matrix[D * D];
    attn_alignment_config config = attn_alignment_config_default();
    config.score = score;
    config.d_query = config.d_key = D;
    if (score == ATTN_SCORE_ADDITIVE) {
        config.d_attention = D;
        config.w_q = config.w_k = attn_matrix(matrix, D, D), config.v = attn_vector(matrix, D);
    }
    return config;
}

/** Makes allocation n fail; returns whether n was beyond the last. */
static int nth_fails(int n, int persistent, run_function *run, struct made *made, const float *expected,
                     struct sentences *shortages)
{
    static const float mark = -77.0f;
    for (int i = 0; i < TOKENS * D; i++)
        made->out_data[i] = mark;
    ledger_begin(n, persistent);
    const attn_status status = run(made);
    ledger.active = 0;
    assert_int_equal(ledger.live, 0);
    if (status) {
        assert_int_equal(status, ATTN_OUT_OF_MEMORY);
        sentences_meet(shortages, attn_last_error());
        for (int i = 0; i < TOKENS * D; i++)
            assert_true(made->out_data[i] == mark);
    } else {
        assert_memory_equal(made->out_data, expected, sizeof made->out_data);
    }
    return ledger.made < n;
}

void failing_runs(struct made *made, run_function *const *runs, size_t num, struct sentences *shortages)
{
    static float expected[TOKENS * D];
    for (size_t r = 0; r < num; r++) {
        for (int i = 0; i < TOKENS * D; i++)
            made->out_data[i] = -77.0f;
        OK(runs[r](made));
        memcpy(expected, made->out_data, sizeof expected);
        for (int persistent = 0; persistent < 2; persistent++) {
            int n = 1;
            while (!nth_fails(n, persistent, runs[r], made, expected, shortages))
                assert_true(++n < 10000);
            assert_true(n > 1); /* else the library's allocations do not pass through here */
        }
    }
    sentences_end(shortages);
}
