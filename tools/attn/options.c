/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser for the tables of options.h. Numbers go through strtod and
 * strtoll in the C locale (the program never sets another) and must be used up
 * to the last character; NaN and infinities are no values for any option but
 * where it says so. A list has at least one number; a comma at its end is an
 * error.
 */
#include "options.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *option_label(const struct option *option, char buffer[64])
{
    if (option->name != NULL)
        snprintf(buffer, 64, "--%s", option->name);
    else
        snprintf(buffer, 64, "-%c", option->letter);
    return buffer;
}

static struct option *find_long(struct option *options, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++) {
        if (options[i].name != NULL && strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return &options[i];
    }
    return NULL;
}

static struct option *find_letter(struct option *options, int count, const char *argument)
{
    for (int i = 0; i < count; i++) {
        if (options[i].letter != 0 && options[i].letter == argument[1] && argument[2] == '\0')
            return &options[i];
    }
    return NULL;
}

/* The option of an argument; length is that of its name with the dashes, *equals NULL or the sign behind it. */
static struct option *find_option(struct option *options, int count, const char *argument, const char **equals,
                                  size_t *length)
{
    const bool is_long = argument[1] == '-';
    *equals = is_long ? strchr(argument, '=') : NULL;
    *length = *equals != NULL ? (size_t)(*equals - argument) : strlen(argument);
    return is_long ? find_long(options, count, argument + 2, *length - 2) : find_letter(options, count, argument);
}

/* Whether an option may be given several times. */
static bool repeats(const struct option *option)
{
    const size_t length = option->argument != NULL ? strlen(option->argument) : 0;
    return length > 3 && strcmp(option->argument + length - 3, "...") == 0;
}

/* Damerau's distance, whose rows are those of the last two characters. */
int name_distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    int rows[3][LONGEST + 1];
    const size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return INT_MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *row = rows[i % 3];
        const int *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int changed = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = last[j] < row[j - 1] ? last[j] + 1 : row[j - 1] + 1;
            row[j] = changed < row[j] ? changed : row[j];
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

bool name_resembles(const char *typed, int distance)
{
    return distance <= (strlen(typed) < 6 ? 1 : (int)(strlen(typed) / 3));
}

/* Refuses a name that is not in the table; argument has length characters before its value. */
static attn_status unknown_option(const struct option *options, int count, const char *argument, size_t length)
{
    char typed[48];
    const char *nearest = NULL;
    int best = INT_MAX;
    snprintf(typed, sizeof typed, "%.*s", (int)length, argument);
    for (int i = 0; i < count && length > 2 && length < sizeof typed; i++) {
        const int distance = options[i].name != NULL ? name_distance(typed + 2, options[i].name) : INT_MAX;
        if (distance < best) {
            best = distance;
            nearest = options[i].name;
        }
    }
    if (nearest != NULL && name_resembles(typed + 2, best))
        return io_fail(ATTN_INVALID_ARGUMENT, "unknown option '%.*s'; did you mean --%s? --help lists the options",
                       (int)length, argument, nearest);
    return io_fail(ATTN_INVALID_ARGUMENT, "unknown option '%.*s'; --help lists the options", (int)length, argument);
}

attn_status options_parse(struct option *options, int count, int argc, char *const *argv, struct operands *operands,
                          int max_operands)
{
    bool only_operands = false;
    *operands = (struct operands){.count = 0};
    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i];
        if (!only_operands && strcmp(argument, "--") == 0) {
            only_operands = true;
            continue;
        }
        /* - and -:NAME are standard input or output. */
        if (only_operands || argument[0] != '-' || argument[1] == '\0' || argument[1] == ':') {
            if (operands->count == max_operands)
                return io_fail(ATTN_INVALID_ARGUMENT, "unexpected argument '%s'; --help lists what is understood",
                               argument);
            operands->values[operands->count++] = argument;
            continue;
        }
        const char *equals;
        size_t length;
        struct option *option = find_option(options, count, argument, &equals, &length);
        if (option == NULL)
            return unknown_option(options, count, argument, length);
        if (option->value != NULL && !repeats(option))
            return io_fail(ATTN_INVALID_ARGUMENT, "option '%.*s' is given twice", (int)length, argument);
        if (option->argument == NULL) {
            if (equals != NULL)
                return io_fail(ATTN_INVALID_ARGUMENT, "option '%.*s' takes no value", (int)length, argument);
            option->value = "";
        } else if (equals != NULL) {
            option->value = equals + 1;
        } else {
            if (i + 1 == argc)
                return io_fail(ATTN_INVALID_ARGUMENT, "option '%s' lacks its value %s", argument, option->argument);
            option->value = argv[++i];
        }
    }
    return ATTN_OK;
}

attn_status option_values(struct option *options, int count, int argc, char *const *argv, const struct option *which,
                          struct texts *out)
{
    *out = (struct texts){.values = calloc((size_t)argc + 1, sizeof *out->values)};
    if (out->values == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %d arguments", argc);
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *equals;
        size_t length;
        if (argv[i][0] != '-' || argv[i][1] == '\0')
            continue;
        const struct option *option = find_option(options, count, argv[i], &equals, &length);
        if (option->argument == NULL)
            continue;
        const char *value = equals != NULL ? equals + 1 : argv[++i];
        if (option == which)
            out->values[out->count++] = value;
    }
    return ATTN_OK;
}

void options_print(FILE *to, const struct option *options, int count)
{
    for (int i = 0; i < count; i++) {
        const struct option *o = &options[i];
        char left[64], letter[8] = "";
        if (o->name == NULL && o->letter == 0)
            continue;
        if (o->letter != 0)
            snprintf(letter, sizeof letter, "-%c%s", o->letter, o->name != NULL ? ", " : "");
        snprintf(left, sizeof left, "%s%s%s%s%s", o->letter != 0 ? letter : "    ", o->name != NULL ? "--" : "",
                 o->name != NULL ? o->name : "", o->argument != NULL ? " " : "",
                 o->argument != NULL ? o->argument : "");
        const char *line = o->help;
        for (;;) {
            int length = (int)strcspn(line, "\n");
            fprintf(to, "  %-28s %.*s\n", left, length, line);
            if (line[length] == '\0')
                break;
            line += length + 1;
            left[0] = '\0';
        }
    }
}

attn_status option_require(const struct option *option)
{
    char label[64];
    if (option->value != NULL)
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT, "option %s %s is missing", option_label(option, label), option->argument);
}

attn_status option_float(const struct option *option, bool positive, float *out)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return ATTN_OK;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    bool whole = *text != '\0' && strchr(" \t\n\v\f\r", *text) == NULL && *end == '\0';
    float narrow = (float)value;
    /* Zero stands for the default inside the library and would silently mean that. */
    if (!whole || !isfinite(narrow) || narrow == 0 || (positive && value < 0))
        return io_fail(ATTN_INVALID_ARGUMENT, "%s is '%s'; expected a finite number %s", option_label(option, label),
                       text, positive ? "above 0" : "other than 0");
    *out = narrow;
    return ATTN_OK;
}

attn_status option_integer(const struct option *option, long long low, long long high, long long *out)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return ATTN_OK;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool whole = *text != '\0' && strchr(" \t\n\v\f\r", *text) == NULL && *end == '\0' && errno == 0;
    if (!whole || value < low || value > high)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s is '%s'; expected a whole number from %lld to %lld",
                       option_label(option, label), text, low, high);
    *out = value;
    return ATTN_OK;
}

attn_status option_choice(const struct option *option, const char *const *names, int count, int *out)
{
    char label[64], known[256] = "";
    if (option->value == NULL)
        return ATTN_OK;
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(option->value, names[i]) == 0) {
            *out = i;
            return ATTN_OK;
        }
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     i == 0           ? ""
                                     : i == count - 1 ? " or "
                                                      : ", ",
                                     names[i]);
    }
    return io_fail(ATTN_INVALID_ARGUMENT, "%s is '%s'; expected %s", option_label(option, label), option->value, known);
}

/* -------------------------------------------- lists, and reals with bounds -- */

static int64_t count_items(const char *text)
{
    int64_t count = 1;
    for (const char *c = text; *c != '\0'; c++)
        count += *c == ',';
    return count;
}

/* Whether a number may begin at text: neither nothing nor white space, which strtod and strtoll would skip. */
static bool begins(const char *text)
{
    return *text != '\0' && strchr(", \t\n\v\f\r", *text) == NULL;
}

/* Whether the item that was read up to end ends there; moves *text to the next one. */
static bool next_item(const char **text, const char *end)
{
    *text = end + (*end == ',');
    return *end == ',' || *end == '\0';
}

static bool read_integer(const char **text, bool inf, int64_t *out)
{
    char *end;
    if (!begins(*text))
        return false;
    if (inf && strncmp(*text, "inf", 3) == 0) {
        *out = INT64_MAX;
        return next_item(text, *text + 3);
    }
    errno = 0;
    long long value = strtoll(*text, &end, 10);
    *out = value;
    return end != *text && errno == 0 && next_item(text, end);
}

static attn_status bad_integers(const struct option *option, int64_t low, int64_t high, enum integers_kind kind)
{
    static const char *const more[] = {"", ", or inf", ", each above the one before it",
                                       ", none below the one before it"};
    char label[64], bounds[64];
    if (high < INT64_MAX)
        snprintf(bounds, sizeof bounds, "from %" PRId64 " to %" PRId64, low, high);
    else
        snprintf(bounds, sizeof bounds, "of at least %" PRId64, low);
    return io_fail(ATTN_INVALID_ARGUMENT, "%s is '%s'; expected %s, whole numbers %s%s", option_label(option, label),
                   option->value, option->argument, bounds, more[kind]);
}

attn_status option_integers(const struct option *option, int64_t low, int64_t high, enum integers_kind kind,
                            struct integers *out)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return ATTN_OK;
    int64_t count = count_items(text);
    int64_t *values = calloc((size_t)count, sizeof *values);
    if (values == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", option_label(option, label));
    bool good = true;
    for (int64_t i = 0; good && i < count; i++) {
        good = read_integer(&text, kind == INTEGERS_INF, &values[i]) && values[i] >= low && values[i] <= high;
        if (good && i > 0 && (kind == INTEGERS_RISING || kind == INTEGERS_CLIMBING))
            good = values[i] > values[i - 1] || (kind == INTEGERS_CLIMBING && values[i] == values[i - 1]);
    }
    if (!good) {
        free(values);
        return bad_integers(option, low, high, kind);
    }
    *out = (struct integers){values, count};
    return ATTN_OK;
}

static bool read_real(const char **text, bool minus_infinity, float *out)
{
    char *end;
    if (!begins(*text))
        return false;
    double value = strtod(*text, &end);
    *out = (float)value;
    bool fits = isfinite(*out) || (minus_infinity && value == -INFINITY);
    return end != *text && fits && next_item(text, end);
}

attn_status option_reals(const struct option *option, bool minus_infinity, struct reals *out)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return ATTN_OK;
    int64_t count = count_items(text);
    float *values = calloc((size_t)count, sizeof *values);
    if (values == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", option_label(option, label));
    bool good = true;
    for (int64_t i = 0; good && i < count; i++)
        good = read_real(&text, minus_infinity, &values[i]);
    if (!good) {
        free(values);
        return io_fail(ATTN_INVALID_ARGUMENT, "%s is '%s'; expected %s, finite numbers%s", option_label(option, label),
                       option->value, option->argument, minus_infinity ? ", or -inf" : "");
    }
    *out = (struct reals){values, count};
    return ATTN_OK;
}

attn_status option_doubles(const struct option *option, struct doubles *out)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return ATTN_OK;
    int64_t count = count_items(text);
    double *values = calloc((size_t)count, sizeof *values);
    if (values == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", option_label(option, label));
    bool good = true;
    for (int64_t i = 0; good && i < count; i++) {
        char *end = NULL;
        good = begins(text);
        values[i] = good ? strtod(text, &end) : 0;
        good = good && end != text && values[i] >= (double)FLT_MIN && values[i] <= (double)FLT_MAX &&
               next_item(&text, end);
    }
    if (!good) {
        free(values);
        return io_fail(ATTN_INVALID_ARGUMENT, "%s is '%s'; expected %s, positive numbers that a float can hold",
                       option_label(option, label), option->value, option->argument);
    }
    *out = (struct doubles){values, count};
    return ATTN_OK;
}

attn_status option_double(const struct option *option, double least, double end, double *out)
{
    char label[64], bounds[64];
    const char *text = option->value;
    if (text == NULL)
        return ATTN_OK;
    char *stop = NULL;
    double value = begins(text) ? strtod(text, &stop) : 0;
    if (stop != NULL && stop != text && *stop == '\0' && isfinite(value) && value >= least && value < end) {
        *out = value;
        return ATTN_OK;
    }
    if (isfinite(end))
        snprintf(bounds, sizeof bounds, "number from %g to below %g", least, end);
    else if (least == (double)FLT_MIN)
        snprintf(bounds, sizeof bounds, "finite number above 0");
    else
        snprintf(bounds, sizeof bounds, "finite number of at least %g", least);
    return io_fail(ATTN_INVALID_ARGUMENT, "%s is '%s'; expected a %s", option_label(option, label), text, bounds);
}

attn_status integers_spread(const struct integers *list, const struct option *option, int64_t count, const char *thing,
                            int64_t **out)
{
    char label[64];
    if (list->values == NULL)
        return ATTN_OK;
    if (list->count != 1 && list->count != count)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s has %" PRId64 " values; expected 1, or %" PRId64 ", one per %s",
                       option_label(option, label), list->count, count, thing);
    *out = calloc(count > 0 ? (size_t)count : 1, sizeof **out);
    if (*out == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", option_label(option, label));
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = list->values[list->count == 1 ? 0 : i];
    return ATTN_OK;
}
