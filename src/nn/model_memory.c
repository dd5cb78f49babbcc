/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an encoder-decoder: keys and values of its sources in all layers
 * of the decoder, in pages, so that sources come and go, and sequences of a step
 * read those of any source in one call.
 */
#include "nn/model.h"

#include "api/executor.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/llama.h"
#include "nn/memory.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PAGE = 16 }; /* tokens */

struct source {
    int64_t id, tokens;
    int32_t *pages; /* [pages of so many tokens] */
};

struct attn_model_memory {
    const attn_model *model;
    int64_t layers, channels; /* of the decoder; keys and values of a token in a layer */
    size_t page_bytes;        /* of all layers */
    char *data;               /* [num_pages][layers][PAGE][channels] of the model's activations */
    int32_t *free;            /* [num_pages], of which the first num_free are pages without a source */
    int64_t num_pages, num_free;
    struct source *sources; /* [num], room for more; by id, ascending */
    int64_t num, room, next_id;
};

static int64_t pages_of(int64_t tokens)
{
    return tokens / PAGE + (tokens % PAGE != 0);
}

/* ------------------------------------------------------------------- life -- */

attn_status attn_model_memory_create(attn_model_memory **memory_out, const attn_model *model)
{
    if (!memory_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "memory is NULL; expected where to put the memory");
    *memory_out = NULL;
    if (!model)
        return attn_fail(ATTN_INVALID_ARGUMENT, "model is NULL; expected a model");
    if (model->info.kind != ATTN_MODEL_ENCODER_DECODER)
        return attn_fail(ATTN_INVALID_ARGUMENT, "model is %s; expected an encoder-decoder", model->model_type);
    attn_model_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a memory could not be allocated");
    const attn_llama_config *c = &model->llama->config;
    memory->model = model;
    memory->layers = c->layers;
    /* Cannot overflow: the packed weights of as many layers are in memory, and a page has few tokens. */
    memory->channels = 2 * c->kv_heads * c->head_dim;
    memory->page_bytes = (size_t)(c->layers * PAGE * memory->channels) * attn_dtype_size(c->activations);
    *memory_out = memory;
    return ATTN_OK;
}

void attn_model_memory_destroy(attn_model_memory *memory)
{
    if (!memory)
        return;
    for (int64_t i = 0; i < memory->num; i++)
        free(memory->sources[i].pages);
    free(memory->sources);
    free(memory->free);
    free(memory->data);
    free(memory);
}

/** The place of a source; -1: there is none. */
static int64_t find_source(const struct attn_model_memory *memory, int64_t id)
{
    int64_t first = 0, end = memory->num;
    while (first < end) {
        const int64_t middle = first + (end - first) / 2;
        if (memory->sources[middle].id < id)
            first = middle + 1;
        else
            end = middle;
    }
    return first < memory->num && memory->sources[first].id == id ? first : -1;
}

static attn_status check_memory(const struct attn_model_memory *memory)
{
    return memory ? ATTN_OK
                  : attn_fail(ATTN_INVALID_ARGUMENT, "memory is NULL; expected one of attn_model_memory_create()");
}

/** Frees the sources from a place on, the last one first, so that pages are taken again in the same order. */
static void drop_sources(struct attn_model_memory *memory, int64_t first)
{
    while (memory->num > first) {
        struct source *source = &memory->sources[--memory->num];
        for (int64_t p = pages_of(source->tokens) - 1; p >= 0; p--)
            memory->free[memory->num_free++] = source->pages[p];
        free(source->pages);
    }
}

attn_status attn_model_memory_remove(attn_model_memory *memory, int64_t id)
{
    CHECK(check_memory(memory));
    const int64_t place = find_source(memory, id);
    if (place < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "source is %" PRId64 "; expected one that the memory has", id);
    const struct source removed = memory->sources[place];
    memmove(&memory->sources[place], &memory->sources[place + 1],
            (size_t)(memory->num - 1 - place) * sizeof *memory->sources);
    memory->sources[memory->num - 1] = removed;
    drop_sources(memory, memory->num - 1);
    return ATTN_OK;
}

int64_t attn_model_memory_length(const attn_model_memory *memory, int64_t id)
{
    const int64_t place = memory ? find_source(memory, id) : -1;
    return place < 0 ? -1 : memory->sources[place].tokens;
}

/* ---------------------------------------------------------------- growing -- */

static attn_status fail_to_grow(int64_t num)
{
    return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for %" PRId64 " more sources", num);
}

/** Room for num more sources, in lists that grow by a half at least. */
static attn_status reserve_sources(struct attn_model_memory *memory, int64_t num)
{
    if (num <= memory->room - memory->num)
        return ATTN_OK;
    int64_t room;
    if (__builtin_add_overflow(memory->num, num, &room))
        return fail_to_grow(num);
    room = room > memory->room + memory->room / 2 ? room : memory->room + memory->room / 2;
    CHECK(attn_check_count("batch.num_sequences", sizeof(struct source), room, 1, 1));
    struct source *sources = realloc(memory->sources, (size_t)room * sizeof *sources);
    if (!sources)
        return fail_to_grow(num);
    memory->sources = sources;
    memory->room = room;
    return ATTN_OK;
}

/** As many free pages, likewise. Page numbers are 32 bits. */
static attn_status reserve_pages(struct attn_model_memory *memory, int64_t num, int64_t num_sources)
{
    if (num <= memory->num_free && memory->num_pages > 0)
        return ATTN_OK;
    const int64_t least = memory->num_pages + (num > memory->num_free ? num - memory->num_free : 1);
    const int64_t usual = memory->num_pages + memory->num_pages / 2;
    const int64_t pages = least > usual ? least : usual;
    if (pages > INT32_MAX || (size_t)pages > PTRDIFF_MAX / memory->page_bytes)
        return fail_to_grow(num_sources);
    int32_t *unused = realloc(memory->free, (size_t)pages * sizeof *unused);
    if (!unused)
        return fail_to_grow(num_sources);
    memory->free = unused;
    char *data = realloc(memory->data, (size_t)pages * memory->page_bytes);
    if (!data)
        return fail_to_grow(num_sources);
    memory->data = data;
    /* Those with low numbers are taken first. */
    memmove(unused + (pages - memory->num_pages), unused, (size_t)memory->num_free * sizeof *unused);
    for (int64_t p = pages - 1, i = 0; p >= memory->num_pages; p--, i++)
        unused[i] = (int32_t)p;
    memory->num_free += pages - memory->num_pages;
    memory->num_pages = pages;
    return ATTN_OK;
}

/** Gives the sequences of a batch their pages; those that were added when it fails are the caller's to drop. */
static attn_status add_sources(struct attn_model_memory *memory, const attn_model_batch *batch)
{
    const int64_t num = batch->num_sequences;
    int64_t pages = 0;
    for (int64_t s = 0; s < num; s++)
        pages += pages_of(batch->offsets[s + 1] - batch->offsets[s]);
    CHECK(reserve_sources(memory, num));
    CHECK(reserve_pages(memory, pages, num));
    for (int64_t s = 0; s < num; s++) {
        const int64_t tokens = batch->offsets[s + 1] - batch->offsets[s], count = pages_of(tokens);
        struct source source = {.id = memory->next_id + s, .tokens = tokens};
        source.pages = malloc((size_t)(count ? count : 1) * sizeof *source.pages);
        if (!source.pages)
            return fail_to_grow(num);
        for (int64_t p = 0; p < count; p++)
            source.pages[p] = memory->free[--memory->num_free];
        memory->sources[memory->num++] = source;
    }
    return ATTN_OK;
}

/* ------------------------------------------------------- keys and values -- */

/** Where a layer's rows of a page begin. */
static char *page_of(const struct attn_model_memory *memory, int64_t layer, int64_t page)
{
    return memory->data + (size_t)page * memory->page_bytes +
           (size_t)layer * (memory->page_bytes / (size_t)memory->layers);
}

/** Puts rows (1, 1, tokens, channels) of the last num sources into their pages. */
static void keep_rows(const struct attn_model_memory *memory, int64_t layer, int64_t num, const attn_tensor *rows)
{
    const size_t row = (size_t)memory->channels * attn_dtype_size(rows->dtype);
    const char *from = rows->data;
    for (int64_t s = memory->num - num; s < memory->num; s++) {
        const struct source *source = &memory->sources[s];
        for (int64_t first = 0; first < source->tokens; first += PAGE) {
            const int64_t left = source->tokens - first;
            const size_t size = (size_t)(left < PAGE ? left : PAGE) * row;
            memcpy(page_of(memory, layer, source->pages[first / PAGE]), from, size);
            from += size;
        }
    }
}

/** Working memory of an addition. */
struct pieces {
    attn_tensor hidden, kv;
};

static struct pieces take_pieces(struct nn_arena *arena, const struct attn_model_memory *memory, int64_t tokens,
                                 const attn_tensor *hidden)
{
    const attn_dtype dtype = memory->model->activations;
    const int64_t d = memory->model->info.d_model;
    struct pieces pieces = {.hidden = attn_btc(NULL, 1, tokens, d)};
    if (!hidden)
        pieces.hidden.data = nn_take(arena, tokens, d, 1, attn_dtype_size(dtype));
    pieces.kv =
        attn_btc(nn_take(arena, tokens, memory->channels, 1, attn_dtype_size(dtype)), 1, tokens, memory->channels);
    pieces.hidden.dtype = pieces.kv.dtype = dtype;
    return pieces;
}

static attn_status project(const struct attn_model_memory *memory, const attn_model_batch *batch,
                           const attn_tensor *hidden, const attn_tensor *kv)
{
    for (int64_t layer = 0; layer < memory->layers; layer++) {
        CHECK(attn_block_project_memory(memory->model->llama->blocks[layer], hidden, kv, batch->num_threads));
        keep_rows(memory, layer, batch->num_sequences, kv);
    }
    return ATTN_OK;
}

static attn_status add_batch(struct attn_model_memory *memory, const attn_model_batch *batch, const attn_tensor *hidden)
{
    const int64_t tokens = batch->offsets[batch->num_sequences], before = memory->num;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_pieces(&measured, memory, tokens, hidden);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct pieces pieces = take_pieces(&w.arena, memory, tokens, hidden);
    attn_model_outputs outputs = attn_model_outputs_default();
    outputs.hidden = &pieces.hidden;
    attn_status status = hidden ? ATTN_OK : attn_model_encode(memory->model, batch, &outputs);
    if (!status)
        status = add_sources(memory, batch);
    if (!status)
        status = project(memory, batch, hidden ? hidden : &pieces.hidden, &pieces.kv);
    if (status)
        drop_sources(memory, before);
    nn_workspace_close(&w);
    return status;
}

attn_status attn_model_memory_add(attn_model_memory *memory, const attn_model_batch *batch, const attn_tensor *hidden,
                                  int64_t *sources)
{
    attn_model_batch b;
    CHECK(check_memory(memory));
    CHECK(nn_model_take_batch(&b, batch));
    if (hidden)
        CHECK(nn_check_typed_activations("hidden", hidden, 1, b.offsets[b.num_sequences], memory->model->info.d_model));
    if (!sources && b.num_sequences > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "sources is NULL; expected room for %" PRId64 " numbers",
                         b.num_sequences);
    const attn_executor *before = attn_executor_enter(b.executor);
    const attn_status status = add_batch(memory, &b, hidden);
    attn_executor_leave(before);
    for (int64_t s = 0; !status && s < b.num_sequences; s++)
        sources[s] = memory->next_id++;
    return status;
}

/* ------------------------------------------------------------------ steps -- */

/** That the tokens of a step stand at their places, from which biases follow. */
static attn_status check_places(const attn_cache *cache, int64_t num, const int64_t *offsets)
{
    attn_tensor k, v;
    attn_params params = attn_params_default();
    CHECK(attn_cache_pools(cache, 0, &k, &v, &params));
    const int64_t *positions = attn_cache_positions(cache, NULL);
    for (int64_t s = 0; s < num; s++)
        for (int64_t i = offsets[s]; i < offsets[s + 1]; i++) {
            const int64_t place = params.kv_len[s] - offsets[s + 1] + i;
            if (positions[i] != place)
                return attn_fail(ATTN_UNSUPPORTED,
                                 "token %" PRId64 " of the cache's step has position %" PRId64 "; expected %" PRId64
                                 ", its place, from which this model's biases follow",
                                 i, positions[i], place);
        }
    return ATTN_OK;
}

static attn_status check_step(const attn_model *model, const attn_cache *cache, const attn_model_tokens *tokens)
{
    const struct attn_model_memory *memory = tokens->memory;
    int64_t num;
    const int64_t *offsets = attn_cache_offsets(cache, &num);
    if (tokens->tree)
        return attn_fail(ATTN_UNSUPPORTED,
                         "tokens.tree is set; expected NULL, as this model's biases follow from places");
    if (!memory || memory->model != model)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokens.memory is %s; expected one of this model",
                         memory ? "that of another model" : "NULL");
    if (num > 0 && !tokens->sources)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokens.sources is NULL; expected %" PRId64 " numbers", num);
    for (int64_t s = 0; s < num; s++)
        if (find_source(memory, tokens->sources[s]) < 0)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "tokens.sources[%" PRId64 "] is %" PRId64 "; expected a source that tokens.memory has", s,
                             tokens->sources[s]);
    return num > 0 ? check_places(cache, num, offsets) : ATTN_OK;
}

/** Where the sources of a step's sequences are. */
struct table {
    int64_t num, stride;
    int64_t *lengths; /* [num] */
    int32_t *pages;   /* [num][stride] */
};

static struct table take_table(struct nn_arena *arena, const struct attn_model_memory *memory, int64_t num,
                               const int64_t *sources)
{
    struct table table = {.num = num};
    for (int64_t s = 0; s < num; s++) {
        const int64_t pages = pages_of(memory->sources[find_source(memory, sources[s])].tokens);
        table.stride = pages > table.stride ? pages : table.stride;
    }
    table.lengths = nn_take(arena, num + 1, 1, 1, sizeof *table.lengths);
    table.pages = nn_take(arena, num, table.stride, 1, sizeof *table.pages);
    return table;
}

static void fill_table(const struct table *table, const struct attn_model_memory *memory, const int64_t *sources)
{
    for (int64_t s = 0; s < table->num; s++) {
        const struct source *source = &memory->sources[find_source(memory, sources[s])];
        table->lengths[s] = source->tokens;
        memcpy(table->pages + s * table->stride, source->pages,
               (size_t)pages_of(source->tokens) * sizeof *source->pages);
    }
}

attn_status nn_model_step_with_memory(const attn_model *model, attn_cache *cache, const attn_model_tokens *tokens,
                                      struct nn_llama_call *call)
{
    static const int64_t nothing[1] = {0};
    int64_t num;
    const int64_t *offsets = attn_cache_offsets(cache, &num);
    CHECK(check_step(model, cache, tokens));
    const struct attn_model_memory *memory = tokens->memory;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_table(&measured, memory, num, tokens->sources);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct table table = take_table(&w.arena, memory, num, tokens->sources);
    fill_table(&table, memory, tokens->sources);
    const attn_ragged ragged = {.num_sequences = num, .cu_seqlens_q = num ? offsets : nothing};
    struct nn_llama_sources sources = {.params = attn_params_default()};
    sources.params.scale = model->llama->kind.scale;
    sources.params.ragged = &ragged;
    sources.params.kv_len = table.lengths;
    sources.params.block_table = table.pages;
    sources.params.block_table_stride = table.stride;
    sources.params.page_size = PAGE;
    sources.layer_stride = (int64_t)memory->page_bytes / memory->layers;
    sources.pool = (attn_tensor){
        .data = memory->data,
        .dtype = model->activations,
        .shape = {memory->num_pages, 1, PAGE, memory->channels},
        .stride = {memory->layers * PAGE * memory->channels, PAGE * memory->channels, memory->channels, 1},
    };
    call->sources = &sources;
    const attn_status status = nn_llama_step(model->llama, cache, call);
    call->sources = NULL;
    nn_workspace_close(&w);
    return status;
}
