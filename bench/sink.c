/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the data goes: a file or standard output. A regular file is written under a temporary name beside
 * its place and renamed when everything is in it, so that a run which fails or
 * is interrupted leaves an older file as it was. The temporary file is made
 * before the first measurement: a wrong path must not cost minutes. Devices
 * and pipes cannot be replaced and are written directly.
 */
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int sink_error(const char *path, const char *what)
{
    fprintf(stderr, "attn-bench: --out %s cannot be %s: %s\n", path, what, strerror(errno));
    return -1;
}

int bench_sink_open(struct bench_sink *sink, const char *path)
{
    *sink = (struct bench_sink){.file = stdout, .path = path};
    if (path == NULL)
        return 0;
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        sink->file = fopen(path, "w");
        return sink->file != NULL ? 0 : sink_error(path, "opened");
    }
    static const char suffix[] = ".XXXXXX";
    const size_t length = strlen(path);
    sink->temporary = malloc(length + sizeof suffix);
    if (sink->temporary == NULL)
        return sink_error(path, "opened");
    memcpy(sink->temporary, path, length);
    memcpy(sink->temporary + length, suffix, sizeof suffix);
    const int fd = mkstemp(sink->temporary);
    if (fd >= 0) {
        /* mkstemp makes private files; this one is to be an ordinary file of its owner. */
        const mode_t mask = umask(0);
        umask(mask);
        sink->file = fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "w") : NULL;
        if (sink->file != NULL)
            return 0;
        sink_error(path, "opened");
        close(fd);
        unlink(sink->temporary);
    } else {
        sink_error(path, "created");
    }
    free(sink->temporary);
    sink->temporary = NULL;
    sink->file = stdout;
    return -1;
}

int bench_sink_commit(struct bench_sink *sink)
{
    const char *path = sink->path != NULL ? sink->path : "(standard output)";
    if (sink->path == NULL) {
        if (fflush(stdout) == 0 && !ferror(stdout))
            return 0;
        fprintf(stderr, "attn-bench: standard output cannot be written: %s\n", strerror(errno));
        return -1;
    }
    const int failed = ferror(sink->file);
    const int closed = fclose(sink->file);
    sink->file = NULL;
    if (failed != 0 || closed != 0)
        return sink_error(path, "written");
    if (sink->temporary != NULL && rename(sink->temporary, sink->path) != 0)
        return sink_error(path, "written");
    free(sink->temporary);
    sink->temporary = NULL;
    return 0;
}

void bench_sink_discard(struct bench_sink *sink)
{
    if (sink->path != NULL && sink->file != NULL && sink->file != stdout)
        fclose(sink->file);
    sink->file = NULL;
    if (sink->temporary != NULL) {
        unlink(sink->temporary);
        free(sink->temporary);
        sink->temporary = NULL;
    }
}

const char *bench_cpu_name(void)
{
    static char name[128] = "";
    if (name[0] != '\0')
        return name;
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (file != NULL && name[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL)
            snprintf(name, sizeof name, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (file != NULL)
        fclose(file);
    if (name[0] == '\0')
        snprintf(name, sizeof name, "unknown");
    return name;
}
