/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays the drawing back on a surface of the format that the file's name asks for. The bytes go to memory, not to a
 * file: a picture is small, and the file can then be replaced whole by the same code as every other output. A pixel of
 * a PNG is a pixel of SVG, and three quarters of a point in a PDF, as in CSS.
 */
#include "picture.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/replace.h"

static const double points_per_pixel = 0.75;

struct sink {
    unsigned char *bytes;
    size_t used, capacity;
};

static cairo_status_t append(void *closure, const unsigned char *data, unsigned length)
{
    struct sink *sink = closure;
    if (length > sink->capacity - sink->used) {
        size_t capacity = (sink->capacity + length) * 2;
        unsigned char *grown = realloc(sink->bytes, capacity);
        if (grown == NULL)
            return CAIRO_STATUS_NO_MEMORY;
        sink->bytes = grown;
        sink->capacity = capacity;
    }
    memcpy(sink->bytes + sink->used, data, length);
    sink->used += length;
    return CAIRO_STATUS_SUCCESS;
}

static cairo_surface_t *make_surface(const struct canvas *canvas, enum picture_format format, struct sink *sink)
{
    cairo_surface_t *surface;
    switch (format) {
    case PICTURE_SVG:
        surface = cairo_svg_surface_create_for_stream(append, sink, canvas->width, canvas->height);
        cairo_svg_surface_set_document_unit(surface, CAIRO_SVG_UNIT_PX);
        return surface;
    case PICTURE_PDF:
        surface = cairo_pdf_surface_create_for_stream(append, sink, canvas->width * points_per_pixel,
                                                      canvas->height * points_per_pixel);
        /* The same picture is the same file. */
        cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE, "1970-01-01T00:00:00Z");
        return surface;
    default:
        return cairo_image_surface_create(CAIRO_FORMAT_RGB24, canvas->width, canvas->height);
    }
}

/*
 * Has viewers draw the cells of an SVG with sharp edges at any magnification, which Cairo does not ask them for. Text
 * is there as outlines, so that the tag can be nothing else.
 */
static bool sharpen(struct sink *sink)
{
    static const char tag[] = "<image ", more[] = "style=\"image-rendering:pixelated\" ";
    struct sink out = {.bytes = NULL};
    const unsigned char *at = sink->bytes, *const end = at + sink->used;
    bool fits = true;
    for (const unsigned char *next; fits && at < end; at = next) {
        const unsigned char *found = memmem(at, (size_t)(end - at), tag, sizeof tag - 1);
        next = found != NULL ? found + sizeof tag - 1 : end;
        fits = append(&out, at, (unsigned)(next - at)) == CAIRO_STATUS_SUCCESS &&
               (found == NULL || append(&out, (const unsigned char *)more, sizeof more - 1) == CAIRO_STATUS_SUCCESS);
    }
    free(sink->bytes);
    *sink = out;
    return fits;
}

attn_status picture_encode(const struct canvas *canvas, enum picture_format format, unsigned char **bytes, size_t *size)
{
    struct sink sink = {.bytes = NULL};
    cairo_surface_t *surface = make_surface(canvas, format, &sink);
    cairo_t *draw = cairo_create(surface);
    if (format == PICTURE_PDF)
        cairo_scale(draw, points_per_pixel, points_per_pixel);
    cairo_set_source_surface(draw, canvas->surface, 0, 0);
    cairo_paint(draw);
    cairo_status_t status = cairo_status(canvas->draw);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_status(draw);
    cairo_destroy(draw);
    if (status == CAIRO_STATUS_SUCCESS && format == PICTURE_PNG)
        status = cairo_surface_write_to_png_stream(surface, append, &sink);
    cairo_surface_finish(surface);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_status(surface);
    cairo_surface_destroy(surface);
    if (status == CAIRO_STATUS_SUCCESS && format == PICTURE_SVG && !sharpen(&sink))
        status = CAIRO_STATUS_NO_MEMORY;
    if (status != CAIRO_STATUS_SUCCESS) {
        free(sink.bytes);
        return io_fail(status == CAIRO_STATUS_NO_MEMORY ? ATTN_OUT_OF_MEMORY : ATTN_INVALID_FILE,
                       "a picture of %d x %d pixels cannot be drawn: %s", canvas->width, canvas->height,
                       cairo_status_to_string(status));
    }
    *bytes = sink.bytes;
    *size = sink.used;
    return ATTN_OK;
}

static const char *const format_names[] = {[PICTURE_PNG] = "png", [PICTURE_SVG] = "svg", [PICTURE_PDF] = "pdf"};

attn_status picture_target(struct picture_target *target, const char *path)
{
    const size_t length = strlen(path);
    *target = (struct picture_target){.path = NULL};
    for (int format = PICTURE_PNG; format <= PICTURE_PDF; format++) {
        if (length < 4 || path[length - 4] != '.' || strcmp(path + length - 3, format_names[format]) != 0)
            continue;
        target->format = (enum picture_format)format;
        return replace_target(&target->path, path);
    }
    return io_fail(ATTN_INVALID_ARGUMENT,
                   "the picture '%s' has an unknown format; expected a name that ends in .png, .svg or .pdf", path);
}

attn_status picture_output(struct picture_target *target, const char *path, const char *to)
{
    if (strcmp(path, "-") != 0) {
        *target = (struct picture_target){.path = NULL};
        return to == NULL
                   ? picture_target(target, path)
                   : io_fail(ATTN_INVALID_ARGUMENT,
                             "option --to has no effect on %s, whose name says its form; expected it with -o -", path);
    }
    *target = (struct picture_target){.standard = true, .format = PICTURE_PNG};
    for (int format = PICTURE_PNG; to != NULL && format <= PICTURE_PDF; format++) {
        if (strcmp(to, format_names[format]) != 0)
            continue;
        target->format = (enum picture_format)format;
        to = NULL;
    }
    if (to != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--to is '%s'; expected png, svg or pdf", to);
    if (target->format != PICTURE_SVG && isatty(STDOUT_FILENO))
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "-o is '-', but standard output is a terminal, and %s is binary; expected a pipe or a file "
                       "there, or --to svg",
                       target->format == PICTURE_PNG ? "PNG" : "PDF");
    return ATTN_OK;
}

void picture_target_free(struct picture_target *target)
{
    free(target->path);
    target->path = NULL;
}

attn_status picture_write(const struct canvas *canvas, const struct picture_target *target)
{
    unsigned char *bytes;
    size_t size;
    CHECK(picture_encode(canvas, target->format, &bytes, &size));
    const attn_status status =
        target->standard ? replace_standard(bytes, size) : replace_whole(target->path, bytes, size);
    free(bytes);
    return status;
}
