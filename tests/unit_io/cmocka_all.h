/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmocka with the headers that it needs before it, and the check that most
 * tests of parsers make: that a sentence says what it should.
 */
#ifndef ATTN_TESTS_UNIT_IO_CMOCKA_ALL_H
#define ATTN_TESTS_UNIT_IO_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Fails unless text contains part, and shows both. */
static inline void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("the sentence was \"%s\"; expected it to contain \"%s\"", text, part);
}

#endif
