/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a picture, for the commands that draw one: its name is checked
 * before anything is computed, and it appears whole or not at all.
 */
#ifndef ATTN_TOOLS_PLOT_PICTURE_H
#define ATTN_TOOLS_PLOT_PICTURE_H

#include "canvas.h"

/* Checks what -o names and returns its canonical name, which the caller frees. */
attn_status picture_target(char **target, const char *path);
/* Writes the canvas there as PNG. */
attn_status picture_write(const struct canvas *canvas, const char *target);

/* Writes the canvas as PNG to memory that the caller frees. */
attn_status picture_png(const struct canvas *canvas, unsigned char **png, size_t *size);

#endif
