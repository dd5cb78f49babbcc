/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values of a case in pages.
 *
 * Some cases are called with a block table, and compared with what the oracle
 * says of the same keys side by side. Pages lie in any order, in pools of any
 * strides; rows without a key, and pages without a sequence, are NaN; entries
 * that are not looked at are no pages.
 */
#include "case_draw.h"
#include "dtype.h"

#include <string.h>

/** Whether anything of the case has an axis of the keys of all sequences, which pages do not have one after the other.
 */
static int has_axis_of_keys(const struct test_case *c)
{
    const attn_params *p = &c->params;
    return p->weights || p->scores || p->key_sums || p->rope || p->segments || p->block_mask ||
           (p->mask && p->mask->shape[3] != 1);
}

/** Tokens of a page: where an axis counts the keys, a number that divides them. 0: none will do. */
static int64_t draw_size(const struct test_case *c, struct rng *rng)
{
    const int64_t keys = c->k.shape[2];
    if (!has_axis_of_keys(c))
        return RNG_PICK(rng, 1, 2, 3, 7, 8, 16, 16, 16, 24, 32, 64, 128, 256);
    if (c->params.ragged || keys == 0)
        return 0;
    int64_t size = RNG_PICK(rng, 1, 2, 3, 5, 8, 16, 16, 24, 32, 48, 64, 128);
    while (keys % size != 0)
        size--;
    return size;
}

/** Copies the keys of one sequence, of a tensor, into its pages. */
static void fill_pages(const struct test_case *c, const attn_tensor *t, const attn_tensor *pool, int64_t s)
{
    const int64_t size = pool->shape[2], b = c->params.ragged ? 0 : s, n = case_keys(c, s);
    const int64_t before = c->params.ragged ? c->params.ragged->cu_seqlens_k[s] : 0;
    const int32_t *table = c->called.params.block_table + s * c->called.params.block_table_stride;
    for (int64_t h = 0; h < t->shape[1]; h++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < t->shape[3]; i++)
                tensor_set(pool, table[j / size], h, j % size, i, tensor_get(t, b, h, before + j, i));
}

static void place_pool(struct test_case *c, enum case_slot slot, const attn_tensor *t, int64_t pages, int64_t size,
                       attn_tensor *pool, struct rng *rng)
{
    *pool = tensor_of_shape(t->dtype, pages, t->shape[1], size, t->shape[3]);
    case_place_tensor(c, slot, pool, 0, rng);
    memset(c->guard[slot].data, 0xff, c->guard[slot].used); /* NaN in every type */
}

/** Any permutation of n pages. */
static void shuffle(int32_t *pages, int64_t n, struct rng *rng)
{
    for (int64_t i = 0; i < n; i++)
        pages[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = rng_range(rng, 0, i);
        const int32_t swap = pages[i];
        pages[i] = pages[j];
        pages[j] = swap;
    }
}

void case_draw_pages(struct test_case *c, struct rng *rng)
{
    attn_params *p = &c->called.params;
    c->called.k = c->k;
    c->called.v = c->v;
    *p = c->params;
    const int64_t size = rng_percent(rng, 30) ? draw_size(c, rng) : 0, sequences = case_sequences(c);
    if (size == 0)
        return;
    /* A ragged batch has as many columns as its longest sequence needs, unless its global tokens are further on. */
    const int longest = p->ragged && !(p->window && p->window->num_global > 0);
    int64_t columns = longest ? 0 : (c->k.shape[2] + size - 1) / size, needed = 0;
    for (int64_t s = 0; s < sequences; s++) {
        const int64_t n = (case_keys(c, s) + size - 1) / size;
        columns = n > columns ? n : columns;
        needed += n;
    }
    const int64_t pages = needed + rng_range(rng, 0, 3);
    int32_t *table = CASE_PLACE(c, SLOT_BLOCK_TABLE, int32_t, sequences * columns, rng);
    int64_t *kv_len = CASE_PLACE(c, SLOT_PAGED_KV_LEN, int64_t, sequences, rng);
    static int32_t order[1 << 16];
    if (pages > (int64_t)(sizeof order / sizeof *order))
        return;
    shuffle(order, pages, rng);
    int64_t next = 0;
    for (int64_t s = 0; s < sequences; s++) {
        const int64_t n = (case_keys(c, s) + size - 1) / size;
        kv_len[s] = p->kv_len ? p->kv_len[s] : case_keys(c, s);
        for (int64_t i = 0; i < columns; i++)
            table[s * columns + i] = i < n ? order[next++] : (int32_t)RNG_PICK(rng, -1, INT32_MIN, INT32_MAX);
    }
    p->page_size = size;
    p->block_table = table;
    p->block_table_stride = columns;
    p->kv_len = kv_len;
    if (p->ragged) {
        c->called.ragged = *p->ragged;
        c->called.ragged.cu_seqlens_k = NULL;
        p->ragged = &c->called.ragged;
    }
    place_pool(c, SLOT_K_POOL, &c->k, pages, size, &c->called.k, rng);
    place_pool(c, SLOT_V_POOL, &c->v, pages, size, &c->called.v, rng);
    for (int64_t s = 0; s < sequences; s++) {
        fill_pages(c, &c->k, &c->called.k, s);
        fill_pages(c, &c->v, &c->called.v, s);
        for (int64_t i = 0; i < columns; i++) /* without a live key they may be anything */
            if ((i * size >= kv_len[s] || (p->kv_start && (i + 1) * size <= p->kv_start[s])) && rng_percent(rng, 50))
                table[s * columns + i] = (int32_t)RNG_PICK(rng, -1, INT32_MIN, INT32_MAX);
    }
}
