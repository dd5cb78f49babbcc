/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of attn and what they share with main(). A subcommand takes
 * the arguments after its name and returns true, or false with a sentence.
 */
#ifndef ATTN_TOOLS_COMMANDS_H
#define ATTN_TOOLS_COMMANDS_H

#include "options.h"

attn_status command_run(int argc, char *const *argv);
attn_status command_heatmap(int argc, char *const *argv);
attn_status command_pattern(int argc, char *const *argv);
attn_status command_view(int argc, char *const *argv);
attn_status command_convert(int argc, char *const *argv);
attn_status command_embed(int argc, char *const *argv);
attn_status command_rerank(int argc, char *const *argv);
attn_status command_generate(int argc, char *const *argv);
attn_status command_tokenize(int argc, char *const *argv);
attn_status command_bench(int argc, char *const *argv);
attn_status command_info(int argc, char *const *argv);

/* Takes the value of --quiet: command_note() then says nothing, and command_is_quiet() is true. */
void command_quiet(const struct option *option);
bool command_is_quiet(void);
/* Says what the user should know of a command that succeeds: one sentence on stderr, unless that is to be quiet. */
void command_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints "attn 0.1.0" on stdout. */
void print_version(void);

#endif
