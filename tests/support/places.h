/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of public structs as a list of sizes and offsets: compared with the
 * numbers that programs were compiled with, and printed for mirrors of the
 * structs in other languages.
 */
#ifndef TEST_PLACES_H
#define TEST_PLACES_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/** A struct, whose size is is, or one of its fields, which stand behind it, whose offset is is. */
struct place {
    const char *name; /**< "type", or "type.field" */
    size_t is, expected;
    size_t size; /**< of a field; 0 for a struct */
};

#define SIZE(type, bytes)                                                                                              \
    {                                                                                                                  \
#type, sizeof(type), bytes, 0                                                                                  \
    }
#define FIELD(type, field, offset)                                                                                     \
    {                                                                                                                  \
#type "." #field, offsetof(type, field), offset, sizeof(((type *)0)->field)                                    \
    }

/** Prints what differs from what is expected; returns how many do. */
static inline int places_wrong(const struct place *places, size_t count)
{
    int wrong = 0;
    for (size_t i = 0; i < count; i++)
        if (places[i].is != places[i].expected) {
            fprintf(stderr, "%s %s is %zu; programs have %zu\n", places[i].size ? "the offset of" : "the size of",
                    places[i].name, places[i].is, places[i].expected);
            wrong++;
        }
    return wrong;
}

/**
 * With the argument --json, prints {"type": {"size": n, "fields": {"field": [offset, size], ...}}, ...} as this program
 * was compiled, and returns 1.
 */
static inline int places_print_on_request(int argc, char **argv, const struct place *places, size_t count)
{
    if (argc < 2 || strcmp(argv[1], "--json") != 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (places[i].size == 0)
            printf("%s\"%s\": {\"size\": %zu, \"fields\": {", i ? "}},\n" : "{", places[i].name, places[i].is);
        else
            printf("%s\"%s\": [%zu, %zu]", places[i - 1].size ? ", " : "", strchr(places[i].name, '.') + 1,
                   places[i].is, places[i].size);
    puts("}}}");
    return 1;
}

#endif
