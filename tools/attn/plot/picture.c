/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes a picture as PNG with libpng and writes it. The bytes go to memory,
 * not to a file: a picture is small, and the file can then be replaced whole by
 * the same code as every other output. libpng reports errors by a longjmp;
 * everything that must be freed afterwards is reached through the one struct
 * whose address is taken before setjmp, so no local variable is indeterminate
 * after it.
 */
#include "picture.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "io/replace.h"

struct sink {
    unsigned char *bytes;
    size_t used, capacity;
    png_structp png;
    png_infop info;
    char message[200];
};

static void append(png_structp png, png_bytep data, png_size_t length)
{
    struct sink *sink = png_get_io_ptr(png);
    if (length > sink->capacity - sink->used) {
        size_t capacity = (sink->capacity + length) * 2;
        unsigned char *grown = realloc(sink->bytes, capacity);
        if (grown == NULL)
            png_error(png, "out of memory");
        sink->bytes = grown;
        sink->capacity = capacity;
    }
    memcpy(sink->bytes + sink->used, data, length);
    sink->used += length;
}

/* All is in memory already. */
static void flush(png_structp png)
{
    (void)png;
}

static void on_error(png_structp png, png_const_charp message)
{
    struct sink *sink = png_get_error_ptr(png);
    strncpy(sink->message, message, sizeof sink->message - 1);
    png_longjmp(png, 1);
}

/* libpng warns about metadata only, of which there is none here. */
static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static bool encode(struct sink *sink, const struct canvas *canvas)
{
    sink->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, sink, on_error, on_warning);
    if (sink->png == NULL)
        return false;
    if (setjmp(png_jmpbuf(sink->png)) != 0)
        return false;
    sink->info = png_create_info_struct(sink->png);
    if (sink->info == NULL)
        return false;
    png_set_write_fn(sink->png, sink, append, flush);
    png_set_IHDR(sink->png, sink->info, (png_uint_32)canvas->width, (png_uint_32)canvas->height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(sink->png, sink->info);
    for (int row = 0; row < canvas->height; row++)
        png_write_row(sink->png, canvas->pixels + (size_t)row * (size_t)canvas->width * 3);
    png_write_end(sink->png, sink->info);
    return true;
}

attn_status picture_png(const struct canvas *canvas, unsigned char **png, size_t *size)
{
    struct sink sink = {.message = "out of memory"};
    bool encoded = encode(&sink, canvas);
    png_destroy_write_struct(&sink.png, &sink.info);
    if (!encoded) {
        free(sink.bytes);
        return io_fail(ATTN_INVALID_FILE, "cannot encode the PNG: %s", sink.message);
    }
    *png = sink.bytes;
    *size = sink.used;
    return ATTN_OK;
}

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
    CHECK(picture_png(canvas, &png, &size));
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
