/* SPDX-License-Identifier: Apache-2.0 */
/* What attn embed and attn rerank share: lines of text, through an encoder, and how fast. */
#ifndef ATTN_TOOLS_MODELS_TEXT_RUN_H
#define ATTN_TOOLS_MODELS_TEXT_RUN_H

#include "models/encoded_texts.h"
#include "options.h"

#define TEXT_RUN_MAX_TOKENS_HELP "tokens of a text at most; default: as the folder says"
#define TEXT_RUN_BATCH_HELP      "tokens of one call at most; default 4096"

struct text_run {
    const char *command; /* its name */
    const char *file;    /* NULL: standard input */
    long long max_tokens, batch;
    int threads;
    struct lines lines;
    double seconds; /* that the model took */
};

/* FOLDER, and FILE or nothing. */
attn_status text_run_operands(struct text_run *r, const char *command, const struct operands *operands);
attn_status text_run_read(struct text_run *r, const struct option *max_tokens, const struct option *batch,
                          const struct option *threads);
/* Reads the lines; there has to be one. */
attn_status text_run_lines(struct text_run *r);
/*
 * The tokens of the lines, or of pairs of first and each; says on stderr if some had to be cut. may_be_empty: a line
 * may have no tokens.
 */
attn_status text_run_encode(const struct text_run *r, const struct text_model *m, const char *first, bool may_be_empty,
                            struct encoded_texts *texts);
/* Embeddings or logits of all texts. */
attn_status text_run_batches(struct text_run *r, const struct text_model *m, const struct encoded_texts *texts,
                             bool logits, float *rows);
/* Says on stderr how fast it was. */
void text_run_report(const struct text_run *r, const struct encoded_texts *texts);
void text_run_free(struct text_run *r);

#endif
