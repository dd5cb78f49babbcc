/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file attn.h
 * @brief libattn: exact softmax attention on CPUs, without the T×T matrix.
 *
 * Introduction
 * ============
 * For every batch element b, query head h and query i the library computes
 *
 *     score[j] = scale * dot(q[b,h,i,:], k[b,g,j,:])        g = h / (Hq / Hkv)
 *     score[j] = softcap * tanh(score[j] / softcap)
 *     score[j] += mask[b,h,i,j] + bias by position          additive mask, ALiBi, T5, ...
 *     score[j]  = -inf where a mask, causality, a window, a block pattern or a length forbids key j
 *     out[b,h,i,:] = sum_j softmax(score)[j] * v[b,g,j,:]
 *
 * Kernels for scalar code, AVX2, AVX-512 and NEON stream over blocks of keys
 * with an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022), so
 * memory beyond the inputs and outputs stays below 2 MiB a thread, whatever
 * the sequence length.
 *
 * What stays from version to version, and how structs grow, is in docs/abi.md.
 *
 * Simple call
 * -----------
 * @code
 *     attn_tensor q = attn_bhtd(q_data, B, H, T, d), k = ..., v = ..., o = ...;
 *     attn_params p = attn_params_default();
 *     p.causal = ATTN_CAUSAL_TOP_LEFT;
 *     if (attn_forward(&q, &k, &v, &o, &p) != ATTN_OK)
 *         fprintf(stderr, "%s\n", attn_last_error());
 * @endcode
 *
 * Plans
 * -----
 * attn_plan_create() checks shapes and chooses kernels and tiles once;
 * attn_plan_run() then runs in the caller's workspace without any allocation.
 * A plan is immutable: any number of threads may run it at once, each with a
 * workspace of its own. attn_plan_run_share() runs one thread's part of a plan
 * for callers that have a thread pool and want no OpenMP.
 *
 * Semantics that differ between other libraries
 * ---------------------------------------------
 *  - Causal alignment is explicit: top-left, bottom-right or by offset.
 *  - A row without a live key has output 0 and log-sum-exp -inf.
 *  - What stands in a masked-out slot of K or V (NaN, Inf, uninitialised
 *    memory) never reaches the output. A NaN in a live slot does.
 *  - On one instruction set a query's result is the same to the last bit from
 *    run to run, for any number of threads, and whatever other queries, heads,
 *    sequences or padding the call holds. (With ATTN_QK_INT8 a call whose last
 *    query sees fewer than 512 keys may differ, within rounding, from a longer
 *    one that begins with it.)
 *  - An option that is not implemented is refused with ATTN_UNSUPPORTED.
 *    Nothing is ever ignored.
 *
 * Errors
 * ------
 * Functions return an attn_status. attn_last_error() gives a sentence, kept
 * per thread, that names the argument, its value and what was expected. No
 * output is written before every argument has been checked.
 *
 * Threads
 * -------
 * There is no mutable global state besides what is detected once (the
 * processor, the environment). All functions may be called from any number of
 * threads at once, and in a child process after fork(), where the work runs on
 * the calling thread alone if the parent had already started threads.
 *
 * Environment (read once, at the first call; an unknown value gives one
 * warning on stderr)
 *  - ATTN_MAX_CPU_ISA=scalar|avx2|avx512|avx512_bf16|neon|neon_bf16 caps what ATTN_ISA_AUTO chooses.
 *  - ATTN_NUM_THREADS=N is the default of attn_params.num_threads.
 *  - ATTN_VERBOSE=1 writes one line per call to stderr.
 */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include "attn/params.h"
#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------- the simple call -- */

/**
 * Computes attention in one call.
 *
 * @param q    (B, Hq, Tq, dk) queries
 * @param k    (B, Hkv, Tk, dk) keys; Hq is a multiple of Hkv
 * @param v    (B, Hkv, Tk, dv) values
 * @param out  (B, Hq, Tq, dv) written
 * @param params options, or NULL for the defaults
 *
 * No output (out, lse, weights, key_sums) may share a byte with itself, with
 * another output or with anything that is read, arrays included: that is
 * ATTN_INVALID_ARGUMENT. Slices of one buffer, such as packed projections,
 * whose rows lie between each other's are fine.
 *
 * Each of q, k, v and out is ATTN_F32, ATTN_BF16 or ATTN_F16, in any mix.
 * Scores, the softmax and the sums are f32 whatever the types; out is rounded
 * once, to nearest even. Where q, k and v are all bf16 and the processor
 * multiplies bf16 pairs (ATTN_ISA_AVX512_BF16, ATTN_ISA_NEON_BF16), the weights
 * are rounded to bf16 before they meet v, whatever params->exp says; their sum
 * is that of the rounded ones. Otherwise bf16 and f16 are widened, exactly, to
 * f32. docs/numerics.md has the errors.
 *
 * Any of the sizes may be 0 except
 * Hkv when Hq is not; with dk = 0 all scores are 0. Head sizes go up to 4096.
 *
 * @return ATTN_OK or an error; on an error nothing has been written.
 */
ATTN_API attn_status attn_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                  const attn_tensor *out, const attn_params *params);

/**
 * Checks what attn_forward() checks, contents of arrays included, and nothing else: for callers that write elsewhere
 * first.
 */
ATTN_API attn_status attn_forward_check(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params);

/** Sets size to the bytes of workspace that attn_forward_in() needs for tensors of these shapes and types, whose data
 * may be NULL. */
ATTN_API attn_status attn_forward_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                 const attn_tensor *out, const attn_params *params, size_t *size);

/** attn_forward() in the caller's memory, of any alignment: allocates nothing. */
ATTN_API attn_status attn_forward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                     const attn_tensor *out, const attn_params *params, void *workspace,
                                     size_t workspace_size);

/* ------------------------------------------------------------------- plans -- */

/** An immutable choice of kernel, tiles and schedule for one shape and set of options. */
typedef struct attn_plan attn_plan;

/**
 * Makes a plan. Only dtype and shape of the tensors and the options are kept;
 * data may be NULL and strides are not looked at. The caller destroys *plan.
 * On an error *plan is set to NULL.
 */
ATTN_API attn_status attn_plan_create(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                                      const attn_tensor *v, const attn_tensor *out, const attn_params *params);

/** Frees a plan; NULL is allowed. */
ATTN_API void attn_plan_destroy(attn_plan *plan);

/** The number of threads the plan was made for. */
ATTN_API int attn_plan_num_threads(const attn_plan *plan);

/** Bytes of workspace that attn_plan_run() and attn_plan_run_share() need; no alignment is asked of it. */
ATTN_API size_t attn_plan_workspace_size(const attn_plan *plan);

/**
 * Runs a plan. The tensors and params must have the dtypes, shapes and options
 * that the plan was made with (params->num_threads is not looked at); data,
 * strides and the contents of arrays and masks are this call's own. Allocates
 * nothing (OpenMP may, for its threads, at the first parallel call).
 *
 * The workspace has at least attn_plan_workspace_size(plan) bytes and is not
 * shared with a concurrent call.
 */
ATTN_API attn_status attn_plan_run(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                   const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                   void *workspace, size_t workspace_size);

/**
 * Runs the share ith of nth of a plan on the calling thread, without OpenMP.
 * The call is complete when every share 0..nth-1 has returned ATTN_OK, in any
 * order or at once, all with the same arguments. nth is 1 to
 * attn_plan_num_threads(plan). The bits are those of attn_plan_run().
 */
ATTN_API attn_status attn_plan_run_share(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                         const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                         void *workspace, size_t workspace_size, int ith, int nth);

/**
 * Describes a plan in one line: instruction set, exp, tiles, tasks, threads and
 * why. Writes at most size bytes with the terminator to buffer and returns the
 * length the whole text has, as snprintf does.
 */
ATTN_API size_t attn_plan_describe(const attn_plan *plan, char *buffer, size_t size);

/* ------------------------------------------------------ around the softmax -- */

/**
 * Joins attention over disjoint sets of keys: parts[n] is the result for the
 * keys of part n alone, with its log-sum-exp, and out becomes what all keys
 * together give, up to rounding. For a shared prefix (cascade), or keys on
 * several machines. A part without a live key (lse -inf) counts for nothing,
 * whatever its rows hold; a row without any gets 0 and -inf. sinks belong to
 * one part only.
 *
 *     lse = log sum_n exp(lses[n]),   out = sum_n exp(lses[n] - lse) parts[n]
 *
 * @param num_parts 1 or more
 * @param parts [num_parts] (B, H, T, dv) f32, bf16 or f16
 * @param lses  [num_parts] f32 (B, H, T, 1); any strides
 * @param out   (B, H, T, dv) f32, bf16 or f16; may be one of parts, must not otherwise overlap an input
 * @param lse   f32 (B, H, T, 1), or NULL; may be one of lses
 * @param num_threads as in attn_params
 */
ATTN_API attn_status attn_merge(int64_t num_parts, const attn_tensor *parts, const attn_tensor *lses,
                                const attn_tensor *out, const attn_tensor *lse, int num_threads);

/**
 * Whether dropout keeps the weight of a key: 1 or 0. What attn_forward() does,
 * for a backward pass or a reference of one's own.
 *
 * Word key % 4 of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers:
 * as easy as 1, 2, 3") at the counter (key / 4, query, head, batch) is compared
 * with p * 2^32, below which the weight is dropped. The generator's key are the first two words of
 * Philox4x32-10 at the counter (offset mod 2^32, offset / 2^32, 0, 0) under the key (seed mod 2^32, seed / 2^32).
 *
 * @param dropout rate, seed and offset; p as attn_params.dropout wants it. NULL: no dropout, so 1
 * @param batch index of the batch element, or of the ragged sequence, modulo 2^32
 * @param head  query head, modulo 2^32
 * @param query index within the batch element or sequence, modulo 2^32
 * @param key   likewise, modulo 2^34
 */
ATTN_API int attn_dropout_keeps(const attn_dropout *dropout, int64_t batch, int64_t head, int64_t query, int64_t key);

/* ----------------------------------------------------------- the processor -- */

/** The name of an instruction set as ATTN_MAX_CPU_ISA takes it, or "auto"; "unknown" for other values. Static storage.
 */
ATTN_API const char *attn_isa_name(attn_isa isa);
/** Whether kernels for isa are built in and this processor and its system can run them. The cap is not looked at. */
ATTN_API int attn_isa_supported(attn_isa isa);
/** What ATTN_ISA_AUTO stands for on this machine, with ATTN_MAX_CPU_ISA applied. */
ATTN_API attn_isa attn_isa_active(void);
/** Size in bytes of the data cache of level 1 to 3 that the system reports for one core, or 0 if unknown. */
ATTN_API size_t attn_cache_size(int level);
/** Threads a call with num_threads = 0 uses now. */
ATTN_API int attn_default_num_threads(void);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_ATTN_H */
