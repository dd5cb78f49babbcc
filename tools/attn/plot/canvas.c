/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Cairo surface that records what is drawn, and a Pango layout for one line of text at a time. Edges of rectangles
 * are whole pixels and are not antialiased, so that cells have sharp borders and the colours of the scale. Glyphs are
 * neither hinted nor rounded to pixels: a text is as wide in a PNG as in a PDF, which is what makes one layout do.
 */
#include "canvas.h"

#include <math.h>
#include <pango/pangocairo.h>
#include <stdio.h>
#include <string.h>

/* The height of a capital of DejaVu Sans, as a share of the font's size. */
static const double cap_share = 0.729;
/* Cairo's images are no larger either way. */
enum { MOST_PIXELS = 32767 };

void canvas_open(struct canvas *canvas, double unit)
{
    *canvas = (struct canvas){.unit = unit};
    PangoFontMap *fonts = pango_cairo_font_map_get_default();
    PangoContext *context = pango_font_map_create_context(fonts);
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    pango_cairo_context_set_font_options(context, options);
    pango_context_set_round_glyph_positions(context, FALSE);
    cairo_font_options_destroy(options);
    canvas->line = pango_layout_new(context);
    pango_layout_set_single_paragraph_mode(canvas->line, TRUE);
    g_object_unref(context);
}

attn_status canvas_size(struct canvas *canvas, int width, int height, double limit_bytes)
{
    double bytes = 4.0 * width * height;
    if (bytes > limit_bytes)
        return io_fail(ATTN_SIZE_OVERFLOW,
                       "the picture of %d x %d pixels needs %.1f MiB, above the limit of %.1f MiB (--limit-mib)", width,
                       height, bytes / 1048576, limit_bytes / 1048576);
    if (width > MOST_PIXELS || height > MOST_PIXELS)
        return io_fail(ATTN_SIZE_OVERFLOW, "the picture has %d x %d pixels; expected at most %d either way", width,
                       height, MOST_PIXELS);
    const cairo_rectangle_t extent = {0, 0, width, height};
    canvas->width = width;
    canvas->height = height;
    canvas->surface = cairo_recording_surface_create(CAIRO_CONTENT_COLOR, &extent);
    canvas->draw = cairo_create(canvas->surface);
    canvas_rectangle(canvas, 0, 0, width, height, (struct rgb){255, 255, 255});
    return ATTN_OK;
}

void canvas_free(struct canvas *canvas)
{
    if (canvas->draw != NULL)
        cairo_destroy(canvas->draw);
    if (canvas->surface != NULL)
        cairo_surface_destroy(canvas->surface);
    if (canvas->line != NULL)
        g_object_unref(canvas->line);
    *canvas = (struct canvas){.unit = 0};
}

int canvas_pixels(const struct canvas *canvas, double units)
{
    return (int)ceil(units * canvas->unit - 1e-9);
}

static void set_colour(struct canvas *canvas, struct rgb colour)
{
    cairo_set_source_rgb(canvas->draw, colour.r / 255.0, colour.g / 255.0, colour.b / 255.0);
}

void canvas_rectangle(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour)
{
    if (width <= 0 || height <= 0)
        return;
    set_colour(canvas, colour);
    cairo_set_antialias(canvas->draw, CAIRO_ANTIALIAS_NONE);
    cairo_rectangle(canvas->draw, x, y, width, height);
    cairo_fill(canvas->draw);
}

void canvas_frame(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour)
{
    int line = canvas_pixels(canvas, 1);
    canvas_rectangle(canvas, x - line, y - line, width + 2 * line, line, colour);
    canvas_rectangle(canvas, x - line, y + height, width + 2 * line, line, colour);
    canvas_rectangle(canvas, x - line, y, line, height, colour);
    canvas_rectangle(canvas, x + width, y, line, height, colour);
}

attn_status canvas_area(struct canvas *canvas, int x, int y, int width, int height, const struct rgb *pixels)
{
    cairo_surface_t *image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    unsigned char *data = cairo_image_surface_get_data(image);
    if (data == NULL) {
        cairo_surface_destroy(image);
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a picture of %d x %d pixels", width, height);
    }
    for (int row = 0; row < height; row++) {
        unsigned char *line = data + (size_t)row * (size_t)cairo_image_surface_get_stride(image);
        for (int column = 0; column < width; column++) {
            struct rgb from = pixels[(size_t)row * (size_t)width + (size_t)column];
            uint32_t word = (uint32_t)from.r << 16 | (uint32_t)from.g << 8 | from.b;
            memcpy(line + (size_t)column * sizeof word, &word, sizeof word);
        }
    }
    cairo_surface_mark_dirty(image);
    cairo_set_source_surface(canvas->draw, image, x, y);
    cairo_pattern_set_filter(cairo_get_source(canvas->draw), CAIRO_FILTER_NEAREST);
    cairo_set_antialias(canvas->draw, CAIRO_ANTIALIAS_NONE);
    cairo_rectangle(canvas->draw, x, y, width, height);
    cairo_fill(canvas->draw);
    cairo_surface_destroy(image);
    return ATTN_OK;
}

/* Sets the line and returns where it lies around its origin. */
static PangoRectangle set_line(struct canvas *canvas, double cap_height, double most, const char *text)
{
    PangoLayout *line = canvas->line;
    PangoFontDescription *font = pango_font_description_from_string("DejaVu Sans, sans-serif");
    pango_font_description_set_absolute_size(font, cap_height * canvas->unit / cap_share * PANGO_SCALE);
    pango_layout_set_font_description(line, font);
    pango_font_description_free(font);
    char *valid = g_utf8_make_valid(text, -1);
    pango_layout_set_text(line, valid, -1);
    g_free(valid);
    PangoRectangle extent;
    pango_layout_set_ellipsize(line, PANGO_ELLIPSIZE_NONE);
    pango_layout_set_width(line, -1);
    pango_layout_get_extents(line, NULL, &extent);
    if (extent.width > most * canvas->unit * PANGO_SCALE) {
        pango_layout_set_width(line, (int)(most * canvas->unit * PANGO_SCALE));
        pango_layout_set_ellipsize(line, PANGO_ELLIPSIZE_END);
        pango_layout_get_extents(line, NULL, &extent);
    }
    return extent;
}

void canvas_text(struct canvas *canvas, double x, double y, double cap_height, double most,
                 enum text_direction direction, struct rgb colour, const char *text)
{
    const PangoRectangle extent = set_line(canvas, cap_height, most, text);
    const int missing = pango_layout_get_unknown_glyphs_count(canvas->line);
    if (missing > 0 && canvas->missing == 0)
        snprintf(canvas->missing_text, sizeof canvas->missing_text, "%s", text);
    canvas->missing += missing;
    cairo_save(canvas->draw);
    set_colour(canvas, colour);
    cairo_translate(canvas->draw, x, y);
    if (direction == TEXT_UPWARDS)
        cairo_rotate(canvas->draw, -M_PI / 2);
    /* Where lines have a width, one that is written from right to left begins at its right end. */
    cairo_move_to(canvas->draw, -pango_units_to_double(extent.x),
                  -pango_units_to_double(pango_layout_get_baseline(canvas->line)));
    pango_cairo_show_layout(canvas->draw, canvas->line);
    cairo_restore(canvas->draw);
    cairo_new_path(canvas->draw);
}

double canvas_text_width(struct canvas *canvas, double cap_height, double most, const char *text)
{
    return pango_units_to_double(set_line(canvas, cap_height, most, text).width);
}

/* -------------------------------------------------------------- sanitizers -- */

/*
 * They call these functions for what not to report, and not to list that. Fontconfig keeps its patterns until the end
 * of the program, behind pointers that it writes as offsets, so that the leak checker cannot see that they are held.
 * Pango reads the list of fonts on a thread of GLib's, whose locks ThreadSanitizer does not see.
 */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAKS_ARE_CHECKED 1
#endif
#if __has_feature(thread_sanitizer)
#define RACES_ARE_CHECKED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define LEAKS_ARE_CHECKED 1
#endif
#if defined(__SANITIZE_THREAD__)
#define RACES_ARE_CHECKED 1
#endif

#ifdef LEAKS_ARE_CHECKED
const char *__lsan_default_suppressions(void);
const char *__lsan_default_options(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\n";
}

const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}
#endif

#ifdef RACES_ARE_CHECKED
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "race:libfontconfig\nrace:libpango\nrace:libglib\nrace:libgobject\nrace:libcairo\n";
}
#endif
