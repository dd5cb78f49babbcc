/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text that comes in pieces of bytes, as tokens are, goes out in whole characters. A
 * character that is cut in two waits for its rest. Bytes that are not UTF-8
 * become U+FFFD, one for each attempt at a character, as Unicode recommends (section 3.9).
 */
#ifndef ATTN_EXAMPLES_SMOLLM_TEXT_STREAM_H
#define ATTN_EXAMPLES_SMOLLM_TEXT_STREAM_H

#include <stddef.h>
#include <stdio.h>

/* Begins as {0}. */
struct text_stream {
    unsigned char held[4];
    int count, needed;
};

void text_stream_put(struct text_stream *stream, const char *bytes, size_t size, FILE *to);
/* Nothing more comes. */
void text_stream_end(struct text_stream *stream, FILE *to);

#endif
