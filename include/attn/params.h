/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file params.h
 * @brief The options of a call: attn_params and what it points to.
 *
 * attn.h includes this file; include that one. Every option is off when its
 * field is zero. Options combine freely unless a comment here says otherwise.
 *
 * attn_params grows at its end. The structs that it points to are frozen: a new
 * need gets a new struct, behind a new pointer (docs/abi.md). Only attn_score_tile
 * and attn_weight_tile, which the library makes, may get fields at their end.
 *
 * In order, a score passes through: scale * q·k (q and k rotated by rope), the
 * terms of disentangled, softcap, alibi_slopes + relative_bias + mask, callback,
 * then everything that hides keys, then sinks as one more term of the sum;
 * softmax; dropout; weight_callback.
 *
 * B, Hq, Tq are q's batch, heads and tokens; Hkv, Tk are k's heads and tokens.
 * S is the number of sequences: B, or ragged->num_sequences. In a ragged batch
 * "query i" and "key j" count from the start of their sequence, while arrays and
 * tensors with one entry per token run along the whole token axis of q or k.
 */
#ifndef ATTN_PARAMS_H
#define ATTN_PARAMS_H

#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- choices -- */

/**
 * Where queries stand among the keys, and whether they see keys after their own
 * position. Query i of sequence b has the position p = i + offset, key j the
 * position j; under causality query i sees key j when j <= p.
 */
typedef enum attn_causal {
    ATTN_CAUSAL_NONE = 0,     /**< no causality; offset query_offset[b] where given, else 0 */
    ATTN_CAUSAL_TOP_LEFT = 1, /**< offset 0: query 0 sees key 0 */
    ATTN_CAUSAL_BOTTOM_RIGHT =
        2,                 /**< offset kv_len[b] - Tq (kv_len defaults to Tk): the last query sees the last live key */
    ATTN_CAUSAL_OFFSET = 3 /**< offset query_offset[b], of any sign */
} attn_causal;

/** How scores are computed from q and k. */
typedef enum attn_qk {
    ATTN_QK_DEFAULT = 0, /**< in the types of q and k, nothing rounded */
    ATTN_QK_INT8 = 1     /**< rounded to int8 with a step per token, k less its mean; docs/numerics.md has the errors */
} attn_qk;

/** Whether q, k and v may be rounded before they are multiplied. @since 0.1 */
typedef enum attn_inputs {
    ATTN_INPUTS_AS_GIVEN = 0,   /**< no: f32 and f16 are multiplied as f32 */
    ATTN_INPUTS_MAY_BE_BF16 = 1 /**< to bf16, to nearest even, where that is faster; docs/numerics.md has the errors */
} attn_inputs;

/** In which order the channels of a score are added. @since 0.1 */
typedef enum attn_sums {
    ATTN_SUMS_ORDERED = 0, /**< from the first to the last: a token is decoded with the bits of prefill */
    ATTN_SUMS_FREE = 1     /**< in any that kernels of few queries choose; attn_params.sums */
} attn_sums;

/* ------------------------------------------------- which keys a query sees -- */

/** No limit: a value of attn_window.left and right. */
#define ATTN_UNLIMITED INT64_MAX

/**
 * A sliding window: a query at position p sees the keys p - left to p + right.
 *
 * The other fields lift the window, and nothing else, for some tokens: the first
 * ones, which streaming models need to see (Xiao et al. 2023, "Efficient
 * streaming language models with attention sinks"), and global tokens, which
 * see and are seen by all (Beltagy et al. 2020, "Longformer").
 */
typedef struct attn_window {
    int64_t left;         /**< keys before its own position that a query sees; 0 to ATTN_UNLIMITED */
    int64_t right;        /**< keys after its own position that a query sees; 0 to ATTN_UNLIMITED */
    int64_t first_tokens; /**< live keys at the start that every query sees, 0 or more */
    const int64_t
        *global; /**< [num_global] positions of global tokens, ascending, 0 to Tk-1; the same for all sequences */
    int64_t num_global; /**< entries of global */
} attn_window;

/**
 * A block-sparse pattern: query i of head h sees key j if block column j / size
 * is listed for block row i / size. Block rows are those of a compressed sparse
 * row matrix: the columns of block row r of head h are columns[offsets[n]] to
 * columns[offsets[n+1]-1], n = (heads == 1 ? 0 : h) * rows + r, where rows =
 * ceil(Tq / size). Columns ascend within a block row. attn/patterns.h builds some.
 *
 * Time and traffic are proportional to the number of listed blocks. Ragged
 * batches have a pattern of ceil(longest sequence / size) block rows. Each
 * sequence uses as many of the first ones as it has, and ignores columns behind
 * its end.
 */
typedef struct attn_block_mask {
    int64_t size;           /**< tokens along each side of a block: a multiple of 16 */
    int64_t heads;          /**< 1 (or 0): all heads share a pattern; Hq: each has its own */
    int64_t rows;           /**< block rows of a head: ceil(Tq / size) */
    const int64_t *offsets; /**< [heads * rows + 1], from 0, not descending */
    const int32_t *columns; /**< [offsets[heads * rows]], 0 to ceil(Tk / size) - 1 */
} attn_block_mask;

/**
 * Segments: documents packed into one sequence, each with a label of its own.
 * Query i sees key j only if their labels are equal. A call first finds the range
 * of labels in each block of keys, which takes one byte of workspace for every 14
 * keys, in addition to what the threads take; attn_plan_keep() does so once.
 */
typedef struct attn_segments {
    const int32_t *q; /**< [B][Tq] the label of each query: any number, in any order */
    const int32_t *k; /**< [B][Tk] the same for each key */
} attn_segments;

/**
 * A tree of drafted tokens behind a common past (speculative decoding). The
 * drafts are the last live keys of a sequence; query i sees those of them whose
 * bit is set, and the keys before them as the other options say. Bit t % 64 of
 * ancestors[(b*Tq + i) * words + t / 64], words = ceil(tokens / 64), stands for
 * key kv_len[b] - tokens + t. A query sees its own key only if that bit, too, is
 * set.
 */
typedef struct attn_tree {
    int64_t tokens;            /**< drafts, 1 or more; a sequence with queries and fewer live keys is an error */
    const uint64_t *ancestors; /**< [B][Tq][words] */
} attn_tree;

/* -------------------------------------------------- positions in the scores -- */

/** How a distance between key and query, key minus query, becomes a bucket of attn_relative_bias. */
typedef enum attn_buckets {
    /** Bucket clip(distance, -max_distance, max_distance) + max_distance of 2 * max_distance + 1 (Shaw et al. 2018). */
    ATTN_BUCKETS_CLIPPED = 0,
    /**
     * Raffel et al. 2020 ("T5"), for decoders: keys after the query share bucket 0. For those before it, each bucket of
     * the first half holds one distance; the others hold more and more, logarithmically, up to max_distance, which is
     * more than the number of buckets that hold one.
     */
    ATTN_BUCKETS_T5 = 1,
    /** The same with half of the buckets for keys after the query: T5's encoder. */
    ATTN_BUCKETS_T5_BIDIRECTIONAL = 2
} attn_buckets;

/** A learned bias for each head and distance, added to the scaled and capped score. */
typedef struct attn_relative_bias {
    attn_buckets kind; /**< how distances become buckets */
    int64_t buckets; /**< of a head: 2 * max_distance + 1 when clipped; T5: 2 or more, bidirectional: even, 4 or more */
    int64_t max_distance; /**< distances from here on share a bucket */
    const float *table;   /**< [Hq][buckets], natural units */
} attn_relative_bias;

/** The direction of the distance that picks the row of attn_disentangled.rel_q. */
typedef enum attn_delta {
    /**
     * Query minus key, as for rel_k. The authors' code and Transformers compute this, so every published DeBERTa needs
     * it.
     */
    ATTN_DELTA_QUERY_KEY = 0,
    ATTN_DELTA_KEY_QUERY = 1 /**< key minus query: equation 4 of the paper as it is printed */
} attn_delta;

/**
 * Disentangled attention (He et al. 2021, "DeBERTa", section 3.1): the score gets
 *
 *     scale * (dot(q[i], rel_k[row(p_i - j)]) + dot(k[j], rel_q[row(p_i - j)]))
 *
 * with row(n) = clip(n + span, 0, 2 * span - 1), p_i being the position of query
 * i. The first term is content to position. The second is position to content; it
 * takes row(j - p_i) with ATTN_DELTA_KEY_QUERY. DeBERTa's scale, 1/sqrt(3d), is
 * the caller's to set. rel_k alone is Shaw's relative key embedding. Computed in
 * f32 whatever the types; head sizes dk up to 1024; not with ATTN_QK_INT8, not
 * with rope.
 */
typedef struct attn_disentangled {
    int64_t span;             /**< distances from -span to span - 1 have rows of their own; 1 to 2^30 */
    const attn_tensor *rel_k; /**< f32 (1, Hq|1, 2*span, dk), or NULL: no content-to-position term */
    const attn_tensor *rel_q; /**< f32 (1, Hq|1, 2*span, dk), or NULL: no position-to-content term; not both NULL */
    attn_delta delta;         /**< the row of rel_q; 0 without it */
} attn_disentangled;

/** Which two channels a rotation turns. */
typedef enum attn_rope_layout {
    ATTN_ROPE_HALF_SPLIT = 0, /**< c and c + pairs (GPT-NeoX, Llama in Transformers) */
    ATTN_ROPE_INTERLEAVED = 1 /**< 2c and 2c + 1 (RoFormer, GPT-J, Llama as published) */
} attn_rope_layout;

/**
 * Rotary position embedding of q and k while they are read (Su et al. 2021,
 * "RoFormer"). The first 2 * pairs channels are rotated, the others are not. A row
 * of a table has pairs cosines, then pairs sines; attn_rope_table() makes it from
 * positions (attn/rope.h). Head sizes dk go up to 2048. Rotated numbers are not
 * rounded again, so products are in f32 whatever the types, unless
 * attn_params.inputs permits bf16.
 */
typedef struct attn_rope_tables {
    attn_rope_layout layout; /**< which channels make a pair */
    const attn_tensor *q;    /**< f32 (B|1, Hq|1, Tq, 2*pairs) */
    const attn_tensor *k;    /**< f32 (B|1, Hkv|1, Tk, 2*pairs), the same pairs; 0 < 2*pairs <= dk */
} attn_rope_tables;

/* ------------------------------------------------------------------ ragged -- */

/**
 * Sequences of different lengths, one after the other, without padding (as
 * FlashAttention's cu_seqlens). q, k, v and out have a batch of 1 and the tokens
 * of all sequences on their token axis. Sequence s has the queries
 * cu_seqlens_q[s] to cu_seqlens_q[s+1]-1 and the keys cu_seqlens_k[s] to
 * cu_seqlens_k[s+1]-1, and sees no other keys. Offsets begin with 0, never
 * descend, and end with Tq or Tk at most. Behind the last sequence rows of out are
 * 0, and lse is -inf. mask, lse, weights, key_sums and scores have the token axes
 * of q and k, for all sequences.
 */
typedef struct attn_ragged {
    int64_t num_sequences;       /**< 0 or more */
    const int64_t *cu_seqlens_q; /**< [num_sequences + 1] */
    const int64_t *cu_seqlens_k; /**< [num_sequences + 1]; NULL with attn_params.block_table */
} attn_ragged;

/* ----------------------------------------------------------------- dropout -- */

/**
 * Dropout of weights: each is multiplied by 0 with probability p, else by
 * 1 / (1 - p). Which weights are dropped follows from seed, offset and the indices
 * of batch (or sequence), head, query and key alone, on every instruction set and
 * for any number of threads: attn_dropout_keeps(). lse is that of all weights;
 * weights and key_sums on request are those that v is multiplied by.
 */
typedef struct attn_dropout {
    float p;         /**< 0 <= p < 1 */
    uint64_t seed;   /**< chooses the stream */
    uint64_t offset; /**< chooses a place in it: another one for each layer and step */
} attn_dropout;

/* ---------------------------------------------------------------- callback -- */

/** Scores of some queries against some keys of one head, between two steps of the computation. */
typedef struct attn_score_tile {
    int64_t batch;       /**< index of the batch element, or of the ragged sequence */
    int64_t head;        /**< query head */
    int64_t first_query; /**< index of the first query */
    int64_t num_queries; /**< 1 or more */
    int64_t first_key;   /**< index of the first key */
    int64_t num_keys;    /**< 1 or more */
    int64_t key_stride;  /**< floats from one key's scores to the next key's */
    float *scores;       /**< scores[j * key_stride + i] of query first_query + i and key first_key + j */
} attn_score_tile;

/**
 * Changes scores in place. They are in natural units, scaled, capped and biased.
 * Writing -inf hides a key from a query. Keys that are hidden already are at -inf
 * and stay so, whatever is written there. Called from several threads at once, in
 * any order, for tiles of any shape, and again for the same scores if weights or
 * scores are asked for or a weight_callback is set: what it does to a score may
 * depend only on the score's indices and value.
 */
typedef void attn_score_callback(const attn_score_tile *tile, void *user);

/** Weights of some queries for some keys of one head, between the softmax and v. */
typedef struct attn_weight_tile {
    int64_t batch;       /**< index of the batch element, or of the ragged sequence */
    int64_t head;        /**< query head */
    int64_t first_query; /**< index of the first query */
    int64_t num_queries; /**< 1 or more */
    int64_t first_key;   /**< index of the first key */
    int64_t num_keys;    /**< 1 or more */
    int64_t key_stride;  /**< floats from one key's weights to the next key's */
    float *weights;      /**< weights[j * key_stride + i] of query first_query + i and key first_key + j */
} attn_weight_tile;

/**
 * Changes weights in place, before they are multiplied with v: those of the
 * softmax, sinks counted, after dropout. Any number may be written; nothing is
 * normalised again. A key that is hidden from a query has the weight 0 and keeps
 * it, whatever is written there; keys that are hidden from all queries of a tile
 * may be left out. A 0 written for a key that is seen is still multiplied with v:
 * where v is NaN or Inf, out is NaN. Called from several threads at once, in any
 * order, for tiles of any shape: what it does to a weight may depend only on the
 * weight's indices and value.
 */
typedef void attn_weight_callback(const attn_weight_tile *tile, void *user);

/** The step after which attn_params.scores are taken. The values are pinned. */
typedef enum attn_score_stage {
    ATTN_SCORES_RAW = 0,    /**< q·k, rotated by rope; no scale */
    ATTN_SCORES_SCALED = 1, /**< times scale, head_scale / temperature; with the terms of disentangled */
    ATTN_SCORES_CAPPED = 2, /**< after softcap */
    ATTN_SCORES_MASKED = 3  /**< what the softmax gets: biases added, callback called, -inf where a key is hidden */
} attn_score_stage;

struct attn_executor; /* in attn.h */

/* ------------------------------------------------------------ attn_params -- */

/**
 * Options of a call. Zero is every field's default, except struct_size: start
 * from attn_params_default(). What it points to belongs to the caller and is only
 * read, during the call. It grows at its end: a struct of an older header is
 * accepted, and so is one of a newer header that sets nothing unknown here.
 */
typedef struct attn_params {
    size_t struct_size; /**< sizeof(attn_params) as the caller compiled it */

    /** @name Scores */
    /**@{*/
    float scale;             /**< multiplies q·k; 0 means 1/sqrt(d). May be negative. */
    float temperature;       /**< scores are divided by it; 0 means 1. Must not be negative. */
    const float *head_scale; /**< [Hq] or NULL: multiplies the scale of each head; finite */
    float softcap;           /**< 0, or score = softcap * tanh(score / softcap) (Gemma 2); positive, at most 2.358e38 */
    const float
        *sinks; /**< [Hq] or NULL: a logit per head that takes part in the sum and has no value (gpt-oss); -inf: none */
    const float *alibi_slopes;               /**< [Hq] or NULL: the score gets -slope * |p - j| (Press et al. 2022) */
    const attn_relative_bias *relative_bias; /**< NULL or a table of biases by distance */
    const attn_disentangled *disentangled;   /**< NULL or DeBERTa's terms */
    const attn_rope_tables *rope;            /**< NULL or rotations of q and k */
    attn_score_callback *callback;           /**< NULL or a function of the caller's */
    void *callback_user;                     /**< handed to callback; only valid with it */
    /**@}*/

    /** @name Which keys a query sees: those that all of these allow */
    /**@{*/
    attn_causal causal;          /**< the causal alignment, or none */
    const int64_t *query_offset; /**< [S], required with ATTN_CAUSAL_OFFSET, allowed with ATTN_CAUSAL_NONE: positions */
    const int64_t *kv_len;       /**< [S] or NULL: keys from kv_len[b] on are padding; 0 to the keys there are */
    const int64_t *kv_start;     /**< [S] or NULL: keys before kv_start[b] are padding; 0 to kv_len[b] */
    const int64_t
        *prefix_len; /**< [S] or NULL: live keys at the start that causality does not hide (prefix LM), 0 or more */
    const attn_window *window;         /**< NULL or a sliding window */
    const attn_block_mask *block_mask; /**< NULL or a block-sparse pattern */
    const attn_segments *segments;     /**< NULL or the segments of packed sequences */
    const attn_tree *tree;             /**< NULL or a tree of drafted tokens */
    /**
     * NULL or a mask of shape (B|1, Hq|1, Tq|1, 0 to Tk) with any strides.
     * ATTN_BOOL: non-zero attends. ATTN_F32, ATTN_BF16 or ATTN_F16: added to the
     * scaled and capped score (natural units); -inf hides the key as false does.
     * Along the keys a length of 1 is broadcast; any other that is less than Tk
     * hides the keys behind its end, as in ONNX's Attention from version 24 on.
     * Positions and bottom-right alignment follow kv_len, not the mask.
     */
    const attn_tensor *mask;
    /**@}*/

    const attn_ragged *ragged;   /**< NULL or a ragged batch */
    const attn_dropout *dropout; /**< NULL or dropout */

    /**
     * NULL or a function of the caller's. Weights are final only when the last
     * key has been seen, so such a call computes scores and exponentials twice.
     * Weights and their product with v are f32 whatever the types. lse is that of
     * the softmax; weights and key_sums on request are what the function has left.
     */
    attn_weight_callback *weight_callback;
    void *weight_callback_user; /**< handed to weight_callback; only valid with it */

    /** @name Outputs on request (NULL: not wanted) */
    /**@{*/
    const attn_tensor *lse; /**< f32 (B, Hq, Tq, 1): natural log of sum_j exp(score[j]), sinks included; any strides */
    const attn_tensor *weights; /**< f32 (B, Hq, R, Tk): softmax rows, R = Tq or num_weight_rows; any strides */
    const int64_t
        *weight_rows; /**< [num_weight_rows] rows of weights and scores: queries 0 to Tq-1, any order; NULL: all */
    int64_t num_weight_rows; /**< entries of weight_rows; only valid with it */
    const attn_tensor
        *key_sums; /**< f32 (B, Hq, 1, Tk): sum over queries of the weight each key received; any strides */
    /**
     * f32 (B, Hq, R, Tk), R as for weights; any strides: scores in natural
     * units, after the step that score_stage names. Padding is at -inf in every
     * stage, and its rows of k are not read: keys before kv_start and from kv_len
     * on, those of other sequences of a ragged batch, and all keys for queries
     * behind its last sequence. Keys that something else hides have their score up
     * to ATTN_SCORES_CAPPED, and are at -inf in ATTN_SCORES_MASKED. There, values
     * of a mask beyond 2.358e38 in size count as that. With ATTN_QK_INT8 scores
     * are those of the rounded q and k, the mean of k added again.
     *
     * They are computed after out, by a further product of q and k.
     */
    const attn_tensor *scores;
    attn_score_stage score_stage; /**< which scores; only valid with scores */
    /**@}*/

    /** @name How it is computed */
    /**@{*/
    /**
     * ATTN_QK_INT8 multiplies q and k as int8 (SageAttention), for any of their
     * types; ATTN_UNSUPPORTED where isa or the processor has no int8 dot
     * products (AVX-VNNI for AVX2, AVX512-VNNI, FEAT_DotProd). k loses the mean of
     * the first 512 keys, from kv_start on, that the last query sees: so a row
     * depends on those keys, within rounding, even where causality hides them from
     * it. With a mask of any kind, softcap, sinks, rope or a callback k keeps its
     * mean.
     */
    attn_qk qk;
    int num_threads; /**< 0: ATTN_NUM_THREADS, else what the executor or OpenMP has; ATTN_MAX_THREADS at most */
    /**
     * NULL: the best instruction set that the processor has and ATTN_MAX_CPU_ISA
     * allows. Or one of the names that attn_isa_name() gives, compared byte by
     * byte and read during this call only. Then no kernels above that set are
     * used, whatever the environment says, and its kernels for pairs of bf16 are
     * used wherever it has them. Any other name is ATTN_INVALID_ARGUMENT, a set
     * that this processor lacks ATTN_UNSUPPORTED.
     */
    const char *isa;
    const struct attn_executor *executor; /**< NULL: the process's (attn_set_executor()), else OpenMP */
    /**@}*/

    /** @name Pages of keys and values */
    /**@{*/
    /**
     * NULL, or [S][block_table_stride] where the keys of each sequence lie. k and v
     * are then pools of pages, of shape (pages, Hkv, page_size, dk) and (pages,
     * Hkv, page_size, dv) with any strides: key j of sequence s is row j % page_size
     * of page block_table[s * block_table_stride + j / page_size]. Sequences may
     * share pages, and the result has the bits that keys and values side by side
     * give. Where neighbours of few queries begin with the same pages, these are
     * read once for all of them.
     *
     * Tk is block_table_stride * page_size, and kv_len says how many of these keys
     * there are. Entries of pages without a key from kv_start to kv_len - 1 are not
     * looked at. Nor are those of pages that a window without global tokens hides
     * from query 0, and so from all of a sequence: their memory may serve others.
     *
     * In a ragged batch q alone has its sequences one after the other.
     * ragged->cu_seqlens_k is NULL, and key j of any sequence is at j of axes of Tk:
     * of masks, tables, weights and scores. key_sums are (S, Hq, 1, Tk) then, and
     * segments are refused.
     *
     * Head sizes dk and dv go up to 1024. With ATTN_QK_INT8 k keeps its mean.
     */
    const int32_t *block_table;
    int64_t block_table_stride; /**< entries from one row of block_table to the next, all of them pages; 0 or more */
    int64_t page_size;          /**< tokens in a page, 1 or more; only valid with block_table */
    /**@}*/

    /** @name Reserved: refused with ATTN_UNSUPPORTED when set, until a version implements them */
    /**@{*/
    const attn_tensor *q_scale; /**< quantisation scales of q */
    /**@}*/

    /**
     * Scales of a quantised k, ATTN_I8 or ATTN_F8_E4M3: f32 (B|1, Hkv|1, Tk, 1), any
     * strides; of ATTN_I4 (B|1, Hkv|1, Tk, ceil(dk / 32)), those of a token side by
     * side; NULL for other types. An element of k is its number times the scale of its
     * token and head, or of its 32 channels, rounded to f32, and everything else is as
     * if k were the f32 tensor of these elements: every option, and for head sizes
     * whose sum dk + dv is up to 512 every bit, unless sums are free. attn_quantise()
     * makes such tensors (attn/quantise.h). Scales of live keys (kv_start to kv_len)
     * must be finite and, but for those of ATTN_I4, not negative; those of padding are
     * not read. With a block table they are in pages as k is: (pages|1, Hkv|1,
     * page_size, ...).
     */
    const attn_tensor *k_scale;
    const attn_tensor *v_scale; /**< the same of v */

    /**
     * Permission to take q, k and v of f32, f16 and quantised ones as bf16, wherever tensors of bf16
     * would be multiplied in pairs: the result is that of tensors that have been
     * rounded so beforehand, but for the type of out. Elsewhere nothing is rounded;
     * attn_plan_describe() names the values that are multiplied. Rows that rope turns
     * are rounded when they have been turned. NaN stays NaN, what rounds to more than
     * bf16's largest number becomes an infinity.
     */
    attn_inputs inputs;
    /**
     * ATTN_SUMS_FREE permits the scores of few queries to add their channels in
     * another order, and scales to multiply sums and weights instead of elements,
     * which reads keys and values faster. Errors are as small, but a token is not
     * decoded with the bits of prefill. Where q is bf16 (or may be: inputs) and both
     * k and v are ATTN_I4, or both ATTN_F8_E4M3 with an even head size of k, the
     * processor may multiply pairs of bf16, which has their numbers exactly: weights
     * are rounded to bf16 then, as those of a v of bf16 are, which is far less than
     * what these types are off by. Results still do not depend on threads, on other sequences
     * or on other heads: sums are free for sequences whose queries times q's heads
     * for each head of k are up to 8 (2 on NEON, none in scalar kernels), without
     * rope, disentangled, block_mask, global tokens of a
     * window, and int8 scores, and not in ragged batches on matrix registers and on
     * BFMMLA; in a ragged batch these two are not multiplied in pairs. Elsewhere the field
     * changes nothing.
     */
    attn_sums sums;
} attn_params;

/** Parameters with every field at its default. @since 0.1 */
static inline attn_params attn_params_default(void)
{
    attn_params p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    return p;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTN_PARAMS_H */
