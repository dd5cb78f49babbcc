/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same rules as for single numbers: the C locale, every character used, no
 * NaN. A list has at least one number; a comma at its end is an error.
 */
#include "numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static bool bad_integers(const struct option *option, int64_t low, int64_t high, enum integers_kind kind,
                         struct io_error *error)
{
    static const char *const more[] = {"", ", or inf", ", each above the one before it",
                                       ", none below the one before it"};
    char label[64], bounds[64];
    if (high < INT64_MAX)
        snprintf(bounds, sizeof bounds, "from %" PRId64 " to %" PRId64, low, high);
    else
        snprintf(bounds, sizeof bounds, "of at least %" PRId64, low);
    return io_fail_usage(error, "%s is '%s'; expected %s, whole numbers %s%s", option_label(option, label),
                         option->value, option->argument, bounds, more[kind]);
}

bool option_integers(const struct option *option, int64_t low, int64_t high, enum integers_kind kind,
                     struct integers *out, struct io_error *error)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return true;
    int64_t count = count_items(text);
    int64_t *values = calloc((size_t)count, sizeof *values);
    if (values == NULL)
        return io_fail(error, "%s: out of memory", option_label(option, label));
    bool ok = true;
    for (int64_t i = 0; ok && i < count; i++) {
        ok = read_integer(&text, kind == INTEGERS_INF, &values[i]) && values[i] >= low && values[i] <= high;
        if (ok && i > 0 && (kind == INTEGERS_RISING || kind == INTEGERS_CLIMBING))
            ok = values[i] > values[i - 1] || (kind == INTEGERS_CLIMBING && values[i] == values[i - 1]);
    }
    if (!ok) {
        free(values);
        return bad_integers(option, low, high, kind, error);
    }
    *out = (struct integers){values, count};
    return true;
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

bool option_reals(const struct option *option, bool minus_infinity, struct reals *out, struct io_error *error)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return true;
    int64_t count = count_items(text);
    float *values = calloc((size_t)count, sizeof *values);
    if (values == NULL)
        return io_fail(error, "%s: out of memory", option_label(option, label));
    bool ok = true;
    for (int64_t i = 0; ok && i < count; i++)
        ok = read_real(&text, minus_infinity, &values[i]);
    if (!ok) {
        free(values);
        return io_fail_usage(error, "%s is '%s'; expected %s, finite numbers%s", option_label(option, label),
                             option->value, option->argument, minus_infinity ? ", or -inf" : "");
    }
    *out = (struct reals){values, count};
    return true;
}

bool option_double(const struct option *option, double least, double end, double *out, struct io_error *error)
{
    char label[64], bounds[64];
    const char *text = option->value;
    if (text == NULL)
        return true;
    char *stop = NULL;
    double value = begins(text) ? strtod(text, &stop) : 0;
    if (stop != NULL && stop != text && *stop == '\0' && isfinite(value) && value >= least && value < end) {
        *out = value;
        return true;
    }
    if (isfinite(end))
        snprintf(bounds, sizeof bounds, "number from %g to below %g", least, end);
    else
        snprintf(bounds, sizeof bounds, "finite number of at least %g", least);
    return io_fail_usage(error, "%s is '%s'; expected a %s", option_label(option, label), text, bounds);
}

bool integers_spread(const struct integers *list, const struct option *option, int64_t count, const char *thing,
                     int64_t **out, struct io_error *error)
{
    char label[64];
    if (list->values == NULL)
        return true;
    if (list->count != 1 && list->count != count)
        return io_fail_usage(error, "%s has %" PRId64 " values; expected 1, or %" PRId64 ", one per %s",
                             option_label(option, label), list->count, count, thing);
    *out = calloc(count > 0 ? (size_t)count : 1, sizeof **out);
    if (*out == NULL)
        return io_fail(error, "%s: out of memory", option_label(option, label));
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = list->values[list->count == 1 ? 0 : i];
    return true;
}
