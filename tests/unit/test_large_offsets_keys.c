/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences of more than 2^32 keys, of which the live ones are the last: everything
 * that counts keys, or has a number for each of them. A call must give the bits of
 * one on the live keys alone, with positions, masks, labels, lists of blocks and
 * tables moved as they are. Keys, values and masks lie in sparse mappings; nobody
 * looks at what is in front of the live keys. Dropout is left out, as it draws by a
 * key's place, and so are outputs with a number for each key.
 */
#include "fixture.h"
#include "arguments.h"
#include "dtype.h"
#include "far.h"
#include "guard.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HQ = 4, TQ = 20, TK = 100, D = 2, PAIRS = 1, BLOCK = 16, ROWS = (TQ + BLOCK - 1) / BLOCK };

/** Keys in front of the live ones: a multiple of BLOCK. */
#define AHEAD ((((int64_t)1 << 32) + 4096) / BLOCK * BLOCK)

enum option {
    PLAIN,
    CAUSAL,
    WINDOW,
    SLOPES,
    BIAS,
    DISENTANGLED,
    BLOCKS,
    SEGMENTS,
    TREE,
    PREFIX,
    ROTATIONS,
    BOOLEAN_MASK,
    ADDITIVE_MASK,
    CALLBACK,
    INT8,
    RAGGED,
    OPTIONS
};

static const char *const names[OPTIONS] = {"plain",  "causal",   "window", "slopes", "bias",      "disentangled",
                                           "blocks", "segments", "tree",   "prefix", "rotations", "boolean mask",
                                           "mask",   "callback", "int8",   "ragged"};

/** Mappings that a call reads, and the call's options. */
struct call {
    int num_maps;
    void *maps[8];
    size_t sizes[8];
    attn_tensor q, k, v, out, mask, rope_q, rope_k, rel_k, rel_q;
    attn_params params;
    int64_t kv_start[2], kv_len[2], query_offset[2], prefix_len, global[2], cu_seqlens_q[3], cu_seqlens_k[3];
    attn_window window;
    attn_relative_bias bias;
    attn_disentangled terms;
    attn_block_mask blocks;
    int64_t offsets[ROWS + 1];
    int32_t columns[2 * ROWS];
    attn_segments segments;
    attn_tree tree;
    attn_rope_tables rope;
    attn_ragged ragged;
    int64_t ahead;
};

static float out_data[HQ * TQ * D], q_data[HQ * TQ * D], slopes[HQ], bias_table[HQ * 9], rel_data[2][16 * D];
static float rope_data[TQ * 2 * PAIRS];
static int32_t labels[TQ];
static uint64_t ancestors[TQ];

static void fill_data(void)
{
    struct rng rng = rng_for_case(77, 1);
    rng_fill_normal(&rng, q_data, sizeof q_data / sizeof(float));
    rng_fill_normal(&rng, slopes, HQ);
    rng_fill_normal(&rng, bias_table, sizeof bias_table / sizeof(float));
    rng_fill_normal(&rng, rel_data[0], sizeof rel_data / sizeof(float));
    rng_fill_normal(&rng, rope_data, sizeof rope_data / sizeof(float));
    for (int i = 0; i < TQ; i++) {
        labels[i] = i / 5;
        ancestors[i] = (uint64_t)(0x5a3 + i);
    }
}

/** Zeros in front of TK rows of random bytes of a tensor's axis of keys, in each of lines. */
static void *map_rows(struct call *c, int64_t lines, size_t row, void (*draw)(struct rng *rng, void *to, size_t size))
{
    const size_t line = (size_t)(c->ahead + TK) * row, size = (size_t)lines * line;
    struct rng rng = rng_for_case(78, (uint64_t)c->num_maps);
    char *const map = far_map(size);
    c->maps[c->num_maps] = map;
    c->sizes[c->num_maps++] = size;
    for (int64_t n = 0; n < lines; n++)
        draw(&rng, map + (size_t)n * line + (size_t)c->ahead * row, TK * row);
    return map;
}

static void draw_floats(struct rng *rng, void *to, size_t size)
{
    rng_fill_normal(rng, to, (int64_t)(size / sizeof(float)));
}

static void draw_halves(struct rng *rng, void *to, size_t size)
{
    for (size_t i = 0; i < size / sizeof(uint16_t); i++)
        dtype_store(ATTN_BF16, to, (int64_t)i, rng_normal(rng));
}

static void draw_labels(struct rng *rng, void *to, size_t size)
{
    for (size_t i = 0; i < size / sizeof(int32_t); i++)
        ((int32_t *)to)[i] = (int32_t)rng_range(rng, 0, 4);
}

static void draw_booleans(struct rng *rng, void *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)to)[i] = (uint8_t)rng_percent(rng, 70);
}

/** Adds to each score a number that follows from its key's place among the live ones. */
static void add_places(const attn_score_tile *tile, void *user)
{
    const struct call *const c = user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            tile->scores[j * tile->key_stride + i] += (float)((tile->first_key + j - c->ahead) % 7) / 4;
}

static void set_masks(struct call *c, enum option option, int64_t tq)
{
    attn_params *const p = &c->params;
    if (option == WINDOW) {
        c->global[0] = c->ahead + 1, c->global[1] = c->ahead + TK / 2;
        c->window = (attn_window){9, 2, 3, c->global, 2};
        p->window = &c->window;
        p->causal = ATTN_CAUSAL_OFFSET;
    }
    if (option == BLOCKS) {
        c->blocks = (attn_block_mask){BLOCK, 1, (tq + BLOCK - 1) / BLOCK, c->offsets, c->columns};
        for (int n = 0; n < c->blocks.rows; n++) {
            c->columns[2 * n] = (int32_t)(c->ahead / BLOCK) + n;
            c->columns[2 * n + 1] = (int32_t)(c->ahead / BLOCK) + n + 3;
            c->offsets[n + 1] = 2 * (n + 1);
        }
        p->block_mask = &c->blocks;
    }
    if (option == SEGMENTS) {
        c->segments = (attn_segments){labels, map_rows(c, 1, sizeof(int32_t), draw_labels)};
        p->segments = &c->segments;
    }
    if (option == TREE) {
        c->tree = (attn_tree){11, ancestors};
        p->tree = &c->tree;
    }
    if (option == PREFIX) {
        c->prefix_len = 70;
        p->prefix_len = &c->prefix_len;
        p->causal = ATTN_CAUSAL_OFFSET;
    }
    if (option == BOOLEAN_MASK || option == ADDITIVE_MASK) {
        const int boolean = option == BOOLEAN_MASK;
        const int64_t lines = tq == TQ ? 1 : tq;
        c->mask = attn_bhtd(map_rows(c, lines, boolean ? 1 : sizeof(uint16_t), boolean ? draw_booleans : draw_halves),
                            1, 1, lines, c->ahead + TK);
        c->mask.dtype = boolean ? ATTN_BOOL : ATTN_BF16;
        p->mask = &c->mask;
    }
}

static void set_scores(struct call *c, enum option option, int64_t tq)
{
    attn_params *const p = &c->params;
    if (option == SLOPES)
        p->alibi_slopes = slopes;
    if (option == BIAS) {
        c->bias = (attn_relative_bias){ATTN_BUCKETS_CLIPPED, 9, 4, bias_table};
        p->relative_bias = &c->bias;
    }
    if (option == DISENTANGLED) {
        c->rel_k = attn_bhtd(rel_data[0], 1, 1, 16, D);
        c->rel_q = attn_bhtd(rel_data[1], 1, 1, 16, D);
        c->terms = (attn_disentangled){.span = 8, .rel_k = &c->rel_k, .rel_q = &c->rel_q};
        p->disentangled = &c->terms;
    }
    if (option == ROTATIONS) {
        c->rope_q = attn_bhtd(rope_data, 1, 1, tq, 2 * PAIRS);
        c->rope_k = attn_bhtd(map_rows(c, 1, 2 * PAIRS * sizeof(float), draw_floats), 1, 1, c->ahead + TK, 2 * PAIRS);
        c->rope = (attn_rope_tables){ATTN_ROPE_HALF_SPLIT, &c->rope_q, &c->rope_k};
        p->rope = &c->rope;
    }
    if (option == CALLBACK) {
        p->callback = add_places;
        p->callback_user = c;
    }
    if (option == INT8)
        p->qk = ATTN_QK_INT8;
}

/** The call with so many keys in front of the live ones; with RAGGED they are those of a sequence without queries. */
static void make_call(struct call *c, enum option option, const char *isa, int64_t tq, int64_t ahead)
{
    memset(c, 0, sizeof *c);
    c->ahead = ahead;
    c->q = attn_bthd(q_data, 1, tq, HQ, D);
    c->out = attn_bthd(out_data, 1, tq, HQ, D);
    c->k = attn_bthd(map_rows(c, 1, D * sizeof(uint16_t), draw_halves), 1, ahead + TK, 1, D);
    c->v = attn_bthd(map_rows(c, 1, D * sizeof(uint16_t), draw_halves), 1, ahead + TK, 1, D);
    c->k.dtype = c->v.dtype = ATTN_BF16;
    c->params = attn_params_default();
    c->params.isa = isa;
    if (option == RAGGED) {
        c->cu_seqlens_q[2] = tq;
        c->cu_seqlens_k[1] = ahead, c->cu_seqlens_k[2] = ahead + TK;
        c->ragged = (attn_ragged){2, c->cu_seqlens_q, c->cu_seqlens_k};
        c->params.ragged = &c->ragged;
        c->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        return;
    }
    c->kv_start[0] = ahead + 1;
    c->kv_len[0] = ahead + TK - 2;
    c->params.kv_start = c->kv_start;
    c->params.kv_len = c->kv_len;
    if (option == CAUSAL) {
        c->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    } else {
        c->query_offset[0] = ahead + TK - 40;
        c->params.query_offset = c->query_offset;
    }
    set_masks(c, option, tq);
    set_scores(c, option, tq);
}

static attn_status run(struct call *c)
{
    memset(out_data, CANARY, sizeof out_data);
    const attn_status status = attn_forward(&c->q, &c->k, &c->v, &c->out, &c->params);
    for (int n = 0; n < c->num_maps; n++)
        far_unmap(c->maps[n], c->sizes[n]);
    return status;
}

static int check_option(enum option option, const char *isa, int64_t tq)
{
    static struct call c;
    static float expected[HQ * TQ * D];
    make_call(&c, option, isa, tq, 0);
    const attn_status status = run(&c);
    if (option == INT8 && status == ATTN_UNSUPPORTED)
        return 0;
    assert_int_equal(status, ATTN_OK);
    memcpy(expected, out_data, sizeof expected);
    snprintf(guard_case_line, sizeof guard_case_line, "%s, %d queries, %s", names[option], (int)tq, isa);
    make_call(&c, option, isa, tq, AHEAD);
    if (run(&c) != ATTN_OK) {
        print_message("%s: %s\n", guard_case_line, attn_last_error());
        return 1;
    }
    if (memcmp(out_data, expected, sizeof expected) == 0)
        return 0;
    print_message("%s: out differs from that of the live keys alone\n", guard_case_line);
    return 1;
}

static void test_many_keys(void **state)
{
    (void)state;
    int wrong = 0;
    fill_data();
    for (int n = 0; attn_isa_name(n); n++)
        for (int option = PLAIN; option < OPTIONS && attn_isa_supported(attn_isa_name(n)); option++)
            for (int64_t tq = 3; tq <= TQ; tq += TQ - 3)
                if (!surroundings_are_slow() || (option + n) % 4 == tq % 2)
                    wrong += check_option((enum option)option, attn_isa_name(n), tq);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
