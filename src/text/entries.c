/* SPDX-License-Identifier: Apache-2.0 */
/* Reads entries of a tokenizer.json. */
#include "text/entries.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct entry entry_at(const struct entry *entry, const char *name)
{
    struct entry found = {json_object_get(entry->value, name), entry->file, ""};
    if (json_is_null(found.value))
        found.value = NULL;
    snprintf(found.path, sizeof found.path, "%.60s%s%.30s", entry->path, *entry->path ? "." : "", name);
    return found;
}

struct entry entry_element(const struct entry *list, size_t index)
{
    struct entry found = {json_array_get(list->value, index), list->file, ""};
    snprintf(found.path, sizeof found.path, "%.70s[%zu]", list->path, index);
    return found;
}

/** What a value is, for a sentence. */
struct shown {
    char text[64];
};

static struct shown show(const json_t *value)
{
    struct shown s;
    if (value == NULL)
        strcpy(s.text, "missing");
    else if (json_is_string(value))
        snprintf(s.text, sizeof s.text, "'%.40s'", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(s.text, sizeof s.text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(s.text, sizeof s.text, "%g", json_real_value(value));
    else
        strcpy(s.text, json_is_object(value)  ? "an object"
                       : json_is_array(value) ? "a list"
                       : json_is_null(value)  ? "null"
                       : json_is_true(value)  ? "true"
                                              : "false");
    return s;
}

attn_status entry_refuse(attn_status status, const struct entry *entry, const char *expected)
{
    return io_fail(status, "%s: %s is %s; expected %s", entry->file, *entry->path ? entry->path : "the file",
                   show(entry->value).text, expected);
}

const char *entry_type(const struct entry *entry)
{
    const char *type = json_string_value(json_object_get(entry->value, "type"));
    return type ? type : "";
}

attn_status entry_text_or(const struct entry *entry, const char *name, const char **text)
{
    const struct entry e = entry_at(entry, name);
    *text = json_string_value(e.value);
    if (e.value != NULL && *text == NULL)
        return entry_refuse(ATTN_INVALID_FILE, &e, "a text");
    /* Texts here are C's: one with a NUL in it would be another text. */
    if (*text != NULL && strlen(*text) != json_string_length(e.value))
        return entry_refuse(ATTN_UNSUPPORTED, &e, "a text without NUL");
    return ATTN_OK;
}

attn_status entry_text(const struct entry *entry, const char *name, const char **text)
{
    CHECK(entry_text_or(entry, name, text));
    const struct entry e = entry_at(entry, name);
    return *text != NULL ? ATTN_OK : entry_refuse(ATTN_INVALID_FILE, &e, "a text");
}

attn_status entry_boolean_or(const struct entry *entry, const char *name, bool *value)
{
    const struct entry e = entry_at(entry, name);
    if (e.value == NULL)
        return ATTN_OK;
    if (!json_is_boolean(e.value))
        return entry_refuse(ATTN_INVALID_FILE, &e, "true or false");
    *value = json_is_true(e.value);
    return ATTN_OK;
}

attn_status entry_integer_or(const struct entry *entry, const char *name, int64_t least, int64_t most, int64_t *value)
{
    const struct entry e = entry_at(entry, name);
    char expected[64];
    if (e.value == NULL)
        return ATTN_OK;
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, least, most);
    if (!json_is_integer(e.value) || json_integer_value(e.value) < least || json_integer_value(e.value) > most)
        return entry_refuse(ATTN_INVALID_FILE, &e, expected);
    *value = json_integer_value(e.value);
    return ATTN_OK;
}

attn_status entry_list_or(const struct entry *entry, const char *name, struct entry *list)
{
    *list = entry_at(entry, name);
    return list->value == NULL || json_is_array(list->value) ? ATTN_OK
                                                             : entry_refuse(ATTN_INVALID_FILE, list, "a list");
}
