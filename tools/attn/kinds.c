/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of the kinds of attention, and which option of `run` has a meaning
 * with which kind. What is not in the table of these belongs to the softmax
 * alone, so that an option which is new is refused by the others, not ignored.
 */
#include "kinds.h"

#include <stdlib.h>
#include <string.h>

const char *const kind_names[KIND_COUNT] = {"softmax", "additive",    "linear",    "gated",
                                            "delta",   "gated-delta", "performer", "linformer"};

const struct option kind_options[KIND_OPTIONS] = {
    [OPTION_KIND] = {"kind", 0, "NAME",
                     "softmax (default), additive, linear, gated, delta,\n"
                     "gated-delta, performer or linformer",
                     NULL},
    [OPTION_WQ] = {"wq", 0, "FILE",
                   "additive: scores v tanh(Wq q + Wk k + b), one head;\n"
                   "inner channel, channel of q",
                   NULL},
    [OPTION_WK] = {"wk", 0, "FILE", "the same of the keys: inner channel, channel of k", NULL},
    [OPTION_SCORE_V] = {"score-v", 0, "FILE", "v of these scores: inner channel", NULL},
    [OPTION_SCORE_BIAS] = {"score-bias", 0, "FILE", "b of these scores; default 0", NULL},
    [OPTION_DECAY] = {"decay", 0, "FILE",
                      "gated, gated-delta, performer: logarithm, up to 0, of what\n"
                      "the state is multiplied by; in the layout of v, with 1 or\n"
                      "dk channels; axes of length 1 repeat",
                      NULL},
    [OPTION_BETA] = {"beta", 0, "FILE",
                     "delta, gated-delta: how much of its error a token\n"
                     "corrects; in the layout of v, with 1 channel",
                     NULL},
    [OPTION_STATE_IN] = {"state-in", 0, "FILE",
                         "the state before the first token; default 0. float32:\n"
                         "sequence, head, row, column",
                         NULL},
    [OPTION_STATE_OUT] = {"state-out", 0, "FILE", "also write the state after the last token", NULL},
    [OPTION_RESETS] = {"resets", 0, "FILE",
                       "bool, in the layout of v, with 1 channel: tokens before\n"
                       "which the state is cleared",
                       NULL},
    [OPTION_FEATURE_MAP] = {"feature-map", 0, "NAME",
                            "of q and k, of kinds with a state but performer: none\n"
                            "(default) or elu, elu(x) + 1",
                            NULL},
    [OPTION_NORMALISE] = {"normalise", 0, NULL, "linear, gated: divide by the sum of what is read", NULL},
    [OPTION_BIDIRECTIONAL] = {"bidirectional", 0, NULL, "linear: tokens read all others, not those before alone", NULL},
    [OPTION_FEATURES] = {"features", 0, "N",
                         "performer: how many random features, the same for all\n"
                         "heads, stand in for the softmax; see --seed and --causal",
                         NULL},
    [OPTION_PROJECTION] = {"projection", 0, "FILE",
                           "performer: random rows to use instead of drawing them;\n"
                           "float32: feature, channel of q, or head, feature, channel",
                           NULL},
    [OPTION_PROJECT_K] = {"project-k", 0, "FILE",
                          "linformer: what makes few keys of many; row, token, or\n"
                          "head of k, row, token",
                          NULL},
    [OPTION_PROJECT_V] = {"project-v", 0, "FILE", "the same of the values; default: that of --project-k", NULL},
};

void kinds_print_help(FILE *to, const struct option *options)
{
    fprintf(to, "\nKinds of attention:\n");
    options_print(to, options, KIND_OPTIONS);
}

/* ------------------------------------------------- what fits which kind -- */

enum {
    SOFTMAX = 1 << KIND_SOFTMAX,
    ADDITIVE = 1 << KIND_ADDITIVE,
    LINEAR = 1 << KIND_LINEAR,
    GATED = 1 << KIND_GATED,
    DELTA = 1 << KIND_DELTA,
    GATED_DELTA = 1 << KIND_GATED_DELTA,
    PERFORMER = 1 << KIND_PERFORMER,
    LINFORMER = 1 << KIND_LINFORMER,
    RULES = LINEAR | GATED | DELTA | GATED_DELTA,
    ALL = (1 << KIND_COUNT) - 1
};

static const struct {
    const char *name;
    int kinds;
} fits[] = {
    {"help", ALL},
    {"version", ALL},
    {"quiet", ALL},
    {"query", ALL},
    {"key", ALL},
    {"value", ALL},
    {"output", ALL},
    {"kind", ALL},
    {"layout", ALL},
    {"kv-len", ALL},
    {"threads", ALL},
    {"out-dtype", ALL},
    {"isa", ALL & ~ADDITIVE},
    {"scale", ALL & ~ADDITIVE},
    {"cu-seqlens", ALL & ~LINFORMER},
    {"causal", SOFTMAX | ADDITIVE | PERFORMER},
    {"seed", SOFTMAX | LINFORMER | PERFORMER},
    {"offset", SOFTMAX | LINFORMER | PERFORMER},
    {"temperature", SOFTMAX | ADDITIVE | LINFORMER},
    {"lse", SOFTMAX | ADDITIVE | LINFORMER},
    {"weights", SOFTMAX | ADDITIVE | LINFORMER},
    {"scores", SOFTMAX | LINFORMER},
    {"key-sums", SOFTMAX | LINFORMER},
    {"weight-rows", SOFTMAX | LINFORMER},
    {"average-heads", SOFTMAX | ADDITIVE | LINFORMER},
    {"score-stage", SOFTMAX | LINFORMER},
    {"qk", SOFTMAX | LINFORMER},
    {"inputs", SOFTMAX | LINFORMER},
    {"sums", SOFTMAX | LINFORMER},
    {"softcap", SOFTMAX | LINFORMER},
    {"head-scale", SOFTMAX | LINFORMER},
    {"sinks", SOFTMAX | LINFORMER},
    {"dropout", SOFTMAX | LINFORMER},
    {"mask", SOFTMAX | ADDITIVE},
    {"kv-start", SOFTMAX | ADDITIVE},
    {"query-offset", SOFTMAX | ADDITIVE},
    {"window", SOFTMAX | ADDITIVE},
    {"first-tokens", SOFTMAX | ADDITIVE},
    {"global", SOFTMAX | ADDITIVE},
    {"prefix", SOFTMAX | ADDITIVE},
    {"segments", SOFTMAX | ADDITIVE},
    {"segments-k", SOFTMAX | ADDITIVE},
    {"tree", SOFTMAX | ADDITIVE},
    {"cu-seqlens-k", SOFTMAX | ADDITIVE},
    {"block-pattern", SOFTMAX | ADDITIVE},
    {"block", SOFTMAX | ADDITIVE},
    {"block-window", SOFTMAX | ADDITIVE},
    {"block-global", SOFTMAX | ADDITIVE},
    {"block-random", SOFTMAX | ADDITIVE},
    {"block-seed", SOFTMAX | ADDITIVE},
    {"block-stride", SOFTMAX | ADDITIVE},
    {"block-heads", SOFTMAX | ADDITIVE},
    {"block-offsets", SOFTMAX | ADDITIVE},
    {"block-columns", SOFTMAX | ADDITIVE},
    {"wq", ADDITIVE},
    {"wk", ADDITIVE},
    {"score-v", ADDITIVE},
    {"score-bias", ADDITIVE},
    {"decay", GATED | GATED_DELTA | PERFORMER},
    {"beta", DELTA | GATED_DELTA},
    {"state-in", RULES | PERFORMER},
    {"state-out", RULES | PERFORMER},
    {"resets", RULES | PERFORMER},
    {"feature-map", RULES},
    {"normalise", LINEAR | GATED},
    {"bidirectional", LINEAR},
    {"features", PERFORMER},
    {"projection", PERFORMER},
    {"project-k", LINFORMER},
    {"project-v", LINFORMER},
};

/* Why an option has no meaning, where one may expect that it does. */
static const struct {
    const char *name;
    int kinds;
    const char *why;
} reasons[] = {
    {"causal", LINEAR, ", which is causal but for --bidirectional"},
    {"causal", GATED | DELTA | GATED_DELTA, ", which is always causal"},
    {"bidirectional", PERFORMER, ", which is so without --causal"},
    {"normalise", PERFORMER, ", which always divides"},
};

static const struct {
    enum kind kind;
    enum kind_option option;
} needed[] = {
    {KIND_ADDITIVE, OPTION_WQ},      {KIND_ADDITIVE, OPTION_WK},         {KIND_ADDITIVE, OPTION_SCORE_V},
    {KIND_GATED, OPTION_DECAY},      {KIND_DELTA, OPTION_BETA},          {KIND_GATED_DELTA, OPTION_DECAY},
    {KIND_GATED_DELTA, OPTION_BETA}, {KIND_LINFORMER, OPTION_PROJECT_K},
};

static int kinds_of(const char *name)
{
    for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++) {
        if (strcmp(fits[i].name, name) == 0)
            return fits[i].kinds;
    }
    return SOFTMAX;
}

/* "softmax, additive or performer" */
static void list_kinds(int kinds, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        int later = kinds >> (kind + 1);
        if ((kinds & 1 << kind) == 0 || used >= size)
            continue;
        const char *before = used == 0 ? "" : later != 0 ? ", " : " or ";
        used += (size_t)snprintf(text + used, size - used, "%s%s", before, kind_names[kind]);
    }
}

static attn_status check_fit(const struct kinds *k, const struct option *option)
{
    int kinds = kinds_of(option->name), kind = 1 << k->kind;
    const char *why = "";
    char expected[128];
    if (option->value == NULL || (kinds & kind) != 0)
        return ATTN_OK;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (strcmp(reasons[i].name, option->name) == 0 && (reasons[i].kinds & kind) != 0)
            why = reasons[i].why;
    }
    list_kinds(kinds, expected, sizeof expected);
    return io_fail(ATTN_INVALID_ARGUMENT, "option --%s has no meaning with --kind %s%s; expected --kind %s",
                   option->name, kind_names[k->kind], why, expected);
}

/* ------------------------------------------------------------- parsing -- */

static const char *value_of(const struct option *table, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0)
            return table[i].value;
    }
    return NULL;
}

/* Options that have a meaning with the kind, but not with these others. */
static attn_status check_pairs(const struct kinds *k, const struct option *table, int count)
{
    const char *causal = value_of(table, count, "causal");
    const char *kv_len = value_of(table, count, "kv-len");
    const struct option *o = k->options;
    if ((1 << k->kind & (RULES | PERFORMER)) != 0 && kv_len != NULL && value_of(table, count, "cu-seqlens") != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--kv-len and --cu-seqlens both say where sequences end with --kind %s; expected one of the two",
                       kind_names[k->kind]);
    if (o[OPTION_NORMALISE].value != NULL && value_of(table, count, "scale") != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "option --scale has no effect with --normalise, which divides by it");
    if (k->kind != KIND_PERFORMER)
        return ATTN_OK;
    if (o[OPTION_FEATURES].value == NULL && o[OPTION_PROJECTION].value == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "option --features N is missing; --kind performer needs it, or --projection");
    if (o[OPTION_FEATURES].value != NULL && o[OPTION_PROJECTION].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--features draws what --projection gives; expected one of the two with --kind performer");
    if (o[OPTION_PROJECTION].value != NULL &&
        (value_of(table, count, "seed") != NULL || value_of(table, count, "offset") != NULL))
        return io_fail(ATTN_INVALID_ARGUMENT, "option --%s has no effect with --projection, as nothing is drawn",
                       value_of(table, count, "seed") != NULL ? "seed" : "offset");
    bool after = causal == NULL || strcmp(causal, "none") == 0;
    if (after && o[OPTION_DECAY].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "option --decay has no effect with --kind performer without --causal; expected --causal "
                       "top-left beside it");
    if (!after && strcmp(causal, "offset") == 0)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--causal is 'offset'; expected none, top-left or bottom-right with --kind performer");
    if (!after && strcmp(causal, "bottom-right") == 0 && kv_len != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--causal bottom-right would move queries by --kv-len, which --kind performer cannot; expected "
                       "--causal top-left");
    return ATTN_OK;
}

attn_status kinds_parse(struct kinds *k, const struct option *table, int count, const struct option *own)
{
    static const char *const maps[] = {"none", "elu"};
    int kind = KIND_SOFTMAX, map = 0;
    long long features = 0;
    *k = (struct kinds){.options = own};
    CHECK(option_choice(&own[OPTION_KIND], kind_names, KIND_COUNT, &kind));
    k->kind = (enum kind)kind;
    CHECK(kinds_built(k->kind));
    for (int i = 0; i < count; i++)
        CHECK(check_fit(k, &table[i]));
    CHECK(option_choice(&own[OPTION_FEATURE_MAP], maps, 2, &map));
    CHECK(option_integer(&own[OPTION_FEATURES], 1, 4096, &features));
    k->map = k->kind == KIND_PERFORMER ? ATTN_FEATURES_POSITIVE : map == 1 ? ATTN_FEATURES_ELU : ATTN_FEATURES_NONE;
    k->features = features;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        const struct option *o = &own[needed[i].option];
        if (needed[i].kind == k->kind && o->value == NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "option --%s %s is missing; --kind %s needs it", o->name, o->argument,
                           kind_names[k->kind]);
    }
    return check_pairs(k, table, count);
}
