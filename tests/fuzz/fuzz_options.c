/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the options of attn_forward() and attn_backward(): structs, tables and lists of indices with any numbers in
 * them, in memory that is as large as their counts say and no larger. Bytes of the input become numbers one after the
 * other; behind its end all are zero. A refused call must have a sentence of one line and leave its outputs alone; one
 * that is accepted must give the same bits on three threads.
 *
 * What a caller vouches for is true here as well: pointers lead to as much memory as shapes, strides and counts say.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include <attn/attn.h>
#include <attn/backward.h>

unsigned long fuzz_accepted;

const char *const fuzz_words[] = {"\x01", "\x02", "\x03", "\x04", "\x08", "\x10", "\x11", "\x80", "\x90", "\xff", NULL};

enum { MOST_BLOCKS = 64, MOST_TOKENS = 40, MOST_COUNT = 6, TABLE_ROOM = 64 };

size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    /* B, Hq / Hkv, Hkv, Tq, Tk, dk, dv, types; then four bytes of options, and their numbers. */
    static const struct {
        uint8_t bytes[64];
    } seeds[] = {
        {{2, 2, 1, 9, 17, 8, 8, 0, 0, 0, 0, 0}},
        {{1, 1, 2, 16, 33, 16, 4, 0, 0x0f, 0x06, 0, 0x1d}},
        {{2, 1, 1, 5, 20, 8, 8, 1, 0x80, 0x02, 0x0a, 0x41}},
        {{1, 2, 1, 12, 12, 4, 4, 2, 0x40, 0x20, 0, 0x09}},
        {{2, 2, 2, 7, 16, 6, 6, 3, 0, 0x40, 0, 0x01, 0}},
    };
    if (index >= sizeof seeds / sizeof *seeds || capacity < sizeof seeds[0].bytes)
        return 0;
    memcpy(out, seeds[index].bytes, sizeof seeds[0].bytes);
    return sizeof seeds[0].bytes;
}

/* --------------------------------------------------------------- numbers -- */

struct input {
    const uint8_t *at, *end;
    bool strange; /* there are numbers that are not finite */
    void *blocks[MOST_BLOCKS];
    int num_blocks;
};

static unsigned byte(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static int64_t within(struct input *in, int64_t least, int64_t most)
{
    return least + (int64_t)byte(in) % (most - least + 1);
}

/* How many, and now and then fewer than none. */
static int64_t count_of(struct input *in, int64_t most)
{
    const unsigned b = byte(in);
    return b < 0xf8 ? (int64_t)b % (most + 1) : -1;
}

/* Mostly small ones, some negative, and the ends of types. */
static int64_t number(struct input *in)
{
    static const int64_t ends[] = {INT64_MIN,           INT64_MAX,      INT32_MIN,        INT32_MAX,
                                   INT64_C(1) << 31,    ATTN_UNLIMITED, INT64_C(1) << 32, INT64_MAX / 2,
                                   -(INT64_C(1) << 62), INT64_MAX - 1};
    const unsigned b = byte(in);
    return b < 0xf0 ? (int64_t)(b % 48) - (b % 48 > 44 ? 48 : 0) : ends[b % (sizeof ends / sizeof *ends)];
}

static float real(struct input *in)
{
    const unsigned b = byte(in);
    static const float strange[] = {0, -0.0f, 1e-40f, 3e38f, -3e38f};
    if (b >= 0xfa) {
        in->strange = true;
        return b == 0xfa ? -1 / strange[0] : b == 0xfb ? strange[0] / strange[0] : strange[b - 0xfb];
    }
    return (float)(int8_t)b / 64;
}

/* Exactly as large as it is said to be, so that a sanitizer sees a read behind it. */
static void *block(struct input *in, int64_t size)
{
    FUZZ_CHECK(in->num_blocks < MOST_BLOCKS);
    void *memory = malloc(size > 0 ? (size_t)size : 1);
    FUZZ_CHECK(memory != NULL);
    memset(memory, 0, size > 0 ? (size_t)size : 1);
    return in->blocks[in->num_blocks++] = memory;
}

static float *reals(struct input *in, int64_t count)
{
    float *list = block(in, count * (int64_t)sizeof *list);
    for (int64_t i = 0; i < count; i++)
        list[i] = real(in);
    return list;
}

static int64_t *numbers(struct input *in, int64_t count)
{
    int64_t *list = block(in, count * (int64_t)sizeof *list);
    for (int64_t i = 0; i < count; i++)
        list[i] = number(in);
    return list;
}

static int32_t *indices(struct input *in, int64_t count)
{
    int32_t *list = block(in, count * (int64_t)sizeof *list);
    for (int64_t i = 0; i < count; i++)
        list[i] = (int32_t)number(in);
    return list;
}

/* ---------------------------------------------------------------- a call -- */

struct call {
    attn_tensor q, k, v, out, lse, weights, key_sums, scores, mask, k_scale, v_scale, rope_q, rope_k, rel_k, rel_q;
    attn_relative_bias relative;
    attn_disentangled disentangled;
    attn_rope_tables rope;
    attn_window window;
    attn_block_mask blocks;
    attn_segments segments;
    attn_tree tree;
    attn_ragged ragged;
    attn_dropout dropout;
    attn_params params;
};

/* A length that is now and then another one than it should be. */
static int64_t length(struct input *in, int64_t should_be)
{
    const unsigned b = byte(in);
    return b < 0xf4 ? should_be : b < 0xf8 ? should_be + 1 : b < 0xfc ? 1 : 0;
}

/* Its elements lie side by side; some in another order of axes, and some lengths are wrong. */
static attn_tensor tensor(struct input *in, attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    const unsigned order = byte(in);
    attn_tensor x = attn_bhtd(NULL, length(in, b), length(in, h), length(in, t), length(in, c));
    x.dtype = order < 0xf8 ? dtype : (attn_dtype)(order & 15);
    if (order & 1) { /* (B, T, H, C) */
        x.stride[1] = x.shape[3];
        x.stride[2] = x.shape[1] * x.shape[3];
    }
    const int64_t count = x.shape[0] * x.shape[1] * x.shape[2] * x.shape[3];
    x.data = block(in, count * 4); /* of the widest type */
    float value = real(in);
    for (int64_t i = 0; i < count; i++, value = value * -0.75f + 0.125f)
        if (x.dtype == ATTN_F32)
            ((float *)x.data)[i] = value;
        else
            ((uint8_t *)x.data)[i] = (uint8_t)(i * 37);
    return x;
}

static void set_scores(struct input *in, struct call *c, unsigned options)
{
    attn_params *p = &c->params;
    const int64_t heads = c->q.shape[1];
    if (options & 1) {
        p->scale = real(in);
        p->temperature = real(in);
        p->softcap = real(in);
    }
    if (options & 2)
        p->head_scale = reals(in, heads);
    if (options & 4)
        p->sinks = reals(in, heads);
    if (options & 8)
        p->alibi_slopes = reals(in, heads);
    if (options & 16) {
        const int64_t buckets = count_of(in, 12);
        c->relative = (attn_relative_bias){(attn_buckets)within(in, 0, 3), buckets, number(in),
                                           reals(in, heads * (buckets > 0 ? buckets : 0))};
        p->relative_bias = &c->relative;
    }
    if (options & 32) {
        const int64_t span = count_of(in, 8), rows = 2 * (span > 0 ? span : 0);
        c->rel_k = tensor(in, ATTN_F32, 1, heads, rows, c->q.shape[3]);
        c->rel_q = tensor(in, ATTN_F32, 1, 1, rows, c->q.shape[3]);
        c->disentangled = (attn_disentangled){span, byte(in) & 1 ? NULL : &c->rel_k, byte(in) & 1 ? NULL : &c->rel_q,
                                              (attn_delta)within(in, 0, 2)};
        p->disentangled = &c->disentangled;
    }
    if (options & 64) {
        const int64_t channels = c->q.shape[3] / 2 * 2;
        c->rope_q = tensor(in, ATTN_F32, 1, 1, c->q.shape[2], channels);
        c->rope_k = tensor(in, ATTN_F32, 1, 1, c->k.shape[2], channels);
        c->rope = (attn_rope_tables){(attn_rope_layout)within(in, 0, 2), &c->rope_q, &c->rope_k};
        p->rope = &c->rope;
    }
    if (options & 128) {
        c->dropout = (attn_dropout){real(in), byte(in), byte(in)};
        p->dropout = &c->dropout;
    }
}

/* Lists have an entry for each sequence: of the batch, or of the ragged one. */
static void set_positions(struct input *in, struct call *c, unsigned options)
{
    attn_params *p = &c->params;
    int64_t sequences = c->q.shape[0];
    if (options & 1) {
        const int64_t count = count_of(in, MOST_COUNT), entries = count < 0 ? 0 : count + 1;
        c->ragged = (attn_ragged){count, numbers(in, entries), numbers(in, entries)};
        if (byte(in) & 1)
            c->ragged.cu_seqlens_k = NULL;
        p->ragged = &c->ragged;
        sequences = count > 0 ? count : 0;
    }
    p->causal = (attn_causal)within(in, 0, 4);
    if (options & 2)
        p->query_offset = numbers(in, sequences);
    if (options & 4)
        p->kv_len = numbers(in, sequences);
    if (options & 8)
        p->kv_start = numbers(in, sequences);
    if (options & 16)
        p->prefix_len = numbers(in, sequences);
    if (options & 32) {
        const int64_t count = count_of(in, MOST_COUNT);
        c->window.left = number(in);
        c->window.right = number(in);
        c->window.first_tokens = number(in);
        c->window.num_global = count;
        c->window.global = byte(in) & 1 ? NULL : numbers(in, count);
        p->window = &c->window;
    }
    if (options & 64) { /* pages: k and v are pools */
        const int64_t stride = count_of(in, MOST_COUNT);
        p->block_table_stride = stride;
        p->page_size = byte(in) & 1 ? number(in) : c->k.shape[2];
        p->block_table = indices(in, sequences * (stride > 0 ? stride : 0));
    }
}

/* Keys of a sequence: with pages as many as its row of the table has room for. */
static int64_t keys_of(const struct call *c)
{
    const attn_params *p = &c->params;
    const int64_t pages = p->block_table_stride > 0 ? p->block_table_stride : 0;
    return c->k.shape[2] * (p->block_table ? pages : 1);
}

static void set_patterns(struct input *in, struct call *c, unsigned options)
{
    attn_params *p = &c->params;
    const int64_t batch = c->q.shape[0], queries = c->q.shape[2], keys = keys_of(c);
    if (options & 1) {
        const int64_t size = byte(in) & 1 ? number(in) : 16, heads = count_of(in, 4), rows = count_of(in, 3);
        const int64_t lists = heads > 0 && rows > 0 ? heads * rows : rows > 0 ? rows : 0;
        int64_t *offsets = numbers(in, lists + 1), columns = offsets[lists];
        columns = columns < 0 ? 0 : columns > TABLE_ROOM ? TABLE_ROOM : columns;
        offsets[lists] = offsets[lists] > TABLE_ROOM ? TABLE_ROOM : offsets[lists];
        c->blocks = (attn_block_mask){size, heads, rows, offsets, indices(in, columns)};
        p->block_mask = &c->blocks;
    }
    if (options & 2) {
        c->segments = (attn_segments){indices(in, batch * queries), indices(in, batch * keys)};
        p->segments = &c->segments;
    }
    if (options & 4) {
        const int64_t tokens = count_of(in, 70), words = tokens > 0 ? (tokens + 63) / 64 : 0;
        uint64_t *ancestors = block(in, batch * queries * words * (int64_t)sizeof *ancestors);
        for (int64_t i = 0; i < batch * queries * words; i++)
            ancestors[i] = byte(in) | (uint64_t)byte(in) << 60;
        c->tree = (attn_tree){tokens, ancestors};
        p->tree = &c->tree;
    }
    if (options & 8) {
        static const attn_dtype types[] = {ATTN_BOOL, ATTN_F32, ATTN_BF16, ATTN_F16};
        c->mask = tensor(in, types[byte(in) & 3], byte(in) & 1 ? 1 : batch, byte(in) & 1 ? 1 : c->q.shape[1],
                         byte(in) & 1 ? 1 : queries, byte(in) & 1 ? within(in, 0, 20) : keys);
        p->mask = &c->mask;
    }
}

static void set_outputs(struct input *in, struct call *c, unsigned options)
{
    attn_params *p = &c->params;
    const int64_t batch = c->q.shape[0], heads = c->q.shape[1], queries = c->q.shape[2], keys = keys_of(c);
    int64_t rows = queries;
    if (options & 1) {
        c->lse = tensor(in, ATTN_F32, batch, heads, queries, 1);
        p->lse = &c->lse;
    }
    if (options & 2) {
        p->num_weight_rows = count_of(in, MOST_COUNT);
        p->weight_rows = numbers(in, p->num_weight_rows);
        rows = p->num_weight_rows < 0 ? 0 : p->num_weight_rows;
    }
    if (options & 4) {
        c->weights = tensor(in, ATTN_F32, batch, heads, rows, keys);
        p->weights = &c->weights;
    }
    if (options & 8) {
        c->key_sums = tensor(in, ATTN_F32, batch, heads, 1, keys);
        p->key_sums = &c->key_sums;
    }
    if (options & 16) {
        c->scores = tensor(in, ATTN_F32, batch, heads, rows, keys);
        p->scores = &c->scores;
        p->score_stage = (attn_score_stage)within(in, 0, 4);
    }
    if (options & 32) {
        const int64_t groups = c->k.dtype == ATTN_I4 ? (c->k.shape[3] + 31) / 32 : 1;
        c->k_scale = tensor(in, ATTN_F32, c->k.shape[0], c->k.shape[1], c->k.shape[2], groups);
        c->v_scale = tensor(in, ATTN_F32, c->v.shape[0], c->v.shape[1], c->v.shape[2], groups);
        p->k_scale = &c->k_scale;
        p->v_scale = &c->v_scale;
    }
    if (options & 64) {
        p->qk = (attn_qk)within(in, 0, 2);
        p->inputs = (attn_inputs)within(in, 0, 2);
        p->sums = (attn_sums)within(in, 0, 2);
    }
    if (options & 128)
        p->num_threads = (int)number(in);
}

static void read_call(struct input *in, struct call *c)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_F32, ATTN_F32, ATTN_F32, ATTN_F32, ATTN_F32};
    static const attn_dtype narrow[] = {ATTN_F32, ATTN_BF16,    ATTN_F16, ATTN_F32,
                                        ATTN_I8,  ATTN_F8_E4M3, ATTN_I4,  ATTN_U8};
    const int64_t batch = within(in, 0, 3), group = within(in, 0, 3), heads = within(in, 0, 3);
    const int64_t queries = within(in, 0, MOST_TOKENS), keys = within(in, 0, MOST_TOKENS);
    const int64_t dk = within(in, 0, 20), dv = within(in, 0, 20);
    const unsigned type = byte(in) & 7;
    unsigned options[4];
    for (int i = 0; i < 4; i++)
        options[i] = byte(in);
    memset(c, 0, sizeof *c);
    c->q = tensor(in, types[type], batch, group * heads, queries, dk);
    c->k = tensor(in, narrow[type], batch, heads, keys, dk);
    c->v = tensor(in, narrow[type], batch, heads, keys, dv);
    c->out = tensor(in, types[type], batch, group * heads, queries, dv);
    c->params = attn_params_default();
    set_scores(in, c, options[0]);
    set_positions(in, c, options[1]);
    set_patterns(in, c, options[2]);
    set_outputs(in, c, options[3]);
}

/* --------------------------------------------------------------- outputs -- */

enum { OUTPUTS = 5 };

static void list_outputs(const struct call *c, const attn_tensor *list[OUTPUTS])
{
    const attn_params *p = &c->params;
    list[0] = &c->out;
    list[1] = p->lse;
    list[2] = p->weights;
    list[3] = p->key_sums;
    list[4] = p->scores;
}

static size_t bytes_of(const attn_tensor *t)
{
    return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * 4);
}

static void keep(struct input *in, const struct call *c, void *copies[OUTPUTS])
{
    const attn_tensor *list[OUTPUTS];
    list_outputs(c, list);
    for (int i = 0; i < OUTPUTS; i++)
        if (list[i]) {
            copies[i] = block(in, (int64_t)bytes_of(list[i]));
            memcpy(copies[i], list[i]->data, bytes_of(list[i]));
        }
}

static bool same(const struct call *c, void *const copies[OUTPUTS])
{
    const attn_tensor *list[OUTPUTS];
    list_outputs(c, list);
    for (int i = 0; i < OUTPUTS; i++)
        if (list[i] && memcmp(copies[i], list[i]->data, bytes_of(list[i])) != 0)
            return false;
    return true;
}

static void check_refused(const struct call *c, void *const before[OUTPUTS])
{
    const char *sentence = attn_last_error();
    FUZZ_CHECK(sentence[0] != '\0' && strchr(sentence, '\n') == NULL);
    FUZZ_CHECK(same(c, before));
}

/* Gradients of q, k and v, of whatever out and its gradient hold. */
static void run_backward(struct input *in, const struct call *c)
{
    attn_gradients g = attn_gradients_default();
    const attn_tensor d_out = tensor(in, ATTN_F32, c->out.shape[0], c->out.shape[1], c->out.shape[2], c->out.shape[3]);
    const attn_tensor d_q = tensor(in, ATTN_F32, c->q.shape[0], c->q.shape[1], c->q.shape[2], c->q.shape[3]);
    const attn_tensor d_k = tensor(in, ATTN_F32, c->k.shape[0], c->k.shape[1], c->k.shape[2], c->k.shape[3]);
    const attn_tensor d_v = tensor(in, ATTN_F32, c->v.shape[0], c->v.shape[1], c->v.shape[2], c->v.shape[3]);
    g.out = &d_out, g.q = &d_q, g.k = &d_k, g.v = &d_v;
    if (attn_backward(&c->q, &c->k, &c->v, &c->out, &c->params, &g) != ATTN_OK)
        FUZZ_CHECK(attn_last_error()[0] != '\0' && strchr(attn_last_error(), '\n') == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {.at = data, .end = data + size};
    struct call c;
    void *before[OUTPUTS] = {NULL}, *first[OUTPUTS] = {NULL};
    read_call(&in, &c);
    keep(&in, &c, before);
    if (attn_forward(&c.q, &c.k, &c.v, &c.out, &c.params) != ATTN_OK) {
        check_refused(&c, before);
    } else {
        fuzz_accepted++;
        keep(&in, &c, first);
        c.params.num_threads = 3;
        FUZZ_CHECK(attn_forward(&c.q, &c.k, &c.v, &c.out, &c.params) == ATTN_OK);
        FUZZ_CHECK(in.strange || same(&c, first)); /* bits of a NaN are not promised */
        if (c.params.lse)
            run_backward(&in, &c);
    }
    for (int i = 0; i < in.num_blocks; i++)
        free(in.blocks[i]);
    return 0;
}
