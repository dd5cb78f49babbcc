/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Written-out English dates in, ISO dates out: an encoder-decoder Transformer
 * with greedy or beam search, and a picture of where it looked. docs/translate.md
 * is its page.
 */
#include "translator.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plot/picture.h"
#include "plot/plot.h"
#include "progress.h"

/* Texts that are encoded together. */
#define BATCH 32

struct options {
    const char *model, *heatmap, *check, *expected;
    long long beams; /* 0: the model's own number */
    char *const *texts;
    int num_texts;
    bool quiet;
};

static void usage(void)
{
    fputs("Usage: translate --model FOLDER [--beams N] [--heatmap FILE.png] TEXT...\n"
          "       translate --model FOLDER [--beams N] --check FILE --expected FILE\n"
          "\n"
          "Prints the ISO date that the model makes of each TEXT, a date in English such as\n"
          "'the third of March, nineteen eighty-seven'.\n"
          "\n"
          "  -m, --model FOLDER      as examples/train/train_translator.py writes it\n"
          "  -b, --beams N           hypotheses of the beam search, 1 for greedy search\n"
          "                          (default: what config.json says)\n"
          "      --heatmap FILE.png  also draw where the last layer looked for each character\n"
          "                          of the one TEXT's translation\n"
          "      --check FILE        translate its lines instead and compare them with those\n"
          "      --expected FILE     of this file; exit code 1 if one differs\n"
          "  -q, --quiet             show no progress on a terminal\n"
          "  -V, --version           print the version\n"
          "  -h, --help              print this text\n",
          stdout);
}

/* ----------------------------------------------------------------- picture -- */

static attn_status draw(const struct picture_target *target, struct translator_view *view, const char *text,
                        const char *translation)
{
    struct plot plot = {
        .title = translation,
        .subtitle = text,
        .row_name = "written",
        .column_name = "read",
        .rows = view->rows,
        .columns = view->columns,
        .panels = 1,
        .cells = &view->weights,
        .row_labels = {view->written.text},
        .column_labels = {view->read.text},
        .limit_bytes = 1e9,
    };
    plot_heatmap_bins(plot.rows, plot.columns, 1, 0, &plot.bin_rows, &plot.bin_columns);
    if (plot.bin_rows != plot.rows || plot.bin_columns != plot.columns)
        return io_fail(ATTN_INVALID_FILE, "%lld x %lld characters are too many for a picture", (long long)plot.rows,
                       (long long)plot.columns);
    double high = 0;
    for (int64_t i = 0; i < plot.rows * plot.columns; i++)
        high = fmax(high, (double)view->weights[i]);
    if (!(high > 0))
        return io_fail(ATTN_INVALID_FILE, "no character has a weight");
    plot.scale = (struct scale){SCALE_LINEAR, 0, high};
    struct canvas canvas;
    attn_status status = plot_heatmap(&canvas, &plot, 0);
    if (status == ATTN_OK)
        status = picture_write(&canvas, target);
    canvas_free(&canvas);
    return status;
}

/* -------------------------------------------------------------------- runs -- */

static attn_status translate_all(const struct translator *translator, const struct lines *texts, int64_t beams,
                                 bool quiet, struct lines *found)
{
    struct progress progress;
    attn_status status = ATTN_OK;
    progress_start(&progress, texts->count, "texts", quiet);
    for (int64_t first = 0; status == ATTN_OK && first < texts->count; first += BATCH) {
        const int64_t left = texts->count - first;
        status = translator_run(translator, texts, first, left < BATCH ? left : BATCH, beams, found);
        progress_set(&progress, found->count);
    }
    progress_finish(&progress);
    return status;
}

static attn_status show(const struct translator *translator, const struct options *o, int64_t beams,
                        const struct picture_target *picture)
{
    struct lines texts = {0}, found = {0};
    struct translator_view view = {0};
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < o->num_texts; i++)
        status = lines_add(&texts, o->texts[i], strlen(o->texts[i]));
    if (status == ATTN_OK)
        status = translate_all(translator, &texts, beams, o->quiet, &found);
    if (status == ATTN_OK && picture->path) {
        status = translator_look(translator, texts.text[0], texts.size[0], beams, &view);
        if (status == ATTN_OK)
            status = draw(picture, &view, texts.text[0], found.text[0]);
    }
    for (int64_t i = 0; status == ATTN_OK && i < found.count; i++)
        puts(found.text[i]);
    translator_view_free(&view);
    lines_free(&texts);
    lines_free(&found);
    return status;
}

static attn_status check(const struct translator *translator, const struct options *o, int64_t beams)
{
    struct lines texts = {0}, expected = {0}, found = {0};
    long long differ = 0;
    attn_status status = lines_read(&texts, o->check);
    if (status == ATTN_OK)
        status = lines_read(&expected, o->expected);
    if (status == ATTN_OK && texts.count == 0)
        status = io_fail(ATTN_INVALID_FILE, "%s holds no text", o->check);
    if (status == ATTN_OK && texts.count != expected.count)
        status = io_fail(ATTN_INVALID_FILE, "%s has %lld lines; expected %lld, as many as %s", o->expected,
                         (long long)expected.count, (long long)texts.count, o->check);
    if (status == ATTN_OK)
        status = translate_all(translator, &texts, beams, o->quiet, &found);
    for (int64_t i = 0; status == ATTN_OK && i < texts.count; i++) {
        if (found.size[i] == expected.size[i] && memcmp(found.text[i], expected.text[i], found.size[i]) == 0)
            continue;
        differ++;
        printf("line %lld: '%s' became '%s'; expected '%s'\n", (long long)i + 1, texts.text[i], found.text[i],
               expected.text[i]);
    }
    if (status == ATTN_OK)
        printf("%lld of %lld texts came out as expected, with %lld beams\n", (long long)texts.count - differ,
               (long long)texts.count, (long long)beams);
    if (status == ATTN_OK && differ)
        status = io_fail(ATTN_INVALID_FILE, "%lld translations differ from those in %s", differ, o->expected);
    lines_free(&texts);
    lines_free(&expected);
    lines_free(&found);
    return status;
}

/* -------------------------------------------------------------------- main -- */

static attn_status run(const struct options *o)
{
    struct translator *translator = NULL;
    struct picture_target picture = {.path = NULL};
    attn_status status = o->heatmap ? picture_target(&picture, o->heatmap) : ATTN_OK;
    if (status == ATTN_OK)
        status = translator_open(&translator, o->model);
    if (status == ATTN_OK) {
        const int64_t beams = o->beams ? o->beams : translator_beams(translator);
        status = o->check ? check(translator, o, beams) : show(translator, o, beams, &picture);
    }
    translator_close(translator);
    picture_target_free(&picture);
    return status;
}

static attn_status read_beams(const char *text, long long *beams)
{
    char *end;
    errno = 0;
    *beams = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *beams >= 1
               ? ATTN_OK
               : io_fail(ATTN_INVALID_ARGUMENT, "--beams is '%s'; expected a whole number from 1", text);
}

static attn_status parse(struct options *o, int argc, char **argv)
{
    enum { HEATMAP = 256, TEXTS, EXPECTED };
    static const struct option known[] = {
        {"model", 1, NULL, 'm'},   {"beams", 1, NULL, 'b'},         {"heatmap", 1, NULL, HEATMAP},
        {"check", 1, NULL, TEXTS}, {"expected", 1, NULL, EXPECTED}, {"quiet", 0, NULL, 'q'},
        {"version", 0, NULL, 'V'}, {"help", 0, NULL, 'h'},          {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "m:b:qVh", known, NULL)) != -1) {
        switch (option) {
        case 'm':
            o->model = optarg;
            break;
        case 'b':
            CHECK(read_beams(optarg, &o->beams));
            break;
        case HEATMAP:
            o->heatmap = optarg;
            break;
        case TEXTS:
            o->check = optarg;
            break;
        case EXPECTED:
            o->expected = optarg;
            break;
        case 'q':
            o->quiet = true;
            break;
        case 'V':
            printf("translate %s\n", attn_version_string());
            exit(0);
        case 'h':
            usage();
            exit(0);
        default:
            return io_fail(ATTN_INVALID_ARGUMENT, "see --help");
        }
    }
    o->texts = argv + optind;
    o->num_texts = argc - optind;
    if (!o->model)
        return io_fail(ATTN_INVALID_ARGUMENT, "no model is given; expected --model FOLDER");
    if (!o->check != !o->expected)
        return io_fail(ATTN_INVALID_ARGUMENT, "--check and --expected belong together; expected both");
    if (o->check && (o->heatmap || o->num_texts))
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--check reads texts from a file; expected neither --heatmap nor a TEXT with it");
    if (!o->check && o->num_texts == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "there is nothing to translate; expected a TEXT");
    if (o->heatmap && o->num_texts != 1)
        return io_fail(ATTN_INVALID_ARGUMENT, "--heatmap draws one text, but there are %d", o->num_texts);
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    attn_status status = parse(&options, argc, argv);
    const int failure = status != ATTN_OK ? 2 : 1;
    if (status == ATTN_OK)
        status = run(&options);
    if (status == ATTN_OK)
        return 0;
    fprintf(stderr, "translate: %s\n", attn_last_error());
    return failure;
}
