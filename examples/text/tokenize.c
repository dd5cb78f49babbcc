/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the token ids of texts from standard input, one text a line:
 *
 *     $ echo 'Attention, please!' | tokenize --vocab vocab.txt
 *     101 3086 1010 3531 999 102
 *
 * A text with newlines in it needs -0. With --tokens it prints what the ids
 * stand for: the labels of a heat map, say. tests/models/check_wordpiece.py
 * holds the output against the reference.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "wordpiece.h"

enum { VOCAB, MAX_TOKENS, CASED, TOKENS, NUL, HELP, NUM_OPTIONS };

static void print_ids(const struct wordpiece *tokenizer, const struct token_ids *ids, bool tokens)
{
    for (size_t i = 0; i < ids->count; i++) {
        const char *space = i > 0 ? " " : "";
        if (tokens)
            printf("%s%s", space, wordpiece_token(tokenizer, ids->ids[i]));
        else
            printf("%s%" PRId32, space, ids->ids[i]);
    }
    putchar('\n');
}

static attn_status encode_input(const struct wordpiece *tokenizer, const struct option *options)
{
    long long max_tokens = WORDPIECE_DEFAULT_TOKENS;
    CHECK(option_integer(&options[MAX_TOKENS], 2, INT32_MAX, &max_tokens));
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
        status = wordpiece_encode(tokenizer, text, size, (size_t)max_tokens, &ids);
        if (status == ATTN_OK)
            print_ids(tokenizer, &ids, options[TOKENS].value != NULL);
    }
    if (status == ATTN_OK && !feof(stdin))
        status = io_fail(ATTN_INVALID_FILE, "cannot read standard input: %s", strerror(errno));
    free(text);
    token_ids_free(&ids);
    return status;
}

static attn_status run(int argc, char **argv)
{
    struct option options[NUM_OPTIONS] = {
        [VOCAB] = {"vocab", 0, "FILE", "the model's vocab.txt, one token a line; must be given", NULL},
        [MAX_TOKENS] = {"max-tokens", 0, "N", "leave off what exceeds N tokens of a text (default 256)", NULL},
        [CASED] = {"cased", 0, NULL, "keep capitals and accents, as cased models do", NULL},
        [TOKENS] = {"tokens", 0, NULL, "print the tokens, not their ids", NULL},
        [NUL] = {"null", '0', NULL, "texts end with a NUL byte, not with a newline", NULL},
        [HELP] = {"help", 'h', NULL, "show this text", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, NUM_OPTIONS, argc - 1, argv + 1, &operands, 0));
    if (options[HELP].value != NULL) {
        printf("Usage: tokenize --vocab FILE [OPTION]...\n\n"
               "Prints the token ids of each text of standard input, for a BERT model.\n\n");
        options_print(stdout, options, NUM_OPTIONS);
        printf("\n  Exit codes: 0 done, 1 failure, 2 wrong usage.\n");
        return ATTN_OK;
    }
    struct wordpiece *tokenizer;
    CHECK(option_require(&options[VOCAB]));
    CHECK(wordpiece_open(&tokenizer, options[VOCAB].value));
    if (options[CASED].value != NULL)
        wordpiece_keep_case(tokenizer);
    attn_status status = encode_input(tokenizer, options);
    wordpiece_close(tokenizer);
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
