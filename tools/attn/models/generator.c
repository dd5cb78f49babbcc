/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps over a cache. A step reads either prompts or single tokens, so that the time of each is known; with drafts all
 * texts of a step have trees of one size, as attn_tree wants it: smaller ones are filled up with nodes that no text
 * goes on to, and that the cache forgets with the drafts that were wrong.
 */
#include "models/generator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Arrays of a step, for its texts and its tokens. */
struct generator_step {
    int64_t *sequences, *counts; /* [parallel] */
    int64_t *sources;            /* [parallel] of an encoder-decoder */
    int32_t *ids;                /* [tokens] */
    int64_t *positions, *rows;   /* [tokens] */
    uint64_t *ancestors;         /* [tokens] */
    float *logits;               /* [rows][vocabulary] */
    int64_t num, tokens, num_rows;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* -------------------------------------------------------------------- texts -- */

static attn_status out_of_memory(const struct generator *g)
{
    return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " texts", g->count + 1);
}

static bool has_sources(const struct generator *g)
{
    return g->model->info.kind == ATTN_MODEL_ENCODER_DECODER;
}

static attn_status check_prompt(const struct generator *g, int64_t count)
{
    const int64_t positions = g->model->info.max_positions, most = has_sources(g) ? positions : positions - 1;
    if (count < 1)
        return io_fail(ATTN_INVALID_ARGUMENT, "it has no tokens; expected 1 to %" PRId64, most);
    if (count > most)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "it has %" PRId64 " tokens; expected 1 to %" PRId64 ", as the model has %" PRId64 " positions",
                       count, most, positions);
    return ATTN_OK;
}

static int32_t *copy_ids(const int32_t *ids, int64_t count, int64_t room)
{
    int32_t *copy = calloc((size_t)room, sizeof *copy);
    if (copy != NULL)
        memcpy(copy, ids, (size_t)count * sizeof *ids);
    return copy;
}

static void free_text(struct generation *text)
{
    free(text->ids);
    free(text->source);
    free(text->drafts);
}

attn_status generator_add(struct generator *g, const int32_t *ids, int64_t count)
{
    const int64_t positions = g->model->info.max_positions;
    const int32_t start = (int32_t)g->model->info.decoder_start;
    CHECK(check_prompt(g, count));
    if (g->count == g->room) {
        const int64_t room = 2 * g->room + 8;
        struct generation *texts = realloc(g->texts, (size_t)room * sizeof *texts);
        if (texts == NULL)
            return out_of_memory(g);
        g->texts = texts;
        g->room = room;
    }
    struct generation text = {.index = g->count, .prompt = count, .state = g->seed + (uint64_t)g->count};
    bool copied = true;
    if (has_sources(g)) {
        text.source = copy_ids(ids, count, count);
        text.source_tokens = count;
        copied = text.source != NULL;
        ids = &start;
        text.prompt = 1;
    }
    text.count = text.prompt;
    text.limit = text.prompt + smaller(g->tokens, positions - text.prompt);
    text.ids = copy_ids(ids, text.prompt, text.limit);
    text.drafts = g->drafts > 0 ? calloc(1, sizeof *text.drafts) : NULL;
    if (!copied || text.ids == NULL || (g->drafts > 0 && text.drafts == NULL)) {
        free_text(&text);
        return out_of_memory(g);
    }
    g->texts[g->count++] = text;
    return ATTN_OK;
}

static void close_step(struct generator_step *s)
{
    if (s == NULL)
        return;
    free(s->sequences);
    free(s->counts);
    free(s->sources);
    free(s->ids);
    free(s->positions);
    free(s->rows);
    free(s->ancestors);
    free(s->logits);
    free(s);
}

void generator_close(struct generator *g)
{
    for (int64_t i = 0; i < g->count; i++)
        free_text(&g->texts[i]);
    free(g->texts);
    free(g->active);
    close_step(g->step);
    attn_cache_destroy(g->cache);
    attn_model_memory_destroy(g->memory);
    sampler_close(&g->sampler);
    g->texts = NULL;
    g->active = NULL;
    g->step = NULL;
    g->cache = NULL;
    g->memory = NULL;
    g->count = 0;
}

/* --------------------------------------------------------------------- cache -- */

static int descending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Tokens that a text has in the cache at most: the last one that is made is not read, but drafts behind others are. */
static int64_t kept_tokens(const struct generator *g, const struct generation *text)
{
    return text->limit + g->drafts;
}

/* As many pages as the longest texts that may be read at once need. */
static attn_status size_cache(const struct generator *g, attn_cache_config *config)
{
    int64_t *pages = calloc((size_t)g->count, sizeof *pages), longest = 1;
    if (pages == NULL)
        return out_of_memory(g);
    for (int64_t i = 0; i < g->count; i++)
        longest = kept_tokens(g, &g->texts[i]) > longest ? kept_tokens(g, &g->texts[i]) : longest;
    config->max_tokens = longest;
    config->max_sequences = smaller(g->parallel, g->count);
    config->page_size = g->page < longest ? g->page : 0;
    const int64_t size = config->page_size > 0 ? config->page_size : longest;
    for (int64_t i = 0; i < g->count; i++)
        pages[i] = (kept_tokens(g, &g->texts[i]) + size - 1) / size;
    qsort(pages, (size_t)g->count, sizeof *pages, descending);
    config->num_pages = 0;
    for (int64_t i = 0; i < config->max_sequences; i++)
        config->num_pages += pages[i];
    free(pages);
    return ATTN_OK;
}

static attn_status make_step(struct generator *g)
{
    const int64_t parallel = smaller(g->parallel, g->count), rows = parallel * (g->drafts + 1);
    int64_t tokens = 0;
    for (int64_t i = 0; i < g->count; i++)
        tokens += g->texts[i].prompt;
    tokens = smaller(tokens, g->chunk);
    tokens = tokens > rows ? tokens : rows;
    struct generator_step *s = g->step = calloc(1, sizeof *s);
    if (s == NULL)
        return out_of_memory(g);
    s->sequences = calloc((size_t)parallel, sizeof *s->sequences);
    s->counts = calloc((size_t)parallel, sizeof *s->counts);
    s->sources = calloc((size_t)parallel, sizeof *s->sources);
    s->ids = calloc((size_t)tokens, sizeof *s->ids);
    s->positions = calloc((size_t)tokens, sizeof *s->positions);
    s->rows = calloc((size_t)tokens, sizeof *s->rows);
    s->ancestors = calloc((size_t)tokens, sizeof *s->ancestors);
    s->logits = calloc((size_t)rows * (size_t)g->model->info.vocabulary, sizeof *s->logits);
    g->active = calloc((size_t)parallel, sizeof(struct generation *));
    const bool there = s->sequences != NULL && s->counts != NULL && s->sources != NULL && s->ids != NULL &&
                       s->positions != NULL && s->rows != NULL && s->ancestors != NULL && s->logits != NULL &&
                       g->active != NULL;
    return there ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for steps of %" PRId64 " tokens", tokens);
}

static attn_status start(struct generator *g)
{
    attn_cache_config config = attn_cache_config_default();
    CHECK(size_cache(g, &config));
    CHECK(attn_model_cache_config(g->model->model, &config));
    config.dtype = g->kept;
    /* Texts go back by the drafts that were wrong, to where keys may be gone. */
    if (g->drafts > 0)
        config.window = 0;
    CHECK(attn_cache_create(&g->cache, &config));
    if (has_sources(g))
        CHECK(attn_model_memory_create(&g->memory, g->model->model));
    CHECK(make_step(g));
    return sampler_open(&g->sampler, g->model->info.vocabulary, &g->sampling);
}

/* --------------------------------------------------------------------- steps -- */

static void begin_step(struct generator_step *s)
{
    s->num = s->tokens = s->num_rows = 0;
}

/* Adds tokens of a text to the step. */
static void put(struct generator_step *s, const struct generation *text, const int32_t *ids, int64_t count)
{
    s->sequences[s->num] = text->sequence;
    s->sources[s->num] = text->memory;
    s->counts[s->num++] = count;
    memcpy(s->ids + s->tokens, ids, (size_t)count * sizeof *ids);
    s->tokens += count;
}

static attn_status read_step(struct generator *g, const attn_tree *tree)
{
    const struct generator_step *s = g->step;
    const attn_tensor logits = attn_btc(s->logits, 1, s->num_rows, g->model->info.vocabulary);
    attn_model_tokens tokens = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    CHECK(attn_cache_step(g->cache, s->num, s->sequences, s->counts, tree != NULL ? s->positions : NULL));
    tokens.ids = s->ids, tokens.tree = tree, tokens.num_rows = s->num_rows, tokens.rows = s->rows;
    tokens.num_threads = g->threads;
    if (g->memory != NULL)
        tokens.memory = g->memory, tokens.sources = s->sources;
    outputs.logits = &logits;
    return attn_model_step(g->model->model, g->cache, &tokens, &outputs);
}

static const float *row(const struct generator *g, int64_t index)
{
    return g->step->logits + index * g->model->info.vocabulary;
}

static bool ends(const struct text_model *m, int32_t id)
{
    for (int64_t i = 0; i < m->info.num_eos; i++)
        if (m->info.eos[i] == id)
            return true;
    return false;
}

/* Chooses a text's next token. */
static attn_status choose(struct generator *g, struct generation *text, const float *logits)
{
    const int32_t id = sampler_take(&g->sampler, &text->state, logits);
    bool stop = false;
    if (id < 0)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: the logits behind token %" PRId64 " of text %" PRId64 " are all NaN or -inf",
                       g->model->folder, text->count, text->index + 1);
    text->ids[text->count++] = id;
    if (ends(g->model, id))
        text->ending = ENDING_EOS;
    else if (text->count == text->limit)
        text->ending = text->limit - text->prompt < g->tokens ? ENDING_POSITIONS : ENDING_LENGTH;
    CHECK(g->took(g->user, text, logits, &stop));
    if (stop && text->ending != ENDING_EOS)
        text->ending = ENDING_STOP;
    return ATTN_OK;
}

/* Reads what is left of prompts, a chunk of them; texts whose prompts end there get their first tokens. */
static attn_status read_prompts(struct generator *g)
{
    struct generator_step *s = g->step;
    const double begin = now();
    begin_step(s);
    for (int64_t i = 0; i < g->num_active && s->tokens < g->chunk; i++) {
        struct generation *text = g->active[i];
        const int64_t count = smaller(text->prompt - text->read, g->chunk - s->tokens);
        if (count <= 0)
            continue;
        put(s, text, text->ids + text->read, count);
        text->read += count;
        if (text->read == text->prompt)
            s->rows[s->num_rows++] = s->tokens - 1;
    }
    CHECK(read_step(g, NULL));
    g->prompt_seconds += now() - begin;
    g->prompt_tokens += g->memory == NULL ? s->tokens : 0;
    for (int64_t i = 0, next = 0; next < s->num_rows; i++) {
        struct generation *text = g->active[i];
        if (text->read == text->prompt && text->count == text->prompt)
            CHECK(choose(g, text, row(g, next++)));
    }
    return ATTN_OK;
}

static attn_status read_tokens(struct generator *g)
{
    struct generator_step *s = g->step;
    const double begin = now();
    begin_step(s);
    for (int64_t i = 0; i < g->num_active; i++) {
        put(s, g->active[i], &g->active[i]->ids[g->active[i]->read++], 1);
        s->rows[s->num_rows] = s->num_rows;
        s->num_rows++;
    }
    CHECK(read_step(g, NULL));
    for (int64_t i = 0; i < g->num_active; i++, g->made++)
        CHECK(choose(g, g->active[i], row(g, i)));
    g->seconds += now() - begin;
    return ATTN_OK;
}

/* -------------------------------------------------------------------- drafts -- */

/* Adds a text's tree of size nodes to the step: node 0 is its last token. */
static void put_tree(struct generator_step *s, const struct generation *text, int64_t size)
{
    const struct drafts *d = text->drafts;
    uint64_t *ancestors = s->ancestors + s->tokens;
    int32_t ids[DRAFTS_MOST + 1];
    for (int64_t i = 0; i < size; i++) {
        const bool real = i < d->count;
        const int parent = real ? d->parents[i] : 0;
        ids[i] = d->ids[real ? i : 0];
        s->positions[s->tokens + i] = text->read + (real ? d->depths[i] : 1);
        ancestors[i] = UINT64_C(1) << i | (i > 0 ? ancestors[parent] : 0);
        s->rows[s->num_rows] = s->num_rows;
        s->num_rows++;
    }
    put(s, text, ids, size);
}

/* Goes through the tree whose rows of logits begin at first, and leaves in the cache what the text went on with. */
static attn_status accept(struct generator *g, struct generation *text, int64_t first)
{
    const struct drafts *d = text->drafts;
    int64_t kept[DRAFTS_MOST + 1];
    int64_t accepted = 0;
    for (int node = 0; node >= 0;) {
        kept[accepted++] = text->read + node;
        CHECK(choose(g, text, row(g, first + node)));
        g->made++;
        node = text->ending == ENDING_NONE ? drafts_child(d, node, text->ids[text->count - 1]) : -1;
    }
    g->accepted[accepted - 1]++;
    CHECK(attn_cache_keep(g->cache, text->sequence, text->read, accepted, kept));
    text->read += accepted;
    return ATTN_OK;
}

static attn_status read_drafts(struct generator *g)
{
    struct generator_step *s = g->step;
    const double begin = now();
    int64_t size = 1;
    for (int64_t i = 0; i < g->num_active; i++) {
        struct generation *text = g->active[i];
        /* Behind the last place of a text there is none for drafts. */
        drafts_make(text->drafts, text->ids, text->count, (int)smaller(g->drafts, text->limit - text->count - 1));
        size = text->drafts->count > size ? text->drafts->count : size;
        g->drafted += text->drafts->count - 1;
        g->steps++;
    }
    begin_step(s);
    for (int64_t i = 0; i < g->num_active; i++)
        put_tree(s, g->active[i], size);
    const attn_tree tree = {size, s->ancestors};
    CHECK(read_step(g, &tree));
    for (int64_t i = 0; i < g->num_active; i++)
        CHECK(accept(g, g->active[i], i * size));
    g->seconds += now() - begin;
    return ATTN_OK;
}

/* ----------------------------------------------------------------------- run -- */

/* Encodes the source of a text. */
static attn_status add_source(struct generator *g, struct generation *text)
{
    const int64_t offsets[] = {0, text->source_tokens};
    const double begin = now();
    attn_model_batch batch = attn_model_batch_default();
    batch.num_sequences = 1, batch.offsets = offsets, batch.ids = text->source, batch.num_threads = g->threads;
    CHECK(attn_model_memory_add(g->memory, &batch, NULL, &text->memory));
    g->prompt_seconds += now() - begin;
    g->prompt_tokens += text->source_tokens;
    return ATTN_OK;
}

/* Takes prompts until there are as many texts as may be read at once. */
static attn_status admit(struct generator *g, int64_t *next)
{
    while (g->num_active < smaller(g->parallel, g->count) && *next < g->count) {
        struct generation *text = &g->texts[*next];
        CHECK(attn_cache_add(g->cache, &text->sequence));
        if (g->memory != NULL)
            CHECK(add_source(g, text));
        g->active[g->num_active++] = text;
        ++*next;
    }
    return ATTN_OK;
}

/* Lets go of texts that have ended. */
static attn_status release(struct generator *g)
{
    int64_t left = 0;
    for (int64_t i = 0; i < g->num_active; i++) {
        struct generation *text = g->active[i];
        if (text->ending == ENDING_NONE) {
            g->active[left++] = text;
            continue;
        }
        CHECK(attn_cache_remove(g->cache, text->sequence));
        if (g->memory != NULL)
            CHECK(attn_model_memory_remove(g->memory, text->memory));
        if (g->ended != NULL)
            CHECK(g->ended(g->user, text));
    }
    g->num_active = left;
    return ATTN_OK;
}

static bool has_prompts(const struct generator *g)
{
    for (int64_t i = 0; i < g->num_active; i++)
        if (g->active[i]->read < g->active[i]->prompt)
            return true;
    return false;
}

attn_status generator_run(struct generator *g)
{
    int64_t next = 0;
    if (g->count == 0)
        return ATTN_OK;
    CHECK(start(g));
    do {
        CHECK(admit(g, &next));
        CHECK(has_prompts(g) ? read_prompts(g) : g->drafts > 0 ? read_drafts(g) : read_tokens(g));
        CHECK(release(g));
    } while (g->num_active > 0 || next < g->count);
    return ATTN_OK;
}
