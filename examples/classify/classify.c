/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classifies texts, and shows which words it looked at. docs/classify.md is its
 * page.
 */
#include "classifier.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/config.h"
#include "io/array.h"
#include "plot/picture.h"
#include "plot/plot.h"
#include "progress.h"

enum { BATCH = 64 };

/* How far f32 logits and weights may lie from PyTorch's, whose sums have another order. */
#define TOLERANCE 1e-4

struct options {
    const char *model, *bars, *input;
    bool check, quiet;
};

static void usage(void)
{
    fputs("Usage: classify --model FOLDER [--bars FILE.png | --check] [FILE]\n"
          "\n"
          "Classifies the texts in FILE (default: standard input), one a line: prints the\n"
          "class, its probability, and each word with its weight.\n"
          "\n"
          "  -m, --model FOLDER   as examples/train/train_classifier.py writes it\n"
          "  -b, --bars FILE.png  also draw the weights of the first text's words\n"
          "      --check          instead compare logits, predictions and weights of the\n"
          "                       model's test texts with PyTorch's; exit code 1 if they differ\n"
          "  -q, --quiet          show no progress on a terminal\n"
          "  -V, --version        print the version\n"
          "  -h, --help           print this text\n",
          stdout);
}

static int64_t greatest(const float *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (values[i] > values[best])
            best = i;
    return best;
}

static double probability(const float *logits, int64_t n, int64_t which)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[which]);
    return 1 / sum;
}

/* -------------------------------------------------------------------- text -- */

static attn_status draw(const struct picture_target *target, const struct words *words, float *weights,
                        const char *title)
{
    struct plot plot = {
        .title = title,
        .subtitle = "what attention pooling looked at",
        .row_name = "weight",
        .column_name = "word",
        .rows = 1,
        .columns = words->text.count,
        .bin_rows = 1,
        .panels = 1,
        .cells = &weights,
        .column_labels = {words->text.text},
        .limit_bytes = 1e9,
    };
    plot.bin_columns = plot_bar_bins(plot.columns, 1, 0);
    if (plot.bin_columns != plot.columns)
        return io_fail(ATTN_INVALID_FILE, "the text has %lld words; expected at most %d for a picture",
                       (long long)plot.columns, plot.bin_columns);
    double high = 0;
    for (int64_t i = 0; i < plot.columns; i++)
        high = fmax(high, (double)weights[i]);
    if (!(high > 0))
        return io_fail(ATTN_INVALID_FILE, "no word has a weight");
    plot.scale = (struct scale){SCALE_LINEAR, 0, plot_bar_top(0, high)};
    struct canvas canvas;
    attn_status status = plot_bars(&canvas, &plot, 0);
    if (status == ATTN_OK)
        status = picture_write(&canvas, target);
    canvas_free(&canvas);
    return status;
}

/* Progress is shown where the results go elsewhere than to the terminal. */
static attn_status show(const struct classifier *classifier, const struct lines *lines,
                        const struct picture_target *picture, bool quiet)
{
    const int64_t classes = classifier_classes(classifier);
    struct words words = {0};
    struct progress progress;
    float *logits = calloc((size_t)classes, sizeof *logits);
    attn_status status = logits ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    progress_start(&progress, lines->count, "texts", quiet || isatty(STDOUT_FILENO));
    for (int64_t i = 0; status == ATTN_OK && i < lines->count; i++) {
        status = words_split(classifier_vocabulary(classifier), lines->text[i], lines->size[i], &words);
        float *weights = status == ATTN_OK ? calloc((size_t)words.text.count, sizeof *weights) : NULL;
        if (status == ATTN_OK && !weights)
            status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
        if (status == ATTN_OK)
            status = classifier_run(classifier, &words, 1, logits, &weights);
        if (status == ATTN_OK) {
            const int64_t best = greatest(logits, classes);
            printf("%s (%.3f)", classifier_class(classifier, best), probability(logits, classes, best));
            for (int64_t w = 0; w < words.text.count; w++)
                printf(" %s:%.2f", words.text.text[w], (double)weights[w]);
            printf("\n");
            if (picture->path && i == 0)
                status = draw(picture, &words, weights, classifier_class(classifier, best));
        }
        free(weights);
        progress_add(&progress, 1);
    }
    progress_finish(&progress);
    words_free(&words);
    free(logits);
    return status;
}

/* ------------------------------------------------------------------- check -- */

/* An array of the references, of the expected shape. */
static attn_status load(struct array *array, const char *folder, const char *name, enum array_dtype dtype, int ndim,
                        int64_t rows, int64_t columns)
{
    char *spec;
    if (asprintf(&spec, "%s/reference.safetensors:%s", folder, name) < 0)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", folder);
    attn_status status = array_load(array, spec);
    if (status == ATTN_OK && (array->is.dtype != dtype || array->is.ndim != ndim ||
                              (rows && array->is.shape[0] != rows) || (columns && array->is.shape[1] != columns))) {
        char shape[ARRAY_SHAPE_TEXT];
        status = io_fail(ATTN_INVALID_FILE, "%s is %s %s; expected %s with %lld rows", spec,
                         array_dtype_name(array->is.dtype), array_shape_text(&array->is, shape),
                         array_dtype_name(dtype), (long long)rows);
        array_free(array);
    }
    free(spec);
    return status;
}

/* Raises most to the distance of two floats; a NaN counts. (gcc 12 for AArch64 crashes on fmax() of such a loop.) */
static void raise_to(double *most, float a, float b)
{
    const double distance = fabs((double)a - (double)b);
    if (!(distance <= *most))
        *most = distance;
}

/* What a comparison found. */
struct comparison {
    double logit_error, weight_error;
    int64_t texts, other_classes, right;
};

/* One batch, from text first on, against the references. */
static attn_status compare_batch(const struct classifier *classifier, const struct lines *lines, int64_t first,
                                 int64_t count, const struct array *expected, const struct array *labels,
                                 const struct array *seen, struct comparison *found)
{
    const int64_t classes = classifier_classes(classifier), detailed = seen->is.shape[0], longest = seen->is.shape[1];
    struct words words[BATCH] = {0};
    float *weights[BATCH] = {NULL}, *logits = calloc((size_t)(BATCH * classes), sizeof *logits);
    attn_status status = logits ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) {
        status =
            words_split(classifier_vocabulary(classifier), lines->text[first + i], lines->size[first + i], &words[i]);
        weights[i] = status == ATTN_OK ? calloc((size_t)words[i].text.count, sizeof *weights[i]) : NULL;
        if (status == ATTN_OK && !weights[i])
            status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    }
    if (status == ATTN_OK)
        status = classifier_run(classifier, words, count, logits, weights);
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) {
        const float *theirs = (const float *)expected->data + (first + i) * classes, *ours = logits + i * classes;
        for (int64_t c = 0; c < classes; c++)
            raise_to(&found->logit_error, ours[c], theirs[c]);
        found->other_classes += greatest(ours, classes) != greatest(theirs, classes);
        found->right += greatest(ours, classes) == ((const int64_t *)labels->data)[first + i];
        for (int64_t w = 0; first + i < detailed && w < words[i].text.count && w < longest; w++)
            raise_to(&found->weight_error, ((const float *)seen->data)[(first + i) * longest + w], weights[i][w]);
    }
    found->texts += count;
    for (int64_t i = 0; i < BATCH; i++) {
        words_free(&words[i]);
        free(weights[i]);
    }
    free(logits);
    return status;
}

static attn_status judge(const struct comparison *found)
{
    printf("%lld texts: %lld of other classes than PyTorch's; logits within %.2e, weights within %.2e; "
           "%.1f %% classified rightly\n",
           (long long)found->texts, (long long)found->other_classes, found->logit_error, found->weight_error,
           100.0 * (double)found->right / (double)found->texts);
    return found->other_classes == 0 && found->logit_error <= TOLERANCE && found->weight_error <= TOLERANCE
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE,
                         "the results differ from PyTorch's; expected the same classes and errors up to %g", TOLERANCE);
}

static attn_status check(const struct classifier *classifier, const char *folder, bool quiet)
{
    struct lines lines = {0};
    struct array expected = {0}, labels = {0}, seen = {0};
    struct comparison found = {0};
    struct progress progress;
    char *path = config_beside(folder, "test.txt");
    attn_status status = path ? lines_read(&lines, path) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK && lines.count == 0)
        status = io_fail(ATTN_INVALID_FILE, "%s holds no text", path);
    if (status == ATTN_OK)
        status = load(&expected, folder, "logits", ARRAY_F32, 2, lines.count, classifier_classes(classifier));
    if (status == ATTN_OK)
        status = load(&labels, folder, "labels", ARRAY_I64, 1, lines.count, 0);
    if (status == ATTN_OK)
        status = load(&seen, folder, "weights", ARRAY_F32, 2, 0, 0);
    progress_start(&progress, lines.count, "texts", quiet);
    for (int64_t first = 0; status == ATTN_OK && first < lines.count; first += BATCH) {
        status = compare_batch(classifier, &lines, first, lines.count - first < BATCH ? lines.count - first : BATCH,
                               &expected, &labels, &seen, &found);
        progress_set(&progress, found.texts);
    }
    progress_finish(&progress);
    array_free(&expected);
    array_free(&labels);
    array_free(&seen);
    lines_free(&lines);
    free(path);
    if (status != ATTN_OK)
        return status;
    return judge(&found);
}

/* -------------------------------------------------------------------- main -- */

static attn_status run(const struct options *o)
{
    struct classifier *classifier = NULL;
    struct lines lines = {0};
    struct picture_target picture = {.path = NULL};
    attn_status status = !o->bars ? ATTN_OK : picture_target(&picture, o->bars);
    if (status == ATTN_OK)
        status = classifier_open(&classifier, o->model);
    if (status == ATTN_OK && o->check)
        status = check(classifier, o->model, o->quiet);
    else if (status == ATTN_OK) {
        status = lines_read(&lines, o->input);
        if (status == ATTN_OK)
            status = show(classifier, &lines, &picture, o->quiet);
    }
    lines_free(&lines);
    classifier_close(classifier);
    picture_target_free(&picture);
    return status;
}

static attn_status parse(struct options *o, int argc, char **argv)
{
    enum { REFERENCE = 256 };
    static const struct option known[] = {
        {"model", 1, NULL, 'm'}, {"bars", 1, NULL, 'b'},    {"check", 0, NULL, REFERENCE},
        {"quiet", 0, NULL, 'q'}, {"version", 0, NULL, 'V'}, {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "m:b:qVh", known, NULL)) != -1) {
        switch (option) {
        case 'm':
            o->model = optarg;
            break;
        case 'b':
            o->bars = optarg;
            break;
        case REFERENCE:
            o->check = true;
            break;
        case 'q':
            o->quiet = true;
            break;
        case 'V':
            printf("classify %s\n", attn_version_string());
            exit(0);
        case 'h':
            usage();
            exit(0);
        default:
            return io_fail(ATTN_INVALID_ARGUMENT, "see --help");
        }
    }
    if (argc - optind > 1)
        return io_fail(ATTN_INVALID_ARGUMENT, "'%s' is one file too many; expected one", argv[optind + 1]);
    if (optind < argc)
        o->input = argv[optind];
    if (!o->model)
        return io_fail(ATTN_INVALID_ARGUMENT, "no model is given; expected --model FOLDER");
    if (o->check && (o->bars || o->input))
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--check reads the model's own texts; expected neither --bars nor a file with it");
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
    fprintf(stderr, "classify: %s\n", attn_last_error());
    return failure;
}
