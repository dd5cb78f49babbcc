/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attn command: finds the subcommand, runs it, and turns its result into
 * one sentence on stderr and an exit code: 0 done, 1 failure (a bad file, an
 * error of the library or the system), 2 usage. Nothing is coloured. SIGXFSZ is
 * ignored so that a file-size limit gives a sentence and leaves no temporary
 * file, as a full disk does.
 */
#include <errno.h>
#include <limits.h>
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
    {"bench", command_bench, "time one shape of attention beside what this machine allows"},
    {"info", command_info, "show what the library found on this machine, or what files hold"},
};

static const size_t num_commands = sizeof commands / sizeof commands[0];

void print_version(void)
{
    printf("attn %s\n", attn_version_string());
}

static bool quiet;

void command_quiet(const struct option *option)
{
    quiet = option->value != NULL;
}

bool command_is_quiet(void)
{
    return quiet;
}

void command_note(const char *format, ...)
{
    char sentence[1024];
    va_list arguments;
    if (quiet)
        return;
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
           "  attn COMMAND --help, or attn help COMMAND, describes a command; attn --version\n"
           "  prints the version.\n"
           "  Exit codes: 0 done, 1 failure, 2 wrong usage.\n");
}

/* Refuses a command line whose command, if any, is not in the table. */
static attn_status unknown(const char *name)
{
    char list[256] = "", sentence[128] = "no command is given";
    const char *nearest = NULL;
    int best = INT_MAX;
    size_t used = 0;
    for (size_t i = 0; i < num_commands && used < sizeof list; i++) {
        const int distance = name != NULL ? name_distance(name, commands[i].name) : INT_MAX;
        const char *before = i == 0 ? "" : i + 1 == num_commands ? " or " : ", ";
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", before, commands[i].name);
        if (distance < best) {
            best = distance;
            nearest = commands[i].name;
        }
    }
    if (nearest != NULL && name_resembles(name, best))
        return io_fail(ATTN_INVALID_ARGUMENT, "unknown command '%s'; did you mean %s? Expected %s (attn --help)", name,
                       nearest, list);
    if (name != NULL)
        snprintf(sentence, sizeof sentence, "unknown command '%s'", name);
    return io_fail(ATTN_INVALID_ARGUMENT, "%s; expected %s (attn --help)", sentence, list);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < num_commands; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    }
    return NULL;
}

/* attn help [COMMAND] */
static attn_status help(int argc, char *const *argv)
{
    static char option[] = "--help";
    char *const arguments[] = {option, NULL};
    if (argc > 1)
        return io_fail(ATTN_INVALID_ARGUMENT, "unexpected argument '%s' after help %s", argv[1], argv[0]);
    if (argc == 1 && strcmp(argv[0], "help") != 0) {
        const struct command *command = find(argv[0]);
        return command != NULL ? command->run(1, arguments) : unknown(argv[0]);
    }
    print_help();
    return ATTN_OK;
}

static attn_status dispatch(int argc, char *const *argv)
{
    if (argc < 2)
        return unknown(NULL);
    const char *name = argv[1];
    const struct command *command = find(name);
    if (command != NULL)
        return command->run(argc - 2, argv + 2);
    if (strcmp(name, "help") == 0)
        return help(argc - 2, argv + 2);
    const bool wants_help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (!wants_help && strcmp(name, "--version") != 0 && strcmp(name, "-V") != 0)
        return unknown(name);
    if (argc > 2)
        return io_fail(ATTN_INVALID_ARGUMENT, "unexpected argument '%s' after %s", argv[2], name);
    if (wants_help)
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
