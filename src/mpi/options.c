/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of options: numbers for each head, one after the other, those of one option behind those of another.
 */
#include "mpi/options.h"

#include "api/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** Numbers of a table of rows. */
static int64_t numbers_of(const attn_tensor *table)
{
    return table ? table->shape[1] * table->shape[2] * table->shape[3] : 0;
}

attn_status mpi_options_make(struct mpi_options *options, const attn_params *params, const attn_gradients *wanted,
                             int64_t heads, int ranks)
{
    const int64_t numbers[MPI_GRADIENTS] = {
        [MPI_HEAD_SCALE] = wanted->head_scale ? heads : 0,
        [MPI_SINKS] = wanted->sinks ? heads : 0,
        [MPI_SLOPES] = wanted->alibi_slopes ? heads : 0,
        [MPI_TABLE] = wanted->relative_bias ? heads * params->relative_bias->buckets : 0,
        [MPI_REL_K] = numbers_of(wanted->rel_k),
        [MPI_REL_Q] = numbers_of(wanted->rel_q),
    };
    *options = (struct mpi_options){.wanted = wanted, .heads = heads};
    for (int i = 0; i < MPI_GRADIENTS; i++) {
        options->begin[i] = options->num;
        options->num += numbers[i];
        options->end[i] = options->num;
    }
    if (!options->num)
        return ATTN_OK;
    options->sums = calloc((size_t)options->num, (1 + (size_t)ranks) * sizeof *options->sums);
    options->part = calloc((size_t)options->num, sizeof *options->part);
    if (!options->sums || !options->part)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for gradients of %" PRId64 " numbers of options", options->num);
    return ATTN_OK;
}

/** Where the numbers of a head of an option begin, or NULL if it is not wanted. */
static float *numbers_at(const struct mpi_options *options, enum mpi_option option, int64_t head)
{
    const int64_t begin = options->begin[option], all = options->end[option] - begin;
    return all ? options->part + begin + head * (all / options->heads) : NULL;
}

/** The same of some heads of a table of rows, which may be one for all heads. */
static const attn_tensor *rows_at(const struct mpi_options *options, enum mpi_option option, const attn_tensor *wanted,
                                  int64_t head, int64_t heads, attn_tensor *rows)
{
    if (!wanted)
        return NULL;
    const int shared = wanted->shape[1] == 1;
    *rows = attn_bhtd(options->part ? options->part + options->begin[option] : NULL, 1, shared ? 1 : heads,
                      wanted->shape[2], wanted->shape[3]);
    if (!shared && options->part)
        rows->data = (float *)rows->data + head * rows->stride[1];
    return rows;
}

void mpi_options_ask(struct mpi_options *options, int64_t head, int64_t heads, attn_gradients *g)
{
    const attn_gradients *wanted = options->wanted;
    if (options->num)
        memset(options->part, 0, (size_t)options->num * sizeof *options->part);
    g->head_scale = numbers_at(options, MPI_HEAD_SCALE, head);
    g->sinks = numbers_at(options, MPI_SINKS, head);
    g->alibi_slopes = numbers_at(options, MPI_SLOPES, head);
    g->relative_bias = numbers_at(options, MPI_TABLE, head);
    g->rel_k = rows_at(options, MPI_REL_K, wanted->rel_k, head, heads, &options->rel_k);
    g->rel_q = rows_at(options, MPI_REL_Q, wanted->rel_q, head, heads, &options->rel_q);
}

void mpi_options_add(struct mpi_options *options)
{
    for (int64_t n = 0; n < options->num; n++)
        options->sums[n] += (double)options->part[n];
}

attn_status mpi_options_sum(struct mpi_options *options, struct mpi_team *team)
{
    const int64_t num = options->num;
    if (!num)
        return ATTN_OK;
    double *all = options->sums + num;
    CHECK(mpi_gather(team, options->sums, (size_t)num * sizeof *all, all, "gradients of options"));
    for (int64_t n = 0; n < num; n++) {
        double sum = 0;
        for (int rank = 0; rank < team->ranks; rank++)
            sum += all[rank * num + n];
        options->part[n] = (float)sum;
    }
    return ATTN_OK;
}

/** Numbers to an array of the caller's. */
static void deliver(const struct mpi_options *options, enum mpi_option option, float *to)
{
    const int64_t begin = options->begin[option];
    for (int64_t n = begin; n < options->end[option]; n++)
        to[n - begin] = options->part[n];
}

/** Rows to a table of the caller's. */
static void deliver_rows(const struct mpi_options *options, enum mpi_option option, const attn_tensor *to)
{
    const float *from = options->part + options->begin[option];
    if (options->begin[option] == options->end[option])
        return;
    for (int64_t h = 0; h < to->shape[1]; h++)
        for (int64_t row = 0; row < to->shape[2]; row++, from += to->shape[3])
            memcpy((float *)to->data + h * to->stride[1] + row * to->stride[2], from,
                   (size_t)to->shape[3] * sizeof *from);
}

void mpi_options_deliver(const struct mpi_options *options)
{
    const attn_gradients *wanted = options->wanted;
    deliver(options, MPI_HEAD_SCALE, wanted->head_scale);
    deliver(options, MPI_SINKS, wanted->sinks);
    deliver(options, MPI_SLOPES, wanted->alibi_slopes);
    deliver(options, MPI_TABLE, wanted->relative_bias);
    deliver_rows(options, MPI_REL_K, wanted->rel_k);
    deliver_rows(options, MPI_REL_Q, wanted->rel_q);
}
