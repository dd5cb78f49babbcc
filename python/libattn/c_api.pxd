# SPDX-License-Identifier: Apache-2.0
# What the extension uses of attn's headers, which say what it means.
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "attn/attn.h" nogil:
    ctypedef int attn_status
    ctypedef int attn_dtype
    int ATTN_OK, ATTN_INVALID_ARGUMENT, ATTN_SHAPE_MISMATCH, ATTN_SIZE_OVERFLOW, ATTN_UNSUPPORTED, ATTN_OUT_OF_MEMORY
    int ATTN_CACHE_FULL, ATTN_PEER_LOST
    int ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_BOOL, ATTN_I8, ATTN_U8, ATTN_F8_E4M3, ATTN_I4

    ctypedef struct attn_tensor:
        void *data
        attn_dtype dtype
        int64_t shape[4]
        int64_t stride[4]

    ctypedef struct attn_window:
        int64_t left
        int64_t right
        int64_t first_tokens
        const int64_t *globals_ "global"
        int64_t num_global

    ctypedef struct attn_block_mask:
        int64_t size
        int64_t heads
        int64_t rows
        const int64_t *offsets
        const int32_t *columns

    ctypedef struct attn_segments:
        const int32_t *q
        const int32_t *k

    ctypedef struct attn_tree:
        int64_t tokens
        const uint64_t *ancestors

    ctypedef struct attn_relative_bias:
        int kind
        int64_t buckets
        int64_t max_distance
        const float *table

    ctypedef struct attn_disentangled:
        int64_t span
        const attn_tensor *rel_k
        const attn_tensor *rel_q
        int delta

    ctypedef struct attn_rope_tables:
        int layout
        const attn_tensor *q
        const attn_tensor *k

    ctypedef struct attn_ragged:
        int64_t num_sequences
        const int64_t *cu_seqlens_q
        const int64_t *cu_seqlens_k

    ctypedef struct attn_dropout:
        float p
        uint64_t seed
        uint64_t offset

    ctypedef struct attn_score_tile:
        int64_t batch
        int64_t head
        int64_t first_query
        int64_t num_queries
        int64_t first_key
        int64_t num_keys
        int64_t key_stride
        float *scores

    ctypedef struct attn_weight_tile:
        int64_t batch
        int64_t head
        int64_t first_query
        int64_t num_queries
        int64_t first_key
        int64_t num_keys
        int64_t key_stride
        float *weights

    ctypedef void (*attn_score_callback)(const attn_score_tile *tile, void *user) noexcept nogil
    ctypedef void (*attn_weight_callback)(const attn_weight_tile *tile, void *user) noexcept nogil

    ctypedef struct attn_params:
        size_t struct_size
        float scale
        float temperature
        const float *head_scale
        float softcap
        const float *sinks
        const float *alibi_slopes
        const attn_relative_bias *relative_bias
        const attn_disentangled *disentangled
        const attn_rope_tables *rope
        attn_score_callback callback
        void *callback_user
        int causal
        const int64_t *query_offset
        const int64_t *kv_len
        const int64_t *kv_start
        const int64_t *prefix_len
        const attn_window *window
        const attn_block_mask *block_mask
        const attn_segments *segments
        const attn_tree *tree
        const attn_tensor *mask
        const attn_ragged *ragged
        const attn_dropout *dropout
        attn_weight_callback weight_callback
        void *weight_callback_user
        const attn_tensor *lse
        const attn_tensor *weights
        const int64_t *weight_rows
        int64_t num_weight_rows
        const attn_tensor *key_sums
        const attn_tensor *scores
        int score_stage
        int qk
        int num_threads
        const char *isa
        const int32_t *block_table
        int64_t block_table_stride
        int64_t page_size
        const attn_tensor *k_scale
        const attn_tensor *v_scale
        int inputs
        int sums

    attn_params attn_params_default()
    const char *attn_version_string()
    const char *attn_status_string(attn_status status)
    const char *attn_last_error()
    attn_status attn_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                             const attn_params *params)
    ctypedef struct attn_plan:
        pass
    attn_status attn_plan_create(attn_plan **plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                 const attn_tensor *out, const attn_params *params)
    void attn_plan_destroy(attn_plan *plan)
    size_t attn_plan_describe(const attn_plan *plan, char *buffer, size_t size)
    attn_status attn_merge(int64_t num_parts, const attn_tensor *parts, const attn_tensor *lses, const attn_tensor *out,
                           const attn_tensor *lse, int num_threads)
    int attn_dropout_keeps(const attn_dropout *dropout, int64_t batch, int64_t head, int64_t query, int64_t key)
    const char *attn_isa_name(int index)
    int attn_isa_supported(const char *name)
    const char *attn_isa_active()
    size_t attn_cache_size(int level)

cdef extern from "attn/backward.h" nogil:
    ctypedef struct attn_score_gradient_tile:
        int64_t batch
        int64_t head
        int64_t first_query
        int64_t num_queries
        int64_t first_key
        int64_t num_keys
        int64_t key_stride
        const float *scores
        float *gradients

    ctypedef void (*attn_score_gradient_callback)(const attn_score_gradient_tile *tile, void *user) noexcept nogil

    ctypedef struct attn_gradients:
        size_t struct_size
        const attn_tensor *out
        const attn_tensor *lse
        const attn_tensor *q
        const attn_tensor *k
        const attn_tensor *v
        float *head_scale
        float *sinks
        float *alibi_slopes
        float *relative_bias
        const attn_tensor *mask
        attn_score_gradient_callback callback
        void *callback_user
        const attn_tensor *rel_k
        const attn_tensor *rel_q

    attn_gradients attn_gradients_default()
    attn_status attn_backward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                              const attn_params *params, const attn_gradients *gradients)

cdef extern from "attn/quantise.h" nogil:
    attn_status attn_quantise(const attn_tensor *x, const attn_tensor *out, const attn_tensor *scale, int num_threads)

cdef extern from "attn/rope.h" nogil:
    ctypedef struct attn_rope_config:
        size_t struct_size
        int64_t pairs
        double base
        int scaling
        double factor
        int64_t original_length
        double beta_fast
        double beta_slow
        double attention_factor
        double low_freq_factor
        double high_freq_factor
        int no_truncation
        const double *short_factor
        const double *long_factor
        int64_t length

    attn_rope_config attn_rope_config_default()
    attn_status attn_rope_table(const attn_rope_config *config, const int64_t *positions, int64_t num, float *table)
    attn_status attn_rope(const attn_tensor *x, const attn_tensor *table, int layout, const attn_tensor *out,
                          int num_threads)

cdef extern from "attn/patterns.h" nogil:
    ctypedef struct attn_pattern:
        pass
    ctypedef struct attn_longformer:
        int64_t window
        int64_t globals_ "global"
        int causal
    ctypedef struct attn_bigbird:
        int64_t window
        int64_t globals_ "global"
        int64_t random
        uint64_t seed
        int64_t heads
        int causal
    ctypedef struct attn_strided:
        int64_t stride
        int causal
    attn_status attn_pattern_longformer(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                        const attn_longformer *options)
    attn_status attn_pattern_bigbird(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                     const attn_bigbird *options)
    attn_status attn_pattern_strided(attn_pattern **pattern, int64_t tq, int64_t tk, int64_t size,
                                     const attn_strided *options)
    void attn_pattern_destroy(attn_pattern *pattern)
    const attn_block_mask *attn_pattern_block_mask(const attn_pattern *pattern)
    attn_status attn_alibi_slopes(float *slopes, int64_t heads)

cdef extern from "attn/cache.h" nogil:
    ctypedef struct attn_cache_config:
        size_t struct_size
        int64_t layers
        int64_t kv_heads
        int64_t dk
        int64_t dv
        attn_dtype dtype
        int64_t max_tokens
        int64_t max_sequences
        int64_t page_size
        int64_t num_pages
        int64_t window
        int64_t first_tokens
        const attn_rope_config *rope
        int rope_layout
        int v_in_k
    ctypedef struct attn_cache:
        pass
    ctypedef struct attn_cache_usage:
        size_t struct_size
        int64_t num_pages
        int64_t pages_in_use
        int64_t page_size
        int64_t page_bytes
        int64_t num_sequences
        int64_t tokens
        int64_t bytes
    attn_cache_config attn_cache_config_default()
    attn_cache_usage attn_cache_usage_default()
    attn_status attn_cache_create(attn_cache **cache, const attn_cache_config *config)
    void attn_cache_destroy(attn_cache *cache)
    attn_status attn_cache_get_usage(const attn_cache *cache, attn_cache_usage *usage)
    attn_status attn_cache_add(attn_cache *cache, int64_t *id)
    attn_status attn_cache_fork(attn_cache *cache, int64_t id, int64_t *fork)
    attn_status attn_cache_truncate(attn_cache *cache, int64_t id, int64_t length)
    attn_status attn_cache_keep(attn_cache *cache, int64_t id, int64_t length, int64_t num, const int64_t *tokens)
    attn_status attn_cache_remove(attn_cache *cache, int64_t id)
    int64_t attn_cache_length(const attn_cache *cache, int64_t id)
    attn_status attn_cache_step(attn_cache *cache, int64_t num, const int64_t *ids, const int64_t *tokens,
                                const int64_t *positions)
    attn_status attn_cache_append(attn_cache *cache, int64_t layer, const attn_tensor *k, const attn_tensor *v,
                                  int num_threads)
    attn_status attn_cache_attend(attn_cache *cache, int64_t layer, const attn_tensor *q, const attn_tensor *out,
                                  const attn_params *params)
    int64_t attn_cache_keys(const attn_cache *cache)
    attn_status attn_cache_rotate(const attn_cache *cache, const attn_tensor *q, const attn_tensor *out,
                                  int num_threads)
    attn_status attn_store(const attn_tensor *x, const int64_t *slots, const attn_tensor *rotations, int layout,
                           const attn_tensor *pool, const attn_tensor *scales, int num_threads)

cdef extern from "attn/linear_attention_backward.h" nogil:
    ctypedef struct attn_linear_attention_params:
        size_t struct_size
        const attn_tensor *decay
        const attn_tensor *beta
        float scale
        const attn_tensor *state_in
        const attn_tensor *state_out
        const attn_tensor *resets
        const int64_t *cu_seqlens
        int64_t num_sequences
        const int64_t *lengths
        int map
        const attn_tensor *projection
        int normalise
        int bidirectional
        int num_threads
        const char *isa
    ctypedef struct attn_linear_attention_gradients:
        size_t struct_size
        const attn_tensor *out
        const attn_tensor *state_out
        const attn_tensor *q
        const attn_tensor *k
        const attn_tensor *v
        const attn_tensor *decay
        const attn_tensor *state_in
    attn_linear_attention_params attn_linear_attention_params_default()
    attn_linear_attention_gradients attn_linear_attention_gradients_default()
    attn_status attn_linear_attention(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                      const attn_tensor *out, const attn_linear_attention_params *params)
    attn_status attn_linear_attention_backward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                               const attn_tensor *out, const attn_linear_attention_params *params,
                                               const attn_linear_attention_gradients *gradients)
    attn_status attn_draw_features(const attn_tensor *projection, uint64_t seed, uint64_t offset)

cdef extern from "attn/mpi_plan.h" nogil:
    ctypedef struct attn_mpi_config:
        size_t struct_size
        int placement
        int64_t stripe
        int64_t queries
        int64_t keys
        int wire
        int head_ranks
        int backward
        double timeout
    ctypedef struct attn_mpi_range:
        int64_t first
        int64_t count
    ctypedef struct attn_mpi_plan:
        pass
    attn_mpi_config attn_mpi_config_default()
    attn_status attn_mpi_ranges(const attn_mpi_config *config, int64_t tokens, int ranks, int rank,
                                attn_mpi_range *ranges, int64_t max_ranges, int64_t *num_ranges)
    void attn_mpi_plan_destroy(attn_mpi_plan *plan)
    size_t attn_mpi_plan_describe(const attn_mpi_plan *plan, char *buffer, size_t size)
    attn_status attn_mpi_forward(attn_mpi_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                 const attn_tensor *out, const attn_params *params)
    attn_status attn_mpi_backward(attn_mpi_plan *plan, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                  const attn_tensor *out, const attn_params *params, const attn_gradients *gradients)

# Not public: the extension holds the library's own parts.
cdef extern from "mpi/plan.h" nogil:
    ctypedef struct mpi_tensors "struct mpi_tensors":
        const attn_tensor *q
        const attn_tensor *k
        const attn_tensor *v
        const attn_tensor *out
    ctypedef struct mpi_message "struct mpi_message":
        size_t id
        int is_there
    ctypedef struct mpi_transport "struct mpi_transport"
    ctypedef struct mpi_transport_functions "struct mpi_transport_functions":
        int (*prepare)(mpi_transport *t, int sends, void *data, size_t size, int rank, int tag, mpi_message *message) noexcept
        int (*start)(mpi_transport *t, mpi_message *message) noexcept
        int (*test)(mpi_transport *t, mpi_message *message, int *done) noexcept
        void (*discard)(mpi_transport *t, mpi_message *message) noexcept
        int (*broadcast)(mpi_transport *t, void *data, size_t size, int root, mpi_message *message) noexcept
        int (*lowest)(mpi_transport *t, const int *mine, int *lowest, mpi_message *message) noexcept
        int (*gather)(mpi_transport *t, const void *mine, size_t size, void *all, mpi_message *message) noexcept
        void (*idle)(mpi_transport *t) noexcept
        void (*explain)(mpi_transport *t, int error, char *sentence, size_t size) noexcept
        void (*close)(mpi_transport *t) noexcept
        int needs_tests
    ctypedef struct mpi_transport "struct mpi_transport":
        const mpi_transport_functions *functions
        void *own[2]
        int rank
        int ranks
    attn_status mpi_plan_create(attn_mpi_plan **plan, const mpi_transport *transport, attn_status refused,
                                const mpi_tensors *t, const attn_params *params, const attn_mpi_config *config)

cdef extern from "api/error.h" nogil:
    attn_status attn_fail(attn_status status, const char *format, ...)

cdef extern from "threads.h" nogil:
    int libattn_python_threads()
    void libattn_python_set_threads(int threads)
    const char *libattn_python_runtime()
