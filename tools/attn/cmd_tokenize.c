/* SPDX-License-Identifier: Apache-2.0 */
/* attn tokenize: the tokens of lines of text, and the text of tokens, by a tokenizer.json. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <attn/text.h>

#include "commands.h"
#include "models/model_path.h"
#include "options.h"
#include "progress.h"

enum {
    HELP,
    VERSION,
    QUIET,
    TOKENS,
    JSON,
    DECODE,
    PAIRS,
    BARE,
    SPECIAL_AS_TEXT,
    KEEP_SPECIAL,
    MAX_TOKENS,
    NUL,
    NUM_OPTIONS
};

struct tokenize {
    const struct option *options;
    attn_tokenizer *tokenizer;
    attn_encode_options encode;
    attn_encoding tokens;
    const char *file; /* "-": standard input */
    int64_t line;
    char *text; /* of tokens */
    size_t room;
};

static void print_help(const struct option *options)
{
    printf("Usage: attn tokenize FOLDER|FILE.json [FILE] [OPTION]...\n\n"
           "Prints the ids of the tokens of each line of FILE, or of standard input (also: -), by the\n"
           "tokenizer.json of FOLDER; with --decode the text of each line of ids.\n\n");
    options_print(stdout, options, NUM_OPTIONS);
    printf("\n"
           "  What is no UTF-8 counts as U+FFFD.\n");
}

static attn_status out_of_memory(const struct tokenize *t)
{
    return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for line %" PRId64, t->line);
}

/* ------------------------------------------------------------------ encoding -- */

static attn_status print_json(const struct tokenize *t)
{
    json_t *ids = json_array(), *types = json_array(), *names = json_array();
    bool good = ids != NULL && types != NULL && names != NULL;
    for (int64_t i = 0; good && i < t->tokens.count; i++) {
        const char *name = attn_tokenizer_token(t->tokenizer, t->tokens.ids[i]);
        good = json_array_append_new(ids, json_integer(t->tokens.ids[i])) == 0 &&
               json_array_append_new(types, json_integer(t->tokens.types[i])) == 0 &&
               json_array_append_new(names, name != NULL ? json_string(name) : json_null()) == 0;
    }
    json_t *line = good ? json_pack("{s:O, s:O, s:O, s:b}", "ids", ids, "types", types, "tokens", names, "truncated",
                                    t->tokens.truncated)
                        : NULL;
    good = line != NULL && json_dumpf(line, stdout, JSON_COMPACT) == 0;
    putchar('\n');
    json_decref(line);
    json_decref(ids);
    json_decref(types);
    json_decref(names);
    return good ? ATTN_OK : out_of_memory(t);
}

static attn_status encode_line(struct tokenize *t, const char *text, size_t size)
{
    const char *tab = t->options[PAIRS].value != NULL ? memchr(text, '\t', size) : NULL;
    t->tokens.count = 0;
    if (t->options[PAIRS].value != NULL && tab == NULL)
        return io_fail(ATTN_INVALID_FILE, "line %" PRId64 " has no tab; expected two texts with a tab between",
                       t->line);
    const size_t first = tab != NULL ? (size_t)(tab - text) : size;
    CHECK(tab != NULL
              ? attn_tokenizer_encode_pair(t->tokenizer, text, first, tab + 1, size - first - 1, &t->encode, &t->tokens)
              : attn_tokenizer_encode(t->tokenizer, text, size, &t->encode, &t->tokens));
    if (t->options[JSON].value != NULL)
        return print_json(t);
    for (int64_t i = 0; i < t->tokens.count; i++) {
        const char *name = attn_tokenizer_token(t->tokenizer, t->tokens.ids[i]);
        if (t->options[TOKENS].value != NULL)
            printf("%s%s", i > 0 ? " " : "", name != NULL ? name : "?");
        else
            printf("%s%" PRId32, i > 0 ? " " : "", t->tokens.ids[i]);
    }
    putchar('\n');
    return ATTN_OK;
}

/* ------------------------------------------------------------------ decoding -- */

/** The ids of a line, in t->tokens. */
static attn_status read_ids(struct tokenize *t, const char *line)
{
    t->tokens.count = 0;
    for (;;) {
        char *end;
        line += strspn(line, " \t\r");
        if (*line == '\0')
            return ATTN_OK;
        errno = 0;
        const long long id = strtoll(line, &end, 10);
        if (end == line || strchr(" \t\r", *end) == NULL || errno != 0 || id < 0 ||
            id >= attn_tokenizer_size(t->tokenizer))
            return io_fail(ATTN_INVALID_FILE, "line %" PRId64 " has '%.20s'; expected ids from 0 to %" PRId32, t->line,
                           line, attn_tokenizer_size(t->tokenizer) - 1);
        if (t->tokens.count == t->tokens.capacity) {
            const int64_t room = 2 * t->tokens.capacity + 64;
            int32_t *more = realloc(t->tokens.ids, (size_t)room * sizeof *more);
            if (more == NULL)
                return out_of_memory(t);
            t->tokens.ids = more;
            t->tokens.capacity = room;
        }
        t->tokens.ids[t->tokens.count++] = (int32_t)id;
        line = end;
    }
}

static attn_status decode_line(struct tokenize *t, const char *line, char separator)
{
    size_t length;
    const int keep = t->options[KEEP_SPECIAL].value != NULL;
    CHECK(read_ids(t, line));
    CHECK(attn_tokenizer_decode(t->tokenizer, t->tokens.ids, t->tokens.count, keep, NULL, 0, &length));
    if (length > t->room) {
        char *more = realloc(t->text, length);
        if (more == NULL)
            return out_of_memory(t);
        t->text = more;
        t->room = length;
    }
    CHECK(attn_tokenizer_decode(t->tokenizer, t->tokens.ids, t->tokens.count, keep, t->text, t->room, &length));
    fwrite(t->text, 1, length, stdout);
    putchar(separator);
    return ATTN_OK;
}

/* ----------------------------------------------------------------------- run -- */

/* On a terminal the lines show by themselves how far they are. */
static attn_status run_lines(struct tokenize *t, FILE *file)
{
    struct progress progress;
    const char separator = t->options[NUL].value != NULL ? '\0' : '\n';
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    attn_status status = ATTN_OK;
    progress_start(&progress, 0, "lines", command_is_quiet() || isatty(STDOUT_FILENO));
    /* It also ends when there is no memory for a line, which is neither the end of the file nor an error of it. */
    while (status == ATTN_OK && (length = getdelim(&text, &capacity, separator, file)) >= 0) {
        size_t size = (size_t)length;
        t->line++;
        if (size > 0 && text[size - 1] == separator)
            text[--size] = '\0';
        status = t->options[DECODE].value != NULL ? decode_line(t, text, separator) : encode_line(t, text, size);
        progress_add(&progress, 1);
        if (status == ATTN_OK && ferror(stdout))
            break;
    }
    progress_finish(&progress);
    if (status == ATTN_OK && !feof(file) && !ferror(stdout))
        status = io_fail(ATTN_INVALID_FILE, "cannot read %s: %s",
                         strcmp(t->file, "-") == 0 ? "standard input" : t->file, strerror(errno));
    free(text);
    return status;
}

static attn_status parse(struct tokenize *t, const struct operands *operands)
{
    const struct option *o = t->options;
    long long max_tokens = 0;
    if (operands->count == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "no tokenizer is given; expected a tokenizer.json or its folder");
    CHECK(option_integer(&o[MAX_TOKENS], 1, INT32_MAX, &max_tokens));
    const int of_encoding[] = {TOKENS, JSON, PAIRS, BARE, SPECIAL_AS_TEXT, MAX_TOKENS};
    for (size_t i = 0; o[DECODE].value != NULL && i < sizeof of_encoding / sizeof *of_encoding; i++)
        if (o[of_encoding[i]].value != NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "--%s is given with --decode; expected one of them",
                           o[of_encoding[i]].name);
    if (o[KEEP_SPECIAL].value != NULL && o[DECODE].value == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--keep-special is given without --decode; expected both");
    if (o[TOKENS].value != NULL && o[JSON].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--tokens is given with --json, which has tokens; expected one of them");
    t->encode = attn_encode_options_default();
    t->encode.bare = o[BARE].value != NULL;
    t->encode.special_as_text = o[SPECIAL_AS_TEXT].value != NULL;
    t->encode.max_tokens = max_tokens;
    t->file = operands->count > 1 ? operands->values[1] : "-";
    return ATTN_OK;
}

static attn_status run(struct tokenize *t, const char *path)
{
    CHECK(model_path_check(path, true));
    CHECK(attn_tokenizer_open(&t->tokenizer, path));
    if (strcmp(t->file, "-") == 0)
        return run_lines(t, stdin);
    FILE *file = fopen(t->file, "rbe");
    if (file == NULL)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", t->file, strerror(errno));
    const attn_status status = run_lines(t, file);
    fclose(file);
    return status;
}

attn_status command_tokenize(int argc, char *const *argv)
{
    struct option options[NUM_OPTIONS] = {
        [HELP] = OPTION_ROW_HELP,
        [VERSION] = OPTION_ROW_VERSION,
        [QUIET] = OPTION_ROW_QUIET,
        [TOKENS] = {"tokens", 0, NULL, "print tokens as they stand in the file, not their ids", NULL},
        [JSON] = {"json", 0, NULL, "print an object with ids, types, tokens and truncated on each line", NULL},
        [DECODE] = {"decode", 0, NULL, "lines are ids; print their text", NULL},
        [PAIRS] = {"pairs", 0, NULL, "a line is two texts with a tab between", NULL},
        [BARE] = {"bare", 0, NULL, "without the tokens that are put around a text, such as [CLS]", NULL},
        [SPECIAL_AS_TEXT] = {"special-as-text", 0, NULL, "names of special tokens in a text are text", NULL},
        [KEEP_SPECIAL] = {"keep-special", 0, NULL, "with --decode: print special tokens, too", NULL},
        [MAX_TOKENS] = {"max-tokens", 0, "N", "leave off what exceeds N tokens of a text; default: as the file says",
                        NULL},
        [NUL] = {"null", '0', NULL, "texts, and with --decode lines of ids, end with a NUL byte, not with a newline",
                 NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, NUM_OPTIONS, argc, argv, &operands, 2));
    if (options[HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[QUIET]);
    struct tokenize t = {.options = options, .tokens = attn_encoding_default()};
    attn_status status = parse(&t, &operands);
    if (status == ATTN_OK)
        status = run(&t, operands.values[0]);
    attn_encoding_free(&t.tokens);
    attn_tokenizer_close(t.tokenizer);
    free(t.text);
    return status;
}
