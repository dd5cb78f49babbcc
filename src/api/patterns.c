/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builders of block-sparse patterns.
 *
 * All three patterns are one rule with different numbers: the first columns, a
 * window around the row's own column, every stride-th column, and some columns
 * chosen among those that are left. How many columns a row has follows from
 * that without listing them, so a pattern is counted first and then written
 * into memory that is allocated once. Every head has the same counts.
 *
 * The choice. Row r of head h draws from SplitMix64 (Steele, Lea and Flood
 * 2014, "Fast splittable pseudorandom number generators") in the state
 * mix(mix(mix(seed) + h) + r), where mix is that generator's output function.
 * Of n candidates, numbered by rising column, k are taken by Floyd's algorithm
 * (Bentley and Floyd 1987, "A sample of brilliance"): for j from n - k to n - 1,
 * candidate floor(x (j + 1) / 2^64) for the next word x if it is not taken yet,
 * else candidate j. All of it is integer arithmetic, so a seed means the same
 * pattern on every machine; head 0 of many has the pattern of a single one.
 */
#include "attn/patterns.h"

#include "api/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct attn_pattern {
    attn_block_mask mask; /**< its arrays lie behind this struct */
    double density;
};

struct rule {
    int64_t rows, columns, heads;
    int64_t global, window, stride, random; /**< stride 0: none */
    uint64_t seed;
    int causal;
};

/** What a row lists: columns 0 to first - 1 and from to to - 1, and some of the others before end. */
struct row {
    int64_t first, from, to, end;
    int64_t residue; /**< of the columns a multiple of stride away */
    int64_t strided; /**< how many of the others these are */
    int64_t random;  /**< how many of the others are chosen */
};

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static struct row row_at(const struct rule *rule, int64_t r)
{
    struct row row = {.end = rule->causal && r < rule->columns ? r + 1 : rule->columns};
    row.first = r < rule->global ? row.end : clamp(rule->global, 0, row.end);
    row.from = clamp(r - rule->window, row.first, row.end);
    row.to = clamp(r + rule->window + 1, row.from, row.end);
    if (rule->stride > 0) { /* the window of stride - 1 has one of them: the row's own column */
        row.residue = r % rule->stride;
        const int64_t all = row.residue < row.end ? (row.end - 1 - row.residue) / rule->stride + 1 : 0;
        row.strided = all - (r < row.end);
    }
    const int64_t others = (row.from - row.first) + (row.end - row.to);
    row.random = rule->random < others ? rule->random : others;
    return row;
}

static int64_t row_count(const struct row *row)
{
    return row->first + (row->to - row->from) + row->strided + row->random;
}

/* ------------------------------------------------------------- the choice -- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/** floor(x n / 2^64) for n below 2^32. */
static int64_t scale_word(uint64_t x, int64_t n)
{
    const uint64_t low = (x & 0xffffffffu) * (uint64_t)n, high = (x >> 32) * (uint64_t)n;
    return (int64_t)((high + (low >> 32)) >> 32);
}

/** Sets row->random bits of taken, a map of columns. */
static void choose(const struct row *row, uint64_t state, uint64_t *taken)
{
    const int64_t before = row->from - row->first, others = before + (row->end - row->to);
    for (int64_t j = others - row->random; j < others; j++) {
        state += 0x9e3779b97f4a7c15u;
        int64_t candidate = scale_word(mix(state), j + 1);
        int64_t column = candidate < before ? row->first + candidate : row->to + (candidate - before);
        if (taken[column / 64] >> (column % 64) & 1)
            column = j < before ? row->first + j : row->to + (j - before);
        taken[column / 64] |= (uint64_t)1 << (column % 64);
    }
}

/* ---------------------------------------------------------------- listing -- */

static int32_t *list_range(int32_t *at, int64_t from, int64_t to)
{
    for (int64_t c = from; c < to; c++)
        *at++ = (int32_t)c;
    return at;
}

/** Lists what is taken between two columns, and takes it from the map. */
static int32_t *list_taken(int32_t *at, uint64_t *taken, int64_t from, int64_t to)
{
    for (int64_t word = from / 64; from < to && word <= (to - 1) / 64; word++) {
        uint64_t bits = taken[word];
        if (word == from / 64)
            bits &= ~(uint64_t)0 << (from % 64);
        if (word == (to - 1) / 64)
            bits &= ~(uint64_t)0 >> (63 - (to - 1) % 64);
        taken[word] ^= bits;
        for (; bits; bits &= bits - 1)
            *at++ = (int32_t)(word * 64 + __builtin_ctzll(bits));
    }
    return at;
}

/** Lists the columns of a row that lie outside its ranges. */
static int32_t *list_others(int32_t *at, const struct rule *rule, const struct row *row, uint64_t *taken, int64_t from,
                            int64_t to)
{
    if (row->strided > 0) {
        const int64_t behind = from > row->residue ? from - row->residue + rule->stride - 1 : 0;
        for (int64_t c = row->residue + behind / rule->stride * rule->stride; c < to; c += rule->stride)
            *at++ = (int32_t)c;
    }
    return row->random > 0 ? list_taken(at, taken, from, to) : at;
}

static int32_t *list_row(int32_t *at, const struct rule *rule, int64_t head, int64_t r, uint64_t *taken)
{
    const struct row row = row_at(rule, r);
    if (row.random > 0)
        choose(&row, mix(mix(mix(rule->seed) + (uint64_t)head) + (uint64_t)r), taken);
    at = list_range(at, 0, row.first);
    at = list_others(at, rule, &row, taken, row.first, row.from);
    at = list_range(at, row.from, row.to);
    return list_others(at, rule, &row, taken, row.to, row.end);
}

/* --------------------------------------------------------------- building -- */

/** Checks what the builders share and fills in the rule's sizes. */
static attn_status check_common(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size, const void *options,
                                const char *type, struct rule *rule)
{
    if (!pattern)
        return attn_fail(ATTN_INVALID_ARGUMENT, "pattern is NULL; expected the address of a pointer");
    *pattern = NULL;
    if (!options)
        return attn_fail(ATTN_INVALID_ARGUMENT, "options is NULL; expected an %s", type);
    if (tq < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tq is %" PRId64 "; expected 0 or more", tq);
    if (tk < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tk is %" PRId64 "; expected 0 or more", tk);
    if (size <= 0 || size % 16)
        return attn_fail(ATTN_INVALID_ARGUMENT, "size is %" PRId64 "; expected a multiple of 16", size);
    *rule = (struct rule){.rows = tq / size + (tq % size > 0), .columns = tk / size + (tk % size > 0), .heads = 1};
    if (rule->rows > INT32_MAX)
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "tq is %" PRId64 ", which makes %" PRId64 " block rows; expected at most %d", tq, rule->rows,
                         INT32_MAX);
    if (rule->columns > INT32_MAX)
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "tk is %" PRId64 ", which makes %" PRId64 " block columns; expected at most %d", tk,
                         rule->columns, INT32_MAX);
    return ATTN_OK;
}

static attn_status check_count(const char *name, int64_t value)
{
    if (value < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "options.%s is %" PRId64 "; expected 0 or more", name, value);
    return ATTN_OK;
}

/** A count of blocks that is at most what there is, so that sums with it do not overflow. */
static int64_t as_far_as_there_is(const struct rule *rule, int64_t blocks)
{
    return clamp(blocks, 0, rule->rows > rule->columns ? rule->rows : rule->columns);
}

/** Bytes of offsets, map and columns, for so many rows and listed blocks in all heads; 0 when they overflow. */
static int64_t memory_of(const struct rule *rule, int64_t rows, int64_t listed)
{
    const int64_t words = rule->random > 0 ? rule->columns / 64 + 1 : 0;
    int64_t offset_bytes, column_bytes, bytes;
    if (__builtin_add_overflow(rows, 1 + words, &offset_bytes) ||
        __builtin_mul_overflow(offset_bytes, (int64_t)sizeof(int64_t), &offset_bytes) ||
        __builtin_mul_overflow(listed, (int64_t)sizeof(int32_t), &column_bytes) ||
        __builtin_add_overflow(offset_bytes, column_bytes, &bytes) ||
        __builtin_add_overflow(bytes, (int64_t)sizeof(struct attn_pattern), &bytes))
        return 0;
    return bytes;
}

static void fill(const struct rule *rule, int64_t *offsets, uint64_t *taken, int32_t *columns)
{
    int32_t *at = columns;
    *offsets++ = 0;
    for (int64_t head = 0; rule->rows > 0 && head < rule->heads; head++) {
        for (int64_t r = 0; r < rule->rows; r++) {
            at = list_row(at, rule, head, r, taken);
            *offsets++ = at - columns;
        }
    }
}

static attn_status build(attn_pattern **pattern, const struct rule *rule, int64_t size)
{
    int64_t of_head = 0, rows, listed, bytes = 0;
    for (int64_t r = 0; r < rule->rows; r++) { /* at most 2^31 rows of 2^31 */
        const struct row row = row_at(rule, r);
        of_head += row_count(&row);
    }
    if (!__builtin_mul_overflow(rule->heads, rule->rows, &rows) &&
        !__builtin_mul_overflow(rule->heads, of_head, &listed))
        bytes = memory_of(rule, rows, listed);
    if (!bytes)
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "%" PRId64 " heads of %" PRId64 " block rows list %" PRId64
                         " blocks each; expected fewer than 2^63 bytes in all",
                         rule->heads, rule->rows, of_head);
    struct attn_pattern *made = malloc((size_t)bytes);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a pattern of %" PRId64 " bytes", bytes);
    int64_t *offsets = (int64_t *)(made + 1);
    uint64_t *taken = (uint64_t *)(offsets + rows + 1);
    const int64_t words = rule->random > 0 ? rule->columns / 64 + 1 : 0;
    int32_t *columns = (int32_t *)(taken + words);
    memset(taken, 0, (size_t)words * sizeof *taken);
    fill(rule, offsets, taken, columns);
    made->mask = (attn_block_mask){size, rule->heads, rule->rows, offsets, columns};
    const double blocks = (double)rows * (double)rule->columns;
    made->density = blocks > 0 ? (double)listed / blocks : 0;
    *pattern = made;
    return ATTN_OK;
}

attn_status attn_pattern_longformer(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                    const attn_longformer *options)
{
    struct rule rule;
    attn_status status = check_common(pattern, tq, tk, size, options, "attn_longformer", &rule);
    if (!status)
        status = check_count("window", options->window);
    if (!status)
        status = check_count("global", options->global);
    if (status)
        return status;
    rule.window = as_far_as_there_is(&rule, options->window);
    rule.global = as_far_as_there_is(&rule, options->global);
    rule.causal = options->causal != 0;
    return build(pattern, &rule, size);
}

attn_status attn_pattern_bigbird(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                 const attn_bigbird *options)
{
    struct rule rule;
    attn_status status = check_common(pattern, tq, tk, size, options, "attn_bigbird", &rule);
    if (!status)
        status = check_count("window", options->window);
    if (!status)
        status = check_count("global", options->global);
    if (!status)
        status = check_count("random", options->random);
    if (!status)
        status = check_count("heads", options->heads);
    if (status)
        return status;
    rule.window = as_far_as_there_is(&rule, options->window);
    rule.global = as_far_as_there_is(&rule, options->global);
    rule.random = as_far_as_there_is(&rule, options->random);
    rule.seed = options->seed;
    rule.heads = options->heads > 1 ? options->heads : 1;
    rule.causal = options->causal != 0;
    return build(pattern, &rule, size);
}

attn_status attn_pattern_strided(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                 const attn_strided *options)
{
    struct rule rule;
    attn_status status = check_common(pattern, tq, tk, size, options, "attn_strided", &rule);
    if (!status)
        status = check_count("stride", options->stride);
    if (status)
        return status;
    const int64_t stride = options->stride > 0 ? options->stride : (int64_t)(sqrt((double)rule.rows) + 0.5);
    rule.stride = 1 + as_far_as_there_is(&rule, stride - 1);
    rule.window = rule.stride - 1;
    rule.causal = options->causal != 0;
    return build(pattern, &rule, size);
}

void attn_pattern_destroy(attn_pattern *pattern)
{
    free(pattern);
}

const attn_block_mask *attn_pattern_block_mask(const attn_pattern *pattern)
{
    return pattern ? &pattern->mask : NULL;
}

double attn_pattern_density(const attn_pattern *pattern)
{
    return pattern ? pattern->density : 0;
}
