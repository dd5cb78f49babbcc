/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of pictures: reduced cells against values worked out by hand, scales
 * and their ticks, text of any script, clipping, and that what Cairo's reader
 * finds in a PNG is what was drawn.
 */
#include "cmocka_all.h"

#include <cairo.h>
#include <math.h>
#include <stdlib.h>

#include "plot/curves.h"
#include "plot/layout.h"
#include "plot/picture.h"
#include "plot/plot.h"
#include "plot/reduce.h"
#include "plot/viridis.h"

/* The pixels of a PNG of the canvas, as Cairo's own reader finds them: height rows of width times r, g, b. */
struct pixels {
    int width, height;
    unsigned char *rgb;
};

struct source {
    const unsigned char *bytes;
    size_t left;
};

static cairo_status_t take(void *closure, unsigned char *data, unsigned length)
{
    struct source *source = closure;
    if (length > source->left)
        return CAIRO_STATUS_READ_ERROR;
    memcpy(data, source->bytes, length);
    source->bytes += length;
    source->left -= length;
    return CAIRO_STATUS_SUCCESS;
}

static struct pixels pixels_of(const struct canvas *canvas)
{
    unsigned char *png;
    size_t size;
    assert_int_equal(picture_encode(canvas, PICTURE_PNG, &png, &size), ATTN_OK);
    struct source source = {png, size};
    cairo_surface_t *image = cairo_image_surface_create_from_png_stream(take, &source);
    assert_int_equal(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
    struct pixels p = {cairo_image_surface_get_width(image), cairo_image_surface_get_height(image), NULL};
    assert_int_equal(p.width, canvas->width);
    assert_int_equal(p.height, canvas->height);
    p.rgb = malloc((size_t)p.width * (size_t)p.height * 3);
    assert_non_null(p.rgb);
    for (int y = 0; y < p.height; y++) {
        const unsigned char *row = cairo_image_surface_get_data(image) + y * cairo_image_surface_get_stride(image);
        for (int x = 0; x < p.width; x++) {
            uint32_t word;
            memcpy(&word, row + (size_t)x * sizeof word, sizeof word);
            unsigned char *to = p.rgb + ((size_t)y * (size_t)p.width + (size_t)x) * 3;
            to[0] = (unsigned char)(word >> 16), to[1] = (unsigned char)(word >> 8), to[2] = (unsigned char)word;
        }
    }
    cairo_surface_destroy(image);
    free(png);
    return p;
}

static const unsigned char *pixel(const struct pixels *p, int x, int y)
{
    return p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3;
}

/* Where pixels are darker than middle grey. */
struct box {
    int left, right, top, bottom;
};

static struct box dark(const struct pixels *p)
{
    struct box box = {p->width, -1, p->height, -1};
    for (int y = 0; y < p->height; y++) {
        for (int x = 0; x < p->width; x++) {
            if (pixel(p, x, y)[0] > 128)
                continue;
            box.left = x < box.left ? x : box.left, box.right = x > box.right ? x : box.right;
            box.top = y < box.top ? y : box.top, box.bottom = y > box.bottom ? y : box.bottom;
        }
    }
    return box;
}

/* ------------------------------------------------------------------- cells -- */

/* Reduces a matrix, its rows in reverse order. */
static void reduce(enum reduce_by by, const float *matrix, int rows, int columns, int bin_rows, int bin_columns,
                   float *cells)
{
    struct reduce r;
    assert_true(reduce_create(&r, by, rows, columns, bin_rows, bin_columns));
    for (int row = rows - 1; row >= 0; row--)
        reduce_add(&r, row, matrix + row * columns);
    reduce_cells(&r, cells);
    reduce_free(&r);
}

static void reduces_by_area(void **state)
{
    (void)state;
    /* 3 x 3 into 2 x 2: each cell covers one and a half elements both ways. */
    static const float m[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    float cells[9];
    reduce(REDUCE_MEAN, m, 3, 3, 2, 2, cells);
    const double wanted = (1 + 0.5 * 2 + 0.5 * 4 + 0.25 * 5) / 2.25;
    assert_true(fabs((double)cells[0] - wanted) < 1e-6);
    const double last = (9 + 0.5 * 8 + 0.5 * 6 + 0.25 * 5) / 2.25;
    assert_true(fabs((double)cells[3] - last) < 1e-6);
    /* As many bins as elements: the elements. */
    reduce(REDUCE_MEAN, m, 3, 3, 3, 3, cells);
    assert_memory_equal(cells, m, sizeof m);
    reduce(REDUCE_MAX, m, 3, 3, 3, 3, cells);
    assert_memory_equal(cells, m, sizeof m);
}

static void reduces_to_maxima(void **state)
{
    (void)state;
    static const float row[7] = {1, 9, 2, -5, -6, 3, 4}, square[4] = {-4, -3, -2, -1};
    float cells[4];
    reduce(REDUCE_MAX, row, 1, 7, 1, 3, cells);
    assert_true(cells[0] == 9 && cells[1] == -5 && cells[2] == 4);
    reduce(REDUCE_MAX, square, 2, 2, 1, 1, cells);
    assert_true(cells[0] == -1);
}

/* A NaN shows up in the cells it touches and nowhere else; of hidden elements only those that are alone. */
static void reduces_nan_and_hidden_locally(void **state)
{
    (void)state;
    const float h = -INFINITY;
    const float m[16] = {0, 0, h, h, 0, 0, h, h, 0, NAN, h, 4, 5, 0, h, 2};
    float cells[4];
    reduce(REDUCE_MEAN, m, 4, 4, 2, 2, cells);
    assert_true(cells[0] == 0 && cells[1] == h && isnan(cells[2]) && cells[3] == 3);
    reduce(REDUCE_MAX, m, 4, 4, 2, 2, cells);
    assert_true(cells[0] == 0 && cells[1] == h && isnan(cells[2]) && cells[3] == 4);
}

/* A single diagonal is in every cell of the diagonal, and at full strength. */
static void keeps_a_diagonal(void **state)
{
    (void)state;
    enum { N = 3000, BINS = 720 };
    float *row = calloc(N, sizeof *row), *cells = malloc(sizeof *cells * BINS * BINS);
    struct reduce r;
    assert_true(row != NULL && cells != NULL && reduce_create(&r, REDUCE_MAX, N, N, BINS, BINS));
    for (int i = 0; i < N; i++) {
        row[i] = 1;
        reduce_add(&r, i, row);
        row[i] = 0;
    }
    reduce_cells(&r, cells);
    reduce_free(&r);
    for (int i = 0; i < BINS * BINS; i++)
        assert_true(cells[i] == (i / BINS == i % BINS ? 1 : 0));
    free(cells);
    free(row);
}

/* ------------------------------------------------------------------ scales -- */

static void places_values(void **state)
{
    (void)state;
    const struct scale linear = {SCALE_LINEAR, -1, 3}, root = {SCALE_SQRT, 0, 4}, logarithm = {SCALE_LOG, 1e-4, 1};
    assert_true(fabs(scale_place(&linear, 1) - 0.5) < 1e-12);
    assert_true(scale_place(&linear, -2) == 0 && scale_place(&linear, 4) == 1);
    assert_true(fabs(scale_place(&root, 1) - 0.5) < 1e-12);
    assert_true(scale_place(&root, 0) == 0 && scale_place(&root, 9) == 1);
    assert_true(fabs(scale_place(&logarithm, 1e-2) - 0.5) < 1e-12);
    assert_true(scale_place(&logarithm, 0) == 0 && scale_place(&logarithm, 1) == 1);
}

static void has_ticks(const struct scale *scale, double length, const double *want, int count)
{
    double got[SCALE_MOST_TICKS], step;
    assert_int_equal(scale_ticks(scale, length, got, &step), count);
    for (int i = 0; i < count; i++)
        assert_true(fabs(got[i] - want[i]) <= 1e-9 * want[i]);
}

static void marks_round_values(void **state)
{
    (void)state;
    has_ticks(&(struct scale){SCALE_LINEAR, 0, 1}, 150, (const double[]){0, 0.2, 0.4, 0.6, 0.8, 1}, 6);
    has_ticks(&(struct scale){SCALE_SQRT, 0, 1}, 120, (const double[]){0, 0.05, 0.2, 0.5, 1}, 5);
    has_ticks(&(struct scale){SCALE_LOG, 1e-4, 1}, 400, (const double[]){1e-4, 1e-3, 1e-2, 1e-1, 1}, 5);
    has_ticks(&(struct scale){SCALE_LOG, 0.03, 0.6}, 200, (const double[]){0.05, 0.1, 0.2, 0.5}, 4);
    /* However narrow a scale is, its marks keep their distance. */
    double got[SCALE_MOST_TICKS], step;
    for (int kind = SCALE_LINEAR; kind <= SCALE_LOG; kind++) {
        const struct scale scale = {(enum scale_kind)kind, kind == SCALE_LOG ? 1e-6 : 0, 0.7};
        for (int length = 60; length < 2000; length += 97) {
            int count = scale_ticks(&scale, length, got, &step);
            assert_true(count >= 2);
            for (int i = 1; i < count; i++)
                assert_true((scale_place(&scale, got[i]) - scale_place(&scale, got[i - 1])) * length >= 19.9);
        }
    }
}

static void chooses_round_ticks(void **state)
{
    (void)state;
    assert_true(fabs(scale_step(1, 5) - 0.2) < 1e-12);
    assert_true(fabs(scale_step(1, 10) - 0.1) < 1e-12);
    assert_true(fabs(scale_step(0.67, 8) - 0.1) < 1e-12);
    assert_true(fabs(scale_step(3e-7, 3) - 1e-7) < 1e-19);
    assert_int_equal(scale_index_step(26, 100), 1);
    assert_int_equal(scale_index_step(1500, 10), 200);
    assert_int_equal(scale_index_step(0, 10), 1);
    char text[32];
    scale_number(text, sizeof text, 0.3, 0.1);
    assert_string_equal(text, "0.3");
    scale_number(text, sizeof text, 1e-20, 0.1);
    assert_string_equal(text, "0");
    scale_number(text, sizeof text, 0.25, 0.05);
    assert_string_equal(text, "0.25");
    scale_number(text, sizeof text, 20, 10);
    assert_string_equal(text, "20");
    scale_number(text, sizeof text, 2e-7, 1e-7);
    assert_string_equal(text, "2e-07");
}

static void assert_colour(struct rgb got, int r, int g, int b)
{
    assert_int_equal(got.r, r);
    assert_int_equal(got.g, g);
    assert_int_equal(got.b, b);
}

static void has_the_ends_of_viridis(void **state)
{
    (void)state;
    assert_colour(viridis(0), 68, 1, 84);
    assert_colour(viridis(-1), 68, 1, 84);
    assert_colour(viridis(1), 253, 231, 37);
    assert_colour(viridis(2), 253, 231, 37);
    /* Brighter all the way. */
    double before = -1;
    for (int i = 0; i < 256; i++) {
        struct rgb c = viridis((i + 0.5) / 256);
        double luma = 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b;
        assert_true(luma > before - 0.6);
        before = luma;
    }
}

/* ------------------------------------------------------------------ canvas -- */

static struct canvas open_canvas(int width, int height, double unit)
{
    struct canvas canvas;
    canvas_open(&canvas, unit);
    assert_int_equal(canvas_size(&canvas, width, height, 1e8), ATTN_OK);
    return canvas;
}

static void clips_what_is_outside(void **state)
{
    (void)state;
    const struct rgb black = {0, 0, 0};
    struct canvas canvas = open_canvas(20, 10, 1);
    canvas_rectangle(&canvas, -5, -5, 7, 7, black);
    canvas_rectangle(&canvas, 18, 8, 100, 100, black);
    canvas_text(&canvas, -30, 5, 9, 1e4, TEXT_ACROSS, black, "clipped at both ends");
    canvas_text(&canvas, 10, 100, 9, 1e4, TEXT_UPWARDS, black, "clipped at both ends");
    struct pixels p = pixels_of(&canvas);
    assert_int_equal(pixel(&p, 0, 0)[0], 0);
    assert_int_equal(pixel(&p, 19, 9)[0], 0);
    free(p.rgb);
    canvas_free(&canvas);
    canvas_open(&canvas, 1);
    assert_int_equal(canvas_size(&canvas, 1000, 1000, 1e6), ATTN_SIZE_OVERFLOW);
    assert_says(attn_last_error(), "--limit-mib");
    assert_int_equal(canvas_size(&canvas, 10, 40000, 1e9), ATTN_SIZE_OVERFLOW);
    assert_says(attn_last_error(), "at most 32767");
    canvas_free(&canvas);
}

/* Capitals are as high, and text is as wide, as is said, across and upwards, at any unit. */
static void draws_text_of_the_stated_size(void **state)
{
    (void)state;
    const struct rgb black = {0, 0, 0};
    for (int unit = 1; unit <= 3; unit++) {
        for (int upwards = 0; upwards < 2; upwards++) {
            struct canvas canvas = open_canvas(160 * unit, 160 * unit, unit);
            canvas_text(&canvas, 80 * unit, 80 * unit, 10, 1e4, upwards ? TEXT_UPWARDS : TEXT_ACROSS, black, "HIH");
            double width = canvas_text_width(&canvas, 10, 1e4, "HIH");
            struct pixels p = pixels_of(&canvas);
            struct box box = dark(&p);
            int length = upwards ? box.bottom - box.top : box.right - box.left;
            int cap = upwards ? box.right - box.left : box.bottom - box.top;
            assert_true(width > length && width - length < 5.0 * unit);
            assert_true(abs(cap + 1 - 10 * unit) <= 1);
            assert_true(abs((upwards ? box.right : box.bottom) + 1 - 80 * unit) <= 1);
            assert_true(upwards ? box.bottom < 80 * unit : box.left >= 80 * unit);
            free(p.rgb);
            canvas_free(&canvas);
        }
    }
}

/* Every script is drawn, each text otherwise than the others; what is not UTF-8 is no error. */
static void draws_any_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"Wort",  "Wört", "▁the", "Ġthe", "слово",
                                        "λόγος", "ابجد", "אבגד", "日本", "\xff\xc3"};
    enum { COUNT = sizeof texts / sizeof texts[0] };
    struct pixels all[COUNT];
    for (int i = 0; i < COUNT; i++) {
        struct canvas canvas = open_canvas(120, 40, 1);
        canvas_text(&canvas, 10, 30, 12, 1e4, TEXT_ACROSS, (struct rgb){0, 0, 0}, texts[i]);
        all[i] = pixels_of(&canvas);
        struct box box = dark(&all[i]);
        assert_true(box.right > box.left && box.left >= 8 && box.right < 115);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(all[i].rgb, all[j].rgb, 120 * 40 * 3);
        canvas_free(&canvas);
    }
    for (int i = 0; i < COUNT; i++)
        free(all[i].rgb);
}

/* A character of a private plane, which no font has, is counted where it is drawn; others are not. */
static void counts_what_no_font_has(void **state)
{
    (void)state;
    struct canvas canvas = open_canvas(100, 40, 1);
    canvas_text(&canvas, 10, 30, 12, 1e4, TEXT_ACROSS, (struct rgb){0, 0, 0}, "Ġ▁");
    assert_int_equal(canvas.missing, 0);
    canvas_text(&canvas, 10, 30, 12, 1e4, TEXT_ACROSS, (struct rgb){0, 0, 0}, "a\xf4\x80\x80\x81");
    canvas_text(&canvas, 10, 30, 12, 1e4, TEXT_ACROSS, (struct rgb){0, 0, 0}, "\xf4\x80\x80\x82");
    assert_int_equal(canvas.missing, 2);
    assert_string_equal(canvas.missing_text, "a\xf4\x80\x80\x81");
    canvas_free(&canvas);
}

static void cuts_long_text(void **state)
{
    (void)state;
    const char *const text = "a text of more than fifty units", *const hebrew = "אבגדאבגדאבגדאבגדאבגדאבגד";
    struct canvas canvas = open_canvas(200, 40, 2);
    double whole = canvas_text_width(&canvas, 9, 1e4, text), cut = canvas_text_width(&canvas, 9, 50, text);
    assert_true(whole > 200 && cut <= 100 && cut > 70);
    canvas_text(&canvas, 20, 30, 9, 50, TEXT_ACROSS, (struct rgb){0, 0, 0}, text);
    canvas_text(&canvas, 20, 30, 9, 50, TEXT_ACROSS, (struct rgb){0, 0, 0}, hebrew);
    struct pixels p = pixels_of(&canvas);
    struct box box = dark(&p);
    assert_true(box.left >= 19 && box.right <= 121);
    free(p.rgb);
    canvas_free(&canvas);
}

static void encodes_what_is_drawn(void **state)
{
    (void)state;
    struct rgb area[35 * 21];
    for (int i = 0; i < 35 * 21; i++)
        area[i] = (struct rgb){(unsigned char)(i * 31 % 251), (unsigned char)(i * 7 % 255), (unsigned char)i};
    struct canvas canvas = open_canvas(37, 23, 1);
    assert_int_equal(canvas_area(&canvas, 1, 1, 35, 21, area), ATTN_OK);
    canvas_frame(&canvas, 1, 1, 35, 21, (struct rgb){1, 2, 3});
    struct pixels p = pixels_of(&canvas);
    for (int y = 0; y < 23; y++) {
        for (int x = 0; x < 37; x++) {
            bool edge = x == 0 || y == 0 || x == 36 || y == 22;
            const struct rgb want = edge ? (struct rgb){1, 2, 3} : area[(y - 1) * 35 + x - 1];
            assert_colour((struct rgb){pixel(&p, x, y)[0], pixel(&p, x, y)[1], pixel(&p, x, y)[2]}, want.r, want.g,
                          want.b);
        }
    }
    free(p.rgb);
    canvas_free(&canvas);
}

/* Each cell of a small matrix stands where it should, in its colour. */
static void draws_cells_in_place(void **state)
{
    (void)state;
    float cells[6] = {0, 0.25f, 0.5f, -INFINITY, 1, NAN};
    float *panels[1] = {cells};
    struct plot plot = {.title = "t",
                        .subtitle = "",
                        .row_name = "query",
                        .column_name = "key",
                        .rows = 2,
                        .columns = 3,
                        .bin_rows = 2,
                        .bin_columns = 3,
                        .panels = 1,
                        .cells = panels,
                        .scale = {SCALE_LINEAR, 0, 1},
                        .limit_bytes = 1e8};
    struct canvas canvas;
    assert_int_equal(plot_heatmap(&canvas, &plot, 90), ATTN_OK);
    struct pixels pixels = pixels_of(&canvas);
    /* Finds the top left cell by its colour, then the others by their distance. */
    int x0 = -1, y0 = -1;
    for (int i = 0; i < canvas.width * canvas.height && x0 < 0; i++) {
        const unsigned char *p = pixels.rgb + (size_t)i * 3;
        if (p[0] == 68 && p[1] == 1 && p[2] == 84)
            x0 = i % canvas.width, y0 = i / canvas.width;
    }
    assert_true(x0 > 0);
    for (int r = 0; r < 2; r++) {
        for (int c = 0; c < 3; c++) {
            const double value = (double)cells[r * 3 + c];
            struct rgb want = isnan(value) ? colour_nan : value < 0 ? colour_hidden : viridis(value);
            for (int corner = 0; corner < 4; corner++) {
                int x = x0 + c * 30 + (corner & 1 ? 29 : 0), y = y0 + r * 30 + (corner & 2 ? 29 : 0);
                const unsigned char *p = pixel(&pixels, x, y);
                assert_colour((struct rgb){p[0], p[1], p[2]}, want.r, want.g, want.b);
            }
        }
    }
    free(pixels.rgb);
    canvas_free(&canvas);
}

/* With twice the size everything is twice as large. */
static void grows_as_a_whole(void **state)
{
    (void)state;
    float cells[4] = {0, 1, 1, 0};
    float *panels[1] = {cells};
    struct plot plot = {.title = "title",
                        .subtitle = "subtitle",
                        .row_name = "query",
                        .column_name = "key",
                        .rows = 2,
                        .columns = 2,
                        .bin_rows = 2,
                        .bin_columns = 2,
                        .panels = 1,
                        .cells = panels,
                        .scale = {SCALE_LINEAR, 0, 1},
                        .limit_bytes = 1e9};
    struct canvas one, two;
    assert_int_equal(plot_heatmap(&one, &plot, 720), ATTN_OK);
    assert_int_equal(plot_heatmap(&two, &plot, 1440), ATTN_OK);
    assert_true(abs(2 * one.width - two.width) <= 6 && abs(2 * one.height - two.height) <= 6);
    struct pixels small = pixels_of(&one), large = pixels_of(&two);
    struct box a = dark(&small), b = dark(&large);
    assert_true(abs(2 * a.left - b.left) <= 3 && abs(2 * a.top - b.top) <= 3 && abs(2 * a.right - b.right) <= 6);
    free(small.rgb);
    free(large.rgb);
    canvas_free(&one);
    canvas_free(&two);
    cells[0] = 0.9f;
    plot.rows = plot.bin_rows = 1;
    assert_int_equal(plot_bars(&one, &plot, 720), ATTN_OK);
    assert_int_equal(plot_bars(&two, &plot, 1440), ATTN_OK);
    assert_true(abs(2 * one.width - two.width) <= 6 && abs(2 * one.height - two.height) <= 6);
    canvas_free(&one);
    canvas_free(&two);
}

static void leaves_room_above_bars(void **state)
{
    (void)state;
    for (double greatest = 1e-7; greatest < 10; greatest *= 1.37) {
        double top = plot_bar_top(0, greatest);
        assert_true(top >= greatest * 1.039 && top <= greatest * 1.3);
    }
    assert_true(plot_bar_top(-1, 1) > 1.05);
}

/* The rows of a column that have the colour of curves, from top to bottom. */
static void coloured(const struct pixels *pixels, int x, int *top, int *count)
{
    const struct rgb colour = viridis(0.35);
    *top = -1;
    *count = 0;
    for (int y = 0; y < pixels->height; y++) {
        const unsigned char *p = pixel(pixels, x, y);
        if (p[0] != colour.r || p[1] != colour.g || p[2] != colour.b)
            continue;
        if (*top < 0)
            *top = y;
        ++*count;
    }
}

/* A curve that rises goes up, has no gaps between its ends and none beyond; what is not finite is bridged. */
static void draws_curves(void **state)
{
    (void)state;
    static const double x[] = {0, 2, 4, 6, 8}, y[] = {0, 2, NAN, INFINITY, 8}, single[] = {3};
    const struct curve curves[] = {{.name = "rises", .x = x, .y = y, .count = 5},
                                   {.name = "one", .x = x + 2, .y = single, .count = 1, .marks = true},
                                   {.name = "none", .x = x, .y = y, .count = 0}};
    struct canvas canvas;
    int top, count, before, left = -1, right = -1;
    assert_int_equal(plot_curves(&canvas, &(struct curves){"Title", "subtitle", "step", curves, 1, 10}), ATTN_OK);
    struct pixels pixels = pixels_of(&canvas);
    before = canvas.height;
    for (int c = 0; c < canvas.width; c++) {
        coloured(&pixels, c, &top, &count);
        if (count == 0)
            continue;
        left = left < 0 ? c : left;
        assert_true(right < 0 || right == c - 1);
        right = c;
        assert_true(top <= before);
        before = top;
    }
    assert_true(left >= 0 && right - left > (canvas.width - 120) * 7 / 10);
    free(pixels.rgb);
    canvas_free(&canvas);
    for (int i = 1; i < 3; i++) {
        int all = 0;
        assert_int_equal(plot_curves(&canvas, &(struct curves){"Title", "subtitle", "step", &curves[i], 1, 10}),
                         ATTN_OK);
        pixels = pixels_of(&canvas);
        for (int c = 0; c < canvas.width; c++) {
            coloured(&pixels, c, &top, &count);
            all += count;
        }
        assert_int_equal(all, i == 1 ? 49 : 0);
        free(pixels.rgb);
        canvas_free(&canvas);
    }
}

/* Where the first of two curves' points lies along the axis, from 0 to 1. */
static double begins_at(double first, double last)
{
    const double x[] = {first, last}, later[] = {(first + last) / 2, last}, y[] = {1, 1};
    const struct curve curves[] = {{.name = "later", .x = later, .y = y, .count = 2},
                                   {.name = "first", .x = x, .y = y, .count = 2}};
    struct canvas canvas;
    int top, count, left = -1, right = -1;
    assert_int_equal(plot_curves(&canvas, &(struct curves){"Title", "subtitle", "step", curves, 2, last}), ATTN_OK);
    struct pixels pixels = pixels_of(&canvas);
    for (int c = 0; c < canvas.width; c++) {
        coloured(&pixels, c, &top, &count);
        if (count > 0) {
            left = left < 0 ? c : left;
            right = c;
        }
    }
    const double width = canvas.width - 94; /* without the margins */
    free(pixels.rgb);
    canvas_free(&canvas);
    assert_true(right >= canvas.width - 27);
    return (left - 70) / width;
}

/* The axis begins at 0 if that leaves little of it empty. */
static void fits_the_axis_of_curves(void **state)
{
    (void)state;
    assert_true(fabs(begins_at(0, 10)) < 0.01);
    assert_true(fabs(begins_at(1, 100) - 0.01) < 0.01);
    assert_true(fabs(begins_at(9, 100) - 0.09) < 0.01);
    assert_true(fabs(begins_at(11, 100)) < 0.01);
    assert_true(fabs(begins_at(4, 10)) < 0.01);
    assert_true(fabs(begins_at(-5, 10)) < 0.01);
    assert_true(fabs(begins_at(10, 10) - 1) < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_curves),
        cmocka_unit_test(fits_the_axis_of_curves),
        cmocka_unit_test(reduces_by_area),
        cmocka_unit_test(reduces_to_maxima),
        cmocka_unit_test(reduces_nan_and_hidden_locally),
        cmocka_unit_test(keeps_a_diagonal),
        cmocka_unit_test(places_values),
        cmocka_unit_test(marks_round_values),
        cmocka_unit_test(chooses_round_ticks),
        cmocka_unit_test(has_the_ends_of_viridis),
        cmocka_unit_test(clips_what_is_outside),
        cmocka_unit_test(draws_text_of_the_stated_size),
        cmocka_unit_test(draws_any_text),
        cmocka_unit_test(counts_what_no_font_has),
        cmocka_unit_test(cuts_long_text),
        cmocka_unit_test(encodes_what_is_drawn),
        cmocka_unit_test(draws_cells_in_place),
        cmocka_unit_test(grows_as_a_whole),
        cmocka_unit_test(leaves_room_above_bars),
    };
    return cmocka_run_group_tests_name("picture", tests, NULL, NULL);
}
