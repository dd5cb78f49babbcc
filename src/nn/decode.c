/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Greedy and beam search.
 *
 * A beam holds hypotheses from best to worst. In a step each living one has a
 * candidate for every token, and one that has ended is a candidate itself; the
 * best of all candidates, in the order of their scores and then of hypothesis
 * and token, are the next beam. Log-probabilities come from the f32 logits in
 * double: log softmax(x)_i = x_i - max x - log sum_j exp(x_j - max x).
 *
 * Greedy search is a beam of one whose candidates are compared by their logits,
 * since two logits that differ may round to one log-probability.
 */
#include "nn/decode.h"

#include "api/executor.h"
#include "driver/threads.h"
#include "nn/check.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct hypothesis {
    double log_prob;
    int64_t length;
    int ended;
    int64_t row;  /* of the decoder's, while it lives */
    int32_t *ids; /* [max_length] */
};

struct candidate {
    double score, log_prob;
    int64_t parent; /* in the beam */
    int32_t id;     /* not of an ended one */
};

struct search {
    struct nn_decoder decoder;
    const attn_decoding *how;
    int64_t beams, count;           /* hypotheses wanted, and there are */
    struct hypothesis *beam, *next; /* [beams] */
    struct candidate *best;         /* [beams] from best to worst */
    int64_t num_best;
    int32_t *step_ids;        /* [beams] */
    int64_t *parents;         /* [beams] */
    struct hypothesis *found; /* [batch]: kept until all are there, as a step may lack memory */
};

/* ------------------------------------------------------------------ checks -- */

static attn_status take_decoding(attn_decoding *how, const attn_transformer *model, const attn_tensor *memory,
                                 const int64_t *lengths, const attn_decoding *theirs, const attn_hypothesis *best)
{
    if (!model)
        return attn_fail(ATTN_INVALID_ARGUMENT, "model is NULL; expected an encoder-decoder");
    const attn_transformer_config *c = &model->config;
    CHECK(nn_transformer_check_memory(model, memory, lengths));
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "decoding is NULL; expected an attn_decoding with max_length set");
    CHECK(attn_take_struct("decoding", how, sizeof *how, NN_DECODING_FIRST, theirs));
    if (how->beams < 0 || how->beams > c->target_vocabulary)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "decoding.beams is %" PRId64 "; expected 0 to %" PRId64 ", the target tokens known",
                         how->beams, c->target_vocabulary);
    if (how->max_length < 1 || how->max_length >= c->positions)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "decoding.max_length is %" PRId64 "; expected 1 to %" PRId64
                         ", one less than the positions of the model",
                         how->max_length, c->positions - 1);
    if (!(how->length_penalty >= 0) || isinf(how->length_penalty))
        return attn_fail(ATTN_INVALID_ARGUMENT, "decoding.length_penalty is %g; expected a finite number, 0 or more",
                         (double)how->length_penalty);
    CHECK(nn_check_threads(how->num_threads));
    CHECK(attn_check_executor("decoding.executor", how->executor));
    if (!best && memory->shape[0])
        return attn_fail(ATTN_INVALID_ARGUMENT, "best is NULL; expected %" PRId64 " hypotheses", memory->shape[0]);
    for (int64_t b = 0; b < memory->shape[0]; b++)
        if (!best[b].ids)
            return attn_fail(ATTN_INVALID_ARGUMENT, "best[%" PRId64 "].ids is NULL; expected room for %" PRId64 " ids",
                             b, how->max_length);
    return ATTN_OK;
}

/* -------------------------------------------------------------- candidates -- */

/** Keeps a candidate if it is among the best; those that come later stand behind their equals. */
static void offer(struct search *s, struct candidate candidate)
{
    /* A NaN would have no place in any order. */
    if (isnan(candidate.score))
        candidate.score = -INFINITY;
    int64_t at = s->num_best;
    while (at > 0 && s->best[at - 1].score < candidate.score)
        at--;
    if (at == s->beams)
        return;
    if (s->num_best < s->beams)
        s->num_best++;
    memmove(s->best + at + 1, s->best + at, (size_t)(s->num_best - 1 - at) * sizeof *s->best);
    s->best[at] = candidate;
}

/** What hypotheses are compared by. */
static double score_of(const struct search *s, double log_prob, int64_t length)
{
    return s->how->length_penalty == 0 ? log_prob : log_prob / pow((double)length, (double)s->how->length_penalty);
}

/** The greatest logit, and the logarithm of the sum of exponentials. */
static double log_sum_exp(const float *logits, int64_t n)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] > most)
            most = logits[i];
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

static void offer_continuations(struct search *s, int64_t parent)
{
    const struct hypothesis *h = &s->beam[parent];
    const int64_t known = s->decoder.model->config.target_vocabulary;
    const float *logits = s->decoder.logits + h->row * known;
    const double total = log_sum_exp(logits, known);
    for (int64_t id = 0; id < known; id++) {
        const double log_prob = h->log_prob + ((double)logits[id] - total);
        const double score = s->beams == 1 ? (double)logits[id] : score_of(s, log_prob, h->length + 1);
        offer(s, (struct candidate){score, log_prob, parent, (int32_t)id});
    }
}

static void find_candidates(struct search *s)
{
    s->num_best = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const struct hypothesis *h = &s->beam[i];
        if (h->ended)
            offer(s, (struct candidate){score_of(s, h->log_prob, h->length), h->log_prob, i, 0});
        else
            offer_continuations(s, i);
    }
}

static void copy_hypothesis(struct hypothesis *to, const struct hypothesis *from)
{
    int32_t *const ids = to->ids;
    *to = *from;
    to->ids = memcpy(ids, from->ids, (size_t)from->length * sizeof *ids);
}

/** Makes the best candidates the beam; returns how many of it live. */
static int64_t advance(struct search *s)
{
    int64_t living = 0;
    for (int64_t i = 0; i < s->num_best; i++) {
        const struct candidate *from = &s->best[i];
        const struct hypothesis *parent = &s->beam[from->parent];
        struct hypothesis *to = &s->next[i];
        copy_hypothesis(to, parent);
        if (parent->ended)
            continue;
        to->log_prob = from->log_prob;
        to->ids[to->length++] = from->id;
        to->ended = from->id == s->decoder.model->config.eos;
        if (to->ended)
            continue;
        to->row = living;
        s->parents[living] = parent->row;
        s->step_ids[living++] = from->id;
    }
    struct hypothesis *const was = s->beam;
    s->beam = s->next;
    s->next = was;
    s->count = s->num_best;
    return living;
}

/* ------------------------------------------------------------------ search -- */

/** Takes all memory but that of a layer, which grows. */
static void take_pieces(struct search *s, struct nn_arena *arena, int64_t batch, int64_t source_tokens)
{
    const int64_t length = s->how->max_length;
    nn_decoder_take(&s->decoder, arena, source_tokens);
    s->found = nn_take(arena, batch, 1, 1, sizeof *s->found);
    int32_t *found_ids = nn_take(arena, batch, length, 1, sizeof *found_ids);
    for (int64_t b = 0; found_ids && b < batch; b++)
        s->found[b].ids = found_ids + b * length;
    s->beam = nn_take(arena, s->beams, 1, 1, sizeof *s->beam);
    s->next = nn_take(arena, s->beams, 1, 1, sizeof *s->next);
    s->best = nn_take(arena, s->beams, 1, 1, sizeof *s->best);
    s->step_ids = nn_take(arena, s->beams, 1, 1, sizeof *s->step_ids);
    s->parents = nn_take(arena, s->beams, 1, 1, sizeof *s->parents);
    int32_t *ids = nn_take(arena, s->beams, 2, length, sizeof *ids);
    for (int64_t i = 0; ids && i < s->beams; i++) {
        s->beam[i].ids = ids + 2 * i * length;
        s->next[i].ids = ids + (2 * i + 1) * length;
    }
}

/** Finds the best hypothesis for source (1, 1, tokens, d_model): the first of s->beam. */
static attn_status run_search(struct search *s, const attn_tensor *source)
{
    CHECK(nn_decoder_start(&s->decoder, source));
    s->count = 1;
    s->beam[0] = (struct hypothesis){.ids = s->beam[0].ids};
    s->step_ids[0] = s->decoder.model->config.bos;
    for (int64_t step = 0; step < s->how->max_length; step++) {
        CHECK(nn_decoder_step(&s->decoder, s->step_ids));
        find_candidates(s);
        const int64_t living = advance(s);
        /* Without a penalty nothing overtakes: every further id lowers a score, or leaves it as it is. */
        if (living == 0 || (s->beam[0].ended && s->how->length_penalty == 0))
            break;
        nn_decoder_reorder(&s->decoder, living, s->parents);
    }
    return ATTN_OK;
}

static attn_status decode_all(struct search *s, const attn_tensor *memory, const int64_t *lengths,
                              attn_hypothesis *best)
{
    for (int64_t b = 0; b < memory->shape[0]; b++) {
        attn_tensor source = *memory;
        source.shape[0] = 1;
        source.shape[2] = lengths ? lengths[b] : memory->shape[2];
        if (memory->shape[0] > 1)
            source.data = nn_row_address(memory, b, 0);
        CHECK(run_search(s, &source));
        copy_hypothesis(&s->found[b], &s->beam[0]);
    }
    for (int64_t b = 0; b < memory->shape[0]; b++) {
        best[b].length = s->found[b].length;
        best[b].log_prob = s->found[b].log_prob;
        memcpy(best[b].ids, s->found[b].ids, (size_t)best[b].length * sizeof *best[b].ids);
    }
    return ATTN_OK;
}

attn_status attn_transformer_decode(const attn_transformer *model, const attn_tensor *memory, const int64_t *lengths,
                                    const attn_decoding *decoding, attn_hypothesis *best)
{
    attn_decoding how;
    CHECK(take_decoding(&how, model, memory, lengths, decoding, best));
    struct search s = {.how = &how, .beams = how.beams ? how.beams : 1};
    s.decoder.model = model;
    s.decoder.capacity = how.max_length;
    s.decoder.most_rows = s.beams;
    s.decoder.num_threads = how.num_threads;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_pieces(&s, &measured, memory->shape[0], memory->shape[2]);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    take_pieces(&s, &w.arena, memory->shape[0], memory->shape[2]);
    const attn_executor *before = attn_executor_enter(how.executor);
    const attn_status status = decode_all(&s, memory, lengths, best);
    attn_executor_leave(before);
    free(s.decoder.workspace);
    nn_workspace_close(&w);
    return status;
}
