/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logistic regression: all texts are pooled once, and the classifier alone is
 * trained on all of them at every step. Its weights are where an adaptation
 * begins (Kumar et al. 2022, "Fine-tuning can distort pretrained features").
 */
#include "frozen.h"

#include <stdlib.h>
#include <string.h>

#include "trainer.h"

enum { STEPS = 400 };
static const double peak_rate = 0.05;
static const float weight_decay = 0.01f;

/* What the encoder pools, a row for each text in their order. */
static attn_status pool(struct adapted_encoder *e, struct token_batch *b, const struct token_texts *texts,
                        float *pooled)
{
    int64_t order[256];
    for (int64_t first = 0; first < texts->count; first += b->count) {
        int64_t count = texts->count - first < e->most_texts ? texts->count - first : e->most_texts;
        count = count < 256 ? count : 256;
        for (int64_t i = 0; i < count; i++)
            order[i] = first + i;
        token_batch_fill(b, texts, order, count);
        CHECK(adapted_encoder_predict(e, b));
        memcpy(pooled + first * e->config.d_model, e->pooled, (size_t)(count * e->config.d_model) * sizeof *pooled);
    }
    return ATTN_OK;
}

static attn_status predict(const struct adapted_encoder *e, const attn_tensor *rows, const attn_tensor *logits)
{
    attn_linear *head;
    CHECK(attn_linear_create(&head, 1, &e->parameters.values[e->head], &e->parameters.values[e->head + 1]));
    const attn_status status = attn_linear_forward(head, rows, logits, NULL);
    attn_linear_destroy(head);
    return status;
}

static attn_status fit(struct adapted_encoder *e, const attn_tensor *rows, const attn_tensor *logits,
                       const int32_t *labels)
{
    struct parameters *p = &e->parameters;
    attn_schedule schedule = attn_schedule_default();
    attn_adamw_options adamw = attn_adamw_options_default();
    attn_linear_gradients gradients = attn_linear_gradients_default();
    double loss, rate;
    schedule.kind = ATTN_SCHEDULE_COSINE;
    schedule.peak = peak_rate;
    schedule.steps = STEPS;
    adamw.weight_decay = weight_decay;
    gradients.weights = &p->gradients[e->head];
    gradients.bias = &p->gradients[e->head + 1];
    for (int64_t step = 1; step <= STEPS; step++) {
        CHECK(predict(e, rows, logits));
        CHECK(attn_cross_entropy(logits, labels, 0, &loss, logits, 0));
        CHECK(attn_linear_backward(&p->values[e->head], rows, logits, &gradients, NULL, 0));
        CHECK(attn_schedule_rate(&schedule, step, &rate));
        adamw.learning_rate = (float)rate;
        CHECK(attn_adamw_step(&p->all[e->head], 2, step, &adamw));
    }
    /* An adaptation has an optimiser of its own. */
    for (int which = e->head; which < e->head + 2; which++) {
        memset(p->all[which].mean, 0, (size_t)p->all[which].count * sizeof(float));
        memset(p->all[which].square, 0, (size_t)p->all[which].count * sizeof(float));
    }
    return ATTN_OK;
}

attn_status frozen_fit(struct adapted_encoder *e, struct token_batch *batch, const struct token_texts *train,
                       const struct token_texts *test, double *accuracy)
{
    const int64_t most = train->count > test->count ? train->count : test->count, d = e->config.d_model;
    float *pooled = malloc((size_t)(most * d) * sizeof *pooled);
    float *scores = malloc((size_t)(most * e->classes) * sizeof *scores);
    attn_status status = pooled && scores
                             ? ATTN_OK
                             : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld pooled texts", (long long)most);
    if (status == ATTN_OK)
        status = pool(e, batch, train, pooled);
    if (status == ATTN_OK) {
        const attn_tensor rows = attn_btc(pooled, 1, train->count, d),
                          logits = attn_btc(scores, 1, train->count, e->classes);
        status = fit(e, &rows, &logits, train->source.labels);
    }
    if (status == ATTN_OK)
        status = pool(e, batch, test, pooled);
    if (status == ATTN_OK) {
        const attn_tensor rows = attn_btc(pooled, 1, test->count, d),
                          logits = attn_btc(scores, 1, test->count, e->classes);
        status = predict(e, &rows, &logits);
    }
    if (status == ATTN_OK)
        *accuracy =
            (double)trainer_count_right(scores, test->source.labels, test->count, e->classes) / (double)test->count;
    free(pooled);
    free(scores);
    return status;
}
