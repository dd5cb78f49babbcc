/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes a picture in memory and writes it through a temporary file.
 */
#include "picture.h"

#include <stdlib.h>
#include <string.h>

#include "io/replace.h"

bool picture_target(char **target, const char *path, struct io_error *error)
{
    size_t length = strlen(path);
    if (length < 4 || strcmp(path + length - 4, ".png") != 0)
        return io_fail_usage(error, "-o '%s' has an unknown format; expected FILE.png", path);
    return replace_target(target, path, error);
}

bool picture_write(const struct canvas *canvas, const char *target, struct io_error *error)
{
    unsigned char *png;
    size_t size;
    if (!canvas_png(canvas, &png, &size, error))
        return false;
    struct replace_signals signals;
    replace_hold_signals(&signals);
    struct replacement file;
    bool ok = replace_open(&file, target, error) && replace_write(&file, png, size, error) &&
              replace_finish(&file, error) && replace_commit(&file, 1, error);
    replace_discard(&file);
    replace_release_signals(&signals);
    free(png);
    return ok;
}
