/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases that attn-bench measures, as data.
 *
 * The first group is what the library states its speed on: long and short
 * sequences, every usual head size, causal, masked, strided and few-head work.
 * The second holds the shapes that are easy to forget: padding, fewer key than
 * query heads, more keys than queries, heads that do not divide among threads.
 * The third sweeps the sequence length in powers of two against the naive
 * implementation, where fused attention is most often caught being slower: at
 * short lengths, and when there is one head only. The fourth group is what the
 * speed in bf16, f16 and with int8 scores is stated on; calls of one token,
 * which read all keys and values from memory or a cache; new rows that are kept;
 * and long calls over pages, beside those without. The fifth holds the forms
 * of attention, and what their time is compared with. The sixth are forms whose
 * queries see 192 keys, or all of them, however long the sequence is: their time
 * per token must not grow with it. Then linear attention and Performer; gradients, alone and with the
 * forward call. The last are of libattn_nn: Linformer, additive scores, and linear layers: a
 * token, a short and a long sentence or batch in the widths of small and base
 * encoders, and two wide ones.
 */
#include "cases.h"
#include "append.h"
#include "linear_attention.h"
#include "attn/backward.h"
#include "isa_kernels.h"
#include "linear.h"
#include "rounding.h"

#include <stdio.h>

#define NONE         ATTN_CAUSAL_NONE
#define TOP_LEFT     ATTN_CAUSAL_TOP_LEFT
#define BOTTOM_RIGHT ATTN_CAUSAL_BOTTOM_RIGHT

#define SHAPE(id_, batch_, heads_, kv_heads_, tq_, tk_, d_, ...)                                                       \
    {                                                                                                                  \
        .id = id_, .batch = batch_, .heads = heads_, .kv_heads = kv_heads_, .tq = tq_, .tk = tk_, .d = d_, __VA_ARGS__ \
    }

/* Self attention: as many keys as queries, as many key heads as query heads. */
#define SELF(id, batch, heads, t, d, causal_, ...)                                                                     \
    SHAPE(id, batch, heads, heads, t, t, d, .causal = causal_, __VA_ARGS__)

/* Shapes that the speed in bf16 and in f16 is stated on, both. */
#define NARROW(type, dtype_)                                                                                           \
    SELF(type "-t2048-d128", 1, 8, 2048, 128, NONE, .dtype = dtype_),                                                  \
        SELF(type "-t2048-d64", 1, 8, 2048, 64, NONE, .dtype = dtype_),                                                \
        SELF(type "-t2048-d128-causal", 1, 8, 2048, 128, TOP_LEFT, .dtype = dtype_),                                   \
        SELF(type "-t2048-d64-causal", 1, 8, 2048, 64, TOP_LEFT, .dtype = dtype_),                                     \
        SELF(type "-encoder", 8, 12, 128, 64, NONE, .dtype = dtype_),                                                  \
        SELF(type "-h1-t16", 1, 1, 16, 64, NONE, .dtype = dtype_)

/* A row of decoding in both orders of sums. */
#define ONE_TOKEN(id, batch, heads, kv_heads, tk, d, ...)                                                              \
    SHAPE(id, batch, heads, kv_heads, 1, tk, d, .causal = BOTTOM_RIGHT, .sampled = true, __VA_ARGS__),                 \
        SHAPE(id "-free", batch, heads, kv_heads, 1, tk, d, .causal = BOTTOM_RIGHT, .sampled = true,                   \
              .free_sums = true, __VA_ARGS__)

/*
 * A token more for each sequence of a batch, whose keys and values are 512 MiB: 4096 keys of 32 or 8 key heads. bits
 * are those of an element of K and V.
 */
#define DECODE(type, bits, ...)                                                                                        \
    ONE_TOKEN(type "-decode", 128 / (bits), 32, 32, 4096, 128, __VA_ARGS__),                                           \
        ONE_TOKEN(type "-decode-gqa", 512 / (bits), 32, 8, 4096, 128, __VA_ARGS__),                                    \
        ONE_TOKEN(type "-decode-gqa8", 512 / (bits), 64, 8, 4096, 128, __VA_ARGS__),                                   \
        ONE_TOKEN(type "-decode-pages", 128 / (bits), 32, 32, 4096, 128, .page = 16, __VA_ARGS__)

/* One sequence: 16 MiB of 8 heads; 131072 keys of one head, and as many as make 512 MiB, which threads share. */
#define DECODE_ONE(type, bits, ...)                                                                                    \
    ONE_TOKEN(type "-decode-16mib", 1, 8, 8, 65536 / (bits), 128, __VA_ARGS__),                                        \
        ONE_TOKEN(type "-decode-t131072", 1, 1, 1, 131072, 128, __VA_ARGS__),                                          \
        ONE_TOKEN(type "-decode-split", 1, 1, 1, 16777216 / (bits), 128, __VA_ARGS__)

/* 16 sequences that begin with the same prompt: all but the last 128 of 2048 keys are in pages of all, or in own ones.
 */
#define DECODE_PREFIX(type, ...)                                                                                       \
    ONE_TOKEN(type "-decode-common", 16, 32, 8, 2048, 128, .page = 16, .common = 1920, __VA_ARGS__),                   \
        ONE_TOKEN(type "-decode-own", 16, 32, 8, 2048, 128, .page = 16, __VA_ARGS__)

/* Latent attention: one key head, whose values are the first 512 channels of its keys. 513 to 522 MiB. */
#define LATENT(id_, heads_, size, ...)                                                                                 \
    SHAPE(id_, 228 / (size), heads_, 1, 1, 4096, 576, .causal = BOTTOM_RIGHT, .sampled = true, .values_in_keys = 512,  \
          __VA_ARGS__)

/* A token of each of 256 sequences goes to pages that have 512 MiB. */
#define APPEND(id_, size, ...) SHAPE(id_, 256, 8, 8, 1, 1024 / (size), 128, .append = true, .page = 16, __VA_ARGS__)

/* Linear attention: a prompt; a few tokens of a large batch, whose states are 512 MiB; and lengths. */
#define RULE(id_, batch, heads, t, d, rule_, ...)                                                                      \
    SHAPE("linear-attention-" id_, batch, heads, heads, t, t, d, .rule = rule_, __VA_ARGS__)
#define RULE_PROMPT(name, rule)                                                                                        \
    RULE(name "-t8192-d128", 1, 8, 8192, 128, rule, .causal = TOP_LEFT),                                               \
        RULE(name "-t8192-d64", 1, 8, 8192, 64, rule, .causal = TOP_LEFT)
#define RULE_BACKWARD(name, rule)                                                                                      \
    RULE("backward-" name "-t8192-d128", 1, 8, 8192, 128, rule, .causal = TOP_LEFT, .pass = BENCH_PASS_BACKWARD),      \
        RULE("backward-" name "-t8192-d64", 1, 8, 8192, 64, rule, .causal = TOP_LEFT, .pass = BENCH_PASS_BACKWARD)
#define RULE_STEPS(name, rule)                                                                                         \
    RULE(name "-step1", 256, 32, 1, 128, rule, .causal = TOP_LEFT),                                                    \
        RULE(name "-step4", 256, 32, 4, 128, rule, .causal = TOP_LEFT)
#define RULE_COST(name, rule)                                                                                          \
    RULE_COST_AT(name, 1024, rule), RULE_COST_AT(name, 16384, rule), RULE_COST_AT(name, 131072, rule),                 \
        RULE_COST_AT(name, 1048576, rule)
#define RULE_COST_AT(name, t_, rule) RULE("cost-" name "-t" #t_, 1, 2, t_, 64, rule, .causal = TOP_LEFT, .cost = name)

/* Performer and Linformer, whose time follows from the tokens, not from their square. */
#define PERFORMER(id_, t, d, causal_)                                                                                  \
    SHAPE("performer-" id_, 1, 8, 8, t, t, d, .causal = causal_, .features = 256, .dtype = ATTN_F32)
#define LINFORMER(id_, tq, tk, d) SHAPE("linformer-" id_, 1, 8, 8, tq, tk, d, .projected = 256, .dtype = ATTN_F32)

/* Additive scores: a step of a decoder, which threads share by its keys, and many queries. */
#define ADDITIVE(type, dtype_, d_)                                                                                     \
    SHAPE(type "additive-one-d" #d_, 1, 1, 1, 1, 2048, d_, .additive = true, .dtype = dtype_),                         \
        SHAPE(type "additive-d" #d_, 1, 1, 1, 256, 2048, d_, .additive = true, .dtype = dtype_)

/* Gradients, and the forward call with them: checked by rows. */
#define BACKWARD(id_, batch, heads, t, d, causal_, ...)                                                                \
    SELF("backward-" id_, batch, heads, t, d, causal_, .pass = BENCH_PASS_BACKWARD, .sampled = true, __VA_ARGS__)
#define BOTH(id_, batch, heads, t, d, causal_, ...)                                                                    \
    SELF("both-" id_, batch, heads, t, d, causal_, .pass = BENCH_PASS_BOTH, .sampled = true, __VA_ARGS__)

/* The shapes of NARROW that training has, in one type. */
#define GRADIENTS(type, pass_, dtype_)                                                                                 \
    pass_(type "t2048-d128", 1, 8, 2048, 128, NONE, .dtype = dtype_),                                                  \
        pass_(type "t2048-d64", 1, 8, 2048, 64, NONE, .dtype = dtype_),                                                \
        pass_(type "t2048-d128-causal", 1, 8, 2048, 128, TOP_LEFT, .dtype = dtype_),                                   \
        pass_(type "t2048-d64-causal", 1, 8, 2048, 64, TOP_LEFT, .dtype = dtype_)

#define SWEEP(prefix, heads, causal)                                                                                   \
    SELF(prefix "-t4", 1, heads, 4, 64, causal, .compare = true),                                                      \
        SELF(prefix "-t8", 1, heads, 8, 64, causal, .compare = true),                                                  \
        SELF(prefix "-t16", 1, heads, 16, 64, causal, .compare = true),                                                \
        SELF(prefix "-t32", 1, heads, 32, 64, causal, .compare = true),                                                \
        SELF(prefix "-t64", 1, heads, 64, 64, causal, .compare = true),                                                \
        SELF(prefix "-t128", 1, heads, 128, 64, causal, .compare = true),                                              \
        SELF(prefix "-t256", 1, heads, 256, 64, causal, .compare = true),                                              \
        SELF(prefix "-t512", 1, heads, 512, 64, causal, .compare = true),                                              \
        SELF(prefix "-t1024", 1, heads, 1024, 64, causal, .compare = true),                                            \
        SELF(prefix "-t2048", 1, heads, 2048, 64, causal, .compare = true),                                            \
        SELF(prefix "-t4096", 1, heads, 4096, 64, causal, .compare = true),                                            \
        SELF(prefix "-t8192", 1, heads, 8192, 64, causal, .compare = true)

/* Lengths from where all of K and V is near to where none of it is. */
#define COST(name, causal_, ...)                                                                                       \
    COST_AT(name, causal_, 16384, __VA_ARGS__), COST_AT(name, causal_, 65536, __VA_ARGS__),                            \
        COST_AT(name, causal_, 262144, __VA_ARGS__), COST_AT(name, causal_, 1048576, __VA_ARGS__)
#define COST_AT(name, causal_, t_, ...) SELF("cost-" name "-t" #t_, 1, 1, t_, 64, causal_, .cost = name, __VA_ARGS__)

/* One call that verifies 64 drafted tokens behind as many keys. */
#define COST_TREE(past) SHAPE("cost-tree-t" #past, 1, 1, 1, 64, (past) + 64, 64, .form = BENCH_TREE, .cost = "tree")

/* x by the transpose of outputs x inputs weights, m x n x k as in cblas_sgemm(). */
#define LAYER(kind, m, n, k, ...)                                                                                      \
    {                                                                                                                  \
        .id = "linear-" kind #m "x" #n "x" #k, .rows = m, .outputs = n, .inputs = k, __VA_ARGS__                       \
    }
#define LINEAR(m, n, k)          LAYER("", m, n, k, .compare = true)
#define LINEAR_BACKWARD(m, n, k) LAYER("backward-", m, n, k, .compare = true, .pass = BENCH_PASS_BACKWARD)
#define LINEAR_FAR(m, n, k)      LAYER("", m, n, k, .compare = false)
#define LINEAR_BF16(m, n, k)     LAYER("bf16-", m, n, k, .dtype = ATTN_BF16)
/* The same weights in other formats: products of f32, or as narrow as the weights. */
#define LINEAR_PAIRS(m, n, k) LAYER("pairs-", m, n, k, .dtype = ATTN_BF16, .narrow_products = true)
#define LINEAR_INT8(m, n, k)  LAYER("int8-", m, n, k, .weights = BENCH_WEIGHTS_INT8, .narrow_products = true)
#define LINEAR_GROUPS(m, n, k)                                                                                         \
    LAYER("int8-64-", m, n, k, .weights = BENCH_WEIGHTS_INT8, .group = 64, .narrow_products = true)
#define LINEAR_INT4(m, n, k)     LAYER("int4-", m, n, k, .weights = BENCH_WEIGHTS_INT4, .narrow_products = true)
#define LINEAR_INT8_F32(m, n, k) LAYER("int8-f32-", m, n, k, .weights = BENCH_WEIGHTS_INT8)
#define LINEAR_INT4_F32(m, n, k) LAYER("int4-f32-", m, n, k, .weights = BENCH_WEIGHTS_INT4)
/* From one row, whose time is that of reading weights, to many. */
#define LINEAR_ROWS_OF(format, n, k)                                                                                   \
    format(1, n, k), format(8, n, k), format(24, n, k), format(128, n, k), format(1300, n, k)

/* More rows than these hide where the weights come from. */
#define FEW_ROWS 64

/* Weights that a linear case with few rows walks through: as a small model's, more than the cache of any core. */
#define WEIGHT_BYTES ((int64_t)24 << 20)

/* Where these come from memory, as a large model's: more than the last level of cache that a core has a share in. */
#define FAR_INPUTS 4096
#define FAR_BYTES  ((int64_t)256 << 20)

const struct bench_case bench_cases[] = {
    SELF("t2048-d128", 1, 8, 2048, 128, NONE, .compare = false),
    SELF("t2048-d32", 1, 8, 2048, 32, NONE, .compare = false),
    SELF("t2048-d256", 1, 8, 2048, 256, NONE, .compare = false),
    SELF("t2048-d80", 1, 8, 2048, 80, NONE, .compare = false),
    SELF("t2048-d96", 1, 8, 2048, 96, NONE, .compare = false),
    SELF("t2048-d128-causal", 1, 8, 2048, 128, TOP_LEFT, .compare = false),
    SELF("t2048-d64-bthd", 1, 8, 2048, 64, NONE, .layout = BENCH_BTHD),
    SELF("t2048-d64-causal-bthd", 1, 8, 2048, 64, TOP_LEFT, .layout = BENCH_BTHD),
    SELF("t2048-d64-mask", 1, 8, 2048, 64, NONE, .bool_mask = true),
    SELF("encoder", 8, 12, 128, 64, NONE, .compare = true),

    SELF("encoder-padded", 8, 12, 128, 64, NONE, .padded = true),
    SELF("t1024-d64-padded", 8, 4, 1024, 64, NONE, .padded = true),
    SELF("t2048-d64-h2", 1, 2, 2048, 64, NONE, .compare = false),
    SELF("t2048-d64-h3", 1, 3, 2048, 64, NONE, .compare = false),
    SELF("t2048-d64-h3-causal", 1, 3, 2048, 64, TOP_LEFT, .compare = false),
    SHAPE("gqa-d64", 1, 8, 2, 2048, 2048, 64, .causal = NONE),
    SHAPE("gqa-d128-causal", 1, 16, 2, 1024, 1024, 128, .causal = TOP_LEFT),
    SHAPE("cross-d64", 1, 8, 8, 512, 4096, 64, .causal = NONE),
    SHAPE("chunk-d128-causal", 1, 8, 8, 512, 2048, 128, .causal = BOTTOM_RIGHT),

    SWEEP("h8", 8, NONE),
    SWEEP("h8-causal", 8, TOP_LEFT),
    SWEEP("h1", 1, NONE),
    SWEEP("h1-causal", 1, TOP_LEFT),

    NARROW("bf16", ATTN_BF16),
    SELF("bf16-t2048-d32", 1, 8, 2048, 32, NONE, .dtype = ATTN_BF16),
    SELF("bf16-t2048-d256", 1, 8, 2048, 256, NONE, .dtype = ATTN_BF16),
    SELF("bf16-t2048-d64-bthd", 1, 8, 2048, 64, NONE, .dtype = ATTN_BF16, .layout = BENCH_BTHD),
    SELF("bf16-t2048-d64-mask", 1, 8, 2048, 64, NONE, .dtype = ATTN_BF16, .bool_mask = true),
    SELF("bf16-t2048-d96", 1, 8, 2048, 96, NONE, .dtype = ATTN_BF16),
    SELF("bf16-t512-d64", 1, 8, 512, 64, NONE, .dtype = ATTN_BF16),
    SELF("bf16-t512-d64-causal", 1, 8, 512, 64, TOP_LEFT, .dtype = ATTN_BF16),
    SELF("bf16-encoder-padded", 8, 12, 128, 64, NONE, .dtype = ATTN_BF16, .padded = true),
    SHAPE("bf16-gqa-d128-causal", 1, 16, 2, 1024, 1024, 128, .dtype = ATTN_BF16, .causal = TOP_LEFT),
    SHAPE("bf16-gqa4-d128-causal", 1, 16, 4, 1024, 1024, 128, .dtype = ATTN_BF16, .causal = TOP_LEFT),
    NARROW("f16", ATTN_F16),
    DECODE("f32", 32, .dtype = ATTN_F32),
    DECODE("bf16", 16, .dtype = ATTN_BF16),
    DECODE("f16", 16, .dtype = ATTN_F16),
    DECODE("int8", 8, .dtype = ATTN_BF16, .kept = ATTN_I8),
    DECODE("e4m3", 8, .dtype = ATTN_BF16, .kept = ATTN_F8_E4M3),
    DECODE("int4", 4, .dtype = ATTN_BF16, .kept = ATTN_I4),
    DECODE_ONE("f32", 32, .dtype = ATTN_F32),
    DECODE_ONE("bf16", 16, .dtype = ATTN_BF16),
    DECODE_ONE("f16", 16, .dtype = ATTN_F16),
    DECODE_ONE("int8", 8, .dtype = ATTN_BF16, .kept = ATTN_I8),
    DECODE_PREFIX("bf16", .dtype = ATTN_BF16),
    LATENT("f32-latent", 16, 4, .dtype = ATTN_F32),
    LATENT("f32-latent-h128", 128, 4, .dtype = ATTN_F32),
    LATENT("bf16-latent", 16, 2, .dtype = ATTN_BF16),
    LATENT("bf16-latent-h128", 128, 2, .dtype = ATTN_BF16),
    LATENT("bf16-latent-pages", 16, 2, .dtype = ATTN_BF16, .page = 64),
    APPEND("f32-append", 4, .dtype = ATTN_F32),
    APPEND("bf16-append", 2, .dtype = ATTN_BF16),
    APPEND("f32-append-bf16", 2, .dtype = ATTN_F32, .kept = ATTN_BF16),
    APPEND("bf16-append-int8", 1, .dtype = ATTN_BF16, .kept = ATTN_I8),
    APPEND("bf16-append-e4m3", 1, .dtype = ATTN_BF16, .kept = ATTN_F8_E4M3),
    SELF("t2048-d128-causal-pages", 1, 8, 2048, 128, TOP_LEFT, .page = 16),
    SHAPE("chunk-d128-causal-pages", 1, 8, 8, 512, 2048, 128, .causal = BOTTOM_RIGHT, .page = 16),
    SELF("bf16-t2048-d128-causal-pages", 1, 8, 2048, 128, TOP_LEFT, .dtype = ATTN_BF16, .page = 16),
    SELF("bf16-t4096-d128", 1, 8, 4096, 128, NONE, .dtype = ATTN_BF16),
    SELF("int8-bf16-t4096-d128", 1, 8, 4096, 128, NONE, .dtype = ATTN_BF16, .qk = ATTN_QK_INT8),
    SELF("int8-bf16-t2048-d64", 1, 8, 2048, 64, NONE, .dtype = ATTN_BF16, .qk = ATTN_QK_INT8),
    SELF("int8-bf16-t2048-d128-causal", 1, 8, 2048, 128, TOP_LEFT, .dtype = ATTN_BF16, .qk = ATTN_QK_INT8),
    SELF("int8-f32-t2048-d128", 1, 8, 2048, 128, NONE, .qk = ATTN_QK_INT8),
    SELF("int8-f32-t2048-d64", 1, 8, 2048, 64, NONE, .qk = ATTN_QK_INT8),

    SELF("form-window", 1, 8, 8192, 64, TOP_LEFT, .form = BENCH_WINDOW),
    SELF("form-window-global", 1, 8, 8192, 64, NONE, .form = BENCH_WINDOW_GLOBAL),
    SELF("dense-t16384", 1, 2, 16384, 64, NONE, .sampled = true),
    SELF("form-blocks-10", 1, 2, 16384, 64, NONE, .form = BENCH_BLOCKS, .size = 64),
    SELF("form-blocks-10-b16", 1, 2, 16384, 64, NONE, .form = BENCH_BLOCKS, .size = 16),
    SELF("form-blocks-10-b128", 1, 2, 16384, 64, NONE, .form = BENCH_BLOCKS, .size = 128),
    SELF("form-segments", 1, 8, 8192, 64, NONE, .form = BENCH_SEGMENTS),
    SELF("form-ragged", 64, 8, 2048, 64, NONE, .form = BENCH_RAGGED),
    SELF("form-dropout", 1, 8, 2048, 64, NONE, .form = BENCH_DROPOUT),
    SELF("form-dropout-causal", 1, 8, 2048, 64, TOP_LEFT, .form = BENCH_DROPOUT),
    SELF("form-alibi", 1, 8, 2048, 64, NONE, .form = BENCH_ALIBI),
    SELF("form-alibi-causal", 1, 8, 2048, 64, TOP_LEFT, .form = BENCH_ALIBI),
    SELF("form-t5", 1, 8, 2048, 64, NONE, .form = BENCH_T5),
    SELF("form-softcap", 1, 8, 2048, 64, NONE, .form = BENCH_SOFTCAP),
    SELF("form-sinks", 1, 8, 2048, 64, NONE, .form = BENCH_SINKS),
    SELF("form-rope", 1, 8, 2048, 64, NONE, .form = BENCH_ROPE),
    SELF("form-callback", 1, 8, 2048, 64, NONE, .form = BENCH_CALLBACK),
    SELF("form-disentangled", 1, 8, 2048, 64, NONE, .form = BENCH_DISENTANGLED),
    SELF("form-prefix", 1, 8, 2048, 64, TOP_LEFT, .form = BENCH_PREFIX),
    SHAPE("form-tree", 1, 8, 8, 64, 2112, 64, .form = BENCH_TREE),
    SELF("bf16-dense-t16384", 1, 2, 16384, 64, NONE, .dtype = ATTN_BF16, .sampled = true),
    SELF("bf16-form-blocks-10", 1, 2, 16384, 64, NONE, .dtype = ATTN_BF16, .form = BENCH_BLOCKS, .size = 64),
    SELF("bf16-form-dropout", 1, 8, 2048, 64, NONE, .dtype = ATTN_BF16, .form = BENCH_DROPOUT),
    SELF("bf16-form-alibi", 1, 8, 2048, 64, NONE, .dtype = ATTN_BF16, .form = BENCH_ALIBI),
    SELF("bf16-form-softcap", 1, 8, 2048, 64, NONE, .dtype = ATTN_BF16, .form = BENCH_SOFTCAP),

    COST("window", NONE, .form = BENCH_WINDOW, .size = 192),
    COST("window-causal", TOP_LEFT, .form = BENCH_WINDOW, .size = 192),
    COST("blocks", NONE, .form = BENCH_BLOCKS, .size = 64, .listed = 3),
    COST("segments", NONE, .form = BENCH_SEGMENTS, .size = 192),
    COST("ragged", NONE, .form = BENCH_RAGGED, .size = 192),
    COST_TREE(16384),
    COST_TREE(65536),
    COST_TREE(262144),
    COST_TREE(1048576),

    RULE_PROMPT("linear", BENCH_LINEAR),
    RULE_PROMPT("gated", BENCH_GATED),
    RULE_PROMPT("gated-rows", BENCH_GATED_ROWS),
    RULE_PROMPT("delta", BENCH_DELTA),
    RULE_PROMPT("gated-delta", BENCH_GATED_DELTA),
    RULE_PROMPT("gated-delta-rows", BENCH_GATED_DELTA_ROWS),
    RULE("gated-delta-bf16-t8192-d128", 1, 8, 8192, 128, BENCH_GATED_DELTA, .causal = TOP_LEFT, .dtype = ATTN_BF16),
    RULE("gated-h1-t8192-d128", 1, 1, 8192, 128, BENCH_GATED, .causal = TOP_LEFT),
    RULE("gated-delta-h1-t8192-d128", 1, 1, 8192, 128, BENCH_GATED_DELTA, .causal = TOP_LEFT),
    RULE("gated-t16384-d128", 1, 2, 16384, 128, BENCH_GATED, .causal = TOP_LEFT),
    SELF("causal-t16384-d128", 1, 2, 16384, 128, TOP_LEFT, .sampled = true),
    RULE_STEPS("linear", BENCH_LINEAR),
    RULE_STEPS("gated", BENCH_GATED),
    RULE_STEPS("delta", BENCH_DELTA),
    RULE_STEPS("gated-delta", BENCH_GATED_DELTA),
    RULE_BACKWARD("linear", BENCH_LINEAR),
    RULE_BACKWARD("gated", BENCH_GATED),
    RULE_BACKWARD("gated-rows", BENCH_GATED_ROWS),
    RULE_COST("linear", BENCH_LINEAR),
    RULE_COST("gated-delta", BENCH_GATED_DELTA),
    PERFORMER("t8192-d64", 8192, 64, NONE),
    PERFORMER("t8192-d64-causal", 8192, 64, TOP_LEFT),
    PERFORMER("t8192-d128", 8192, 128, NONE),
    PERFORMER("t8192-d128-causal", 8192, 128, TOP_LEFT),

    GRADIENTS("", BACKWARD, ATTN_F32),
    BACKWARD("t2048-d96", 1, 8, 2048, 96, NONE, .dtype = ATTN_F32),
    BACKWARD("t2048-d32", 1, 8, 2048, 32, NONE, .dtype = ATTN_F32),
    BACKWARD("encoder", 8, 12, 128, 64, NONE, .dtype = ATTN_F32),
    SHAPE("backward-gqa4-d128-causal", 1, 32, 8, 2048, 2048, 128, .causal = TOP_LEFT, .pass = BENCH_PASS_BACKWARD,
          .sampled = true),
    BACKWARD("h8-t4096", 1, 8, 4096, 64, NONE, .dtype = ATTN_F32),
    BACKWARD("h1-t4096", 1, 1, 4096, 64, NONE, .dtype = ATTN_F32),
    BACKWARD("dense-t16384", 1, 2, 16384, 64, NONE, .dtype = ATTN_F32),
    BACKWARD("blocks-10", 1, 2, 16384, 64, NONE, .form = BENCH_BLOCKS, .size = 64),
    GRADIENTS("bf16-", BACKWARD, ATTN_BF16),
    BACKWARD("bf16-encoder", 8, 12, 128, 64, NONE, .dtype = ATTN_BF16),
    GRADIENTS("", BOTH, ATTN_F32),
    BOTH("encoder", 8, 12, 128, 64, NONE, .dtype = ATTN_F32),
    GRADIENTS("bf16-", BOTH, ATTN_BF16),

    LINEAR(1, 1152, 384),
    LINEAR(8, 1152, 384),
    LINEAR(24, 384, 384),
    LINEAR(24, 1152, 384),
    LINEAR(24, 1536, 384),
    LINEAR(24, 384, 1536),
    LINEAR(24, 2304, 768),
    LINEAR(1300, 1152, 384),
    LINEAR_BACKWARD(1300, 1152, 384),
    LINEAR_BACKWARD(4096, 768, 768),
    LINEAR_BACKWARD(4096, 3072, 2048),
    LINEAR(1300, 1536, 384),
    LINEAR(1300, 384, 1536),
    LINEAR(4096, 2304, 768),
    LINEAR(4096, 768, 768),
    LINEAR(4096, 3072, 2048),
    LINEAR(4096, 2048, 2048),
    LINEAR_BF16(1, 1152, 384),
    LINEAR_BF16(8, 1152, 384),
    LINEAR_BF16(24, 1152, 384),
    LINEAR_BF16(1300, 1152, 384),
    LINEAR_BF16(4096, 2048, 2048),
    LINEAR_ROWS_OF(LINEAR_FAR, 4096, 4096),
    LINEAR_ROWS_OF(LINEAR_BF16, 4096, 4096),
    LINEAR_ROWS_OF(LINEAR_PAIRS, 4096, 4096),
    LINEAR_ROWS_OF(LINEAR_INT8, 4096, 4096),
    LINEAR_ROWS_OF(LINEAR_INT4, 4096, 4096),
    LINEAR_ROWS_OF(LINEAR_INT8_F32, 4096, 4096),
    LINEAR_ROWS_OF(LINEAR_INT4_F32, 4096, 4096),
    LINFORMER("t2048-d64", 2048, 2048, 64),
    LINFORMER("t8192-d64", 8192, 8192, 64),
    LINFORMER("t8192-d128", 8192, 8192, 128),
    ADDITIVE("", ATTN_F32, 64),
    ADDITIVE("", ATTN_F32, 128),
    ADDITIVE("", ATTN_F32, 256),
    ADDITIVE("", ATTN_F32, 512),
    ADDITIVE("bf16-", ATTN_BF16, 256),
    ADDITIVE("f16-", ATTN_F16, 256),
    /* What scales of groups cost, in an encoder's layers. */
    LINEAR_INT8(24, 1536, 384),
    LINEAR_GROUPS(24, 1536, 384),
    LINEAR_INT8(24, 384, 1536),
    LINEAR_GROUPS(24, 384, 1536),
    LINEAR_INT8(1300, 1536, 384),
    LINEAR_GROUPS(1300, 1536, 384),
    LINEAR_INT8(1300, 384, 1536),
    LINEAR_GROUPS(1300, 384, 1536),
};

const int bench_num_cases = (int)(sizeof bench_cases / sizeof *bench_cases);

const struct bench_case *bench_case_find(const char *id)
{
    for (int i = 0; i < bench_num_cases; i++)
        if (strcmp(bench_cases[i].id, id) == 0)
            return &bench_cases[i];
    return NULL;
}

/* A plan of all gradients of a call: the operands and what is written have the case's type. */
static bool backward_plan_of(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                             attn_params *params, char *description, size_t size)
{
    attn_tensor lse = attn_bhtd(NULL, 1, q->shape[1], q->shape[2], 1);
    attn_gradients gradients = attn_gradients_default();
    attn_backward_plan *plan;
    params->lse = &lse;
    gradients.out = out, gradients.q = q, gradients.k = k, gradients.v = v;
    const bool made = attn_backward_plan_create(&plan, q, k, v, out, params, &gradients) == ATTN_OK;
    if (made)
        attn_backward_plan_describe(plan, description, size);
    attn_backward_plan_destroy(plan);
    return made;
}

/*
 * Whether a plan for one sequence of the case can be made, and whose kernels it names: they follow from types, from
 * int8 scores, and from how many queries share keys where sums are free. With gradients it is that of the backward
 * pass, which is most of the work.
 */
static bool plan_of(const struct bench_case *c, const char *isa, char *description, size_t size)
{
    const int64_t dv = bench_case_dv(c);
    attn_tensor q = attn_bhtd(NULL, 1, c->heads, c->tq, c->d), k = attn_bhtd(NULL, 1, c->kv_heads, c->tk, c->d);
    attn_tensor v = attn_bhtd(NULL, 1, c->kv_heads, c->tk, dv), out = attn_bhtd(NULL, 1, c->heads, c->tq, dv);
    attn_tensor scale = attn_bhtd(NULL, 1, 1, c->tk, bench_scales(bench_case_kept(c), c->d));
    attn_params params = attn_params_default();
    attn_plan *plan;
    q.dtype = out.dtype = c->dtype;
    k.dtype = v.dtype = bench_case_kept(c);
    if (bench_quantised(k.dtype))
        params.k_scale = params.v_scale = &scale;
    params.qk = c->qk;
    params.sums = c->free_sums ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED;
    params.isa = isa;
    if (c->pass != BENCH_PASS_FORWARD)
        return backward_plan_of(&q, &k, &v, &out, &params, description, size);
    const bool made = attn_plan_create(&plan, &q, &k, &v, &out, &params) == ATTN_OK;
    if (made)
        attn_plan_describe(plan, description, size);
    attn_plan_destroy(plan);
    return made;
}

bool bench_int8_scores_by(const char *set, const char *isa)
{
    const struct bench_case smallest = {
        .dtype = ATTN_BF16, .qk = ATTN_QK_INT8, .heads = 1, .kv_heads = 1, .tq = 1, .tk = 1, .d = 1};
    char description[512], wanted[64];
    snprintf(wanted, sizeof wanted, "int8 scores (%s)", set);
    return plan_of(&smallest, isa, description, sizeof description) && strstr(description, wanted) != NULL;
}

bool bench_case_supported(const struct bench_case *c, const char *isa)
{
    if (bench_case_linear(c) || c->additive || c->projected > 0)
        return bench_linear_supported(isa);
    if (c->append)
        return bench_append_supported(isa);
    if (c->rule || c->features > 0)
        return true;
    char description[512];
    return plan_of(c, isa, description, sizeof description);
}

const char *bench_case_isa(const struct bench_case *c, const char *isa)
{
    char description[512];
    if (c->dtype != ATTN_BF16 || !bench_case_softmax(c))
        return bench_f32_isa(isa);
    if (!plan_of(c, isa, description, sizeof description))
        return isa;
    for (int i = 0; attn_isa_name(i) != NULL; i++)
        if (bench_plan_names(description, attn_isa_name(i)))
            return attn_isa_name(i);
    return isa;
}

double bench_case_key_bytes(const struct bench_case *c)
{
    const attn_dtype kept = bench_case_kept(c);
    const double scales = (double)bench_scales(kept, c->d) * (double)sizeof(float);
    const double row = (double)attn_row_size(kept, c->d) + scales, tensors = c->values_in_keys > 0 ? 1.0 : 2.0;
    const int64_t tokens = c->append ? c->batch * c->tq : c->common + c->batch * (c->tk - c->common);
    return tensors * row * (double)c->kv_heads * (double)tokens;
}

bool bench_case_reads_keys(const struct bench_case *c)
{
    return bench_case_softmax(c) && c->tq == 1;
}

bool bench_case_updates_states(const struct bench_case *c)
{
    return c->rule && c->tq <= 8;
}

bool bench_case_far(const struct bench_case *c)
{
    return c->inputs == FAR_INPUTS;
}

double bench_case_weight_size(const struct bench_case *c)
{
    return c->weights == BENCH_WEIGHTS_INT4   ? 0.5
           : c->weights == BENCH_WEIGHTS_INT8 ? 1
                                              : (double)attn_dtype_size(c->dtype);
}

int64_t bench_case_matrices(const struct bench_case *c)
{
    const int64_t bytes = (int64_t)((double)(c->outputs * c->inputs) * bench_case_weight_size(c)),
                  far = bench_case_far(c) ? FAR_BYTES : WEIGHT_BYTES, enough = (far + bytes - 1) / bytes;
    return c->rows > FEW_ROWS ? 1 : enough > 2 ? enough : 2;
}
