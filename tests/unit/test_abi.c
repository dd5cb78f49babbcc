/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of what libattn's headers declare, as it is compiled into programs:
 * the offset of every field and the value of every constant (docs/abi.md). A
 * field may be added behind the others of a struct with struct_size, and a
 * constant behind the others of its enum; every other difference breaks
 * programs that are not compiled anew.
 *
 * The numbers are those of 64-bit systems. With --json the program prints the
 * layout, for tests/install/check_structs.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attn/attn.h"
#include "attn/backward.h"
#include "attn/cache.h"
#include "attn/linear_attention.h"
#include "attn/linear_attention_backward.h"
#include "attn/patterns.h"
#include "attn/rope.h"
#include "guard.h"
#include "places.h"

#include <string.h>

static const struct place places[] = {
    SIZE(attn_tensor, 80),
    FIELD(attn_tensor, data, 0),
    FIELD(attn_tensor, dtype, 8),
    FIELD(attn_tensor, shape, 16),
    FIELD(attn_tensor, stride, 48),
    SIZE(attn_window, 40),
    FIELD(attn_window, left, 0),
    FIELD(attn_window, right, 8),
    FIELD(attn_window, first_tokens, 16),
    FIELD(attn_window, global, 24),
    FIELD(attn_window, num_global, 32),
    SIZE(attn_block_mask, 40),
    FIELD(attn_block_mask, size, 0),
    FIELD(attn_block_mask, heads, 8),
    FIELD(attn_block_mask, rows, 16),
    FIELD(attn_block_mask, offsets, 24),
    FIELD(attn_block_mask, columns, 32),
    SIZE(attn_segments, 16),
    FIELD(attn_segments, q, 0),
    FIELD(attn_segments, k, 8),
    SIZE(attn_tree, 16),
    FIELD(attn_tree, tokens, 0),
    FIELD(attn_tree, ancestors, 8),
    SIZE(attn_relative_bias, 32),
    FIELD(attn_relative_bias, kind, 0),
    FIELD(attn_relative_bias, buckets, 8),
    FIELD(attn_relative_bias, max_distance, 16),
    FIELD(attn_relative_bias, table, 24),
    SIZE(attn_disentangled, 32),
    FIELD(attn_disentangled, span, 0),
    FIELD(attn_disentangled, rel_k, 8),
    FIELD(attn_disentangled, rel_q, 16),
    FIELD(attn_disentangled, delta, 24),
    SIZE(attn_rope_tables, 24),
    FIELD(attn_rope_tables, layout, 0),
    FIELD(attn_rope_tables, q, 8),
    FIELD(attn_rope_tables, k, 16),
    SIZE(attn_ragged, 24),
    FIELD(attn_ragged, num_sequences, 0),
    FIELD(attn_ragged, cu_seqlens_q, 8),
    FIELD(attn_ragged, cu_seqlens_k, 16),
    SIZE(attn_dropout, 24),
    FIELD(attn_dropout, p, 0),
    FIELD(attn_dropout, seed, 8),
    FIELD(attn_dropout, offset, 16),
    SIZE(attn_score_tile, 64),
    FIELD(attn_score_tile, batch, 0),
    FIELD(attn_score_tile, head, 8),
    FIELD(attn_score_tile, first_query, 16),
    FIELD(attn_score_tile, num_queries, 24),
    FIELD(attn_score_tile, first_key, 32),
    FIELD(attn_score_tile, num_keys, 40),
    FIELD(attn_score_tile, key_stride, 48),
    FIELD(attn_score_tile, scores, 56),
    SIZE(attn_weight_tile, 64),
    FIELD(attn_weight_tile, batch, 0),
    FIELD(attn_weight_tile, head, 8),
    FIELD(attn_weight_tile, first_query, 16),
    FIELD(attn_weight_tile, num_queries, 24),
    FIELD(attn_weight_tile, first_key, 32),
    FIELD(attn_weight_tile, num_keys, 40),
    FIELD(attn_weight_tile, key_stride, 48),
    FIELD(attn_weight_tile, weights, 56),
    SIZE(attn_gradients, 120),
    FIELD(attn_gradients, struct_size, 0),
    FIELD(attn_gradients, out, 8),
    FIELD(attn_gradients, lse, 16),
    FIELD(attn_gradients, q, 24),
    FIELD(attn_gradients, k, 32),
    FIELD(attn_gradients, v, 40),
    FIELD(attn_gradients, head_scale, 48),
    FIELD(attn_gradients, sinks, 56),
    FIELD(attn_gradients, alibi_slopes, 64),
    FIELD(attn_gradients, relative_bias, 72),
    FIELD(attn_gradients, mask, 80),
    FIELD(attn_gradients, callback, 88),
    FIELD(attn_gradients, callback_user, 96),
    FIELD(attn_gradients, rel_k, 104),
    FIELD(attn_gradients, rel_q, 112),
    SIZE(attn_linear_attention_params, 128),
    FIELD(attn_linear_attention_params, struct_size, 0),
    FIELD(attn_linear_attention_params, decay, 8),
    FIELD(attn_linear_attention_params, beta, 16),
    FIELD(attn_linear_attention_params, scale, 24),
    FIELD(attn_linear_attention_params, state_in, 32),
    FIELD(attn_linear_attention_params, state_out, 40),
    FIELD(attn_linear_attention_params, resets, 48),
    FIELD(attn_linear_attention_params, cu_seqlens, 56),
    FIELD(attn_linear_attention_params, num_sequences, 64),
    FIELD(attn_linear_attention_params, lengths, 72),
    FIELD(attn_linear_attention_params, map, 80),
    FIELD(attn_linear_attention_params, projection, 88),
    FIELD(attn_linear_attention_params, normalise, 96),
    FIELD(attn_linear_attention_params, bidirectional, 100),
    FIELD(attn_linear_attention_params, num_threads, 104),
    FIELD(attn_linear_attention_params, isa, 112),
    FIELD(attn_linear_attention_params, executor, 120),
    SIZE(attn_linear_attention_gradients, 64),
    FIELD(attn_linear_attention_gradients, struct_size, 0),
    FIELD(attn_linear_attention_gradients, out, 8),
    FIELD(attn_linear_attention_gradients, state_out, 16),
    FIELD(attn_linear_attention_gradients, q, 24),
    FIELD(attn_linear_attention_gradients, k, 32),
    FIELD(attn_linear_attention_gradients, v, 40),
    FIELD(attn_linear_attention_gradients, decay, 48),
    FIELD(attn_linear_attention_gradients, state_in, 56),
    SIZE(attn_score_gradient_tile, 72),
    FIELD(attn_score_gradient_tile, batch, 0),
    FIELD(attn_score_gradient_tile, head, 8),
    FIELD(attn_score_gradient_tile, first_query, 16),
    FIELD(attn_score_gradient_tile, num_queries, 24),
    FIELD(attn_score_gradient_tile, first_key, 32),
    FIELD(attn_score_gradient_tile, num_keys, 40),
    FIELD(attn_score_gradient_tile, key_stride, 48),
    FIELD(attn_score_gradient_tile, scores, 56),
    FIELD(attn_score_gradient_tile, gradients, 64),
    SIZE(attn_params, 336),
    FIELD(attn_params, struct_size, 0),
    FIELD(attn_params, scale, 8),
    FIELD(attn_params, temperature, 12),
    FIELD(attn_params, head_scale, 16),
    FIELD(attn_params, softcap, 24),
    FIELD(attn_params, sinks, 32),
    FIELD(attn_params, alibi_slopes, 40),
    FIELD(attn_params, relative_bias, 48),
    FIELD(attn_params, disentangled, 56),
    FIELD(attn_params, rope, 64),
    FIELD(attn_params, callback, 72),
    FIELD(attn_params, callback_user, 80),
    FIELD(attn_params, causal, 88),
    FIELD(attn_params, query_offset, 96),
    FIELD(attn_params, kv_len, 104),
    FIELD(attn_params, kv_start, 112),
    FIELD(attn_params, prefix_len, 120),
    FIELD(attn_params, window, 128),
    FIELD(attn_params, block_mask, 136),
    FIELD(attn_params, segments, 144),
    FIELD(attn_params, tree, 152),
    FIELD(attn_params, mask, 160),
    FIELD(attn_params, ragged, 168),
    FIELD(attn_params, dropout, 176),
    FIELD(attn_params, weight_callback, 184),
    FIELD(attn_params, weight_callback_user, 192),
    FIELD(attn_params, lse, 200),
    FIELD(attn_params, weights, 208),
    FIELD(attn_params, weight_rows, 216),
    FIELD(attn_params, num_weight_rows, 224),
    FIELD(attn_params, key_sums, 232),
    FIELD(attn_params, scores, 240),
    FIELD(attn_params, score_stage, 248),
    FIELD(attn_params, qk, 252),
    FIELD(attn_params, num_threads, 256),
    FIELD(attn_params, isa, 264),
    FIELD(attn_params, executor, 272),
    FIELD(attn_params, block_table, 280),
    FIELD(attn_params, block_table_stride, 288),
    FIELD(attn_params, page_size, 296),
    FIELD(attn_params, q_scale, 304),
    FIELD(attn_params, k_scale, 312),
    FIELD(attn_params, v_scale, 320),
    FIELD(attn_params, inputs, 328),
    FIELD(attn_params, sums, 332),
    SIZE(attn_rope_config, 120),
    FIELD(attn_rope_config, struct_size, 0),
    FIELD(attn_rope_config, pairs, 8),
    FIELD(attn_rope_config, base, 16),
    FIELD(attn_rope_config, scaling, 24),
    FIELD(attn_rope_config, factor, 32),
    FIELD(attn_rope_config, original_length, 40),
    FIELD(attn_rope_config, beta_fast, 48),
    FIELD(attn_rope_config, beta_slow, 56),
    FIELD(attn_rope_config, attention_factor, 64),
    FIELD(attn_rope_config, low_freq_factor, 72),
    FIELD(attn_rope_config, high_freq_factor, 80),
    FIELD(attn_rope_config, no_truncation, 88),
    FIELD(attn_rope_config, short_factor, 96),
    FIELD(attn_rope_config, long_factor, 104),
    FIELD(attn_rope_config, length, 112),
    SIZE(attn_cache_config, 112),
    FIELD(attn_cache_config, struct_size, 0),
    FIELD(attn_cache_config, layers, 8),
    FIELD(attn_cache_config, kv_heads, 16),
    FIELD(attn_cache_config, dk, 24),
    FIELD(attn_cache_config, dv, 32),
    FIELD(attn_cache_config, dtype, 40),
    FIELD(attn_cache_config, max_tokens, 48),
    FIELD(attn_cache_config, max_sequences, 56),
    FIELD(attn_cache_config, page_size, 64),
    FIELD(attn_cache_config, num_pages, 72),
    FIELD(attn_cache_config, window, 80),
    FIELD(attn_cache_config, first_tokens, 88),
    FIELD(attn_cache_config, rope, 96),
    FIELD(attn_cache_config, rope_layout, 104),
    FIELD(attn_cache_config, v_in_k, 108),
    SIZE(attn_cache_usage, 64),
    FIELD(attn_cache_usage, struct_size, 0),
    FIELD(attn_cache_usage, num_pages, 8),
    FIELD(attn_cache_usage, pages_in_use, 16),
    FIELD(attn_cache_usage, page_size, 24),
    FIELD(attn_cache_usage, page_bytes, 32),
    FIELD(attn_cache_usage, num_sequences, 40),
    FIELD(attn_cache_usage, tokens, 48),
    FIELD(attn_cache_usage, bytes, 56),
    SIZE(attn_executor, 32),
    FIELD(attn_executor, struct_size, 0),
    FIELD(attn_executor, num_threads, 8),
    FIELD(attn_executor, run, 16),
    FIELD(attn_executor, user, 24),
    SIZE(attn_longformer, 24),
    FIELD(attn_longformer, window, 0),
    FIELD(attn_longformer, global, 8),
    FIELD(attn_longformer, causal, 16),
    SIZE(attn_bigbird, 48),
    FIELD(attn_bigbird, window, 0),
    FIELD(attn_bigbird, global, 8),
    FIELD(attn_bigbird, random, 16),
    FIELD(attn_bigbird, seed, 24),
    FIELD(attn_bigbird, heads, 32),
    FIELD(attn_bigbird, causal, 40),
    SIZE(attn_strided, 16),
    FIELD(attn_strided, stride, 0),
    FIELD(attn_strided, causal, 8),
};

struct value {
    const char *name;
    int is, expected;
};

#define VALUE(name, number)                                                                                            \
    {                                                                                                                  \
#name, (int)(name), number                                                                                     \
    }

static const struct value values[] = {
    VALUE(ATTN_OK, 0),
    VALUE(ATTN_INVALID_ARGUMENT, 1),
    VALUE(ATTN_SHAPE_MISMATCH, 2),
    VALUE(ATTN_SIZE_OVERFLOW, 3),
    VALUE(ATTN_UNSUPPORTED, 4),
    VALUE(ATTN_OUT_OF_MEMORY, 5),
    VALUE(ATTN_WORKSPACE_TOO_SMALL, 6),
    VALUE(ATTN_INVALID_FILE, 7),
    VALUE(ATTN_CACHE_FULL, 8),
    VALUE(ATTN_PEER_LOST, 9),
    VALUE(ATTN_F32, 0),
    VALUE(ATTN_BF16, 1),
    VALUE(ATTN_F16, 2),
    VALUE(ATTN_BOOL, 3),
    VALUE(ATTN_I8, 4),
    VALUE(ATTN_U8, 5),
    VALUE(ATTN_F8_E4M3, 6),
    VALUE(ATTN_I4, 7),
    VALUE(ATTN_CAUSAL_NONE, 0),
    VALUE(ATTN_CAUSAL_TOP_LEFT, 1),
    VALUE(ATTN_CAUSAL_BOTTOM_RIGHT, 2),
    VALUE(ATTN_CAUSAL_OFFSET, 3),
    VALUE(ATTN_QK_DEFAULT, 0),
    VALUE(ATTN_QK_INT8, 1),
    VALUE(ATTN_INPUTS_AS_GIVEN, 0),
    VALUE(ATTN_INPUTS_MAY_BE_BF16, 1),
    VALUE(ATTN_SUMS_ORDERED, 0),
    VALUE(ATTN_SUMS_FREE, 1),
    VALUE(ATTN_BUCKETS_CLIPPED, 0),
    VALUE(ATTN_BUCKETS_T5, 1),
    VALUE(ATTN_BUCKETS_T5_BIDIRECTIONAL, 2),
    VALUE(ATTN_DELTA_QUERY_KEY, 0),
    VALUE(ATTN_DELTA_KEY_QUERY, 1),
    VALUE(ATTN_SCORES_RAW, 0),
    VALUE(ATTN_SCORES_SCALED, 1),
    VALUE(ATTN_SCORES_CAPPED, 2),
    VALUE(ATTN_SCORES_MASKED, 3),
    VALUE(ATTN_FEATURES_NONE, 0),
    VALUE(ATTN_FEATURES_ELU, 1),
    VALUE(ATTN_FEATURES_POSITIVE, 2),
    VALUE(ATTN_ROPE_HALF_SPLIT, 0),
    VALUE(ATTN_ROPE_INTERLEAVED, 1),
    VALUE(ATTN_ROPE_PLAIN, 0),
    VALUE(ATTN_ROPE_LINEAR, 1),
    VALUE(ATTN_ROPE_NTK, 2),
    VALUE(ATTN_ROPE_YARN, 3),
    VALUE(ATTN_ROPE_LLAMA3, 4),
    VALUE(ATTN_ROPE_LONGROPE, 5),
};

static void test_places(void **state)
{
    (void)state;
    if (sizeof(void *) != 8)
        skip();
    assert_int_equal(places_wrong(places, sizeof places / sizeof *places), 0);
}

static void test_values(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].is != values[i].expected) {
            print_error("%s is %d; programs have %d\n", values[i].name, values[i].is, values[i].expected);
            wrong++;
        }
    assert_int_equal(wrong, 0);
    assert_int_equal(sizeof(attn_status), sizeof(int)); /* whatever its values */
    assert_int_equal(sizeof(attn_dtype), sizeof(int));
    assert_true(ATTN_UNLIMITED == INT64_MAX);
    assert_int_equal(ATTN_LINEAR_ATTENTION_CHUNK, 64);
}

/** A default is zero but for its size. */
static void test_defaults(void **state)
{
    (void)state;
    attn_params params = attn_params_default();
    attn_rope_config config = attn_rope_config_default();
    static const unsigned char zeros[sizeof params];
    assert_int_equal(params.struct_size, sizeof params);
    assert_int_equal(config.struct_size, sizeof config);
    attn_linear_attention_params linear = attn_linear_attention_params_default();
    assert_int_equal(linear.struct_size, sizeof linear);
    params.struct_size = config.struct_size = linear.struct_size = 0;
    assert_memory_equal(&linear, zeros, sizeof linear);
    assert_memory_equal(&params, zeros, sizeof params);
    assert_memory_equal(&config, zeros, sizeof config);
}

/* Sizes in the first version that had the struct, and which are still accepted. */
enum { FIRST_PARAMS = 328, FIRST_ROPE_CONFIG = 88 };

static struct guard guard;

/**
 * A struct of size bytes before a page that faults, of which struct_size and the bytes of whole are there as far as
 * they fit. Returns it.
 */
static void *struct_of(size_t size, size_t struct_size, const void *whole, size_t whole_size)
{
    unsigned char *bytes = guard_place(&guard, size, 1);
    assert_non_null(bytes);
    memset(bytes, 0, size);
    memcpy(bytes, whole, size < whole_size ? size : whole_size);
    memcpy(bytes, &struct_size, sizeof struct_size);
    return bytes;
}

static attn_status run(const void *params, float *out)
{
    static float q[4] = {1, 2, 3, 4}, k[8] = {1, 0, 2, 0, 1, 1, 1, 1}, v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const attn_tensor qt = attn_bhtd(q, 1, 1, 1, 4), kt = attn_bhtd(k, 1, 1, 2, 4), vt = attn_bhtd(v, 1, 1, 2, 4);
    const attn_tensor o = attn_bhtd(out, 1, 1, 1, 4);
    return attn_forward(&qt, &kt, &vt, &o, params);
}

static attn_status fill(const void *config, float *table)
{
    return attn_rope_table(config, NULL, 2, table);
}

struct subject {
    attn_status (*use)(const void *, float *);
    const void *whole;
    size_t first, size;
    const char *sentence;
};

/** Every size from the first version's to a page more works alike; others are refused, and not read. */
static void test_sizes_of(const struct subject *s)
{
    static const size_t behind[] = {0, 8, 64, 4088, 4096};
    float expected[16] = {0}, got[16];
    assert_int_equal(s->use(struct_of(s->size, s->size, s->whole, s->size), expected), ATTN_OK);
    for (size_t size = s->first; size <= s->size; size += 8) {
        memset(got, 0, sizeof got);
        assert_int_equal(s->use(struct_of(size, size, s->whole, s->size), got), ATTN_OK);
        assert_memory_equal(got, expected, sizeof got);
    }
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        const size_t size = s->size + behind[i];
        memset(got, 0, sizeof got);
        unsigned char *longer = struct_of(size, size, s->whole, s->size);
        assert_int_equal(s->use(longer, got), ATTN_OK);
        assert_memory_equal(got, expected, sizeof got);
        if (behind[i] == 0)
            continue;
        memset(got, 0x5A, sizeof got);
        longer[size - 1] = 1;
        assert_int_equal(s->use(longer, got), ATTN_UNSUPPORTED);
        assert_non_null(strstr(attn_last_error(), s->sentence));
        for (size_t n = 0; n < sizeof got; n++)
            assert_int_equal(((unsigned char *)got)[n], 0x5A);
    }
    const size_t garbage[] = {0, 1, s->first - 1, s->size + 4097, (size_t)1 << 30, SIZE_MAX / 2, SIZE_MAX};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        memset(got, 0x5A, sizeof got);
        assert_int_equal(s->use(struct_of(s->size, garbage[i], s->whole, s->size), got), ATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_last_error(), s->sentence));
        for (size_t n = 0; n < sizeof got; n++)
            assert_int_equal(((unsigned char *)got)[n], 0x5A);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    attn_params params = attn_params_default();
    attn_rope_config config = attn_rope_config_default();
    params.scale = 0.25f; /* fields of the first version */
    config.pairs = 2;
    config.scaling = ATTN_ROPE_LINEAR;
    config.factor = 2;
    const struct subject subjects[] = {
        {run, &params, FIRST_PARAMS, sizeof params, "params.struct_size is "},
        {fill, &config, FIRST_ROPE_CONFIG, sizeof config, "config.struct_size is "},
    };
    if (sizeof(void *) != 8)
        skip();
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        test_sizes_of(&subjects[i]);
}

int main(int argc, char **argv)
{
    if (places_print_on_request(argc, argv, places, sizeof places / sizeof *places))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_sizes),
    };
    guard_catch_faults();
    guard = guard_create(16384);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    guard_destroy(&guard);
    return failed;
}
