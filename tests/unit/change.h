/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assignments as data, so that a row of a table reads as the assignments that
 * make a valid call wrong. Who includes this defines CHANGED, the struct that
 * they are made in.
 */
#ifndef UNIT_CHANGE_H
#define UNIT_CHANGE_H

#include <stddef.h>
#include <stdint.h>

/** A value that is stored at a place of a struct. */
struct change {
    enum { NOTHING, STORE_INT, STORE_INT64, STORE_FLOAT, STORE_POINTER } kind;
    const char *where;
    size_t offset;
    int64_t integer;
    float real;
    const void *pointer;
};

void change_make(void *object, const struct change *change);

#define PLACE(field) #field, offsetof(CHANGED, field)
#define INT(field, value)                                                                                              \
    {                                                                                                                  \
        STORE_INT, PLACE(field), value, 0, NULL                                                                        \
    }
#define INT64(field, value)                                                                                            \
    {                                                                                                                  \
        STORE_INT64, PLACE(field), value, 0, NULL                                                                      \
    }
#define FLOAT(field, value)                                                                                            \
    {                                                                                                                  \
        STORE_FLOAT, PLACE(field), 0, value, NULL                                                                      \
    }
#define POINTER(field, value)                                                                                          \
    {                                                                                                                  \
        STORE_POINTER, PLACE(field), 0, 0, value                                                                       \
    }
#define UNCHANGED                                                                                                      \
    {                                                                                                                  \
        NOTHING, "", 0, 0, 0, NULL                                                                                     \
    }

#endif
