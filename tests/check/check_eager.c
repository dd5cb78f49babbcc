/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the library ever worse than what it replaces? Compares its largest error
 * with that of a computation step by step in the same type, as frameworks
 * without a fused kernel do it: scores and weights stored in the type of q, k
 * and v between the steps, sums in f32, out rounded at last (support/naive.c).
 *
 *     check_eager --isa avx512_bf16 --cases 3000 [--seed N]
 *
 * Of random cases those count whose values are normal, whose q, k, v and out
 * have one type, and that add nothing to the scores (masks, biases, callbacks),
 * which a step in f16 may turn into -Inf. Errors are in units of that type: what one rounding of
 * 2^-24, 2^-8 or 2^-11 does to the element (support/oracle.c), and include the
 * rounding of out. The largest of the library must stay within TOLERANCE_FACTOR
 * times the largest of the other. check_forward is the sharper test, case by
 * case; this one gives the table in docs/numerics.md.
 */
#include "arguments.h"
#include "case.h"
#include "dtype.h"
#include "oracle.h"
#include "tolerance.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The largest of few cases says little of the largest there can be; runs under emulators do not judge it. */
#define FEW 300

struct largest {
    double library, naive;
    int64_t at; /**< the case of the library's */
};

/** Takes the errors of one output over. scale is a unit of the type in those of the reference. */
static void measure(struct largest *largest, const attn_tensor *t, const int64_t *rows, int64_t ref_rows,
                    const double *exact, const double *unit, const double *naive_error, double scale, int64_t index)
{
    if (!t)
        return;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++) {
                    const int64_t row = (b * t->shape[1] + h) * ref_rows + (rows ? rows[i] : i);
                    const int64_t at = row * t->shape[3] + c;
                    if (!isfinite(exact[at]) || !(unit[at] > 0))
                        continue;
                    const double error = fabs((double)tensor_get(t, b, h, i, c) - exact[at]) / (unit[at] * scale);
                    largest->naive = fmax(largest->naive, naive_error[at] / (unit[at] * scale));
                    if (error > largest->library) {
                        largest->library = error;
                        largest->at = index;
                    }
                }
}

static void measure_case(struct largest *largest, const struct test_case *c, int64_t index)
{
    static const double scale[] = {[ATTN_F32] = 1, [ATTN_BF16] = 0x1p16, [ATTN_F16] = 0x1p13};
    const attn_params *p = &c->params;
    const attn_dtype dtype = c->q.dtype;
    struct reference r =
        reference_compute(&c->q, &c->k, &c->v, p, (struct naive_types){.steps = dtype, .out = c->out.dtype});
    measure(&largest[TEST_OUT], &c->out, NULL, r.tq, r.out, r.out_unit, r.naive_out_error, scale[dtype], index);
    measure(&largest[TEST_LSE], p->lse, NULL, r.tq, r.lse, r.lse_unit, r.naive_lse_error, scale[dtype], index);
    measure(&largest[TEST_WEIGHTS], p->weights, p->weight_rows, r.tq, r.weights, r.weights_unit, r.naive_weights_error,
            scale[dtype], index);
    measure(&largest[TEST_KEY_SUMS], p->key_sums, NULL, 1, r.key_sums, r.key_sums_unit, r.naive_key_sums_error,
            scale[dtype], index);
    measure(&largest[TEST_SCORES], p->scores, p->weight_rows, r.tq, r.scores, r.scores_unit, r.naive_scores_error,
            scale[dtype], index);
    reference_free(&r);
}

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 3000);
    static struct test_case c;
    static struct largest largest[3][TEST_OUTPUTS];
    int64_t counted[3] = {0, 0, 0};
    int failures = 0;
    case_initialize(&c);
    guard_catch_faults();
    for (int64_t i = 0; i < arguments.cases; i++) {
        case_generate(&c, arguments.seed, (uint64_t)i, arguments.isa);
        const attn_dtype dtype = c.q.dtype;
        if (c.values != VALUES_NORMAL || c.k.dtype != dtype || c.v.dtype != dtype || c.out.dtype != dtype ||
            (c.params.mask && c.mask.dtype != ATTN_BOOL) || c.params.alibi_slopes || c.params.relative_bias ||
            c.params.callback || c.params.weight_callback)
            continue;
        int length = snprintf(guard_case_line, sizeof guard_case_line,
                              "repeat: check_forward --isa %s --seed %" PRIu64 " --case %" PRId64 "\n  ", arguments.isa,
                              arguments.seed, i);
        case_describe(&c, guard_case_line + length, sizeof guard_case_line - (size_t)length);
        if (attn_forward(&c.q, &c.k, &c.v, &c.out, &c.params) != ATTN_OK) {
            printf("FAILED: %s\n  %s\n", attn_last_error(), guard_case_line);
            failures++;
            continue;
        }
        counted[dtype]++;
        measure_case(largest[dtype], &c, i);
    }
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        for (int i = 0; i < TEST_OUTPUTS && counted[dtype]; i++) {
            const struct largest *l = &largest[dtype][i];
            const int right = l->library <= TOLERANCE_FACTOR * l->naive || counted[dtype] < FEW;
            printf("%s %-4s %-8s largest error %6.3f units (case %" PRId64 "), step by step %6.3f, %" PRId64 " cases\n",
                   counted[dtype] < FEW ? "few   "
                   : right              ? "ok    "
                                        : "FAILED",
                   attn_dtype_name((attn_dtype)dtype), tolerance_table[i].output, l->library, l->at, l->naive,
                   counted[dtype]);
            failures += !right;
        }
    }
    if (counted[ATTN_F32] + counted[ATTN_BF16] + counted[ATTN_F16] == 0 && arguments.cases > 100) {
        printf("FAILED: no case of this seed counts\n");
        failures++;
    }
    case_release(&c);
    return failures != 0;
}
