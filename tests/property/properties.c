/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop over properties and cases. Every (property, case) pair has its own
 * generator, so --case N repeats one case of every property alone.
 */
#include "properties.h"

#include "arguments.h"
#include "guard.h"

#include <inttypes.h>
#include <stdio.h>

/** Failures of one property that are printed before the next one has its turn. */
#define MAX_FAILURES 3

int properties_run(int argc, char **argv, const char *program, const struct property *properties, int n)
{
    const struct arguments arguments = arguments_parse(argc, argv, 100);
    const int64_t first = arguments.only >= 0 ? arguments.only : 0;
    const int64_t end = arguments.only >= 0 ? first + 1 : arguments.cases;
    int failed_properties = 0;
    guard_catch_faults();
    for (int i = 0; i < n; i++) {
        int failures = 0;
        for (int64_t c = first; c < end && failures < MAX_FAILURES; c++) {
            struct rng rng = rng_for_case(arguments.seed, (uint64_t)c * 64 + (uint64_t)i);
            snprintf(guard_case_line, sizeof guard_case_line,
                     "%s: repeat: %s --isa %s --seed %" PRIu64 " --case %" PRId64, properties[i].name, program,
                     arguments.isa, arguments.seed, c);
            if (properties[i].holds(&rng, arguments.isa))
                continue;
            failures++;
            printf("FAILED: %s\n", guard_case_line);
            fflush(stdout);
        }
        printf("%s  %s\n", failures ? "FAILED" : "ok    ", properties[i].name);
        failed_properties += failures > 0;
    }
    return failed_properties != 0;
}
