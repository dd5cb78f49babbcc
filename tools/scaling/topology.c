/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /sys and /proc, where hwloc has it from, too. Sockets and cores are
 * counted among the processors that this process may use.
 */
#include "topology.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define MOST_NODES  64
#define MOST_CACHES 8

/** The first line of a file below /sys/devices/system; 0: there is none. */
static int read_line(const char *path, char *line, int size)
{
    char whole[160];
    snprintf(whole, sizeof whole, "/sys/devices/system/%s", path);
    FILE *file = fopen(whole, "re");
    if (!file)
        return 0;
    const int read = fgets(line, size, file) != NULL;
    fclose(file);
    if (read)
        line[strcspn(line, "\n")] = '\0';
    return read;
}

/** Processors of a list as "0-3,8". */
static int count_list(const char *list)
{
    int count = 0;
    while (*list) {
        char *end;
        const long first = strtol(list, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        count += last >= first ? (int)(last - first) + 1 : 0;
        if (end == list || (*end != ',' && *end != '\0'))
            break;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

/** The processors of all of OpenMP's threads: with OMP_PROC_BIND each is bound to some, the first one, too. */
static cpu_set_t allowed_processors(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
#pragma omp parallel num_threads(omp_get_num_procs())
    {
        cpu_set_t own;
        const int known = sched_getaffinity(0, sizeof own, &own) == 0;
#pragma omp critical
        if (known)
            CPU_OR(&all, &all, &own);
    }
    return all;
}

int scaling_processors(void)
{
    const cpu_set_t allowed = allowed_processors();
    const int count = CPU_COUNT(&allowed);
    return count > 0 ? count : 1;
}

double scaling_memory(void)
{
    char line[128];
    double kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && kib == 0 && fgets(line, sizeof line, file))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtod(line + 13, NULL);
    if (file)
        fclose(file);
    return kib * 1024;
}

/** The value of a line of /proc/cpuinfo. */
static json_t *processor_name(void)
{
    char line[256];
    json_t *name = NULL;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !name && fgets(line, sizeof line, file)) {
        char *const colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon || !colon[1])
            continue;
        line[strcspn(line, "\n")] = '\0';
        name = json_string(colon + 2);
    }
    if (file)
        fclose(file);
    return name;
}

/** How many different numbers stand in that file of each allowed processor, taken together with those of another one.
 */
static int count_kinds(const cpu_set_t *allowed, const char *name, const char *within)
{
    static long kinds[CPU_SETSIZE];
    int count = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[128], line[32];
        if (!CPU_ISSET(cpu, allowed))
            continue;
        snprintf(path, sizeof path, "cpu/cpu%zu/topology/%s", cpu, name);
        if (!read_line(path, line, sizeof line))
            return 0;
        long kind = strtol(line, NULL, 10);
        snprintf(path, sizeof path, "cpu/cpu%zu/topology/%s", cpu, within);
        if (read_line(path, line, sizeof line))
            kind += strtol(line, NULL, 10) * 65536;
        int i = 0;
        while (i < count && kinds[i] != kind)
            i++;
        kinds[i] = kind;
        count += i == count;
    }
    return count;
}

static json_t *list_nodes(void)
{
    json_t *nodes = json_array();
    for (int node = 0; node < MOST_NODES; node++) {
        char path[64], line[512];
        snprintf(path, sizeof path, "node/node%d/cpulist", node);
        if (read_line(path, line, sizeof line))
            json_array_append_new(nodes, json_string(line));
    }
    return nodes;
}

static json_t *list_caches(void)
{
    json_t *caches = json_array();
    for (int i = 0; i < MOST_CACHES; i++) {
        char path[64], level[16], type[32], size[32], shared[512];
        snprintf(path, sizeof path, "cpu/cpu0/cache/index%d/level", i);
        if (!read_line(path, level, sizeof level))
            break;
        snprintf(path, sizeof path, "cpu/cpu0/cache/index%d/type", i);
        const int has_type = read_line(path, type, sizeof type);
        snprintf(path, sizeof path, "cpu/cpu0/cache/index%d/size", i);
        const int has_size = read_line(path, size, sizeof size);
        snprintf(path, sizeof path, "cpu/cpu0/cache/index%d/shared_cpu_list", i);
        const int has_list = read_line(path, shared, sizeof shared);
        if (has_type && has_size && strcmp(type, "Instruction") != 0)
            json_array_append_new(caches, json_pack("{s:i, s:s, s:i}", "level", atoi(level), "size", size, "shared_by",
                                                    has_list ? count_list(shared) : 0));
    }
    return caches;
}

static json_t *list_settings(void)
{
    static const char *const names[] = {"OMP_NUM_THREADS",  "OMP_PROC_BIND",     "OMP_PLACES",    "OMP_WAIT_POLICY",
                                        "GOMP_SPINCOUNT",   "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME", "KMP_AFFINITY",
                                        "ATTN_NUM_THREADS", "ATTN_MAX_CPU_ISA"};
    json_t *settings = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            json_object_set_new(settings, names[i], json_string(getenv(names[i])));
    return settings;
}

static void set_count(json_t *object, const char *key, int count)
{
    if (count > 0)
        json_object_set_new(object, key, json_integer(count));
}

json_t *scaling_topology(void)
{
    const cpu_set_t allowed = allowed_processors();
    struct utsname system;
    json_t *topology = json_object();
    json_t *name = processor_name();
    if (name)
        json_object_set_new(topology, "processor", name);
    set_count(topology, "processors", scaling_processors());
    set_count(topology, "cores", count_kinds(&allowed, "core_id", "physical_package_id"));
    set_count(topology, "sockets", count_kinds(&allowed, "physical_package_id", "physical_package_id"));
    json_object_set_new(topology, "nodes", list_nodes());
    json_object_set_new(topology, "caches", list_caches());
    if (uname(&system) == 0)
        json_object_set_new(
            topology, "system",
            json_pack("{s:s, s:s, s:s}", "name", system.sysname, "release", system.release, "machine", system.machine));
    json_object_set_new(topology, "environment", list_settings());
    return topology;
}
