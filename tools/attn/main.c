/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attn command: finds the subcommand, runs it, and turns its result into
 * one sentence on stderr and an exit code: 0 done, 1 failure (a bad file, an
 * error of the library or the system), 2 usage. Nothing is coloured. SIGXFSZ is
 * ignored so that a file-size limit gives a sentence and leaves no temporary
 * file, as a full disk does.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <attn/attn.h>

#include "commands.h"

static const struct command {
    const char *name;
    attn_status (*run)(int argc, char *const *argv);
    const char *summary;
} commands[] = {
    {"run", command_run, "compute attention from .npy, .npz or safetensors files"},
    {"heatmap", command_heatmap, "draw attention weights: PNG, SVG or PDF"},
    {"pattern", command_pattern, "draw a block-sparse pattern: PNG, SVG or PDF"},
    {"view", command_view, "make a page to look at the attention weights of a model in"},
    {"convert", command_convert, "convert arrays between .npy, .npz and safetensors"},
    {"embed", command_embed, "turn lines of text into embeddings, by a model's folder"},
    {"rerank", command_rerank, "score lines of text as answers to a query, by a model's folder"},
    {"generate", command_generate, "go on with prompts, by a language model's folder"},
    {"tokenize", command_tokenize, "turn lines of text into the ids of tokens, or back"},
    {"info", command_info, "show what the library found on this machine"},
};

static const size_t num_commands = sizeof commands / sizeof commands[0];

void print_version(void)
{
    printf("attn %s\n", attn_version_string());
}

void command_note(const char *format, ...)
{
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    io_sentence(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    fprintf(stderr, "attn: %s\n", sentence);
}

static void print_help(void)
{
    printf("Usage: attn COMMAND [OPTION]...\n\n"
           "Exact softmax attention on CPUs, and models that are made of it.\n\n"
           "Commands:\n");
    for (size_t i = 0; i < num_commands; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("\n"
           "  attn COMMAND --help describes a command; attn --version prints the version.\n"
           "  Exit codes: 0 done, 1 failure, 2 wrong usage.\n");
}

/* "run, heatmap or info" */
static const char *command_names(char text[256])
{
    size_t used = 0;
    for (size_t i = 0; i < num_commands && used < 256; i++)
        used += (size_t)snprintf(text + used, 256 - used, "%s%s",
                                 i == 0                 ? ""
                                 : i + 1 < num_commands ? ", "
                                                        : " or ",
                                 commands[i].name);
    return text;
}

static attn_status dispatch(int argc, char *const *argv)
{
    char names[256];
    if (argc < 2)
        return io_fail(ATTN_INVALID_ARGUMENT, "no command is given; expected %s (attn --help)", command_names(names));
    const char *name = argv[1];
    for (size_t i = 0; i < num_commands; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    }
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (!help && strcmp(name, "--version") != 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "unknown command '%s'; expected %s (attn --help)", name,
                       command_names(names));
    if (argc > 2)
        return io_fail(ATTN_INVALID_ARGUMENT, "unexpected argument '%s' after %s", argv[2], name);
    if (help)
        print_help();
    else
        print_version();
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN);
    attn_status status = dispatch(argc, argv);
    /* What was printed may still be in the buffer when the disk is full. */
    if (status == ATTN_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = io_fail(ATTN_INVALID_FILE, "cannot write to standard output: %s", strerror(errno));
    if (status == ATTN_OK)
        return 0;
    fprintf(stderr, "attn: %s\n", attn_last_error());
    return status == ATTN_INVALID_ARGUMENT ? 2 : 1;
}
