/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict parsing of the options that the random tests share. A number that
 * does not parse as a whole is an error: a test that runs with a seed other
 * than the one that was asked for would hide the failure it is to repeat.
 */
#include "arguments.h"
#include "random.h"
#include "test_isa.h"

#include <errno.h>
#include <inttypes.h>

int64_t arguments_number(const char *name, const char *text, int64_t lowest)
{
    char *end = NULL;
    errno = 0;
    const long long value = text ? strtoll(text, &end, 10) : -1;
    if (!text || errno || end == text || *end || value < lowest) {
        fprintf(stderr, "%s is %s; expected an integer of at least %" PRId64 "\n", name, text ? text : "missing",
                lowest);
        exit(2);
    }
    return (int64_t)value;
}

int surroundings_are_slow(void)
{
    const char *cases = getenv("ATTN_CHECK_CASES");
    return cases && *cases && arguments_number("ATTN_CHECK_CASES", cases, 1) < 2000;
}

struct arguments arguments_parse(int argc, char **argv, int64_t default_cases)
{
    struct arguments a = {.isa = NULL, .cases = default_cases, .only = -1};
    int has_seed = 0;
    const char *fewer = getenv("ATTN_CHECK_CASES");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("Usage: %s [--isa NAME] [--cases N] [--seed N] [--case N] [--full]\n\n"
               "  --isa NAME  the instruction set (default: the best one)\n"
               "  --cases N   random cases (default: %" PRId64 "; ATTN_CHECK_CASES lowers it)\n"
               "  --seed N    draws them (default: ATTN_CHECK_SEED with the set's name, or the clock)\n"
               "  --case N    this one case only, as after a failure\n"
               "  --full      what is too long for every day, where a test has such a part\n",
               argv[0], default_cases);
        exit(0);
    }
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--full") == 0) {
            a.full = 1;
            continue;
        }
        if (strcmp(argv[i], "--isa") == 0 && value) {
            a.isa = test_isa_from_name(value);
        } else if (strcmp(argv[i], "--cases") == 0) {
            a.cases = arguments_number("--cases", value, 1);
        } else if (strcmp(argv[i], "--seed") == 0) {
            a.seed = (uint64_t)arguments_number("--seed", value, 0);
            has_seed = 1;
        } else if (strcmp(argv[i], "--case") == 0) {
            a.only = arguments_number("--case", value, 0);
        } else {
            fprintf(stderr, "unknown option %s; expected --isa NAME, --cases N, --seed N, --case N or --full\n",
                    argv[i]);
            exit(2);
        }
        i++;
    }
    if (fewer && *fewer) {
        const int64_t limit = arguments_number("ATTN_CHECK_CASES", fewer, 1);
        a.cases = limit < a.cases ? limit : a.cases;
    }
    if (a.isa == NULL)
        a.isa = attn_isa_active();
    if (!has_seed)
        a.seed = rng_seed_of_run(a.isa);
    printf("isa %s, seed %" PRIu64 ", %" PRId64 " cases\n", a.isa, a.seed, a.cases);
    fflush(stdout);
    return a;
}
