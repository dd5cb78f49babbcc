/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the options of a form, with fixed seeds. All sizes follow from the
 * case, so that a form can be measured at any length.
 *
 * Nothing here calls what the library offers to build such arrays: the bench
 * is to find their mistakes too.
 */
#include "forms.h"
#include "numbers.h"

#include <math.h>
#include <stdlib.h>

/* Streams of random numbers; 1 to 4 are those of q, k, v and the mask. */
enum { SEED_BLOCKS = 5, SEED_TREE, SEED_BIAS, SEED_SINKS, SEED_REL_K, SEED_REL_Q, SEED_RAGGED, SEED_DROPOUT };

#define WINDOW_LEFT      255 /* with the query itself a power of two of keys */
#define FIRST_TOKENS     4
#define LONGFORMER_SIDE  256
#define GLOBAL_TOKENS    8
#define LIVE_BLOCKS      0.1
#define DOCUMENTS        16
#define SHORTEST         16 /* sequence of a ragged batch */
#define T5_BUCKETS       32
#define T5_DISTANCE      128
#define SPAN             256
#define SOFTCAP          30.0f
#define DROPPED          0.1f
#define ROPE_BASE        10000.0
#define CALLBACK_HALFWAY 64

#define MAX_ARRAYS       2

/** What params points to. */
struct bench_form_data {
    attn_window window;
    attn_block_mask blocks;
    attn_segments segments;
    attn_tree tree;
    attn_relative_bias bias;
    attn_disentangled disentangled;
    attn_rope_tables rope;
    attn_ragged ragged;
    attn_dropout dropout;
    attn_tensor tables[MAX_ARRAYS];
    void *arrays[MAX_ARRAYS];
    int num_arrays;
};

/* An array that lives as long as the form, or NULL. */
static void *keep(struct bench_form_data *f, int64_t count, size_t size)
{
    void *array = malloc((size_t)(count > 0 ? count : 1) * size);
    f->arrays[f->num_arrays++] = array;
    return array;
}

static float *keep_normal(struct bench_form_data *f, int64_t count, uint64_t seed)
{
    float *x = keep(f, count, sizeof *x);
    if (x != NULL)
        bench_fill_normal(x, count, seed);
    return x;
}

/* Causal windows spare the first tokens, as models that stream have them; others have the query in the middle. */
static int make_window(struct bench_problem *p, struct bench_form_data *f)
{
    const int64_t others = p->bcase->size > 0 ? p->bcase->size - 1 : WINDOW_LEFT;
    const bool causal = p->bcase->causal != ATTN_CAUSAL_NONE;
    f->window = (attn_window){.left = causal ? others : others / 2,
                              .right = causal ? 0 : others - others / 2,
                              .first_tokens = causal ? FIRST_TOKENS : 0};
    p->params.window = &f->window;
    return 0;
}

/* As Longformer has it. The global tokens are spread over the sequence, at no multiple of a tile's size but the first.
 */
static int make_window_global(struct bench_problem *p, struct bench_form_data *f)
{
    int64_t *global = keep(f, GLOBAL_TOKENS, sizeof *global);
    for (int64_t g = 0; global != NULL && g < GLOBAL_TOKENS; g++)
        global[g] = g * p->tk / GLOBAL_TOKENS + 37 * g;
    f->window =
        (attn_window){.left = LONGFORMER_SIDE, .right = LONGFORMER_SIDE, .global = global, .num_global = GLOBAL_TOKENS};
    p->params.window = &f->window;
    return global != NULL ? 0 : -1;
}

/* Lists blocks of a block row, rising: the diagonal one and others at random. Takes no time that grows with columns. */
static void choose_columns(int32_t *listed, int64_t listed_per_row, int64_t columns, int64_t diagonal, uint64_t *state)
{
    listed[0] = (int32_t)diagonal;
    for (int64_t count = 1; count < listed_per_row;) {
        const int32_t column = (int32_t)(bench_random(state) % (uint64_t)columns);
        int64_t at = count;
        while (at > 0 && listed[at - 1] > column)
            at--;
        if (at > 0 && listed[at - 1] == column)
            continue;
        memmove(listed + at + 1, listed + at, (size_t)(count - at) * sizeof *listed);
        listed[at] = column;
        count++;
    }
}

/* As many blocks in every row as come nearest to the share that is to live, or as the case says; a pattern for each
 * head. */
static int make_blocks(struct bench_problem *p, struct bench_form_data *f)
{
    const struct bench_case *c = p->bcase;
    const int64_t rows = (p->tq + c->size - 1) / c->size, columns = (p->tk + c->size - 1) / c->size;
    const int64_t nearest = llround(LIVE_BLOCKS * (double)columns), share = nearest > 1 ? nearest : 1;
    const int64_t per_row = c->listed == 0 ? share : c->listed < columns ? c->listed : columns;
    int64_t *offsets = keep(f, c->heads * rows + 1, sizeof *offsets);
    int32_t *listed = keep(f, c->heads * rows * per_row, sizeof *listed);
    if (offsets == NULL || listed == NULL)
        return -1;
    uint64_t state = SEED_BLOCKS;
    for (int64_t n = 0; n < c->heads * rows; n++) {
        offsets[n] = n * per_row;
        choose_columns(listed + offsets[n], per_row, columns, n % rows * columns / rows, &state);
    }
    offsets[c->heads * rows] = c->heads * rows * per_row;
    f->blocks =
        (attn_block_mask){.size = c->size, .heads = c->heads, .rows = rows, .offsets = offsets, .columns = listed};
    p->params.block_mask = &f->blocks;
    return 0;
}

/* Documents of one size, or of 1, 3, 5, ... shares of the sequence, mixed. The keys are the queries' tokens. */
static int make_segments(struct bench_problem *p, struct bench_form_data *f)
{
    const int64_t tokens = p->tk;
    int32_t *label = keep(f, p->batch * tokens, sizeof *label);
    if (label == NULL)
        return -1;
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t t = 0, shares = 0;
        for (; p->bcase->size > 0 && t < tokens; t++)
            label[b * tokens + t] = (int32_t)(t / p->bcase->size);
        for (int32_t n = 0; n < DOCUMENTS; n++) {
            shares += 2 * ((7 * n + 3) % DOCUMENTS) + 1;
            for (; t < shares * tokens / (DOCUMENTS * DOCUMENTS); t++)
                label[b * tokens + t] = n;
        }
    }
    f->segments = (attn_segments){.q = label, .k = label};
    p->params.segments = &f->segments;
    return 0;
}

/* Each token but the root hangs on one before it. One word of bits: up to 64 queries. */
static int make_tree(struct bench_problem *p, struct bench_form_data *f)
{
    uint64_t *ancestors = keep(f, p->batch * p->tq, sizeof *ancestors), state = SEED_TREE;
    if (ancestors == NULL)
        return -1;
    for (int64_t b = 0; b < p->batch; b++) {
        uint64_t *of = ancestors + b * p->tq;
        of[0] = 1;
        for (int64_t i = 1; i < p->tq; i++)
            of[i] = of[bench_random(&state) % (uint64_t)i] | (uint64_t)1 << i;
    }
    f->tree = (attn_tree){.tokens = p->tq, .ancestors = ancestors};
    p->params.tree = &f->tree;
    return 0;
}

static int make_prefix(struct bench_problem *p, struct bench_form_data *f)
{
    int64_t *prefix = keep(f, p->batch, sizeof *prefix);
    for (int64_t b = 0; prefix != NULL && b < p->batch; b++)
        prefix[b] = p->tk / 4;
    p->params.prefix_len = prefix;
    return prefix != NULL ? 0 : -1;
}

/* The slopes of the paper for a power of two of heads. */
static int make_alibi(struct bench_problem *p, struct bench_form_data *f)
{
    const int64_t heads = p->bcase->heads;
    float *slopes = keep(f, heads, sizeof *slopes);
    for (int64_t h = 0; slopes != NULL && h < heads; h++)
        slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)heads);
    p->params.alibi_slopes = slopes;
    return slopes != NULL ? 0 : -1;
}

static int make_t5(struct bench_problem *p, struct bench_form_data *f)
{
    f->bias = (attn_relative_bias){.kind = ATTN_BUCKETS_T5_BIDIRECTIONAL,
                                   .buckets = T5_BUCKETS,
                                   .max_distance = T5_DISTANCE,
                                   .table = keep_normal(f, p->bcase->heads * T5_BUCKETS, SEED_BIAS)};
    p->params.relative_bias = &f->bias;
    return f->bias.table != NULL ? 0 : -1;
}

/* With DeBERTa's scale, under which the sum of the three terms has the variance that one product has otherwise. */
static int make_disentangled(struct bench_problem *p, struct bench_form_data *f)
{
    const struct bench_case *c = p->bcase;
    const int64_t count = c->heads * 2 * SPAN * c->d;
    for (int n = 0; n < 2; n++)
        f->tables[n] =
            attn_bhtd(keep_normal(f, count, n == 0 ? SEED_REL_K : SEED_REL_Q), 1, c->heads, (int64_t)2 * SPAN, c->d);
    f->disentangled = (attn_disentangled){.span = SPAN, .rel_k = &f->tables[0], .rel_q = &f->tables[1]};
    p->params.disentangled = &f->disentangled;
    p->params.scale = (float)(1.0 / sqrt(3.0 * (double)c->d));
    return f->tables[0].data != NULL && f->tables[1].data != NULL ? 0 : -1;
}

/* All channels turn, by the angles of the paper; queries and keys are the same tokens. */
static int make_rope(struct bench_problem *p, struct bench_form_data *f)
{
    const int64_t pairs = p->bcase->d / 2, tokens = p->tk;
    float *table = keep(f, tokens * 2 * pairs, sizeof *table);
    if (table == NULL)
        return -1;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t n = 0; n < pairs; n++) {
            const double angle = (double)t * pow(ROPE_BASE, -(double)n / (double)pairs);
            table[t * 2 * pairs + n] = (float)cos(angle);
            table[t * 2 * pairs + pairs + n] = (float)sin(angle);
        }
    f->tables[0] = attn_bhtd(table, 1, 1, tokens, 2 * pairs);
    f->rope = (attn_rope_tables){.layout = ATTN_ROPE_HALF_SPLIT, .q = &f->tables[0], .k = &f->tables[0]};
    p->params.rope = &f->rope;
    return 0;
}

static int make_sinks(struct bench_problem *p, struct bench_form_data *f)
{
    float *sinks = keep_normal(f, p->bcase->heads, SEED_SINKS);
    /* Of 2048 standard normal scores the sum of exponentials is about e^8: a sink that counts is of that size. */
    for (int64_t h = 0; sinks != NULL && h < p->bcase->heads; h++)
        sinks[h] += 7.0f;
    p->params.sinks = sinks;
    return sinks != NULL ? 0 : -1;
}

/*
 * Sequences of one size, of which the last is what is left of the case's length; or the case's batch is their number
 * and its length the longest, and the logarithms are spread evenly.
 */
static int make_ragged(struct bench_problem *p, struct bench_form_data *f)
{
    const struct bench_case *c = p->bcase;
    const int64_t count = c->size > 0 ? (c->tk + c->size - 1) / c->size : c->batch;
    int64_t *starts = keep(f, count + 1, sizeof *starts);
    if (starts == NULL)
        return -1;
    uint64_t state = SEED_RAGGED;
    starts[0] = 0;
    for (int64_t s = 0; s < count; s++) {
        const double uniform = (double)(bench_random(&state) >> 11) * 0x1p-53;
        const int64_t left = c->tk - starts[s];
        const int64_t length = c->size == 0     ? (int64_t)(SHORTEST * pow((double)c->tk / SHORTEST, uniform))
                               : c->size < left ? c->size
                                                : left;
        starts[s + 1] = starts[s] + length;
    }
    p->batch = 1;
    p->tq = p->tk = starts[count];
    f->ragged = (attn_ragged){.num_sequences = count, .cu_seqlens_q = starts, .cu_seqlens_k = starts};
    p->params.ragged = &f->ragged;
    return 0;
}

static int make_dropout(struct bench_problem *p, struct bench_form_data *f)
{
    f->dropout = (attn_dropout){.p = DROPPED, .seed = SEED_DROPOUT};
    p->params.dropout = &f->dropout;
    return 0;
}

double bench_callback_term(int64_t distance)
{
    const double n = (double)(distance < 0 ? -distance : distance);
    return -n / (n + CALLBACK_HALFWAY);
}

/* Cheap and free of calls, so that the compiler makes vectors of it: the row is to show what calling it costs. */
static void add_terms(const attn_score_tile *tile, void *user)
{
    (void)user;
    const int queries = (int)tile->num_queries;
    for (int64_t j = 0; j < tile->num_keys; j++) {
        float *scores = tile->scores + j * tile->key_stride;
        const int first = (int)(tile->first_query - tile->first_key - j);
        for (int i = 0; i < queries; i++) {
            const float n = fabsf((float)(first + i));
            scores[i] -= n / (n + CALLBACK_HALFWAY);
        }
    }
}

int bench_form_create(struct bench_problem *p)
{
    if (p->bcase->form == BENCH_PLAIN)
        return 0;
    struct bench_form_data *f = calloc(1, sizeof *f);
    if (f == NULL)
        return -1;
    p->form = f;
    switch (p->bcase->form) {
    case BENCH_PLAIN:
        return 0;
    case BENCH_WINDOW:
        return make_window(p, f);
    case BENCH_WINDOW_GLOBAL:
        return make_window_global(p, f);
    case BENCH_BLOCKS:
        return make_blocks(p, f);
    case BENCH_SEGMENTS:
        return make_segments(p, f);
    case BENCH_TREE:
        return make_tree(p, f);
    case BENCH_PREFIX:
        return make_prefix(p, f);
    case BENCH_ALIBI:
        return make_alibi(p, f);
    case BENCH_T5:
        return make_t5(p, f);
    case BENCH_DISENTANGLED:
        return make_disentangled(p, f);
    case BENCH_ROPE:
        return make_rope(p, f);
    case BENCH_SOFTCAP:
        p->params.softcap = SOFTCAP;
        return 0;
    case BENCH_SINKS:
        return make_sinks(p, f);
    case BENCH_RAGGED:
        return make_ragged(p, f);
    case BENCH_DROPOUT:
        return make_dropout(p, f);
    case BENCH_CALLBACK:
        p->params.callback = add_terms;
        return 0;
    }
    return -1;
}

void bench_form_destroy(struct bench_problem *p)
{
    for (int i = 0; p->form != NULL && i < p->form->num_arrays; i++)
        free(p->form->arrays[i]);
    free(p->form);
    p->form = NULL;
}
