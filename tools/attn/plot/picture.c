/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes a picture in memory and writes it through a temporary file.
 */
#include "picture.h"

#include <stdlib.h>
#include <string.h>

#include "io/replace.h"

attn_status picture_target(char **target, const char *path)
{
    size_t length = strlen(path);
    if (length < 4 || strcmp(path + length - 4, ".png") != 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "-o '%s' has an unknown format; expected FILE.png", path);
    return replace_target(target, path);
}

attn_status picture_write(const struct canvas *canvas, const char *target)
{
    unsigned char *png;
    size_t size;
    CHECK(canvas_png(canvas, &png, &size));
    struct replace_signals signals;
    replace_hold_signals(&signals);
    struct replacement file;
    attn_status status = replace_open(&file, target);
    if (status == ATTN_OK)
        status = replace_write(&file, png, size);
    if (status == ATTN_OK)
        status = replace_finish(&file);
    if (status == ATTN_OK)
        status = replace_commit(&file, 1);
    replace_discard(&file);
    replace_release_signals(&signals);
    free(png);
    return status;
}
