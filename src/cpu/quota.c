/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quota of a control group: containers are given two processors of 64 by a
 * limit on time, which no mask of processors shows. More threads than that all
 * stop together for the rest of each period.
 *
 * Version 2 of control groups has a file cpu.max, "quota period" or "max period", in the folder of each group; version
 * 1 has cpu.cfs_quota_us and cpu.cfs_period_us, and a hierarchy for processors alone. A process in a namespace of
 * groups sees its own as the root.
 */
#include "cpu/quota.h"

#include "cpu/cancellation.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Longer paths are left out. */
#define MOST_PATH 1024

/** The first two words of a file as numbers; returns how many there are. */
static int read_numbers(const char *folder, const char *name, long long numbers[2])
{
    char path[2 * MOST_PATH];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const int read = fscanf(file, "%lld %lld", &numbers[0], &numbers[1]);
    fclose(file);
    return read < 0 ? 0 : read;
}

/** The quota of the group of a folder alone. */
static int quota_of_folder(const char *folder)
{
    long long numbers[2], period[2];
    if (read_numbers(folder, "cpu.max", numbers) < 2) {
        if (read_numbers(folder, "cpu.cfs_quota_us", numbers) < 1 ||
            read_numbers(folder, "cpu.cfs_period_us", period) < 1)
            return 0;
        numbers[1] = period[0];
    }
    if (numbers[0] <= 0 || numbers[1] <= 0)
        return 0;
    const long long whole = numbers[0] / numbers[1] + (numbers[0] % numbers[1] > 0);
    return whole < INT_MAX ? (int)whole : INT_MAX;
}

static int smaller(int a, int b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/** The smallest quota of the group at a path and of those around it. */
static int quota_of_path(const char *root, const char *path)
{
    char folder[2 * MOST_PATH];
    int quota = 0;
    const int length = snprintf(folder, sizeof folder, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof folder)
        return 0;
    const size_t end = strlen(root);
    for (;;) {
        quota = smaller(quota, quota_of_folder(folder));
        char *const slash = strrchr(folder + end, '/');
        if (!slash)
            return quota;
        *slash = '\0';
    }
}

/** Whether a list of controllers, commas between, names the one of processors. */
static int names_cpu(const char *list, const char *end)
{
    for (const char *at = list; at < end;) {
        const char *const comma = memchr(at, ',', (size_t)(end - at)), *const stop = comma ? comma : end;
        if (stop - at == 3 && memcmp(at, "cpu", 3) == 0)
            return 1;
        at = stop + 1;
    }
    return 0;
}

int attn_cpu_quota_of(const char *membership, const char *root)
{
    char line[MOST_PATH], own[MOST_PATH + 8];
    int quota = 0;
    FILE *file = fopen(membership, "re");
    while (file && fgets(line, sizeof line, file)) { /* number:controllers:path */
        char *const controllers = strchr(line, ':'), *const path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || path[1] != '/')
            continue;
        path[1 + strcspn(path + 1, "\n")] = '\0';
        if (path == controllers + 1) {
            quota = smaller(quota, quota_of_path(root, path + 1));
        } else if (names_cpu(controllers + 1, path)) {
            snprintf(own, sizeof own, "%s/cpu", root);
            quota = smaller(quota, quota_of_path(own, path + 1));
        }
    }
    if (file)
        fclose(file);
    return quota;
}

static int found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
    ATTN_UNCANCELLED; /* files are read */
    found = attn_cpu_quota_of("/proc/self/cgroup", "/sys/fs/cgroup");
}

int attn_cpu_quota(void)
{
    pthread_once(&once, find);
    return found;
}
