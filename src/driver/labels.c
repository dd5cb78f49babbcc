/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The labels of documents, summed up for blocks of keys: their range, and the
 * ranges of 8, 64, ... blocks. A pass finds the blocks that a strip may see from
 * them, in time that follows from what it sees and not from how many keys there
 * are. Labels may stand in any order; the more they are sorted, the less is
 * looked at.
 *
 * Blocks count from the first live key of each sequence, as everywhere. Of a
 * level whose blocks have size keys, sequence s has the entries from
 * first / size + s on, first being its place on the axis of all keys: enough of
 * them wherever it begins, and found without a table.
 */
#include "driver/driver.h"

/** Keys of all sequences. */
static int64_t all_keys(const struct attn_problem *problem)
{
    return problem->q.shape[0] * problem->k.shape[2];
}

/** Entries of a level. */
static int64_t level_entries(const struct attn_problem *problem, int64_t size)
{
    return all_keys(problem) / size + problem->num_sequences + 1;
}

/** Whether there is a level above the one whose blocks have size keys. */
static int is_last_level(const struct attn_problem *problem, int level, int64_t size)
{
    return level == ATTN_LABEL_LEVELS - 1 || size >= problem->k.shape[2];
}

/** The entries of sequence s in the level that begins at entries. */
static int64_t place_of(const struct attn_problem *problem, const struct attn_sequence *sequence, int64_t s,
                        int64_t size)
{
    return (sequence->batch * problem->k.shape[2] + sequence->k_first) / size + s;
}

size_t attn_labels_size(const struct attn_problem *problem, int key_block)
{
    int64_t entries = 0, size = key_block;
    if (!problem->params.segments || !attn_writes_anything(problem))
        return 0;
    for (int level = 0;; level++, size *= 8) {
        entries += level_entries(problem, size);
        if (is_last_level(problem, level, size))
            break;
    }
    const size_t bytes = (size_t)entries * sizeof(struct attn_label_range);
    return attn_aligned(bytes);
}

static struct attn_label_range range_of_labels(const int32_t *labels, int64_t n)
{
    struct attn_label_range range = {labels[0], labels[0]};
    for (int64_t i = 1; i < n; i++) {
        range.smallest = labels[i] < range.smallest ? labels[i] : range.smallest;
        range.largest = labels[i] > range.largest ? labels[i] : range.largest;
    }
    return range;
}

static struct attn_label_range range_of_ranges(const struct attn_label_range *ranges, int64_t n)
{
    struct attn_label_range range = ranges[0];
    for (int64_t i = 1; i < n; i++) {
        range.smallest = ranges[i].smallest < range.smallest ? ranges[i].smallest : range.smallest;
        range.largest = ranges[i].largest > range.largest ? ranges[i].largest : range.largest;
    }
    return range;
}

void attn_summarise_labels(const struct attn_run *run, int64_t s, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const int64_t keys = sequence.end - sequence.begin;
    const int32_t *labels =
        problem->params.segments->k + sequence.batch * problem->k.shape[2] + sequence.k_first + sequence.begin;
    struct attn_label_range *level_start = run->labels, *below = NULL;
    int64_t size = run->geometry->key_block;
    (void)scratch;
    for (int level = 0;; level++, size *= 8) {
        struct attn_label_range *const level_ranges = level_start + place_of(problem, &sequence, s, size);
        for (int64_t first = 0; first < keys; first += size) {
            const int64_t n = keys - first < size ? keys - first : size, below_size = size / 8;
            level_ranges[first / size] =
                level == 0 ? range_of_labels(labels + first, n)
                           : range_of_ranges(below + first / below_size, (n + below_size - 1) / below_size);
        }
        below = level_ranges;
        level_start += level_entries(problem, size);
        if (is_last_level(problem, level, size))
            break;
    }
}

void attn_view_labels(const struct attn_run *run, int64_t s, struct attn_view *view)
{
    const struct attn_problem *problem = run->problem;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const struct attn_label_range *level_start = run->labels;
    int64_t size = run->geometry->key_block;
    view->label_block = size;
    for (int level = 0;; level++, size *= 8) {
        view->label_levels[level] = level_start + place_of(problem, &sequence, s, size);
        level_start += level_entries(problem, size);
        if (is_last_level(problem, level, size))
            break;
    }
}
