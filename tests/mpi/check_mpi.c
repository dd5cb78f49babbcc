/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks attention over several ranks against the oracle and against a single process, on the random cases of
 * check_forward and check_backward without what libattn_mpi refuses.
 *
 *     mpirun -n 4 check_mpi --cases 500 [--seed N] [--case N]
 *
 * All ranks draw the same case, and each takes its tokens of it; so some have none. What they have written is put
 * together, and one rank, another for each case, judges it. A failure prints the case and the command that repeats it.
 */
#include "arguments.h"
#include "attn/mpi.h"
#include "case.h"
#include "compare.h"
#include "compare_backward.h"
#include "dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** The tokens of a side of a case: those of each rank. */
struct side {
    int64_t tokens, mine, num;
    attn_mpi_range *ranges; /**< this rank's */
};

/** A case as this rank has it. */
struct local {
    attn_mpi_config config;
    struct side queries, keys;
    attn_tensor q, k, v, out, lse, mask, rope_q, rope_k, d_out, d_lse, d_q, d_k, d_v;
    attn_rope_tables rope;
    attn_params params;
    attn_gradients gradients;
    float *options[GRADIENTS]; /**< the caller's arrays of gradients of options */
};

static int rank, ranks;
static int64_t with_groups; /* cases whose ranks share heads out */

static void *allocate(size_t size)
{
    void *p = malloc(size + 1);
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes\n", size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return p;
}

static struct side side_of(const attn_mpi_config *config, int64_t tokens, int of)
{
    struct side side = {.tokens = tokens, .mine = attn_mpi_local_tokens(config, tokens, ranks, of)};
    attn_mpi_ranges(config, tokens, ranks, of, NULL, 0, &side.num);
    side.ranges = allocate((size_t)side.num * sizeof *side.ranges);
    attn_mpi_ranges(config, tokens, ranks, of, side.ranges, side.num, NULL);
    return side;
}

/** A contiguous tensor of the same shape with other tokens. */
static attn_tensor tensor_with(const attn_tensor *like, int64_t tokens)
{
    attn_tensor t = attn_bhtd(NULL, like->shape[0], like->shape[1], tokens, like->shape[3]);
    t.dtype = like->dtype;
    t.data = allocate((size_t)(t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3]) * attn_dtype_size(t.dtype));
    return t;
}

/** Copies tokens from a tensor of all into one of a rank's, or back. Axes of length 1 are broadcast. */
static void move_tokens(const attn_tensor *all, const attn_tensor *part, const struct side *side, int back)
{
    const size_t size = attn_dtype_size(all->dtype);
    for (int64_t b = 0; b < part->shape[0]; b++)
        for (int64_t h = 0; h < part->shape[1]; h++) {
            int64_t t = 0;
            for (int64_t n = 0; n < side->num; n++)
                for (int64_t i = 0; i < side->ranges[n].count; i++, t++)
                    for (int64_t c = 0; c < part->shape[3]; c++) {
                        char *far =
                            (char *)all->data + tensor_offset(all, b, h, side->ranges[n].first + i, c) * (int64_t)size;
                        char *near = (char *)part->data + tensor_offset(part, b, h, t, c) * (int64_t)size;
                        memcpy(back ? far : near, back ? near : far, size);
                    }
        }
}

static attn_tensor part_of(const attn_tensor *all, const struct side *side)
{
    attn_tensor part = tensor_with(all, side->mine);
    move_tokens(all, &part, side, 0);
    return part;
}

/** Puts the ranks' tokens into a tensor of all, on every rank. */
static void put_together(const attn_tensor *all, const attn_tensor *mine, const attn_mpi_config *config)
{
    for (int of = 0; of < ranks; of++) {
        struct side side = side_of(config, all->shape[2], of);
        attn_tensor part = of == rank ? *mine : tensor_with(all, side.mine);
        const int64_t elements = part.shape[0] * part.shape[1] * part.shape[2] * part.shape[3];
        MPI_Bcast(part.data, (int)(elements * (int64_t)attn_dtype_size(part.dtype)), MPI_BYTE, of, MPI_COMM_WORLD);
        move_tokens(all, &part, &side, 1);
        if (of != rank)
            free(part.data);
        free(side.ranges);
    }
}

/** Whether libattn_mpi takes the case. */
static int is_supported(const struct test_case *c)
{
    const attn_params *p = &c->params;
    return !p->weight_callback && !p->tree && !p->weights && !p->key_sums && !p->scores && p->qk == ATTN_QK_DEFAULT &&
           !(p->mask && p->mask->shape[3] != 1 && p->mask->shape[3] != c->k.shape[2]);
}

/** Rounds a tensor to bf16 in place, so that the wire does not change it. */
static void round_to_wire(const attn_tensor *t)
{
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t x = 0; x < t->shape[3]; x++)
                    tensor_set(t, b, h, i, x, dtype_round(ATTN_BF16, tensor_get(t, b, h, i, x)));
}

static void draw_config(struct test_case *c, struct local *l, uint64_t seed, uint64_t index)
{
    struct rng generator = rng_for_case(seed + 11, index), *rng = &generator;
    l->config = attn_mpi_config_default();
    l->config.placement = (attn_mpi_placement)rng_range(rng, 0, 2);
    if (l->config.placement == ATTN_MPI_STRIPED)
        l->config.stripe = RNG_PICK(rng, 1 + c->q.shape[2] / 40, 16, 64, 0);
    /* Groups that share heads out, of a size that is chosen or drawn. */
    l->config.head_ranks = c->params.mask || rng_percent(rng, 40) ? (int)rng_range(rng, 0, 1) : ranks;
    while (l->config.head_ranks > 1 && (ranks % l->config.head_ranks || c->k.shape[1] % l->config.head_ranks))
        l->config.head_ranks--;
    l->config.queries = c->q.shape[2];
    l->config.keys = c->k.shape[2];
    l->config.backward = 1;
    l->config.timeout = 60;
    if (rng_percent(rng, 25) && !c->params.rope) {
        l->config.wire = ATTN_MPI_BF16;
        round_to_wire(&c->k);
        round_to_wire(&c->v);
    }
}

/** This rank's part of a case, which has to stay as it is. */
static void make_local(struct test_case *c, struct local *l)
{
    l->queries = side_of(&l->config, c->q.shape[2], rank);
    l->keys = side_of(&l->config, c->k.shape[2], rank);
    l->params = c->params;
    l->q = part_of(&c->q, &l->queries);
    l->k = part_of(&c->k, &l->keys);
    l->v = part_of(&c->v, &l->keys);
    l->out = tensor_with(&c->out, l->queries.mine);
    l->lse = tensor_with(&c->lse, l->queries.mine);
    l->params.lse = &l->lse;
    if (c->params.rope) {
        l->rope_q = part_of(c->params.rope->q, &l->queries);
        l->rope_k = part_of(c->params.rope->k, &l->keys);
        l->rope = (attn_rope_tables){c->params.rope->layout, &l->rope_q, &l->rope_k};
        l->params.rope = &l->rope;
    }
    if (c->params.mask) {
        l->mask = *c->params.mask;
        if (l->mask.shape[2] > 1) {
            l->mask = part_of(c->params.mask, &l->queries);
            l->params.mask = &l->mask;
        }
    }
}

static void release_local(struct local *l)
{
    attn_tensor *const tensors[] = {&l->q,      &l->k,     &l->v,     &l->out, &l->lse, &l->rope_q,
                                    &l->rope_k, &l->d_out, &l->d_lse, &l->d_q, &l->d_k, &l->d_v};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        free(tensors[i]->data);
    if (l->params.mask == &l->mask)
        free(l->mask.data);
    free(l->queries.ranges);
    free(l->keys.ranges);
    memset(l, 0, sizeof *l);
}

static int is_good(attn_status status, char *message, size_t size)
{
    if (status != ATTN_OK)
        snprintf(message, size, "status is \"%s\": %s", attn_status_string(status), attn_last_error());
    return status == ATTN_OK;
}

/** The same bits with another number of threads. */
static int repeats(attn_mpi_plan *plan, struct local *l, char *message, size_t size)
{
    const size_t bytes = (size_t)(l->out.shape[0] * l->out.stride[0]) * attn_dtype_size(l->out.dtype);
    void *before = allocate(bytes);
    memcpy(before, l->out.data, bytes);
    l->params.num_threads = l->params.num_threads == 1 ? 2 : 1;
    int same = is_good(attn_mpi_forward(plan, &l->q, &l->k, &l->v, &l->out, &l->params), message, size);
    if (same && memcmp(before, l->out.data, bytes) != 0) {
        snprintf(message, size, "out has other bits with %d threads", l->params.num_threads);
        same = 0;
    }
    free(before);
    return same;
}

static int judge_forward(const struct test_case *c, int64_t index, double *worst, char *message, size_t size)
{
    if (index % ranks != rank)
        return 1;
    struct comparison comparison;
    struct reference reference = reference_compute(&c->q, &c->k, &c->v, &c->params, NAIVE_F32);
    const int right = compare_with_reference(&reference, &c->out, &c->params, &comparison, message, size);
    reference_free(&reference);
    if (right)
        *worst = fmax(*worst, comparison.error[0] / comparison.allowed[0]);
    return right;
}

/** Gradients: this rank's arrays of options are the case's own. */
static int run_backward(attn_mpi_plan *plan, struct test_case *c, struct local *l, int64_t index, double *worst,
                        char *message, size_t size)
{
    c->d_written[GRADIENT_MASK] = NULL;
    l->gradients = c->gradients;
    l->gradients.mask = NULL;
    l->d_out = part_of(&c->d_out, &l->queries);
    l->gradients.out = &l->d_out;
    if (c->gradients.lse) {
        l->d_lse = part_of(c->gradients.lse, &l->queries);
        l->gradients.lse = &l->d_lse;
    }
    struct {
        const attn_tensor *all, **asked;
        attn_tensor *mine;
        const struct side *side;
    } rows[] = {{c->gradients.q, &l->gradients.q, &l->d_q, &l->queries},
                {c->gradients.k, &l->gradients.k, &l->d_k, &l->keys},
                {c->gradients.v, &l->gradients.v, &l->d_v, &l->keys}};
    for (int i = 0; i < 3; i++)
        if (rows[i].all) {
            *rows[i].mine = tensor_with(rows[i].all, rows[i].side->mine);
            *rows[i].asked = rows[i].mine;
        }
    if (!is_good(attn_mpi_backward(plan, &l->q, &l->k, &l->v, &l->out, &l->params, &l->gradients), message, size))
        return 0;
    for (int i = 0; i < 3; i++)
        if (rows[i].all)
            put_together(rows[i].all, rows[i].mine, &l->config);
    if (index % ranks != rank)
        return 1;
    const struct backward_inputs inputs = {&c->q,
                                           &c->k,
                                           &c->v,
                                           &c->params,
                                           &c->out,
                                           c->params.lse,
                                           c->gradients.out,
                                           c->gradients.lse,
                                           c->gradients.callback,
                                           c->gradients.callback_user};
    struct gradient_comparison comparison[GRADIENTS];
    if (!compare_backward_call(&inputs, c->d_written, comparison, message, size))
        return 0;
    for (int i = 0; i < 3; i++)
        if (c->d_written[i] && comparison[i].allowed > 0)
            *worst = fmax(*worst, comparison[i].error / comparison[i].allowed);
    return 1;
}

/** Runs one case on all ranks; on a failure message says what is wrong, on ranks that know. */
static int run_case(struct test_case *c, uint64_t seed, int64_t index, double worst[2], char *message, size_t size)
{
    struct local l;
    memset(&l, 0, sizeof l);
    draw_config(c, &l, seed, (uint64_t)index);
    make_local(c, &l);
    attn_mpi_plan *plan = NULL;
    int good = is_good(attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &l.q, &l.k, &l.v, &l.out, &l.params, &l.config),
                       message, size) &&
               is_good(attn_mpi_forward(plan, &l.q, &l.k, &l.v, &l.out, &l.params), message, size);
    if (good) {
        char text[512];
        attn_mpi_plan_describe(plan, text, sizeof text);
        with_groups += ranks > 1 && !strstr(text, "; heads on 1 ranks");
        put_together(&c->out, &l.out, &l.config);
        put_together(&c->lse, &l.lse, &l.config);
        if (index % 4 == 0)
            good = repeats(plan, &l, message, size);
        good = judge_forward(c, index, &worst[0], message, size) && good;
        /* What nobody may look at becomes NaN; the same on all ranks, as out is. */
        case_begin_backward(c, seed, (uint64_t)index);
        struct local again = l;
        make_local(c, &again);
        move_tokens(&c->out, &again.out, &again.queries, 0);
        move_tokens(&c->lse, &again.lse, &again.queries, 0);
        again.params.lse = &again.lse;
        again.params.rope = c->params.rope ? &again.rope : NULL;
        char of_backward[512] = "";
        if (!run_backward(plan, c, &again, index, &worst[1], of_backward, sizeof of_backward) && good) {
            snprintf(message, size, "%s", of_backward);
            good = 0;
        }
        release_local(&again);
    }
    attn_mpi_plan_destroy(plan);
    release_local(&l);
    return good;
}

int main(int argc, char **argv)
{
    int threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct arguments arguments = arguments_parse(argc, argv, 500);
    MPI_Bcast(&arguments.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    static struct test_case c;
    case_initialize(&c);
    c.backward = 1;
    guard_catch_faults();
    int64_t run = 0;
    int failures = 0;
    double worst[2] = {0, 0};
    const int64_t first = arguments.only >= 0 ? arguments.only : 0;
    for (int64_t i = first; arguments.only >= 0 ? i == first : run < arguments.cases; i++) {
        char message[512] = "";
        case_generate(&c, arguments.seed, (uint64_t)i, arguments.isa);
        if (!is_supported(&c))
            continue;
        case_draw_gradients(&c, arguments.seed, (uint64_t)i);
        int length = snprintf(guard_case_line, sizeof guard_case_line,
                              "repeat: mpirun -n %d check_mpi --isa %s --seed %" PRIu64 " --case %" PRId64 "\n  ",
                              ranks, arguments.isa, arguments.seed, i);
        case_describe(&c, guard_case_line + length, sizeof guard_case_line - (size_t)length);
        run++;
        if (run_case(&c, arguments.seed, i, worst, message, sizeof message))
            continue;
        printf("FAILED on rank %d: case %" PRId64 ": %s\n  %s\n", rank, i, message, guard_case_line);
        fflush(stdout);
        if (++failures == 10)
            MPI_Abort(MPI_COMM_WORLD, 1); /* the others may have found nothing */
    }
    double all[2];
    int failed = 0;
    MPI_Allreduce(worst, all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&failures, &failed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%" PRId64 " cases on %d ranks, %" PRId64 " with heads shared out; nearest to a limit: %.0f %% forward, "
               "%.0f %% backward; %d failures\n",
               run, ranks, with_groups, 100 * all[0], 100 * all[1], failed);
    if (run >= 300 && ranks > 1 && with_groups < 3) { /* few have heads of k that so many ranks can share */
        printf("FAILED: heads were shared out in %" PRId64 " cases only\n", with_groups);
        failed++;
    }
    case_release(&c);
    MPI_Finalize();
    return failed != 0;
}
