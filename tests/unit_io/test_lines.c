/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of files: their ends, bytes that are no text, and allocations that fail. */
#include "cmocka_all.h"

#include <stdlib.h>
#include <unistd.h>

#include "failing_memory.h"
#include "io/lines.h"

enum { LINES = 100 };

static char path[] = "/tmp/attn-lines-XXXXXX";

static int enter(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL)
        return -1;
    for (int i = 0; i < LINES; i++)
        fprintf(file, "%d%s", i, i + 1 == LINES ? "" : i % 2 == 0 ? "\n" : "\r\n");
    return fclose(file);
}

static int leave(void **state)
{
    (void)state;
    return unlink(path);
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    attn_status status = ATTN_OUT_OF_MEMORY;
    int n = 1;
    for (; status != ATTN_OK && n < 1000; n++) {
        struct lines lines = {0};
        allocations.made = 0;
        allocations.fails_at = n;
        status = lines_read(&lines, path);
        allocations.fails_at = 0;
        if (status == ATTN_OK) {
            assert_int_equal(lines.count, LINES);
            for (int i = 0; i < LINES; i++)
                assert_int_equal(atoi(lines.text[i]), i);
            assert_int_equal(lines.size[1], 1);
        } else {
            char sentence[100];
            assert_int_equal(status, ATTN_OUT_OF_MEMORY);
            snprintf(sentence, sizeof sentence, "out of memory for %d lines of text", (int)lines.count + 1);
            assert_string_equal(attn_last_error(), sentence);
        }
        lines_free(&lines);
    }
    assert_true(n > LINES);
}

static void refuses_what_is_no_text(void **state)
{
    (void)state;
    struct lines lines = {0};
    assert_int_equal(lines_add(&lines, "\xc3\xa9", 2), ATTN_OK);
    assert_int_equal(lines_check_text(&lines, "line"), ATTN_OK);
    assert_int_equal(lines_add(&lines, "\xc3", 1), ATTN_OK);
    assert_int_equal(lines_check_text(&lines, "line"), ATTN_INVALID_FILE);
    assert_string_equal(attn_last_error(), "line 2 is not UTF-8; expected text");
    lines_free(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_failing_allocations),
                                       cmocka_unit_test(refuses_what_is_no_text)};
    return cmocka_run_group_tests_name("lines", tests, enter, leave);
}
