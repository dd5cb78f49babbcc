/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, support and choice of the instruction sets. A set is usable when its
 * kernels are built in and the processor and its system can run it.
 */
#include "dispatch.h"

#include "cpu/cpu.h"
#include "kernels/gradient_sums.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ATTN_ISA_ROW(name, extends, needs) extern const struct attn_isa_kernels attn_kernels_##name;
#include "isa_rows.h"
#undef ATTN_ISA_ROW

/* In rising order of preference. A set that extends another one comes behind it and has its lanes. */
static const struct row {
    const char *name, *extends, *needs;
    const struct attn_isa_kernels *kernels;
} rows[] = {
#define ATTN_ISA_ROW(name, extends, needs) {#name, extends, needs, &attn_kernels_##name},
#include "isa_rows.h"
#undef ATTN_ISA_ROW
};

enum { NUM_ROWS = sizeof rows / sizeof *rows };

static int row_named(const char *name)
{
    for (int i = 0; i < NUM_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return i;
    return -1;
}

/* What has been found out about each row, once: calls of a microsecond compose their kernels anew. */
static struct {
    int base;   /**< the row that it extends, or -1 */
    int runs;   /**< on this processor */
    int matrix; /**< as soon as the system permits matrix registers, which it is asked for when they are wanted */
    int best;   /**< of the rows up to it, the last base that runs, or -1 */
} known[NUM_ROWS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_at_rows(void)
{
    for (int i = 0; i < NUM_ROWS; i++) {
        known[i].base = rows[i].extends[0] ? row_named(rows[i].extends) : -1;
        known[i].runs = attn_cpu_has(rows[i].needs) && (known[i].base < 0 || known[known[i].base].runs);
        known[i].matrix =
            strstr(rows[i].needs, "amxtile") != NULL || (known[i].base >= 0 && known[known[i].base].matrix);
        known[i].best = rows[i].kernels->vectors && known[i].runs ? i : i > 0 ? known[i - 1].best : -1;
    }
}

/** Whether this processor runs a row. */
static int runs(int row)
{
    pthread_once(&once, look_at_rows);
    return row >= 0 && known[row].runs && (!known[row].matrix || attn_cpu_permits_matrix());
}

static int has_int8(int row)
{
    return rows[row].kernels->scores && rows[row].kernels->scores->int8;
}

static int has_pairs(int row)
{
    return rows[row].kernels->values && rows[row].kernels->values->keys_per_word == 2;
}

static int has_free_pairs(int row)
{
    return has_pairs(row) && rows[row].kernels->scores && rows[row].kernels->scores->scores_free;
}

static int has_exact_pairs(int row)
{
    return has_free_pairs(row) && rows[row].kernels->scores->exact_pairs;
}

static int has_pair_gradients(int row)
{
    return has_pairs(row) && rows[row].kernels->gradients;
}

/** Whether a backward pass of a row has room for so many channels. */
static int has_room(int row, int64_t channels)
{
    const struct attn_gradient_kernels *gradients = rows[row].kernels->gradients;
    return !gradients || !gradients->most_channels || channels <= gradients->most_channels;
}

/** Whether callers may name a row: it changes more than int8 scores. */
static int has_name(int row)
{
    return rows[row].kernels->values != NULL;
}

const char *attn_isa_name(int index)
{
    for (int i = 0; index >= 0 && i < NUM_ROWS; i++)
        if (has_name(i) && index-- == 0)
            return rows[i].name;
    return NULL;
}

int attn_isa_row(const char *name)
{
    const int row = row_named(name);
    return row >= 0 && has_name(row) ? row + 1 : 0;
}

int attn_isa_supported(const char *name)
{
    return name && runs(attn_isa_row(name) - 1);
}

void attn_isa_list(char *buffer, size_t size)
{
    size_t length = 0;
    const char *name;
    for (int i = 0; (name = attn_isa_name(i)) && length < size; i++) {
        const char *const before = i == 0 ? "" : attn_isa_name(i + 1) ? ", " : " or ";
        const int n = snprintf(buffer + length, size - length, "%s%s", before, name);
        length += n > 0 ? (size_t)n : 0;
    }
}

static int has_matrix(int row)
{
    return rows[row].kernels->values && rows[row].kernels->values->enter;
}

/** The last row up to last that extends a base, has what is asked for, with room for so many channels, and runs; -1 if
 * there is none. What is emulated is asked for by its own name, or extends what is. */
static int extension(int base, int last, int (*has)(int row), int64_t channels)
{
    for (int i = last; i > base; i--)
        if (known[i].base == base && has(i) && has_room(i, channels) && runs(i) &&
            (i == last || !rows[i].kernels->emulated || rows[base].kernels->emulated))
            return i;
    return -1;
}

/** A strip is as wide as all functions take it. */
static int narrowest_strip(const struct attn_kernels *kernels)
{
    int vectors = kernels->vectors->strip / kernels->vectors->lanes;
    if (kernels->scores->strip_vectors && kernels->scores->strip_vectors < vectors)
        vectors = kernels->scores->strip_vectors;
    if (kernels->values->strip_vectors && kernels->values->strip_vectors < vectors)
        vectors = kernels->values->strip_vectors;
    return vectors * kernels->vectors->lanes;
}

int attn_kernels_choose(struct attn_kernels *kernels, const struct attn_demand *demand)
{
    const int cap = demand->isa ? demand->isa - 1 : NUM_ROWS - 1;
    pthread_once(&once, look_at_rows);
    for (int base = known[cap].best; base >= 0; base = base > 0 ? known[base - 1].best : -1) {
        const struct attn_isa_kernels *own = rows[base].kernels;
        *kernels = (struct attn_kernels){.isa = rows[base].name,
                                         .score_isa = rows[base].name,
                                         .qk = demand->qk,
                                         .strip = own->vectors->strip,
                                         .fetches_ahead = attn_cpu_fetches_ahead(),
                                         .fetches_near = attn_cpu_fetches_near(),
                                         .vectors = own->vectors,
                                         .scores = own->scores,
                                         .values = own->values,
                                         .plain = own->values,
                                         .gradients = own->gradients,
                                         .states = own->states};
        int (*const has)(int row) = demand->gradients ? has_pair_gradients : demand->free ? has_free_pairs : has_pairs;
        int pairs = demand->exact_pairs ? extension(base, cap, has_exact_pairs, 0) : -1;
        const int exact = pairs >= 0;
        if (pairs < 0 && demand->pairs)
            pairs = extension(base, cap, has, demand->gradients ? demand->channels : 0);
        if (pairs >= 0 && !has_matrix(pairs) && !demand->insists && !attn_cpu_gains_by_pairs())
            pairs = -1;
        if (pairs >= 0) {
            kernels->isa = kernels->score_isa = rows[pairs].name;
            kernels->scores = rows[pairs].kernels->scores;
            kernels->values = rows[pairs].kernels->values;
            kernels->exact_pairs = exact;
            if (rows[pairs].kernels->gradients)
                kernels->gradients = rows[pairs].kernels->gradients;
            kernels->strip = narrowest_strip(kernels);
        }
        if (demand->qk != ATTN_QK_INT8)
            return 1;
        int int8 = pairs >= 0 ? extension(pairs, NUM_ROWS - 1, has_int8, 0) : -1;
        if (int8 < 0)
            int8 = extension(base, NUM_ROWS - 1, has_int8, 0);
        if (int8 >= 0) {
            kernels->score_isa = rows[int8].name;
            kernels->scores = rows[int8].kernels->scores;
            kernels->strip = narrowest_strip(kernels);
            return 1;
        }
    }
    return 0;
}

struct attn_kernels attn_kernels_plain(int cap)
{
    struct attn_kernels kernels;
    const struct attn_demand demand = {.isa = cap};
    attn_kernels_choose(&kernels, &demand);
    return kernels;
}
