/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mpi_plan.h
 * @brief What of libattn_mpi needs no MPI: how a sequence is cut, and what is done with a plan.
 *
 * attn/mpi.h includes it, and says how the whole is used. It stands apart since messages need not be carried by MPI:
 * the Python package has the same plans over torch.distributed.
 */
#ifndef ATTN_MPI_PLAN_H
#define ATTN_MPI_PLAN_H

#include "attn/attn.h"
#include "attn/backward.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which tokens a rank holds. The values are pinned. */
typedef enum attn_mpi_placement {
    ATTN_MPI_CONTIGUOUS = 0, /**< as many neighbours for each: for full attention, windows and documents */
    /** Twice as many pieces as ranks: rank r has the pieces r and 2 * ranks - 1 - r. Under causality all ranks then
     * see as many pairs (Llama 3's training, "zig-zag") */
    ATTN_MPI_ZIGZAG = 1,
    /** Stripes of config.stripe tokens, dealt out in turn (Brandon et al. 2023, "Striped Attention") */
    ATTN_MPI_STRIPED = 2
} attn_mpi_placement;

/** How keys and values travel. The values are pinned. */
typedef enum attn_mpi_wire {
    ATTN_MPI_AS_GIVEN = 0, /**< in their types; rotated keys in f32 */
    /** In bf16: half the bytes of f32. The result is that of keys and values which have been rounded so, a rank's own
     * with them. Gradients of keys and values travel in f32 all the same */
    ATTN_MPI_BF16 = 1
} attn_mpi_wire;

/** How a sequence is cut. Zero is every field's default except struct_size. It is the same on every rank. */
typedef struct attn_mpi_config {
    size_t struct_size;           /**< sizeof(attn_mpi_config) as the caller compiled it */
    attn_mpi_placement placement; /**< which tokens a rank holds */
    int64_t stripe;               /**< ATTN_MPI_STRIPED: tokens of a stripe; 0 means 512 */
    int64_t queries;              /**< Tq of the whole sequence, or of all ragged ones */
    int64_t keys;                 /**< Tk of the whole sequence, or of all ragged ones */
    attn_mpi_wire wire;           /**< how keys and values travel */
    /**
     * Ranks of a group, which divides ranks and the heads of k: in a group each rank has some of the heads, and all of
     * its tokens, and keys travel between groups alone (Jacobs et al. 2023, "DeepSpeed Ulysses"). 1: heads stay
     * together. 0: chosen, so that least is waited for; attn_mpi_plan_describe() says which and why
     */
    int head_ranks;
    int backward;   /**< non-zero: the plan has the memory for attn_mpi_backward(), too */
    double timeout; /**< seconds that a rank waits for others in one place; 0: for ever */
} attn_mpi_config;

/** A config with every field at its default; set queries and keys. @since 0.1 */
static inline attn_mpi_config attn_mpi_config_default(void)
{
    attn_mpi_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** Neighbouring tokens of the whole sequence. Frozen. */
typedef struct attn_mpi_range {
    int64_t first; /**< the position of the first one */
    int64_t count; /**< how many: 1 or more */
} attn_mpi_range;

/**
 * The tokens that a rank holds, as ranges in ascending order; between two ranges are tokens of other ranks. Needs no
 * communicator.
 *
 * @param config     placement and stripe; the rest is not looked at
 * @param tokens     of the whole sequence: config.queries or config.keys
 * @param ranks      how many there are, 1 or more
 * @param rank       which one, 0 to ranks - 1
 * @param ranges     [max_ranges] the first max_ranges ranges are written here; NULL with max_ranges 0
 * @param max_ranges room there
 * @param num_ranges how many there are, also where there was no room; NULL: not wanted
 * @return ATTN_OK or an error; on an error nothing has been written
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_mpi_ranges(const attn_mpi_config *config, int64_t tokens, int ranks, int rank,
                                     attn_mpi_range *ranges, int64_t max_ranges, int64_t *num_ranges);

/** The sum of the counts of attn_mpi_ranges(): tokens that a rank holds; -1 after an error. @since 0.1, experimental */
ATTN_API int64_t attn_mpi_local_tokens(const attn_mpi_config *config, int64_t tokens, int ranks, int rank);

/** Buffers and requests for one shape. Runs use them, so one run at a time. @since 0.1, experimental */
typedef struct attn_mpi_plan attn_mpi_plan;

/** Frees a plan; collective. NULL is allowed. After ATTN_PEER_LOST the memory that messages may still reach is left.
 * @since 0.1, experimental */
ATTN_API void attn_mpi_plan_destroy(attn_mpi_plan *plan);

/**
 * Describes a plan in one line: ranks, placement, this rank's tokens, bytes of keys and values that a step sends.
 * Writes as attn_plan_describe() does. @since 0.1, experimental
 */
ATTN_API size_t attn_mpi_plan_describe(const attn_mpi_plan *plan, char *buffer, size_t size);

/**
 * The attention of this rank's queries over the keys of all ranks; collective. See "What a rank gives" in attn/mpi.h.
 *
 * Shapes, types and the presence of rope are those of the plan; params may otherwise differ from run to run. Of
 * params these are taken: what is a function of scores and positions (scale, temperature, head_scale, softcap, sinks,
 * alibi_slopes, relative_bias, disentangled, rope; causality, offsets, kv_len, kv_start, prefix_len, segments, a window
 * without global tokens), ragged batches, a mask that has all keys or one for all, lse, and how it is computed. Other
 * options are ATTN_UNSUPPORTED.
 *
 * Memory beside the plan's: for some queries at a time their results and what attn_forward() takes.
 *
 * @param plan of these shapes
 * @param q, k, v, out as in attn_mpi_plan_create(), with data; out is written
 * @param params options, or NULL for the defaults
 * @return ATTN_OK or an error; after ATTN_OUT_OF_MEMORY and ATTN_PEER_LOST out and lse may have been written
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_mpi_forward(attn_mpi_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                      const attn_tensor *v, const attn_tensor *out, const attn_params *params);

/**
 * Gradients of attn_mpi_forward(); collective, of a plan with config.backward. Keys and values travel once more, and
 * their gradients back to the ranks that hold them, where they are added in a fixed order.
 *
 * @param plan      of these shapes
 * @param q, k, v   as attn_mpi_forward() has read them
 * @param out       as it has written it
 * @param params    its options, with lse as it has written it
 * @param gradients as for attn_backward(), of this rank's tokens: out and lse are read; q, k, v are written, and of
 *                  options head_scale, sinks, alibi_slopes and relative_bias, sums over all ranks' queries that every
 *                  rank gets. The others are ATTN_UNSUPPORTED. All ranks ask for the same ones
 * @return as attn_mpi_forward()
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_mpi_backward(attn_mpi_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                       const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                       const attn_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_MPI_PLAN_H */
