/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of attn and what they share with main(). A subcommand takes
 * the arguments after its name and returns true, or false with a sentence.
 */
#ifndef ATTN_TOOLS_COMMANDS_H
#define ATTN_TOOLS_COMMANDS_H

#include "io/error.h"

bool command_run(int argc, char *const *argv, struct io_error *error);
bool command_heatmap(int argc, char *const *argv, struct io_error *error);
bool command_pattern(int argc, char *const *argv, struct io_error *error);
bool command_info(int argc, char *const *argv, struct io_error *error);

/* Prints "attn 0.1.0" on stdout. */
void print_version(void);

#endif
