/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of caches: that those a window has left behind serve later tokens, that
 * a page which others have is copied before it is written to, and that a step
 * for which there are too few leaves every byte as it was.
 */
#include "fixture.h"
#include "dtype.h"
#include "random.h"

#include "attn/cache.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, D = 8, MOST = 600 };

static attn_cache *make(attn_dtype dtype, int64_t page_size, int64_t num_pages, int64_t window, int64_t first_tokens)
{
    attn_cache_config c = attn_cache_config_default();
    attn_cache *cache;
    c.layers = LAYERS, c.kv_heads = HEADS, c.dk = D, c.dtype = dtype;
    c.max_tokens = MOST, c.max_sequences = 4, c.page_size = page_size, c.num_pages = num_pages;
    c.window = window, c.first_tokens = first_tokens;
    assert_int_equal(attn_cache_create(&cache, &c), ATTN_OK);
    return cache;
}

static int64_t add(attn_cache *cache)
{
    int64_t id;
    assert_int_equal(attn_cache_add(cache, &id), ATTN_OK);
    return id;
}

static int64_t fork_of(attn_cache *cache, int64_t id)
{
    int64_t fork;
    assert_int_equal(attn_cache_fork(cache, id, &fork), ATTN_OK);
    return fork;
}

static int64_t pages_in_use(const attn_cache *cache)
{
    attn_cache_usage usage = attn_cache_usage_default();
    assert_int_equal(attn_cache_get_usage(cache, &usage), ATTN_OK);
    return usage.pages_in_use;
}

/** Rows of total tokens of a step that has begun, in all layers. */
static void append(attn_cache *cache, int64_t total, uint64_t seed)
{
    static float data[MOST * HEADS * D];
    struct rng rng = rng_for_case(0xca9e, seed);
    for (int64_t i = 0; i < total * HEADS * D; i++)
        data[i] = rng_normal(&rng);
    const attn_tensor rows = attn_bthd(data, 1, total, HEADS, D);
    for (int layer = 0; layer < LAYERS; layer++)
        assert_int_equal(attn_cache_append(cache, layer, &rows, &rows, 1), ATTN_OK);
}

/** A step of one sequence. */
static attn_status grow(attn_cache *cache, int64_t id, int64_t tokens, uint64_t seed)
{
    const attn_status status = attn_cache_step(cache, 1, &id, &tokens, NULL);
    if (status == ATTN_OK)
        append(cache, tokens, seed);
    return status;
}

/** The attention of a step of total tokens, in its last layer. */
static void attend(attn_cache *cache, int64_t total, float *out_data)
{
    static float data[MOST * HEADS * D];
    struct rng rng = rng_for_case(0xa77e, (uint64_t)total);
    for (int64_t i = 0; i < total * HEADS * D; i++)
        data[i] = rng_normal(&rng);
    const attn_tensor q = attn_bthd(data, 1, total, HEADS, D), out = attn_bthd(out_data, 1, total, HEADS, D);
    assert_int_equal(attn_cache_attend(cache, LAYERS - 1, &q, &out, NULL), ATTN_OK);
}

/** A sequence takes the pages of its window and of its first tokens, and no more, however long it grows. */
static void test_ring(void **state)
{
    (void)state;
    static const struct {
        int64_t page_size, window, first_tokens, chunk;
    } cases[] = {{16, 40, 0, 1}, {16, 40, 5, 1}, {4, 8, 2, 3}, {1, 3, 1, 1}, {64, 64, 0, 1}, {128, 100, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t size = cases[i].page_size, kept = (cases[i].first_tokens + size - 1) / size;
        /* A chunk's first query sees window keys before it; these rows may begin anywhere in a page. */
        const int64_t pages = kept + (cases[i].window + cases[i].chunk + size - 2) / size + 1;
        attn_cache *cache = make(ATTN_F32, size, pages, cases[i].window, cases[i].first_tokens);
        const int64_t id = add(cache);
        assert_true(pages < (MOST + size - 1) / size);
        /* Twice: what is behind the first tokens is new the second time, and is handed back once more. */
        for (int again = 0; again < 2; again++) {
            const int64_t begin = again ? cases[i].first_tokens : 0, steps = (MOST - begin) / cases[i].chunk;
            assert_int_equal(attn_cache_truncate(cache, id, begin), ATTN_OK);
            for (int64_t n = 0; n < steps; n++)
                if (grow(cache, id, cases[i].chunk, (uint64_t)n) != ATTN_OK)
                    fail_msg("case %d: %s, at token %d", (int)i, attn_last_error(), (int)(begin + n * cases[i].chunk));
            assert_int_equal(attn_cache_length(cache, id), begin + steps * cases[i].chunk);
        }
        assert_int_equal(attn_cache_remove(cache, id), ATTN_OK);
        assert_int_equal(pages_in_use(cache), 0);
        attn_cache_destroy(cache);
    }
}

/** The attention of a step of one token with a window of the call's own. */
static attn_status attend_within(attn_cache *cache, const attn_window *window, float *out_data)
{
    static float data[HEADS * D];
    for (int i = 0; i < HEADS * D; i++)
        data[i] = (float)(i % 7) - 3.0f;
    attn_params params = attn_params_default();
    const attn_tensor q = attn_bthd(data, 1, 1, HEADS, D), out = attn_bthd(out_data, 1, 1, HEADS, D);
    params.window = window;
    return attn_cache_attend(cache, LAYERS - 1, &q, &out, &params);
}

/** A call's window within that of a cache has the bits of one over all keys; others are refused. */
static void test_window_within(void **state)
{
    (void)state;
    static const attn_window within[] = {{8, ATTN_UNLIMITED, 2, NULL, 0}, {5, 0, 1, NULL, 0}, {0, 3, 0, NULL, 0}};
    static const int64_t global[] = {1};
    attn_cache *ring = make(ATTN_F32, 4, 8, 8, 2), *whole = make(ATTN_F32, 4, 16, 0, 0);
    const int64_t ids[2] = {add(ring), add(whole)};
    for (uint64_t n = 0; n < 40; n++) {
        assert_int_equal(grow(ring, ids[0], 1, n), ATTN_OK);
        assert_int_equal(grow(whole, ids[1], 1, n), ATTN_OK);
    }
    assert_true(pages_in_use(ring) < pages_in_use(whole));
    float out[2][HEADS * D];
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        assert_int_equal(attend_within(ring, &within[i], out[0]), ATTN_OK);
        assert_int_equal(attend_within(whole, &within[i], out[1]), ATTN_OK);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
    }
    /* The cache's own is that of no window, and differs from a narrower one. */
    float own[HEADS * D];
    assert_int_equal(attend_within(ring, NULL, own), ATTN_OK);
    assert_memory_not_equal(own, out[0], sizeof own);
    assert_int_equal(attend_within(ring, &within[0], out[0]), ATTN_OK);
    assert_memory_equal(own, out[0], sizeof own);
    static const struct {
        attn_window window;
        const char *words;
    } wrong[] = {{{9, 0, 0, NULL, 0}, "params.window->left is 9; expected at most 8"},
                 {{ATTN_UNLIMITED, 0, 0, NULL, 0}, "params.window->left is"},
                 {{8, 0, 3, NULL, 0}, "params.window->first_tokens is 3; expected at most 2"},
                 {{8, 0, 2, global, 1}, "params.window->num_global is 1; expected 0, as the cache has a window"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(attend_within(ring, &wrong[i].window, out[0]), ATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_last_error(), wrong[i].words));
        assert_memory_equal(own, out[0], sizeof own);
    }
    /* Nor can it go back to where a query saw keys that have been handed back. */
    assert_int_equal(attn_cache_truncate(ring, ids[0], 20), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "length is 20; of the keys that a query there sees, some before token 28 "
                                           "have been handed back");
    assert_int_equal(attn_cache_length(ring, ids[0]), 40);
    attn_cache_destroy(ring);
    attn_cache_destroy(whole);
}

/** A page of a fork is shared while it is full, and copied, once, when one that is not full is written to. */
static void test_copies(void **state)
{
    (void)state;
    static const int64_t sizes[] = {16, 32, 64, 128, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t size = sizes[i];
        attn_cache *cache = make(ATTN_BF16, size, 12, 0, 0);
        const int64_t id = add(cache);
        assert_int_equal(grow(cache, id, size + 3, 1), ATTN_OK);
        const int64_t a = fork_of(cache, id), b = fork_of(cache, id);
        assert_int_equal(pages_in_use(cache), 2);
        assert_int_equal(grow(cache, a, 1, 2), ATTN_OK);
        assert_int_equal(pages_in_use(cache), 3); /* a's own second page */
        assert_int_equal(grow(cache, a, 1, 3), ATTN_OK);
        assert_int_equal(pages_in_use(cache), 3);
        assert_int_equal(attn_cache_remove(cache, id), ATTN_OK);
        assert_int_equal(pages_in_use(cache), 3); /* b has them */
        assert_int_equal(grow(cache, b, 1, 4), ATTN_OK);
        assert_int_equal(pages_in_use(cache), 3); /* b has the second one alone by now */
        /* Three live writers in one step: no two of them may write one page. */
        const int64_t c = fork_of(cache, b), all[3] = {a, b, c}, one[3] = {1, 1, 1};
        assert_int_equal(attn_cache_step(cache, 3, all, one, NULL), ATTN_OK);
        attn_tensor k, v;
        attn_params p = attn_params_default();
        assert_int_equal(attn_cache_pools(cache, 0, &k, &v, &p), ATTN_OK);
        const int32_t *table = p.block_table;
        const int64_t width = p.block_table_stride;
        for (int s = 0; s < 3; s++) {
            assert_int_equal(table[s * width], table[0]); /* the full one */
            for (int other = 0; other < s; other++)
                assert_int_not_equal(table[s * width + 1], table[other * width + 1]);
        }
        append(cache, 3, 5);
        attn_cache_destroy(cache);
    }
}

/** All that a caller can see of a cache and of its step: tables, lengths, and the bytes of all pools and scales. */
struct seen {
    char *bytes;
    size_t size;
};

static void see(struct seen *s, const void *data, size_t size)
{
    if (size == 0)
        return;
    s->bytes = realloc(s->bytes, s->size + size);
    assert_non_null(s->bytes);
    memcpy(s->bytes + s->size, data, size);
    s->size += size;
}

static struct seen look(const attn_cache *cache, int64_t num, const int64_t *ids, int64_t sequences_of_step)
{
    struct seen s = {NULL, 0};
    attn_cache_usage usage = attn_cache_usage_default();
    assert_int_equal(attn_cache_get_usage(cache, &usage), ATTN_OK);
    usage.bytes = 0; /* memory for larger steps may have been got */
    see(&s, &usage, sizeof usage);
    for (int64_t i = 0; i < num; i++) {
        const int64_t length = attn_cache_length(cache, ids[i]);
        see(&s, &length, sizeof length);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        attn_tensor pool[2];
        attn_params p = attn_params_default();
        assert_int_equal(attn_cache_pools(cache, layer, &pool[0], &pool[1], &p), ATTN_OK);
        const attn_tensor *const scales[] = {p.k_scale, p.v_scale};
        for (int i = 0; i < 2; i++) {
            see(&s, pool[i].data, (size_t)(pool[i].shape[0] * pool[i].stride[0]) * attn_dtype_size(pool[i].dtype));
            if (scales[i])
                see(&s, scales[i]->data, (size_t)(scales[i]->shape[0] * scales[i]->stride[0]) * sizeof(float));
        }
        see(&s, p.block_table, (size_t)(sequences_of_step * p.block_table_stride) * sizeof *p.block_table);
        see(&s, p.kv_len, (size_t)sequences_of_step * sizeof *p.kv_len);
    }
    attn_tensor rotations;
    assert_int_equal(attn_cache_rotations(cache, &rotations), ATTN_OK);
    see(&s, rotations.shape, sizeof rotations.shape);
    return s;
}

/** Places of a step's tokens in their sequences, or what the step was given; none before a step and after its end. */
static void test_positions(void **state)
{
    (void)state;
    attn_cache *cache = make(ATTN_F32, 16, 6, 0, 0);
    const int64_t ids[2] = {add(cache), add(cache)}, tokens[2] = {3, 2}, more[2] = {1, 2}, given[3] = {7, -2, 9};
    int64_t num = -1;
    assert_null(attn_cache_positions(NULL, &num));
    assert_int_equal(num, 0);
    assert_null(attn_cache_positions(cache, NULL));
    assert_null(attn_cache_offsets(NULL, &num));
    assert_null(attn_cache_offsets(cache, NULL));
    assert_int_equal(attn_cache_step(cache, 2, ids, tokens, NULL), ATTN_OK);
    assert_memory_equal(attn_cache_positions(cache, &num), ((int64_t[]){0, 1, 2, 0, 1}), 5 * sizeof(int64_t));
    assert_int_equal(num, 5);
    assert_memory_equal(attn_cache_offsets(cache, &num), ((int64_t[]){0, 3, 5}), 3 * sizeof(int64_t));
    assert_int_equal(num, 2);
    assert_int_equal(attn_cache_step(cache, 2, ids, more, NULL), ATTN_OK);
    assert_memory_equal(attn_cache_positions(cache, &num), ((int64_t[]){3, 2, 3}), 3 * sizeof(int64_t));
    assert_int_equal(attn_cache_step(cache, 2, ids, more, given), ATTN_OK);
    assert_memory_equal(attn_cache_positions(cache, &num), given, sizeof given);
    assert_int_equal(attn_cache_truncate(cache, ids[0], 1), ATTN_OK);
    assert_null(attn_cache_positions(cache, &num));
    assert_int_equal(num, 0);
    num = -1;
    assert_null(attn_cache_offsets(cache, &num));
    assert_int_equal(num, 0);
    attn_cache_destroy(cache);
}

/** Pages are too few for copies and new tokens together, though each of them alone would have enough. */
static void test_full(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_I8};
    static float before[4 * HEADS * D], after[4 * HEADS * D];
    for (int i = 0; i < 2; i++) {
        attn_cache *cache = make(dtypes[i], 16, 6, 0, 0);
        int64_t ids[4] = {add(cache)};
        /* Pools are looked at as a whole: all pages are written to once. */
        assert_int_equal(grow(cache, ids[0], 6 * 16, 1), ATTN_OK);
        assert_int_equal(attn_cache_truncate(cache, ids[0], 18), ATTN_OK);
        ids[1] = fork_of(cache, ids[0]), ids[2] = fork_of(cache, ids[0]), ids[3] = add(cache);
        const int64_t begins[1] = {14};
        assert_int_equal(attn_cache_step(cache, 1, &ids[3], begins, NULL), ATTN_OK);
        append(cache, 14, 2);
        const int64_t two[2] = {ids[3], ids[0]}, fits[2] = {2, 0};
        assert_int_equal(attn_cache_step(cache, 2, two, fits, NULL), ATTN_OK);
        append(cache, 2, 3);
        attend(cache, 2, before);
        assert_int_equal(pages_in_use(cache), 3);
        /* Of three free pages: two copies, as the third sequence then has the page alone, and two new pages. */
        struct seen was = look(cache, 4, ids, 2);
        const int64_t more[4] = {1, 1, 1, 17};
        assert_int_equal(attn_cache_step(cache, 4, ids, more, NULL), ATTN_CACHE_FULL);
        if (!holds_words(attn_last_error(),
                         "the step takes 4 pages more than it hands back, and of the cache's 6 pages 3 are free"))
            fail_msg("'%s'", attn_last_error());
        struct seen is = look(cache, 4, ids, 2);
        assert_int_equal(was.size, is.size);
        assert_memory_equal(was.bytes, is.bytes, was.size);
        free(was.bytes);
        free(is.bytes);
        attend(cache, 2, after); /* the step goes on */
        assert_memory_equal(before, after, 2 * HEADS * D * sizeof(float));
        /* A page less, and it fits, to the last page. */
        const int64_t less[4] = {1, 1, 1, 16};
        assert_int_equal(attn_cache_step(cache, 4, ids, less, NULL), ATTN_OK);
        assert_int_equal(pages_in_use(cache), 6);
        append(cache, 19, 4);
        int64_t id;
        for (int n = 0; n < 4; n++)
            assert_int_equal(attn_cache_remove(cache, ids[n]), ATTN_OK);
        assert_int_equal(pages_in_use(cache), 0);
        assert_int_equal(attn_cache_add(cache, &id), ATTN_OK);
        assert_int_equal(grow(cache, id, 6 * 16, 5), ATTN_OK); /* none is lost */
        attn_cache_destroy(cache);
    }
}

/** The rows of a sequence that goes in the middle of a step go nowhere. */
static void test_removed_in_a_step(void **state)
{
    (void)state;
    static float data[3 * HEADS * D];
    attn_cache *cache = make(ATTN_F32, 16, 4, 0, 0);
    const int64_t ids[2] = {add(cache), add(cache)}, tokens[2] = {2, 1};
    assert_int_equal(grow(cache, ids[0], 4 * 16, 1), ATTN_OK); /* all pages are written to once, as above */
    assert_int_equal(attn_cache_truncate(cache, ids[0], 16), ATTN_OK);
    assert_int_equal(attn_cache_step(cache, 2, ids, tokens, NULL), ATTN_OK);
    assert_int_equal(attn_cache_remove(cache, ids[0]), ATTN_OK);
    struct seen was = look(cache, 2, ids, 0);
    const attn_tensor rows = attn_bthd(data, 1, 3, HEADS, D);
    assert_int_equal(attn_cache_append(cache, 0, &rows, &rows, 1), ATTN_SHAPE_MISMATCH);
    assert_true(holds_words(attn_last_error(), "k.shape[2] is 3; expected 0, the tokens of the step"));
    struct seen is = look(cache, 2, ids, 0);
    assert_int_equal(was.size, is.size);
    assert_memory_equal(was.bytes, is.bytes, was.size);
    free(was.bytes);
    free(is.bytes);
    attn_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring),      cmocka_unit_test(test_window_within),
                                       cmocka_unit_test(test_copies),    cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_positions), cmocka_unit_test(test_removed_in_a_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
