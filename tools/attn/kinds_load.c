/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arrays that belong to kinds of attention, and the sizes of what they give.
 * Types and numbers of dimensions are looked at here; whether lengths fit those
 * of q, k and v is the library's to judge.
 */
#include "kinds.h"

/* What an array may hold. */
enum holds { NOTHING, FLOATS, F32, BOOLS };

/* What the options name: a matrix for all heads or not, or something with tokens in the layout of q. */
static const struct {
    enum holds holds;
    int least, most; /* dimensions */
    bool tokens;
    const char *axes;
} files[KIND_OPTIONS] = {
    [OPTION_WQ] = {FLOATS, 2, 2, false, "2 dimensions: inner channel, channel of q"},
    [OPTION_WK] = {FLOATS, 2, 2, false, "2 dimensions: inner channel, channel of k"},
    [OPTION_SCORE_V] = {FLOATS, 1, 1, false, "1 dimension: inner channel"},
    [OPTION_SCORE_BIAS] = {FLOATS, 1, 1, false, "1 dimension: inner channel"},
    [OPTION_DECAY] = {FLOATS, 2, 4, true, "2 to 4 dimensions, in the layout of v"},
    [OPTION_BETA] = {FLOATS, 2, 4, true, "2 to 4 dimensions, in the layout of v"},
    [OPTION_STATE_IN] = {F32, 2, 4, false, "2 to 4 dimensions: sequence, head, row, column"},
    [OPTION_RESETS] = {BOOLS, 2, 4, true, "2 to 4 dimensions, in the layout of v"},
    [OPTION_PROJECTION] = {F32, 2, 3, false, "2 or 3 dimensions: feature, channel, or head, feature, channel"},
    [OPTION_PROJECT_K] = {FLOATS, 2, 3, false, "2 or 3 dimensions: row, token, or head, row, token"},
    [OPTION_PROJECT_V] = {FLOATS, 2, 3, false, "2 or 3 dimensions: row, token, or head, row, token"},
};

bool kinds_reads(enum kind_option option)
{
    return files[option].holds != NOTHING;
}

static bool fits(enum holds holds, enum array_dtype dtype)
{
    bool narrow = dtype == ARRAY_F16 || dtype == ARRAY_BF16;
    return holds == BOOLS ? dtype == ARRAY_BOOL : dtype == ARRAY_F32 || (holds == FLOATS && narrow);
}

static attn_status load(struct kinds *k, enum kind_option i, bool bthd)
{
    static const char *const types[] = {[FLOATS] = "float32, float16 or bfloat16", [F32] = "float32", [BOOLS] = "bool"};
    const struct option *option = &k->options[i];
    char text[ARRAY_SHAPE_TEXT];
    struct array_file file;
    CHECK(array_open(&file, option->value));
    attn_status status = ATTN_OK;
    if (!fits(files[i].holds, file.is.dtype))
        status = io_fail(ATTN_INVALID_FILE, "--%s %s has dtype %s; expected %s", option->name, option->value,
                         array_dtype_name(file.is.dtype), types[files[i].holds]);
    else if (file.is.ndim < files[i].least || file.is.ndim > files[i].most)
        status = io_fail(ATTN_INVALID_FILE, "--%s %s has shape %s; expected %s", option->name, option->value,
                         array_shape_text(&file.is, text), files[i].axes);
    if (status == ATTN_OK)
        status = array_take(&k->arrays[i], &file);
    array_close(&file);
    if (status == ATTN_OK)
        k->views[i] = inputs_view(&k->arrays[i], bthd && files[i].tokens);
    return status;
}

attn_status kinds_load(struct kinds *k, bool bthd)
{
    for (int i = 0; i < KIND_OPTIONS; i++) {
        if (files[i].holds != NOTHING && k->options[i].value != NULL)
            CHECK(load(k, (enum kind_option)i, bthd));
    }
    return ATTN_OK;
}

void kinds_free(struct kinds *k)
{
    for (int i = 0; i < KIND_OPTIONS; i++)
        array_free(&k->arrays[i]);
}

const attn_tensor *kinds_tensor(const struct kinds *k, enum kind_option option)
{
    return k->options[option].value != NULL ? &k->views[option] : NULL;
}

/* ------------------------------------------------------- sizes of results -- */

static bool has_state(const struct kinds *k)
{
    return k->kind != KIND_SOFTMAX && k->kind != KIND_ADDITIVE && k->kind != KIND_LINFORMER;
}

int64_t kinds_heads(const struct kinds *k, const struct inputs *in)
{
    int64_t q = in->q_view.shape[1], v = in->v_view.shape[1];
    return has_state(k) && v > q ? v : q;
}

int64_t kinds_keys(const struct kinds *k, const struct inputs *in)
{
    return k->kind == KIND_LINFORMER ? k->views[OPTION_PROJECT_K].shape[2] : in->k_view.shape[2];
}

void kinds_state(const struct kinds *k, const struct inputs *in, int64_t shape[4])
{
    bool divides = k->kind == KIND_PERFORMER || k->options[OPTION_NORMALISE].value != NULL;
    shape[0] = forms_sequences(&in->forms, in->q_view.shape[0]);
    shape[1] = in->v_view.shape[1];
    shape[2] = k->kind != KIND_PERFORMER                     ? in->q_view.shape[3]
               : k->options[OPTION_PROJECTION].value != NULL ? k->views[OPTION_PROJECTION].shape[2]
                                                             : k->features;
    shape[3] = in->v_view.shape[3] + divides;
}
