/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the library, the environment and the system. Which OpenMP runtime is loaded
 * is read from /proc/self/maps, where every library stands by the path it was
 * loaded from. Two runtimes in one process each make their own threads: they fight
 * for the cores, or hang.
 */
#include "machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <attn/attn.h>
#include <sleef.h>

#include "wording.h"

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

static void remember(json_t *paths, const char *path)
{
    size_t i;
    json_t *known;
    json_array_foreach(paths, i, known)
    {
        if (strcmp(json_string_value(known), path) == 0)
            return;
    }
    /* A path that is not UTF-8 has no place in JSON. */
    json_t *text = json_string(path);
    json_array_append_new(paths, text != NULL ? text : json_string("(a path that is not UTF-8)"));
}

/* The loaded libraries with one of the names; null if the system does not tell. */
static json_t *find_libraries(const char *const *stems)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return json_null();
    json_t *paths = json_array();
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, maps) >= 0) {
        char *path = strchr(line, '/');
        if (path == NULL)
            continue;
        path[strcspn(path, "\n")] = '\0';
        if (is_library(path, stems))
            remember(paths, path);
    }
    free(line);
    fclose(maps);
    return paths;
}

/* Sets that multiply pairs of bf16 have names that say so. */
static bool has_pairs(const char *name)
{
    static const char suffix[] = "_bf16";
    const size_t length = strlen(name), end = sizeof suffix - 1;
    return length > end && strcmp(name + length - end, suffix) == 0;
}

static json_t *describe_bf16(void)
{
    const char *found = has_pairs(attn_isa_active()) ? attn_isa_active() : NULL, *name;
    const bool used = found != NULL;
    for (int isa = 0; found == NULL && (name = attn_isa_name(isa)) != NULL; isa++) {
        if (has_pairs(name) && attn_isa_supported(name))
            found = name;
    }
    return json_pack("{s:s?, s:b}", "found", found, "used", used);
}

static json_t *describe_sets(void)
{
    json_t *sets = json_array();
    for (int isa = 0; attn_isa_name(isa) != NULL; isa++) {
        if (attn_isa_supported(attn_isa_name(isa)))
            json_array_append_new(sets, json_string(attn_isa_name(isa)));
    }
    return sets;
}

/* What a plan of such a call picks: its description between the shapes and the block sizes; or why there is none. */
static json_t *describe_kernel(attn_dtype dtype, attn_qk qk)
{
    float zeros[64] = {0}, results[64];
    attn_tensor t = attn_bhtd(zeros, 1, 1, 1, 64), out = attn_bhtd(results, 1, 1, 1, 64);
    attn_params params = attn_params_default();
    attn_plan *plan = NULL;
    char text[512] = "";
    json_t *kernel;
    t.dtype = out.dtype = dtype;
    params.qk = qk;
    if (reworded(WORDING_RUN, attn_plan_create(&plan, &t, &t, &t, &out, &params)) == ATTN_OK) {
        attn_plan_describe(plan, text, sizeof text);
        const char *shapes_end = strstr(text, ": ");
        char *blocks = strstr(text, ", strips");
        if (blocks != NULL)
            *blocks = '\0';
        kernel = json_pack("{s:s, s:n}", "plan", shapes_end != NULL ? shapes_end + 2 : text, "refused");
    } else {
        kernel = json_pack("{s:n, s:s}", "plan", "refused", attn_last_error());
    }
    attn_plan_destroy(plan);
    return kernel;
}

/* The settings that decide about threads and kernels, where they are not the default. */
static json_t *describe_environment(void)
{
    static const char *const names[] = {"ATTN_MAX_CPU_ISA",      "ATTN_NUM_THREADS",  "ATTN_VERBOSE",
                                        "OMP_NUM_THREADS",       "OMP_THREAD_LIMIT",  "OMP_DYNAMIC",
                                        "OMP_PROC_BIND",         "OMP_PLACES",        "OMP_WAIT_POLICY",
                                        "OMP_MAX_ACTIVE_LEVELS", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
    json_t *settings = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value == NULL || value[0] == '\0')
            continue;
        json_t *text = json_string(value);
        json_object_set_new(settings, names[i], text != NULL ? text : json_string("(not UTF-8)"));
    }
    return settings;
}

/* As the kernel names it; AArch64's does not. */
static json_t *describe_processor(void)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t capacity = 0;
    json_t *processor = NULL;
    while (file != NULL && processor == NULL && getline(&line, &capacity, file) >= 0) {
        char *name = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || name == NULL)
            continue;
        name += strspn(name, ": ");
        name[strcspn(name, "\n")] = '\0';
        processor = json_string(name);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return processor != NULL ? processor : json_null();
}

static json_t *describe_caches(void)
{
    json_t *caches = json_array();
    for (int level = 1; level <= 3; level++) {
        const size_t size = attn_cache_size(level);
        json_array_append_new(caches, size > 0 ? json_integer((json_int_t)size) : json_null());
    }
    return caches;
}

static json_t *describe_processors(void)
{
    cpu_set_t allowed;
    const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    json_t *usable = known ? json_integer(CPU_COUNT(&allowed)) : json_null();
    return json_pack("{s:o, s:I}", "usable", usable, "online", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN));
}

static json_t *find_warnings(const json_t *openmp)
{
    json_t *warnings = json_array();
    if (attn_version() / 10000 != ATTN_VERSION / 10000)
        json_array_append_new(warnings,
                              json_sprintf("the loaded libattn %s is of another major version", attn_version_string()));
    if (json_array_size(openmp) > 1)
        json_array_append_new(
            warnings, json_sprintf("%zu OpenMP runtimes are loaded; expected one, as two fight for the cores or hang",
                                   json_array_size(openmp)));
    return warnings;
}

json_t *machine_describe(void)
{
    static const char *const openmp_names[] = {"libgomp", "libomp", "libomp5", "libiomp5", NULL};
    static const char *const sleef_names[] = {"libsleef", NULL};
    static const int built = ATTN_VERSION;
    json_t *openmp = find_libraries(openmp_names);
    json_t *kernels = json_pack(
        "{s:o, s:o, s:o, s:o, s:o}", "f32", describe_kernel(ATTN_F32, ATTN_QK_DEFAULT), "bf16",
        describe_kernel(ATTN_BF16, ATTN_QK_DEFAULT), "f16", describe_kernel(ATTN_F16, ATTN_QK_DEFAULT), "int8_scores",
        describe_kernel(ATTN_F32, ATTN_QK_INT8), "int8_scores_bf16", describe_kernel(ATTN_BF16, ATTN_QK_INT8));
    json_t *sleef =
        json_pack("{s:o, s:o}", "headers",
                  json_sprintf("%d.%d.%d", SLEEF_VERSION_MAJOR, SLEEF_VERSION_MINOR, SLEEF_VERSION_PATCHLEVEL),
                  "libraries", find_libraries(sleef_names));
    json_t *warnings = find_warnings(openmp);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o}", "libattn",
                     attn_version_string(), "built_against",
                     json_sprintf("%d.%d.%d", built / 10000, built / 100 % 100, built % 100), "processor",
                     describe_processor(), "instruction_sets", describe_sets(), "bf16_dot_products", describe_bf16(),
                     "chosen", attn_isa_active(), "kernels", kernels, "data_caches", describe_caches(), "processors",
                     describe_processors(), "threads", attn_default_num_threads(), "environment",
                     describe_environment(), "openmp_runtimes", openmp, "sleef", sleef, "warnings", warnings);
}
