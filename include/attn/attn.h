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
 *     score[j] += mask[b,h,i,j]                             additive mask
 *     score[j]  = -inf where a mask, causality or a length forbids key j
 *     out[b,h,i,:] = sum_j softmax(score)[j] * v[b,g,j,:]
 *
 * Kernels for scalar code, AVX2, AVX-512 and NEON stream over blocks of keys
 * with an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022), so
 * memory beyond the inputs and outputs stays below 2 MiB a thread, whatever
 * the sequence length.
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
 *    sequences or padding the call holds.
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

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @name Version */
/**@{*/
#define ATTN_VERSION_MAJOR 0 /**< grows with a change that breaks users */
#define ATTN_VERSION_MINOR 1 /**< grows with new features */
#define ATTN_VERSION_PATCH 0 /**< grows with corrections */
/** The version as one number: major·10000 + minor·100 + patch. */
#define ATTN_VERSION (ATTN_VERSION_MAJOR * 10000 + ATTN_VERSION_MINOR * 100 + ATTN_VERSION_PATCH)
/**@}*/

#if defined(ATTN_STATIC)
#define ATTN_API
#elif defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

/** ATTN_VERSION of the library that is linked, which may be newer than this header. */
ATTN_API int attn_version(void);
/** The same as text, "0.1.0". Static storage. */
ATTN_API const char *attn_version_string(void);

/* ---------------------------------------------------------------- status -- */

/** Result of every call that can fail. The values are pinned for ever. */
typedef enum attn_status {
    ATTN_OK = 0,                 /**< done */
    ATTN_INVALID_ARGUMENT = 1,   /**< a NULL, a NaN, an index or a value out of its range */
    ATTN_SHAPE_MISMATCH = 2,     /**< tensors or arrays whose shapes do not fit together */
    ATTN_SIZE_OVERFLOW = 3,      /**< a product of sizes or strides exceeds 63 bits */
    ATTN_UNSUPPORTED = 4,        /**< a valid request that this version or machine cannot serve */
    ATTN_OUT_OF_MEMORY = 5,      /**< the workspace or the plan could not be allocated */
    ATTN_WORKSPACE_TOO_SMALL = 6 /**< the caller's workspace is smaller than the plan needs */
} attn_status;

/** The name of a status, e.g. "shape mismatch"; "unknown status" for other values. Static storage. */
ATTN_API const char *attn_status_string(attn_status status);

/**
 * A sentence about the last call on this thread that failed, e.g.
 * "params.kv_len[2] is 130; expected 0 to 128, the tokens of k". Empty if none has
 * failed. Valid until the next failing call on the same thread.
 */
ATTN_API const char *attn_last_error(void);

/* --------------------------------------------------------------- tensors -- */

/** Element types. The values are pinned. */
typedef enum attn_dtype {
    ATTN_F32 = 0,
    ATTN_BF16 = 1, /**< the upper half of an f32: 8 bits of significand, 1 of them implicit */
    ATTN_F16 = 2,  /**< IEEE 754 binary16: 11 bits of significand, up to 65504 */
    ATTN_BOOL = 3, /**< one byte, non-zero is true (boolean masks: attend) */
    ATTN_I8 = 4,
    ATTN_U8 = 5
} attn_dtype;

/** Bytes of one element, or 0 for an unknown type. */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);
/** "f32", "bf16", "f16", "bool", "i8" or "u8"; "unknown" for other values. Static storage. */
ATTN_API const char *attn_dtype_name(attn_dtype dtype);

/**
 * A strided view of memory that the caller owns.
 * The axes are batch, head, token, channel. Element (b,h,t,c) is at
 * data[b*stride[0] + h*stride[1] + t*stride[2] + c*stride[3]].
 * Strides count elements, may be negative, and 0 broadcasts an input. Channels
 * of q, k, v and out are contiguous (stride[3] == 1; free when shape[3] <= 1).
 * data must be aligned to the element size only. Strides of an axis of length 0
 * or 1 are not looked at.
 */
typedef struct attn_tensor {
    void *data;        /**< element (0,0,0,0); may be NULL when a size is 0 */
    attn_dtype dtype;  /**< type of the elements */
    int64_t shape[4];  /**< batch, head, token, channel */
    int64_t stride[4]; /**< the same axes, in elements */
} attn_tensor;

/** A contiguous f32 tensor laid out [batch][head][token][channel]. */
static inline attn_tensor attn_bhtd(const void *data, int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    attn_tensor t;
    t.data = (void *)(uintptr_t)data;
    t.dtype = ATTN_F32;
    t.shape[0] = batch, t.shape[1] = heads, t.shape[2] = tokens, t.shape[3] = channels;
    t.stride[3] = 1;
    t.stride[2] = channels;
    t.stride[1] = tokens * channels;
    t.stride[0] = heads * tokens * channels;
    return t;
}

/** A contiguous f32 tensor laid out [batch][token][head][channel], the output layout of a projection. */
static inline attn_tensor attn_bthd(const void *data, int64_t batch, int64_t tokens, int64_t heads, int64_t channels)
{
    attn_tensor t;
    t.data = (void *)(uintptr_t)data;
    t.dtype = ATTN_F32;
    t.shape[0] = batch, t.shape[1] = heads, t.shape[2] = tokens, t.shape[3] = channels;
    t.stride[3] = 1;
    t.stride[1] = channels;
    t.stride[2] = heads * channels;
    t.stride[0] = tokens * heads * channels;
    return t;
}

/* ------------------------------------------------------------ parameters -- */

/** Which keys a query sees by position. Query i sees key j when j <= i + offset. */
typedef enum attn_causal {
    ATTN_CAUSAL_NONE = 0,
    ATTN_CAUSAL_TOP_LEFT = 1, /**< offset 0: query 0 sees key 0 */
    ATTN_CAUSAL_BOTTOM_RIGHT =
        2,                 /**< offset kv_len[b] - Tq (kv_len defaults to Tk): the last query sees the last live key */
    ATTN_CAUSAL_OFFSET = 3 /**< offset query_offset[b], of any sign */
} attn_causal;

/** How exp is computed. */
typedef enum attn_exp {
    ATTN_EXP_SLEEF = 0, /**< SLEEF's exp2, at most 1.0 ULP */
    ATTN_EXP_FAST = 1   /**< inline polynomial; its measured error is in docs/numerics.md */
} attn_exp;

/** How scores are computed from q and k. */
typedef enum attn_qk {
    ATTN_QK_DEFAULT = 0, /**< in the types of q and k, nothing rounded */
    ATTN_QK_INT8 = 1     /**< q and k rounded to 8 bits per token, k less its mean; docs/numerics.md has the errors */
} attn_qk;

/** Instruction sets that kernels are built for. The values are pinned. */
typedef enum attn_isa {
    ATTN_ISA_AUTO = 0,   /**< the best that the processor has and ATTN_MAX_CPU_ISA allows */
    ATTN_ISA_SCALAR = 1, /**< portable C */
    ATTN_ISA_AVX2 = 2,   /**< x86-64 AVX2, FMA and F16C */
    ATTN_ISA_AVX512 = 3, /**< x86-64 AVX-512 F, BW, DQ and VL */
    ATTN_ISA_NEON = 4,   /**< AArch64 Advanced SIMD */
    /* Those above with instructions that multiply pairs of bf16, used when q, k and v are all bf16. */
    ATTN_ISA_AVX512_BF16 = 5, /**< AVX-512 and AVX512-BF16 */
    ATTN_ISA_NEON_BF16 = 6    /**< Advanced SIMD and FEAT_BF16 */
} attn_isa;

/** The last value of attn_isa, for loops over all of them. */
#define ATTN_ISA_LAST ATTN_ISA_NEON_BF16

/**
 * Options of a call. Zero is every field's default, except struct_size: start
 * from attn_params_default(). Arrays and tensors that it points to belong to
 * the caller and are only read during the call.
 *
 * B, Hq, Tq are q's batch, heads and tokens; Hkv, Tk are k's heads and tokens.
 */
typedef struct attn_params {
    size_t struct_size; /**< sizeof(attn_params) as the caller compiled it */

    /** @name Scores */
    /**@{*/
    float scale;       /**< multiplies q·k; 0 means 1/sqrt(d). May be negative. */
    float temperature; /**< scores are divided by it; 0 means 1. Must not be negative. */
    float softcap;     /**< not yet: score = softcap * tanh(score / softcap) */
    /**@}*/

    /** @name Which keys a query sees */
    /**@{*/
    attn_causal causal;          /**< the causal alignment, or none */
    const int64_t *query_offset; /**< [B], required by and only valid with ATTN_CAUSAL_OFFSET */
    const int64_t *kv_len;       /**< [B] or NULL: keys kv_len[b].. are padding; 0 to Tk */
    const int64_t *kv_start;     /**< [B] or NULL: keys before kv_start[b] are padding; 0 to kv_len[b] */
    /**
     * NULL or a mask of shape (B|1, Hq|1, Tq|1, Tk|1) with any strides.
     * ATTN_BOOL: non-zero attends. ATTN_F32, ATTN_BF16 or ATTN_F16: added to the
     * scaled score (natural units); -inf hides the key as false does.
     */
    const attn_tensor *mask;
    /**@}*/

    /** @name Outputs on request (NULL: not wanted) */
    /**@{*/
    const attn_tensor *lse;     /**< f32 (B, Hq, Tq, 1): natural log of sum_j exp(score[j]); any strides */
    const attn_tensor *weights; /**< f32 (B, Hq, R, Tk): softmax rows, R = Tq or num_weight_rows; any strides */
    const int64_t *weight_rows; /**< [num_weight_rows] query indices, 0 to Tq-1, any order; NULL: all rows */
    int64_t num_weight_rows;    /**< entries of weight_rows; only valid with it */
    const attn_tensor
        *key_sums; /**< f32 (B, Hq, 1, Tk): sum over queries of the weight each key received; any strides */
    /**@}*/

    /** @name How it is computed */
    /**@{*/
    attn_exp exp; /**< accuracy of exp */
    /**
     * ATTN_QK_INT8 multiplies q and k as int8 (SageAttention), for any of their
     * types; ATTN_UNSUPPORTED where isa or the processor has no int8 dot
     * products (AVX512-VNNI, FEAT_DotProd). The mean that is taken from k is that
     * of the first 512 keys from kv_start on that the last query sees: the bits
     * of a row depend, within rounding, on those, even where causality hides
     * them from it. With a mask nothing is taken from k.
     */
    attn_qk qk;
    attn_isa isa;    /**< one that this processor lacks is ATTN_UNSUPPORTED */
    int num_threads; /**< 0: ATTN_NUM_THREADS, else OpenMP's own setting */
    /**@}*/

    /** @name Reserved: refused with ATTN_UNSUPPORTED when set, until a version implements them */
    /**@{*/
    int use_window;                    /**< sliding window: i+offset-window_left <= j <= i+offset+window_right */
    int64_t window_left;               /**< keys a query sees before its own position */
    int64_t window_right;              /**< keys a query sees after its own position */
    int64_t window_sinks;              /**< first keys that every query sees */
    const float *alibi_slopes;         /**< [Hq] */
    const attn_tensor *relative_bias;  /**< (1, Hq, 1, buckets) table */
    int64_t relative_max_distance;     /**< distance from which all share the last bucket */
    const float *sinks;                /**< [Hq] one extra logit per head in the denominator */
    float dropout_p;                   /**< probability that a weight is dropped */
    uint64_t dropout_seed;             /**< seed of the random numbers of the dropout */
    uint64_t dropout_offset;           /**< where in the stream of the seed this call begins */
    const int64_t *cu_seqlens_q;       /**< [num_sequences+1] packed ragged batch */
    const int64_t *cu_seqlens_k;       /**< [num_sequences+1] */
    int64_t num_sequences;             /**< sequences of a packed ragged batch */
    const int32_t *block_table;        /**< [B][block_table_stride] pages of a paged KV cache */
    int64_t block_table_stride;        /**< entries from one row of block_table to the next */
    int64_t page_size;                 /**< tokens per page */
    const int64_t *block_mask_offsets; /**< CSR rows of a block-sparse pattern */
    const int32_t *block_mask_columns; /**< block columns of each row, ascending */
    int64_t block_mask_size;           /**< tokens per block */
    const attn_tensor *q_scale;        /**< quantisation scales of q */
    const attn_tensor *k_scale;        /**< quantisation scales of k */
    const attn_tensor *v_scale;        /**< quantisation scales of v */
    /**@}*/
} attn_params;

/** Parameters with every field at its default. */
static inline attn_params attn_params_default(void)
{
    attn_params p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    return p;
}

/* --------------------------------------------------------- the simple call -- */

/**
 * Computes attention in one call.
 *
 * @param q    (B, Hq, Tq, dk) queries
 * @param k    (B, Hkv, Tk, dk) keys; Hq is a multiple of Hkv
 * @param v    (B, Hkv, Tk, dv) values
 * @param out  (B, Hq, Tq, dv) written; must not overlap an input or itself
 * @param params options, or NULL for the defaults
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
