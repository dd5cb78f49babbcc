/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of a cache: what is 0 gets its default, and the rest is checked.
 */
#include "cache/cache.h"

#include "api/check_internal.h"
#include "api/error.h"

#include <inttypes.h>

#define MAX_HEAD_SIZE 1024

static attn_status check_range(const char *name, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT, "config.%s is %" PRId64 "; expected 1 to %" PRId64, name, value, most);
}

static attn_status check_window(const attn_cache_config *c)
{
    if (c->window < 0 || c->first_tokens < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.%s is %" PRId64 "; expected 0 or more",
                         c->window < 0 ? "window" : "first_tokens", c->window < 0 ? c->window : c->first_tokens);
    if (c->first_tokens > 0 && c->window == 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.first_tokens is %" PRId64 "; expected 0 without a window",
                         c->first_tokens);
    return ATTN_OK;
}

static attn_status check_rope(const attn_cache_config *c)
{
    attn_rope_config rope;
    if (!c->rope) {
        if (c->rope_layout != ATTN_ROPE_HALF_SPLIT)
            return attn_fail(ATTN_INVALID_ARGUMENT, "config.rope_layout is %d; expected 0 without rope",
                             (int)c->rope_layout);
        return ATTN_OK;
    }
    CHECK(attn_take_struct("config.rope", &rope, sizeof rope, ATTN_FIRST_SIZE(attn_rope_config, length), c->rope));
    if (rope.pairs < 1 || rope.pairs > c->dk / 2)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.rope->pairs is %" PRId64 "; expected 1 to %" PRId64 ", half of the head size",
                         rope.pairs, c->dk / 2);
    if ((unsigned)c->rope_layout > ATTN_ROPE_INTERLEAVED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.rope_layout is %d; expected an attn_rope_layout",
                         (int)c->rope_layout);
    return attn_rope_table(c->rope, NULL, 0, NULL); /* its other fields: a table without rows checks them */
}

/** Values that are channels of keys are not longer than these, and stay as they are. */
static attn_status check_v_in_k(const attn_cache_config *c)
{
    if (!c->v_in_k)
        return ATTN_OK;
    if (c->dv > c->dk)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.dv is %" PRId64 "; expected at most %" PRId64 ", config.dk, with v_in_k", c->dv,
                         c->dk);
    if (c->rope)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.rope is set; expected NULL with v_in_k, as it would turn %s",
                         "values, which are the first channels of keys");
    return ATTN_OK;
}

attn_status attn_cache_complete(attn_cache_config *c, const attn_cache_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_cache_config");
    CHECK(attn_take_struct("config", c, sizeof *c, ATTN_FIRST_SIZE(attn_cache_config, v_in_k), theirs));
    c->dv = c->dv ? c->dv : c->dk;
    CHECK(check_range("layers", c->layers, INT32_MAX));
    CHECK(check_range("kv_heads", c->kv_heads, INT32_MAX));
    CHECK(check_range("dk", c->dk, MAX_HEAD_SIZE));
    CHECK(check_range("dv", c->dv, MAX_HEAD_SIZE));
    CHECK(attn_check_stored("config", c->dtype));
    CHECK(check_range("max_tokens", c->max_tokens, (int64_t)1 << 40));
    CHECK(check_range("max_sequences", c->max_sequences, INT32_MAX));
    c->page_size = c->page_size ? c->page_size : c->max_tokens;
    CHECK(check_range("page_size", c->page_size, c->max_tokens));
    const int64_t columns = (c->max_tokens + c->page_size - 1) / c->page_size;
    CHECK(attn_check_count("config.max_sequences with their pages", sizeof(int32_t), c->max_sequences, columns, 1));
    c->num_pages = c->num_pages ? c->num_pages : c->max_sequences * columns;
    CHECK(check_range("num_pages", c->num_pages, INT32_MAX));
    CHECK(check_window(c));
    CHECK(check_rope(c));
    return check_v_in_k(c);
}
