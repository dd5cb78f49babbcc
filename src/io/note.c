/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes on stderr, each once. They stand apart from error.c, as libattn_nn has
 * that and never prints.
 */
#include "io/note.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/error.h"

enum { MOST_NOTES = 64 };

void io_note(const char *format, ...)
{
    /* What has been said; a file is often named by several options. */
    static char *said[MOST_NOTES];
    static int count;
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    io_sentence(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    for (int i = 0; i < count; i++) {
        if (strcmp(said[i], sentence) == 0)
            return;
    }
    if (count < MOST_NOTES && (said[count] = strdup(sentence)) != NULL)
        count++;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, sentence);
}
