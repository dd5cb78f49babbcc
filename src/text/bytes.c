/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, and the pieces of a text. */
#include "text/bytes.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

void bytes_add(struct bytes *b, const char *from, size_t size)
{
    if (b->failed || size == 0)
        return;
    if (size > b->room - b->size) {
        const size_t twice = b->room < SIZE_MAX / 4 ? 2 * b->room + 64 : b->room;
        if (size > SIZE_MAX / 4 - b->size) {
            b->failed = true;
            return;
        }
        const size_t room = b->size + size > twice ? b->size + size : twice;
        char *more = realloc(b->at, room);
        if (more == NULL) {
            b->failed = true;
            return;
        }
        b->at = more;
        b->room = room;
    }
    memcpy(b->at + b->size, from, size);
    b->size += size;
}

void bytes_add_text(struct bytes *b, const char *text)
{
    bytes_add(b, text, strlen(text));
}

void bytes_add_character(struct bytes *b, int32_t c)
{
    utf8proc_uint8_t text[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(c, text);
    bytes_add(b, (const char *)text, (size_t)size);
}

void bytes_free(struct bytes *b)
{
    free(b->at);
    *b = (struct bytes){0};
}

void pieces_add(struct pieces *p, struct piece piece)
{
    if (p->text.failed || (piece.size == 0 && piece.id < 0))
        return;
    if (p->count == p->room) {
        const size_t room = 2 * p->room + 16;
        struct piece *more = realloc(p->list, room * sizeof *more);
        if (more == NULL) {
            p->text.failed = true;
            return;
        }
        p->list = more;
        p->room = room;
    }
    p->list[p->count++] = piece;
}

void pieces_copy(struct pieces *p, const struct pieces *from, const struct piece *piece)
{
    struct piece copy = *piece;
    copy.begin = p->text.size;
    bytes_add(&p->text, from->text.at + piece->begin, piece->size);
    pieces_add(p, copy);
}

void pieces_free(struct pieces *p)
{
    bytes_free(&p->text);
    free(p->list);
    *p = (struct pieces){0};
}
