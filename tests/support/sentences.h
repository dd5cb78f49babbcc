/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of sentences of errors, for tests that provoke many without knowing which is the next: an allocation after the
 * other fails, and each sentence has to be one of the list, and each of the list has to come.
 */
#ifndef TEST_SENTENCES_H
#define TEST_SENTENCES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct sentences {
    const char *words; /**< pieces of the sentence, with '|' between them; NULL ends the list */
    int met;
};

static inline int sentence_has(const char *sentence, const char *words)
{
    while (*words) {
        const size_t n = strcspn(words, "|");
        if (!memmem(sentence, strlen(sentence), words, n))
            return 0;
        words += n + (words[n] == '|');
    }
    return 1;
}

/** Fails the test unless the sentence is one of the list. */
static inline void sentences_meet(struct sentences *list, const char *sentence)
{
    int known = 0;
    for (struct sentences *s = list; s->words; s++)
        if (sentence_has(sentence, s->words))
            known = s->met = 1;
    if (!known)
        fail_msg("\"%s\" is not in the list", sentence);
}

/** Fails the test unless every sentence of the list has come. */
static inline void sentences_end(const struct sentences *list)
{
    for (const struct sentences *s = list; s->words; s++)
        if (!s->met)
            fail_msg("no sentence had the words \"%s\"", s->words);
}

#endif
