/* SPDX-License-Identifier: Apache-2.0 */
/* Reads post-processors, of which each is a template, or none. */
#include "text/template.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16 };

void templates_free(struct templates *t)
{
    free(t->single.list);
    free(t->pair.list);
    *t = (struct templates){0};
}

int64_t template_tokens(const struct template_steps *steps)
{
    int64_t count = 0;
    for (size_t i = 0; i < steps->count; i++)
        count += steps->list[i].id >= 0;
    return count;
}

static attn_status set_steps(struct template_steps *to, const struct template_step *list, size_t count,
                             const struct entry *entry)
{
    free(to->list);
    to->count = 0;
    to->list = malloc((count + 1) * sizeof *to->list);
    if (to->list == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
    memcpy(to->list, list, count * sizeof *list);
    to->count = count;
    return ATTN_OK;
}

/** The id of [token, id]. */
static attn_status read_named(const struct entry *entry, const char *name, int32_t *id)
{
    const struct entry pair = entry_at(entry, name);
    const json_t *number = json_array_get(pair.value, 1);
    if (json_array_size(pair.value) != 2 || !json_is_integer(number) || json_integer_value(number) < 0 ||
        json_integer_value(number) >= INT32_MAX)
        return entry_refuse(ATTN_INVALID_FILE, &pair, "a token and its id");
    *id = (int32_t)json_integer_value(number);
    return ATTN_OK;
}

/** [CLS] A [SEP] and B [SEP], or <s> A </s> and </s> B </s> with one type. */
static attn_status read_around(struct templates *t, const struct entry *entry, bool roberta)
{
    int32_t begin, end;
    CHECK(read_named(entry, "cls", &begin));
    CHECK(read_named(entry, "sep", &end));
    const struct template_step single[] = {{begin, 0}, {TEMPLATE_FIRST, 0}, {end, 0}};
    const struct template_step bert_pair[] = {
        {begin, 0}, {TEMPLATE_FIRST, 0}, {end, 0}, {TEMPLATE_SECOND, 1}, {end, 1}};
    const struct template_step pair[] = {{begin, 0}, {TEMPLATE_FIRST, 0},  {end, 0},
                                         {end, 0},   {TEMPLATE_SECOND, 0}, {end, 0}};
    CHECK(set_steps(&t->single, single, 3, entry));
    return roberta ? set_steps(&t->pair, pair, 6, entry) : set_steps(&t->pair, bert_pair, 5, entry);
}

/* ---------------------------------------------------------------- templates -- */

struct growing_steps {
    struct template_step *list;
    size_t count;
};

static attn_status grow(struct growing_steps *steps, struct template_step step, const struct entry *entry)
{
    struct template_step *more = realloc(steps->list, (steps->count + 1) * sizeof *more);
    if (more == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
    more[steps->count++] = step;
    steps->list = more;
    return ATTN_OK;
}

/** A special token, which the entry special_tokens says the ids of. */
static attn_status read_special(struct growing_steps *steps, const struct entry *entry, const struct entry *special,
                                int32_t type)
{
    const char *name;
    CHECK(entry_text(entry, "id", &name));
    const struct entry table = entry_at(special, "special_tokens"), named = entry_at(&table, name);
    struct entry ids;
    CHECK(entry_list_or(&named, "ids", &ids));
    if (named.value == NULL)
        return entry_refuse(ATTN_INVALID_FILE, &named, "an object with ids");
    for (size_t i = 0; i < json_array_size(ids.value); i++) {
        const struct entry id = entry_element(&ids, i);
        if (!json_is_integer(id.value) || json_integer_value(id.value) < 0 || json_integer_value(id.value) >= INT32_MAX)
            return entry_refuse(ATTN_INVALID_FILE, &id, "the id of a token");
        CHECK(grow(steps, (struct template_step){(int32_t)json_integer_value(id.value), type}, entry));
    }
    return ATTN_OK;
}

static attn_status read_step(struct growing_steps *steps, const struct entry *element, const struct entry *processor,
                             bool pair)
{
    struct entry step = entry_at(element, "SpecialToken");
    const bool token = step.value != NULL;
    int64_t type = 0;
    const char *name;
    if (!token)
        step = entry_at(element, "Sequence");
    CHECK(entry_integer_or(&step, "type_id", 0, INT32_MAX, &type));
    if (token)
        return read_special(steps, &step, processor, (int32_t)type);
    CHECK(entry_text(&step, "id", &name));
    const struct entry named = entry_at(&step, "id");
    if (strcmp(name, "A") != 0 && !(pair && strcmp(name, "B") == 0))
        return entry_refuse(ATTN_INVALID_FILE, &named, pair ? "A or B" : "A");
    return grow(steps, (struct template_step){*name == 'A' ? TEMPLATE_FIRST : TEMPLATE_SECOND, (int32_t)type}, element);
}

static attn_status read_template(struct template_steps *to, const struct entry *processor, const char *name, bool pair)
{
    struct entry list;
    struct growing_steps steps = {0};
    CHECK(entry_list_or(processor, name, &list));
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < json_array_size(list.value); i++) {
        const struct entry element = entry_element(&list, i);
        status = read_step(&steps, &element, processor, pair);
    }
    if (status == ATTN_OK)
        status = set_steps(to, steps.list != NULL ? steps.list : &(struct template_step){0}, steps.count, processor);
    free(steps.list);
    return status;
}

/* --------------------------------------------------------------- processors -- */

/** *found: one that adds tokens has been read. */
static attn_status read_processor(struct templates *t, const struct entry *entry, bool *found, int depth)
{
    const char *type = entry_type(entry);
    const struct entry named = entry_at(entry, "type");
    /* It changes places in the text alone, which are not computed here. */
    if (strcmp(type, "ByteLevel") == 0)
        return ATTN_OK;
    if (strcmp(type, "Sequence") == 0 && depth < MAX_DEPTH) {
        struct entry list;
        CHECK(entry_list_or(entry, "processors", &list));
        for (size_t i = 0; i < json_array_size(list.value); i++) {
            const struct entry element = entry_element(&list, i);
            CHECK(read_processor(t, &element, found, depth + 1));
        }
        return ATTN_OK;
    }
    if (*found)
        return entry_refuse(ATTN_UNSUPPORTED, &named, "only one step that adds tokens");
    *found = true;
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return read_around(t, entry, *type == 'R');
    if (strcmp(type, "TemplateProcessing") != 0)
        return entry_refuse(ATTN_UNSUPPORTED, &named,
                            "BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel or Sequence");
    CHECK(read_template(&t->single, entry, "single", false));
    return read_template(&t->pair, entry, "pair", true);
}

attn_status templates_read(struct templates *t, const struct entry *entry)
{
    static const struct template_step plain[] = {{TEMPLATE_FIRST, 0}, {TEMPLATE_SECOND, 1}};
    bool found = false;
    CHECK(set_steps(&t->single, plain, 1, entry));
    CHECK(set_steps(&t->pair, plain, 2, entry));
    return entry->value == NULL ? ATTN_OK : read_processor(t, entry, &found, 0);
}
