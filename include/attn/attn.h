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
 * Kernels for scalar code, AVX2, AVX-512, AMX and NEON stream over blocks of
 * keys with an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022), so
 * memory beyond the inputs and outputs stays below 2 MiB a thread, whatever
 * the sequence length, and 8 MiB more where threads share the keys of few
 * queries.
 *
 * What stays from version to version, and how structs grow, is in docs/abi.md.
 *
 * Simple call
 * -----------
 * @code
 *     attn_tensor q = attn_bhtd(q_data, B, H, T, d), k = attn_bhtd(k_data, B, H, T, d);
 *     attn_tensor v = attn_bhtd(v_data, B, H, T, d), o = attn_bhtd(o_data, B, H, T, d);
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
 * Runs do not change a plan: any number of threads may run it at once, each with
 * a workspace of its own. With attn_plan_begin() and attn_plan_run_share() a
 * caller's own threads do the work, phase by phase.
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
 * processor, the environment) and the executor that attn_set_executor() sets.
 * All functions may be called from any number of threads at once.
 *
 * Work runs on OpenMP's threads, on those of a caller's executor
 * (attn_executor), or on threads that run the shares of a plan themselves. A
 * library built without OpenMP has only the last two; where a caller uses
 * neither, it works on the calling thread alone. At most ATTN_MAX_THREADS take
 * part in a call, and no more than the system lets the process start.
 *
 * All functions work in a child process after fork(). If the parent had several
 * threads, or had run a call on several, the child works on the calling thread
 * alone and without the process's executor, until it sets one of its own. An
 * executor that attn_params.executor names is used in any process.
 *
 * No function is a cancellation point (pthreads(7)), but for what a caller's
 * executor or callback does: a thread that is cancelled in a call ends after it.
 * Signals may arrive at any time, but a handler must not call functions that
 * allocate, wait or report errors, which is all that take tensors. Functions work
 * in handlers of atexit() and in destructors, too, and with gcc's OpenMP runtime a
 * process may end while threads are in calls (LLVM's aborts now and then).
 *
 * Stability
 * ---------
 * The comment of each function says since which version it exists. A function
 * keeps its name and its meaning until the next major version, unless its comment
 * calls it experimental: then a minor version may change it. Until 1.0 a minor
 * version may break others, too; NEWS.md lists every break.
 *
 * Environment (read once, at the first call; an unknown value gives one
 * warning on stderr)
 *  - ATTN_MAX_CPU_ISA=NAME caps what attn_params.isa = NULL chooses; attn_isa_name() gives the names.
 *  - ATTN_NUM_THREADS=N is the default of attn_params.num_threads, also with an executor.
 *  - ATTN_VERBOSE=1 writes one line per call to stderr.
 */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include "attn/params.h"
#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- threads -- */

/** The most threads that take part in a call: larger values of num_threads count as this. */
#define ATTN_MAX_THREADS 1024

/**
 * The caller's own threads for calls of both libraries: a thread pool, or the
 * parallel loop of another framework.
 *
 * run() calls share(context, ith) once for each ith from 0 to shares - 1 and
 * returns when all of these calls have returned. It may do so in any order, on
 * any threads, several at once or all on one, the calling thread among them:
 * no share waits for one that has not begun. When run() returns, the calling thread must see
 * what the shares have written. shares is 2 to num_threads: work that is too
 * small for two threads never comes here. A share calls neither run() nor
 * anything of OpenMP.
 *
 * Calls on several threads at once call run() at once. Results have the same bits
 * as with OpenMP.
 *
 * After fork() see "Threads" above. An executor that attn_params names is used in
 * a child, too: run() must then have started its threads in that child.
 */
typedef struct attn_executor {
    size_t struct_size; /**< sizeof(attn_executor) as the caller compiled it */
    int num_threads;    /**< shares that run at once: the default of a call's num_threads, and its limit; 1 or more */
    /** Runs all shares, see above. */
    void (*run)(void *user, int shares, void (*share)(void *context, int ith), void *context);
    void *user; /**< handed to run */
} attn_executor;

/** An executor with struct_size set and everything else zero; set num_threads and run. @since 0.1 */
static inline attn_executor attn_executor_default(void)
{
    attn_executor e;
    memset(&e, 0, sizeof e);
    e.struct_size = sizeof e;
    return e;
}

/**
 * Sets the executor for all calls in this process, of libattn and of libattn_nn,
 * that name none of their own. NULL goes back to OpenMP.
 *
 * The struct is not copied: it must stay as it is until another one is set and
 * all calls that began before have returned. May be called at any time and from
 * any thread. A call that is under way keeps the executor that it has, or takes
 * the new one for the work that it has not begun.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_set_executor(const attn_executor *executor);

/** Threads that a call with num_threads = 0 asks for now: ATTN_NUM_THREADS, else the executor's num_threads, else
 * OpenMP's setting: by default the processors that cpusets, taskset and a cgroup's quota leave; 1 without OpenMP.
 * @since 0.1 */
ATTN_API int attn_default_num_threads(void);

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
 * No output (out, lse, weights, key_sums, scores) may share a byte with itself,
 * with another output or with anything that is read, arrays included: that is
 * ATTN_INVALID_ARGUMENT. Interleaved slices of one buffer, such as packed
 * projections, are fine.
 *
 * What is only read may share memory. In latent attention (DeepSeek's MLA) values
 * are the first channels of the keys: v is k with a smaller shape[3], and where k is
 * quantised v_scale is k_scale, of ATTN_I4 with the scales of v's groups as shape[3].
 * Such rows are read from memory once;
 * docs/caches.md has an example.
 *
 * Each of q, k, v and out is ATTN_F32, ATTN_BF16 or ATTN_F16, in any mix.
 * Scores, the softmax and the sums are f32 whatever the types; out is rounded
 * once, to nearest even. Where q, k and v are all bf16, or params->inputs permits
 * to take them so, and the kernels that run multiply pairs of bf16 (the sets
 * avx512_bf16, amx_bf16, neon_bf16 and neon_bf16mm), the weights are rounded to
 * bf16 before they are summed and multiplied with v. Otherwise bf16 and f16 are
 * widened, exactly, to f32. docs/numerics.md has the errors.
 *
 * Any size may be 0, except Hkv when Hq is not. With dk = 0 all scores are 0.
 * Head sizes go up to 4096.
 *
 * @return ATTN_OK or an error; on an error nothing has been written.
 * @since 0.1
 */
ATTN_API attn_status attn_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                  const attn_tensor *out, const attn_params *params);

/**
 * Sets *size to the bytes of workspace that attn_forward_in() can use for tensors
 * of these shapes and types. Their data may be NULL.
 * @since 0.1
 */
ATTN_API attn_status attn_forward_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                 const attn_tensor *out, const attn_params *params, size_t *size);

/**
 * attn_forward() in the caller's memory, of any alignment: allocates nothing.
 *
 * The size that attn_forward_workspace_size() has given for these shapes is
 * always enough, even if the number of threads has grown since: then as many take
 * part as the workspace has room for. ATTN_WORKSPACE_TOO_SMALL: there is no room
 * for one thread.
 * @since 0.1
 */
ATTN_API attn_status attn_forward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                     const attn_tensor *out, const attn_params *params, void *workspace,
                                     size_t workspace_size);

/* ------------------------------------------------------------------- plans -- */

/** A choice of kernel, tiles and schedule for one shape and set of options. Runs do not change it. @since 0.1 */
typedef struct attn_plan attn_plan;

/**
 * Makes a plan. It keeps the options, and the dtypes and shapes of the tensors;
 * data may be NULL, and strides are not looked at. The caller destroys *plan. On
 * an error *plan is set to NULL.
 * @since 0.1
 */
ATTN_API attn_status attn_plan_create(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                                      const attn_tensor *v, const attn_tensor *out, const attn_params *params);

/**
 * Promises that the arrays that params points to (lengths, offsets, lists of
 * keys, labels, tables, slopes; not tensors) will hold in every run of the plan
 * what they hold now, in the same place or in another. They are checked here;
 * runs check only where they lie. What every run would derive from them is derived
 * now and kept: with segments, the range of labels of each block of keys. So from
 * now on a run may have fewer phases and take less workspace. What a run with
 * other contents does is undefined.
 *
 * Called once, by one thread, before any run. Of tensors in params only the shapes
 * are looked at; so the scales of a quantised k and v may change, but runs no longer
 * look at their numbers: one that is NaN or infinite gives results that are NaN. On
 * an error the plan is as it was.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_plan_keep(attn_plan *plan, const attn_params *params);

/** Frees a plan; NULL is allowed. @since 0.1 */
ATTN_API void attn_plan_destroy(attn_plan *plan);

/** The number of threads the plan was made for, 1 to ATTN_MAX_THREADS; 0 for NULL. @since 0.1 */
ATTN_API int attn_plan_num_threads(const attn_plan *plan);

/** The number of phases of a run, 1 or more, for attn_plan_run_share(): one more each where threads share the keys of
 * few queries, and where many of them share sequences whose lengths are data. 0 for NULL. @since 0.1, experimental */
ATTN_API int attn_plan_num_phases(const attn_plan *plan);

/** Bytes of workspace that a run needs; no alignment is asked of it. SIZE_MAX for NULL. @since 0.1 */
ATTN_API size_t attn_plan_workspace_size(const attn_plan *plan);

/**
 * Runs a plan. The tensors and params must have the dtypes, shapes and options
 * that the plan was made with (params->num_threads is not looked at, and
 * params->executor may be another one); data, strides and the contents of arrays
 * and masks are this call's own. Allocates nothing (OpenMP may, for its threads,
 * at the first parallel call).
 *
 * The workspace has at least attn_plan_workspace_size(plan) bytes and is not
 * shared with a concurrent call.
 * @since 0.1
 */
ATTN_API attn_status attn_plan_run(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                   const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                   void *workspace, size_t workspace_size);

/**
 * How far a run of the plan in that workspace is, for whoever shows it: of all tasks of the run, those that have
 * begun. It asks nothing of the run and may be called by any thread, before, during and after attn_plan_run() in the
 * same workspace; when no run has begun there, the workspace must have been filled with zeros. The phases of a run and
 * its tasks are not all of the same size.
 *
 * @param plan            the run's
 * @param workspace       the run's; it is only read
 * @param workspace_size  attn_plan_workspace_size(plan) or more bytes
 * @param begun           tasks that have begun: 0 before the run, *tasks at its end
 * @param tasks           all tasks of the run
 * @return ATTN_OK, ATTN_INVALID_ARGUMENT for a NULL, or ATTN_WORKSPACE_TOO_SMALL
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_plan_progress(const attn_plan *plan, const void *workspace, size_t workspace_size,
                                        int64_t *begun, int64_t *tasks);

/**
 * Begins a run whose shares the caller's threads run: checks what attn_plan_run()
 * checks, on the calling thread alone, and keeps the checked call in the workspace.
 * The structs q, k, v, out and params may go away when it returns. The data of the
 * tensors, and the structs and arrays that params points to, must stay valid and
 * unchanged until the last share has returned. On an error at most the workspace
 * has been written.
 *
 *     attn_plan_begin(plan, q, k, v, out, params, workspace, size);
 *     for (phase = 0; phase < attn_plan_num_phases(plan); phase++) {
 *         // on nth threads, ith = 0 to nth - 1:
 *         attn_plan_run_share(plan, workspace, phase, ith, nth);
 *         // wait for all of them
 *     }
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_plan_begin(const attn_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                     const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                     void *workspace, size_t workspace_size);

/**
 * Runs share ith of the nth shares of a phase on the calling thread, without
 * OpenMP. Shares 0 to nth - 1 run in any order, or at once; when all have returned
 * the phase is complete, and only then may a share of the next one begin. The run
 * is complete with its last phase; another run begins with attn_plan_begin(). nth
 * is 1 to attn_plan_num_threads(plan) and may differ from phase to phase. The bits
 * are those of attn_plan_run().
 *
 * Only these arguments are checked here: the share itself cannot fail.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_plan_run_share(const attn_plan *plan, void *workspace, int phase, int ith, int nth);

/**
 * Describes a plan in one line: instruction set, tiles, tasks, threads, how keys
 * are split among them, and why. Writes at most size bytes to buffer, the
 * terminator among them, and returns the length of the whole text, as snprintf
 * does. A buffer of NULL counts as a size of 0; the text of a plan that is NULL is
 * empty.
 * @since 0.1
 */
ATTN_API size_t attn_plan_describe(const attn_plan *plan, char *buffer, size_t size);

/* ------------------------------------------------------ around the softmax -- */

/**
 * Joins attention over disjoint sets of keys. parts[n] is the result for set n
 * alone and lses[n] its log-sum-exp; out becomes what all keys together give, up
 * to rounding. This serves a prefix that sequences share (cascade), and keys on
 * several machines. Where lses[n] is -inf, as the row sees no live key of set n,
 * part n counts for nothing, whatever it holds there; where all of them are, out
 * is 0 and lse -inf. Sinks belong in one part only.
 *
 *     lse = log sum_n exp(lses[n]),   out = sum_n exp(lses[n] - lse) parts[n]
 *
 * @param num_parts 1 or more
 * @param parts [num_parts] (B, H, T, dv) f32, bf16 or f16
 * @param lses  [num_parts] f32 (B, H, T, 1); any strides
 * @param out   (B, H, T, dv) f32, bf16 or f16; may be one of parts, must not otherwise overlap an input
 * @param lse   f32 (B, H, T, 1), or NULL; may be one of lses
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_merge(int64_t num_parts, const attn_tensor *parts, const attn_tensor *lses,
                                const attn_tensor *out, const attn_tensor *lse, int num_threads);

/**
 * Whether dropout keeps the weight of a key: 1 or 0. attn_forward() decides by the
 * same rule; this is for a backward pass, or a reference of one's own.
 *
 * The weight is dropped if word key % 4 of Philox4x32-10 (Salmon et al. 2011,
 * "Parallel random numbers: as easy as 1, 2, 3") at the counter (key / 4, query,
 * head, batch) is less than p * 2^32. The generator's key is the first two words
 * of Philox4x32-10 at the counter (offset mod 2^32, offset / 2^32, 0, 0) under the
 * key (seed mod 2^32, seed / 2^32).
 *
 * @param dropout rate, seed and offset; p as attn_params.dropout wants it. NULL: no dropout, so 1
 * @param batch index of the batch element, or of the ragged sequence, modulo 2^32
 * @param head  query head, modulo 2^32
 * @param query index within the batch element or sequence, modulo 2^32
 * @param key   likewise, modulo 2^34
 * @since 0.1
 */
ATTN_API int attn_dropout_keeps(const attn_dropout *dropout, int64_t batch, int64_t head, int64_t query, int64_t key);

/* ----------------------------------------------------------- the processor -- */

/**
 * The names of the instruction sets that this build has kernels for, in rising
 * order of preference from index 0 on; NULL for an index behind the last, or
 * below 0. On x86-64 these are
 *
 *     scalar        portable C
 *     avx2          AVX2, FMA and F16C
 *     avx512        AVX-512 F, BW, DQ and VL
 *     avx512_bf16   and AVX512-BF16 and AVX512-VBMI, for q, k and v that are all bf16
 *     amx_bf16      and AMX-TILE and AMX-BF16, for the same
 *
 * on AArch64 scalar, neon (Advanced SIMD), neon_bf16 (and FEAT_BF16) and
 * neon_bf16mm (the same, by BFMMLA), and elsewhere scalar alone. A later version
 * may have more. Static storage.
 * @since 0.1
 */
ATTN_API const char *attn_isa_name(int index);
/** Whether name is such a set, and this processor and its system can run it: 1 or 0. ATTN_MAX_CPU_ISA is not looked
 * at. @since 0.1 */
ATTN_API int attn_isa_supported(const char *name);
/** The name of the set that attn_params.isa = NULL stands for on this machine, with ATTN_MAX_CPU_ISA applied. Static
 * storage. @since 0.1 */
ATTN_API const char *attn_isa_active(void);
/** Bytes of the data cache of a level, 1 to 3, that the system reports for one core; 0 if unknown. @since 0.1 */
ATTN_API size_t attn_cache_size(int level);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_ATTN_H */
