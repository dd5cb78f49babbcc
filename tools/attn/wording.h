/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's sentences in the words of the command line: it names the fields
 * of structs, of which a user of the command has never heard.
 */
#ifndef ATTN_TOOLS_WORDING_H
#define ATTN_TOOLS_WORDING_H

#include <attn/attn.h>

/* Whose options the sentence is to name: those of run and heatmap, or those of pattern. */
enum wording { WORDING_RUN, WORDING_PATTERN };

/* Rewords the sentence of a call that failed; returns status. */
attn_status reworded(enum wording wording, attn_status status);

#endif
