/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a row says everything that its case is: what differs has another name.
 */
#include "cases.h"

#include <stdio.h>

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

static const char *pass_name(enum bench_pass pass)
{
    static const char *const names[] = {
        [BENCH_PASS_FORWARD] = "forward", [BENCH_PASS_BACKWARD] = "backward", [BENCH_PASS_BOTH] = "forward-backward"};
    return names[pass];
}

static void write_name(const struct bench_case *c, const char *kind, char name[BENCH_NAME_SIZE])
{
    char kv_heads[32] = "", kept[32] = "", inside[32] = "", page[32] = "", common[32] = "", size[32] = "",
         listed[32] = "";
    if (c->kv_heads != c->heads)
        snprintf(kv_heads, sizeof kv_heads, "/kv_heads:%lld", (long long)c->kv_heads);
    if (bench_case_kept(c) != c->dtype)
        snprintf(kept, sizeof kept, "/kv:%s", attn_dtype_name(bench_case_kept(c)));
    if (c->values_in_keys > 0)
        snprintf(inside, sizeof inside, "/v_in_k:%lld", (long long)c->values_in_keys);
    if (c->page > 0)
        snprintf(page, sizeof page, "/page:%lld", (long long)c->page);
    if (c->common > 0)
        snprintf(common, sizeof common, "/common:%lld", (long long)c->common);
    if (c->size > 0)
        snprintf(size, sizeof size, "/%s:%lld", c->form == BENCH_BLOCKS ? "block" : "size", (long long)c->size);
    if (c->listed > 0)
        snprintf(listed, sizeof listed, "/listed:%lld", (long long)c->listed);
    snprintf(name, BENCH_NAME_SIZE,
             "%s/%s/B%lld/H%lld/Tq%lld/Tk%lld/d%lld/causal:%s/layout:%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s", kind,
             attn_dtype_name(c->dtype), (long long)c->batch, (long long)c->heads, (long long)c->tq, (long long)c->tk,
             (long long)c->d, causal_name(c->causal), c->layout == BENCH_BTHD ? "bthd" : "bhtd", kv_heads, kept, inside,
             page, common, c->free_sums ? "/sums:free" : "", c->bool_mask ? "/mask:bool" : "",
             c->padded ? "/padded" : "", c->qk == ATTN_QK_INT8 ? "/qk:int8" : "",
             c->form != BENCH_PLAIN ? "/form:" : "", form_name(c->form), size, listed, c->cost != NULL ? "/cost" : "");
}

/* New tokens of a batch go to pages that have tk tokens of each sequence. */
static void write_append_name(const struct bench_case *c, const char *kind, char name[BENCH_NAME_SIZE])
{
    char kept[32] = "";
    if (bench_case_kept(c) != c->dtype)
        snprintf(kept, sizeof kept, "/kv:%s", attn_dtype_name(bench_case_kept(c)));
    snprintf(name, BENCH_NAME_SIZE, "%s/%s/B%lld/H%lld/T%lld/Tk%lld/d%lld%s/page:%lld", kind, attn_dtype_name(c->dtype),
             (long long)c->batch, (long long)c->kv_heads, (long long)c->tq, (long long)c->tk, (long long)c->d, kept,
             (long long)c->page);
}

static void write_performer_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    snprintf(name, BENCH_NAME_SIZE, "performer/%s/B%lld/H%lld/T%lld/d%lld/causal:%s/features:%lld",
             attn_dtype_name(c->dtype), (long long)c->batch, (long long)c->heads, (long long)c->tq, (long long)c->d,
             causal_name(c->causal), (long long)c->features);
}

static void write_linformer_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    snprintf(name, BENCH_NAME_SIZE, "linformer/%s/B%lld/H%lld/Tq%lld/Tk%lld/d%lld/projected:%lld",
             attn_dtype_name(c->dtype), (long long)c->batch, (long long)c->heads, (long long)c->tq, (long long)c->tk,
             (long long)c->d, (long long)c->projected);
}

static void write_additive_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    snprintf(name, BENCH_NAME_SIZE, "additive/%s/B%lld/Tq%lld/Tk%lld/d%lld", attn_dtype_name(c->dtype),
             (long long)c->batch, (long long)c->tq, (long long)c->tk, (long long)c->d);
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

static void write_rule_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    static const char *const rules[] = {[BENCH_LINEAR] = "linear",
                                        [BENCH_GATED] = "gated",
                                        [BENCH_GATED_ROWS] = "gated-by-channel",
                                        [BENCH_DELTA] = "delta",
                                        [BENCH_GATED_DELTA] = "gated-delta",
                                        [BENCH_GATED_DELTA_ROWS] = "gated-delta-by-channel"};
    snprintf(name, BENCH_NAME_SIZE, "linear-attention%s/%s/B%lld/H%lld/T%lld/d%lld/rule:%s%s",
             c->pass == BENCH_PASS_FORWARD ? "" : "-backward", attn_dtype_name(c->dtype), (long long)c->batch,
             (long long)c->heads, (long long)c->tq, (long long)c->d, rules[c->rule], c->cost != NULL ? "/cost" : "");
}

void bench_forward_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    if (bench_case_linear(c))
        write_linear_name(c, c->pass == BENCH_PASS_FORWARD ? "linear" : "linear-backward", name);
    else if (c->rule)
        write_rule_name(c, name);
    else if (c->features > 0)
        write_performer_name(c, name);
    else if (c->projected > 0)
        write_linformer_name(c, name);
    else if (c->additive)
        write_additive_name(c, name);
    else if (c->append)
        write_append_name(c, "append", name);
    else
        write_name(c, pass_name(c->pass), name);
}

void bench_naive_name(const struct bench_case *c, char name[BENCH_NAME_SIZE])
{
    if (bench_case_linear(c))
        write_linear_name(c, c->pass == BENCH_PASS_FORWARD ? "sgemm" : "sgemm-backward", name);
    else
        write_name(c, "naive", name);
}
