/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser for the tables of options.h. Numbers go through strtod and
 * strtoll in the C locale (the program never sets another) and must be used up
 * to the last character; NaN and infinities are no values for any option.
 */
#include "options.h"

#include <errno.h>
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

bool options_parse(struct option *options, int count, int argc, char *const *argv, struct operands *operands,
                   int max_operands, struct io_error *error)
{
    bool only_operands = false;
    *operands = (struct operands){.count = 0};
    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i];
        if (!only_operands && strcmp(argument, "--") == 0) {
            only_operands = true;
            continue;
        }
        if (only_operands || argument[0] != '-' || argument[1] == '\0') {
            if (operands->count == max_operands)
                return io_fail_usage(error, "unexpected argument '%s'; --help lists what is understood", argument);
            operands->values[operands->count++] = argument;
            continue;
        }
        bool is_long = argument[1] == '-';
        const char *equals = is_long ? strchr(argument, '=') : NULL;
        size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
        struct option *option =
            is_long ? find_long(options, count, argument + 2, length - 2) : find_letter(options, count, argument);
        if (option == NULL)
            return io_fail_usage(error, "unknown option '%.*s'; --help lists the options", (int)length, argument);
        if (option->value != NULL)
            return io_fail_usage(error, "option '%.*s' is given twice", (int)length, argument);
        if (option->argument == NULL) {
            if (equals != NULL)
                return io_fail_usage(error, "option '%.*s' takes no value", (int)length, argument);
            option->value = "";
        } else if (equals != NULL) {
            option->value = equals + 1;
        } else {
            if (i + 1 == argc)
                return io_fail_usage(error, "option '%s' lacks its value %s", argument, option->argument);
            option->value = argv[++i];
        }
    }
    return true;
}

void options_print(FILE *to, const struct option *options, int count)
{
    for (int i = 0; i < count; i++) {
        const struct option *o = &options[i];
        char left[64], letter[8] = "";
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

bool option_require(const struct option *option, struct io_error *error)
{
    char label[64];
    if (option->value != NULL)
        return true;
    return io_fail_usage(error, "option %s %s is missing", option_label(option, label), option->argument);
}

bool option_float(const struct option *option, bool positive, float *out, struct io_error *error)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return true;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    bool whole = *text != '\0' && strchr(" \t\n\v\f\r", *text) == NULL && *end == '\0';
    float narrow = (float)value;
    /* Zero stands for the default inside the library and would silently mean that. */
    if (!whole || !isfinite(narrow) || narrow == 0 || (positive && value < 0))
        return io_fail_usage(error, "%s is '%s'; expected a finite number %s", option_label(option, label), text,
                             positive ? "above 0" : "other than 0");
    *out = narrow;
    return true;
}

bool option_integer(const struct option *option, long long low, long long high, long long *out, struct io_error *error)
{
    char label[64];
    const char *text = option->value;
    if (text == NULL)
        return true;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool whole = *text != '\0' && strchr(" \t\n\v\f\r", *text) == NULL && *end == '\0' && errno == 0;
    if (!whole || value < low || value > high)
        return io_fail_usage(error, "%s is '%s'; expected a whole number from %lld to %lld",
                             option_label(option, label), text, low, high);
    *out = value;
    return true;
}

bool option_choice(const struct option *option, const char *const *names, int count, int *out, struct io_error *error)
{
    char label[64], known[256] = "";
    if (option->value == NULL)
        return true;
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(option->value, names[i]) == 0) {
            *out = i;
            return true;
        }
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     i == 0           ? ""
                                     : i == count - 1 ? " or "
                                                      : ", ",
                                     names[i]);
    }
    return io_fail_usage(error, "%s is '%s'; expected %s", option_label(option, label), option->value, known);
}
