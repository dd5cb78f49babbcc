/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of one rank as a part of the call of a single process. The core's own checks see the tensors with the tokens
 * of the whole sequence; what they cannot know, that tensors have this rank's tokens and where they lie, is checked
 * here.
 */
#include "mpi/whole.h"

#include "api/check_internal.h"
#include "api/error.h"

#include <string.h>

/** That no option is set that is no function of scores and positions. */
static attn_status check_supported(const attn_params *p)
{
    const struct {
        int set;
        const char *name;
    } refused[] = {
        {p->weight_callback != NULL, "weight_callback"},
        {p->tree != NULL, "tree"},
        {p->weights != NULL, "weights"},
        {p->key_sums != NULL, "key_sums"},
        {p->scores != NULL, "scores"},
        {p->block_table != NULL, "block_table"},
        {p->k_scale != NULL, "k_scale"},
        {p->v_scale != NULL, "v_scale"},
        {p->qk != ATTN_QK_DEFAULT, "qk"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].set)
            return attn_fail(ATTN_UNSUPPORTED, "params.%s is set; expected none, as keys are on several ranks",
                             refused[i].name);
    return ATTN_OK;
}

/** That a tensor, if it is there, has this rank's tokens. */
static attn_status check_local(const char *name, const attn_tensor *t, int64_t tokens)
{
    return t ? attn_check_axis(name, t, 2, tokens, "tokens that this rank holds") : ATTN_OK;
}

/** The same tensor with the tokens of the whole sequence; NULL stays NULL. */
static const attn_tensor *lengthened(attn_tensor *whole, const attn_tensor *t, int64_t tokens)
{
    if (!t)
        return NULL;
    *whole = *t;
    whole->shape[2] = tokens;
    return whole;
}

static attn_status check_input(const char *name, const attn_tensor *t)
{
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    return attn_check_contiguous(name, t);
}

/** Tensors of this rank, by name. */
struct list {
    const char *name[16];
    const attn_tensor *t[16];
    int num;
};

static void add(struct list *list, const char *name, const attn_tensor *t)
{
    if (t) {
        list->name[list->num] = name;
        list->t[list->num++] = t;
    }
}

/** That each output is apart from everything that is read, and from the outputs before it. */
static attn_status check_written(const struct list *read, const struct list *written)
{
    for (int i = 0; i < written->num; i++) {
        CHECK(attn_check_distinct(written->name[i], written->t[i]));
        for (int j = 0; j < read->num; j++)
            CHECK(attn_check_apart(written->name[i], written->t[i], read->name[j], read->t[j], 0));
        for (int j = 0; j < i; j++)
            CHECK(attn_check_apart(written->name[i], written->t[i], written->name[j], written->t[j], 0));
    }
    return ATTN_OK;
}

static struct list read_tensors(const struct mpi_tensors *t, const attn_params *p)
{
    struct list read = {.num = 0};
    add(&read, "q", t->q);
    add(&read, "k", t->k);
    add(&read, "v", t->v);
    add(&read, "params.mask", p->mask);
    if (p->rope) {
        add(&read, "params.rope->q", p->rope->q);
        add(&read, "params.rope->k", p->rope->k);
    }
    if (p->disentangled) {
        add(&read, "params.disentangled->rel_k", p->disentangled->rel_k);
        add(&read, "params.disentangled->rel_q", p->disentangled->rel_q);
    }
    return read;
}

/** Data and strides of this rank's tensors, whose shapes are right. */
static attn_status check_data(const struct mpi_tensors *t, const attn_params *p)
{
    CHECK(check_input("q", t->q));
    CHECK(check_input("k", t->k));
    CHECK(check_input("v", t->v));
    CHECK(check_input("out", t->out));
    if (p->mask)
        CHECK(attn_check_tensor("params.mask", p->mask, CHECK_ALL));
    if (p->rope) {
        CHECK(check_input("params.rope->q", p->rope->q));
        CHECK(check_input("params.rope->k", p->rope->k));
    }
    if (p->disentangled && p->disentangled->rel_k)
        CHECK(check_input("params.disentangled->rel_k", p->disentangled->rel_k));
    if (p->disentangled && p->disentangled->rel_q)
        CHECK(check_input("params.disentangled->rel_q", p->disentangled->rel_q));
    if (p->lse)
        CHECK(attn_check_tensor("params.lse", p->lse, CHECK_ALL));
    const struct list read = read_tensors(t, p);
    struct list written = {.num = 0};
    add(&written, "out", t->out);
    add(&written, "params.lse", p->lse);
    return check_written(&read, &written);
}

attn_status mpi_check(struct mpi_whole *whole, const struct mpi_tensors *t, const attn_params *params,
                      const attn_mpi_config *config, int64_t queries, int64_t keys, enum check_depth depth)
{
    attn_params p = *params;
    CHECK(check_supported(&p));
    CHECK(check_local("q", t->q, queries));
    CHECK(check_local("k", t->k, keys));
    CHECK(check_local("v", t->v, keys));
    CHECK(check_local("out", t->out, queries));
    CHECK(check_local("params.lse", p.lse, queries));
    p.lse = lengthened(&whole->lse, p.lse, config->queries);
    if (p.rope) {
        CHECK(check_local("params.rope->q", p.rope->q, queries));
        CHECK(check_local("params.rope->k", p.rope->k, keys));
        whole->rope = *p.rope;
        whole->rope.q = lengthened(&whole->rope_q, p.rope->q, config->queries);
        whole->rope.k = lengthened(&whole->rope_k, p.rope->k, config->keys);
        p.rope = &whole->rope;
    }
    if (p.mask) {
        whole->mask = *p.mask;
        if (p.mask->shape[2] != 1 || queries == 1) {
            CHECK(check_local("params.mask", p.mask, queries));
            whole->mask.shape[2] = p.mask->shape[2] == 1 ? 1 : config->queries;
        }
        if (p.mask->shape[3] != 1)
            CHECK(attn_check_axis("params.mask", p.mask, 3, config->keys, "the keys of all ranks, or 1 for all"));
        p.mask = &whole->mask;
    }
    CHECK(attn_check(&whole->problem, lengthened(&whole->q, t->q, config->queries),
                     lengthened(&whole->k, t->k, config->keys), lengthened(&whole->v, t->v, config->keys),
                     lengthened(&whole->out, t->out, config->queries), &p, depth & CHECK_ARRAYS));
    return depth & CHECK_TENSORS ? check_data(t, params) : ATTN_OK;
}

/** That a gradient has the shape of what it is one of. */
static attn_status check_gradient(const char *name, const attn_tensor *gradient, const attn_tensor *of)
{
    if (!gradient)
        return ATTN_OK;
    CHECK(attn_check_tensor(name, gradient, CHECK_ALL));
    for (int axis = 0; axis < 4; axis++)
        CHECK(attn_check_axis(name, gradient, axis, of->shape[axis], "as in the tensor that it is a gradient of"));
    CHECK(attn_check_float(name, gradient->dtype));
    return attn_check_contiguous(name, gradient);
}

/** The same of a table of rows, which is f32. */
static attn_status check_table(const char *name, const attn_tensor *gradient, const attn_tensor *of)
{
    CHECK(check_gradient(name, gradient, of));
    return gradient ? attn_check_f32(name, gradient->dtype) : ATTN_OK;
}

attn_status mpi_check_gradients(const struct mpi_tensors *t, const attn_params *params, const attn_gradients *gradients)
{
    const attn_gradients *g = gradients;
    if (g->mask)
        return attn_fail(ATTN_UNSUPPORTED, "gradients.mask is set; expected NULL, as keys are on several ranks");
    const attn_disentangled *terms = params->disentangled;
    const attn_tensor *const rel_k = terms ? terms->rel_k : NULL, *const rel_q = terms ? terms->rel_q : NULL;
    const struct {
        int wanted, has;
        const char *name, *of;
    } options[] = {{g->head_scale != NULL, params->head_scale != NULL, "head_scale", "head_scale"},
                   {g->sinks != NULL, params->sinks != NULL, "sinks", "sinks"},
                   {g->alibi_slopes != NULL, params->alibi_slopes != NULL, "alibi_slopes", "alibi_slopes"},
                   {g->relative_bias != NULL, params->relative_bias != NULL, "relative_bias", "relative_bias"},
                   {g->rel_k != NULL, rel_k != NULL, "rel_k", terms ? "disentangled->rel_k" : "disentangled"},
                   {g->rel_q != NULL, rel_q != NULL, "rel_q", terms ? "disentangled->rel_q" : "disentangled"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].wanted && !options[i].has)
            return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.%s is set; expected NULL, as params.%s is NULL",
                             options[i].name, options[i].of);
    CHECK(check_table("gradients.rel_k", g->rel_k, rel_k));
    CHECK(check_table("gradients.rel_q", g->rel_q, rel_q));
    if (params->callback && !g->callback)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.callback is NULL; expected the partner of params.callback");
    if (!params->callback && (g->callback || g->callback_user))
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.callback is set; expected NULL, as params.callback is NULL");
    if (!params->lse)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.lse is NULL; expected what attn_mpi_forward() has written");
    if (!g->out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.out is NULL; expected the gradient of out");
    CHECK(check_gradient("gradients.out", g->out, t->out));
    CHECK(check_gradient("gradients.q", g->q, t->q));
    CHECK(check_gradient("gradients.k", g->k, t->k));
    CHECK(check_gradient("gradients.v", g->v, t->v));
    if (g->lse) {
        CHECK(attn_check_tensor("gradients.lse", g->lse, CHECK_ALL));
        CHECK(attn_check_f32("gradients.lse", g->lse->dtype));
        for (int axis = 0; axis < 4; axis++)
            CHECK(attn_check_axis("gradients.lse", g->lse, axis, params->lse->shape[axis], "as in params.lse"));
    }
    struct list read = read_tensors(t, params), written = {.num = 0};
    add(&read, "out", t->out);
    add(&read, "params.lse", params->lse);
    add(&read, "gradients.out", g->out);
    add(&read, "gradients.lse", g->lse);
    add(&written, "gradients.q", g->q);
    add(&written, "gradients.k", g->k);
    add(&written, "gradients.v", g->v);
    add(&written, "gradients.rel_k", g->rel_k);
    add(&written, "gradients.rel_q", g->rel_q);
    return check_written(&read, &written);
}

/** Marks an array of the caller's, or that there is none. */
static void mark_array(struct mpi_marks *marks, enum mpi_part part, const void *array, int64_t entries, size_t size)
{
    mpi_mark(marks, part, array, (size_t)entries * size);
}

static void mark_options(struct mpi_marks *m, const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const int64_t heads = problem->q.shape[1];
    const float numbers[] = {p->scale, p->temperature, p->softcap};
    const int choices[] = {p->lse != NULL,
                           (int)p->causal,
                           (int)p->inputs,
                           (int)p->sums,
                           p->rope != NULL,
                           p->mask != NULL,
                           p->mask ? (int)p->mask->dtype : 0,
                           p->rope ? (int)p->rope->layout : 0,
                           p->callback != NULL};
    mpi_mark(m, MPI_OPTIONS, numbers, sizeof numbers);
    mpi_mark(m, MPI_OPTIONS, choices, sizeof choices);
    if (p->window) {
        const int64_t window[] = {p->window->left, p->window->right, p->window->first_tokens, p->window->num_global};
        mpi_mark(m, MPI_OPTIONS, window, sizeof window);
    } else {
        mpi_mark(m, MPI_OPTIONS, NULL, 1);
    }
    if (p->dropout) { /* not the struct, of which some bytes are padding */
        const uint64_t place[] = {p->dropout->seed, p->dropout->offset};
        mpi_mark(m, MPI_OPTIONS, &p->dropout->p, sizeof p->dropout->p);
        mpi_mark(m, MPI_OPTIONS, place, sizeof place);
    } else {
        mpi_mark(m, MPI_OPTIONS, NULL, 1);
    }
    if (p->block_mask) {
        const int64_t blocks[] = {p->block_mask->size, p->block_mask->heads, p->block_mask->rows};
        mpi_mark(m, MPI_OPTIONS, blocks, sizeof blocks);
    } else {
        mpi_mark(m, MPI_OPTIONS, NULL, 1);
    }
    if (p->relative_bias) {
        const int64_t bias[] = {(int64_t)p->relative_bias->kind, p->relative_bias->buckets,
                                p->relative_bias->max_distance};
        mpi_mark(m, MPI_OPTIONS, bias, sizeof bias);
    } else {
        mpi_mark(m, MPI_OPTIONS, NULL, 1);
    }
    if (p->disentangled) {
        const int64_t terms[] = {p->disentangled->span, (int64_t)p->disentangled->delta, p->disentangled->rel_k != NULL,
                                 p->disentangled->rel_q != NULL};
        mpi_mark(m, MPI_OPTIONS, terms, sizeof terms);
    } else {
        mpi_mark(m, MPI_OPTIONS, NULL, 1);
    }
    mark_array(m, MPI_ARRAYS, p->head_scale, heads, sizeof *p->head_scale);
    mark_array(m, MPI_ARRAYS, p->sinks, heads, sizeof *p->sinks);
    mark_array(m, MPI_ARRAYS, p->alibi_slopes, heads, sizeof *p->alibi_slopes);
    if (p->relative_bias)
        mark_array(m, MPI_ARRAYS, p->relative_bias->table, heads * p->relative_bias->buckets, sizeof(float));
}

static void mark_positions(struct mpi_marks *m, const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const int64_t sequences = problem->num_sequences, batch = problem->q.shape[0];
    mpi_mark(m, MPI_ARRAYS, &sequences, sizeof sequences);
    mark_array(m, MPI_ARRAYS, p->query_offset, sequences, sizeof(int64_t));
    mark_array(m, MPI_ARRAYS, p->kv_len, sequences, sizeof(int64_t));
    mark_array(m, MPI_ARRAYS, p->kv_start, sequences, sizeof(int64_t));
    mark_array(m, MPI_ARRAYS, p->prefix_len, sequences, sizeof(int64_t));
    mark_array(m, MPI_ARRAYS, p->window ? p->window->global : NULL, p->window ? p->window->num_global : 0,
               sizeof(int64_t));
    if (p->block_mask) {
        const attn_block_mask *pattern = p->block_mask;
        const int64_t rows = (pattern->heads > 1 ? pattern->heads : 1) * pattern->rows;
        mark_array(m, MPI_ARRAYS, pattern->offsets, rows + 1, sizeof *pattern->offsets);
        mark_array(m, MPI_ARRAYS, pattern->columns, pattern->offsets[rows], sizeof *pattern->columns);
    }
    mark_array(m, MPI_ARRAYS, p->ragged ? p->ragged->cu_seqlens_q : NULL, sequences + 1, sizeof(int64_t));
    mark_array(m, MPI_ARRAYS, p->ragged ? p->ragged->cu_seqlens_k : NULL, sequences + 1, sizeof(int64_t));
    mark_array(m, MPI_ARRAYS, p->segments ? p->segments->q : NULL, batch * problem->q.shape[2], sizeof(int32_t));
    mark_array(m, MPI_ARRAYS, p->segments ? p->segments->k : NULL, batch * problem->k.shape[2], sizeof(int32_t));
}

struct mpi_marks mpi_marks_of(const struct mpi_whole *whole, const attn_mpi_config *config,
                              const attn_gradients *gradients)
{
    const struct attn_problem *problem = &whole->problem;
    struct mpi_marks marks = mpi_marks_begin();
    const int64_t shapes[] = {(int64_t)problem->q.dtype, (int64_t)problem->out.dtype, problem->q.shape[0],
                              problem->q.shape[1],       problem->q.shape[3],         problem->k.shape[1],
                              problem->v.shape[3],       (int64_t)problem->k.dtype,   (int64_t)problem->v.dtype};
    const int64_t cut[] = {(int64_t)config->placement, config->stripe,        config->queries,   config->keys,
                           (int64_t)config->wire,      config->backward != 0, config->head_ranks};
    mpi_mark(&marks, MPI_SHAPES, shapes, sizeof shapes);
    mpi_mark(&marks, MPI_CONFIG, cut, sizeof cut);
    mark_options(&marks, problem);
    mark_positions(&marks, problem);
    if (gradients) { /* whether q's is wanted is each rank's own matter */
        const int wanted[] = {
            (int)gradients->out->dtype,       gradients->lse != NULL,   gradients->k != NULL || gradients->v != NULL,
            gradients->head_scale != NULL,    gradients->sinks != NULL, gradients->alibi_slopes != NULL,
            gradients->relative_bias != NULL, gradients->rel_k != NULL, gradients->rel_q != NULL};
        mpi_mark(&marks, MPI_OPTIONS, wanted, sizeof wanted);
    }
    return marks;
}
