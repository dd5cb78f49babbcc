/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn run: reads q, k, v and whatever else is named, makes the one call of the
 * library that --kind is, writes the outputs. The names of the outputs are
 * checked before the first input is read, and no output is touched before
 * everything has been computed. Only what is asked for is allocated: the T x T
 * weights exist with --weights alone, scores with --scores.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "inputs.h"
#include "io/output.h"
#include "kinds.h"
#include "wording.h"

enum {
    RUN_V = INPUT_COUNT,
    RUN_OUT,
    RUN_LSE,
    RUN_WEIGHTS,
    RUN_SCORES,
    RUN_SCORE_STAGE,
    RUN_OUT_DTYPE,
    RUN_DROPOUT,
    RUN_SEED,
    RUN_OFFSET,
    RUN_KINDS,
    RUN_COUNT = RUN_KINDS + KIND_OPTIONS
};

/* The first four are in the order of their options. */
enum { RESULT_OUT, RESULT_LSE, RESULT_WEIGHTS, RESULT_SCORES, RESULT_STATE, RESULTS };

static void print_help(const struct option *options)
{
    printf("Usage: attn run -q FILE -k FILE -v FILE -o FILE [OPTION]...\n\n"
           "Computes softmax(scale q k' + mask) v, one of its forms, or another kind of attention.\n\n");
    inputs_print_general(stdout, options);
    options_print(stdout, options + RUN_V, RUN_DROPOUT - RUN_V);
    kinds_print_help(stdout, options + RUN_KINDS);
    inputs_print_forms(stdout, options);
    printf("\nDropout, and random features:\n");
    options_print(stdout, options + RUN_DROPOUT, RUN_KINDS - RUN_DROPOUT);
    printf("\n"
           "  FILE is FILE.npy or FILE.safetensors:NAME; only the latter can hold bfloat16.\n"
           "  Outputs in the same .safetensors file are written together, and the new file\n"
           "  replaces an existing one as a whole. If anything fails, no output file is\n"
           "  touched.\n");
}

static attn_status declare_outputs(struct output_set *outputs, const struct option *options,
                                   const struct array results[RESULTS])
{
    static const struct {
        int option;
        const char *label;
    } reads[] = {{INPUT_Q, "-q"},
                 {INPUT_K, "-k"},
                 {RUN_V, "-v"},
                 {INPUT_MASK, "--mask"},
                 {INPUT_KV_LEN, "--kv-len"},
                 {INPUT_KV_START, "--kv-start"},
                 {INPUT_FORMS + FORM_BIAS, "--relative-bias"},
                 {INPUT_FORMS + FORM_REL_K, "--rel-k"},
                 {INPUT_FORMS + FORM_REL_Q, "--rel-q"},
                 {INPUT_FORMS + FORM_SEGMENTS, "--segments"},
                 {INPUT_FORMS + FORM_SEGMENTS_K, "--segments-k"},
                 {INPUT_FORMS + FORM_TREE, "--tree"}};
    static const char *const labels[] = {"-o", "--lse", "--weights", "--scores"};
    const struct option *own = options + RUN_KINDS;
    for (int i = 0; i < 4; i++) {
        const char *spec = options[RUN_OUT + i].value;
        if (spec != NULL)
            CHECK(output_add(outputs, labels[i], spec, &results[i]));
    }
    if (own[OPTION_STATE_OUT].value != NULL)
        CHECK(output_add(outputs, "--state-out", own[OPTION_STATE_OUT].value, &results[RESULT_STATE]));
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        const char *spec = options[reads[i].option].value;
        if (spec != NULL)
            CHECK(output_spare_input(outputs, reads[i].label, spec));
    }
    for (int i = 0; i < KIND_OPTIONS; i++) {
        char label[64];
        if (kinds_reads((enum kind_option)i) && own[i].value != NULL)
            CHECK(output_spare_input(outputs, option_label(&own[i], label), own[i].value));
    }
    return ATTN_OK;
}

/* LSE (batch, head, query) and weights (batch, head, query, key), without the leading dimensions that q lacks. */
static struct array_shape statistic_shape(int rank, const int64_t full[4], int last)
{
    struct array_shape is = {.dtype = ARRAY_F32, .ndim = rank - 4 + last};
    memcpy(is.shape, full + 4 - rank, (size_t)is.ndim * sizeof is.shape[0]);
    return is;
}

/* The element type that --out-dtype names; leaves *dtype alone without it. */
static attn_status parse_out_dtype(const struct option *option, enum array_dtype *dtype)
{
    static const char *const names[] = {"f32", "bf16", "f16"};
    static const enum array_dtype dtypes[] = {ARRAY_F32, ARRAY_BF16, ARRAY_F16};
    int chosen = 0;
    CHECK(option_choice(option, names, 3, &chosen));
    if (option->value != NULL)
        *dtype = dtypes[chosen];
    return ATTN_OK;
}

/* Sets params->score_stage. */
static attn_status parse_score_stage(const struct option *options, attn_params *params)
{
    static const char *const names[] = {"raw", "scaled", "capped", "masked"};
    int chosen = 0;
    CHECK(option_choice(&options[RUN_SCORE_STAGE], names, 4, &chosen));
    if (options[RUN_SCORE_STAGE].value != NULL && options[RUN_SCORES].value == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "option --score-stage has no effect without --scores");
    params->score_stage = (attn_score_stage)chosen;
    return ATTN_OK;
}

/* Sets params->dropout to *dropout if there is any; seed and offset are those of a Performer, too. */
static attn_status parse_dropout(const struct option *options, enum kind kind, attn_dropout *dropout,
                                 attn_params *params)
{
    double p = 0;
    long long seed = 0, offset = 0;
    CHECK(option_double(&options[RUN_DROPOUT], 0, 1, &p));
    CHECK(option_integer(&options[RUN_SEED], 0, INT64_MAX, &seed));
    CHECK(option_integer(&options[RUN_OFFSET], 0, INT64_MAX, &offset));
    for (int i = RUN_SEED; i <= RUN_OFFSET; i++) {
        if (options[i].value != NULL && options[RUN_DROPOUT].value == NULL && kind != KIND_PERFORMER)
            return io_fail(ATTN_INVALID_ARGUMENT, "option --%s has no effect without --dropout", options[i].name);
    }
    *dropout = (attn_dropout){(float)p, (uint64_t)seed, (uint64_t)offset};
    if (options[RUN_DROPOUT].value != NULL)
        params->dropout = dropout;
    return ATTN_OK;
}

/* Allocates the results that are asked for, and sets what views of them the library takes. */
static attn_status allocate(const struct inputs *in, const struct kinds *kinds, enum array_dtype out_dtype,
                            struct array results[RESULTS], attn_tensor views[RESULTS])
{
    const struct option *options = in->options;
    const int64_t b = in->q_view.shape[0], h = in->q_view.shape[1], tq = in->q_view.shape[2];
    const int64_t tk = kinds_keys(kinds, in), square[4] = {b, h, tq, tk};
    const int64_t out_shape[4] = {b, kinds_heads(kinds, in), tq, in->v_view.shape[3]};
    struct array_shape is = inputs_shape(out_dtype, in->rank, in->bthd, out_shape);
    CHECK(array_allocate(&results[RESULT_OUT], "the output", &is));
    views[RESULT_OUT] = inputs_view(&results[RESULT_OUT], in->bthd);
    if (options[RUN_LSE].value != NULL) {
        is = statistic_shape(in->rank, square, 3);
        CHECK(array_allocate(&results[RESULT_LSE], "the log-sum-exp", &is));
        views[RESULT_LSE] = attn_bhtd(results[RESULT_LSE].data, b, h, tq, 1);
    }
    if (options[RUN_WEIGHTS].value != NULL) {
        is = statistic_shape(in->rank, square, 4);
        CHECK(array_allocate(&results[RESULT_WEIGHTS], "the weights", &is));
        views[RESULT_WEIGHTS] = attn_bhtd(results[RESULT_WEIGHTS].data, b, h, tq, tk);
    }
    if (options[RUN_SCORES].value != NULL) {
        is = statistic_shape(in->rank, square, 4);
        CHECK(array_allocate(&results[RESULT_SCORES], "the scores", &is));
        views[RESULT_SCORES] = attn_bhtd(results[RESULT_SCORES].data, b, h, tq, tk);
    }
    if (options[RUN_KINDS + OPTION_STATE_OUT].value != NULL) {
        int64_t state[4];
        kinds_state(kinds, in, state);
        is = statistic_shape(in->params.ragged != NULL ? 4 : in->rank, state, 4);
        CHECK(array_allocate(&results[RESULT_STATE], "the state", &is));
        views[RESULT_STATE] = inputs_view(&results[RESULT_STATE], false);
    }
    return ATTN_OK;
}

static attn_status compute(struct inputs *in, const struct kinds *kinds, const attn_dropout *draw,
                           enum array_dtype out_dtype, struct array results[RESULTS])
{
    attn_tensor views[RESULTS] = {{.data = NULL}};
    CHECK(forms_whole_tree(&in->forms, &in->q_view, &in->k_view, &in->params));
    CHECK(allocate(in, kinds, out_dtype, results, views));
    const attn_tensor *out = &views[RESULT_OUT];
    attn_params params = in->params;
    params.lse = views[RESULT_LSE].data != NULL ? &views[RESULT_LSE] : NULL;
    params.weights = views[RESULT_WEIGHTS].data != NULL ? &views[RESULT_WEIGHTS] : NULL;
    params.scores = views[RESULT_SCORES].data != NULL ? &views[RESULT_SCORES] : NULL;
    const attn_tensor *state = views[RESULT_STATE].data != NULL ? &views[RESULT_STATE] : NULL;
    switch (kinds->kind) {
    case KIND_SOFTMAX:
        return reworded(WORDING_RUN, attn_forward(&in->q_view, &in->k_view, &in->v_view, out, &params));
    case KIND_ADDITIVE:
        return kinds_additive(kinds, in, out, &params);
    case KIND_LINFORMER:
        return kinds_linformer(kinds, in, out, &params);
    default:
        return kinds_linear(kinds, in, out, &params, state, draw);
    }
}

attn_status command_run(int argc, char *const *argv)
{
    struct option options[RUN_COUNT] = {
        [RUN_V] = {"value", 'v', "FILE", "values, of these types; as many heads as the keys", NULL},
        [RUN_OUT] = {"output", 'o', "FILE", "where the result goes, in the layout of q", NULL},
        [RUN_LSE] = {"lse", 0, "FILE", "also write the log-sum-exp: batch, head, query", NULL},
        [RUN_WEIGHTS] = {"weights", 0, "FILE", "also write the weights: batch, head, query, key", NULL},
        [RUN_SCORES] = {"scores", 0, "FILE", "also write the scores: batch, head, query, key", NULL},
        [RUN_SCORE_STAGE] = {"score-stage", 0, "NAME",
                             "raw, scaled, capped or masked, of --scores; default: raw;\n"
                             "padding is at -inf, what else is hidden in masked alone",
                             NULL},
        [RUN_OUT_DTYPE] = {"out-dtype", 0, "NAME",
                           "f32, bf16 or f16, of the result; default: that of q;\n"
                           "log-sum-exp, weights and scores are always float32",
                           NULL},
        [RUN_DROPOUT] = {"dropout", 0, "P", "drop each weight with this probability", NULL},
        [RUN_SEED] = {"seed", 0, "N", "chooses what is dropped, or the features; default 0", NULL},
        [RUN_OFFSET] = {"offset", 0, "N", "likewise: one for each layer and step; default 0", NULL},
    };
    inputs_options(options);
    memcpy(options + RUN_KINDS, kind_options, sizeof kind_options);
    struct operands operands;
    CHECK(options_parse(options, RUN_COUNT, argc, argv, &operands, 0));
    if (options[INPUT_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[INPUT_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[INPUT_QUIET]);
    struct inputs inputs = {.options = options};
    struct kinds kinds = {.kind = KIND_SOFTMAX};
    attn_dropout dropout;
    enum array_dtype out_dtype = ARRAY_F32;
    struct array results[RESULTS] = {{.size = 0}};
    struct output_set outputs = {.count = 0};
    attn_status status = option_require(&options[INPUT_Q]);
    if (status == ATTN_OK)
        status = option_require(&options[INPUT_K]);
    if (status == ATTN_OK)
        status = option_require(&options[RUN_V]);
    if (status == ATTN_OK)
        status = option_require(&options[RUN_OUT]);
    if (status == ATTN_OK)
        status = kinds_parse(&kinds, options, RUN_COUNT, options + RUN_KINDS);
    if (status == ATTN_OK)
        status = inputs_parse(&inputs, options);
    if (status == ATTN_OK)
        status = parse_dropout(options, kinds.kind, &dropout, &inputs.params);
    if (status == ATTN_OK)
        status = parse_score_stage(options, &inputs.params);
    if (status == ATTN_OK)
        status = parse_out_dtype(&options[RUN_OUT_DTYPE], &out_dtype);
    if (status == ATTN_OK)
        status = declare_outputs(&outputs, options, results);
    if (status == ATTN_OK)
        status = output_holds(&outputs, &results[0], out_dtype, "--out-dtype");
    if (status == ATTN_OK)
        status = inputs_load(&inputs, options[RUN_V].value, UINT64_MAX);
    if (status == ATTN_OK)
        status = kinds_load(&kinds, inputs.bthd);
    if (status == ATTN_OK && options[RUN_OUT_DTYPE].value == NULL) {
        out_dtype = inputs.q.is.dtype;
        status = output_holds(&outputs, &results[0], out_dtype, "as q is");
    }
    if (status == ATTN_OK)
        status = compute(&inputs, &kinds, &dropout, out_dtype, results);
    if (status == ATTN_OK)
        status = output_write(&outputs);
    output_free(&outputs);
    inputs_free(&inputs);
    kinds_free(&kinds);
    for (int i = 0; i < RESULTS; i++)
        array_free(&results[i]);
    return status;
}
