/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that a decoder goes on with, any number at once over one cache: prompts are read in chunks, then each step
 * reads a token of every text, or drafts behind it. A text that ends makes room for the next one. An encoder-decoder
 * reads prompts as sources, and writes texts of their own.
 *
 *     struct generator g = {.model = &model, ...};
 *     generator_add(&g, ids, count);          for each prompt
 *     generator_run(&g);                      calls g.took() with each token
 *     generator_close(&g);
 */
#ifndef ATTN_TOOLS_MODELS_GENERATOR_H
#define ATTN_TOOLS_MODELS_GENERATOR_H

#include "models/drafts.h"
#include "models/sampler.h"
#include "models/text_model.h"

/* Why a text ended. */
enum ending {
    ENDING_NONE,      /* it has not */
    ENDING_EOS,       /* a token that ends texts; it is the last of ids */
    ENDING_LENGTH,    /* there are as many tokens as were wanted */
    ENDING_POSITIONS, /* the model's positions have come to an end */
    ENDING_STOP       /* took() said so */
};

/* A text: the prompt, then what was made. Of an encoder-decoder: the id it begins with, then what was made. */
struct generation {
    int64_t index; /* among those of the generator */
    int32_t *ids;  /* [limit] */
    int64_t count, prompt, limit;
    int32_t *source; /* [source_tokens] the prompt of an encoder-decoder; else NULL */
    int64_t source_tokens;
    enum ending ending;
    /* While it is read. */
    int64_t sequence, read; /* of the cache; tokens that are in it */
    int64_t memory;         /* its source there */
    uint64_t state;         /* of random numbers */
    struct drafts *drafts;
};

struct generator {
    /* Set by the program. */
    const struct text_model *model;
    struct sampling sampling;
    uint64_t seed;    /* that of text i is seed + i */
    int64_t tokens;   /* made of a prompt at most */
    int64_t parallel; /* texts at once, 1 or more */
    int64_t chunk;    /* tokens of prompts that a step reads, 1 or more */
    int64_t page;     /* tokens of a page; 0: a text side by side */
    attn_dtype kept;  /* of keys and values */
    int drafts;       /* behind a token at most; 0: none */
    int threads;
    /* A token was chosen, the last of text->ids, by logits. *stop: end the text here. */
    attn_status (*took)(void *user, const struct generation *text, const float *logits, bool *stop);
    /* NULL, or a text has come to its end. */
    attn_status (*ended)(void *user, const struct generation *text);
    void *user;

    /* What was done. */
    double prompt_seconds, seconds;    /* of steps with prompts, and of all others */
    int64_t prompt_tokens, made;       /* read in the first, and made in the others */
    int64_t steps, drafted;            /* trees of drafts that were read, and drafts in them */
    int64_t accepted[DRAFTS_MOST + 1]; /* trees by how many drafts the text went on with */

    struct generation *texts;
    int64_t count, room;
    attn_cache *cache;
    attn_model_memory *memory; /* of an encoder-decoder */
    struct sampler sampler;
    struct generation **active; /* [parallel] */
    int64_t num_active;
    struct generator_step *step;
};

/* Adds a prompt, which is copied: 1 token or more, and fewer than the model has positions (a source: as many at most).
 */
attn_status generator_add(struct generator *g, const int32_t *ids, int64_t count);
/* Makes all texts. */
attn_status generator_run(struct generator *g);
void generator_close(struct generator *g);

#endif
