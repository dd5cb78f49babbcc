/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache sizes as Linux reports them in sysfs for the first processor. That
 * file tree is the same on x86-64 and AArch64, where sysconf() knows nothing.
 */
#include "attn/attn.h"
#include "cpu/cancellation.h"

#include <stdio.h>
#include <string.h>

/** Reads one line of an attribute of cache number index; 0 when there is none. */
static int read_attribute(int index, const char *name, char *line, int size)
{
    char path[96];
    ATTN_UNCANCELLED;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const int got = fgets(line, size, file) != NULL;
    fclose(file);
    return got;
}

size_t attn_cache_size(int level)
{
    char line[32];
    for (int index = 0; read_attribute(index, "level", line, sizeof line); index++) {
        int found = 0;
        unsigned long size = 0;
        char unit = 0;
        if (sscanf(line, "%d", &found) != 1 || found != level)
            continue;
        if (!read_attribute(index, "type", line, sizeof line) || strncmp(line, "Instruction", 11) == 0)
            continue;
        if (!read_attribute(index, "size", line, sizeof line) || sscanf(line, "%lu%c", &size, &unit) < 1)
            continue;
        return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
    }
    return 0;
}
