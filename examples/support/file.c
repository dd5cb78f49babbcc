/* SPDX-License-Identifier: Apache-2.0 */
/* Files by temporary files that are renamed, and folders. */
#include "file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/config.h"
#include "io/replace.h"

static attn_status write_parts(struct replacement *file, const struct file_part *parts, int count)
{
    for (int i = 0; i < count; i++)
        CHECK(replace_write(file, parts[i].data, parts[i].size));
    CHECK(replace_finish(file));
    return replace_commit(file, 1);
}

attn_status file_write(const char *path, const struct file_part *parts, int count)
{
    char *canonical;
    struct replace_signals signals;
    struct replacement file = {0};
    CHECK(replace_target(&canonical, path));
    replace_hold_signals(&signals);
    attn_status status = replace_open(&file, canonical);
    if (status == ATTN_OK)
        status = write_parts(&file, parts, count);
    replace_discard(&file);
    replace_release_signals(&signals);
    free(canonical);
    return status;
}

attn_status file_make_folder(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    int failed = 0;
    for (char *slash = copy; slash && !failed;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        failed = mkdir(copy, 0777) != 0 && errno != EEXIST;
        if (slash)
            *slash = '/';
    }
    free(copy);
    return failed ? io_fail(ATTN_INVALID_FILE, "the folder %s could not be made: %s", path, strerror(errno)) : ATTN_OK;
}

attn_status file_write_lines(const char *folder, const char *name, const char *const *lines, int64_t count)
{
    char *path = config_beside(folder, name), *text = NULL;
    size_t size = 0;
    FILE *memory = path ? open_memstream(&text, &size) : NULL;
    for (int64_t i = 0; memory && i < count; i++)
        fprintf(memory, "%s\n", lines[i]);
    attn_status status =
        memory && fclose(memory) == 0 ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", name);
    if (status == ATTN_OK)
        status = file_write(path, &(struct file_part){text, size}, 1);
    free(text);
    free(path);
    return status;
}
