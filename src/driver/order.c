/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of sequences whose lengths only the call itself knows: those with
 * the longest tasks first, so that the short ones fill the gaps at the end. In the
 * order of the batch, a task of a long sequence that comes last is waited for by
 * all threads.
 *
 * It is found by the only task of a phase, in two looks at the lengths: sequences
 * are put into classes of about equal time, four for each power of two.
 */
#include "driver/driver.h"

#include <math.h>
#include <string.h>

/* A query alone takes the time of so many more: it reads the keys for itself. */
#define ALONE 4

/* Classes of a power of two, and all of them. */
#define STEPS   4
#define CLASSES (STEPS * 64)

/* More sequences than these are not put in order, as only one thread does that. */
#define MOST_SEQUENCES 16384

/* Of so many tasks for each thread the last one is a small part of all. */
#define MANY 64

int attn_is_ordered(const struct attn_problem *problem, const struct attn_geometry *geometry, int threads)
{
    const attn_params *p = &problem->params;
    const int differ = p->ragged || p->kv_len || p->kv_start;
    return threads > 1 && differ && !p->key_sums && problem->num_sequences > 1 &&
           problem->num_sequences <= MOST_SEQUENCES && geometry->tasks > 1 && geometry->tasks < (int64_t)MANY * threads;
}

size_t attn_order_size(const struct attn_problem *problem)
{
    return attn_aligned(((size_t)problem->num_sequences + 1) * sizeof(struct attn_ordered));
}

/** Units of rows that a sequence of so many queries has. */
static int64_t units_of(const struct attn_run *run, int64_t queries)
{
    const int64_t unit = run->geometry->unit;
    return queries / unit + (queries % unit > 0);
}

/** The class of a sequence, by the time that its tasks take on average. */
static int class_of(const struct attn_run *run, int64_t s)
{
    const struct attn_sequence sequence = attn_sequence_of(run->problem, s);
    const int causal = run->problem->params.causal != ATTN_CAUSAL_NONE;
    const int64_t keys = sequence.end - sequence.begin, together = attn_heads_of(run->geometry, sequence.queries);
    const int64_t rows = together > 1 || sequence.queries < run->geometry->rows_per_block
                             ? together * sequence.queries
                             : run->geometry->rows_per_block;
    if (run->sharers && run->sharers[s].keys > 0) /* the first one has the rows of all */
        return run->sharers[s].first == s ? CLASSES - 1 : 0;
    int exponent;
    const double hidden = causal ? (double)(sequence.queries < keys ? sequence.queries : keys) / 2 : 0.0;
    const double part = frexp(((double)rows + ALONE) * ((double)keys - hidden), &exponent);
    const int class = STEPS * exponent + (int)((part - 0.5) * 2 * STEPS);
    return class < 0 || keys <= 0 ? 0 : class < CLASSES - 1 ? class : CLASSES - 2;
}

void attn_order_sequences(const struct attn_run *run, int64_t task, void *scratch)
{
    const int64_t num = run->problem->num_sequences;
    int64_t places[CLASSES] = {0}, place = 0, units = 0;
    (void)task;
    (void)scratch;
    for (int64_t s = 0; s < num; s++)
        places[class_of(run, s)]++;
    for (int class = CLASSES - 1; class >= 0; class --) { /* their numbers become where they begin */
        const int64_t count = places[class];
        places[class] = place;
        place += count;
    }
    for (int64_t s = 0; s < num; s++)
        run->order[places[class_of(run, s)]++].s = s;
    run->order[num].s = num;
    for (int64_t i = 0; i <= num; i++) {
        run->order[i].first = units;
        if (i < num)
            units += units_of(run, attn_sequence_of(run->problem, run->order[i].s).queries);
    }
}

int64_t attn_ordered_block(const struct attn_run *run, int64_t *block)
{
    const int64_t pieces = run->geometry->pieces, num = run->problem->num_sequences, unit = *block / pieces;
    int64_t low = 0, high = num; /* of those that begin at unit or before, the last */
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (run->order[middle].first <= unit)
            low = middle;
        else
            high = middle - 1;
    }
    *block -= run->order[low].first * pieces;
    if (low < num && run->problem->params.causal != ATTN_CAUSAL_NONE) /* the last queries see most keys */
        *block = (run->order[low + 1].first - run->order[low].first) * pieces - 1 - *block;
    return run->order[low].s;
}
