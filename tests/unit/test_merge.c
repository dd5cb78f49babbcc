/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_merge(): against the definition in double and against one call over all
 * keys; rows without live parts; what garbage may not do; merging in place;
 * equal bits.
 */
#include "fixture.h"

#include "dtype.h"
#include "guard.h"
#include "oracle.h"
#include "random.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define U 0x1p-24

enum { MAX_PARTS = 8 };

/** Parts with random values in memory of their own, flush with a page that may not be touched. */
struct problem {
    int64_t num_parts;
    attn_tensor parts[MAX_PARTS], lses[MAX_PARTS], out, lse;
    struct guard guards[2 * MAX_PARTS + 2];
    int num_guards;
};

/** A tensor in one of the two layouts, with some elements between its rows. */
static attn_tensor place(struct problem *p, struct rng *rng, attn_dtype dtype, const int64_t shape[4])
{
    const int64_t gap = rng_range(rng, 0, 3), row = shape[3] + gap;
    attn_tensor t = rng_range(rng, 0, 1) ? attn_bthd(NULL, shape[0], shape[2], shape[1], row)
                                         : attn_bhtd(NULL, shape[0], shape[1], shape[2], row);
    const size_t size = attn_dtype_size(dtype);
    const int64_t elements = shape[0] * shape[1] * shape[2] * row;
    t.dtype = dtype;
    t.shape[3] = shape[3];
    p->guards[p->num_guards] = guard_create((size_t)(elements + 1) * size);
    /* The gap behind the last row is left out, so that its last element is the last that may be touched. */
    t.data = guard_place(&p->guards[p->num_guards++], (size_t)(elements > gap ? elements - gap : 0) * size, 1);
    return t;
}

static float random_lse(struct rng *rng)
{
    switch (rng_range(rng, 0, 9)) {
    case 0:
        return -INFINITY;
    case 1:
        return 300 * rng_normal(rng);
    default:
        return 2 * rng_normal(rng);
    }
}

/** Calls body for each (b, h, i) of out. */
#define FOR_ROWS(t, b, h, i)                                                                                           \
    for (int64_t b = 0; b < (t)->shape[0]; b++)                                                                        \
        for (int64_t h = 0; h < (t)->shape[1]; h++)                                                                    \
            for (int64_t i = 0; i < (t)->shape[2]; i++)

static void create(struct problem *p, struct rng *rng, int64_t num_parts, const int64_t shape[4])
{
    const int64_t lse_shape[4] = {shape[0], shape[1], shape[2], 1};
    memset(p, 0, sizeof *p);
    p->num_parts = num_parts;
    for (int64_t n = 0; n < num_parts; n++) {
        p->parts[n] = place(p, rng, (attn_dtype)rng_range(rng, ATTN_F32, ATTN_F16), shape);
        p->lses[n] = place(p, rng, ATTN_F32, lse_shape);
        FOR_ROWS(&p->parts[n], b, h, i)
        {
            tensor_set(&p->lses[n], b, h, i, 0, random_lse(rng));
            for (int64_t c = 0; c < shape[3]; c++)
                tensor_set(&p->parts[n], b, h, i, c, rng_normal(rng));
        }
    }
    p->out = place(p, rng, (attn_dtype)rng_range(rng, ATTN_F32, ATTN_F16), shape);
    p->lse = place(p, rng, ATTN_F32, lse_shape);
}

static void destroy(struct problem *p)
{
    for (int i = 0; i < p->num_guards; i++)
        guard_destroy(&p->guards[i]);
}

/** Checks a row against the definition in double, as far as f32 weights and sums can be from it. */
static void check_row(const attn_tensor *parts, const attn_tensor *lses, int64_t num_parts, const attn_tensor *out,
                      const attn_tensor *lse, int64_t b, int64_t h, int64_t i)
{
    double maximum = -INFINITY, sum = 0;
    for (int64_t n = 0; n < num_parts; n++)
        maximum = fmax(maximum, (double)tensor_get(&lses[n], b, h, i, 0));
    for (int64_t n = 0; n < num_parts && maximum > -INFINITY; n++)
        sum += exp((double)tensor_get(&lses[n], b, h, i, 0) - maximum);
    const double expected_lse = maximum > -INFINITY ? maximum + log(sum) : -INFINITY;
    if (lse && maximum == -INFINITY)
        assert_true(tensor_get(lse, b, h, i, 0) == -INFINITY);
    else if (lse)
        assert_true(fabs((double)tensor_get(lse, b, h, i, 0) - expected_lse) <= U * fabs(expected_lse) + 0x1p-149);
    for (int64_t c = 0; c < out->shape[3]; c++) {
        double exact = 0, size = 0;
        for (int64_t n = 0; n < num_parts; n++) {
            const double x = (double)tensor_get(&lses[n], b, h, i, 0);
            const double term = x > -INFINITY ? exp(x - maximum) / sum * (double)tensor_get(&parts[n], b, h, i, c) : 0;
            exact += term;
            size += fabs(term);
        }
        /* Each weight is rounded, then its product and the sum so far, if there is no fused multiply-add. */
        const double bound = U * size * (double)(2 * num_parts + 1) + 0x1p-149 * (double)num_parts;
        const float got = tensor_get(out, b, h, i, c);
        if (!(dtype_distance(out->dtype, got, exact) <= bound))
            fail_msg("(%d, %d, %d, %d) of %s is %.9g; expected %.17g", (int)b, (int)h, (int)i, (int)c,
                     attn_dtype_name(out->dtype), (double)got, exact);
    }
}

static attn_status merge(const struct problem *p, int num_threads)
{
    return attn_merge(p->num_parts, p->parts, p->lses, &p->out, &p->lse, num_threads);
}

static void test_against_double(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 600; n++) {
        struct rng rng = rng_for_case(31, n);
        const int64_t shape[4] = {rng_range(&rng, 0, 2), rng_range(&rng, 1, 3), rng_range(&rng, 1, 5),
                                  RNG_PICK(&rng, 0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 511, 512, 513, 1100)};
        struct problem p;
        create(&p, &rng, rng_range(&rng, 1, MAX_PARTS), shape);
        snprintf(guard_case_line, sizeof guard_case_line, "case %d of test_against_double", (int)n);
        if (rng_percent(&rng, 80)) {
            assert_int_equal(merge(&p, 0), ATTN_OK);
            FOR_ROWS(&p.out, b, h, i)
            check_row(p.parts, p.lses, p.num_parts, &p.out, &p.lse, b, h, i);
        } else {
            assert_int_equal(attn_merge(p.num_parts, p.parts, p.lses, &p.out, NULL, 1), ATTN_OK);
            FOR_ROWS(&p.out, b, h, i)
            check_row(p.parts, p.lses, p.num_parts, &p.out, NULL, b, h, i);
        }
        for (int i = 0; i < p.num_guards; i++)
            assert_true(guard_intact(&p.guards[i]));
        destroy(&p);
    }
}

/** More parts than a kernel keeps the exponentials of. */
static void test_many_parts(void **state)
{
    (void)state;
    enum { PARTS = 150, ROWS = 3, CHANNELS = 40 };
    static float values[PARTS][ROWS][CHANNELS], x[PARTS][ROWS], out_data[ROWS][CHANNELS], lse_data[ROWS];
    static attn_tensor parts[PARTS], lses[PARTS];
    struct rng rng = rng_for_case(32, 0);
    rng_fill_normal(&rng, values[0][0], PARTS * ROWS * CHANNELS);
    rng_fill_normal(&rng, x[0], PARTS * ROWS);
    for (int n = 0; n < PARTS; n++) {
        x[n][1] = n < 100 ? -INFINITY : x[n][1]; /* none of those that are kept */
        x[n][2] -= (float)n;
        parts[n] = attn_bhtd(values[n], 1, 1, ROWS, CHANNELS);
        lses[n] = attn_bhtd(x[n], 1, 1, ROWS, 1);
    }
    const attn_tensor out = attn_bhtd(out_data, 1, 1, ROWS, CHANNELS), lse = attn_bhtd(lse_data, 1, 1, ROWS, 1);
    for (int count = 60; count <= PARTS; count += count < 70 ? 1 : 40) {
        assert_int_equal(attn_merge(count, parts, lses, &out, &lse, 0), ATTN_OK);
        for (int i = 0; i < ROWS; i++)
            check_row(parts, lses, count, &out, &lse, 0, 0, i);
    }
}

/** Keys 0 to Tk-1 cut anywhere, some parts empty, give what one call over all of them gives. */
static void test_against_forward(void **state)
{
    (void)state;
    enum { B = 2, H = 4, KV = 2, TQ = 9, TK = 150, DK = 24, DV = 19, PARTS = 5 };
    static float q_data[B * H * TQ * DK], k_data[B * KV * TK * DK], v_data[B * KV * TK * DV];
    static float part_data[PARTS][B * H * TQ * DV], lse_data[PARTS][B * H * TQ], out_data[B * H * TQ * DV],
        all_lse_data[B * H * TQ];
    for (uint64_t n = 0; n < 40; n++) {
        struct rng rng = rng_for_case(33, n);
        rng_fill_normal(&rng, q_data, B * H * TQ * DK);
        rng_fill_normal(&rng, k_data, B * KV * TK * DK);
        rng_fill_normal(&rng, v_data, B * KV * TK * DV);
        const attn_tensor q = attn_bhtd(q_data, B, H, TQ, DK), out = attn_bhtd(out_data, B, H, TQ, DV);
        const attn_tensor k = attn_bhtd(k_data, B, KV, TK, DK), v = attn_bhtd(v_data, B, KV, TK, DV);
        const attn_tensor all_lse = attn_bhtd(all_lse_data, B, H, TQ, 1);
        attn_tensor parts[PARTS], lses[PARTS];
        attn_params params = attn_params_default();
        int64_t cuts[PARTS + 1] = {0}, offsets[B];
        for (int i = 1; i < PARTS; i++)
            cuts[i] = rng_range(&rng, cuts[i - 1], rng_percent(&rng, 30) ? cuts[i - 1] : TK);
        cuts[PARTS] = TK;
        for (int i = 0; i < PARTS; i++) {
            attn_tensor some_k = k, some_v = v;
            some_k.shape[2] = some_v.shape[2] = cuts[i + 1] - cuts[i];
            some_k.data = k_data + cuts[i] * DK;
            some_v.data = v_data + cuts[i] * DV;
            parts[i] = attn_bhtd(part_data[i], B, H, TQ, DV);
            lses[i] = attn_bhtd(lse_data[i], B, H, TQ, 1);
            params.lse = &lses[i];
            if (n % 2) { /* query i sees keys up to i + 70, so whole parts may be hidden from it */
                params.causal = ATTN_CAUSAL_OFFSET;
                params.query_offset = offsets;
                offsets[0] = offsets[1] = 70 - cuts[i];
            }
            assert_int_equal(attn_forward(&q, &some_k, &some_v, &parts[i], &params), ATTN_OK);
        }
        assert_int_equal(attn_merge(PARTS, parts, lses, &out, &all_lse, 0), ATTN_OK);
        offsets[0] = offsets[1] = 70;
        struct reference ref = reference_compute(&q, &k, &v, &params, NAIVE_F32);
        /* A part's own error is within 6 units beside the naive one's; its lse is rounded, and weights and sums are. */
        for (int64_t i = 0; i < B * H * TQ; i++) {
            const double error = fabs((double)all_lse_data[i] - ref.lse[i]);
            assert_true(error <= (2 * ref.naive_lse_error[i] + 12 * ref.lse_unit[i]));
        }
        for (int64_t i = 0; i < B * H * TQ * DV; i++) {
            const double error = fabs((double)out_data[i] - ref.out[i]);
            assert_true(error <= 2 * ref.naive_out_error[i] + 12 * ref.out_unit[i]);
        }
        reference_free(&ref);
    }
}

/** Small parts of one row each, for what can be said by hand. */
struct small {
    float parts[3][4], x[3], out[4], lse;
};

static void merge_small(struct small *s, int num_parts)
{
    attn_tensor parts[3], lses[3];
    for (int n = 0; n < 3; n++) {
        parts[n] = attn_bhtd(s->parts[n], 1, 1, 1, 4);
        lses[n] = attn_bhtd(&s->x[n], 1, 1, 1, 1);
    }
    const attn_tensor out = attn_bhtd(s->out, 1, 1, 1, 4), lse = attn_bhtd(&s->lse, 1, 1, 1, 1);
    assert_int_equal(attn_merge(num_parts, parts, lses, &out, &lse, 0), ATTN_OK);
}

static void check_small(const struct small *s, float a, float b, float c, float d, float lse)
{
    const float expected[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        assert_true(s->out[i] == expected[i] || (isnan(s->out[i]) && isnan(expected[i])));
    assert_true(s->lse == lse || (isnan(s->lse) && isnan(lse)));
}

static void test_by_hand(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN;
    struct small s = {{{1, 2, -3, 0}, {3, 6, 5, 8}, {9, 9, 9, 9}}, {0, 0, -inf}, {0}, 0};
    merge_small(&s, 3);
    check_small(&s, 2, 4, 1, 4, (float)log(2));
    s.x[0] = (float)log(3); /* three quarters */
    merge_small(&s, 2);
    assert_true(fabsf(s.out[0] - 1.5f) < 1e-6f && fabsf(s.out[3] - 2) < 1e-6f && fabsf(s.lse - logf(4)) < 1e-6f);
    /* One live part: itself, to the bit. */
    struct small one = {
        {{0.1f, 1e-40f, FLT_MAX, -0.7f}, {nan, inf, -inf, nan}, {inf, nan, nan, 0}}, {3.3f, -inf, -inf}, {0}, 0};
    merge_small(&one, 1);
    check_small(&one, 0.1f, 1e-40f, FLT_MAX, -0.7f, 3.3f);
    merge_small(&one, 3);
    check_small(&one, 0.1f, 1e-40f, FLT_MAX, -0.7f, 3.3f);
    /* None: zeros, without a sign, whatever stands there. */
    one.x[0] = -inf;
    memset(one.out, 0xA5, sizeof one.out);
    merge_small(&one, 3);
    check_small(&one, 0, 0, 0, 0, -inf);
    for (int i = 0; i < 4; i++)
        assert_false(signbit(one.out[i]));
    /* log-sum-exps so large that the logarithm of 2 is nothing beside them. */
    struct small huge = {{{1, 2, 3, 4}, {3, 4, 5, 6}, {nan, nan, nan, nan}}, {1e30f, 1e30f, -inf}, {0}, 0};
    merge_small(&huge, 3);
    check_small(&huge, 2, 3, 4, 5, 1e30f);
    huge.x[0] = huge.x[1] = -FLT_MAX;
    merge_small(&huge, 3);
    check_small(&huge, 2, 3, 4, 5, -FLT_MAX);
    huge.x[0] = FLT_MAX;
    merge_small(&huge, 3);
    check_small(&huge, 1, 2, 3, 4, FLT_MAX);
    /* The mean of the largest numbers is no infinity. */
    struct small top = {{{FLT_MAX, -FLT_MAX, 0, 0}, {FLT_MAX, -FLT_MAX, 0, 0}, {0}}, {1, 1, 0}, {0}, 0};
    merge_small(&top, 2);
    check_small(&top, FLT_MAX, -FLT_MAX, 0, 0, 1 + logf(2));
}

/** NaN and +inf in a log-sum-exp make the row NaN; NaN in a live part gets through, but only in its channel. */
static void test_special_values(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN;
    for (int where = 0; where < 3; where++) {
        for (int which = 0; which < 2; which++) {
            struct small s = {{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 9, 9, 9}}, {0.5f, -inf, 700}, {0}, 0};
            s.x[where] = which ? nan : inf;
            merge_small(&s, 3);
            check_small(&s, nan, nan, nan, nan, nan);
        }
    }
    struct small alone = {{{1, 2, 3, 4}, {5, 6, 7, 8}, {0}}, {-inf, nan, -inf}, {0}, 0}; /* beside parts without keys */
    merge_small(&alone, 3);
    check_small(&alone, nan, nan, nan, nan, nan);
    struct small both = {{{1, 2, 3, 4}, {5, 6, 7, 8}, {0}}, {inf, inf, -inf}, {0}, 0};
    merge_small(&both, 3);
    check_small(&both, nan, nan, nan, nan, nan);
    struct small live = {{{nan, 2, inf, -4}, {1, 2, 3, -4}, {0}}, {-500, 1, -inf}, {0}, 0}; /* a weight of 0 in f32 */
    merge_small(&live, 3);
    assert_true(isnan(live.out[0]) && live.out[1] == 2 && !isfinite(live.out[2]) && live.out[3] == -4);
}

/** Whatever stands in the dead rows of parts, the bits are the same. */
static void test_garbage_in_dead_parts(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 60; n++) {
        struct rng rng = rng_for_case(35, n);
        const int64_t shape[4] = {2, 2, 4, rng_range(&rng, 1, 40)};
        struct problem p;
        create(&p, &rng, rng_range(&rng, 1, MAX_PARTS), shape);
        assert_int_equal(merge(&p, 0), ATTN_OK);
        float expected[2][2][4][41];
        FOR_ROWS(&p.out, b, h, i)
        {
            for (int64_t c = 0; c < shape[3]; c++)
                expected[b][h][i][c] = tensor_get(&p.out, b, h, i, c);
            expected[b][h][i][40] = tensor_get(&p.lse, b, h, i, 0);
            for (int64_t part = 0; part < p.num_parts; part++)
                for (int64_t c = 0; c < shape[3] && tensor_get(&p.lses[part], b, h, i, 0) == -INFINITY; c++)
                    tensor_set(&p.parts[part], b, h, i, c, c % 3 == 0 ? NAN : c % 3 == 1 ? INFINITY : -INFINITY);
        }
        assert_int_equal(merge(&p, 0), ATTN_OK);
        FOR_ROWS(&p.out, b, h, i)
        {
            for (int64_t c = 0; c < shape[3]; c++)
                assert_true(expected[b][h][i][c] == tensor_get(&p.out, b, h, i, c));
            assert_true(expected[b][h][i][40] == tensor_get(&p.lse, b, h, i, 0));
        }
        destroy(&p);
    }
}

/** out on any of the parts, lse on any of the lses: the bits of a merge elsewhere. */
static void test_in_place(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 100; n++) {
        struct rng rng = rng_for_case(36, n);
        const int64_t shape[4] = {2, 2, 3, RNG_PICK(&rng, 1, 5, 16, 40, 600)};
        struct problem p;
        create(&p, &rng, rng_range(&rng, 1, MAX_PARTS), shape);
        const int64_t at = rng_range(&rng, 0, p.num_parts - 1), lse_at = rng_range(&rng, 0, p.num_parts - 1);
        p.out.dtype = p.parts[at].dtype;
        attn_tensor out = p.out;
        if (attn_dtype_size(p.out.dtype) == 4) { /* the memory may be that of a narrower type */
            static float room[2 * 2 * 3 * 600];
            out = attn_bhtd(room, shape[0], shape[1], shape[2], shape[3]);
        }
        assert_int_equal(attn_merge(p.num_parts, p.parts, p.lses, &out, &p.lse, 1), ATTN_OK);
        assert_int_equal(attn_merge(p.num_parts, p.parts, p.lses, &p.parts[at], &p.lses[lse_at], 0), ATTN_OK);
        FOR_ROWS(&out, b, h, i)
        {
            for (int64_t c = 0; c < shape[3]; c++)
                assert_true(tensor_get(&out, b, h, i, c) == tensor_get(&p.parts[at], b, h, i, c));
            assert_true(tensor_get(&p.lse, b, h, i, 0) == tensor_get(&p.lses[lse_at], b, h, i, 0));
        }
        destroy(&p);
    }
}

/** Enough rows for several threads. */
static void test_threads(void **state)
{
    (void)state;
    enum { HEADS = 8, TOKENS = 301, CHANNELS = 40, PARTS = 3, COUNT = HEADS * TOKENS * CHANNELS };
    static float values[PARTS][COUNT], x[PARTS][HEADS * TOKENS];
    static float out_data[2][COUNT], lse_data[2][HEADS * TOKENS];
    attn_tensor parts[PARTS], lses[PARTS];
    struct rng rng = rng_for_case(37, 0);
    for (int n = 0; n < PARTS; n++) {
        rng_fill_normal(&rng, values[n], COUNT);
        rng_fill_normal(&rng, x[n], HEADS * TOKENS);
        parts[n] = attn_bhtd(values[n], 1, HEADS, TOKENS, CHANNELS);
        lses[n] = attn_bhtd(x[n], 1, HEADS, TOKENS, 1);
    }
    for (int threads = 1; threads <= 9; threads += 2) {
        float(*o)[COUNT] = &out_data[threads > 1], (*l)[HEADS * TOKENS] = &lse_data[threads > 1];
        memset(*o, 0xA5, sizeof *o);
        memset(*l, 0xA5, sizeof *l);
        const attn_tensor out = attn_bhtd(*o, 1, HEADS, TOKENS, CHANNELS), lse = attn_bhtd(*l, 1, HEADS, TOKENS, 1);
        assert_int_equal(attn_merge(PARTS, parts, lses, &out, &lse, threads), ATTN_OK);
        assert_memory_equal(o, out_data[0], sizeof *o);
        assert_memory_equal(l, lse_data[0], sizeof *l);
    }
    const attn_tensor out = attn_bhtd(out_data[0], 1, HEADS, TOKENS, CHANNELS);
    for (int64_t i = 0; i < TOKENS; i += 50)
        check_row(parts, lses, PARTS, &out, NULL, 0, HEADS - 1, i);
    /* A forked child has none of the threads, and must not wait for them. */
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const attn_tensor again = attn_bhtd(out_data[1], 1, HEADS, TOKENS, CHANNELS);
        alarm(60);
        memset(out_data[1], 0, sizeof out_data[1]);
        const attn_status status = attn_merge(PARTS, parts, lses, &again, NULL, 4);
        _exit(status != ATTN_OK || memcmp(out_data[1], out_data[0], sizeof out_data[0]) != 0);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

/** Negative strides, and parts that are broadcast. */
static void test_strides(void **state)
{
    (void)state;
    float values[2][6] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}}, x[4] = {0, 0, 0, 0}, out_data[6], lse_data[3];
    attn_tensor parts[2] = {attn_bhtd(values[0] + 4, 1, 1, 3, 2), attn_bhtd(values[1], 1, 1, 3, 2)};
    attn_tensor lses[2] = {attn_bhtd(x, 1, 1, 3, 1), attn_bhtd(x + 2, 1, 1, 3, 1)};
    attn_tensor out = attn_bhtd(out_data, 1, 1, 3, 2), lse = attn_bhtd(lse_data + 2, 1, 1, 3, 1);
    parts[0].stride[2] = -2;
    parts[1].stride[2] = 0;
    lses[0].stride[2] = 0;
    lses[1].stride[2] = -1;
    lse.stride[2] = -1;
    lse.stride[3] = lses[0].stride[3] = 77; /* of one channel: not looked at */
    x[1] = -INFINITY;                       /* that of the second part's row 1 */
    assert_int_equal(attn_merge(2, parts, lses, &out, &lse, 0), ATTN_OK);
    const float expected[6] = {6, 7, 3, 4, 4, 5};
    assert_memory_equal(out_data, expected, sizeof expected);
    assert_true(lse_data[2] == (float)log(2) && lse_data[1] == 0 && lse_data[0] == (float)log(2));
}

/** Parts as they come from one computation: slices of one tensor, between which out may lie as well. */
static void test_interleaved_parts(void **state)
{
    (void)state;
    enum { TOKENS = 4, HEADS = 2, PARTS = 3, CHANNELS = 5, COUNT = TOKENS * HEADS * (PARTS + 1) * CHANNELS };
    static float data[COUNT], x[TOKENS * HEADS * PARTS];
    attn_tensor t[PARTS + 1], lses[PARTS];
    struct rng rng = rng_for_case(39, 0);
    rng_fill_normal(&rng, data, COUNT);
    rng_fill_normal(&rng, x, TOKENS * HEADS * PARTS);
    for (int n = 0; n <= PARTS; n++) {
        const int64_t row = (PARTS + 1) * CHANNELS;
        t[n] = (attn_tensor){data + n * CHANNELS, ATTN_F32, {1, HEADS, TOKENS, CHANNELS}, {0, row, HEADS * row, 1}};
    }
    for (int n = 0; n < PARTS; n++)
        lses[n] = (attn_tensor){x + n, ATTN_F32, {1, HEADS, TOKENS, 1}, {0, PARTS, HEADS * PARTS, 1}};
    assert_int_equal(attn_merge(PARTS, t, lses, &t[PARTS], NULL, 0), ATTN_OK);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < TOKENS; i++)
            check_row(t, lses, PARTS, &t[PARTS], NULL, 0, h, i);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double),  cmocka_unit_test(test_many_parts),
        cmocka_unit_test(test_against_forward), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_special_values),  cmocka_unit_test(test_garbage_in_dead_parts),
        cmocka_unit_test(test_in_place),        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_strides),         cmocka_unit_test(test_interleaved_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
