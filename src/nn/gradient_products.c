/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products over rows. They are computed by the function that sums over
 * queries in attention's backward pass (kernels/row_sums.h): columns are the
 * lanes, and an element of the left factor is broadcast against vectors of a row
 * of the right one. So neither factor is packed, and of the two gradients of a
 * product only one needs its left factor turned:
 *
 *     d_x       = d_out W          left: rows of d_out as they lie      right: rows of W as they lie
 *     d_weights = d_outᵀ x         left: d_out turned, DEPTH rows at a time; right: rows of x as they lie
 *
 *     for each task: ROWS rows (more of few columns) by some columns        sums: L2
 *         for each SPAN terms                                               sums from 0, joined to those before
 *             for each DEPTH terms                                          its part of the left factor: L2
 *                 all rows and columns of the task, by register tiles
 *
 * What is narrower than f32, or does not lie in rows of one distance, is copied
 * for each DEPTH terms.
 */
#include "nn/gradient_products.h"

#include "api/environment.h"
#include "dispatch.h"
#include "driver/ranges.h"
#include "kernels/gradient_sums.h"
#include "nn/check.h"
#include "nn/tensor_rows.h"

#include <string.h>

/** SPAN: a short sum loses less than a long one. COLUMNS are halved where there are few tasks; no bit follows from it.
 * UNIT_ROWS and UNIT_COLUMNS are multiples of what a register tile has. */
enum { ROWS = 96, COLUMNS = 256, LEAST_COLUMNS = 64, DEPTH = 256, SPAN = 1024, UNIT_ROWS = 6, UNIT_COLUMNS = 64 };

/** What a thread works in. */
struct scratch {
    float total[ROWS * COLUMNS], sums[ROWS * COLUMNS], left[ROWS * DEPTH], right[DEPTH * COLUMNS];
};

/** Products and their cut: each has as many tasks. */
struct work {
    const struct nn_gradient_products *products;
    const struct attn_nn_kernels *layers;
    struct attn_kernels kernels;
    int64_t rows, columns, depth; /**< of a task; terms between two looks at its sums */
    int64_t tasks_of_rows, tasks_of_product, tasks;
    int shares;
    struct scratch *scratch;
    atomic_llong *next; /**< task to be handed out */
};

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ------------------------------------------------------------------ factors -- */

static const char *row_of(const struct nn_factor *factor, int64_t row)
{
    const attn_tensor *t = factor->tensor;
    return factor->is_weights ? nn_weight_address(t, row, 0) : nn_row_address(t, row / t->shape[2], row % t->shape[2]);
}

/** How many of the rows from one on lie at one distance. */
static int64_t rows_together(const struct nn_factor *factor, int64_t row, int64_t n)
{
    const attn_tensor *t = factor->tensor;
    return factor->is_weights || nn_rows_join(t) ? n : least_of(n, t->shape[2] - row % t->shape[2]);
}

static ptrdiff_t distance(const struct nn_factor *factor)
{
    const attn_tensor *t = factor->tensor;
    const int axis = t->shape[2] > 1 || factor->is_weights ? 2 : 0;
    return t->shape[axis] > 1 ? (ptrdiff_t)(t->stride[axis] * attn_element_size(t->dtype)) : 0;
}

/** Whether channels of a factor are neighbours. */
static int has_rows(const struct nn_factor *factor)
{
    return factor->tensor->shape[3] <= 1 || factor->tensor->stride[3] == 1;
}

/** Columns c.. of rows first.. as floats: where they lie, or in room. Sets their distance in bytes. */
static const char *take_rows(const struct work *w, const struct nn_factor *factor, int64_t first, int64_t n, int64_t c,
                             int64_t columns, float *room, ptrdiff_t *stride)
{
    const attn_tensor *t = factor->tensor;
    *stride = (ptrdiff_t)(columns * (int64_t)sizeof(float));
    if (!t) {
        for (int64_t i = 0; i < n * columns; i++)
            room[i] = 1.0f;
        return (const char *)room;
    }
    const int64_t at = c * attn_element_size(t->dtype);
    if (!has_rows(factor)) {
        for (int64_t i = 0; i < n * columns; i++)
            room[i] = nn_weight_at(t, first + i / columns, c + i % columns);
        return (const char *)room;
    }
    if (t->dtype == ATTN_F32 && rows_together(factor, first, n) == n) {
        *stride = distance(factor);
        return row_of(factor, first) + at;
    }
    for (int64_t i = 0; i < n;) {
        const int64_t some = rows_together(factor, first + i, n - i);
        const struct attn_rows rows = {(char *)row_of(factor, first + i) + at, distance(factor), t->dtype, NULL, 0};
        w->kernels.vectors->widen(room + i * columns, &rows, (int)some, columns);
        i += some;
    }
    return (const char *)room;
}

/** Rows j.. of the left factor turned, terms first..: [n][DEPTH]. */
static void turn_rows(const struct work *w, const struct nn_factor *factor, int64_t first, int terms, int64_t j,
                      int64_t n, float *room)
{
    const attn_tensor *t = factor->tensor;
    const int lanes = w->kernels.vectors->lanes, width = (terms + lanes - 1) / lanes * lanes;
    const char *rows[DEPTH];
    for (int i = 0; i < terms; i++)
        rows[i] = row_of(factor, first + i) + j * attn_element_size(t->dtype);
    w->kernels.vectors->read_rows(room, DEPTH, width, rows, t->dtype, terms, n, 1.0f);
}

/* --------------------------------------------------------------------- sums -- */

/** Adds n terms from first on to the sums of rows j.. and columns c... */
static void add_terms(const struct work *w, const struct nn_gradient_product *p, struct scratch *s, int64_t first,
                      int64_t n, int64_t j, int64_t rows, int64_t c, int64_t columns)
{
    struct attn_row_sums sums = {
        .keys = (int)rows, .rows = (int)n, .diagonal = ATTN_NO_DIAGONAL, .channels = columns, .sum = s->sums};
    sums.x = take_rows(w, &p->right, first, n, c, columns, s->right, &sums.x_stride);
    if (p->turned) {
        turn_rows(w, &p->left, first, (int)n, j, rows, s->left);
        sums.p = (const char *)s->left;
        sums.pitch = DEPTH * (ptrdiff_t)sizeof(float);
    } else
        sums.p = take_rows(w, &p->left, j, rows, first, n, s->left, &sums.pitch);
    w->kernels.gradients->add_rows(&sums);
}

static void run_task(const struct work *w, const struct nn_gradient_product *p, int64_t task, struct scratch *s)
{
    const attn_tensor *to = p->to;
    const int64_t j = task % w->tasks_of_rows * w->rows, c = task / w->tasks_of_rows * w->columns;
    const int64_t rows = least_of(w->rows, p->rows - j), columns = least_of(w->columns, p->columns - c);
    const size_t bytes = (size_t)(rows * columns) * sizeof(float);
    memset(s->total, 0, bytes);
    for (int64_t first = 0; first < p->terms; first += SPAN) {
        const int64_t end = least_of(first + SPAN, p->terms);
        memset(s->sums, 0, bytes);
        for (int64_t at = first; at < end; at += w->depth)
            add_terms(w, p, s, at, least_of(w->depth, end - at), j, rows, c, columns);
        for (int64_t i = 0; i < rows * columns; i++)
            s->total[i] = first ? s->total[i] + s->sums[i] : s->sums[i];
    }
    for (int64_t i = 0; i < rows; i++)
        w->layers->embed(&(struct nn_embed_work){
            .row = {s->total + i * columns, ATTN_F32},
            .scale = 1,
            .accumulate = p->accumulate,
            .n = columns,
            .out = (char *)nn_row_address(to, (j + i) / to->shape[2], (j + i) % to->shape[2]) +
                   c * attn_element_size(to->dtype),
            .out_dtype = to->dtype,
        });
}

/** Tasks that nobody else has, in scratch memory of a share's own. */
static void run_shares(const void *context, int64_t first, int64_t end)
{
    const struct work *w = context;
    int64_t task;
    for (int64_t share = first; share < end; share++)
        while ((task = atomic_fetch_add_explicit(w->next, 1, memory_order_relaxed)) < w->tasks) {
            struct nn_listed_product listed = {0};
            nn_progress_count(w->products->begun);
            w->products->describe(w->products->context, task / w->tasks_of_product, &listed);
            run_task(w, &listed.product, task % w->tasks_of_product, &w->scratch[share]);
        }
}

struct nn_need nn_gradient_product_need(int threads)
{
    return (struct nn_need){ATTN_ALIGN + (size_t)threads * sizeof(struct scratch), ATTN_ALIGN + sizeof(struct scratch)};
}

static int64_t parts_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/** The length of parts of n that are no longer than size, as many as there have to be, and as equal as units allow. */
static int64_t even_part(int64_t n, int64_t size, int64_t unit)
{
    const int64_t part = parts_of(parts_of(n, parts_of(n, size)), unit) * unit;
    return least_of(part, size);
}

/** Cuts the products, the first of which is first, for so many threads. No bit follows from it. */
static void cut(struct work *w, const struct nn_gradient_product *first, int threads)
{
    const int64_t count = w->products->count, enough = threads > 1 ? 4 * (int64_t)threads : 1;
    const attn_tensor *left = first->left.tensor;
    const int in_place =
        left && left->dtype == ATTN_F32 && has_rows(&first->left) && (first->left.is_weights || nn_rows_join(left));
    w->rows = ROWS, w->columns = COLUMNS, w->depth = DEPTH;
    while (w->columns > LEAST_COLUMNS && threads > 1 &&
           count * parts_of(first->rows, w->rows) * parts_of(first->columns, w->columns) < enough)
        w->columns /= 2;
    /* Few columns leave room for the sums of more rows, so that those of the right factor are read less often. */
    while (!first->turned && 2 * w->rows * first->columns <= ROWS * COLUMNS && w->rows < first->rows &&
           w->rows < ROWS * 8 && count * parts_of(first->rows, 2 * w->rows) >= enough) {
        w->rows *= 2;
        w->depth = in_place ? DEPTH : w->depth / 2;
    }
    w->rows = even_part(first->rows, w->rows, UNIT_ROWS);
    w->columns = even_part(first->columns, w->columns, UNIT_COLUMNS);
    w->tasks_of_rows = parts_of(first->rows, w->rows);
    w->tasks_of_product = w->tasks_of_rows * parts_of(first->columns, w->columns);
    w->tasks = count * w->tasks_of_product;
    w->shares = (int)least_of(threads, w->tasks);
}

/** Cuts products for as many threads as there is room for. Without any work there are no tasks. */
static struct work work_of(const struct nn_gradient_products *products, int threads, size_t size)
{
    struct nn_listed_product first = {0};
    struct work w = {.products = products};
    if (!products->count)
        return w;
    products->describe(products->context, 0, &first);
    if (!first.product.rows || !first.product.columns)
        return w;
    const int64_t room = (int64_t)((size - (ATTN_ALIGN - 1)) / sizeof(struct scratch));
    const double operations = (double)products->count * (double)first.product.rows * (double)first.product.columns *
                              (double)(products->most_terms + 1) / 8;
    cut(&w, &first.product, (int)least_of(room, nn_threads(threads, operations)));
    return w;
}

int64_t nn_gradient_product_tasks(const struct nn_gradient_products *products, int threads, size_t size)
{
    return work_of(products, threads, size).tasks;
}

void nn_gradient_products(const struct nn_gradient_products *products, int threads, void *scratch, size_t size)
{
    struct work w = work_of(products, threads, size);
    atomic_llong next = 0;
    w.next = &next;
    w.layers = attn_nn_kernels_active();
    w.kernels = attn_kernels_plain(products->isa ? products->isa : attn_environment()->max_isa);
    w.scratch = (struct scratch *)(void *)((char *)scratch + (size_t)(-(uintptr_t)scratch % ATTN_ALIGN));
    if (w.tasks)
        attn_run_ranges(w.shares, w.shares, run_shares, &w);
}

/** A list of one. */
static void describe_itself(const void *context, int64_t n, struct nn_listed_product *product)
{
    (void)n;
    product->product = *(const struct nn_gradient_product *)context;
}

void nn_gradient_product(const struct nn_gradient_product *product, int threads, void *scratch, size_t size)
{
    nn_gradient_products(
        &(struct nn_gradient_products){
            .count = 1, .describe = describe_itself, .context = product, .most_terms = product->terms},
        threads, scratch, size);
}
