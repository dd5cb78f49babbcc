/* SPDX-License-Identifier: Apache-2.0 */
/* Reading pairs of dates, and their tokens one behind the other. */
#include "date_pairs.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ reading -- */

static attn_status check_part(const char *path, int64_t line, const char *meaning, const char *text, size_t size,
                              int64_t most)
{
    if (size < 1 || size > (size_t)most)
        return io_fail(ATTN_INVALID_FILE, "%s: the %s in line %lld has %zu characters; expected 1 to %lld", path,
                       meaning, (long long)line, size, (long long)most);
    for (size_t i = 0; i < size; i++)
        if (text[i] < ' ' || text[i] > '~')
            return io_fail(ATTN_INVALID_FILE,
                           "%s: the %s in line %lld has byte %d at place %zu; expected printable "
                           "ASCII, 32 to 126",
                           path, meaning, (long long)line, (unsigned char)text[i], i + 1);
    return ATTN_OK;
}

static attn_status take_line(struct date_pairs *p, const char *path, const char *line, size_t size, int64_t most_date,
                             int64_t most_text)
{
    const int64_t number = p->dates.count + 1;
    const char *tab = memchr(line, '\t', size);
    if (!tab)
        return io_fail(ATTN_INVALID_FILE, "%s: line %lld has no tab; expected DATE TAB TEXT", path, (long long)number);
    const size_t date = (size_t)(tab - line), text = size - date - 1;
    CHECK(check_part(path, number, "date", line, date, most_date));
    CHECK(check_part(path, number, "text", tab + 1, text, most_text));
    CHECK(lines_add(&p->dates, line, date));
    CHECK(lines_add(&p->texts, tab + 1, text));
    p->longest_date = (int64_t)date > p->longest_date ? (int64_t)date : p->longest_date;
    p->longest_text = (int64_t)text > p->longest_text ? (int64_t)text : p->longest_text;
    return ATTN_OK;
}

attn_status date_pairs_read(struct date_pairs *p, const char *path, int64_t most_date, int64_t most_text)
{
    struct lines lines = {0};
    attn_status status = lines_read(&lines, path);
    if (status == ATTN_OK && lines.count == 0)
        status = io_fail(ATTN_INVALID_FILE, "%s is empty; expected lines DATE TAB TEXT", path);
    for (int64_t i = 0; status == ATTN_OK && i < lines.count; i++)
        status = take_line(p, path, lines.text[i], lines.size[i], most_date, most_text);
    if (status == ATTN_OK)
        p->digest = lines_digest(&lines);
    lines_free(&lines);
    return status;
}

static void mark(const struct lines *lines, bool occurs[256])
{
    for (int64_t i = 0; i < lines->count; i++)
        for (size_t c = 0; c < lines->size[i]; c++)
            occurs[(unsigned char)lines->text[i][c]] = true;
}

void date_pairs_mark(const struct date_pairs *p, bool occurs[256])
{
    mark(&p->dates, occurs);
    mark(&p->texts, occurs);
}

void date_pairs_free(struct date_pairs *p)
{
    lines_free(&p->dates);
    lines_free(&p->texts);
}

/* ------------------------------------------------------------------ batches -- */

attn_status pair_batch_create(struct pair_batch *b, int64_t size, int64_t longest_date, int64_t longest_text)
{
    const size_t pairs = (size_t)size, source = pairs * (size_t)longest_text,
                 target = pairs * (size_t)(longest_date + 1);
    b->source_offsets = calloc(pairs + 1, sizeof *b->source_offsets);
    b->target_offsets = calloc(pairs + 1, sizeof *b->target_offsets);
    b->source_ids = calloc(source, sizeof *b->source_ids);
    b->target_ids = calloc(target, sizeof *b->target_ids);
    b->labels = calloc(target, sizeof *b->labels);
    if (!b->source_offsets || !b->target_offsets || !b->source_ids || !b->target_ids || !b->labels)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a batch of %lld pairs", (long long)size);
    b->pairs = attn_transformer_pairs_default();
    b->pairs.source_offsets = b->source_offsets, b->pairs.source_ids = b->source_ids;
    b->pairs.target_offsets = b->target_offsets, b->pairs.target_ids = b->target_ids;
    return ATTN_OK;
}

attn_status pair_batch_fill(struct pair_batch *b, const struct date_pairs *p, const struct alphabet *alphabet,
                            const int64_t *order, int64_t count)
{
    b->pairs.num_pairs = count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = order[i], source = b->source_offsets[i], target = b->target_offsets[i];
        const size_t date = p->dates.size[from], text = p->texts.size[from];
        CHECK(alphabet_encode(alphabet, p->texts.text[from], text, b->source_ids + source));
        CHECK(alphabet_encode(alphabet, p->dates.text[from], date, b->labels + target));
        memcpy(b->target_ids + target + 1, b->labels + target, date * sizeof *b->labels);
        b->target_ids[target] = ALPHABET_BOS;
        b->labels[target + (int64_t)date] = ALPHABET_EOS;
        b->source_offsets[i + 1] = source + (int64_t)text;
        b->target_offsets[i + 1] = target + (int64_t)date + 1;
    }
    return ATTN_OK;
}

void pair_batch_free(struct pair_batch *b)
{
    free(b->source_offsets);
    free(b->target_offsets);
    free(b->source_ids);
    free(b->target_ids);
    free(b->labels);
    *b = (struct pair_batch){0};
}
