/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two instruction sets whose sums are defined to be the same give the same bits
 * on random cases, in every output: BFMMLA is two BFDOT one after the other, so
 * neon_bf16mm is held to neon_bf16.
 *
 *     check_twins --isa neon_bf16mm --cases 2000 [--seed N] [--case N]
 */
#include "arguments.h"
#include "case.h"
#include "dtype.h"
#include "test_isa.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const twins[][2] = {{"neon_bf16mm", "neon_bf16"}};

static struct {
    float *at;
    int64_t count, capacity;
} results[2];

static void take(int which, const attn_tensor *t)
{
    if (!t)
        return;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++) {
                    if (results[which].count == results[which].capacity) {
                        results[which].capacity = 2 * results[which].capacity + 1024;
                        results[which].at = realloc(results[which].at, (size_t)results[which].capacity * sizeof(float));
                        if (!results[which].at) {
                            fprintf(stderr, "no memory for %" PRId64 " results\n", results[which].capacity);
                            exit(1);
                        }
                    }
                    results[which].at[results[which].count++] = tensor_get(t, b, h, i, c);
                }
}

/** All outputs of a case on one set. */
static int compute(int which, struct test_case *c, uint64_t seed, uint64_t index, const char *isa)
{
    case_generate(c, seed, index, isa);
    c->params.sums = ATTN_SUMS_ORDERED; /* a set may lack free ones that its twin has */
    results[which].count = 0;
    if (attn_forward(&c->q, &c->k, &c->v, &c->out, &c->params) != ATTN_OK)
        return 0;
    take(which, &c->out);
    take(which, c->params.lse);
    take(which, c->params.weights);
    take(which, c->params.key_sums);
    take(which, c->params.scores);
    return 1;
}

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 2000);
    const char *twin = NULL;
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        twin = strcmp(twins[i][0], arguments.isa) == 0 ? test_isa_from_name(twins[i][1]) : twin;
    if (!twin) {
        fprintf(stderr, "--isa is %s; expected a set that has a twin\n", arguments.isa);
        return 2;
    }
    static struct test_case c;
    int failures = 0;
    int64_t compared = 0;
    case_initialize(&c);
    guard_catch_faults();
    const int64_t first = arguments.only >= 0 ? arguments.only : 0;
    const int64_t end = arguments.only >= 0 ? first + 1 : arguments.cases;
    for (int64_t i = first; i < end && failures < 10; i++) {
        snprintf(guard_case_line, sizeof guard_case_line,
                 "repeat: check_twins --isa %s --seed %" PRIu64 " --case %" PRId64, arguments.isa, arguments.seed, i);
        const int ran = compute(0, &c, arguments.seed, (uint64_t)i, twin) &&
                        compute(1, &c, arguments.seed, (uint64_t)i, arguments.isa);
        int64_t at = 0;
        for (; ran && at < results[0].count && at < results[1].count; at++)
            if (memcmp(results[0].at + at, results[1].at + at, sizeof(float)) != 0 &&
                !(isnan(results[0].at[at]) && isnan(results[1].at[at])))
                break;
        compared += at;
        if (ran && at == results[0].count && at == results[1].count)
            continue;
        failures++;
        if (!ran)
            printf("FAILED: case %" PRId64 ": %s\n  %s\n", i, attn_last_error(), guard_case_line);
        else
            printf("FAILED: case %" PRId64 ": result %" PRId64 " of %" PRId64 " is %a, and %a on %s\n  %s\n", i, at,
                   results[1].count, (double)results[1].at[at], (double)results[0].at[at], twin, guard_case_line);
    }
    printf("%" PRId64 " results have the bits of %s; %d failures\n", compared, twin, failures);
    case_release(&c);
    free(results[0].at);
    free(results[1].at);
    return failures != 0 || (compared == 0 && end - first > 10);
}
