/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels for int8 scores on AVX2, against the same computation written
 * out: rounded to the same integers in float, all that follows in double.
 *
 * AVX-VNNI is rarer than AVX512-VNNI, which has the same instruction in
 * another encoding. So the stub is compiled a second time, for this test
 * alone, in that form, and the tables are called without asking which one the
 * library would choose. The AVX-512 table runs beside them, to hold the
 * computation here to what has been tested otherwise.
 */
#include "dtype.h"
#include "guard.h"
#include "random.h"

#include "api/check.h"
#include "cpu/cpu.h"
#include "dispatch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_isa.h"

extern const struct attn_isa_kernels attn_kernels_avx2_int8, attn_kernels_avx2_int8_evex, attn_kernels_avx512_int8;

enum { LARGEST = 700 * 256, MAX_TQ = 64, MAX_TK = 700, MAX_DK = 4096, MAX_DV = 256 };

enum masking { MASKING_NONE, MASKING_CAUSAL, MASKING_BOOLEAN, MASKING_ADDITIVE, NUM_MASKINGS };

/** One head: q (tq, dk), k (tk, dk), v (tk, dv). */
static struct {
    attn_dtype dtype;
    int64_t tq, tk, dk, dv;
    float scale;
    enum masking masking;
    float q[LARGEST], k[LARGEST], v[LARGEST]; /**< in f32, representable in dtype */
    uint8_t live[MAX_TQ * MAX_TK];            /**< what query i sees of key j, causality included */
    float bias[MAX_TQ * MAX_TK];
} call;

/** The same rounded, and what follows from it. */
static struct {
    float mean[MAX_DK], q_step[MAX_TQ], k_step[MAX_TK];
    int32_t q[LARGEST], k[LARGEST];
    double out[MAX_TQ * MAX_DV], lse[MAX_TQ], weights[MAX_TQ * MAX_TK];
} expected;

static struct {
    float out[MAX_TQ * MAX_DV], lse[MAX_TQ], weights[MAX_TQ * MAX_TK];
} got;

static struct guard guards[3];

static struct {
    const char *name;
    struct attn_kernels kernels;
} tables[3];
static int num_tables;

static void add_table(const char *name, const char *isa, const struct attn_isa_kernels *int8)
{
    tables[num_tables].name = name;
    tables[num_tables].kernels = attn_kernels_plain(attn_isa_row(isa));
    tables[num_tables].kernels.qk = ATTN_QK_INT8;
    tables[num_tables++].kernels.scores = int8->scores;
}

static void find_tables(void)
{
    if (attn_cpu_has("avx2 fma f16c avxvnni"))
        add_table("avx2_int8", "avx2", &attn_kernels_avx2_int8);
    if (attn_isa_supported("avx512") && attn_cpu_has("avx512vnni")) {
        add_table("avx2_int8 in EVEX form", "avx2", &attn_kernels_avx2_int8_evex);
        add_table("avx512_int8", "avx512", &attn_kernels_avx512_int8);
    }
}

static void fill(attn_dtype dtype, int64_t tq, int64_t tk, int64_t dk, int64_t dv, enum masking masking, uint64_t seed)
{
    struct rng rng = rng_for_case(21, seed);
    assert_true(tq <= MAX_TQ && tk <= MAX_TK && dk <= MAX_DK && dv <= MAX_DV);
    assert_true(tq * dk <= LARGEST && tk * dk <= LARGEST && tk * dv <= LARGEST);
    call.dtype = dtype, call.tq = tq, call.tk = tk, call.dk = dk, call.dv = dv;
    call.scale = (seed % 2 ? -1.0f : 1.0f) / sqrtf((float)dk);
    call.masking = masking;
    rng_fill_normal(&rng, call.q, tq * dk);
    rng_fill_normal(&rng, call.k, tk * dk);
    rng_fill_normal(&rng, call.v, tk * dv);
    for (int64_t j = 0; j < tk; j++) /* an offset that the mean takes away */
        for (int64_t c = 0; c < dk; c++)
            call.k[j * dk + c] += (float)(c % 5) - 2.0f;
    for (int64_t i = 0; i < tq; i++)
        for (int64_t j = 0; j < tk; j++) {
            const int64_t at = i * tk + j;
            const int drawn = i != 3 && rng_percent(&rng, 70); /* query 3 sees nothing */
            call.live[at] = (uint8_t)(masking == MASKING_NONE || (masking == MASKING_CAUSAL ? j <= i : drawn));
            call.bias[at] = masking != MASKING_ADDITIVE ? 0.0f : call.live[at] ? rng_normal(&rng) : -INFINITY;
        }
}

static void round_inputs(void)
{
    for (int64_t i = 0; i < call.tq * call.dk; i++)
        call.q[i] = dtype_round(call.dtype, call.q[i]);
    for (int64_t i = 0; i < call.tk * call.dk; i++)
        call.k[i] = dtype_round(call.dtype, call.k[i]);
    for (int64_t i = 0; i < call.tk * call.dv; i++)
        call.v[i] = dtype_round(call.dtype, call.v[i]);
}

static int is_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return 0;
    return 1;
}

/** Rounds a row less its mean, in f32 as the kernels do; returns the step, NaN for a row that is not finite. */
static float quantize(int32_t *dst, const float *x, const float *mean)
{
    float top = 0.0f;
    for (int64_t c = 0; c < call.dk; c++)
        top = fmaxf(top, fabsf(x[c] - mean[c]));
    if (!is_finite(x, call.dk))
        return NAN;
    for (int64_t c = 0; c < call.dk; c++)
        dst[c] = top == 0.0f ? 0 : (int32_t)rintf((x[c] - mean[c]) * (127.0f / top));
    return top / 127.0f;
}

/** The mean of the finite ones among the first 512 keys that the last query sees; nothing under a mask. */
static void compute_mean(void)
{
    int64_t keys = call.tk < 512 ? call.tk : 512, count = 0;
    if (call.masking == MASKING_CAUSAL && call.tq < keys)
        keys = call.tq;
    memset(expected.mean, 0, sizeof expected.mean);
    if (call.masking == MASKING_BOOLEAN || call.masking == MASKING_ADDITIVE)
        return;
    for (int64_t j = 0; j < keys; j++) {
        if (!is_finite(call.k + j * call.dk, call.dk))
            continue;
        count++;
        for (int64_t c = 0; c < call.dk; c++)
            expected.mean[c] += call.k[j * call.dk + c];
    }
    for (int64_t c = 0; c < call.dk && count > 0; c++)
        expected.mean[c] /= (float)count;
}

/** One query from the integers on. */
static void compute_row(int64_t i)
{
    static double score[MAX_TK];
    double max = -INFINITY, sum = 0, shift = 0;
    int valid = !isnan(expected.q_step[i]);
    for (int64_t c = 0; c < call.dk; c++)
        shift += (double)call.scale * (double)call.q[i * call.dk + c] * (double)expected.mean[c];
    for (int64_t j = 0; j < call.tk; j++) {
        int64_t dot = 0;
        for (int64_t c = 0; c < call.dk; c++)
            dot += (int64_t)expected.q[i * call.dk + c] * expected.k[j * call.dk + c];
        score[j] = (double)dot * (double)expected.q_step[i] * (double)expected.k_step[j] * (double)call.scale +
                   (double)call.bias[i * call.tk + j];
        if (!call.live[i * call.tk + j])
            score[j] = -INFINITY;
        else if (isnan(expected.k_step[j]))
            valid = 0;
        max = fmax(max, score[j]);
    }
    for (int64_t j = 0; j < call.tk; j++)
        sum += call.live[i * call.tk + j] ? exp(score[j] - max) : 0.0;
    const int empty = sum == 0.0;
    expected.lse[i] = empty ? -INFINITY : valid ? max + log(sum) + shift : NAN;
    for (int64_t j = 0; j < call.tk; j++) {
        const int live = call.live[i * call.tk + j];
        expected.weights[i * call.tk + j] = !live ? 0.0 : valid ? exp(score[j] - max) / sum : NAN;
    }
    for (int64_t c = 0; c < call.dv; c++) {
        double o = 0;
        for (int64_t j = 0; j < call.tk; j++)
            if (call.live[i * call.tk + j])
                o += expected.weights[i * call.tk + j] * (double)call.v[j * call.dv + c];
        expected.out[i * call.dv + c] = o;
    }
}

static void compute(void)
{
    static const float zeros[MAX_DK];
    compute_mean();
    memset(expected.q, 0, sizeof expected.q);
    memset(expected.k, 0, sizeof expected.k);
    for (int64_t i = 0; i < call.tq; i++)
        expected.q_step[i] = quantize(expected.q + i * call.dk, call.q + i * call.dk, zeros);
    for (int64_t j = 0; j < call.tk; j++)
        expected.k_step[j] = quantize(expected.k + j * call.dk, call.k + j * call.dk, expected.mean);
    for (int64_t i = 0; i < call.tq; i++)
        compute_row(i);
}

/** A tensor in the type of the call that ends at a page which may not be touched. */
static attn_tensor guarded(struct guard *guard, const float *values, int64_t tokens, int64_t channels)
{
    const size_t size = (size_t)(tokens * channels) * attn_dtype_size(call.dtype);
    attn_tensor t = tensor_as(attn_bhtd(guard_place(guard, size, 1), 1, 1, tokens, channels), call.dtype);
    for (int64_t i = 0; i < tokens * channels; i++)
        dtype_store(call.dtype, t.data, i, values[i]);
    return t;
}

/** The call on a table. What asks for int8 scores is the table: attn_check() would ask the processor for its own. */
static void run(const struct attn_kernels *kernels)
{
    const attn_tensor q = guarded(&guards[0], call.q, call.tq, call.dk),
                      k = guarded(&guards[1], call.k, call.tk, call.dk),
                      v = guarded(&guards[2], call.v, call.tk, call.dv);
    const attn_tensor out = attn_bhtd(got.out, 1, 1, call.tq, call.dv), lse = attn_bhtd(got.lse, 1, 1, call.tq, 1),
                      weights = attn_bhtd(got.weights, 1, 1, call.tq, call.tk);
    attn_tensor mask = attn_bhtd(call.bias, 1, 1, call.tq, call.tk);
    if (call.masking == MASKING_BOOLEAN)
        mask = tensor_as(mask, ATTN_BOOL), mask.data = call.live;
    attn_params params = attn_params_default();
    params.scale = call.scale;
    params.causal = call.masking == MASKING_CAUSAL ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    params.mask = call.masking == MASKING_BOOLEAN || call.masking == MASKING_ADDITIVE ? &mask : NULL;
    params.lse = &lse;
    params.weights = &weights;
    struct attn_problem problem;
    if (attn_check(&problem, &q, &k, &v, &out, &params, CHECK_ALL) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    const struct attn_geometry geometry = attn_geometry_of(&problem, kernels, 1);
    const struct attn_run run = {.problem = &problem, .geometry = &geometry};
    void *scratch = aligned_alloc(ATTN_ALIGN, geometry.scratch_size);
    assert_non_null(scratch);
    memset(&got, 0x55, sizeof got);
    for (int64_t task = 0; task < geometry.tasks; task++)
        attn_run_task(&run, task, scratch);
    free(scratch);
}

/** Compares n results, whose errors are in units of 1 + their size. */
static void compare(const char *table, const char *what, const float *results, const double *wanted, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double result = (double)results[i], difference = fabs(result - wanted[i]);
        const int same = isnan(wanted[i])   ? isnan(result)
                         : isinf(wanted[i]) ? result == wanted[i]
                                            : difference <= 1e-5 * (1.0 + fabs(wanted[i]));
        if (!same)
            fail_msg("%s, tq %d tk %d dk %d dv %d, %s, masking %d: %s[%d] is %.9g instead of %.9g", table, (int)call.tq,
                     (int)call.tk, (int)call.dk, (int)call.dv, attn_dtype_name(call.dtype), (int)call.masking, what,
                     (int)i, result, wanted[i]);
    }
}

static void check_call(void)
{
    round_inputs();
    compute();
    for (int t = 0; t < num_tables; t++) {
        run(&tables[t].kernels);
        compare(tables[t].name, "out", got.out, expected.out, call.tq * call.dv);
        compare(tables[t].name, "lse", got.lse, expected.lse, call.tq);
        for (int64_t i = 0; i < call.tq; i++)
            compare(tables[t].name, "weights", got.weights + i * call.tk, expected.weights + i * call.tk, call.tk);
    }
}

/** Head sizes and lengths around words, vectors, register tiles, strips and blocks, with every mask. */
static void test_shapes(void **state)
{
    (void)state;
    static const int64_t head_sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 40, 64, 80, 127, 128, 129, 255, 256};
    static const int64_t queries[] = {1, 2, 7, 8, 9, 17, 23, 24, 25, 48, 53};
    static const int64_t keys[] = {1, 2, 3, 4, 5, 7, 8, 31, 127, 128, 129, 131, 258};
    for (uint64_t n = 0; n < 240; n++) {
        struct rng rng = rng_for_case(22, n);
        const int64_t dk = rng_pick(&rng, head_sizes, sizeof head_sizes / sizeof *head_sizes);
        const int64_t dv = rng_pick(&rng, head_sizes, sizeof head_sizes / sizeof *head_sizes);
        const int64_t tq = rng_pick(&rng, queries, sizeof queries / sizeof *queries);
        const int64_t tk = rng_pick(&rng, keys, sizeof keys / sizeof *keys);
        fill((attn_dtype)rng_range(&rng, ATTN_F32, ATTN_F16), tq, tk, dk, dv, (enum masking)(n % NUM_MASKINGS), n);
        check_call();
    }
}

/** The mean of K is that of the first 512 keys. */
static void test_many_keys(void **state)
{
    (void)state;
    static const int64_t keys[] = {511, 512, 513, 700};
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        fill(ATTN_F32, 30, keys[n], 37, 5, MASKING_NONE, n);
        for (int64_t i = 512 * call.dk; i < call.tk * call.dk; i++)
            call.k[i] += 3.0f;
        check_call();
    }
}

/**
 * The largest integers: words of 255 * 127 of one sign, four of which leave 16 bits, in rows up to the largest head;
 * and ties of the rounding to integers.
 */
static void test_largest_integers(void **state)
{
    (void)state;
    static const int64_t head_sizes[] = {1, 3, 4, 32, 65, 256, 4096};
    static const float values[] = {127.0f, -127.0f, 126.5f, -126.5f, 0.5f, -0.5f, 1.5f, -2.5f, 0.0f};
    for (size_t n = 0; n < sizeof head_sizes / sizeof *head_sizes; n++) {
        struct rng rng = rng_for_case(23, n);
        const int64_t d = head_sizes[n];
        fill(ATTN_F32, 31, 22, d, 3, MASKING_ADDITIVE, n);
        for (int64_t r = 0; r < call.tq; r++)
            for (int64_t c = 0; c < d; c++) {
                const size_t any = (size_t)rng_range(&rng, 0, sizeof values / sizeof *values - 1);
                const float x = r < 2 ? values[r] : c == r % d ? 127.0f : values[any];
                call.q[r * d + c] = x;
                if (r < call.tk)
                    call.k[r * d + c] = r % 2 ? x : -x;
            }
        call.scale = 4.0f / (127.0f * 127.0f * (float)d);
        check_call();
        assert_int_equal(expected.q[d - 1], 127);
        assert_int_equal(expected.k[d - 1], -127);
    }
}

/** Rows that are not finite, and rows of zeros and denormals. */
static void test_special_rows(void **state)
{
    (void)state;
    for (int masking = 0; masking < NUM_MASKINGS; masking++)
        for (int in_keys = 0; in_keys < 2; in_keys++) {
            fill(ATTN_F32, 29, 140, 43, 9, (enum masking)masking, (uint64_t)masking);
            call.q[5 * 43 + 42] = NAN;
            call.q[26 * 43] = -INFINITY;
            for (int c = 0; c < 43; c++)
                call.q[7 * 43 + c] = 0.0f, call.q[8 * 43 + c] = 1e-42f, call.k[6 * 43 + c] = 0.0f;
            for (int c = 0; c < 43 && in_keys; c++)
                call.k[20 * 43 + c] = NAN, call.k[130 * 43 + c] = c == 41 ? INFINITY : 1.0f;
            check_call();
        }
}

/** An int8 set needs the instructions of its own vectors, and is left out by a cap below it. */
static void test_choice(void **state)
{
    (void)state;
    const struct attn_score_kernels *avx2 = attn_cpu_has("avxvnni") ? attn_kernels_avx2_int8.scores : NULL;
    const struct attn_score_kernels *avx512 = attn_cpu_has("avx512f avx512bw avx512dq avx512vl avx512vnni")
                                                  ? attn_kernels_avx512_int8.scores
                                                  : avx2; /* the next one below */
    const struct {
        const char *cap;
        const struct attn_score_kernels *expected;
    } rows[] = {{"scalar", NULL}, {"avx2", avx2}, {"avx512", avx512}, {NULL, avx512}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct attn_kernels kernels;
        const struct attn_demand demand = {.isa = rows[i].cap ? attn_isa_row(rows[i].cap) : 0, .qk = ATTN_QK_INT8};
        assert_int_equal(attn_kernels_choose(&kernels, &demand), rows[i].expected != NULL);
        if (rows[i].expected)
            assert_ptr_equal(kernels.scores, rows[i].expected);
    }
    assert_int_equal(attn_kernels_plain(attn_isa_row("avx2")).scores->int8, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_many_keys), cmocka_unit_test(test_largest_integers),
        cmocka_unit_test(test_special_rows), cmocka_unit_test(test_choice),
    };
    find_tables();
    if (num_tables == 0) {
        printf("skipped: this processor has neither AVX-VNNI nor AVX512-VNNI\n");
        return TEST_SKIPPED;
    }
    for (int i = 0; i < num_tables; i++)
        printf("kernels: %s\n", tables[i].name);
    for (int i = 0; i < 3; i++)
        guards[i] = guard_create(LARGEST * sizeof(float));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
