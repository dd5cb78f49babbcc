/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what says which keys a query sees, besides causality and lengths. */
#include "api/check_internal.h"

#include "api/error.h"

#include <inttypes.h>

#define BLOCK_GRAIN 16

static int64_t divide_up(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}

static attn_status check_global_tokens(const attn_window *window, int64_t tk)
{
    for (int64_t n = 0; n < window->num_global; n++) {
        const int64_t token = window->global[n];
        if (token < 0 || token >= tk)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.window->global[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64
                             ", a token of k",
                             n, token, tk - 1);
        if (n > 0 && token <= window->global[n - 1])
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.window->global[%" PRId64 "] is %" PRId64
                             "; expected more than params.window->global[%" PRId64 "], %" PRId64,
                             n, token, n - 1, window->global[n - 1]);
    }
    return ATTN_OK;
}

static attn_status check_window(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_window *window = problem->params.window;
    const int64_t tk = problem->k.shape[2];
    const struct {
        const char *name;
        int64_t value;
    } lengths[] = {{"left", window->left}, {"right", window->right}, {"first_tokens", window->first_tokens}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (lengths[i].value < 0)
            return attn_fail(ATTN_INVALID_ARGUMENT, "params.window->%s is %" PRId64 "; expected 0 or more",
                             lengths[i].name, lengths[i].value);
    if (problem->rectangle) /* the caller has checked those of the whole */
        return ATTN_OK;
    if (window->num_global < 0 || window->num_global > tk)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.window->num_global is %" PRId64 "; expected 0 to %" PRId64 ", the tokens of k",
                         window->num_global, tk);
    CHECK(attn_check_count("params.window->global", sizeof(int64_t), window->num_global, 1, 1));
    if (window->num_global && !window->global)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.window->global is NULL; expected %" PRId64 " positions",
                         window->num_global);
    return depth & CHECK_ARRAYS ? check_global_tokens(window, tk) : ATTN_OK;
}

/** Queries of the longest sequence; before the arrays are looked at, of the longest there can be. */
static int64_t longest_sequence(const struct attn_problem *problem, enum check_depth depth)
{
    int64_t longest = 0;
    if (!problem->params.ragged || depth == CHECK_SHAPES)
        return problem->q.shape[2];
    for (int64_t s = 0; s < problem->num_sequences; s++) {
        const int64_t queries = attn_sequence_of(problem, s).queries;
        longest = queries > longest ? queries : longest;
    }
    return longest;
}

static attn_status check_block_shape(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_block_mask *blocks = problem->params.block_mask;
    const int64_t heads = problem->q.shape[1];
    if (blocks->size <= 0 || blocks->size % BLOCK_GRAIN != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.block_mask->size is %" PRId64 "; expected a positive multiple of %d", blocks->size,
                         BLOCK_GRAIN);
    if (blocks->heads != 0 && blocks->heads != 1 && blocks->heads != heads)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "params.block_mask->heads is %" PRId64 "; expected 1 or %" PRId64 ", the heads of q",
                         blocks->heads, heads);
    if (blocks->rows < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.block_mask->rows is %" PRId64 "; expected 0 or more",
                         blocks->rows);
    CHECK(attn_check_count("params.block_mask->offsets", sizeof(int64_t), blocks->heads, blocks->rows, 1));
    const int exact = !problem->params.ragged || depth != CHECK_SHAPES;
    const int64_t longest = longest_sequence(problem, depth), rows = divide_up(longest, blocks->size);
    if (exact ? blocks->rows != rows : blocks->rows > rows)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "params.block_mask->rows is %" PRId64 "; expected %s%" PRId64 ", blocks of %" PRId64
                         " for the %" PRId64 " queries of %s",
                         blocks->rows, exact ? "" : "at most ", rows, blocks->size, longest,
                         problem->params.ragged ? "the longest sequence" : "q");
    return ATTN_OK;
}

static attn_status check_block_offsets(const attn_block_mask *blocks, int64_t rows, int64_t columns)
{
    const int64_t *offsets = blocks->offsets;
    if (offsets[0] != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.block_mask->offsets[0] is %" PRId64 "; expected 0", offsets[0]);
    for (int64_t n = 1; n <= rows; n++)
        if (offsets[n] < offsets[n - 1] || offsets[n] - offsets[n - 1] > columns)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.block_mask->offsets[%" PRId64 "] is %" PRId64 "; expected %" PRId64
                             " and up to %" PRId64 " more, the blocks of keys",
                             n, offsets[n], offsets[n - 1], columns);
    if (offsets[rows] > 0 && !blocks->columns)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.block_mask->columns is NULL; expected %" PRId64 " columns",
                         offsets[rows]);
    return ATTN_OK;
}

/** Block row n of all heads. */
static attn_status check_block_row(const attn_block_mask *blocks, int64_t n, int64_t columns)
{
    for (int64_t i = blocks->offsets[n]; i < blocks->offsets[n + 1]; i++) {
        const int32_t column = blocks->columns[i];
        if (column < 0 || column >= columns)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.block_mask->columns[%" PRId64 "] is %" PRId32 " in block row %" PRId64
                             " of head %" PRId64 "; expected 0 to %" PRId64 ", a block of keys",
                             i, column, n % blocks->rows, n / blocks->rows, columns - 1);
        if (i > blocks->offsets[n] && column <= blocks->columns[i - 1])
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.block_mask->columns[%" PRId64 "] is %" PRId32 " in block row %" PRId64
                             " of head %" PRId64 "; expected more than the one before it, %" PRId32,
                             i, column, n % blocks->rows, n / blocks->rows, blocks->columns[i - 1]);
    }
    return ATTN_OK;
}

static attn_status check_block_mask(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_block_mask *blocks = problem->params.block_mask;
    CHECK(check_block_shape(problem, depth));
    const int64_t rows = (blocks->heads ? blocks->heads : 1) * blocks->rows;
    const int64_t columns = divide_up(problem->k.shape[2], blocks->size);
    if (!blocks->offsets)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.block_mask->offsets is NULL; expected %" PRId64 " offsets",
                         rows + 1);
    if (!(depth & CHECK_ARRAYS))
        return ATTN_OK;
    CHECK(check_block_offsets(blocks, rows, columns));
    for (int64_t n = 0; n < rows; n++)
        CHECK(check_block_row(blocks, n, columns));
    return ATTN_OK;
}

static attn_status check_segments(const struct attn_problem *problem)
{
    const attn_segments *segments = problem->params.segments;
    const struct {
        const char *name;
        const int32_t *array;
        const attn_tensor *tensor;
    } sides[] = {{"params.segments->q", segments->q, &problem->q}, {"params.segments->k", segments->k, &problem->k}};
    for (int i = 0; i < 2; i++) {
        const int64_t batch = sides[i].tensor->shape[0], tokens = sides[i].tensor->shape[2];
        CHECK(attn_check_count(sides[i].name, sizeof(int32_t), batch, tokens, 1));
        if (!sides[i].array && batch > 0 && tokens > 0)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %" PRId64 " x %" PRId64 " segments",
                             sides[i].name, batch, tokens);
    }
    return ATTN_OK;
}

static attn_status check_tree(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_tree *tree = problem->params.tree;
    const int64_t batch = problem->q.shape[0], tq = problem->q.shape[2], tk = problem->k.shape[2];
    const int64_t words = divide_up(tree->tokens, 64);
    if (tree->tokens < 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.tree->tokens is %" PRId64 "; expected 1 or more", tree->tokens);
    CHECK(attn_check_count("params.tree->ancestors", sizeof(uint64_t), batch, tq, words));
    if (batch == 0 || tq == 0)
        return ATTN_OK;
    const attn_params *p = &problem->params;
    const int alike = !p->ragged && !p->kv_len && !p->kv_start; /* all sequences have tk live keys */
    if (!tree->ancestors)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.tree->ancestors is NULL; expected %" PRId64 " x %" PRId64 " x %" PRId64 " words",
                         batch, tq, words);
    if (!p->ragged && tree->tokens > tk)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.tree->tokens is %" PRId64 "; expected 1 to %" PRId64 ", the tokens of k", tree->tokens,
                         tk);
    for (int64_t s = 0; (depth & CHECK_ARRAYS) && !alike && s < problem->num_sequences; s++) {
        const struct attn_sequence sequence = attn_sequence_of(problem, s);
        if (sequence.queries > 0 && tree->tokens > sequence.end - sequence.begin)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.tree->tokens is %" PRId64 "; expected no more than %" PRId64
                             ", the live keys of sequence %" PRId64,
                             tree->tokens, sequence.end - sequence.begin, s);
    }
    return ATTN_OK;
}

static attn_status check_mask(const struct attn_problem *problem, enum check_depth depth)
{
    const int64_t full[4] = {problem->q.shape[0], problem->q.shape[1], problem->q.shape[2], problem->k.shape[2]};
    const attn_tensor *mask = &problem->mask;
    CHECK(attn_check_tensor("params.mask", mask, depth));
    if (mask->dtype != ATTN_BOOL && mask->dtype != ATTN_F32 && mask->dtype != ATTN_BF16 && mask->dtype != ATTN_F16)
        return attn_fail(ATTN_UNSUPPORTED, "params.mask.dtype is %s; expected bool, f32, bf16 or f16",
                         attn_dtype_name(mask->dtype));
    for (int axis = 0; axis < 3; axis++)
        CHECK(attn_check_one_or("params.mask", mask, axis, full[axis]));
    if (mask->shape[3] != 1 && mask->shape[3] > full[3])
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "params.mask.shape[3] is %" PRId64 "; expected at most %" PRId64 ", the tokens of k, or 1",
                         mask->shape[3], full[3]);
    return ATTN_OK;
}

attn_status attn_check_masks(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    if (p->window)
        CHECK(check_window(problem, depth));
    if (p->block_mask && !problem->rectangle) /* the caller has checked that of the whole */
        CHECK(check_block_mask(problem, depth));
    if (p->segments)
        CHECK(check_segments(problem));
    if (p->tree)
        CHECK(check_tree(problem, depth));
    if (p->mask) {
        problem->mask = *p->mask;
        CHECK(check_mask(problem, depth));
    }
    return ATTN_OK;
}
