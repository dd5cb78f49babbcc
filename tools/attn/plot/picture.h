/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a picture, for the commands that draw one: its name, which also
 * says the format, is checked before anything is computed, and it appears whole
 * or not at all. Some write it to standard output, too.
 */
#ifndef ATTN_TOOLS_PLOT_PICTURE_H
#define ATTN_TOOLS_PLOT_PICTURE_H

#include "canvas.h"

/* The row of --to in the table of a command. */
#define OPTION_ROW_PICTURE_TO                                                                                          \
    {                                                                                                                  \
        "to", 0, "png|svg|pdf", "the form of the picture with -o -; default png", NULL                                 \
    }

enum picture_format { PICTURE_PNG, PICTURE_SVG, PICTURE_PDF };

struct picture_target {
    char *path;    /* canonical */
    bool standard; /* standard output instead */
    enum picture_format format;
};

/* Checks the name that an option gives. */
attn_status picture_target(struct picture_target *target, const char *path);
/*
 * The same, and - for standard output: in the form that --to names, png, svg or pdf, or NULL for png. A binary one is
 * refused if that is a terminal.
 */
attn_status picture_output(struct picture_target *target, const char *path, const char *to);
void picture_target_free(struct picture_target *target);
attn_status picture_write(const struct canvas *canvas, const struct picture_target *target);

/* Writes the canvas in a format to memory that the caller frees. */
attn_status picture_encode(const struct canvas *canvas, enum picture_format format, unsigned char **bytes,
                           size_t *size);

#endif
