/* SPDX-License-Identifier: Apache-2.0 */
/* Assignments as data, carried out and taken back. */
#include "change.h"

#include <string.h>

void change_make(void *object, const struct change *change)
{
    void *at = (char *)object + change->offset;
    const int integer = (int)change->integer;
    switch (change->kind) {
    case NOTHING:
        break;
    case STORE_INT:
        memcpy(at, &integer, sizeof integer);
        break;
    case STORE_INT64:
        memcpy(at, &change->integer, sizeof change->integer);
        break;
    case STORE_FLOAT:
        memcpy(at, &change->real, sizeof change->real);
        break;
    case STORE_POINTER:
        memcpy(at, &change->pointer, sizeof change->pointer);
        break;
    }
}
