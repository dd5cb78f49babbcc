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
 * speed in bf16, f16 and with int8 scores is stated on, and calls of one token,
 * which read all keys and values from memory. The fifth holds the forms
 * of attention, and what their time is compared with. The sixth are forms whose
 * queries see 192 keys, or all of them, however long the sequence is: their time
 * per token must not grow with it. The last are linear layers of libattn_nn: a
 * token, a short and a long sentence or batch in the widths of small and base
 * encoders, and two wide ones.
 */
#include "cases.h"
#include "isa_kernels.h"
#include "linear.h"

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

/* A token more for each sequence of a batch, whose keys and values are 512 MiB: 4096 keys of 32 or 8 key heads. */
#define DECODE(type, dtype_, size)                                                                                     \
    SHAPE(type "-decode", 16 / (size), 32, 32, 1, 4096, 128, .dtype = dtype_, .causal = BOTTOM_RIGHT,                  \
          .sampled = true),                                                                                            \
        SHAPE(type "-decode-gqa", 64 / (size), 32, 8, 1, 4096, 128, .dtype = dtype_, .causal = BOTTOM_RIGHT,           \
              .sampled = true),                                                                                        \
        SHAPE(type "-decode-pages", 16 / (size), 32, 32, 1, 4096, 128, .dtype = dtype_, .causal = BOTTOM_RIGHT,        \
              .sampled = true, .page = 16),                                                                            \
        SHAPE(type "-decode-free", 16 / (size), 32, 32, 1, 4096, 128, .dtype = dtype_, .causal = BOTTOM_RIGHT,         \
              .sampled = true, .free_sums = true),                                                                     \
        SHAPE(type "-decode-gqa-free", 64 / (size), 32, 8, 1, 4096, 128, .dtype = dtype_, .causal = BOTTOM_RIGHT,      \
              .sampled = true, .free_sums = true),                                                                     \
        SHAPE(type "-decode-pages-free", 16 / (size), 32, 32, 1, 4096, 128, .dtype = dtype_, .causal = BOTTOM_RIGHT,   \
              .sampled = true, .page = 16, .free_sums = true)

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
#define LINEAR(m, n, k)      LAYER("", m, n, k, .compare = true)
#define LINEAR_FAR(m, n, k)  LAYER("", m, n, k, .compare = false)
#define LINEAR_BF16(m, n, k) LAYER("bf16-", m, n, k, .dtype = ATTN_BF16)
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
    DECODE("f32", ATTN_F32, 4),
    DECODE("bf16", ATTN_BF16, 2),
    DECODE("f16", ATTN_F16, 2),
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

    LINEAR(1, 1152, 384),
    LINEAR(8, 1152, 384),
    LINEAR(24, 384, 384),
    LINEAR(24, 1152, 384),
    LINEAR(24, 1536, 384),
    LINEAR(24, 384, 1536),
    LINEAR(24, 2304, 768),
    LINEAR(1300, 1152, 384),
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

/* Whether a plan for the smallest problem of the case's types can be made, and whose kernels it names. */
static bool plan_of(const struct bench_case *c, const char *isa, char *description, size_t size)
{
    attn_tensor t = attn_bhtd(NULL, 1, 1, 1, 1);
    attn_params params = attn_params_default();
    attn_plan *plan;
    t.dtype = c->dtype;
    params.qk = c->qk;
    params.isa = isa;
    const bool made = attn_plan_create(&plan, &t, &t, &t, &t, &params) == ATTN_OK;
    if (made)
        attn_plan_describe(plan, description, size);
    attn_plan_destroy(plan);
    return made;
}

bool bench_plan_names(const char *description, const char *isa)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, ": %s kernel,", isa);
    return strstr(description, wanted) != NULL;
}

bool bench_int8_scores_by(const char *set, const char *isa)
{
    const struct bench_case smallest = {.dtype = ATTN_BF16, .qk = ATTN_QK_INT8};
    char description[512], wanted[64];
    snprintf(wanted, sizeof wanted, "int8 scores (%s)", set);
    return plan_of(&smallest, isa, description, sizeof description) && strstr(description, wanted) != NULL;
}

bool bench_case_supported(const struct bench_case *c, const char *isa)
{
    if (bench_case_linear(c))
        return bench_linear_supported(isa);
    char description[512];
    return plan_of(c, isa, description, sizeof description);
}

double bench_case_key_bytes(const struct bench_case *c)
{
    return 2.0 * (double)(c->batch * c->kv_heads * c->tk * c->d) * (double)attn_dtype_size(c->dtype);
}

bool bench_case_keys_far(const struct bench_case *c)
{
    return c->rows == 0 && c->tq == 1 && bench_case_key_bytes(c) >= (double)FAR_BYTES;
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

const char *bench_case_isa(const struct bench_case *c, const char *isa)
{
    char description[512];
    const bool widened =
        c->dtype != ATTN_BF16 || bench_case_linear(c) ||
        (plan_of(c, isa, description, sizeof description) && bench_plan_names(description, bench_f32_isa(isa)));
    return widened ? bench_f32_isa(isa) : isa;
}

static const char *form_name(enum bench_form form)
{
    static const char *const names[] = {
        [BENCH_PLAIN] = "",
        [BENCH_WINDOW] = "window",
        [BENCH_WINDOW_GLOBAL] = "window-global",
        [BENCH_BLOCKS] = "blocks",
        [BENCH_SEGMENTS] = "segments",
        [BENCH_TREE] = "tree",
        [BENCH_PREFIX] = "prefix",
        [BENCH_ALIBI] = "alibi",
        [BENCH_T5] = "t5",
        [BENCH_DISENTANGLED] = "disentangled",
        [BENCH_ROPE] = "rope",
        [BENCH_SOFTCAP] = "softcap",
        [BENCH_SINKS] = "sinks",
        [BENCH_RAGGED] = "ragged",
        [BENCH_DROPOUT] = "dropout",
        [BENCH_CALLBACK] = "callback",
    };
    return names[form];
}

static const char *causal_name(attn_causal causal)
{
    switch (causal) {
    case ATTN_CAUSAL_NONE:
        return "none";
    case ATTN_CAUSAL_TOP_LEFT:
        return "top-left";
    case ATTN_CAUSAL_BOTTOM_RIGHT:
        return "bottom-right";
    case ATTN_CAUSAL_OFFSET:
        return "offset";
    }
    return "unknown";
}

static void write_name(const struct bench_case *c, const char *kind, char name[BENCH_NAME_SIZE])
{
    char kv_heads[32] = "", page[32] = "", size[32] = "", listed[32] = "";
    if (c->kv_heads != c->heads)
        snprintf(kv_heads, sizeof kv_heads, "/kv_heads:%lld", (long long)c->kv_heads);
    if (c->page > 0)
        snprintf(page, sizeof page, "/page:%lld", (long long)c->page);
    if (c->size > 0)
        snprintf(size, sizeof size, "/%s:%lld", c->form == BENCH_BLOCKS ? "block" : "size", (long long)c->size);
    if (c->listed > 0)
        snprintf(listed, sizeof listed, "/listed:%lld", (long long)c->listed);
    snprintf(name, BENCH_NAME_SIZE, "%s/%s/B%lld/H%lld/Tq%lld/Tk%lld/d%lld/causal:%s/layout:%s%s%s%s%s%s%s%s%s%s%s%s",
             kind, attn_dtype_name(c->dtype), (long long)c->batch, (long long)c->heads, (long long)c->tq,
             (long long)c->tk, (long long)c->d, causal_name(c->causal), c->layout == BENCH_BTHD ? "bthd" : "bhtd",
             kv_heads, page, c->free_sums ? "/sums:free" : "", c->bool_mask ? "/mask:bool" : "",
             c->padded ? "/padded" : "", c->qk == ATTN_QK_INT8 ? "/qk:int8" : "",
             c->form != BENCH_PLAIN ? "/form:" : "", form_name(c->form), size, listed, c->cost != NULL ? "/cost" : "");
}

static void write_linear_name(const struct bench_case *c, const char *kind, char name[BENCH_NAME_SIZE])
{
    static const char *const integers[] = {[BENCH_WEIGHTS_INT8] = "int8", [BENCH_WEIGHTS_INT4] = "int4"};
    const char *const weights = c->weights ? integers[c->weights] : attn_dtype_name(c->dtype);
    const char *const products = !c->narrow_products ? "" : c->weights ? "/multiply:int8" : "/multiply:bf16";
    char group[32] = "", matrices[32] = "";
    if (c->group > 0)
        snprintf(group, sizeof group, "/group:%lld", (long long)c->group);
    if (bench_case_matrices(c) > 1)
        snprintf(matrices, sizeof matrices, "/matrices:%lld", (long long)bench_case_matrices(c));
    snprintf(name, BENCH_NAME_SIZE, "%s/%s/M%lld/N%lld/K%lld%s%s%s", kind, weights, (long long)c->rows,
             (long long)c->outputs, (long long)c->inputs, products, group, matrices);
}

void bench_forward_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    if (bench_case_linear(c))
        write_linear_name(c, "linear", name);
    else
        write_name(c, "forward", name);
}

void bench_naive_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    if (bench_case_linear(c))
        write_linear_name(c, "sgemm", name);
    else
        write_name(c, "naive", name);
}
