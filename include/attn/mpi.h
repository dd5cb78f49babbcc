/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mpi.h
 * @brief libattn_mpi: attention over sequences that are cut among the processes of an MPI communicator.
 *
 * Ring attention (Liu et al. 2023, "Ring Attention with Blockwise Transformers for Near-Infinite Context"): each rank
 * holds some tokens of the sequence. Its queries stay; keys and values travel, and what each rank's keys give to a
 * query is joined by log-sum-exps, so no process ever holds the keys of the whole sequence. While a block of keys is
 * computed with, the next one arrives. A rank sends its keys to those ranks alone that have a query which sees one of
 * them.
 *
 *     attn_mpi_config config = attn_mpi_config_default();
 *     config.queries = config.keys = T;                       // tokens of the whole sequence
 *     config.placement = ATTN_MPI_ZIGZAG;                     // causal: all ranks have as much to do
 *     attn_mpi_range mine[2];
 *     int64_t num;
 *     attn_mpi_ranges(&config, T, ranks, rank, mine, 2, &num);  // which tokens this rank holds
 *     ...                                                     // q, k, v, out: these tokens, one range after the other
 *     attn_mpi_plan *plan;
 *     attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &q, &k, &v, &out, &params, &config);
 *     attn_mpi_forward(plan, &q, &k, &v, &out, &params);
 *     attn_mpi_plan_destroy(plan);
 *
 * What a rank gives
 * -----------------
 * Tensors with a token axis (q, k, v, out, lse, the tables of rope, a mask along its queries, gradients) have this
 * rank's tokens there, in the order of attn_mpi_ranges(). Everything else is that of the whole sequence and the same on
 * every rank: causality, offsets, lengths, windows, labels of segments, cu_seqlens of a ragged batch, slopes and tables
 * by distance, a mask along its keys. So a program differs from one of a single process in the tensors alone.
 *
 * Results do not depend on the number of ranks beyond rounding, and on a fixed number of ranks they have the same bits
 * in every run, for any number of threads.
 *
 * Errors
 * ------
 * Functions marked "collective" are called by all ranks of the communicator. If an argument of one rank is wrong, or
 * ranks give different options, all of them return the same error, with a sentence that names the rank, and nothing has
 * been written. A message that fails or does not come in config.timeout seconds ends the call with ATTN_PEER_LOST; the
 * plan can only be destroyed then. Whether a rank that has died lets the others go on so far is up to the engine: most
 * end all of a job's processes.
 *
 * MPI has been initialised by the caller, with MPI_THREAD_FUNNELED or more where a rank has several threads; collective
 * functions are called by the thread that initialised it.
 */
#ifndef ATTN_MPI_H
#define ATTN_MPI_H

#include "attn/mpi_plan.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a plan; collective. It keeps the config, the shapes and types of the tensors, and whether keys are rotated;
 * data may be NULL, and strides are not looked at. The communicator is duplicated. The caller destroys *plan. On an
 * error *plan is set to NULL.
 *
 * @param plan    set to the plan
 * @param comm    its ranks hold the sequence; an intracommunicator
 * @param q       (B, Hq, this rank's queries, dk) f32, bf16 or f16
 * @param k       (B, Hkv, this rank's keys, dk) the same types, in any mix
 * @param v       (B, Hkv, this rank's keys, dv)
 * @param out     (B, Hq, this rank's queries, dv)
 * @param params  as for attn_mpi_forward(); NULL: the defaults
 * @param config  how the sequence is cut
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_mpi_plan_create(attn_mpi_plan **plan, MPI_Comm comm, const attn_tensor *q,
                                          const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                                          const attn_params *params, const attn_mpi_config *config);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_MPI_H */
