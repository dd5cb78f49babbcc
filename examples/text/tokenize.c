/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the token ids of texts from standard input, one text a line:
 *
 *     $ echo 'Attention, please!' | tokenize --vocab vocab.txt
 *     101 3086 1010 3531 999 102
 *
 * for a BERT model, and with --tokenizer tokenizer.json for one with byte-pair tokens.
 * A text with newlines in it needs -0. With --tokens it prints what the ids
 * stand for: the labels of a heat map, say. tests/models/check_wordpiece.py and
 * check_byte_pairs.py hold the output against the references.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "byte_pairs.h"
#include "options.h"
#include "wordpiece.h"

enum { VOCAB, TOKENIZER, MAX_TOKENS, CASED, TOKENS, NUL, HELP, NUM_OPTIONS };

/* One of them. */
struct tokenizer {
    struct wordpiece *wordpiece;
    struct byte_pairs *byte_pairs;
    size_t max_tokens; /* of the former */
};

static const char *token_of(const struct tokenizer *tokenizer, int32_t id)
{
    return tokenizer->wordpiece != NULL ? wordpiece_token(tokenizer->wordpiece, id)
                                        : byte_pairs_token(tokenizer->byte_pairs, id);
}

static attn_status encode(const struct tokenizer *tokenizer, const char *text, size_t size, struct token_ids *ids)
{
    if (tokenizer->wordpiece != NULL)
        return wordpiece_encode(tokenizer->wordpiece, text, size, tokenizer->max_tokens, ids);
    ids->count = 0;
    return byte_pairs_encode(tokenizer->byte_pairs, text, size, ids);
}

static void print_ids(const struct tokenizer *tokenizer, const struct token_ids *ids, bool tokens)
{
    for (size_t i = 0; i < ids->count; i++) {
        const char *space = i > 0 ? " " : "";
        if (tokens)
            printf("%s%s", space, token_of(tokenizer, ids->ids[i]));
        else
            printf("%s%" PRId32, space, ids->ids[i]);
    }
    putchar('\n');
}

static attn_status encode_input(const struct tokenizer *tokenizer, const struct option *options)
{
    int separator = options[NUL].value != NULL ? '\0' : '\n';
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    struct token_ids ids = {0};
    attn_status status = ATTN_OK;
    /* It also ends when there is no memory for a text, which is neither the end of the input nor an error of it. */
    while (status == ATTN_OK && (length = getdelim(&text, &capacity, separator, stdin)) >= 0) {
        size_t size = (size_t)length;
        size -= size > 0 && text[size - 1] == separator;
        status = encode(tokenizer, text, size, &ids);
        if (status == ATTN_OK)
            print_ids(tokenizer, &ids, options[TOKENS].value != NULL);
        else if (status == ATTN_INVALID_ARGUMENT)
            status = ATTN_INVALID_FILE; /* the text is no argument of the command line */
    }
    if (status == ATTN_OK && !feof(stdin))
        status = io_fail(ATTN_INVALID_FILE, "cannot read standard input: %s", strerror(errno));
    free(text);
    token_ids_free(&ids);
    return status;
}

static attn_status open_tokenizer(struct tokenizer *tokenizer, const struct option *options)
{
    long long max_tokens = WORDPIECE_DEFAULT_TOKENS;
    CHECK(option_integer(&options[MAX_TOKENS], 2, INT32_MAX, &max_tokens));
    *tokenizer = (struct tokenizer){.max_tokens = (size_t)max_tokens};
    if (options[TOKENIZER].value == NULL) {
        CHECK(option_require(&options[VOCAB]));
        CHECK(wordpiece_open(&tokenizer->wordpiece, options[VOCAB].value));
        if (options[CASED].value != NULL)
            wordpiece_keep_case(tokenizer->wordpiece);
        return ATTN_OK;
    }
    const int others[] = {VOCAB, MAX_TOKENS, CASED};
    for (int i = 0; i < 3; i++)
        if (options[others[i]].value != NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "--%s is given with --tokenizer; expected one of them",
                           options[others[i]].name);
    return byte_pairs_open(&tokenizer->byte_pairs, options[TOKENIZER].value);
}

static attn_status run(int argc, char **argv)
{
    struct option options[NUM_OPTIONS] = {
        [VOCAB] = {"vocab", 0, "FILE", "the vocab.txt of a BERT model, one token a line", NULL},
        [TOKENIZER] = {"tokenizer", 0, "FILE", "instead: the tokenizer.json of a model with byte-pair tokens", NULL},
        [MAX_TOKENS] = {"max-tokens", 0, "N", "leave off what exceeds N tokens of a text (default 256)", NULL},
        [CASED] = {"cased", 0, NULL, "keep capitals and accents, as cased models do", NULL},
        [TOKENS] = {"tokens", 0, NULL, "print the tokens, not their ids", NULL},
        [NUL] = {"null", '0', NULL, "texts end with a NUL byte, not with a newline", NULL},
        [HELP] = {"help", 'h', NULL, "show this text", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, NUM_OPTIONS, argc - 1, argv + 1, &operands, 0));
    if (options[HELP].value != NULL) {
        printf("Usage: tokenize --vocab FILE | --tokenizer FILE [OPTION]...\n\n"
               "Prints the token ids of each text of standard input.\n\n");
        options_print(stdout, options, NUM_OPTIONS);
        printf("\n  Exit codes: 0 done, 1 failure, 2 wrong usage.\n");
        return ATTN_OK;
    }
    struct tokenizer tokenizer;
    CHECK(open_tokenizer(&tokenizer, options));
    attn_status status = encode_input(&tokenizer, options);
    wordpiece_close(tokenizer.wordpiece);
    byte_pairs_close(tokenizer.byte_pairs);
    return status;
}

int main(int argc, char **argv)
{
    attn_status status = run(argc, argv);
    if (status == ATTN_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = io_fail(ATTN_INVALID_FILE, "cannot write to standard output: %s", strerror(errno));
    if (status == ATTN_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "tokenize: %s\n", attn_last_error());
    return status == ATTN_INVALID_ARGUMENT ? 2 : EXIT_FAILURE;
}
