/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads q, k, v, mask and lengths, and turns their shapes into strided views: no
 * layout is ever copied. An array of fewer than four dimensions lacks the
 * leading ones: T x d, H x T x d (or T x H x d). Masks broadcast as in numpy,
 * aligned at the right to (B, Hq, Tq, Tk), whatever the layout. Whether shapes
 * and values fit together is the library's to judge, except where its view of
 * the arguments differs from the user's, so that a sentence names what he gave.
 *
 * float16 and bfloat16 go to the library as they are: what it does with them is
 * its own, and a type that is widened here would get other kernels.
 */
#include "inputs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "auto", and more sets than any processor has. */
#define MAX_ISAS 16

static const struct option general_options[INPUT_FORMS] = {
    [INPUT_HELP] = OPTION_ROW_HELP,
    [INPUT_VERSION] = OPTION_ROW_VERSION,
    [INPUT_QUIET] = OPTION_ROW_QUIET,
    [INPUT_Q] = {"query", 'q', "FILE", "queries, float32, float16 or bfloat16", NULL},
    [INPUT_K] = {"key", 'k', "FILE", "keys, of these types; heads may be fewer than of q (GQA)", NULL},
    [INPUT_LAYOUT] = {"layout", 0, "NAME",
                      "bhtd (default): batch, head, token, channel; or bthd;\n"
                      "2-D and 3-D arrays lack the leading dimensions",
                      NULL},
    [INPUT_CAUSAL] = {"causal", 0, "NAME", "none (default), top-left, bottom-right or offset (that of\n--query-offset)",
                      NULL},
    [INPUT_MASK] = {"mask", 0, "FILE",
                    "bool (true attends), or of these types (added to the\n"
                    "scores); broadcast to batch, head, query, key as in numpy",
                    NULL},
    [INPUT_KV_LEN] = {"kv-len", 0, "FILE", "int32 or int64, one per sequence: keys from there on are padding", NULL},
    [INPUT_KV_START] = {"kv-start", 0, "FILE", "int32 or int64, one per sequence: keys before it are padding", NULL},
    [INPUT_SCALE] = {"scale", 0, "X", "multiplies the scores; default 1/sqrt(d)", NULL},
    [INPUT_TEMPERATURE] = {"temperature", 0, "X", "divides the scores; default 1", NULL},
    [INPUT_QK] = {"qk", 0, "NAME", "scores from q and k: exact (default) or int8", NULL},
    [INPUT_INPUTS] = {"inputs", 0, "NAME",
                      "q, k and v as-given (default) or may-be-bf16: rounded where\nthat is faster", NULL},
    [INPUT_SUMS] = {"sums", 0, "NAME",
                    "in which order channels of a score are added: ordered\n"
                    "(default), or free: faster where queries are few",
                    NULL},
    [INPUT_ISA] = {"isa", 0, "NAME", "auto (default), or an instruction set that `attn info` lists", NULL},
    [INPUT_THREADS] = {"threads", 0, "N", "number of threads; default: all", NULL},
};

void inputs_options(struct option *options)
{
    memcpy(options, general_options, sizeof general_options);
    memcpy(options + INPUT_FORMS, form_options, sizeof form_options);
}

void inputs_print_general(FILE *to, const struct option *options)
{
    options_print(to, options, INPUT_FORMS);
}

void inputs_print_forms(FILE *to, const struct option *options)
{
    forms_print_help(to, options + INPUT_FORMS);
}

attn_status inputs_parse(struct inputs *inputs, struct option *options)
{
    static const char *const layouts[] = {"bhtd", "bthd"};
    static const char *const causal[] = {"none", "top-left", "bottom-right", "offset"};
    static const char *const qks[] = {"exact", "int8"};
    static const char *const orders[] = {"ordered", "free"};
    static const char *const rounded[] = {"as-given", "may-be-bf16"};
    const char *isas[MAX_ISAS] = {"auto"};
    int num_isas = 1;
    for (const char *name; num_isas < MAX_ISAS && (name = attn_isa_name(num_isas - 1)) != NULL; num_isas++)
        isas[num_isas] = name;

    *inputs = (struct inputs){.options = options, .params = attn_params_default()};
    attn_params *p = &inputs->params;
    int layout = 0, mode = 0, qk = 0, rounds = 0, order = 0, isa = 0;
    long long threads = 0;
    attn_status status = option_choice(&options[INPUT_LAYOUT], layouts, 2, &layout);
    if (status == ATTN_OK)
        status = option_choice(&options[INPUT_CAUSAL], causal, 4, &mode);
    if (status == ATTN_OK)
        status = option_choice(&options[INPUT_QK], qks, 2, &qk);
    if (status == ATTN_OK)
        status = option_choice(&options[INPUT_INPUTS], rounded, 2, &rounds);
    if (status == ATTN_OK)
        status = option_choice(&options[INPUT_SUMS], orders, 2, &order);
    if (status == ATTN_OK)
        status = option_choice(&options[INPUT_ISA], isas, num_isas, &isa);
    if (status == ATTN_OK)
        status = option_float(&options[INPUT_SCALE], false, &p->scale);
    if (status == ATTN_OK)
        status = option_float(&options[INPUT_TEMPERATURE], true, &p->temperature);
    if (status == ATTN_OK)
        status = option_integer(&options[INPUT_THREADS], 1, 1024, &threads);
    if (status != ATTN_OK)
        return status;
    /* The names stand in the order of the values. */
    inputs->bthd = layout == 1;
    p->causal = (attn_causal)mode;
    p->qk = (attn_qk)qk;
    p->inputs = (attn_inputs)rounds;
    p->sums = (attn_sums)order;
    p->isa = isa > 0 ? isas[isa] : NULL;
    p->num_threads = (int)threads;
    return forms_parse(&inputs->forms, options + INPUT_FORMS, p);
}

static bool is_float(enum array_dtype dtype)
{
    return dtype == ARRAY_F32 || dtype == ARRAY_F16 || dtype == ARRAY_BF16;
}

/* The library's name for a type of floats or a mask. */
static attn_dtype library_dtype(enum array_dtype dtype)
{
    return dtype == ARRAY_F16 ? ATTN_F16 : dtype == ARRAY_BF16 ? ATTN_BF16 : dtype == ARRAY_BOOL ? ATTN_BOOL : ATTN_F32;
}

attn_tensor inputs_view(const struct array *array, bool bthd)
{
    int64_t full[4] = {1, 1, 1, 1};
    for (int i = 0; i < array->is.ndim; i++)
        full[4 - array->is.ndim + i] = array->is.shape[i];
    /* A 2-D array is T x d in either layout. */
    attn_tensor t = bthd && array->is.ndim > 2 ? attn_bthd(array->data, full[0], full[1], full[2], full[3])
                                               : attn_bhtd(array->data, full[0], full[1], full[2], full[3]);
    t.dtype = library_dtype(array->is.dtype);
    return t;
}

struct array_shape inputs_shape(enum array_dtype dtype, int rank, bool bthd, const int64_t shape[4])
{
    struct array_shape is = {.dtype = dtype, .ndim = rank};
    int64_t full[4] = {shape[0], shape[1], shape[2], shape[3]};
    if (bthd && rank > 2) {
        full[1] = shape[2];
        full[2] = shape[1];
    }
    memcpy(is.shape, full + 4 - rank, (size_t)rank * sizeof is.shape[0]);
    return is;
}

static attn_status load_operand(struct array *array, const char *what, const char *spec)
{
    char text[ARRAY_SHAPE_TEXT];
    struct array_file file;
    CHECK(array_open(&file, spec));
    attn_status status = ATTN_OK;
    if (!is_float(file.is.dtype))
        status = io_fail(ATTN_INVALID_FILE, "%s %s has dtype %s; expected float32, float16 or bfloat16", what, spec,
                         array_dtype_name(file.is.dtype));
    else if (file.is.ndim < 2 || file.is.ndim > 4)
        status = io_fail(ATTN_INVALID_FILE, "%s %s has shape %s; expected 2 to 4 dimensions", what, spec,
                         array_shape_text(&file.is, text));
    if (status == ATTN_OK)
        status = array_take(array, &file);
    array_close(&file);
    return status;
}

static attn_status load_lengths(int64_t **out, const struct option *option, int64_t sequences, const char *one)
{
    if (option->value == NULL)
        return ATTN_OK;
    char text[ARRAY_SHAPE_TEXT];
    struct array array;
    CHECK(array_load(&array, option->value));
    const struct array_shape *is = &array.is;
    attn_status status = ATTN_OK;
    if (is->dtype != ARRAY_I32 && is->dtype != ARRAY_I64)
        status = io_fail(ATTN_INVALID_FILE, "--%s %s has dtype %s; expected int32 or int64", option->name,
                         option->value, array_dtype_name(is->dtype));
    else if (is->ndim > 1 || (is->ndim == 1 ? is->shape[0] : 1) != sequences)
        status = io_fail(ATTN_INVALID_FILE, "--%s %s has shape %s; expected (%" PRId64 ",), one value per %s",
                         option->name, option->value, array_shape_text(is, text), sequences, one);
    if (status == ATTN_OK) {
        *out = calloc(sequences > 0 ? (size_t)sequences : 1, sizeof **out);
        if (*out == NULL)
            status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", option->value);
    }
    for (int64_t i = 0; status == ATTN_OK && i < sequences; i++)
        (*out)[i] = is->dtype == ARRAY_I64 ? ((const int64_t *)array.data)[i] : ((const int32_t *)array.data)[i];
    array_free(&array);
    return status;
}

static attn_status view_mask(struct inputs *in, const char *spec)
{
    char text[ARRAY_SHAPE_TEXT], wanted[ARRAY_SHAPE_TEXT];
    const struct array_shape *is = &in->mask.is;
    struct array_shape target = {
        .ndim = 4, .shape = {in->q_view.shape[0], in->q_view.shape[1], in->q_view.shape[2], in->k_view.shape[2]}};
    in->mask_view = (attn_tensor){.data = in->mask.data, .dtype = library_dtype(is->dtype)};
    int64_t stride = 1;
    for (int axis = 3; axis >= 0; axis--) {
        int own = axis - (4 - is->ndim);
        int64_t length = own >= 0 ? is->shape[own] : 1;
        if (length != 1 && length != target.shape[axis])
            return io_fail(ATTN_INVALID_FILE,
                           "--mask %s has shape %s, which does not broadcast to %s (batch, head, query, key)", spec,
                           array_shape_text(is, text), array_shape_text(&target, wanted));
        in->mask_view.shape[axis] = length;
        in->mask_view.stride[axis] = length == 1 ? 0 : stride;
        stride *= length;
    }
    in->params.mask = &in->mask_view;
    return ATTN_OK;
}

static attn_status load_mask(struct inputs *in, const char *spec, uint64_t limit)
{
    char text[ARRAY_SHAPE_TEXT];
    struct array_file file;
    CHECK(array_open(&file, spec));
    attn_status status = ATTN_OK;
    if (!is_float(file.is.dtype) && file.is.dtype != ARRAY_BOOL)
        status = io_fail(ATTN_INVALID_FILE, "--mask %s has dtype %s; expected bool, float32, float16 or bfloat16", spec,
                         array_dtype_name(file.is.dtype));
    else if (file.is.ndim < 1 || file.is.ndim > 4)
        status = io_fail(ATTN_INVALID_FILE, "--mask %s has shape %s; expected 1 to 4 dimensions", spec,
                         array_shape_text(&file.is, text));
    else if (file.size > limit)
        status = io_fail(ATTN_SIZE_OVERFLOW, "--mask %s needs %.1f MiB, above the limit of %.1f MiB (--limit-mib)",
                         spec, (double)file.size / 1048576, (double)limit / 1048576);
    if (status == ATTN_OK)
        status = array_take(&in->mask, &file);
    array_close(&file);
    if (status != ATTN_OK)
        return status;
    return view_mask(in, spec);
}

attn_status inputs_load(struct inputs *in, const char *v_spec, uint64_t mask_limit)
{
    const struct option *options = in->options;
    CHECK(load_operand(&in->q, "-q", options[INPUT_Q].value));
    CHECK(load_operand(&in->k, "-k", options[INPUT_K].value));
    if (v_spec != NULL)
        CHECK(load_operand(&in->v, "-v", v_spec));
    in->rank = in->q.is.ndim;
    if (in->k.is.ndim != in->rank || (v_spec != NULL && in->v.is.ndim != in->rank))
        return io_fail(ATTN_INVALID_FILE, "%s has %d dimensions but q has %d; expected the same for q, k and v",
                       in->k.is.ndim != in->rank ? "k" : "v", in->k.is.ndim != in->rank ? in->k.is.ndim : in->v.is.ndim,
                       in->rank);
    in->q_view = inputs_view(&in->q, in->bthd);
    in->k_view = inputs_view(&in->k, in->bthd);
    if (v_spec != NULL)
        in->v_view = inputs_view(&in->v, in->bthd);
    if (options[INPUT_MASK].value != NULL)
        CHECK(load_mask(in, options[INPUT_MASK].value, mask_limit));
    CHECK(forms_load_sequences(&in->forms, &in->q_view, &in->k_view, &in->params));
    int64_t sequences = forms_sequences(&in->forms, in->q_view.shape[0]);
    const char *one = forms_sequence_name(&in->forms);
    CHECK(load_lengths(&in->kv_len, &options[INPUT_KV_LEN], sequences, one));
    CHECK(load_lengths(&in->kv_start, &options[INPUT_KV_START], sequences, one));
    in->params.kv_len = in->kv_len;
    in->params.kv_start = in->kv_start;
    return forms_load(&in->forms, &in->q_view, &in->k_view, &in->params);
}

void inputs_free(struct inputs *in)
{
    array_free(&in->q);
    array_free(&in->k);
    array_free(&in->v);
    array_free(&in->mask);
    free(in->kv_len);
    free(in->kv_start);
    in->kv_len = in->kv_start = NULL;
    forms_free(&in->forms);
}
