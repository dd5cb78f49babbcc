/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ChatML: each turn is <|im_start|>role, a line break, what is said, <|im_end|> and a line break. The templates of
 * models are programs (Jinja), which are not run; that a tokenizer has the two tokens is what says that a model knows
 * these turns.
 */
#include "models/chat.h"

#include <stdlib.h>
#include <string.h>

static const char turn_start[] = "<|im_start|>", turn_end[] = "<|im_end|>";

attn_status chat_check(const struct text_model *m)
{
    const char *const names[] = {turn_start, turn_end};
    for (int i = 0; i < 2; i++) {
        const int32_t id = attn_tokenizer_id(m->tokenizer, names[i]);
        if (id < 0 || !attn_tokenizer_is_special(m->tokenizer, id))
            return io_fail(ATTN_UNSUPPORTED,
                           "--chat: tokenizer.json of %s has no special token %s; expected a model with the turns of "
                           "ChatML; without --chat the prompt is taken as it is, with turns of its own",
                           m->folder, names[i]);
    }
    return ATTN_OK;
}

static attn_status put(const struct text_model *m, const char *text, size_t size, int special_as_text,
                       attn_encoding *out)
{
    attn_encode_options options = attn_encode_options_default();
    options.bare = 1;
    options.special_as_text = special_as_text;
    return attn_tokenizer_encode(m->tokenizer, text, size, &options, out);
}

/* role\ncontent, as one piece of text: tokens may go over the line break. */
static attn_status put_turn(const struct text_model *m, const char *role, const char *content, size_t size,
                            attn_encoding *out)
{
    const size_t head = strlen(role);
    char *text = malloc(head + 1 + size);
    if (text == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a text of %zu bytes", size);
    memcpy(text, role, head);
    text[head] = '\n';
    if (size > 0)
        memcpy(text + head + 1, content, size);
    attn_status status = put(m, turn_start, strlen(turn_start), 0, out);
    if (status == ATTN_OK)
        status = put(m, text, head + 1 + size, 1, out);
    free(text);
    return status;
}

static attn_status end_turn(const struct text_model *m, attn_encoding *out)
{
    CHECK(put(m, turn_end, strlen(turn_end), 0, out));
    return put(m, "\n", 1, 1, out);
}

attn_status chat_encode(const struct text_model *m, const char *system, const char *prompt, size_t size,
                        attn_encoding *out)
{
    if (system != NULL) {
        CHECK(put_turn(m, "system", system, strlen(system), out));
        CHECK(end_turn(m, out));
    }
    CHECK(put_turn(m, "user", prompt, size, out));
    CHECK(end_turn(m, out));
    return put_turn(m, "assistant", "", 0, out);
}
