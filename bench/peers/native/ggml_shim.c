/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ggml_flash_attn_ext behind a few functions, and its two operators of linear
 * attention, so that Python needs none of ggml's structures. A case is a graph of
 * one node for each layer over tensors that lie in the caller's memory, made
 * once; peers_ggml_run() computes it on a thread pool that lives as long as the case.
 *
 * q and the output are f32, k and v of any type that ggml multiplies. A mask is
 * f16, added to the scores.
 */
#include <ggml-cpu.h>
#include <ggml.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct peers_ggml {
    struct ggml_context *context;
    struct ggml_cgraph *graph;
    struct ggml_threadpool *pool;
    struct ggml_cplan plan;
};

const char *peers_ggml_version(void);
int peers_ggml_kind(const char *name);
int64_t peers_ggml_bytes(int kind, int64_t channels);
void peers_ggml_convert(int kind, const float *from, void *to, int64_t rows, int64_t channels);
struct peers_ggml *peers_ggml_create(int threads, int kind, const int64_t *sizes, void *q, void *k, void *v, void *mask,
                                     int64_t mask_batch, void *out);
struct peers_ggml *peers_ggml_create_linear_attention(int threads, const int64_t *sizes, void *q, void *k, void *v,
                                                      void *decay, void *beta, void *state, void *out);
int peers_ggml_run(struct peers_ggml *p);
void peers_ggml_destroy(struct peers_ggml *p);

const char *peers_ggml_version(void)
{
    return ggml_version();
}

/* The number of the type that ggml calls so, or -1. */
int peers_ggml_kind(const char *name)
{
    for (int kind = 0; kind < GGML_TYPE_COUNT; kind++) {
        const char *known = ggml_type_name((enum ggml_type)kind);
        if (known != NULL && strcmp(known, name) == 0)
            return kind;
    }
    return -1;
}

/* Bytes of a row of so many numbers. */
int64_t peers_ggml_bytes(int kind, int64_t channels)
{
    return (int64_t)ggml_row_size((enum ggml_type)kind, channels);
}

void peers_ggml_convert(int kind, const float *from, void *to, int64_t rows, int64_t channels)
{
    ggml_quantize_chunk((enum ggml_type)kind, from, to, 0, rows, channels, NULL);
}

void peers_ggml_destroy(struct peers_ggml *p)
{
    if (p == NULL)
        return;
    if (p->pool != NULL)
        ggml_threadpool_free(p->pool);
    if (p->context != NULL)
        ggml_free(p->context);
    free(p->plan.work_data);
    free(p);
}

static struct ggml_tensor *wrap(struct ggml_context *context, enum ggml_type type, int64_t d, int64_t t, int64_t h,
                                int64_t b, void *data)
{
    struct ggml_tensor *tensor = ggml_new_tensor_4d(context, type, d, t, h, b);
    tensor->data = data;
    return tensor;
}

/* A case whose graph has room for so many tensors, and nothing in it; NULL without memory. */
static struct peers_ggml *begin(int threads, int64_t tensors)
{
    struct peers_ggml *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    ggml_cpu_init();
    p->context = ggml_init(
        (struct ggml_init_params){.mem_size = (size_t)tensors * ggml_tensor_overhead() + ggml_graph_overhead(),
                                  .mem_buffer = NULL,
                                  .no_alloc = true});
    struct ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
    p->pool = p->context != NULL ? ggml_threadpool_new(&pool) : NULL;
    if (p->pool == NULL) {
        peers_ggml_destroy(p);
        return NULL;
    }
    p->graph = ggml_new_graph(p->context);
    return p;
}

/* The case, ready to run; NULL without memory, and it is gone then. */
static struct peers_ggml *planned(struct peers_ggml *p, int threads)
{
    p->plan = ggml_graph_plan(p->graph, threads, p->pool);
    if (p->plan.work_size > 0) {
        p->plan.work_data = malloc(p->plan.work_size);
        if (p->plan.work_data == NULL) {
            peers_ggml_destroy(p);
            return NULL;
        }
    }
    return p;
}

/*
 * sizes: layers, batch, query heads, key heads, queries, keys, head size. Layers lie behind each other in q, k, v and
 * out. The output of a layer lies as batch, token, head, channel.
 */
struct peers_ggml *peers_ggml_create(int threads, int kind, const int64_t *sizes, void *q, void *k, void *v, void *mask,
                                     int64_t mask_batch, void *out)
{
    const int64_t layers = sizes[0], b = sizes[1], hq = sizes[2], hkv = sizes[3], tq = sizes[4], tk = sizes[5],
                  d = sizes[6];
    const enum ggml_type kv = (enum ggml_type)kind;
    const size_t q_bytes = (size_t)(b * hq * tq * d) * sizeof(float),
                 kv_bytes = (size_t)(b * hkv * tk) * ggml_row_size(kv, d);
    struct peers_ggml *const p = begin(threads, 8 * layers);
    if (p == NULL)
        return NULL;
    for (int64_t l = 0; l < layers; l++) {
        struct ggml_context *const c = p->context;
        struct ggml_tensor *const node =
            ggml_flash_attn_ext(c, wrap(c, GGML_TYPE_F32, d, tq, hq, b, (char *)q + (size_t)l * q_bytes),
                                wrap(c, kv, d, tk, hkv, b, (char *)k + (size_t)l * kv_bytes),
                                wrap(c, kv, d, tk, hkv, b, (char *)v + (size_t)l * kv_bytes),
                                mask != NULL ? wrap(c, GGML_TYPE_F16, tk, tq, 1, mask_batch, mask) : NULL,
                                1.0f / sqrtf((float)d), 0.0f, 0.0f);
        node->data = (char *)out + (size_t)l * q_bytes;
        ggml_build_forward_expand(p->graph, node);
    }
    return planned(p, threads);
}

/*
 * sizes: batch, heads, tokens, head size. All is f32; q, k and v lie as batch, token, head, channel, and so does what
 * out begins with, the outputs; behind them are the states that are left, batch, head, d x d.
 *
 * Without beta this is ggml_gated_linear_attn(): decay has a factor for each channel, as q does. With beta it is
 * ggml_gated_delta_net(): decay has a logarithm for each head, as beta does, and the states lie transposed, before and
 * after.
 */
struct peers_ggml *peers_ggml_create_linear_attention(int threads, const int64_t *sizes, void *q, void *k, void *v,
                                                      void *decay, void *beta, void *state, void *out)
{
    const int64_t b = sizes[0], h = sizes[1], t = sizes[2], d = sizes[3];
    const enum ggml_type f32 = GGML_TYPE_F32;
    struct peers_ggml *const p = begin(threads, 8);
    if (p == NULL)
        return NULL;
    struct ggml_context *const c = p->context;
    struct ggml_tensor *node;
    if (beta == NULL)
        node = ggml_gated_linear_attn(c, wrap(c, f32, d, h, b * t, 1, k), wrap(c, f32, d, h, b * t, 1, v),
                                      wrap(c, f32, d, h, b * t, 1, q), wrap(c, f32, d, h, b * t, 1, decay),
                                      wrap(c, f32, d * d * h, b, 1, 1, state), 1.0f / sqrtf((float)d));
    else
        node = ggml_gated_delta_net(c, wrap(c, f32, d, h, t, b, q), wrap(c, f32, d, h, t, b, k),
                                    wrap(c, f32, d, h, t, b, v), wrap(c, f32, 1, h, t, b, decay),
                                    wrap(c, f32, 1, h, t, b, beta), wrap(c, f32, d, d, h, b, state), 1);
    node->data = out;
    ggml_build_forward_expand(p->graph, node);
    return planned(p, threads);
}

int peers_ggml_run(struct peers_ggml *p)
{
    return ggml_graph_compute(p->graph, &p->plan) == GGML_STATUS_SUCCESS ? 0 : -1;
}
