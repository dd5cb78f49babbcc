/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of few queries: their kernels take lists of rows.
 *
 * Every row of K and V is read once, so time is that of memory, and nothing is
 * made of K and V beforehand. A list says where each row is, in pages or not.
 * Beside it goes a second one, of what is wanted after it: while the scores of a
 * tile are computed its V is on its way into L2 or L1, and while its values are added
 * the K of the next tile is. Processors fetch rows ahead where they follow each
 * other, but begin anew with every page.
 */
#include "kernels/prefetch.h"
#include "pass/pass.h"

#include <assert.h>
#include <math.h>

/** Where the rows of a tile are. */
struct row_list {
    const char *at[ATTN_KEY_BLOCK];
    const float *scale[ATTN_KEY_BLOCK];
};

/** Lists n rows from key first on. */
static void list_rows(const struct attn_pages *pages, const struct attn_rows *rows, const struct attn_page_step *step,
                      int64_t first, int n, struct row_list *list)
{
    assert(n <= ATTN_KEY_BLOCK);
    for (int at = 0; at < n;) {
        const struct attn_piece piece = attn_piece_at(pages, rows, step, first + at, n - at);
        const char *row = piece.rows.data;
        const float *scale = piece.rows.scale;
        if (scale) {
            for (int i = 0; i < piece.n; i++, row += piece.rows.stride, scale += piece.rows.scale_stride) {
                list->at[at + i] = row;
                list->scale[at + i] = scale;
            }
        } else {
            for (int i = 0; i < piece.n; i++, row += piece.rows.stride)
                list->at[at + i] = row;
        }
        at += piece.n;
    }
}

/** Lists n rows from key first on, of width elements, to be asked for while others are at work; and asks for their
 * scales. */
static void list_next(const struct attn_pages *pages, const struct attn_rows *rows, const struct attn_page_step *step,
                      int64_t first, int n, int64_t width, int near, const char **list, struct attn_listed_rows *others)
{
    assert(n <= ATTN_KEY_BLOCK);
    enum { LINE = ATTN_ALIGN / sizeof(float) };
    const int64_t scales = attn_row_scales(rows->dtype, width);
    const int64_t line =
        scales > 0 && scales < LINE ? LINE / scales : 1; /* rows whose scales have a line, if side by side */
    for (int at = 0; at < n;) {
        const struct attn_piece piece = attn_piece_at(pages, rows, step, first + at, n - at);
        for (int64_t i = 0; rows->scale && i < piece.n; i += line)
            for (int64_t g = 0; g < scales; g += LINE)
                prefetch_line((const char *)(piece.rows.scale + i * piece.rows.scale_stride + g), 0);
        const char *row = piece.rows.data;
        for (int i = 0; i < piece.n; i++, row += piece.rows.stride)
            list[at + i] = row;
        at += piece.n;
    }
    others->next = list;
    others->num_next = n;
    others->near = near;
    others->next_bytes = (ptrdiff_t)attn_row_bytes(rows->dtype, width);
}

/** Whether all scales of n rows of K, or V, from key first on, are finite. */
static int scales_are_finite(const struct pass *pass, const struct attn_rows *rows, const struct attn_page_step *step,
                             int64_t first, int n, int64_t width)
{
    const int64_t scales = attn_row_scales(rows->dtype, width);
    const struct attn_value_kernels *const floats = pass->work->kernels->plain;
    int finite = 1;
    for (int at = 0; at < n;) {
        const struct attn_piece piece = attn_piece_at(&pass->work->pages, rows, step, first + at, n - at);
        const char *const numbers = (const char *)piece.rows.scale;
        const int side_by_side = piece.rows.scale_stride == scales;
        finite &= floats->finite(numbers, piece.rows.scale_stride * ATTN_WORD, side_by_side ? 1 : piece.n,
                                 side_by_side ? piece.n * scales : scales);
        at += piece.n;
    }
    return finite;
}

/** Looks at them, if somebody asks: just before kernels read them. */
static void look_at_scales(const struct pass *pass, const struct attn_rows *rows, const struct attn_page_step *step,
                           int64_t first, int n, int64_t width)
{
    if (!pass->looks)
        return;
    if (!scales_are_finite(pass, rows, step, first, n, width))
        pass->looks->wrong = 1;
    pass->looks->rows += n;
}

/** Whether no number of n rows of V in E4M3 from key first on is NaN; infinities it has none. */
static int f8_values_are_finite(const struct attn_work *work, int64_t first, int n)
{
    int finite = 1;
    for (int at = 0; at < n && finite;) {
        const struct attn_piece piece = attn_piece_at(&work->pages, &work->v, &work->pages.v_step, first + at, n - at);
        for (int i = 0; i < piece.n; i++) {
            const char *const row = row_of(&piece.rows, i);
            for (int64_t c = 0; c < work->dv; c++)
                finite &= (row[c] & 0x7f) != 0x7f;
        }
        at += piece.n;
    }
    return finite;
}

int attn_stored_values_are_finite(const struct pass *pass, const struct key_block *keys, const struct unit *unit)
{
    const struct attn_work *work = pass->work;
    const int64_t first = keys->first + unit->run.lo;
    return scales_are_finite(pass, &work->v, &work->pages.v_step, first, unit->n, work->dv) &&
           (work->v.dtype != ATTN_F8_E4M3 || f8_values_are_finite(work, first, unit->n));
}

int attn_few_take_rows(const struct pass *pass)
{
    const struct attn_work *work = pass->work;
    if (!pass->few || !pass->scores->scores_of_few || has_relative(work))
        return 0;
    return !pass->scratch.k || (pass->scores->channels_per_word == 1 && !work->rope.k.data);
}

/** Where the words of a strip's queries lie row by row: behind those in lane order, where a full strip would have
 * more. */
float *attn_query_rows(const struct pass *pass, const struct strip *strip)
{
    return strip->q + pass->vectors->lanes * attn_channel_words(pass->scores, pass->work->dk);
}

/** The same in the order of the numbers of ATTN_I4. */
static void turn_for_int4(const struct pass *pass, const struct strip *strip)
{
    const int64_t dk = pass->work->dk, pitch = 2 * attn_int4_words(dk), slice = 4 * ATTN_I4_GROUP;
    uint16_t *const rows = (uint16_t *)(void *)attn_query_rows(pass, strip);
    const uint16_t *const from = (const uint16_t *)(const void *)strip->q;
    for (int r = 0; r < strip->rows; r++)
        for (int64_t i = 0; i < pitch; i++) {
            const int64_t c = i - i % slice + attn_int4_channel((int)(i % slice));
            rows[r * pitch + i] = c < dk ? from[2 * (c / 2 * strip->width + r) + c % 2] : 0;
        }
}

void attn_turn_queries(const struct pass *pass, const struct strip *strip)
{
    if (pass->work->kernels->exact_pairs && pass->work->k.dtype == ATTN_I4) {
        turn_for_int4(pass, strip);
        return;
    }
    const int64_t words = attn_channel_words(pass->scores, pass->work->dk);
    float *const rows = attn_query_rows(pass, strip);
    assert(strip->nv == 1 && 2 * pass->vectors->lanes <= pass->work->kernels->strip);
    for (int r = 0; r < strip->rows; r++)
        for (int64_t c = 0; c < words; c++)
            memcpy(rows + r * words + c, strip->q + c * strip->width + r, sizeof *rows);
}

void attn_few_scores(const struct pass *pass, const struct strip *strip, const struct key_block *keys, int lo, int n,
                     struct attn_score_operands *operands, float *max)
{
    const struct attn_work *work = pass->work;
    const struct attn_pages in_words = {.size = 0};
    const struct attn_rows words = {(void *)(uintptr_t)operands->k, keys->k_stride, ATTN_F32, NULL, 0};
    struct row_list list;
    const char *next[ATTN_KEY_BLOCK];
    struct attn_listed_rows *const listed = &operands->listed;
    if (keys->k) {
        list_rows(&in_words, &words, NULL, 0, n, &list);
    } else {
        look_at_scales(pass, &work->k, &work->pages.k_step, keys->first + lo, n, work->dk);
        list_rows(&work->pages, &work->k, &work->pages.k_step, keys->first + lo, n, &list);
    }
    *listed =
        (struct attn_listed_rows){.at = list.at, .scale = list.scale, .dtype = keys->k ? ATTN_F32 : work->k.dtype};
    if (pass->few && !work->weight_callback)
        list_next(&work->pages, &work->v, &work->pages.v_step, keys->first + lo, n, work->dv,
                  work->kernels->fetches_near, next, listed);
    if (attn_sums_across(work, listed->dtype)) {
        operands->q = attn_query_rows(pass, strip);
        pass->scores->scores_free(operands, n, max);
    } else {
        pass->scores->scores_of_few(operands, n, max);
    }
}

void attn_few_values(const struct pass *pass, const struct key_block *keys, const struct unit *unit, int n,
                     enum attn_accumulate mode, const float *alpha)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    struct row_list list;
    const char *next_keys[ATTN_KEY_BLOCK];
    struct attn_few_values few = {.p = pass->scratch.s,
                                  .dv = work->dv,
                                  .rows = strip->rows,
                                  .keys = n,
                                  .free = attn_frees_scales(work),
                                  .o = strip->o,
                                  .mode = mode,
                                  .alpha = alpha};
    look_at_scales(pass, &work->v, &work->pages.v_step, keys->first + unit->run.lo, n, work->dv);
    list_rows(&work->pages, &work->v, &work->pages.v_step, keys->first + unit->run.lo, n, &list);
    few.v = (struct attn_listed_rows){.at = list.at, .scale = list.scale, .dtype = work->v.dtype};
    int64_t next = keys->first + pass->scratch.key_block, end;
    if (work->view.pattern_size)
        attn_next_listed(work, strip, keys->first + unit->run.hi, &next, &end);
    if (pass->few && next < pass->end) {
        const int ahead = pass->end - next < n ? (int)(pass->end - next) : n;
        list_next(&work->pages, &work->k, &work->pages.k_step, next, ahead, work->dk, work->kernels->fetches_near,
                  next_keys, &few.v);
    }
    pass->values->values_of_few(&few);
}

/** Whether a query sees a key of a tile. */
static int sees(const struct attn_tile_mask *mask, int key, int lane)
{
    return mask->kind == MASK_NONE       ? 1
           : mask->kind == MASK_DIAGONAL ? key <= lane + mask->diagonal
           : mask->kind == MASK_LIVE     ? mask->live[key * mask->live_pitch + lane] != 0
           : mask->kind == MASK_BIAS     ? mask->bias[key * mask->bias_pitch + lane] != -INFINITY
                                         : 0;
}

void attn_few_values_seen(const struct pass *pass, const struct key_block *keys, const struct unit *unit, int n,
                          enum attn_accumulate mode, const float *alpha)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    char *const zeros = pass->scratch.zero_row;
    memset(zeros, 0, (size_t)attn_zero_row_size(work->dv));
    for (int r = 0; r < strip->rows; r++) {
        struct row_list list;
        list_rows(&work->pages, &work->v, &work->pages.v_step, keys->first + unit->run.lo, n, &list);
        for (int j = 0; j < n; j++)
            if (!sees(&unit->mask, j, r)) {
                list.at[j] = zeros;
                list.scale[j] = (const float *)(const void *)zeros;
            }
        const struct attn_few_values few = {.p = pass->scratch.s + r,
                                            .v = {.at = list.at, .scale = list.scale, .dtype = work->v.dtype},
                                            .dv = work->dv,
                                            .rows = 1,
                                            .keys = n,
                                            .free = 1,
                                            .o = strip->o + r * work->dv,
                                            .mode = mode,
                                            .alpha = alpha + r};
        pass->values->values_of_few(&few);
    }
}
