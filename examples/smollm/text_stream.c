/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes become whole characters, one byte at a time. */
#include "text_stream.h"

#include <stdbool.h>

/* Bytes of the character that begins so, 0 if none does. */
static int length_of(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* Whether a byte may stand behind those that are held: not in a form too long, a surrogate, or above U+10FFFF. */
static bool continues(const struct text_stream *s, unsigned char byte)
{
    unsigned char least = 0x80, most = 0xbf;
    if (s->count == 1 && s->held[0] == 0xe0)
        least = 0xa0;
    if (s->count == 1 && s->held[0] == 0xf0)
        least = 0x90;
    if (s->count == 1 && s->held[0] == 0xed)
        most = 0x9f;
    if (s->count == 1 && s->held[0] == 0xf4)
        most = 0x8f;
    return byte >= least && byte <= most;
}

void text_stream_end(struct text_stream *s, FILE *to)
{
    if (s->count > 0)
        fputs("\ufffd", to);
    s->count = 0;
}

void text_stream_put(struct text_stream *s, const char *bytes, size_t size, FILE *to)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        if (s->count > 0 && !continues(s, byte))
            text_stream_end(s, to);
        if (s->count == 0)
            s->needed = length_of(byte);
        s->held[s->count++] = byte;
        if (s->needed == 0) {
            text_stream_end(s, to);
        } else if (s->count == s->needed) {
            fwrite(s->held, 1, (size_t)s->count, to);
            s->count = 0;
        }
    }
}
