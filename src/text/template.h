/* SPDX-License-Identifier: Apache-2.0 */
/* The entry "post_processor": which tokens are put around a text, or two. */
#ifndef ATTN_TEXT_TEMPLATE_H
#define ATTN_TEXT_TEMPLATE_H

#include "attn/text.h"
#include "text/model.h"

/** One step of a template: a text, or a token. */
struct template_step {
    int32_t id; /**< of a token; TEMPLATE_FIRST or TEMPLATE_SECOND: a text */
    int32_t type;
};

enum { TEMPLATE_FIRST = -1, TEMPLATE_SECOND = -2 };

struct template_steps {
    struct template_step *list;
    size_t count;
};

/** How one text and two become tokens. Begin as {0}. */
struct templates {
    struct template_steps single, pair;
};

attn_status templates_read(struct templates *templates, const struct entry *entry);
void templates_free(struct templates *templates);
/** How many tokens a template adds to those of its texts. */
int64_t template_tokens(const struct template_steps *steps);

#endif
