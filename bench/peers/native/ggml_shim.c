/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ggml_flash_attn_ext behind four functions, so that Python needs none of
 * ggml's structures. A case is a graph of one node over tensors that lie in
 * the caller's memory, made once; peers_ggml_run() computes it on a thread pool
 * that lives as long as the case.
 *
 * q and the output are f32, k and v f32 or f16, as ggml's tiled kernel wants
 * them. A mask is f16, added to the scores.
 */
#include <ggml-cpu.h>
#include <ggml.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct peers_ggml {
    struct ggml_context *context;
    struct ggml_cgraph *graph;
    struct ggml_tensor *out;
    struct ggml_threadpool *pool;
    struct ggml_cplan plan;
};

const char *peers_ggml_version(void);
struct peers_ggml *peers_ggml_create(int threads, int half, const int64_t *sizes, void *q, void *k, void *v, void *mask,
                                     int64_t mask_batch, void *out);
int peers_ggml_run(struct peers_ggml *p);
void peers_ggml_destroy(struct peers_ggml *p);

const char *peers_ggml_version(void)
{
    return ggml_version();
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

/* sizes: batch, query heads, key heads, queries, keys, head size. The output lies as batch, token, head, channel. */
struct peers_ggml *peers_ggml_create(int threads, int half, const int64_t *sizes, void *q, void *k, void *v, void *mask,
                                     int64_t mask_batch, void *out)
{
    const int64_t b = sizes[0], hq = sizes[1], hkv = sizes[2], tq = sizes[3], tk = sizes[4], d = sizes[5];
    const enum ggml_type kv = half ? GGML_TYPE_F16 : GGML_TYPE_F32;
    struct peers_ggml *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    ggml_cpu_init();
    p->context = ggml_init((struct ggml_init_params){
        .mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(), .mem_buffer = NULL, .no_alloc = true});
    struct ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
    p->pool = p->context != NULL ? ggml_threadpool_new(&pool) : NULL;
    if (p->pool == NULL) {
        peers_ggml_destroy(p);
        return NULL;
    }
    p->out = ggml_flash_attn_ext(p->context, wrap(p->context, GGML_TYPE_F32, d, tq, hq, b, q),
                                 wrap(p->context, kv, d, tk, hkv, b, k), wrap(p->context, kv, d, tk, hkv, b, v),
                                 mask != NULL ? wrap(p->context, GGML_TYPE_F16, tk, tq, 1, mask_batch, mask) : NULL,
                                 1.0f / sqrtf((float)d), 0.0f, 0.0f);
    p->out->data = out;
    p->graph = ggml_new_graph(p->context);
    ggml_build_forward_expand(p->graph, p->out);
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

int peers_ggml_run(struct peers_ggml *p)
{
    return ggml_graph_compute(p->graph, &p->plan) == GGML_STATUS_SUCCESS ? 0 : -1;
}
