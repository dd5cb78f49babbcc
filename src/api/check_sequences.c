/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the sequences: where each one begins and ends, where its queries
 * stand, and which of its keys are live.
 */
#include "api/check_internal.h"

#include "api/error.h"

#include <inttypes.h>

static attn_status check_offsets(const char *name, const int64_t *offsets, int64_t sequences, int64_t tokens)
{
    if (offsets[0] != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.ragged->%s[0] is %" PRId64 "; expected 0", name, offsets[0]);
    for (int64_t s = 1; s <= sequences; s++)
        if (offsets[s] < offsets[s - 1] || offsets[s] > tokens)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.ragged->%s[%" PRId64 "] is %" PRId64 "; expected %" PRId64 " to %" PRId64
                             ": offsets do not fall, and end at the tokens there are",
                             name, s, offsets[s], offsets[s - 1], tokens);
    return ATTN_OK;
}

static attn_status check_ragged(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_ragged *ragged = problem->params.ragged;
    const int64_t *const arrays[] = {ragged->cu_seqlens_q, ragged->cu_seqlens_k};
    static const char *const names[] = {"cu_seqlens_q", "cu_seqlens_k"};
    const int wanted = problem->params.block_table ? 1 : 2; /* keys in pages have none */
    CHECK(attn_check_axis("q", &problem->q, 0, 1, "as a ragged batch has its sequences along the tokens"));
    if (ragged->num_sequences < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.ragged->num_sequences is %" PRId64 "; expected 0 or more",
                         ragged->num_sequences);
    /* The sequences as a padded batch: what is counted for each of them, heads and queries, can be counted. */
    CHECK(attn_check_count("params.ragged->num_sequences with the heads and tokens of q", sizeof(int64_t),
                           ragged->num_sequences, problem->q.shape[1], problem->q.shape[2]));
    for (int i = 0; i < wanted; i++)
        if (!arrays[i])
            return attn_fail(ATTN_INVALID_ARGUMENT, "params.ragged->%s is NULL; expected %" PRId64 " offsets", names[i],
                             ragged->num_sequences + 1);
    if (!(depth & CHECK_ARRAYS))
        return ATTN_OK;
    CHECK(check_offsets(names[0], arrays[0], ragged->num_sequences, problem->q.shape[2]));
    return wanted == 1 ? ATTN_OK : check_offsets(names[1], arrays[1], ragged->num_sequences, problem->k.shape[2]);
}

/** That query_offset and prefix_len go with the causality. */
static attn_status check_causality(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    if (p->query_offset && p->causal != ATTN_CAUSAL_OFFSET && p->causal != ATTN_CAUSAL_NONE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.query_offset is set; expected NULL unless causal is "
                                                "ATTN_CAUSAL_OFFSET or ATTN_CAUSAL_NONE");
    if (p->prefix_len && p->causal == ATTN_CAUSAL_NONE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.prefix_len is set; expected NULL when causal is "
                                                "ATTN_CAUSAL_NONE, which hides nothing that a prefix could show");
    if (depth != CHECK_SHAPES && !p->query_offset && p->causal == ATTN_CAUSAL_OFFSET && problem->num_sequences > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.query_offset is NULL; expected %" PRId64 " offsets for ATTN_CAUSAL_OFFSET",
                         problem->num_sequences);
    return ATTN_OK;
}

static attn_status check_lengths(const struct attn_problem *problem, int64_t s)
{
    const attn_params *p = &problem->params;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    if (sequence.end < 0 || sequence.end > sequence.keys)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.kv_len[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ", %s", s, sequence.end,
                         sequence.keys, p->ragged ? "the keys of that sequence" : "the tokens of k");
    if (sequence.begin < 0 || sequence.begin > sequence.end)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.kv_start[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64
                         ", the end of the live keys",
                         s, sequence.begin, sequence.end);
    if (p->prefix_len && p->prefix_len[s] < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.prefix_len[%" PRId64 "] is %" PRId64 "; expected 0 or more", s,
                         p->prefix_len[s]);
    return ATTN_OK;
}

attn_status attn_check_sequences(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    problem->num_sequences = problem->q.shape[0];
    if (p->ragged) {
        CHECK(check_ragged(problem, depth));
        problem->num_sequences = p->ragged->num_sequences;
    }
    CHECK(check_causality(problem, depth));
    const int given = p->kv_len || p->kv_start || p->prefix_len; /* else every length is right */
    for (int64_t s = 0; (depth & CHECK_ARRAYS) && given && s < problem->num_sequences; s++)
        CHECK(check_lengths(problem, s));
    return ATTN_OK;
}
