/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of pages. Behind them k and v have the shapes of the keys and values
 * that sequences have, (B, Hkv, Tk, d), and the tensors that the caller gave are
 * pools of pages; nothing else has to know but where rows are read.
 */
#include "api/check_internal.h"

#include "api/error.h"

#include <inttypes.h>

/** Larger heads would not leave room in a thread's memory for rows of pages brought together. */
#define MAX_HEAD_SIZE 1024

static attn_status check_pool(const char *name, const attn_tensor *pool, const struct attn_problem *problem)
{
    CHECK(attn_check_axis(name, pool, 2, problem->params.page_size, "params.page_size"));
    if (pool->shape[0] > INT32_MAX)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.shape[0] is %" PRId64 "; expected at most %d pages", name,
                         pool->shape[0], INT32_MAX);
    if (pool->shape[3] > MAX_HEAD_SIZE)
        return attn_fail(ATTN_UNSUPPORTED, "%s.shape[3] is %" PRId64 "; with a block table head sizes go up to %d",
                         name, pool->shape[3], MAX_HEAD_SIZE);
    return ATTN_OK;
}

/** What counts the keys of one sequence after those of another cannot be said of keys in pages. */
static attn_status check_ragged(const attn_params *p)
{
    if (p->ragged->cu_seqlens_k)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.ragged->cu_seqlens_k is set; expected NULL with a block table, as kv_len says how "
                         "many keys there are");
    if (p->segments)
        return attn_fail(ATTN_UNSUPPORTED, "params.segments is set; not in a ragged batch with a block table");
    return ATTN_OK;
}

attn_status attn_check_pages(struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    if (!p->block_table) {
        if (p->block_table_stride != 0 || p->page_size != 0)
            return attn_fail(ATTN_INVALID_ARGUMENT, "params.%s is set; expected 0 without a block table",
                             p->page_size != 0 ? "page_size" : "block_table_stride");
        return ATTN_OK;
    }
    if (p->page_size < 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.page_size is %" PRId64 "; expected 1 or more", p->page_size);
    if (p->block_table_stride < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.block_table_stride is %" PRId64 "; expected 0 or more",
                         p->block_table_stride);
    CHECK(check_pool("k", &problem->k, problem));
    CHECK(check_pool("v", &problem->v, problem));
    CHECK(attn_check_axis("v", &problem->v, 0, problem->k.shape[0], "the pages of k"));
    if (p->ragged)
        CHECK(check_ragged(p));
    problem->k_pool = problem->k;
    problem->v_pool = problem->v;
    const int64_t batch = problem->q.shape[0];
    CHECK(attn_check_count("params.block_table with the tokens of its pages", sizeof(int32_t), batch,
                           p->block_table_stride, p->page_size));
    problem->k.shape[0] = problem->v.shape[0] = batch;
    problem->k.shape[2] = problem->v.shape[2] = p->block_table_stride * p->page_size;
    /* Like any keys and values of this shape, they can be counted by bytes. */
    CHECK(attn_check_tensor("k, with the tokens of params.block_table,", &problem->k, CHECK_SHAPES));
    return attn_check_tensor("v, with the tokens of params.block_table,", &problem->v, CHECK_SHAPES);
}

/** The keys from first_tokens on that a window hides from all queries of a sequence: those before the answer. */
static int64_t hidden_before(const struct attn_problem *problem, const struct attn_sequence *sequence, int64_t s)
{
    const attn_params *p = &problem->params;
    int64_t position = 0, first;
    if (!p->window || p->window->left == ATTN_UNLIMITED || p->window->num_global > 0)
        return 0;
    if (p->causal == ATTN_CAUSAL_BOTTOM_RIGHT)
        position = sequence->end - sequence->queries;
    else if (p->query_offset)
        position = p->query_offset[s];
    return __builtin_sub_overflow(position, p->window->left, &first) ? 0 : first;
}

static attn_status check_entry(const struct attn_problem *problem, int64_t s, int64_t column)
{
    const int64_t at = s * problem->params.block_table_stride + column, pages = problem->k_pool.shape[0];
    const int64_t page = problem->params.block_table[at];
    if (page >= 0 && page < pages)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT,
                     "params.block_table[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64
                     ", a page, for keys of sequence %" PRId64,
                     at, page, pages - 1, s);
}

struct attn_seen_keys attn_seen_keys_of(const struct attn_problem *problem, int64_t s)
{
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const int64_t tokens = problem->params.window ? problem->params.window->first_tokens : 0;
    return (struct attn_seen_keys){
        .kept = tokens < sequence.end - sequence.begin ? sequence.begin + tokens : sequence.end,
        .hidden = hidden_before(problem, &sequence, s),
    };
}

static attn_status check_row(const struct attn_problem *problem, int64_t s)
{
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const struct attn_seen_keys seen = attn_seen_keys_of(problem, s);
    const int64_t size = problem->params.page_size;
    for (int64_t column = sequence.begin / size; column * size < sequence.end; column++)
        if (attn_is_seen_page(&seen, size, column))
            CHECK(check_entry(problem, s, column));
    return ATTN_OK;
}

attn_status attn_check_block_table(const struct attn_problem *problem, enum check_depth depth)
{
    if (!problem->params.block_table || !(depth & CHECK_ARRAYS) || problem->params.block_table_stride == 0)
        return ATTN_OK;
    CHECK(attn_check_count("params.block_table", sizeof(int32_t), problem->num_sequences,
                           problem->params.block_table_stride, 1));
    for (int64_t s = 0; s < problem->num_sequences; s++)
        CHECK(check_row(problem, s));
    return ATTN_OK;
}
