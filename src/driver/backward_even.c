/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of the tasks of the backward pass with which threads finish together.
 *
 * Tasks of keys of a head follow each other from block to block of queries, so
 * p threads on a head stand still for about p steps at its beginning and at its
 * end. Smaller tasks and blocks make steps shorter. Where even that leaves too much, dQ is
 * computed by itself, in tasks that wait for nobody: seven products instead of
 * five (S and dP twice), each of them on all threads. Sums of dQ, dK and dV have the
 * same order in both ways and with all sizes, so no bit moves.
 */
#include "driver/backward_tasks.h"

#include "driver/even.h"
#include "driver/tensors.h"

/* What a step costs besides its pairs: for each query the time of so many keys, as its rows are turned; for each key
 * that of so many queries; and so many pairs. Where tasks follow each other, sums of dQ come from another core's
 * caches. */
#define PER_QUERY 7.0
#define PER_KEY   1.5
#define PER_STEP  30.0
#define FROM_FAR  5.0
#define TOLD      120.0

/* Threads on a triangle have no more steps to take, at its end, for such a part of its longest task: replayed. */
#define LAST_TASKS 0.35

/* Keys of a task are a multiple of it. */
#define KEY_STEP 32

/* Parts of the five products that dK and dV, and dQ, need by themselves. */
#define OF_KEYS    0.8
#define OF_QUERIES 0.6

/** A call, as chains of equal tasks. */
struct chains {
    double count;         /**< key heads of sequences, each of which has keys to itself */
    double group;         /**< heads of q that share them */
    double queries, keys; /**< of a sequence */
    int triangle;         /**< about half of the pairs are seen */
    int threads;
};

static double up(double x)
{
    const double whole = (double)(int64_t)x;
    return whole < x ? whole + 1.0 : whole;
}

static double more(double a, double b)
{
    return a > b ? a : b;
}

/** When the last task ends where tasks follow each other. */
static double end_of_pipeline(const struct chains *c, double keys, double queries)
{
    const double tasks = up(c->keys / keys), steps = up(c->queries / queries) * c->group;
    const double on_chain = c->threads / c->count; /* threads */
    const double each = (keys + PER_QUERY + FROM_FAR) * (queries + PER_KEY) + PER_STEP + TOLD;
    double end = c->triangle ? attn_end_of_falling(c->threads, tasks * c->count, steps) + steps / tasks
                             : up(tasks * c->count / c->threads) * steps;
    if (on_chain > 1.0) {
        /* Each task follows a step behind the one before. In a triangle that one has begun further back. */
        const double behind = c->triangle ? steps / c->group / tasks + 1.0 : 1.0;
        end = more(end + (on_chain - 1.0) * behind, tasks * behind + (c->triangle ? 0.0 : steps - 1.0));
        end += c->triangle ? LAST_TASKS * steps : 0.0;
    }
    return end * each;
}

/** When some tasks end, of which each takes so long at most. */
static double end_of_tasks(const struct chains *c, double tasks, double longest)
{
    return c->triangle ? attn_end_of_falling(c->threads, tasks, longest) : up(tasks / c->threads) * longest;
}

/** The same where dQ has tasks of its own. */
static double end_apart(const struct chains *c, double keys, double queries)
{
    const double tasks = up(c->keys / keys), blocks = up(c->queries / queries) * c->group;
    const double each = (keys + PER_QUERY) * (queries + PER_KEY) + PER_STEP;
    return end_of_tasks(c, tasks * c->count, blocks * each * OF_KEYS) +
           end_of_tasks(c, blocks * c->count, tasks * each * OF_QUERIES);
}

/** Whether dQ may have tasks of its own: nothing else is summed along with it, and nobody is called once more. */
static int may_be_apart(const struct attn_backward *b)
{
    const attn_params *p = &b->forward.params;
    return attn_backward_sums_queries(b) && (attn_has_elements(&b->dk) || attn_has_elements(&b->dv)) && !p->callback &&
           !p->disentangled;
}

/**
 * Whether a number is summed over pairs of several blocks as they are walked over, whose sizes are then a part of what
 * it is: they may not follow the number of threads.
 */
static int sums_over_blocks(const struct attn_backward *b)
{
    return b->dslopes || b->dtable || attn_has_elements(&b->dmask) || attn_has_elements(&b->drel_k) ||
           attn_has_elements(&b->drel_q);
}

void attn_backward_even_sizes(const struct attn_backward *b, int64_t strip, int threads,
                              struct attn_backward_sizes *sizes)
{
    const struct attn_problem *p = &b->forward;
    const double sequences = (double)p->num_sequences;
    if (threads <= 1 || sequences == 0 || p->k.shape[1] == 0 || p->q.shape[1] == 0 || p->params.block_mask)
        return;
    if (sums_over_blocks(b))
        return;
    const struct chains chains = {.count = sequences * (double)p->k.shape[1],
                                  .group = (double)(p->q.shape[1] / p->k.shape[1]),
                                  .queries = (double)p->q.shape[2] / (p->params.ragged ? sequences : 1.0),
                                  .keys = (double)p->k.shape[2] / (p->params.ragged ? sequences : 1.0),
                                  .triangle = p->params.causal != ATTN_CAUSAL_NONE && p->k.shape[2] <= p->q.shape[2],
                                  .threads = threads};
    const int apart = may_be_apart(b);
    double least = end_of_pipeline(&chains, (double)sizes->keys, (double)sizes->queries) * 0.97;
    const struct attn_backward_sizes largest = *sizes;
    for (int64_t keys = largest.keys; keys >= KEY_STEP; keys -= KEY_STEP)
        for (int64_t strips = largest.queries / strip; strips >= 1; strips--)
            for (int way = 0; way <= apart; way++) {
                const double queries = (double)(strips * strip);
                const double end =
                    way ? end_apart(&chains, (double)keys, queries) : end_of_pipeline(&chains, (double)keys, queries);
                if (end < least) {
                    least = end;
                    *sizes = (struct attn_backward_sizes){keys, strips * strip, way};
                }
            }
}
