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
#include "driver/backward_even.h"

#include "driver/even.h"

/* What a step takes for each key besides: the time of so many queries; and by itself: of so many pairs. */
#define PER_KEY  1.5
#define PER_STEP 30.0

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
    int64_t strip; /**< queries of the widest one */
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

/** A chain, cut: the last task of keys and the last block of queries have what is left. */
struct cut {
    double tasks, blocks;         /**< of keys, and of queries of a head */
    double keys, mean_keys;       /**< of a task */
    double queries, mean_queries; /**< what those of a block take for each key */
};

static struct cut cut_of(const struct chains *c, int64_t keys, int64_t queries)
{
    const double tasks = up(c->keys / (double)keys), blocks = up(c->queries / (double)queries);
    const int64_t last = (int64_t)(c->queries - (blocks - 1.0) * (double)queries);
    const double longest = attn_backward_time_of_queries(c->strip, queries);
    return (struct cut){.tasks = tasks,
                        .blocks = blocks,
                        .keys = (double)keys,
                        .mean_keys = c->keys / tasks,
                        .queries = longest,
                        .mean_queries =
                            ((blocks - 1.0) * longest + attn_backward_time_of_queries(c->strip, last)) / blocks};
}

/** Some keys with a block of queries. */
static double step_time(double keys, double queries)
{
    return (keys + ATTN_TURNED_KEYS) * (queries + PER_KEY) + PER_STEP;
}

/** The same where tasks follow each other. */
static double following_step_time(double keys, double queries)
{
    return step_time(keys + ATTN_FAR_KEYS, queries) + ATTN_TOLD_PAIRS;
}

/** When the last task ends where tasks follow each other. */
static double end_of_pipeline(const struct chains *c, const struct cut *cut)
{
    const double on_chain = c->threads / c->count; /* threads */
    const double rounds = cut->tasks / on_chain, whole = up(rounds), steps = cut->blocks * c->group;
    const double longest = following_step_time(cut->keys, cut->mean_queries);
    if (c->triangle) {
        /* The first task of each round is the longest, and those behind it end when it does: each begins as much later
         * as it has less to do. */
        const double end = (whole - whole * (whole - 1.0) / (2.0 * rounds)) * steps;
        return (on_chain > 1.0 ? more(end + on_chain - 1.0, cut->tasks) : end) * longest;
    }
    /* Each task on a chain follows a step behind the one before. */
    const double end = ((whole - 1.0) * following_step_time(cut->mean_keys, cut->mean_queries) + longest) * steps;
    return on_chain > 1.0 ? more(end + (on_chain - 1.0) * longest, (cut->tasks + steps - 1.0) * longest) : end;
}

/** When so many tasks end. */
static double end_of_tasks(const struct chains *c, double tasks, double longest, double mean)
{
    return c->triangle ? attn_end_of_falling(c->threads, tasks, longest)
                       : (up(tasks / c->threads) - 1.0) * mean + longest;
}

/** The same where dQ has tasks of its own. */
static double end_apart(const struct chains *c, const struct cut *cut)
{
    const double steps = cut->blocks * c->group, mean = step_time(cut->mean_keys, cut->mean_queries);
    return OF_KEYS *
               end_of_tasks(c, cut->tasks * c->count, step_time(cut->keys, cut->mean_queries) * steps, mean * steps) +
           OF_QUERIES * end_of_tasks(c, steps * c->count, step_time(cut->mean_keys, cut->queries) * cut->tasks,
                                     mean * cut->tasks);
}

/** Whether dQ may have tasks of its own: nothing else is summed along with it, and nobody is called once more. */
static int may_be_apart(const struct attn_backward *b)
{
    const attn_params *p = &b->forward.params;
    return attn_backward_sums_queries(b) && (attn_has_elements(&b->dk) || attn_has_elements(&b->dv)) && !p->callback &&
           !p->disentangled;
}

void attn_backward_even_sizes(const struct attn_backward *b, int64_t strip, int64_t step, int threads,
                              struct attn_backward_sizes *sizes)
{
    const struct attn_problem *p = &b->forward;
    const double sequences = (double)p->num_sequences;
    const int is_empty = p->q.shape[1] == 0 || p->q.shape[2] == 0 || p->k.shape[1] == 0 || p->k.shape[2] == 0;
    if (threads <= 1 || sequences == 0 || is_empty || p->params.block_mask)
        return;
    const struct chains chains = {.count = sequences * (double)p->k.shape[1],
                                  .group = (double)(p->q.shape[1] / p->k.shape[1]),
                                  .queries = (double)p->q.shape[2] / (p->params.ragged ? sequences : 1.0),
                                  .keys = (double)p->k.shape[2] / (p->params.ragged ? sequences : 1.0),
                                  .triangle = p->params.causal != ATTN_CAUSAL_NONE && p->k.shape[2] <= p->q.shape[2],
                                  .threads = threads,
                                  .strip = strip};
    const int apart = may_be_apart(b);
    const struct attn_backward_sizes largest = *sizes;
    const struct cut whole = cut_of(&chains, largest.keys, largest.queries);
    double least = end_of_pipeline(&chains, &whole) * 0.97;
    for (int64_t keys = largest.keys; keys >= KEY_STEP; keys -= KEY_STEP)
        for (int64_t queries = largest.queries / step * step; queries >= step; queries -= step)
            for (int way = 0; way <= apart; way++) {
                const struct cut cut = cut_of(&chains, keys, queries);
                const double end = way ? end_apart(&chains, &cut) : end_of_pipeline(&chains, &cut);
                if (end < least) {
                    least = end;
                    *sizes = (struct attn_backward_sizes){keys, queries, way};
                }
            }
}
