/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks, or times, what the kernels are made of, each piece by itself and on
 * every instruction set:
 *
 *     check_kernels [--isa SET] [--only NAME] [--cases N] [--seed N] [--case N] [--all]
 *     check_kernels --time [--isa SET] [--only NAME]
 *     check_kernels --list
 *
 * Without --isa it takes every set that this processor runs and names the
 * others. A row whose code a set should have and has not is a failure; one that
 * a set has no use for is named.
 */
#include "rows.h"
#include "arguments.h"
#include "cpu/cpu.h"
#include "guard.h"
#include "test_isa.h"
#include "timing.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define SET(name) extern const struct kernel_set kernel_set_##name;
KERNEL_SETS
#undef SET

#define SET(name) &kernel_set_##name,
static const struct kernel_set *const sets[] = {KERNEL_SETS};
#undef SET

#define NUM_SETS ((int)(sizeof sets / sizeof *sets))

static const struct group *const groups[] = {&group_vector_operations,
                                             &group_word_operations,
                                             &group_int4_operations,
                                             &group_f8_operations,
                                             &group_exp2,
                                             &group_scores,
                                             &group_values,
                                             &group_vectors,
                                             &group_matrix_operations,
                                             &group_weights_table,
                                             &group_matrix,
                                             &group_few,
                                             &group_side_by_side,
                                             &group_gradients,
                                             &group_stored,
                                             &group_states,
                                             &group_state_products,
                                             &group_state_steps,
                                             &group_state_columns};

#define NUM_GROUPS   ((int)(sizeof groups / sizeof *groups))
#define MAX_REPORTED 5

struct options {
    const char *isa, *only;
    int list, time, all;
    int64_t cases, single;
    uint64_t seed;
};

static const char usage[] =
    "usage: check_kernels [--isa SET] [--only NAME] [--cases N] [--seed N] [--case N] [--all]\n"
    "       check_kernels --time [--isa SET] [--only NAME]\n"
    "       check_kernels --list\n"
    "  --isa SET    one set of operations, as --list names them; 77 is the exit code where it cannot run\n"
    "  --only NAME  one row, or one group of rows\n"
    "  --cases N    random cases of each row (ATTN_CHECK_CASES lowers it)\n"
    "  --all        every float, for the rows of exp2\n"
    "  --time       print how long a call of each row takes, and judge nothing\n";

static struct options parse(int argc, char **argv)
{
    struct options o = {.cases = DEFAULT_CASES, .single = -1, .seed = rng_seed_of_run(NULL)};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--list") == 0) {
            o.list = 1;
        } else if (strcmp(argv[i], "--time") == 0) {
            o.time = 1;
        } else if (strcmp(argv[i], "--all") == 0) {
            o.all = 1;
        } else if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else {
            if (strcmp(argv[i], "--isa") == 0 && value)
                o.isa = value;
            else if (strcmp(argv[i], "--only") == 0 && value)
                o.only = value;
            else if (strcmp(argv[i], "--cases") == 0)
                o.cases = arguments_number("--cases", value, 1);
            else if (strcmp(argv[i], "--seed") == 0)
                o.seed = (uint64_t)arguments_number("--seed", value, 0);
            else if (strcmp(argv[i], "--case") == 0)
                o.single = arguments_number("--case", value, 0);
            else {
                fprintf(stderr, "unknown option %s, or its value is missing\n%s", argv[i], usage);
                exit(2);
            }
            i++;
        }
    }
    const char *fewer = getenv("ATTN_CHECK_CASES");
    if (fewer && *fewer) {
        const int64_t limit = arguments_number("ATTN_CHECK_CASES", fewer, 1);
        o.cases = limit < o.cases ? limit : o.cases;
    }
    if (o.single >= o.cases)
        o.cases = o.single + 1;
    return o;
}

static int can_run(const struct kernel_set *set)
{
    return attn_cpu_has(set->needs) && (!strstr(set->needs, "amxtile") || attn_cpu_permits_matrix());
}

/** Whether a set should have the code of a row. */
static int uses(const struct kernel_set *set, const struct row *row)
{
    const unsigned tables = (set->kernels->scores ? HAS_SCORES : 0) | (set->kernels->values ? HAS_VALUES : 0) |
                            (set->kernels->values && set->value_pack == 1 ? HAS_FLOAT_VALUES : 0) |
                            (set->kernels->vectors ? HAS_VECTORS : 0) | (set->kernels->gradients ? HAS_GRADIENTS : 0) |
                            (set->kernels->states ? HAS_STATES : 0);
    const int few = set->lanes > 1 && !(set->features & HAS_MATRIX);
    const unsigned of_few = (set->lanes > 1 ? HAS_FEW : 0) |
                            (few && set->score_group == 1 && set->score_pack < 4 ? HAS_FEW_SCORES : 0) |
                            (few && set->value_group == 1 ? HAS_FEW_VALUES : 0);
    return (row->needs & (set->features | tables | of_few)) == row->needs;
}

static const struct kernel_set *set_called(const char *name)
{
    for (int s = 0; s < NUM_SETS; s++)
        if (strcmp(sets[s]->name, name) == 0)
            return sets[s];
    fprintf(stderr, "--isa is %s; expected", name);
    for (int s = 0; s < NUM_SETS; s++)
        fprintf(stderr, "%s %s", s == 0 ? "" : s == NUM_SETS - 1 ? " or" : ",", sets[s]->name);
    fputs("\n", stderr);
    exit(2);
}

static int wanted(const struct options *o, const struct group *group, const struct row *row)
{
    return !o->only || strcmp(o->only, row->name) == 0 || strcmp(o->only, group->name) == 0;
}

/** Ends the program when --only names nothing. */
static void expect_a_row(const struct options *o)
{
    for (int g = 0; g < NUM_GROUPS; g++)
        for (size_t r = 0; r < groups[g]->num_rows; r++)
            if (wanted(o, groups[g], &groups[g]->rows[r]))
                return;
    fprintf(stderr, "--only is %s; expected the name of a row or group, as --list prints them\n", o->only);
    exit(2);
}

void report_failure(struct run *run, int64_t number, const char *format, ...)
{
    if (run->failures++ >= MAX_REPORTED)
        return;
    va_list arguments;
    va_start(arguments, format);
    printf("FAILED: %s: ", run->set);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n  repeat: check_kernels --isa %s --only %s --seed %" PRIu64, run->set, run->row, run->seed);
    if (number >= 0)
        printf(" --case %" PRId64, number);
    puts(run->all ? " --all" : "");
}

struct rng begin_case(const struct run *run, int64_t number)
{
    uint64_t name = 0;
    for (const char *c = run->row; *c; c++)
        name = name * 31 + (unsigned char)*c;
    snprintf(guard_case_line, sizeof guard_case_line,
             "repeat: check_kernels --isa %s --only %s --seed %" PRIu64 " --case %" PRId64, run->set, run->row,
             run->seed, number);
    return rng_for_case(run->seed ^ name, (uint64_t)number);
}

/** Checks the rows that are wanted on one set; the number of rows that failed. */
static int check_set(const struct options *o, const struct kernel_set *set)
{
    int checked = 0, failed = 0, unused = 0;
    for (int g = 0; g < NUM_GROUPS; g++) {
        for (size_t r = 0; r < groups[g]->num_rows; r++) {
            const struct row *row = &groups[g]->rows[r];
            struct run run = {.seed = o->seed,
                              .cases = o->cases,
                              .only = o->single,
                              .all = o->all,
                              .row = row->name,
                              .set = set->name};
            if (!wanted(o, groups[g], row))
                continue;
            if (!uses(set, row)) {
                printf("%s%s", unused++ ? ", " : "  not in this set: ", row->name);
                continue;
            }
            fputs(unused ? "\n" : "", stdout);
            unused = 0;
            checked++;
            if (groups[g]->has_code(row, set))
                groups[g]->check(row, set, &run);
            else
                report_failure(&run, -1, "%s has no code", row->name);
            if (run.failures) {
                printf("FAILED: %s: %s, %" PRId64 " times\n", set->name, row->name, run.failures);
                failed++;
            }
        }
    }
    printf("%s%s: %d rows checked, %d failed\n", unused ? "\n" : "", set->name, checked, failed);
    return failed;
}

/** A line for each row, and a column for each set. */
static void time_rows(const struct options *o, const struct kernel_set *const *which, int num)
{
    printf("%-20s", timing_unit());
    for (int s = 0; s < num; s++)
        printf(" %16s", which[s]->name);
    puts("");
    for (int g = 0; g < NUM_GROUPS; g++) {
        for (size_t r = 0; r < groups[g]->num_rows; r++) {
            const struct row *row = &groups[g]->rows[r];
            if (!wanted(o, groups[g], row))
                continue;
            printf("%-20s", row->name);
            for (int s = 0; s < num; s++) {
                if (uses(which[s], row) && groups[g]->has_code(row, which[s]))
                    printf(" %16.2f", groups[g]->time(row, which[s]));
                else
                    printf(" %16s", "-");
                fflush(stdout);
            }
            puts("");
        }
    }
}

static void list(void)
{
    for (int s = 0; s < NUM_SETS; s++)
        printf("set %s%s\n", sets[s]->name, can_run(sets[s]) ? "" : " (not on this processor)");
    for (int g = 0; g < NUM_GROUPS; g++)
        for (size_t r = 0; r < groups[g]->num_rows; r++)
            printf("%s %s%s\n", groups[g]->name, groups[g]->rows[r].name,
                   groups[g]->rows[r].needs & (HAS_NO_MATRIX | HAS_NO_TABLE) ? " (not of all sets)" : "");
}

int main(int argc, char **argv)
{
    const struct options o = parse(argc, argv);
    const struct kernel_set *which[NUM_SETS];
    int num = 0, failed = 0;
    if (o.list) {
        list();
        return 0;
    }
    expect_a_row(&o);
    if (o.isa) {
        which[num++] = set_called(o.isa);
        if (!can_run(which[0])) {
            printf("skipped: this processor has no %s\n", o.isa);
            return TEST_SKIPPED;
        }
    }
    for (int s = 0; !o.isa && s < NUM_SETS; s++) {
        if (can_run(sets[s]))
            which[num++] = sets[s];
        else
            printf("left out: this processor has no %s\n", sets[s]->name);
    }
    if (o.time) {
        time_rows(&o, which, num);
        return 0;
    }
    printf("seed %" PRIu64 ", %" PRId64 " cases\n", o.seed, o.cases);
    fflush(stdout);
    guard_catch_faults();
    for (int s = 0; s < num; s++)
        failed += check_set(&o, which[s]);
    return failed != 0;
}
