/* SPDX-License-Identifier: Apache-2.0 */
/* Characters to tokens, from a file or from the texts of a training. */
#include "alphabet.h"

#include <stdlib.h>

#include "io/config.h"

static void number_bytes(struct alphabet *a)
{
    for (int byte = 0; byte < 256; byte++)
        a->tokens[byte] = -1;
    for (int64_t i = 0; i < a->names.count; i++)
        if (a->names.size[i] == 1)
            a->tokens[(unsigned char)a->names.text[i][0]] = (int32_t)i;
}

attn_status alphabet_read(struct alphabet *a, const char *folder)
{
    char *path = config_beside(folder, "alphabet.txt");
    const attn_status status = path ? lines_read(&a->names, path) : ATTN_OUT_OF_MEMORY;
    number_bytes(a);
    free(path);
    return status;
}

attn_status alphabet_make(struct alphabet *a, const bool occurs[256])
{
    CHECK(lines_add(&a->names, "<pad>", 5));
    CHECK(lines_add(&a->names, "<bos>", 5));
    CHECK(lines_add(&a->names, "<eos>", 5));
    for (int byte = 0; byte < 256; byte++)
        if (occurs[byte])
            CHECK(lines_add(&a->names, &(char){(char)byte}, 1));
    number_bytes(a);
    return ATTN_OK;
}

attn_status alphabet_copy(struct alphabet *a, const struct alphabet *from)
{
    for (int64_t i = 0; i < from->names.count; i++)
        CHECK(lines_add(&a->names, from->names.text[i], from->names.size[i]));
    number_bytes(a);
    return ATTN_OK;
}

void alphabet_free(struct alphabet *a)
{
    lines_free(&a->names);
}

attn_status alphabet_encode(const struct alphabet *a, const char *text, size_t size, int32_t *ids)
{
    for (size_t i = 0; i < size; i++) {
        ids[i] = a->tokens[(unsigned char)text[i]];
        if (ids[i] < 0)
            return io_fail(ATTN_INVALID_FILE, "'%s' has a character at place %zu that is not in the alphabet", text,
                           i + 1);
    }
    return ATTN_OK;
}
