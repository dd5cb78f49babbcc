/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands around the walks of a backward pass where linear attention has a
 * feature map, or divides by a sum.
 *
 * Features phi(q) and phi(k) are made once, and walks go over them as if they were q and
 * k. What they give, dphi, becomes the gradient of x, which is q or k, by
 *
 *     elu(x) + 1                        dx = dphi min(phi, 1)
 *     phi_r = e^(w_r x' - x'x' / 2)     dx' = the sum over r of dphi_r phi_r (w_r - x'),   x' = sqrt(scale) x
 *
 * where features of queries leave x'x' / 2 out, and by what number they have been
 * divided does not matter: it cancels in out.
 *
 * An average out = num / den of a row is a pair of numbers, for which S has a column
 * more, to which each token writes its key times 1 (Katharopoulos et al. 2020, equation 9):
 *
 *     dnum = dout / den,   dden = -(dout out) / den
 *
 * so with these behind each other in place of dout, and a 1 behind v, walks are those
 * of a plain sum.
 */
#include "driver/linear_features.h"

#include "driver/tensors.h"

#include <float.h>
#include <math.h>
#include <string.h>

/** Tokens of a task that makes features: a projection is turned once for them. */
#define FEATURE_TOKENS (8 * ATTN_CHUNK)

/** Blocks of so many tokens of a batch element. */
static int64_t blocks_of(const struct attn_linear_backward *call, int64_t tokens)
{
    return (call->forward.v.shape[2] + tokens - 1) / tokens;
}

/** A block of a head of a batch element. */
struct block {
    int64_t batch, head, first, end;
};

/** Block number i of those of heads heads; its end is behind the last token that a sequence has. */
static struct block block_of(const struct attn_linear_backward *call, int64_t i, int64_t heads, int64_t tokens)
{
    const int64_t blocks = blocks_of(call, tokens), batch = i / blocks / heads;
    const int64_t live = attn_linear_live(&call->forward, batch), first = i % blocks * tokens;
    const int64_t end = first + tokens < live ? first + tokens : live;
    return (struct block){batch, i / blocks % heads, first, end < first ? first : end};
}

/* ---------------------------------------------------------------- features -- */

/** Rows become features in a region. */
static void make_features(const struct attn_run *run, const struct block *b, int64_t state, const attn_tensor *t,
                          int64_t head, const struct attn_linear_rows *to, int keys, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    struct attn_state_scratch layout;
    attn_state_layout(&layout, scratch, &call->cut.features);
    const struct attn_state_work w = {.kernels = &run->geometry->kernels,
                                      .shape = &call->cut.features,
                                      .projection = attn_linear_head(&call->forward.projection, 0, state, 0, 0),
                                      .scale = call->forward.scale,
                                      .scratch = &layout};
    if (b->first < b->end)
        attn_state_begin_features(&w);
    for (int64_t at = b->first; at < b->end; at += ATTN_CHUNK) {
        const int n = b->end - at < ATTN_CHUNK ? (int)(b->end - at) : ATTN_CHUNK;
        const struct attn_rows rows = attn_linear_head(t, b->batch, head, at, 0);
        attn_state_floats(&w, &rows, n, keys, attn_linear_region_rows(run, to, b->batch, b->head, at, 0).data);
    }
}

/** Rows of v, each with a 1 behind it. */
static void copy_values(const struct attn_run *run, const struct block *b)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_rows *to = &call->cut.v;
    const int64_t columns = call->forward.v.shape[3];
    for (int64_t t = b->first; t < b->end; t++) {
        const struct attn_rows row = attn_linear_head(&call->forward.v, b->batch, b->head, t, 0);
        float *const copy = attn_linear_region_rows(run, to, b->batch, b->head, t, 0).data;
        if (columns > 0)
            run->geometry->kernels.states->take_rows(copy, (ptrdiff_t)to->pitch, &row, 1, columns, 1.0f);
        copy[columns] = 1.0f;
    }
}

/** Tasks of features of q, of those of k, and of values. */
static void count_features(const struct attn_linear_backward *call, int64_t tasks[3])
{
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_linear_rows *const rows[3] = {&cut->q, &cut->k, &cut->v};
    for (int i = 0; i < 3; i++)
        tasks[i] =
            rows[i]->region.bytes > 0 ? call->forward.v.shape[0] * rows[i]->heads * blocks_of(call, FEATURE_TOKENS) : 0;
}

int64_t attn_linear_features_tasks(const struct attn_linear_backward *call)
{
    int64_t tasks[3];
    count_features(call, tasks);
    return tasks[0] + tasks[1] + tasks[2];
}

void attn_linear_features_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_attention *f = &call->forward;
    int64_t tasks[3];
    count_features(call, tasks);
    if (task < tasks[0]) {
        const struct block b = block_of(call, task, call->cut.heads, FEATURE_TOKENS);
        const struct attn_linear_heads heads = attn_linear_heads_of(f, b.head);
        make_features(run, &b, heads.state, &f->q, heads.q, &call->cut.q, 0, scratch);
        return;
    }
    task -= tasks[0];
    const int keys = task < tasks[1];
    const struct block b = block_of(call, keys ? task : task - tasks[1], f->v.shape[1], FEATURE_TOKENS);
    if (keys)
        make_features(run, &b, b.head, &f->k, b.head / (f->v.shape[1] / f->k.shape[1]), &call->cut.k, 1, scratch);
    else
        copy_values(run, &b);
}

/* -------------------------------------------------------------------- sums -- */

int64_t attn_linear_sums_tasks(const struct attn_linear_backward *call)
{
    return call->cut.d_out.region.bytes > 0 ? call->forward.num_sequences * call->cut.heads : 0;
}

/** What each row of out was divided by, in the column behind its gradient. */
static void find_sums(const struct attn_run *run, int64_t sequence, const struct attn_linear_sequence *s, int64_t head,
                      void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_attention *f = &call->forward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_linear_heads h = attn_linear_heads_of(f, head);
    const int64_t column = f->v.shape[3];
    struct attn_state_scratch layout;
    attn_state_layout(&layout, scratch, &cut->sums);
    struct attn_state_work w = attn_linear_work(f, &run->geometry->kernels);
    attn_linear_place(&w, f, s, h.state);
    w.shape = &cut->sums;
    w.scratch = &layout;
    w.values = w.columns = w.results = 1;
    w.q = attn_linear_head(&f->q, s->batch, h.q, s->first, 0);
    w.k = attn_linear_head(&f->k, s->batch, h.k, s->first, 0);
    if (attn_linear_has_map(call)) {
        w.q = attn_linear_region_rows(run, &cut->q, s->batch, head, s->first, 0);
        w.k = attn_linear_region_rows(run, &cut->k, s->batch, h.state, s->first, 0);
    }
    w.v = attn_linear_region_rows(run, &cut->v, s->batch, h.state, s->first, column);
    w.out = attn_linear_region_rows(run, &cut->d_out, s->batch, head, s->first, column);
    w.state_in = attn_linear_state(&f->state_in, sequence, h.state, 0, column);
    w.in_pitch = (ptrdiff_t)attn_step_of(&f->state_in, 2);
    attn_state_pass(&w);
}

void attn_linear_sums_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_kernels *kernels = &run->geometry->kernels;
    const int64_t sequence = task / call->cut.heads, head = task % call->cut.heads, columns = call->forward.v.shape[3];
    const struct attn_linear_sequence s = attn_linear_sequence_of(&call->forward, sequence);
    find_sums(run, sequence, &s, head, scratch);
    for (int64_t t = s.first; t < s.first + s.tokens; t++) {
        const struct attn_rows d = attn_linear_head(&call->forward.out, s.batch, head, t, 0);
        const struct attn_rows out = attn_linear_head(&call->out, s.batch, head, t, 0);
        float *const row = attn_linear_region_rows(run, &call->cut.d_out, s.batch, head, t, 0).data;
        const float sum = row[columns], factor = fabsf(sum) < FLT_MIN ? 0.0f : 1.0f / sum; /* where out is 0 */
        float product = 0.0f;
        if (columns > 0) {
            kernels->vectors->dot_rows(&product, &d, &out, 1, columns);
            kernels->states->take_rows(row, (ptrdiff_t)call->cut.d_out.pitch, &d, 1, columns, factor);
        }
        row[columns] = factor == 0.0f ? 0.0f : -product * factor;
    }
}

/* -------------------------------------------------------------------- ends -- */

int64_t attn_linear_ends_tasks(const struct attn_linear_backward *call)
{
    const struct attn_linear_backward_cut *cut = &call->cut;
    const int64_t each = call->forward.v.shape[0] * cut->blocks;
    return (cut->d_q.region.bytes > 0 ? each * call->forward.q.shape[1] : 0) +
           (cut->d_k.region.bytes > 0 ? each * call->forward.k.shape[1] : 0);
}

/** Scratch memory of such a task. */
struct ends {
    float *sums;  /**< [ATTN_CHUNK][pitch] gradients of rows */
    float *panel; /**< [features][panel] columns of the projection */
    float *part;  /**< [ATTN_CHUNK][panel] */
    float *row;   /**< [pitch] */
    int64_t pitch;
};

static struct ends lay_out(const struct attn_linear_backward *call, float *at, size_t *floats)
{
    const struct attn_state_kernels *states = call->cut.geometry.kernels.states;
    struct ends e = {.pitch = attn_in_steps(call->forward.q.shape[3], states->lanes)};
    e.sums = at;
    const size_t sums = (size_t)(ATTN_CHUNK * e.pitch), panel = (size_t)(call->cut.dk * states->panel);
    const size_t part = (size_t)(ATTN_CHUNK * states->panel), row = (size_t)e.pitch;
    *floats = sums + panel + part + row;
    if (at) {
        e.panel = at + sums;
        e.part = e.panel + panel;
        e.row = e.part + part;
    }
    return e;
}

size_t attn_linear_ends_scratch(const struct attn_linear_backward *call)
{
    size_t floats;
    (void)lay_out(call, NULL, &floats);
    return call->forward.params.map == ATTN_FEATURES_NONE ? 0 : attn_aligned(floats * sizeof(float));
}

/** sums of n rows of d += those of features times rows of the projection. */
static void project_back(const struct attn_run *run, const struct ends *e, const struct attn_rows *projection,
                         const float *d, int64_t pitch, int n)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_state_kernels *states = run->geometry->kernels.states;
    const int64_t inputs = call->forward.q.shape[3], features = call->cut.dk;
    const float root = sqrtf(call->forward.scale);
    for (int64_t start = 0; start < inputs; start += states->panel) {
        const int64_t left = e->pitch - start, width = left < states->panel ? left : states->panel;
        const int64_t own = inputs - start < width ? inputs - start : width;
        struct attn_rows columns = *projection;
        columns.data = (float *)columns.data + start;
        for (int64_t r = 0; r < features; r += ATTN_CHUNK) {
            const struct attn_rows rows = attn_rows_from(&columns, r);
            const int count = features - r < ATTN_CHUNK ? (int)(features - r) : ATTN_CHUNK;
            states->take_rows(e->panel + r * width, (ptrdiff_t)width, &rows, count, own, root);
        }
        const struct attn_chunk_panel product = {.n = n,
                                                 .width = (int)width,
                                                 .dk = features,
                                                 .a = d,
                                                 .a_pitch = (ptrdiff_t)pitch,
                                                 .o = e->part,
                                                 .s = e->panel};
        states->read(&product);
        for (int i = 0; i < n; i++)
            states->add_numbers(e->sums + i * e->pitch + start, e->part + i * width, width);
    }
}

/** Features that have been held have e^60, to a few units in the last place. */
#define HELD 1.142e26f

/** What features of n rows from first on of a head give to sums: d becomes dphi phi. */
static void end_rows(const struct attn_run *run, const struct ends *e, const struct block *b, int64_t head,
                     int64_t state, int keys, const struct attn_rows *x)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_linear_rows *const of = keys ? &cut->k : &cut->q, *const gradients = keys ? &cut->d_k : &cut->d_q;
    const float *phi = attn_linear_region_rows(run, of, b->batch, head, b->first, 0).data;
    float *const d = attn_linear_region_rows(run, gradients, b->batch, head, b->first, 0).data;
    const int n = (int)(b->end - b->first), positive = call->forward.params.map == ATTN_FEATURES_POSITIVE;
    for (int i = 0; i < n; i++) {
        float *const row = d + i * of->pitch, *const to = e->sums + i * e->pitch;
        const float *const feature = phi + i * of->pitch;
        float sum = 0.0f;
        for (int64_t r = 0; r < cut->dk; r++) {
            if (positive)
                row[r] = keys && feature[r] >= HELD ? 0.0f : row[r] * feature[r];
            else
                to[r] += row[r] * (feature[r] > 1.0f ? 1.0f : feature[r]);
            sum += positive ? row[r] : 0.0f;
        }
        if (!positive || !keys)
            continue;
        const struct attn_rows key = attn_rows_from(x, i);
        run->geometry->kernels.states->take_rows(e->row, (ptrdiff_t)e->pitch, &key, 1, call->forward.q.shape[3],
                                                 -call->forward.scale * sum);
        run->geometry->kernels.states->add_numbers(to, e->row, e->pitch);
    }
    const struct attn_rows projection = attn_linear_head(&call->forward.projection, 0, state, 0, 0);
    if (positive && n > 0)
        project_back(run, e, &projection, d, of->pitch, n);
}

void attn_linear_ends_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_attention *f = &call->forward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const int64_t of_q = cut->d_q.region.bytes > 0 ? f->v.shape[0] * f->q.shape[1] * cut->blocks : 0;
    const int keys = task >= of_q;
    const attn_tensor *const x = keys ? &f->k : &f->q, *const d = &call->d[keys ? ATTN_SIDE_K : ATTN_SIDE_Q];
    const struct block b = block_of(call, keys ? task - of_q : task, x->shape[1], ATTN_CHUNK);
    const int64_t rest = f->v.shape[2] - b.first, end = b.first + (rest < ATTN_CHUNK ? rest : ATTN_CHUNK);
    const int64_t heads = (keys ? f->v.shape[1] : cut->heads) / x->shape[1];
    const struct attn_rows rows = attn_linear_head(x, b.batch, b.head, b.first, 0);
    const struct attn_rows to = attn_linear_head(d, b.batch, b.head, b.first, 0);
    const float one = 1.0f;
    size_t floats;
    const struct ends e = lay_out(call, scratch, &floats);
    memset(e.sums, 0, (size_t)(ATTN_CHUNK * e.pitch) * sizeof(float));
    for (int64_t i = 0; i < heads; i++) {
        const int64_t head = b.head * heads + i, state = keys ? head : attn_linear_heads_of(f, head).state;
        end_rows(run, &e, &b, head, state, keys, &rows);
    }
    for (int64_t t = b.first; t < end && to.data; t++) {
        char *row = (char *)to.data + (t - b.first) * to.stride;
        run->geometry->kernels.vectors->write_few(&row, to.dtype, e.sums + (t - b.first) * e.pitch, 1, d->shape[3],
                                                  &one);
    }
}
