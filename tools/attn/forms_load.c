/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the values of the options to what the library takes, once the shapes of q
 * and k are known: arrays are read, lists are checked against the number of
 * heads, and patterns of blocks are made.
 */
#include "forms.h"

#include <inttypes.h>
#include <stdlib.h>

#include "wording.h"

/* ----------------------------------------------------------------- scores -- */

static attn_status check_heads(const struct reals *list, const struct option *option, int64_t heads)
{
    if (list->values == NULL || list->count == heads)
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT, "--%s has %" PRId64 " values; expected %" PRId64 ", one for each query head",
                   option->name, list->count, heads);
}

static attn_status load_slopes(struct forms *f, int64_t heads)
{
    const struct option *o = f->options;
    if (o[FORM_ALIBI].value == NULL)
        return check_heads(&f->slopes, &o[FORM_ALIBI_SLOPES], heads);
    f->slopes = (struct reals){calloc(heads > 0 ? (size_t)heads : 1, sizeof(float)), heads};
    if (f->slopes.values == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "--alibi: out of memory");
    return heads > 0 ? reworded(WORDING_RUN, attn_alibi_slopes(f->slopes.values, heads)) : ATTN_OK;
}

static attn_status load_bias(struct forms *f, int64_t heads, attn_params *params)
{
    const char *spec = f->options[FORM_BIAS].value;
    char text[ARRAY_SHAPE_TEXT];
    if (spec == NULL)
        return ATTN_OK;
    CHECK(array_load(&f->bias_table, spec));
    const struct array_shape *is = &f->bias_table.is;
    if (is->dtype != ARRAY_F32 || is->ndim != 2 || is->shape[0] != heads)
        return io_fail(ATTN_INVALID_FILE,
                       "--relative-bias %s has dtype %s and shape %s; expected float32 and (%" PRId64
                       ", N): query heads, buckets",
                       spec, array_dtype_name(is->dtype), array_shape_text(is, text), heads);
    f->bias.table = f->bias_table.data;
    f->bias.buckets = is->shape[1];
    if (f->bias.max_distance < 0)
        f->bias.max_distance = f->bias.kind == ATTN_BUCKETS_CLIPPED ? f->bias.buckets / 2 : 128;
    params->relative_bias = &f->bias;
    return ATTN_OK;
}

/* Rows by distance as (1, head, row, channel): (row, channel), or (head, row, channel). Both tables have the same span.
 */
static attn_status load_relative(struct forms *f, const struct option *option, const attn_tensor *q,
                                 struct array *array, attn_tensor *view)
{
    char text[ARRAY_SHAPE_TEXT];
    if (option->value == NULL)
        return ATTN_OK;
    CHECK(array_load(array, option->value));
    const struct array_shape *is = &array->is;
    bool fits = is->dtype == ARRAY_F32 && (is->ndim == 2 || is->ndim == 3);
    if (fits) {
        *view = attn_bhtd(array->data, 1, is->ndim == 3 ? is->shape[0] : 1, is->shape[is->ndim - 2],
                          is->shape[is->ndim - 1]);
        fits = (view->shape[1] == 1 || view->shape[1] == q->shape[1]) && view->shape[2] > 0 &&
               view->shape[2] % 2 == 0 && view->shape[3] == q->shape[3];
    }
    if (!fits)
        return io_fail(ATTN_INVALID_FILE,
                       "--%s %s has dtype %s and shape %s; expected float32 and (2 span, %" PRId64 ") or (%" PRId64
                       ", 2 span, %" PRId64 ")",
                       option->name, option->value, array_dtype_name(is->dtype), array_shape_text(is, text),
                       q->shape[3], q->shape[1], q->shape[3]);
    if (f->disentangled.span != 0 && f->disentangled.span != view->shape[2] / 2)
        return io_fail(ATTN_INVALID_FILE, "--%s %s has %" PRId64 " rows; expected %" PRId64 ", as --rel-k has",
                       option->name, option->value, view->shape[2], 2 * f->disentangled.span);
    f->disentangled.span = view->shape[2] / 2;
    return ATTN_OK;
}

static attn_status load_disentangled(struct forms *f, const attn_tensor *q, attn_params *params)
{
    const struct option *o = f->options;
    CHECK(load_relative(f, &o[FORM_REL_K], q, &f->rel_k_rows, &f->rel_k));
    CHECK(load_relative(f, &o[FORM_REL_Q], q, &f->rel_q_rows, &f->rel_q));
    f->disentangled.rel_k = o[FORM_REL_K].value != NULL ? &f->rel_k : NULL;
    f->disentangled.rel_q = o[FORM_REL_Q].value != NULL ? &f->rel_q : NULL;
    if (f->disentangled.span > 0)
        params->disentangled = &f->disentangled;
    return ATTN_OK;
}

/* ------------------------------------------------------------------- keys -- */

/* An int64 array as int32. */
static attn_status narrow(struct array *array, const struct option *option)
{
    struct array wide = *array;
    struct array_shape is = wide.is;
    is.dtype = ARRAY_I32;
    *array = (struct array){.size = 0};
    attn_status status = array_allocate(array, option->value, &is);
    const int64_t *from = wide.data;
    for (size_t i = 0; status == ATTN_OK && i < wide.size / sizeof *from; i++) {
        ((int32_t *)array->data)[i] = (int32_t)from[i];
        if (from[i] < INT32_MIN || from[i] > INT32_MAX)
            status = io_fail(ATTN_INVALID_FILE, "--%s %s holds %" PRId64 "; expected numbers of 32 bits", option->name,
                             option->value, from[i]);
    }
    array_free(&wide);
    return status;
}

/* (batch, token), or (token) if there is one batch element. */
static attn_status load_labels(struct array *array, const struct option *option, const attn_tensor *t,
                               const char *tokens)
{
    char text[ARRAY_SHAPE_TEXT], wanted[ARRAY_SHAPE_TEXT];
    struct array_shape full = {.ndim = 2, .shape = {t->shape[0], t->shape[2]}};
    CHECK(array_load(array, option->value));
    const struct array_shape *is = &array->is;
    if (is->dtype != ARRAY_I32 && is->dtype != ARRAY_I64)
        return io_fail(ATTN_INVALID_FILE, "--%s %s has dtype %s; expected int32 or int64", option->name, option->value,
                       array_dtype_name(is->dtype));
    bool fits = is->ndim == 2 ? is->shape[0] == t->shape[0] && is->shape[1] == t->shape[2]
                              : is->ndim == 1 && t->shape[0] == 1 && is->shape[0] == t->shape[2];
    if (!fits)
        return io_fail(ATTN_INVALID_FILE, "--%s %s has shape %s; expected %s: batch, %s", option->name, option->value,
                       array_shape_text(is, text), array_shape_text(&full, wanted), tokens);
    return is->dtype == ARRAY_I32 ? ATTN_OK : narrow(array, option);
}

static attn_status load_segments(struct forms *f, const attn_tensor *q, const attn_tensor *k, attn_params *params)
{
    const struct option *o = f->options;
    const struct option *keys = o[FORM_SEGMENTS_K].value != NULL ? &o[FORM_SEGMENTS_K] : &o[FORM_SEGMENTS];
    if (o[FORM_SEGMENTS].value == NULL)
        return ATTN_OK;
    CHECK(load_labels(&f->q_segments, &o[FORM_SEGMENTS], q, "query"));
    CHECK(load_labels(&f->k_segments, keys, k, "key"));
    f->segments = (attn_segments){f->q_segments.data, f->k_segments.data};
    params->segments = &f->segments;
    return ATTN_OK;
}

/* Builders leave out what is above the diagonal only where that is the diagonal of the call, and nothing crosses it.
 */
static bool pattern_is_causal(const attn_params *params, bool square)
{
    if (params->prefix_len != NULL)
        return false;
    return params->causal == ATTN_CAUSAL_TOP_LEFT ||
           (params->causal == ATTN_CAUSAL_BOTTOM_RIGHT && square && params->kv_len == NULL);
}

/* Numbers of an array of one dimension. */
static attn_status load_list(struct array *array, const struct option *option, const char *what)
{
    char text[ARRAY_SHAPE_TEXT];
    CHECK(array_load(array, option->value));
    const struct array_shape *is = &array->is;
    if ((is->dtype == ARRAY_I32 || is->dtype == ARRAY_I64) && is->ndim == 1)
        return ATTN_OK;
    return io_fail(ATTN_INVALID_FILE, "--%s %s has dtype %s and shape %s; expected int32 or int64 and (N,), %s",
                   option->name, option->value, array_dtype_name(is->dtype), array_shape_text(is, text), what);
}

/* An int32 array as int64. */
static attn_status widen(struct array *array, const struct option *option)
{
    struct array narrow_one = *array;
    struct array_shape is = narrow_one.is;
    is.dtype = ARRAY_I64;
    *array = (struct array){.size = 0};
    attn_status status = array_allocate(array, option->value, &is);
    for (int64_t i = 0; status == ATTN_OK && i < is.shape[0]; i++)
        ((int64_t *)array->data)[i] = ((const int32_t *)narrow_one.data)[i];
    array_free(&narrow_one);
    return status;
}

/* --block-offsets and --block-columns: how many heads they are for follows from how many rows there are. */
static attn_status load_blocks(struct forms *f, int64_t heads, int64_t tq, attn_params *params)
{
    const struct option *offsets = &f->options[FORM_BLOCK_OFFSETS], *columns = &f->options[FORM_BLOCK_COLUMNS];
    const int64_t rows = tq / f->block + (tq % f->block > 0);
    CHECK(load_list(&f->block_offsets, offsets, "where rows of blocks begin"));
    CHECK(load_list(&f->block_columns, columns, "blocks of keys"));
    if (f->block_offsets.is.dtype == ARRAY_I32)
        CHECK(widen(&f->block_offsets, offsets));
    if (f->block_columns.is.dtype == ARRAY_I64)
        CHECK(narrow(&f->block_columns, columns));
    const int64_t count = f->block_offsets.is.shape[0], listed = f->block_columns.is.shape[0];
    const int64_t *values = f->block_offsets.data;
    if (count != rows + 1 && (heads == 0 || (count - 1) % heads != 0 || (count - 1) / heads != rows))
        return io_fail(ATTN_INVALID_FILE,
                       "--block-offsets %s has %" PRId64 " values; expected %" PRId64 " or %" PRId64
                       ", one for each row of blocks of one head or of all, and the end",
                       offsets->value, count, rows + 1, heads * rows + 1);
    /* attn heatmap takes rows out of the whole, which the library never sees. */
    for (int64_t n = 0; n < count; n++) {
        if (n == 0 ? values[0] != 0 : values[n] < values[n - 1])
            return io_fail(ATTN_INVALID_FILE,
                           "--block-offsets %s has %" PRId64 " at (%" PRId64
                           ",); expected 0 first, and none below the one "
                           "before it",
                           offsets->value, values[n], n);
    }
    if (values[count - 1] != listed)
        return io_fail(ATTN_INVALID_FILE,
                       "--block-offsets %s ends with %" PRId64 "; expected %" PRId64 ", the blocks of --block-columns",
                       offsets->value, values[count - 1], listed);
    f->blocks = (attn_block_mask){.size = f->block,
                                  .heads = count == rows + 1 ? 1 : heads,
                                  .rows = rows,
                                  .offsets = values,
                                  .columns = f->block_columns.data};
    params->block_mask = &f->blocks;
    return ATTN_OK;
}

static attn_status load_pattern(struct forms *f, const attn_tensor *q, const attn_tensor *k, attn_params *params)
{
    const bool listed = f->options[FORM_BLOCK_OFFSETS].value != NULL;
    if (f->options[FORM_PATTERN].value == NULL && !listed)
        return ATTN_OK;
    int64_t tq = q->shape[2], tk = k->shape[2];
    bool square = tq == tk;
    if (params->ragged != NULL) {
        tq = tk = 0;
        square = true;
        for (int64_t n = 0; n < params->ragged->num_sequences; n++) {
            struct sequence s = forms_sequence(params, q, k, n);
            tq = s.queries > tq ? s.queries : tq;
            tk = s.keys > tk ? s.keys : tk;
            square &= s.queries == s.keys;
        }
    }
    if (listed)
        return load_blocks(f, q->shape[1], tq, params);
    int causal = pattern_is_causal(params, square);
    attn_longformer longformer = {.window = f->block_window, .global = f->block_global, .causal = causal};
    attn_bigbird bigbird = {.window = f->block_window,
                            .global = f->block_global,
                            .random = f->block_random,
                            .seed = (uint64_t)f->block_seed,
                            .heads = f->block_heads,
                            .causal = causal};
    attn_strided strided = {.stride = f->block_stride, .causal = causal};
    if (f->block_heads > 1 && f->block_heads != q->shape[1])
        return io_fail(ATTN_INVALID_ARGUMENT, "--block-heads is %lld; expected 1 or %" PRId64 ", the heads of -q",
                       f->block_heads, q->shape[1]);
    attn_status status =
        f->pattern_kind == PATTERN_LONGFORMER ? attn_pattern_longformer(&f->pattern, tq, tk, f->block, &longformer)
        : f->pattern_kind == PATTERN_BIGBIRD  ? attn_pattern_bigbird(&f->pattern, tq, tk, f->block, &bigbird)
                                              : attn_pattern_strided(&f->pattern, tq, tk, f->block, &strided);
    CHECK(reworded(WORDING_RUN, status));
    params->block_mask = attn_pattern_block_mask(f->pattern);
    return ATTN_OK;
}

attn_status forms_load(struct forms *f, const attn_tensor *q, const attn_tensor *k, attn_params *params)
{
    const struct option *o = f->options;
    int64_t heads = q->shape[1];
    CHECK(check_heads(&f->head_scale, &o[FORM_HEAD_SCALE], heads));
    CHECK(check_heads(&f->sinks, &o[FORM_SINKS], heads));
    CHECK(load_slopes(f, heads));
    CHECK(load_bias(f, heads, params));
    CHECK(load_disentangled(f, q, params));
    CHECK(forms_load_places(f, q, k, params));
    CHECK(load_segments(f, q, k, params));
    CHECK(load_pattern(f, q, k, params));
    params->head_scale = f->head_scale.values;
    params->sinks = f->sinks.values;
    params->alibi_slopes = f->slopes.values;
    if (f->sides.values != NULL)
        params->window = &f->window;
    return ATTN_OK;
}

void forms_free(struct forms *f)
{
    struct array *arrays[] = {&f->bias_table,   &f->rel_k_rows, &f->rel_q_rows,    &f->rope_q_table,
                              &f->rope_k_table, &f->q_segments, &f->k_segments,    &f->parents,
                              &f->depths,       &f->ancestors,  &f->block_offsets, &f->block_columns};
    struct reals *reals[] = {&f->head_scale, &f->sinks, &f->slopes};
    struct integers *integers[] = {&f->offsets, &f->prefixes, &f->sides, &f->global, &f->cu_q, &f->cu_k};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        array_free(arrays[i]);
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        free(reals[i]->values);
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        free(integers[i]->values);
    free(f->short_factor.values);
    free(f->long_factor.values);
    free(f->query_offset);
    free(f->prefix_len);
    attn_pattern_destroy(f->pattern);
    *f = (struct forms){.options = NULL};
}
