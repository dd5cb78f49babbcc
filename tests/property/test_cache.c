/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache against a simple model of it: for each sequence the list of its
 * tokens, which are numbers that say what their keys and values are. A case is a
 * cache and some hundred random operations; after each one the two are compared,
 * and attention over pages with a call over keys side by side, bit by bit.
 */
#include "properties.h"

#include "attn/cache.h"
#include "attn/quantise.h"
#include "dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS = 500, MOST_SEQUENCES = 8, MOST_TOKENS = 80, MOST_CHANNELS = 40, MOST_HEADS = 4 };

struct sequence {
    int64_t id, length;
    int64_t tokens[MOST_TOKENS];
};

struct world {
    struct rng *rng;
    const char *isa;
    attn_cache_config config;
    attn_rope_config rope;
    attn_cache *cache;
    struct sequence sequences[MOST_SEQUENCES];
    int num;
    int64_t next_token;
    int64_t gone; /**< the id of a sequence that was removed; -1: none yet */
};

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("  line %d: %s (%s)\n", __LINE__, #condition, attn_last_error());                                   \
            return 0;                                                                                                  \
        }                                                                                                              \
    } while (0)

/** What token number token has at a place of a layer. */
static float element(int64_t token, int64_t layer, int values, int64_t head, int64_t channel)
{
    uint64_t x = (uint64_t)token * 0x9e3779b97f4a7c15u + (uint64_t)(((layer * 2 + values) * 64 + head) * 64 + channel);
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    return (float)(int64_t)(x >> 44) / 0x1p19f - 1.0f;
}

static int is_quantised(const struct world *w)
{
    return w->config.dtype == ATTN_I8 || w->config.dtype == ATTN_F8_E4M3 || w->config.dtype == ATTN_I4;
}

/** Keys or values of a sequence side by side, as the cache should have them, (1, kv_heads, length, channels). scale
 * becomes their scales in 8 or 4 bits, (1, kv_heads, length, 1 or groups); else its data is NULL. */
static attn_tensor expected_rows(const struct world *w, const struct sequence *s, int64_t layer, int values,
                                 attn_tensor *scale)
{
    const attn_cache_config *c = &w->config;
    const int64_t channels = values ? c->dv : c->dk, n = s->length;
    attn_tensor t =
        attn_bhtd(must_allocate(c->kv_heads * n * channels + 1, sizeof(float)), 1, c->kv_heads, n, channels);
    for (int64_t h = 0; h < c->kv_heads; h++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < channels; i++)
                tensor_set(&t, 0, h, j, i, element(s->tokens[j], layer, values, h, i));
    if (!values && c->rope && n > 0) {
        float *table = must_allocate(n * 2 * c->rope->pairs, sizeof *table);
        const attn_tensor rotations = attn_bhtd(table, 1, 1, n, 2 * c->rope->pairs);
        must_succeed(attn_rope_table(c->rope, NULL, n, table), "attn_rope_table");
        must_succeed(attn_rope(&t, &rotations, c->rope_layout, &t, 1), "attn_rope");
        free(table);
    }
    const int64_t groups = c->dtype == ATTN_I4 ? (channels + 31) / 32 : 1;
    *scale = attn_bhtd(NULL, 1, c->kv_heads, n, groups);
    if (is_quantised(w)) {
        const int64_t bytes = (int64_t)attn_row_size(c->dtype, channels);
        attn_tensor small = attn_bhtd(must_allocate(c->kv_heads * n * bytes + 1, 1), 1, c->kv_heads, n,
                                      c->dtype == ATTN_I4 ? 32 * groups : channels);
        small.dtype = c->dtype;
        small.shape[3] = channels;
        scale->data = must_allocate(c->kv_heads * n * groups + 1, sizeof(float));
        must_succeed(attn_quantise(&t, &small, scale, 1), "attn_quantise");
        free(t.data);
        t = small;
    } else if (c->dtype != ATTN_F32) {
        const attn_tensor narrow = problem_converted(&t, c->dtype);
        free(t.data);
        t = narrow;
    }
    return t;
}

/** Whether a query at the end of a sequence, or a later one, may see a key. */
static int is_kept(const struct world *w, const struct sequence *s, int64_t key)
{
    return w->config.window == 0 || key < w->config.first_tokens || key >= s->length - w->config.window;
}

/** The bytes of a row. */
static const char *row_of(const attn_tensor *t, int64_t b, int64_t h, int64_t token)
{
    const int64_t at = b * t->stride[0] + h * t->stride[1] + token * t->stride[2];
    return (const char *)t->data + (t->dtype == ATTN_I4 ? at / 2 : at * (int64_t)attn_dtype_size(t->dtype));
}

/** Whether a sequence's rows in a pool are those of a tensor; table is its row of block_table. */
static int same_rows(const struct world *w, const struct sequence *s, const int32_t *table, const attn_tensor *pool,
                     const attn_tensor *t)
{
    const int64_t size = w->config.page_size;
    int same = 1;
    for (int64_t j = 0; j < s->length; j++)
        for (int64_t h = 0; h < t->shape[1] && is_kept(w, s, j); h++)
            same = same && memcmp(row_of(pool, table[j / size], h, j % size), row_of(t, 0, h, j),
                                  attn_row_size(t->dtype, t->shape[3])) == 0;
    return same;
}

/** The rows of a sequence in the pools are its tokens'. */
static int has_rows(const struct world *w, const struct sequence *s, const int32_t *table)
{
    for (int64_t layer = 0; layer < w->config.layers; layer++) {
        attn_tensor pools[2];
        attn_params params = attn_params_default();
        must_succeed(attn_cache_pools(w->cache, layer, &pools[0], &pools[1], &params), "attn_cache_pools");
        const attn_tensor *const scales[] = {params.k_scale, params.v_scale};
        for (int values = 0; values < 2; values++) {
            attn_tensor scale;
            const attn_tensor t = expected_rows(w, s, layer, values, &scale);
            const int same = same_rows(w, s, table, &pools[values], &t) &&
                             (!scales[values] || same_rows(w, s, table, scales[values], &scale));
            free(t.data);
            free(scale.data);
            EXPECT(!scales[values] == !is_quantised(w));
            EXPECT(same);
        }
    }
    return 1;
}

/** That the cache has the sequences of the model and nothing more. Ends the step. */
static int agrees(struct world *w)
{
    int64_t ids[MOST_SEQUENCES], none[MOST_SEQUENCES] = {0}, tokens = 0, distinct = 0;
    for (int i = 0; i < w->num; i++) {
        ids[i] = w->sequences[i].id;
        EXPECT(attn_cache_length(w->cache, ids[i]) == w->sequences[i].length);
        tokens += w->sequences[i].length;
    }
    EXPECT(attn_cache_step(w->cache, w->num, ids, none, NULL) == ATTN_OK);
    attn_tensor k, v;
    attn_params params = attn_params_default();
    EXPECT(attn_cache_pools(w->cache, 0, &k, &v, &params) == ATTN_OK);
    static unsigned char seen[4096];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < w->num; i++) {
        const int32_t *table = params.block_table + i * params.block_table_stride;
        EXPECT(params.kv_len[i] == w->sequences[i].length);
        EXPECT(has_rows(w, &w->sequences[i], table));
        for (int64_t column = 0; column * w->config.page_size < w->sequences[i].length; column++) {
            if (table[column] < 0) /* handed back */
                continue;
            EXPECT(table[column] < w->config.num_pages);
            distinct += !seen[table[column]];
            seen[table[column]] = 1;
        }
    }
    attn_cache_usage usage = attn_cache_usage_default();
    EXPECT(attn_cache_get_usage(w->cache, &usage) == ATTN_OK);
    EXPECT(usage.num_sequences == w->num && usage.tokens == tokens && usage.pages_in_use == distinct);
    EXPECT(usage.num_pages == w->config.num_pages && usage.page_size == w->config.page_size);
    return 1;
}

/** A layer of a step: its keys and values, then its attention, compared with that over rows side by side. */
static int run_layer(struct world *w, int64_t layer, int num, const int *which, const int64_t *grown, int64_t total)
{
    const attn_cache_config *c = &w->config;
    const int64_t heads = c->kv_heads * (int64_t)RNG_PICK(w->rng, 1, 2, 3);
    const attn_dtype given = rng_percent(w->rng, 70) || is_quantised(w) ? ATTN_F32 : c->dtype;
    static float rows[2][MOST_HEADS * MOST_SEQUENCES * MOST_TOKENS * MOST_CHANNELS];
    attn_tensor kv[2];
    for (int values = 0; values < 2; values++) {
        attn_tensor t = attn_bthd(rows[values], 1, total, c->kv_heads, values ? c->dv : c->dk);
        int64_t at = 0;
        for (int i = 0; i < num; i++) {
            const struct sequence *s = &w->sequences[which[i]];
            for (int64_t j = s->length - grown[i]; j < s->length; j++, at++)
                for (int64_t h = 0; h < c->kv_heads; h++)
                    for (int64_t e = 0; e < t.shape[3]; e++)
                        tensor_set(&t, 0, h, at, e, element(s->tokens[j], layer, values, h, e));
        }
        kv[values] = t;
    }
    if (given != ATTN_F32 && !c->rope) /* rounded before or on the way: the same */
        for (int values = 0; values < 2; values++) {
            const attn_tensor flat = attn_bhtd(rows[values], 1, 1, total * c->kv_heads, kv[values].shape[3]);
            attn_tensor narrow = problem_converted(&flat, given);
            memcpy(rows[values], narrow.data, (size_t)problem_count(&flat) * attn_dtype_size(given));
            free(narrow.data);
            kv[values].dtype = given;
        }
    EXPECT(attn_cache_append(w->cache, layer, &kv[0], &kv[1], 1) == ATTN_OK);
    EXPECT(total == 0 || attn_cache_append(w->cache, layer, &kv[0], &kv[1], 1) == ATTN_INVALID_ARGUMENT);

    attn_tensor q = attn_bthd(must_allocate(total * heads * c->dk + 1, sizeof(float)), 1, total, heads, c->dk);
    attn_tensor out = attn_bthd(must_allocate(total * heads * c->dv + 1, sizeof(float)), 1, total, heads, c->dv);
    for (int64_t i = 0; i < total * heads * c->dk; i++)
        ((float *)q.data)[i] = rng_normal(w->rng);
    if (rng_percent(w->rng, 50) && !is_quantised(w)) { /* as sets for pairs of bf16 want it */
        const attn_tensor flat = attn_bhtd(q.data, 1, 1, total * heads, c->dk),
                          narrow = problem_converted(&flat, c->dtype);
        free(q.data);
        q.data = narrow.data;
        q.dtype = c->dtype;
    }
    attn_params params = attn_params_default();
    params.isa = w->isa;
    params.softcap = rng_percent(w->rng, 20) ? 3.0f : 0.0f;
    EXPECT(attn_cache_attend(w->cache, layer, &q, &out, &params) == ATTN_OK);
    const attn_window window = {.left = c->window, .right = ATTN_UNLIMITED, .first_tokens = c->first_tokens};
    params.window = c->window ? &window : NULL;
    params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    int same = 1;
    int64_t first = 0;
    for (int i = 0; i < num; first += grown[i++]) {
        const struct sequence *s = &w->sequences[which[i]];
        attn_tensor scales[2];
        const attn_tensor k = expected_rows(w, s, layer, 0, &scales[0]), v = expected_rows(w, s, layer, 1, &scales[1]);
        params.k_scale = is_quantised(w) ? &scales[0] : NULL;
        params.v_scale = is_quantised(w) ? &scales[1] : NULL;
        attn_tensor some_q = q, some_out = attn_bhtd(must_allocate(grown[i] * heads * c->dv + 1, sizeof(float)), 1,
                                                     heads, grown[i], c->dv);
        some_q.data = (char *)q.data + (size_t)(first * heads * c->dk) * attn_dtype_size(q.dtype);
        some_q.shape[2] = grown[i];
        must_succeed(attn_forward(&some_q, &k, &v, &some_out, &params), "attn_forward");
        for (int64_t t = 0; t < grown[i]; t++)
            for (int64_t h = 0; h < heads; h++)
                same = same &&
                       memcmp((float *)out.data + ((first + t) * heads + h) * c->dv,
                              (float *)some_out.data + (h * grown[i] + t) * c->dv, (size_t)c->dv * sizeof(float)) == 0;
        free(k.data);
        free(v.data);
        free(scales[0].data);
        free(scales[1].data);
        free(some_out.data);
    }
    free(q.data);
    free(out.data);
    EXPECT(same);
    return 1;
}

/** Pages of all sequences if they shared none, at the lengths that they would have. */
static int64_t pages_unshared(const struct world *w, int num, const int *which, const int64_t *grown)
{
    int64_t pages = 0;
    for (int i = 0; i < w->num; i++) {
        int64_t length = w->sequences[i].length;
        for (int j = 0; j < num; j++)
            length += which[j] == i ? grown[j] : 0;
        pages += (length + w->config.page_size - 1) / w->config.page_size;
    }
    return pages;
}

static int grow(struct world *w)
{
    int which[MOST_SEQUENCES], num = 0;
    int64_t ids[MOST_SEQUENCES], grown[MOST_SEQUENCES], total = 0;
    const int decodes = rng_percent(w->rng, 50);
    for (int i = 0; i < w->num; i++) {
        const int64_t room = w->config.max_tokens - w->sequences[i].length;
        if (rng_percent(w->rng, 40) || (decodes && room == 0))
            continue;
        which[num] = i;
        ids[num] = w->sequences[i].id;
        grown[num] = decodes ? 1 : rng_range(w->rng, 0, room < 9 ? room : 9);
        total += grown[num++];
    }
    const attn_status status = attn_cache_step(w->cache, num, ids, grown, NULL);
    if (status == ATTN_CACHE_FULL) {
        EXPECT(w->config.window > 0 || pages_unshared(w, num, which, grown) > w->config.num_pages);
        return agrees(w);
    }
    EXPECT(status == ATTN_OK);
    for (int i = 0; i < num; i++)
        for (int64_t t = 0; t < grown[i]; t++)
            w->sequences[which[i]].tokens[w->sequences[which[i]].length++] = w->next_token++;
    for (int64_t layer = 0; layer < w->config.layers; layer++)
        EXPECT(run_layer(w, layer, num, which, grown, total));
    return 1;
}

static int add_or_fork(struct world *w, int forks)
{
    int64_t id = -7;
    const int from = forks ? (int)rng_range(w->rng, 0, w->num - 1) : 0;
    const attn_status status =
        forks ? attn_cache_fork(w->cache, w->sequences[from].id, &id) : attn_cache_add(w->cache, &id);
    if (w->num == w->config.max_sequences) {
        EXPECT(status == ATTN_CACHE_FULL && id == -7);
        return 1;
    }
    EXPECT(status == ATTN_OK);
    struct sequence *s = &w->sequences[w->num];
    *s = (struct sequence){.id = id};
    if (forks)
        *s = w->sequences[from], s->id = id;
    for (int i = 0; i < w->num; i++)
        EXPECT(w->sequences[i].id != id);
    w->num++;
    return 1;
}

static int truncate(struct world *w)
{
    struct sequence *s = &w->sequences[rng_range(w->rng, 0, w->num - 1)];
    const int64_t length = rng_percent(w->rng, 70) ? s->length - rng_range(w->rng, 0, s->length < 3 ? s->length : 3)
                                                   : rng_range(w->rng, 0, s->length);
    const attn_status status = attn_cache_truncate(w->cache, s->id, length);
    if (w->config.window > 0 && status == ATTN_INVALID_ARGUMENT) { /* keys that are wanted have been handed back */
        EXPECT(length > w->config.first_tokens && strstr(attn_last_error(), "handed back"));
        return 1;
    }
    EXPECT(status == ATTN_OK);
    s->length = length;
    EXPECT(attn_cache_truncate(w->cache, s->id, length + 1) == ATTN_INVALID_ARGUMENT);
    return 1;
}

/** Some of the last tokens stay, as of drafts. */
static int keep(struct world *w)
{
    struct sequence *s = &w->sequences[rng_range(w->rng, 0, w->num - 1)];
    const int64_t last = rng_range(w->rng, 0, s->length < 6 ? s->length : 6), length = s->length - last;
    int64_t kept[6], num = 0;
    for (int64_t j = length; j < s->length; j++)
        if (rng_percent(w->rng, 60))
            kept[num++] = j;
    const attn_status status = attn_cache_keep(w->cache, s->id, length, num, kept);
    if (status == ATTN_UNSUPPORTED) { /* another sequence has the page */
        EXPECT(num > 0 && strstr(attn_last_error(), "page"));
        return 1;
    }
    if (w->config.window > 0 && status == ATTN_INVALID_ARGUMENT) {
        EXPECT(length + num > w->config.first_tokens && strstr(attn_last_error(), "handed back"));
        return 1;
    }
    EXPECT(status == ATTN_OK);
    for (int64_t i = 0; i < num; i++)
        s->tokens[length + i] = s->tokens[kept[i]];
    s->length = length + num;
    return 1;
}

static int remove_one(struct world *w)
{
    const int at = (int)rng_range(w->rng, 0, w->num - 1);
    w->gone = w->sequences[at].id;
    EXPECT(attn_cache_remove(w->cache, w->gone) == ATTN_OK);
    w->sequences[at] = w->sequences[--w->num];
    return 1;
}

/** Nothing is to be had of a sequence that is gone. */
static int use_gone(struct world *w)
{
    const int64_t one = 1;
    int64_t fork;
    EXPECT(attn_cache_length(w->cache, w->gone) == -1);
    EXPECT(attn_cache_step(w->cache, 1, &w->gone, &one, NULL) == ATTN_INVALID_ARGUMENT);
    EXPECT(attn_cache_fork(w->cache, w->gone, &fork) == ATTN_INVALID_ARGUMENT);
    EXPECT(attn_cache_truncate(w->cache, w->gone, 0) == ATTN_INVALID_ARGUMENT);
    EXPECT(attn_cache_remove(w->cache, w->gone) == ATTN_INVALID_ARGUMENT);
    return 1;
}

static int operate(struct world *w)
{
    const int kind = (int)rng_range(w->rng, 0, 99);
    if (w->num == 0 || kind < 10)
        return add_or_fork(w, 0);
    if (kind < 18)
        return add_or_fork(w, 1);
    if (kind < 32)
        return truncate(w);
    if (kind < 40)
        return remove_one(w);
    if (kind < 48 && !w->config.rope) /* a key that moves keeps its rotation, of which the model knows nothing */
        return keep(w);
    if (kind < 50 && w->gone >= 0)
        return use_gone(w);
    return grow(w);
}

static void draw_world(struct world *w, struct rng *rng, const char *isa, attn_dtype dtype)
{
    memset(w, 0, sizeof *w);
    w->rng = rng;
    w->isa = isa;
    w->gone = -1;
    w->config = attn_cache_config_default();
    attn_cache_config *c = &w->config;
    c->layers = rng_range(rng, 1, 2);
    c->kv_heads = rng_range(rng, 1, 2);
    const int most = dtype == ATTN_I4 ? MOST_CHANNELS : 12; /* more than a group */
    c->dk = rng_range(rng, 2, most);
    c->dv = rng_percent(rng, 50) ? c->dk : rng_range(rng, 1, most);
    c->dtype = dtype;
    c->max_tokens = rng_range(rng, 1, MOST_TOKENS);
    c->max_sequences = rng_range(rng, 1, MOST_SEQUENCES);
    c->page_size = RNG_PICK(rng, 0, 1, 2, 3, 5, 8, 16, 16);
    if (c->page_size > c->max_tokens)
        c->page_size = c->max_tokens;
    if (rng_percent(rng, 60)) {
        const int64_t size = c->page_size ? c->page_size : c->max_tokens;
        c->num_pages = rng_range(rng, 1, c->max_sequences * ((c->max_tokens + size - 1) / size));
    }
    if (rng_percent(rng, 30)) {
        c->window = rng_range(rng, 1, 20);
        c->first_tokens = rng_percent(rng, 50) ? 0 : rng_range(rng, 0, 6);
    }
    if (rng_percent(rng, 40)) {
        w->rope = attn_rope_config_default();
        w->rope.pairs = rng_range(rng, 1, c->dk / 2);
        c->rope = &w->rope;
        c->rope_layout = rng_percent(rng, 50) ? ATTN_ROPE_HALF_SPLIT : ATTN_ROPE_INTERLEAVED;
    }
    must_succeed(attn_cache_create(&w->cache, c), "attn_cache_create");
    c->page_size = c->page_size ? c->page_size : c->max_tokens;
    if (!c->num_pages)
        c->num_pages = c->max_sequences * ((c->max_tokens + c->page_size - 1) / c->page_size);
}

static int operations(struct rng *rng, const char *isa, attn_dtype dtype)
{
    static struct world w;
    draw_world(&w, rng, isa, dtype);
    int holds = 1;
    for (int i = 0; i < OPERATIONS && holds; i++) {
        holds = operate(&w) && (i % 8 != 0 || agrees(&w));
        if (!holds)
            printf("  operation %d, page_size %" PRId64 ", %" PRId64 " pages\n", i, w.config.page_size,
                   w.config.num_pages);
    }
    while (w.num > 0 && holds)
        holds = remove_one(&w);
    holds = holds && agrees(&w); /* of no sequence: no page is in use */
    attn_cache_destroy(w.cache);
    return holds;
}

static int operations_f32(struct rng *rng, const char *isa)
{
    return operations(rng, isa, ATTN_F32);
}

static int operations_narrow(struct rng *rng, const char *isa)
{
    return operations(rng, isa, rng_percent(rng, 50) ? ATTN_BF16 : ATTN_F16);
}

static int operations_quantised(struct rng *rng, const char *isa)
{
    return operations(rng, isa, (attn_dtype[]){ATTN_I8, ATTN_F8_E4M3, ATTN_I4}[rng_range(rng, 0, 2)]);
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"operations on caches of f32", operations_f32},
        {"operations on caches of bf16 and f16", operations_narrow},
        {"operations on caches of 8 and 4 bits", operations_quantised},
    };
    return properties_run(argc, argv, "test_cache", properties, sizeof properties / sizeof *properties);
}
