/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cache.h
 * @brief Caches of keys and values for decoding: sequences that grow, in pages.
 *
 * A decoder keeps the keys and values of all tokens that it has seen, so that a
 * further token costs one row of attention. attn_cache keeps them for all layers
 * of a model and many sequences. They lie in pages of some tokens, handed out as
 * sequences grow (Kwon et al. 2023, "PagedAttention"), so that no sequence holds
 * memory that it does not use, and sequences with a common beginning share it.
 *
 * Work goes in steps. A step says how many tokens each sequence gets: a prompt or
 * a chunk of one, a single token, or a few drafts, of any number of sequences at
 * once. Then each layer hands over the keys and values of these tokens, and asks
 * for the attention of their queries:
 *
 * @code
 *     attn_cache_config config = attn_cache_config_default();
 *     config.layers = 30, config.kv_heads = 3, config.dk = config.dv = 64;
 *     config.dtype = ATTN_BF16;
 *     config.max_tokens = 8192, config.max_sequences = 64;
 *     config.page_size = 16, config.num_pages = 4096;
 *     attn_cache *cache;
 *     attn_cache_create(&cache, &config);
 *
 *     int64_t id, tokens = 100;                            // a prompt; 1 for each token afterwards
 *     attn_cache_add(cache, &id);
 *     attn_cache_step(cache, 1, &id, &tokens, NULL);       // ATTN_CACHE_FULL: no pages are left
 *     for (layer = 0; layer < 30; layer++) {
 *         // q, k, v of the step's tokens, (1, heads, 100, 64)
 *         attn_cache_append(cache, layer, &k, &v, 0);
 *         attn_cache_rotate(cache, &q, &q, 0);             // with config.rope
 *         attn_cache_attend(cache, layer, &q, &out, NULL); // causal, each query at its place
 *     }
 *     attn_cache_truncate(cache, id, 98);                  // two tokens were drafts, and rejected
 *     attn_cache_remove(cache, id);
 * @endcode
 *
 * Whoever has pages and tables already uses what stands below it: attn_store()
 * writes rows to places of a pool, and attn_params.block_table reads them.
 *
 * A cache belongs to one thread at a time; different caches know nothing of each
 * other. On an error a cache is as it was before the call.
 */
#ifndef ATTN_CACHE_H
#define ATTN_CACHE_H

#include "attn/attn.h"
#include "attn/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Sizes of a cache. Those without a default have to be set. */
typedef struct attn_cache_config {
    size_t struct_size; /**< sizeof(attn_cache_config) as the caller compiled it */
    int64_t layers;     /**< 1 or more */
    int64_t kv_heads;   /**< heads of keys and values of a layer, 1 or more */
    int64_t dk;         /**< head size of keys, 1 to 1024 */
    int64_t dv;         /**< head size of values, 1 to 1024; 0: dk */
    /** Of what is kept: ATTN_F32, ATTN_BF16, ATTN_F16; quantised ATTN_I8, ATTN_F8_E4M3, ATTN_I4 */
    attn_dtype dtype;
    int64_t max_tokens;    /**< tokens of a sequence at most, 1 or more */
    int64_t max_sequences; /**< sequences at once, 1 or more */
    /**
     * Tokens in a page. 0: max_tokens, so that each sequence lies side by side. 16
     * to 256 are usual; other numbers than multiples of 16 cut register tiles.
     */
    int64_t page_size;
    int64_t num_pages; /**< pages of all sequences together; 0: as many as max_sequences full ones need */
    /**
     * Keys before its own position that a query sees, as attn_window.left; 0: all.
     * Pages that no later query can see are handed back (a ring), but for those with
     * the first_tokens first tokens (Xiao et al. 2023).
     */
    int64_t window;
    int64_t first_tokens; /**< 0 or more; only with window */
    /**
     * NULL, or how keys are rotated when they are appended, by their position in the
     * sequence. attn_cache_rotations() has the rotations of the step's queries. It
     * and its arrays are copied.
     */
    const attn_rope_config *rope;
    attn_rope_layout rope_layout; /**< which channels make a pair; only with rope */
    /**
     * Not 0: the values of a token are the first dv channels of its key (latent
     * attention, DeepSeek-AI 2024), and are kept once, in the memory of keys. dv is at
     * most dk, and attn_cache_append() takes no v. Without rope, which would turn
     * values: turn the channels behind them beforehand (docs/caches.md).
     */
    int v_in_k;
} attn_cache_config;

/** A config with every field at its default; set layers to max_sequences. @since 0.1 */
static inline attn_cache_config attn_cache_config_default(void)
{
    attn_cache_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** Keys and values of some sequences in all layers of a model. */
typedef struct attn_cache attn_cache;

/** What a cache has and uses. */
typedef struct attn_cache_usage {
    size_t struct_size;    /**< sizeof(attn_cache_usage) as the caller compiled it */
    int64_t num_pages;     /**< pages there are */
    int64_t pages_in_use;  /**< of these, those that some sequence has */
    int64_t page_size;     /**< tokens of a page */
    int64_t page_bytes;    /**< bytes of a page, in all layers, keys and values with their scales, each byte once */
    int64_t num_sequences; /**< sequences there are */
    int64_t tokens;        /**< of all sequences together, shared ones once for each */
    int64_t bytes;         /**< that the cache has allocated */
} attn_cache_usage;

/** Usage with struct_size set, to be filled in. @since 0.1 */
static inline attn_cache_usage attn_cache_usage_default(void)
{
    attn_cache_usage u;
    memset(&u, 0, sizeof u);
    u.struct_size = sizeof u;
    return u;
}

/**
 * Makes a cache without sequences. The memory of all pages is asked for here; the
 * system usually provides each one when it is first written. On an error *cache is
 * set to NULL.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_create(attn_cache **cache, const attn_cache_config *config);
/** Frees a cache and all its sequences; NULL is allowed. @since 0.1, experimental */
ATTN_API void attn_cache_destroy(attn_cache *cache);
/** What is in use. @since 0.1, experimental */
ATTN_API attn_status attn_cache_get_usage(const attn_cache *cache, attn_cache_usage *usage);

/** @name Sequences
 * Each has an id, 0 or more, which no other sequence of the cache has ever had. A
 * change of one ends the step.
 */
/**@{*/
/** Adds a sequence without tokens. ATTN_CACHE_FULL: there are max_sequences. @since 0.1, experimental */
ATTN_API attn_status attn_cache_add(attn_cache *cache, int64_t *id);
/**
 * Adds a sequence with the tokens of another one (a beam, a prompt that several
 * requests begin with). Pages are shared; the last one, if it is not full, is
 * copied when one of the two goes on. ATTN_CACHE_FULL: there are max_sequences.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_fork(attn_cache *cache, int64_t id, int64_t *fork);
/**
 * Forgets the tokens from length on; length is 0 to what the sequence has. With a
 * window it is an error to go back to where keys are wanted that have been handed
 * back.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_truncate(attn_cache *cache, int64_t id, int64_t length);
/**
 * Of the tokens from length on, keeps those that tokens lists, as if they alone had been appended: the accepted branch
 * of a tree of drafts, or, with the key_sums of past steps, the keys that matter. Their rows move; rotations stay.
 *
 * @param cache  the cache
 * @param id     the sequence
 * @param length tokens at the start that stay where they are
 * @param num    tokens kept of the others
 * @param tokens [num] which ones, ascending, length to attn_cache_length() - 1
 *
 * ATTN_UNSUPPORTED: a row would move in a page that another sequence shares.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_keep(attn_cache *cache, int64_t id, int64_t length, int64_t num, const int64_t *tokens);
/** Forgets a sequence. @since 0.1, experimental */
ATTN_API attn_status attn_cache_remove(attn_cache *cache, int64_t id);
/** Tokens of a sequence; -1 if there is none of that id. @since 0.1, experimental */
ATTN_API int64_t attn_cache_length(const attn_cache *cache, int64_t id);
/**@}*/

/** @name Steps */
/**@{*/
/**
 * Begins a step: sequence ids[i] gets tokens[i] more. They have their places from
 * now on, and are seen by queries once their keys have been appended.
 *
 * @param cache     the cache
 * @param num       sequences, 0 to max_sequences
 * @param ids       [num] all different
 * @param tokens    [num] 0 or more each; a sequence has at most max_tokens in all
 * @param positions NULL, or [tokens of the step] by which tokens are rotated, where that is not their place among
 *                  those of the sequence: in a tree of drafts, or after attn_cache_keep(). Up to 2^53 in size
 *
 * ATTN_CACHE_FULL: there are not enough pages; no sequence has grown.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_step(attn_cache *cache, int64_t num, const int64_t *ids, const int64_t *tokens,
                                     const int64_t *positions);
/**
 * Keeps the keys and values of the step's tokens in a layer, those of the first
 * sequence first, rounded to the cache's type. Once for each layer and step. In 8
 * bits a row with a NaN or an infinity becomes one of NaN, in 4 bits its 32
 * channels do.
 *
 * @param cache       the cache
 * @param layer       0 to config.layers - 1
 * @param k           f32, bf16 or f16 (1, kv_heads, tokens of the step, dk), before rotation
 * @param v           f32, bf16 or f16 (1, kv_heads, tokens of the step, dv); NULL with config.v_in_k
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_append(attn_cache *cache, int64_t layer, const attn_tensor *k, const attn_tensor *v,
                                       int num_threads);
/**
 * The attention of the step's tokens in a layer, in one call for all sequences.
 * Each query stands at its token's place and sees the keys up to it.
 *
 * @param cache  the cache
 * @param layer  one whose keys of this step have been appended
 * @param q      (1, Hq, tokens of the step, dk); Hq is a multiple of kv_heads
 * @param out    (1, Hq, tokens of the step, dv), written
 * @param params NULL or options. Where keys are and how they are hidden by their place are the cache's own: causal,
 *               query_offset, kv_len, kv_start, ragged, block_table and what belongs to them have to be 0. If the
 *               cache has a window, one of the call takes its place, and has to be within it: left and first_tokens
 *               at most the cache's, no global tokens. Tk, an axis of masks and of weights on request, is
 *               attn_cache_keys(). prefix_len and tree are per sequence of the step, tree->ancestors per token.
 *               key_sums are (num, Hq, 1, Tk). With sums free, a step of one token for each sequence is a batch,
 *               and any other one a ragged batch, whose sums may have another order where attn_params.sums says so.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_attend(attn_cache *cache, int64_t layer, const attn_tensor *q, const attn_tensor *out,
                                       const attn_params *params);
/** Tk of the step: its longest sequence, in whole pages. @since 0.1, experimental */
ATTN_API int64_t attn_cache_keys(const attn_cache *cache);
/**
 * out = q, the queries of the step's tokens, rotated as the keys are; a copy without config.rope.
 *
 * @param cache       the cache
 * @param q           f32, bf16 or f16 (1, Hq, tokens of the step, dk)
 * @param out         the same type and shape, written; may be q, must not otherwise overlap it
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_rotate(const attn_cache *cache, const attn_tensor *q, const attn_tensor *out,
                                       int num_threads);
/**
 * Rotations of the step's tokens, f32 (1, 1, tokens of the step, 2 * pairs), for attn_rope() of their queries. Valid
 * until the next step. Without config.rope it has no channels.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_rotations(const attn_cache *cache, attn_tensor *rotations);
/**
 * Positions of the step's tokens, those that attn_cache_step() was given or else their places: [tokens of the step],
 * for models that look them up in a table. *num, if num is not NULL, is set to how many there are. NULL without a step.
 * Valid until the next step.
 * @since 0.1, experimental
 */
ATTN_API const int64_t *attn_cache_positions(const attn_cache *cache, int64_t *num);
/**
 * Where the tokens of the step's sequences begin among those of the step: [sequences of the step + 1], the end of the
 * last one with them, as in attn_ragged. *num, if num is not NULL, is set to how many sequences there are. NULL without
 * a step. Valid until the next step. @since 0.1, experimental
 */
ATTN_API const int64_t *attn_cache_offsets(const attn_cache *cache, int64_t *num);
/**
 * The pools of a layer, (num_pages, kv_heads, page_size, dk) and (..., dv), and where the step's sequences are in them,
 * for attn_params.block_table of a call of one's own. With config.v_in_k the second is a view of the first. Valid until
 * the next change of the cache.
 *
 * @param cache  the cache
 * @param layer  0 to config.layers - 1
 * @param k      set to the pool of keys
 * @param v      set to the pool of values
 * @param params block_table, block_table_stride, page_size and kv_len are set; k_scale and v_scale, too, if the cache
 *               has 8 or 4 bits, else they are NULL
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_cache_pools(const attn_cache *cache, int64_t layer, attn_tensor *k, attn_tensor *v,
                                      attn_params *params);
/**@}*/

/**
 * Writes rows to places of a pool: head h of token t goes to row slots[t] %
 * page_size of page slots[t] / page_size, rounded to the pool's type. A token
 * with the slot -1 is left out.
 *
 * @param x           f32, bf16 or f16 (1, H, T, d)
 * @param slots       [T] -1, or 0 to pages * page_size - 1, each at most once
 * @param rotations   NULL, or f32 (1, H|1, T, 2*pairs), rows of attn_rope_table(): channels are rotated on their way
 * @param layout      which channels make a pair; 0 without rotations
 * @param pool        (pages, H, page_size, d) of any strides but that of its channels: f32, bf16 or f16; or ATTN_I8,
 *                    ATTN_F8_E4M3 or ATTN_I4, rows of which are quantised as attn_quantise() does it
 * @param scales      of a quantised pool: f32 (pages, H, page_size, 1), for ATTN_I4 (..., ceil(d / 32)), written; NULL
 *                    for other types
 * @param num_threads as in attn_params
 *
 * ATTN_OUT_OF_MEMORY: a table of many slots, by which those that come twice are found, could not be made.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_store(const attn_tensor *x, const int64_t *slots, const attn_tensor *rotations,
                                attn_rope_layout layout, const attn_tensor *pool, const attn_tensor *scales,
                                int num_threads);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_CACHE_H */
