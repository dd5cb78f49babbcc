/* SPDX-License-Identifier: Apache-2.0 */
/* Byte pairs of long words against the definition: the first of the pairs of lowest rank is joined, until there is
 * none. */
#include "tokenizer_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "random.h"

enum { LETTERS = 4, MERGES = 60, TOKENS = LETTERS + MERGES, LONGEST_TOKEN = 12, WORD = 300, CASES = 40 };

/* Tokens, those of merges behind the letters, in the order of their ranks; each is made by one pair alone. */
struct pairs {
    char tokens[TOKENS][LONGEST_TOKEN];
    int left[TOKENS], right[TOKENS], count;
};

static int find(const struct pairs *p, const char *token)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->tokens[i], token) == 0)
            return i;
    return -1;
}

static void draw(struct pairs *p, struct rng *rng)
{
    for (p->count = 0; p->count < LETTERS; p->count++)
        snprintf(p->tokens[p->count], LONGEST_TOKEN, "%c", 'a' + p->count);
    while (p->count < TOKENS) {
        const int left = (int)rng_range(rng, 0, p->count - 1), right = (int)rng_range(rng, 0, p->count - 1);
        char token[2 * LONGEST_TOKEN];
        snprintf(token, sizeof token, "%s%s", p->tokens[left], p->tokens[right]);
        if (strlen(token) >= LONGEST_TOKEN || find(p, token) >= 0)
            continue;
        memcpy(p->tokens[p->count], token, LONGEST_TOKEN);
        p->left[p->count] = left, p->right[p->count++] = right;
    }
}

static attn_tokenizer *open_pairs(const struct pairs *p)
{
    char file[4000] = "{'model':{'type':'BPE','vocab':{";
    for (int i = 0; i < p->count; i++)
        snprintf(file + strlen(file), sizeof file - strlen(file), "%s'%s':%d", i ? "," : "", p->tokens[i], i);
    strcat(file, "},'merges':[");
    for (int i = LETTERS; i < p->count; i++)
        snprintf(file + strlen(file), sizeof file - strlen(file), "%s'%s %s'", i > LETTERS ? "," : "",
                 p->tokens[p->left[i]], p->tokens[p->right[i]]);
    strcat(file, "]}}");
    return open_text(file);
}

/* The tokens of a word, with | between. */
static void join(const struct pairs *p, const char *word, char *tokens)
{
    int symbols[WORD], count = 0;
    for (; word[count] != '\0'; count++)
        symbols[count] = word[count] - 'a';
    for (int rank = LETTERS; rank < p->count; rank++)
        for (int i = 0; i + 1 < count; i++)
            if (symbols[i] == p->left[rank] && symbols[i + 1] == p->right[rank]) {
                symbols[i] = rank;
                count--;
                memmove(&symbols[i + 1], &symbols[i + 2], (size_t)(count - i - 1) * sizeof *symbols);
                rank = LETTERS - 1; /* what has come about may have a lower one */
                break;
            }
    for (int i = 0; i < count; i++)
        tokens += sprintf(tokens, "%s%s", i ? "|" : "", p->tokens[symbols[i]]);
}

static void test_long_words(void **state)
{
    const uint64_t seed = rng_seed_of_run(NULL);
    (void)state;
    printf("seed %" PRIu64 " (ATTN_CHECK_SEED)\n", seed);
    for (int n = 0; n < CASES; n++) {
        struct rng rng = rng_for_case(seed, (uint64_t)n);
        struct pairs pairs;
        char word[WORD + 1], tokens[2 * WORD + 1];
        draw(&pairs, &rng);
        attn_tokenizer *t = open_pairs(&pairs);
        for (int length = 1; length <= WORD; length += 1 + length / 3) {
            for (int i = 0; i < length; i++)
                word[i] = (char)('a' + rng_range(&rng, 0, LETTERS - 1));
            word[length] = '\0';
            join(&pairs, word, tokens);
            expect_tokens(t, word, NULL, tokens);
        }
        attn_tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_words)};
    return cmocka_run_group_tests_name("byte pairs", tests, NULL, NULL);
}
