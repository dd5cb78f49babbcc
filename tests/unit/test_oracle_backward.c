/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of the backward pass against differences of the forward oracle.
 *
 * The loss is sum dO out + sum dL lse, in double. Inputs are f32 numbers with few
 * bits, so that a step of 2^-11 more or less is an f32 number as well, and the loss
 * is exact but for the rounding of doubles. Central differences of two widths
 * leave an error of step^4 times the fifth derivative, which of a head's scale is
 * some (q·k)^5.
 */
#include "fixture.h"

#include "oracle_backward.h"
#include "random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROBLEMS = 300, MAX_ELEMENTS = 4096, MAX_SEQUENCES = 3 };

#define STEP      0x1p-11f
#define TOLERANCE 1e-6
/* With a callback, which is given scores in f32: 2^-24 of a score of some units, divided by the step. */
#define STEP_CALLBACK      0x1p-9f
#define TOLERANCE_CALLBACK 1e-3

/** A small problem with any options that have gradients, contiguous. */
struct problem {
    attn_tensor q, k, v, mask, rope_q, rope_k, d_out, d_lse;
    float q_data[MAX_ELEMENTS], k_data[MAX_ELEMENTS], v_data[MAX_ELEMENTS], mask_data[MAX_ELEMENTS];
    float rope_q_data[MAX_ELEMENTS], rope_k_data[MAX_ELEMENTS], d_out_data[MAX_ELEMENTS], d_lse_data[MAX_ELEMENTS];
    float rel_k_data[MAX_ELEMENTS], rel_q_data[MAX_ELEMENTS];
    attn_tensor rel_k, rel_q;
    attn_disentangled disentangled;
    float slopes[8], sinks[8], head_scale[8], table[8 * 16];
    uint8_t booleans[MAX_ELEMENTS];
    int64_t kv_len[MAX_SEQUENCES], kv_start[MAX_SEQUENCES], offset[MAX_SEQUENCES], prefix[MAX_SEQUENCES];
    int64_t cu_q[MAX_SEQUENCES + 1], cu_k[MAX_SEQUENCES + 1], global[1], block_offsets[9];
    int32_t block_columns[8], labels_q[64], labels_k[64];
    uint64_t ancestors[64];
    attn_window window;
    attn_block_mask block_mask;
    attn_segments segments;
    attn_tree tree;
    attn_ragged ragged;
    attn_relative_bias bias;
    attn_rope_tables rope;
    attn_dropout dropout;
    attn_params params;
};

/** A normal number of few bits. */
static float few_bits(struct rng *rng)
{
    return rintf(rng_normal(rng) * 0x1p10f) * 0x1p-10f;
}

static attn_tensor draw_tensor(float *data, struct rng *rng, int64_t b, int64_t h, int64_t t, int64_t c)
{
    assert_true(b * h * t * c <= MAX_ELEMENTS);
    for (int64_t at = 0; at < b * h * t * c; at++)
        data[at] = few_bits(rng);
    return attn_bhtd(data, b, h, t, c);
}

static void draw_visibility(struct problem *p, int64_t sequences, int64_t tq, int64_t tk, struct rng *rng)
{
    attn_params *params = &p->params;
    const int64_t *n = p->q.shape;
    params->causal = (attn_causal)rng_range(rng, 0, 3);
    for (int64_t s = 0; s < sequences; s++) {
        p->kv_len[s] = rng_range(rng, 1, tk);
        p->kv_start[s] = rng_range(rng, 0, p->kv_len[s] - 1);
        p->offset[s] = rng_range(rng, -2, tk);
        p->prefix[s] = rng_range(rng, 0, 3);
    }
    params->kv_len = rng_percent(rng, 25) ? p->kv_len : NULL;
    params->kv_start = params->kv_len && rng_percent(rng, 50) ? p->kv_start : NULL;
    params->query_offset = params->causal == ATTN_CAUSAL_OFFSET ? p->offset : NULL;
    params->prefix_len = params->causal && rng_percent(rng, 25) ? p->prefix : NULL;
    if (rng_percent(rng, 20)) {
        p->global[0] = rng_range(rng, 0, tk - 1);
        p->window = (attn_window){rng_range(rng, 0, 3), rng_range(rng, 0, 2), rng_range(rng, 0, 1), p->global,
                                  rng_range(rng, 0, 1)};
        params->window = &p->window;
    }
    if (rng_percent(rng, 15)) { /* one block for each head, or none */
        p->block_offsets[0] = 0;
        for (int64_t h = 0; h < n[1]; h++) {
            p->block_offsets[h + 1] = p->block_offsets[h] + (rng_percent(rng, 70) ? 1 : 0);
            p->block_columns[h] = 0;
        }
        p->block_mask = (attn_block_mask){16, n[1], 1, p->block_offsets, p->block_columns};
        params->block_mask = &p->block_mask;
    }
    if (rng_percent(rng, 15)) {
        for (int i = 0; i < 64; i++) {
            p->labels_q[i] = (int32_t)rng_range(rng, 0, 1);
            p->labels_k[i] = (int32_t)rng_range(rng, 0, 1);
        }
        p->segments = (attn_segments){p->labels_q, p->labels_k};
        params->segments = &p->segments;
    }
    if (rng_percent(rng, 15) && !params->kv_len) {
        for (int i = 0; i < 64; i++)
            p->ancestors[i] = rng_bits(rng);
        p->tree = (attn_tree){1, p->ancestors};
        params->tree = &p->tree;
    }
    const int64_t m[4] = {rng_percent(rng, 50) ? n[0] : 1, rng_percent(rng, 50) ? n[1] : 1,
                          rng_percent(rng, 50) ? tq : 1, rng_percent(rng, 70) ? p->k.shape[2] : 1};
    p->mask = draw_tensor(p->mask_data, rng, m[0], m[1], m[2] == 1 ? 1 : n[2], m[3]);
    for (int64_t at = 0; at < MAX_ELEMENTS; at++) {
        p->booleans[at] = (uint8_t)rng_percent(rng, 70);
        if (rng_percent(rng, 10))
            p->mask_data[at] = -INFINITY;
    }
    if (rng_percent(rng, 40)) {
        params->mask = &p->mask;
        if (rng_percent(rng, 30)) {
            p->mask.dtype = ATTN_BOOL;
            p->mask.data = p->booleans;
        }
    }
}

/** s / sqrt(1 + s²), and nothing of every third key. */
static void bend(const attn_score_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++) {
            float *s = &tile->scores[j * tile->key_stride + i];
            *s = (tile->first_key + j) % 3 == 2 ? -INFINITY : *s / sqrtf(1 + *s * *s);
        }
}

static void bend_back(const attn_score_gradient_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++) {
            const float s = tile->scores[j * tile->key_stride + i];
            tile->gradients[j * tile->key_stride + i] /= (1 + s * s) * sqrtf(1 + s * s);
        }
}

static void draw_terms(struct problem *p, struct rng *rng)
{
    attn_params *params = &p->params;
    const int64_t *n = p->q.shape, *m = p->k.shape;
    for (int h = 0; h < 8; h++) {
        p->slopes[h] = few_bits(rng) / 4;
        p->sinks[h] = rng_percent(rng, 80) ? few_bits(rng) : -INFINITY;
        p->head_scale[h] = few_bits(rng);
    }
    for (int i = 0; i < 8 * 16; i++)
        p->table[i] = few_bits(rng);
    params->scale = rng_percent(rng, 50) ? 0 : few_bits(rng);
    params->temperature = rng_percent(rng, 70) ? 0 : 0.75f;
    params->softcap = rng_percent(rng, 70) ? 0 : (float)RNG_PICK(rng, 1, 2, 5);
    params->alibi_slopes = rng_percent(rng, 20) ? p->slopes : NULL;
    params->sinks = rng_percent(rng, 25) ? p->sinks : NULL;
    params->head_scale = rng_percent(rng, 25) ? p->head_scale : NULL;
    if (rng_percent(rng, 30)) {
        const attn_buckets kind = (attn_buckets)rng_range(rng, 0, 2);
        p->bias = (attn_relative_bias){kind, kind == ATTN_BUCKETS_CLIPPED ? 5 : 4, kind == ATTN_BUCKETS_CLIPPED ? 2 : 6,
                                       p->table};
        params->relative_bias = &p->bias;
    }
    if (n[3] > 1 && rng_percent(rng, 30)) {
        const int64_t width = 2 * rng_range(rng, 1, n[3] / 2);
        p->rope_q = draw_tensor(p->rope_q_data, rng, rng_percent(rng, 50) ? n[0] : 1, rng_percent(rng, 50) ? n[1] : 1,
                                n[2], width);
        p->rope_k = draw_tensor(p->rope_k_data, rng, rng_percent(rng, 50) ? m[0] : 1, rng_percent(rng, 50) ? m[1] : 1,
                                m[2], width);
        p->rope = (attn_rope_tables){(attn_rope_layout)rng_range(rng, 0, 1), &p->rope_q, &p->rope_k};
        params->rope = &p->rope;
    }
    if (!params->rope && rng_percent(rng, 30)) {
        const int64_t span = rng_range(rng, 1, 4);
        const int which = (int)rng_range(rng, 1, 3);
        p->rel_k = draw_tensor(p->rel_k_data, rng, 1, rng_percent(rng, 50) ? n[1] : 1, 2 * span, n[3]);
        p->rel_q = draw_tensor(p->rel_q_data, rng, 1, rng_percent(rng, 50) ? n[1] : 1, 2 * span, n[3]);
        p->disentangled = (attn_disentangled){.span = span,
                                              .rel_k = which & 1 ? &p->rel_k : NULL,
                                              .rel_q = which & 2 ? &p->rel_q : NULL,
                                              .delta = (attn_delta)(which & 2 ? rng_range(rng, 0, 1) : 0)};
        params->disentangled = &p->disentangled;
    }
    if (rng_percent(rng, 25)) {
        p->dropout = (attn_dropout){0.25f, rng_bits(rng), 7};
        params->dropout = &p->dropout;
    }
    params->callback = rng_percent(rng, 20) ? bend : NULL;
}

static void draw(struct problem *p, struct rng *rng)
{
    memset(p, 0, sizeof *p);
    p->params = attn_params_default();
    const int64_t sequences = rng_range(rng, 1, MAX_SEQUENCES), ragged = rng_percent(rng, 25);
    const int64_t kv_heads = rng_range(rng, 1, 2), heads = kv_heads * rng_range(rng, 1, 2);
    const int64_t tq = rng_range(rng, 1, 4), tk = rng_range(rng, 1, 5), dk = rng_range(rng, 1, 4),
                  dv = rng_range(rng, 1, 4);
    int64_t batch = sequences, queries = tq, keys = tk;
    if (ragged) {
        for (int64_t s = 0; s < sequences; s++) { /* the first has fewer queries */
            p->cu_q[s + 1] = p->cu_q[s] + tq - (s == 0);
            p->cu_k[s + 1] = p->cu_k[s] + tk;
        }
        batch = 1;
        queries = p->cu_q[sequences] + 1;
        keys = p->cu_k[sequences] + 1;
        p->ragged = (attn_ragged){sequences, p->cu_q, p->cu_k};
        p->params.ragged = &p->ragged;
    }
    p->q = draw_tensor(p->q_data, rng, batch, heads, queries, dk);
    p->k = draw_tensor(p->k_data, rng, batch, kv_heads, keys, dk);
    p->v = draw_tensor(p->v_data, rng, batch, kv_heads, keys, dv);
    p->d_out = draw_tensor(p->d_out_data, rng, batch, heads, queries, dv);
    p->d_lse = draw_tensor(p->d_lse_data, rng, batch, heads, queries, 1);
    draw_visibility(p, sequences, tq, tk, rng);
    draw_terms(p, rng);
}

static double loss(const struct problem *p, int with_lse)
{
    struct reference ref = reference_compute_alone(&p->q, &p->k, &p->v, &p->params);
    const int64_t rows = ref.batch * ref.heads * ref.tq;
    double sum = 0;
    for (int64_t at = 0; at < rows * ref.dv; at++)
        sum += ref.out[at] * (double)p->d_out_data[at];
    for (int64_t at = 0; at < rows && with_lse; at++)
        if (isfinite(ref.lse[at]))
            sum += ref.lse[at] * (double)p->d_lse_data[at];
    reference_free(&ref);
    return sum;
}

static double difference(const struct problem *p, float *x, int with_lse)
{
    const float before = *x, step = p->params.callback ? STEP_CALLBACK : STEP;
    double at[4];
    for (int i = 0; i < 4; i++) {
        *x = before + (float[]){step, -step, 2 * step, -2 * step}[i];
        at[i] = loss(p, with_lse);
    }
    *x = before;
    return (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * (double)step);
}

static struct backward_reference backward(const struct problem *p, int with_lse)
{
    const struct backward_inputs inputs = {.q = &p->q,
                                           .k = &p->k,
                                           .v = &p->v,
                                           .params = &p->params,
                                           .d_out = &p->d_out,
                                           .d_lse = with_lse ? &p->d_lse : NULL,
                                           .callback = p->params.callback ? bend_back : NULL};
    return backward_reference_compute(&inputs);
}

static void test_differences(void **state)
{
    (void)state;
    static struct problem p;
    static const char *const names[GRADIENTS] = {"q",     "k",     "v",          "mask",  "slopes",
                                                 "table", "sinks", "head_scale", "rel_k", "rel_q"};
    const uint64_t seed = rng_seed_of_run(NULL);
    int64_t compared[GRADIENTS] = {0}, not_zero[GRADIENTS] = {0};
    double worst_naive = 0;
    for (uint64_t i = 0; i < PROBLEMS; i++) {
        struct rng rng = rng_for_case(seed, i);
        draw(&p, &rng);
        const int with_lse = rng_percent(&rng, 50);
        const double tolerance = p.params.callback ? TOLERANCE_CALLBACK : TOLERANCE;
        struct backward_reference got = backward(&p, with_lse);
        float *const inputs[GRADIENTS] = {p.q_data, p.k_data, p.v_data,     p.mask_data,  p.slopes,
                                          p.table,  p.sinks,  p.head_scale, p.rel_k_data, p.rel_q_data};
        for (int of = 0; of < GRADIENTS; of++) {
            for (int64_t at = 0; at < got.of[of].count; at++) {
                const double expected = isinf(inputs[of][at]) ? 0 : difference(&p, &inputs[of][at], with_lse);
                const double value = got.of[of].value[at], unit = got.of[of].unit[at];
                compared[of]++;
                not_zero[of] += value != 0;
                if (unit > 0)
                    worst_naive = fmax(worst_naive, got.of[of].naive_error[at] / unit);
                if (fabs(value - expected) <= tolerance * (1 + fabs(expected)) && isfinite(unit))
                    continue;
                fail_msg("ATTN_CHECK_SEED=%" PRIu64 " problem %" PRIu64 ": gradient of %s[%" PRId64
                         "] is %.12g (unit %g), differences say %.12g",
                         seed, i, names[of], at, value, unit, expected);
            }
        }
        backward_reference_free(&got);
    }
    for (int of = 0; of < GRADIENTS; of++) {
        print_message("%-10s %" PRId64 " derivatives, %" PRId64 " not 0\n", names[of], compared[of], not_zero[of]);
        /* Of masks and tables there are entries that no pair reads, in some draws three quarters and more. */
        const int has_unread =
            of == GRADIENT_MASK || of == GRADIENT_RELATIVE_BIAS || of == GRADIENT_REL_K || of == GRADIENT_REL_Q;
        assert_true(not_zero[of] > PROBLEMS / 10 && not_zero[of] > compared[of] / (has_unread ? 8 : 4));
    }
    print_message("the naive computation is off by %.2f units at most\n", worst_naive);
    assert_true(worst_naive < 16); /* else units are not what they say */
}

/** NaN wherever no query looks changes nothing, and gradients there are 0. */
static void test_hidden_slots(void **state)
{
    (void)state;
    static struct problem p;
    const uint64_t seed = rng_seed_of_run(NULL);
    for (uint64_t i = 0; i < PROBLEMS; i++) {
        struct rng rng = rng_for_case(seed, i);
        draw(&p, &rng);
        struct backward_reference expected = backward(&p, 1);
        const int64_t *n = p.q.shape, *m = p.k.shape, group = n[1] / m[1];
        for (int64_t row = 0; row < n[0] * m[1] * m[2]; row++) {
            int seen = 0;
            for (int64_t h = 0; h < group; h++)
                for (int64_t t = 0; t < n[2]; t++)
                    seen |= oracle_key_is_live(&p.params, n[2], m[2], row / m[2] / m[1], row / m[2] % m[1] * group + h,
                                               t, row % m[2]);
            for (int64_t c = 0; c < m[3] && !seen; c++) {
                p.k_data[row * m[3] + c] = NAN;
                assert_true(expected.of[GRADIENT_K].value[row * m[3] + c] == 0);
            }
            for (int64_t c = 0; c < p.v.shape[3] && !seen; c++) {
                p.v_data[row * p.v.shape[3] + c] = NAN;
                assert_true(expected.of[GRADIENT_V].value[row * p.v.shape[3] + c] == 0);
            }
        }
        for (int64_t row = 0; row < n[0] * n[1] * n[2]; row++) {
            int sees = 0;
            for (int64_t j = 0; j < m[2]; j++)
                sees |= oracle_key_is_live(&p.params, n[2], m[2], row / n[2] / n[1], row / n[2] % n[1], row % n[2], j);
            for (int64_t c = 0; c < n[3] && !sees; c++) {
                p.q_data[row * n[3] + c] = NAN;
                assert_true(expected.of[GRADIENT_Q].value[row * n[3] + c] == 0);
            }
            for (int64_t c = 0; c < p.v.shape[3] && !sees; c++)
                p.d_out_data[row * p.v.shape[3] + c] = NAN;
        }
        struct backward_reference got = backward(&p, 1);
        for (int of = 0; of < GRADIENTS; of++)
            for (int64_t at = 0; at < got.of[of].count; at++)
                assert_true(got.of[of].value[at] == expected.of[of].value[at] &&
                            got.of[of].naive_error[at] == expected.of[of].naive_error[at]);
        backward_reference_free(&got);
        backward_reference_free(&expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_hidden_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
