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
#include "results.h"
#include "rounded.h"
#include "watched.h"
#include "wording.h"

enum {
    RUN_V = INPUT_COUNT,
    RUN_OUT,
    RUN_LSE,
    RUN_WEIGHTS,
    RUN_SCORES,
    RUN_KEY_SUMS,
    RUN_WEIGHT_ROWS,
    RUN_AVERAGE,
    RUN_SCORE_STAGE,
    RUN_OUT_DTYPE,
    RUN_KV_TYPE,
    RUN_DROPOUT,
    RUN_SEED,
    RUN_OFFSET,
    RUN_KINDS,
    RUN_COUNT = RUN_KINDS + KIND_OPTIONS
};

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
           "  FILE is FILE.npy, FILE.npz:NAME or FILE.safetensors:NAME; - and -:NAME are standard\n"
           "  input and output, .npy and safetensors. float64 becomes float32, Fortran order C\n"
           "  order, and a line says so. Outputs in the same file are written together, and the\n"
           "  new file replaces an existing one as a whole. If anything fails, no output file is\n"
           "  touched.\n");
}

static attn_status declare_outputs(struct output_set *outputs, const struct option *options, struct results *results)
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
                 {INPUT_FORMS + FORM_TREE, "--tree"},
                 {INPUT_FORMS + FORM_BLOCK_OFFSETS, "--block-offsets"},
                 {INPUT_FORMS + FORM_BLOCK_COLUMNS, "--block-columns"}};
    /* In the order of the results, and of their options. */
    static const char *const labels[] = {"-o", "--lse", "--weights", "--scores", "--key-sums"};
    const struct option *own = options + RUN_KINDS;
    for (int i = 0; i < RESULT_STATE; i++) {
        const char *spec = options[RUN_OUT + i].value;
        results->wanted[i] = spec != NULL;
        if (spec != NULL)
            CHECK(output_add(outputs, labels[i], spec, &results->arrays[i]));
    }
    results->wanted[RESULT_STATE] = own[OPTION_STATE_OUT].value != NULL;
    if (results->wanted[RESULT_STATE])
        CHECK(output_add(outputs, "--state-out", own[OPTION_STATE_OUT].value, &results->arrays[RESULT_STATE]));
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

/* Which rows of weights and scores are written, and whether weights of heads are averaged. */
static attn_status parse_rows(const struct option *options, struct results *results)
{
    const bool weights = options[RUN_WEIGHTS].value != NULL;
    if (options[RUN_AVERAGE].value != NULL && !weights)
        return io_fail(ATTN_INVALID_ARGUMENT, "option --average-heads has no effect without --weights");
    if (options[RUN_WEIGHT_ROWS].value != NULL && !weights && options[RUN_SCORES].value == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "option --weight-rows has no effect without --weights or --scores");
    results->average = options[RUN_AVERAGE].value != NULL;
    return option_integers(&options[RUN_WEIGHT_ROWS], 0, INT64_MAX, INTEGERS_PLAIN, &results->rows);
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

static attn_status compute(struct inputs *in, const struct kinds *kinds, const attn_dropout *draw,
                           enum array_dtype out_dtype, struct rounded *rounded, struct results *results)
{
    CHECK(forms_whole_tree(&in->forms, &in->q_view, &in->k_view, &in->params));
    CHECK(results_allocate(results, in, kinds, out_dtype));
    const attn_tensor *out = &results->views[RESULT_OUT];
    attn_params params = in->params;
    results_request(results, &params);
    switch (kinds->kind) {
    case KIND_SOFTMAX:
        CHECK(rounded_apply(rounded, &in->k_view, &in->v_view, &params));
        return reworded(WORDING_RUN,
                        watched_forward(&in->q_view, &in->k_view, &in->v_view, out, &params, command_is_quiet()));
    case KIND_ADDITIVE:
        return kinds_additive(kinds, in, out, &params);
    case KIND_LINFORMER:
        return kinds_linformer(kinds, in, out, &params);
    default:
        return kinds_linear(kinds, in, out, &params, results_view(results, RESULT_STATE), draw);
    }
}

attn_status command_run(int argc, char *const *argv)
{
    struct option options[RUN_COUNT] = {
        [RUN_V] = {"value", 'v', "FILE", "values, of these types; as many heads as the keys", NULL},
        [RUN_OUT] = {"output", 'o', "FILE", "where the result goes, in the layout of q", NULL},
        [RUN_LSE] = {"lse", 0, "FILE", "also write the log-sum-exp: batch, head, query", NULL},
        [RUN_WEIGHTS] = {"weights", 0, "FILE", "also write the weights: batch, head, query, key", NULL},
        [RUN_KEY_SUMS] = {"key-sums", 0, "FILE",
                          "also write the sum over queries of the weight of each\n"
                          "key: batch, head, key",
                          NULL},
        [RUN_WEIGHT_ROWS] = {"weight-rows", 0, "N,N,...",
                             "only these queries of --weights and --scores, in this\n"
                             "order; default: all",
                             NULL},
        [RUN_AVERAGE] = {"average-heads", 0, NULL, "write --weights as the mean over heads: batch, query, key", NULL},
        [RUN_SCORES] = {"scores", 0, "FILE", "also write the scores: batch, head, query, key", NULL},
        [RUN_SCORE_STAGE] = {"score-stage", 0, "NAME",
                             "raw, scaled, capped or masked, of --scores; default: raw;\n"
                             "padding is at -inf, what else is hidden in masked alone",
                             NULL},
        [RUN_OUT_DTYPE] = {"out-dtype", 0, "NAME",
                           "f32, bf16 or f16, of the result; default: that of q;\n"
                           "all others are always float32",
                           NULL},
        [RUN_KV_TYPE] = {"kv-type", 0, "NAME",
                         "k and v as-given (default), or rounded first as a cache\n"
                         "rounds them: int8, fp8 (E4M3) or int4, with scales",
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
    struct rounded rounded = {.kind = 0};
    struct results results = {.average = false};
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
        status = parse_rows(options, &results);
    if (status == ATTN_OK)
        status = rounded_parse(&rounded, &options[RUN_KV_TYPE]);
    if (status == ATTN_OK)
        status = parse_out_dtype(&options[RUN_OUT_DTYPE], &out_dtype);
    if (status == ATTN_OK)
        status = declare_outputs(&outputs, options, &results);
    if (status == ATTN_OK)
        status = inputs_load(&inputs, options[RUN_V].value, UINT64_MAX);
    if (status == ATTN_OK)
        status = kinds_load(&kinds, inputs.bthd);
    if (status == ATTN_OK && options[RUN_OUT_DTYPE].value == NULL)
        out_dtype = inputs.q.is.dtype;
    if (status == ATTN_OK)
        status = compute(&inputs, &kinds, &dropout, out_dtype, &rounded, &results);
    if (status == ATTN_OK)
        results_finish(&results);
    if (status == ATTN_OK)
        status = output_write(&outputs);
    output_free(&outputs);
    inputs_free(&inputs);
    kinds_free(&kinds);
    rounded_free(&rounded);
    results_free(&results);
    return status;
}
