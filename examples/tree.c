/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two shapes of causality beyond the plain one: a prefix, and a tree.
 *
 * A prefix language model reads its prompt in both directions and writes its
 * answer causally. Without prefix_len that takes two calls, with which the
 * program compares.
 *
 * In speculative decoding a small model drafts several continuations, which
 * share their first tokens and so form a tree. The large model verifies all of
 * them in one call, in which a drafted token sees the past, its ancestors and
 * itself (Miao et al. 2023, "SpecInfer"). The program does that for this tree
 *
 *     past ... - 0 - 1 - 3
 *                |    `- 4
 *                 `- 2 - 5
 *
 * and compares with an ordinary causal call for each of its three branches.
 */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, TOKENS = 90, HEAD_DIM = 32, PROMPT = 37 };
enum { DRAFTED = 6, PAST = TOKENS - DRAFTED, DEPTH = 3, BRANCHES = 3 };
enum { HEAD = TOKENS * HEAD_DIM };

static const int parent[DRAFTED] = {-1, 0, 0, 1, 1, 2};
static const int branch[BRANCHES][DEPTH] = {{0, 1, 3}, {0, 1, 4}, {0, 2, 5}};

static float q_data[HEADS * HEAD], out_data[HEADS * HEAD], expected[HEADS * HEAD];
static float k_data[KV_HEADS * HEAD], v_data[KV_HEADS * HEAD];

/* Tokens from first on of an array with HEAD floats a head. */
static attn_tensor tokens(float *data, int heads, int first, int num)
{
    return (attn_tensor){data + first * HEAD_DIM, ATTN_F32, {1, heads, num, HEAD_DIM}, {0, HEAD, HEAD_DIM, 1}};
}

static int prefix(void)
{
    const int64_t prefix_len[1] = {PROMPT};
    attn_tensor q = tokens(q_data, HEADS, 0, TOKENS), out = tokens(out_data, HEADS, 0, TOKENS);
    attn_tensor k = tokens(k_data, KV_HEADS, 0, TOKENS), v = tokens(v_data, KV_HEADS, 0, TOKENS);
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.prefix_len = prefix_len;
    if (!succeeded("prefix", attn_forward(&q, &k, &v, &out, &params)))
        return 0;

    /* The prompt sees itself in both directions ... */
    attn_tensor prompt = tokens(q_data, HEADS, 0, PROMPT), prompt_out = tokens(expected, HEADS, 0, PROMPT);
    attn_tensor prompt_k = tokens(k_data, KV_HEADS, 0, PROMPT), prompt_v = tokens(v_data, KV_HEADS, 0, PROMPT);
    /* ... and each token of the answer what is before it. */
    attn_tensor answer = tokens(q_data, HEADS, PROMPT, TOKENS - PROMPT);
    attn_tensor answer_out = tokens(expected, HEADS, PROMPT, TOKENS - PROMPT);
    attn_params causal = attn_params_default();
    causal.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    return succeeded("prompt", attn_forward(&prompt, &prompt_k, &prompt_v, &prompt_out, NULL)) &&
           succeeded("answer", attn_forward(&answer, &k, &v, &answer_out, &causal)) &&
           alike("prefix, against two calls", out_data, expected, sizeof out_data / sizeof *out_data, allowed(4));
}

/* Queries, keys or values of one branch as if nothing else had been drafted: the past, where it counts, and its tokens.
 */
static void gather(float *to, const float *from, int heads, int past, const int tokens_of[DEPTH])
{
    for (int h = 0; h < heads; h++) {
        float *head = to + h * (past + DEPTH) * HEAD_DIM;
        memcpy(head, from + h * HEAD, (size_t)(past * HEAD_DIM) * sizeof *to);
        for (int t = 0; t < DEPTH; t++)
            memcpy(head + (past + t) * HEAD_DIM, from + h * HEAD + (PAST + tokens_of[t]) * HEAD_DIM,
                   HEAD_DIM * sizeof *to);
    }
}

static int tree(void)
{
    uint64_t ancestors[DRAFTED]; /* one word of 64 bits is enough for six tokens */
    for (int t = 0; t < DRAFTED; t++)
        ancestors[t] = UINT64_C(1) << t | (parent[t] < 0 ? 0 : ancestors[parent[t]]);
    const attn_tree drafted = {.tokens = DRAFTED, .ancestors = ancestors};
    attn_tensor q = tokens(q_data, HEADS, PAST, DRAFTED), out = tokens(out_data, HEADS, PAST, DRAFTED);
    attn_tensor k = tokens(k_data, KV_HEADS, 0, TOKENS), v = tokens(v_data, KV_HEADS, 0, TOKENS);
    attn_params params = attn_params_default(); /* the tree is all the causality there is: the past is seen by all */
    params.tree = &drafted;
    if (!succeeded("tree", attn_forward(&q, &k, &v, &out, &params)))
        return 0;

    enum { QUERIES = HEADS * DEPTH * HEAD_DIM, KEYS = KV_HEADS * (PAST + DEPTH) * HEAD_DIM };
    static float branch_q[QUERIES], branch_k[KEYS], branch_v[KEYS], branch_out[QUERIES], tree_out[QUERIES];
    attn_tensor bq = attn_bhtd(branch_q, 1, HEADS, DEPTH, HEAD_DIM);
    attn_tensor bk = attn_bhtd(branch_k, 1, KV_HEADS, PAST + DEPTH, HEAD_DIM);
    attn_tensor bv = attn_bhtd(branch_v, 1, KV_HEADS, PAST + DEPTH, HEAD_DIM);
    attn_tensor bout = attn_bhtd(branch_out, 1, HEADS, DEPTH, HEAD_DIM);
    attn_params causal = attn_params_default();
    causal.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    for (int b = 0; b < BRANCHES; b++) {
        gather(branch_q, q_data, HEADS, 0, branch[b]);
        gather(branch_k, k_data, KV_HEADS, PAST, branch[b]);
        gather(branch_v, v_data, KV_HEADS, PAST, branch[b]);
        gather(tree_out, out_data, HEADS, 0, branch[b]);
        if (!succeeded("branch", attn_forward(&bq, &bk, &bv, &bout, &causal)) ||
            !alike("tree, against a branch", tree_out, branch_out, QUERIES, allowed(4)))
            return 0;
    }
    return 1;
}

int main(void)
{
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    return prefix() && tree() ? EXIT_SUCCESS : EXIT_FAILURE;
}
