/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of pictures: area means against sums worked out by hand, ticks,
 * UTF-8, glyphs, clipping, and that the PNG encoder's bytes, decoded by libpng's
 * own reader, are the canvas.
 */
#include "cmocka_all.h"

#include <math.h>
#include <png.h>
#include <stdlib.h>

#include "plot/curves.h"
#include "plot/font.h"
#include "plot/layout.h"
#include "plot/picture.h"
#include "plot/plot.h"
#include "plot/reduce.h"
#include "plot/viridis.h"

static void reduces_by_area(void **state)
{
    (void)state;
    /* 3 x 3 into 2 x 2: each cell covers one and a half elements both ways. */
    static const float m[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    float cells[9];
    struct reduce reduce;
    assert_true(reduce_create(&reduce, 3, 3, 2, 2));
    for (int row = 2; row >= 0; row--)
        reduce_add(&reduce, row, m[row]);
    reduce_means(&reduce, cells);
    reduce_free(&reduce);
    const double wanted = (1 + 0.5 * 2 + 0.5 * 4 + 0.25 * 5) / 2.25;
    assert_true(fabs(cells[0] - wanted) < 1e-6);
    const double last = (9 + 0.5 * 8 + 0.5 * 6 + 0.25 * 5) / 2.25;
    assert_true(fabs(cells[3] - last) < 1e-6);

    /* As many bins as elements: the elements. */
    assert_true(reduce_create(&reduce, 3, 3, 3, 3));
    for (int row = 0; row < 3; row++)
        reduce_add(&reduce, row, m[row]);
    reduce_means(&reduce, cells);
    reduce_free(&reduce);
    assert_memory_equal(cells, m, sizeof m);
}

/* A NaN shows up in the cells it touches and nowhere else. */
static void reduces_nan_locally(void **state)
{
    (void)state;
    float rows[4][4] = {{0}}, cells[4];
    rows[3][0] = NAN;
    struct reduce reduce;
    assert_true(reduce_create(&reduce, 4, 4, 2, 2));
    for (int row = 0; row < 4; row++)
        reduce_add(&reduce, row, rows[row]);
    reduce_means(&reduce, cells);
    reduce_free(&reduce);
    assert_true(cells[0] == 0 && cells[1] == 0 && isnan(cells[2]) && cells[3] == 0);
}

static void takes_maxima(void **state)
{
    (void)state;
    static const float row[7] = {1, 9, 2, -5, -6, 3, 4};
    float cells[7];
    reduce_maxima(row, 7, 3, cells);
    assert_true(cells[0] == 9 && cells[1] == 2 && cells[2] == 4);
    reduce_maxima(row, 7, 7, cells);
    assert_memory_equal(cells, row, sizeof row);
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
    assert_colour(viridis((double)NAN), 190, 190, 190);
    /* Brighter all the way. */
    double before = -1;
    for (int i = 0; i < 256; i++) {
        struct rgb c = viridis((i + 0.5) / 256);
        double luma = 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b;
        assert_true(luma > before - 0.6);
        before = luma;
    }
}

static void decodes_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t code;
        int length;
    } table[] = {
        {"A", 'A', 1},
        {"\xc3\xa9", 0xe9, 2},
        {"\xe2\x82\xac", 0x20ac, 3},
        {"\xf0\x9f\x98\x80", 0x1f600, 4},
        {"\xff", 0xfffd, 1},
        {"\xc3", 0xfffd, 1},
        {"\xe2\x82", 0xfffd, 1},
        {"\xc0\x80", 0xfffd, 1},
        {"\xed\xa0\x80", 0xfffd, 1},
        {"\xf4\x90\x80\x80", 0xfffd, 1},
        {"\xe0\x80\x80", 0xfffd, 1},
        {"\x80", 0xfffd, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *at = table[i].text;
        assert_int_equal(font_decode(&at), table[i].code);
        assert_int_equal(at - table[i].text, table[i].length);
    }
}

/* Every glyph is there, stays in its box, and no two are alike. */
static void has_all_of_ascii(void **state)
{
    (void)state;
    struct font_glyph glyphs[95];
    memset(glyphs, 0, sizeof glyphs);
    for (uint32_t c = 0x20; c < 0x7f; c++) {
        struct font_glyph *g = &glyphs[c - 0x20];
        font_glyph(g, c);
        assert_true(g->advance >= 3 && g->advance <= 12);
        assert_true(c == ' ' ? g->count == 0 : g->count > 0 && g->count <= 24);
        for (size_t i = 0; i < g->count; i++) {
            assert_true(g->segments[i].from.x <= 9 && g->segments[i].to.x <= 9);
            assert_true(g->segments[i].from.y <= FONT_DESCENT && g->segments[i].to.y <= FONT_DESCENT);
        }
        for (uint32_t other = 0x20; other < c; other++) {
            if (memcmp(g, &glyphs[other - 0x20], sizeof *g) == 0)
                fail_msg("'%c' looks like '%c'", (int)c, (int)other);
        }
    }
    struct font_glyph box;
    font_glyph(&box, 0x4e00);
    assert_int_equal(box.count, 4);
}

static void clips_what_is_outside(void **state)
{
    (void)state;
    struct canvas canvas;
    const struct rgb black = {0, 0, 0};
    assert_int_equal(canvas_create(&canvas, 20, 10, 1e6), ATTN_OK);
    canvas_rectangle(&canvas, -5, -5, 7, 7, black);
    canvas_rectangle(&canvas, 18, 8, 100, 100, black);
    canvas_text(&canvas, -30, 5, 9, TEXT_ACROSS, black, "clipped at both ends");
    canvas_text(&canvas, 10, 100, 9, TEXT_UPWARDS, black, "clipped at both ends");
    assert_int_equal(canvas.pixels[0], 0);
    assert_int_equal(canvas.pixels[(9 * 20 + 19) * 3], 0);
    canvas_free(&canvas);
    assert_int_equal(canvas_create(&canvas, 1000, 1000, 1e6), ATTN_SIZE_OVERFLOW);
    assert_says(attn_last_error(), "--limit-mib");
}

static void draws_text_of_the_stated_width(void **state)
{
    (void)state;
    struct canvas canvas;
    const struct rgb black = {0, 0, 0};
    assert_int_equal(canvas_create(&canvas, 200, 40, 1e6), ATTN_OK);
    canvas_text(&canvas, 20, 25, 10, TEXT_ACROSS, black, "HIH");
    int left = 200, right = -1, top = 40, bottom = -1;
    for (int y = 0; y < 40; y++) {
        for (int x = 0; x < 200; x++) {
            if (canvas.pixels[(y * 200 + x) * 3] > 128)
                continue;
            left = x < left ? x : left, right = x > right ? x : right;
            top = y < top ? y : top, bottom = y > bottom ? y : bottom;
        }
    }
    canvas_free(&canvas);
    assert_true(abs(left - 20) <= 1);
    assert_true(fabs(right - 20 - canvas_text_width(10, "HIH")) <= 2);
    assert_true(abs(bottom - 25) <= 1 && abs(top - 15) <= 1);
}

static void encodes_what_is_drawn(void **state)
{
    (void)state;
    struct canvas canvas;
    assert_int_equal(canvas_create(&canvas, 37, 23, 1e6), ATTN_OK);
    for (int i = 0; i < 37 * 23 * 3; i++)
        canvas.pixels[i] = (unsigned char)(i * 31 % 251);
    unsigned char *png;
    size_t size;
    assert_int_equal(picture_png(&canvas, &png, &size), ATTN_OK);
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_memory(&image, png, size));
    assert_int_equal(image.width, 37);
    assert_int_equal(image.height, 23);
    image.format = PNG_FORMAT_RGB;
    unsigned char decoded[37 * 23 * 3];
    assert_true(png_image_finish_read(&image, NULL, decoded, 0, NULL));
    assert_memory_equal(decoded, canvas.pixels, sizeof decoded);
    free(png);
    canvas_free(&canvas);
}

/* Each cell of a small matrix stands where it should, in its colour. */
static void draws_cells_in_place(void **state)
{
    (void)state;
    float cells[6] = {0, 0.25f, 0.5f, 0.75f, 1, NAN};
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
                        .high = 1,
                        .limit_bytes = 1e8};
    struct canvas canvas;
    assert_int_equal(plot_heatmap(&canvas, &plot, 90), ATTN_OK);
    /* Finds the top left cell by its colour, then the others by their distance. */
    int x0 = -1, y0 = -1;
    for (int i = 0; i < canvas.width * canvas.height && x0 < 0; i++) {
        const unsigned char *p = canvas.pixels + (size_t)i * 3;
        if (p[0] == 68 && p[1] == 1 && p[2] == 84)
            x0 = i % canvas.width, y0 = i / canvas.width;
    }
    assert_true(x0 > 0);
    for (int r = 0; r < 2; r++) {
        for (int c = 0; c < 3; c++) {
            struct rgb want = viridis((double)cells[r * 3 + c]);
            for (int corner = 0; corner < 4; corner++) {
                int x = x0 + c * 30 + (corner & 1 ? 29 : 0), y = y0 + r * 30 + (corner & 2 ? 29 : 0);
                const unsigned char *p = canvas.pixels + ((size_t)y * (size_t)canvas.width + (size_t)x) * 3;
                assert_colour((struct rgb){p[0], p[1], p[2]}, want.r, want.g, want.b);
            }
        }
    }
    canvas_free(&canvas);
}

/* The rows of a column that have the colour of curves, from top to bottom. */
static void coloured(const struct canvas *canvas, int x, int *top, int *count)
{
    const struct rgb colour = viridis(0.35);
    *top = -1;
    *count = 0;
    for (int y = 0; y < canvas->height; y++) {
        const unsigned char *p = canvas->pixels + 3 * ((size_t)y * (size_t)canvas->width + (size_t)x);
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
    before = canvas.height;
    for (int c = 0; c < canvas.width; c++) {
        coloured(&canvas, c, &top, &count);
        if (count == 0)
            continue;
        left = left < 0 ? c : left;
        assert_true(right < 0 || right == c - 1);
        right = c;
        assert_true(top <= before);
        before = top;
    }
    assert_true(left >= 0 && right - left > (canvas.width - 120) * 7 / 10);
    canvas_free(&canvas);
    for (int i = 1; i < 3; i++) {
        int all = 0;
        assert_int_equal(plot_curves(&canvas, &(struct curves){"Title", "subtitle", "step", &curves[i], 1, 10}),
                         ATTN_OK);
        for (int c = 0; c < canvas.width; c++) {
            coloured(&canvas, c, &top, &count);
            all += count;
        }
        assert_int_equal(all, i == 1 ? 49 : 0);
        canvas_free(&canvas);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_curves),          cmocka_unit_test(reduces_by_area),
        cmocka_unit_test(reduces_nan_locally),   cmocka_unit_test(takes_maxima),
        cmocka_unit_test(chooses_round_ticks),   cmocka_unit_test(has_the_ends_of_viridis),
        cmocka_unit_test(decodes_utf8),          cmocka_unit_test(has_all_of_ascii),
        cmocka_unit_test(clips_what_is_outside), cmocka_unit_test(draws_text_of_the_stated_width),
        cmocka_unit_test(encodes_what_is_drawn), cmocka_unit_test(draws_cells_in_place),
    };
    return cmocka_run_group_tests_name("png", tests, NULL, NULL);
}
