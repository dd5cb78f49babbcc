/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTN_MAX_CPU_ISA, ATTN_NUM_THREADS and ATTN_VERBOSE. They are read at the
 * first call and never again, so a process sees one setting throughout. A
 * value that means nothing is reported once and then taken as not set.
 */
#include "api/environment.h"

#include "cpu/cancellation.h"
#include "dispatch.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct attn_environment environment;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void warn(const char *name, const char *value, const char *expected)
{
    fprintf(stderr, "attn: %s=%s is ignored; expected %s\n", name, value, expected);
}

static int read_max_isa(const char *value)
{
    const int row = attn_isa_row(value);
    char names[128];
    if (row)
        return row;
    attn_isa_list(names, sizeof names);
    warn("ATTN_MAX_CPU_ISA", value, names);
    return 0;
}

static int read_num_threads(const char *value)
{
    char *end;
    errno = 0;
    const long n = strtol(value, &end, 10);
    if (end != value && *end == 0 && errno == 0 && n >= 1 && n <= INT_MAX)
        return (int)n;
    warn("ATTN_NUM_THREADS", value, "a number from 1");
    return 0;
}

static int read_verbose(const char *value)
{
    if (strcmp(value, "0") == 0 || strcmp(value, "1") == 0)
        return value[0] == '1';
    warn("ATTN_VERBOSE", value, "0 or 1");
    return 0;
}

static void read_environment(void)
{
    const char *value;
    ATTN_UNCANCELLED; /* what is ignored is said on stderr */
    if ((value = getenv("ATTN_MAX_CPU_ISA")) && *value)
        environment.max_isa = read_max_isa(value);
    if ((value = getenv("ATTN_NUM_THREADS")) && *value)
        environment.num_threads = read_num_threads(value);
    if ((value = getenv("ATTN_VERBOSE")) && *value)
        environment.verbose = read_verbose(value);
}

const struct attn_environment *attn_environment(void)
{
    pthread_once(&once, read_environment);
    return &environment;
}

const char *attn_isa_active(void)
{
    struct attn_kernels kernels;
    const struct attn_demand demand = {.isa = attn_environment()->max_isa, .pairs = 1};
    attn_kernels_choose(&kernels, &demand);
    return kernels.isa;
}
