/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn info: what the library is, what it found, and what it would use. Which
 * OpenMP runtime is loaded is read from /proc/self/maps, where every library
 * stands by the path it was loaded from. Two runtimes in one process each make
 * their own threads: they fight for the cores, or hang.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <attn/attn.h>
#include <sleef.h>

#include "commands.h"
#include "options.h"
#include "wording.h"

enum { INFO_HELP, INFO_VERSION, INFO_QUIET, INFO_COUNT };
enum { MAX_LIBRARIES = 8 };

struct libraries {
    int count;
    char *paths[MAX_LIBRARIES];
};

static void remember(struct libraries *found, const char *path)
{
    for (int i = 0; i < found->count; i++) {
        if (strcmp(found->paths[i], path) == 0)
            return;
    }
    char *copy = found->count < MAX_LIBRARIES ? strdup(path) : NULL;
    if (copy != NULL)
        found->paths[found->count++] = copy;
}

/* Packages rename the libraries they carry, as in libgomp-1a2b3c.so.1, so the start of the name decides. */
static bool is_library(const char *path, const char *const *stems)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    for (int i = 0; stems[i] != NULL; i++) {
        size_t length = strlen(stems[i]);
        if (strncmp(base, stems[i], length) == 0 && (base[length] == '.' || base[length] == '-'))
            return true;
    }
    return false;
}

/* Lists the loaded libraries with one of the names; false if the system does not tell. */
static bool find_libraries(struct libraries *found, const char *const *stems)
{
    *found = (struct libraries){.count = 0};
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return false;
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, maps) >= 0) {
        char *path = strchr(line, '/');
        if (path == NULL)
            continue;
        path[strcspn(path, "\n")] = '\0';
        if (is_library(path, stems))
            remember(found, path);
    }
    free(line);
    fclose(maps);
    return true;
}

static void free_libraries(struct libraries *found)
{
    for (int i = 0; i < found->count; i++)
        free(found->paths[i]);
}

static void print_libraries(const char *title, bool known, const struct libraries *found)
{
    if (!known)
        printf("%-22s unknown: /proc/self/maps cannot be read\n", title);
    else if (found->count == 0)
        printf("%-22s none loaded\n", title);
    for (int i = 0; i < found->count; i++)
        printf("%-22s %s\n", i == 0 ? title : "", found->paths[i]);
}

/* Sets that multiply pairs of bf16 have names that say so. */
static bool has_pairs(const char *name)
{
    static const char suffix[] = "_bf16";
    const size_t length = strlen(name), end = sizeof suffix - 1;
    return length > end && strcmp(name + length - end, suffix) == 0;
}

static void print_bf16(void)
{
    const char *const active = attn_isa_active(), *name;
    printf("\n%-22s", "bf16 dot products");
    if (has_pairs(active)) {
        printf(" found (%s)\n", active);
        return;
    }
    for (int isa = 0; (name = attn_isa_name(isa)) != NULL; isa++) {
        if (!has_pairs(name) || !attn_isa_supported(name))
            continue;
        printf(" found (%s), but not used: bf16 is widened\n", name);
        return;
    }
    printf(" not found: bf16 is widened\n");
}

static void print_instruction_sets(void)
{
    printf("%-22s", "instruction sets");
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (attn_isa_supported(attn_isa_name(isa)))
            printf(" %s", attn_isa_name(isa));
    }
    print_bf16();
    printf("%-22s %s", "chosen", attn_isa_active());
    const char *cap = getenv("ATTN_MAX_CPU_ISA");
    if (cap != NULL && cap[0] != '\0')
        printf(" (ATTN_MAX_CPU_ISA=%s)", cap);
    printf("\n");
}

/* What a plan of such a call picks: its description between the shapes and the block sizes. */
static void print_kernels(const char *title, attn_dtype dtype, attn_qk qk)
{
    float zeros[64] = {0}, results[64];
    attn_tensor t = attn_bhtd(zeros, 1, 1, 1, 64), out = attn_bhtd(results, 1, 1, 1, 64);
    attn_params params = attn_params_default();
    attn_plan *plan = NULL;
    char text[512] = "";
    t.dtype = out.dtype = dtype;
    params.qk = qk;
    if (reworded(WORDING_RUN, attn_plan_create(&plan, &t, &t, &t, &out, &params)) == ATTN_OK) {
        attn_plan_describe(plan, text, sizeof text);
        const char *shapes_end = strstr(text, ": ");
        char *blocks = strstr(text, ", strips");
        if (blocks != NULL)
            *blocks = '\0';
        printf("%-22s %s\n", title, shapes_end != NULL ? shapes_end + 2 : text);
    } else {
        printf("%-22s none: %s\n", title, attn_last_error());
    }
    attn_plan_destroy(plan);
}

/* The settings that decide about threads and kernels, where they are not the default. */
static void print_environment(void)
{
    static const char *const names[] = {"ATTN_MAX_CPU_ISA",      "ATTN_NUM_THREADS",  "ATTN_VERBOSE",
                                        "OMP_NUM_THREADS",       "OMP_THREAD_LIMIT",  "OMP_DYNAMIC",
                                        "OMP_PROC_BIND",         "OMP_PLACES",        "OMP_WAIT_POLICY",
                                        "OMP_MAX_ACTIVE_LEVELS", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
    const char *title = "environment";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value == NULL || value[0] == '\0')
            continue;
        printf("%-22s %s=%s\n", title, names[i], value);
        title = "";
    }
    if (title[0] != '\0')
        printf("%-22s nothing set\n", title);
}

/* As the kernel names it; AArch64's does not. */
static void print_processor(void)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    while (file != NULL && !found && getline(&line, &capacity, file) >= 0) {
        const char *colon = strchr(line, ':');
        found = strncmp(line, "model name", 10) == 0 && colon != NULL;
        if (found)
            printf("%-22s%.*s\n", "processor", (int)strcspn(colon + 1, "\n"), colon + 1);
    }
    if (!found)
        printf("%-22s unknown\n", "processor");
    free(line);
    if (file != NULL)
        fclose(file);
}

static void print_caches(void)
{
    for (int level = 1; level <= 3; level++) {
        char title[32];
        size_t size = attn_cache_size(level);
        snprintf(title, sizeof title, "L%d data cache", level);
        if (size > 0)
            printf("%-22s %zu KiB\n", title, size / 1024);
        else
            printf("%-22s unknown\n", title);
    }
}

static void print_info(void)
{
    static const char *const openmp[] = {"libgomp", "libomp", "libomp5", "libiomp5", NULL};
    static const char *const sleef[] = {"libsleef", NULL};
    int built = ATTN_VERSION, loaded = attn_version();

    printf("%-22s %s\n", "libattn", attn_version_string());
    printf("%-22s %d.%d.%d\n", "built against", built / 10000, built / 100 % 100, built % 100);
    if (loaded / 10000 != built / 10000)
        fprintf(stderr, "attn: warning: the loaded libattn %s is of another major version\n", attn_version_string());
    print_processor();
    print_instruction_sets();
    print_kernels("f32 kernels", ATTN_F32, ATTN_QK_DEFAULT);
    print_kernels("bf16 kernels", ATTN_BF16, ATTN_QK_DEFAULT);
    print_kernels("f16 kernels", ATTN_F16, ATTN_QK_DEFAULT);
    print_kernels("int8 scores", ATTN_F32, ATTN_QK_INT8);
    print_kernels("int8 scores, bf16", ATTN_BF16, ATTN_QK_INT8);
    print_caches();
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        printf("%-22s %d of %ld\n", "processors usable", CPU_COUNT(&allowed), sysconf(_SC_NPROCESSORS_ONLN));
    else
        printf("%-22s %ld\n", "processors online", sysconf(_SC_NPROCESSORS_ONLN));
    printf("%-22s %d\n", "threads", attn_default_num_threads());
    print_environment();

    struct libraries found;
    bool known = find_libraries(&found, openmp);
    print_libraries("OpenMP runtime", known, &found);
    if (found.count > 1)
        command_note("warning: %d OpenMP runtimes are loaded; expected one, as two fight for the cores or hang",
                     found.count);
    free_libraries(&found);
    printf("%-22s %d.%d.%d (headers)\n", "SLEEF", SLEEF_VERSION_MAJOR, SLEEF_VERSION_MINOR, SLEEF_VERSION_PATCHLEVEL);
    known = find_libraries(&found, sleef);
    print_libraries("", known, &found);
    free_libraries(&found);
}

attn_status command_info(int argc, char *const *argv)
{
    struct option options[INFO_COUNT] = {
        [INFO_HELP] = OPTION_ROW_HELP,
        [INFO_VERSION] = OPTION_ROW_VERSION,
        [INFO_QUIET] = OPTION_ROW_QUIET,
    };
    struct operands operands;
    CHECK(options_parse(options, INFO_COUNT, argc, argv, &operands, 0));
    command_quiet(&options[INFO_QUIET]);
    if (options[INFO_HELP].value != NULL) {
        printf("Usage: attn info [OPTION]...\n\n"
               "Shows versions, the processor, instruction sets, which kernels a call of each type\n"
               "gets, caches, threads, what is set in the environment, and the OpenMP runtime;\n"
               "warns when two OpenMP runtimes are loaded.\n\n");
        options_print(stdout, options, INFO_COUNT);
    } else if (options[INFO_VERSION].value != NULL) {
        print_version();
    } else {
        print_info();
    }
    return ATTN_OK;
}
