/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table is a double-array trie (Aoe 1989, as Darts lays it out) from texts to places in a list of their
 * replacements, which end with NUL. A text is normalised by grapheme clusters: one of less than six bytes that begins
 * with an entry becomes what stands there, as a whole; of others each character that begins with one.
 */
#include "text/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "text/characters.h"

struct charsmap {
    uint32_t *units;
    size_t num_units;
    char *replacements; /* end with NUL, whatever the file has */
    size_t size;
};

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/** The bytes that base64 stands for; false for what is none. */
static bool decode(const char *text, struct bytes *to)
{
    size_t size = strlen(text);
    if (size % 4 != 0)
        return false;
    while (size > 0 && text[size - 1] == '=')
        size--;
    uint32_t bits = 0;
    for (size_t i = 0; i < size; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 > 0)
            bytes_add(to, &(char){(char)(bits >> (6 - i % 4 * 2))}, 1);
    }
    return true;
}

attn_status charsmap_read(struct charsmap **map, const struct entry *step)
{
    const char *text;
    struct bytes raw = {0};
    CHECK(entry_text(step, "precompiled_charsmap", &text));
    const struct entry entry = entry_at(step, "precompiled_charsmap");
    attn_status status = decode(text, &raw) ? ATTN_OK : entry_refuse(ATTN_INVALID_FILE, &entry, "base64");
    uint32_t size = 0;
    if (status == ATTN_OK && !raw.failed) {
        for (size_t i = 0; i < sizeof size && i < raw.size; i++)
            size |= (uint32_t)(unsigned char)raw.at[i] << 8 * i;
        if (raw.size < sizeof size || size % 4 != 0 || size > raw.size - sizeof size)
            status = io_fail(ATTN_INVALID_FILE, "%s: %s is no table of %zu bytes", entry.file, entry.path, raw.size);
    }
    struct charsmap *m = status == ATTN_OK && !raw.failed ? calloc(1, sizeof *m) : NULL;
    if (m != NULL) {
        m->num_units = size / 4;
        m->size = raw.size - sizeof size - size;
        m->units = calloc(m->num_units + 1, sizeof *m->units);
        m->replacements = calloc(m->size + 1, 1);
    }
    if (status == ATTN_OK && (m == NULL || m->units == NULL || m->replacements == NULL))
        status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry.file);
    if (status == ATTN_OK) {
        const unsigned char *at = (const unsigned char *)raw.at + sizeof size;
        for (size_t i = 0; i < size; i++)
            m->units[i / 4] |= (uint32_t)at[i] << 8 * (i % 4);
        memcpy(m->replacements, at + size, m->size);
        *map = m;
    } else {
        charsmap_free(m);
    }
    bytes_free(&raw);
    return status;
}

void charsmap_free(struct charsmap *map)
{
    if (map == NULL)
        return;
    free(map->units);
    free(map->replacements);
    free(map);
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1U << 9) >> 6);
}

/** What stands for the shortest beginning of a text that has an entry; NULL if none has. */
static const char *look_up(const struct charsmap *map, const char *text, size_t size)
{
    if (map->num_units == 0)
        return NULL;
    size_t place = offset_of(map->units[0]);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i];
        place ^= c;
        if (c == 0 || place >= map->num_units)
            return NULL;
        const uint32_t unit = map->units[place];
        if ((unit & (1U << 31 | 0xff)) != c)
            return NULL;
        place ^= offset_of(unit);
        if (place >= map->num_units)
            return NULL;
        if (unit >> 8 & 1) {
            const size_t at = map->units[place] & ((1U << 31) - 1);
            return at <= map->size ? map->replacements + at : NULL;
        }
    }
    return NULL;
}

static void add_cluster(const struct charsmap *map, const char *text, size_t size, struct bytes *to)
{
    const char *whole = size < 6 ? look_up(map, text, size) : NULL;
    if (whole != NULL) {
        bytes_add_text(to, whole);
        return;
    }
    for (size_t at = 0, length; at < size; at += length) {
        character_at(text + at, size - at, &length);
        const char *one = look_up(map, text + at, length);
        if (one != NULL)
            bytes_add_text(to, one);
        else
            bytes_add(to, text + at, length);
    }
}

void charsmap_apply(const struct charsmap *map, const char *text, size_t size, struct bytes *to)
{
    size_t begin = 0, length;
    utf8proc_int32_t state = 0, before = 0;
    for (size_t at = 0; at < size; at += length) {
        const int32_t c = character_at(text + at, size - at, &length);
        if (at > 0 && utf8proc_grapheme_break_stateful(before, c, &state)) {
            add_cluster(map, text + begin, at - begin, to);
            begin = at;
        }
        before = c;
    }
    add_cluster(map, text + begin, size - begin, to);
}
