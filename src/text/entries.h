/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a tokenizer.json: what they are, and sentences about those that are wrong or not supported. */
#ifndef ATTN_TEXT_ENTRIES_H
#define ATTN_TEXT_ENTRIES_H

#include <jansson.h>
#include <stdint.h>

#include "io/error.h"

/** An object of the file. */
struct entry {
    const json_t *value;
    const char *file;
    char path[96]; /**< of the object in the file: "normalizer.normalizers[1]" */
};

/** The entry of a name, whose value may be NULL (there is none, or it is null). */
struct entry entry_at(const struct entry *entry, const char *name);
/** The element of a list. */
struct entry entry_element(const struct entry *list, size_t index);

/** The text of an entry's "type"; "" without one. */
const char *entry_type(const struct entry *entry);
/** A text; an error without one. */
attn_status entry_text(const struct entry *entry, const char *name, const char **text);
/** A text, or NULL where the entry is missing or null. */
attn_status entry_text_or(const struct entry *entry, const char *name, const char **text);
/** *value stays where the entry is missing or null. */
attn_status entry_boolean_or(const struct entry *entry, const char *name, bool *value);
attn_status entry_integer_or(const struct entry *entry, const char *name, int64_t least, int64_t most, int64_t *value);
/** A list; *list has value NULL where the entry is missing or null. */
attn_status entry_list_or(const struct entry *entry, const char *name, struct entry *list);

/** "FILE: PATH is VALUE; expected ...". */
attn_status entry_refuse(attn_status status, const struct entry *entry, const char *expected);

#endif
