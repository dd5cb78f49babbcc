/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes a picture in memory and writes it through a temporary file.
 */
#include "picture.h"

#include <stdlib.h>
#include <string.h>

#include "io/atomic.h"

bool picture_target(char **target, const char *path, struct io_error *error)
{
    size_t length = strlen(path);
    if (length < 4 || strcmp(path + length - 4, ".png") != 0)
        return io_fail_usage(error, "-o '%s' has an unknown format; expected FILE.png", path);
    return atomic_target(target, path, error);
}

bool picture_write(const struct canvas *canvas, const char *target, struct io_error *error)
{
    unsigned char *png;
    size_t size;
    if (!canvas_png(canvas, &png, &size, error))
        return false;
    sigset_t before;
    atomic_hold_signals(&before);
    struct atomic_file file;
    bool ok = atomic_open(&file, target, error) && atomic_write(&file, png, size, error) &&
              atomic_finish(&file, error) && atomic_commit(&file, error);
    atomic_discard(&file);
    atomic_release_signals(&before);
    free(png);
    return ok;
}
