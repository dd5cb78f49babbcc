/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy: checks, and the cut into rows. Losses of rows are added in
 * double in chunks whose rows follow from their number alone, and the chunks'
 * sums in their order, so that the mean's bits do not depend on threads.
 */
#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <string.h>

/** Sums that are kept, on the stack. */
#define MOST_CHUNKS 256

/** What an element costs, in operations. */
#define LOSS_COST 16.0

struct losses {
    const struct attn_nn_kernels *kernels;
    const attn_tensor *logits, *out; /**< out NULL: not wanted */
    const int32_t *labels;
    double other, more, factor; /**< as in struct nn_loss_work */
    int64_t rows, chunk;        /**< rows of a chunk but perhaps the last */
    double *sums;               /**< [chunks] */
};

static double run_row(const struct losses *l, int64_t row)
{
    const int64_t tokens = l->logits->shape[2], classes = l->logits->shape[3];
    void *const out = l->out ? nn_row_address(l->out, row / tokens, row % tokens) : NULL;
    if (l->labels[row] < 0) {
        if (out) /* the bits of 0 are the same in every type */
            memset(out, 0, (size_t)(classes * attn_element_size(l->out->dtype)));
        return 0;
    }
    const struct nn_loss_work work = {
        .x = nn_row_address(l->logits, row / tokens, row % tokens),
        .dtype = l->logits->dtype,
        .out_dtype = l->out ? l->out->dtype : l->logits->dtype,
        .n = classes,
        .label = l->labels[row],
        .other = l->other,
        .more = l->more,
        .factor = l->factor,
        .out = out,
    };
    return l->kernels->cross_entropy(&work);
}

static void run_chunks(const void *context, int64_t first, int64_t end)
{
    const struct losses *l = context;
    for (int64_t c = first; c < end; c++) {
        const int64_t behind = l->rows - c * l->chunk < l->chunk ? l->rows : (c + 1) * l->chunk;
        double sum = 0;
        for (int64_t row = c * l->chunk; row < behind; row++)
            sum += run_row(l, row);
        l->sums[c] = sum;
    }
}

/** Counts the rows that are not left out. */
static attn_status check_labels(const int32_t *labels, int64_t rows, int64_t classes, int64_t *counted)
{
    *counted = 0;
    if (!labels && rows)
        return attn_fail(ATTN_INVALID_ARGUMENT, "labels is NULL; expected %" PRId64 " labels", rows);
    for (int64_t i = 0; i < rows; i++) {
        if (labels[i] >= classes)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "labels[%" PRId64 "] is %" PRId32 "; expected at most %" PRId64 ", the last class", i,
                             labels[i], classes - 1);
        *counted += labels[i] >= 0;
    }
    return ATTN_OK;
}

attn_status attn_cross_entropy(const attn_tensor *logits, const int32_t *labels, float label_smoothing, double *loss,
                               const attn_tensor *d_logits, int num_threads)
{
    int64_t counted;
    double sums[MOST_CHUNKS], total = 0;
    CHECK(nn_check_typed_activations("logits", logits, NN_ANY, NN_ANY, NN_ANY));
    CHECK(nn_check_length("logits.shape[3]", logits->shape[3], 1));
    const int64_t rows = logits->shape[0] * logits->shape[2], classes = logits->shape[3];
    CHECK(check_labels(labels, rows, classes, &counted));
    if (!(label_smoothing >= 0 && label_smoothing <= 1))
        return attn_fail(ATTN_INVALID_ARGUMENT, "label_smoothing is %g; expected 0 to 1", (double)label_smoothing);
    if (!loss && !d_logits)
        return attn_fail(ATTN_INVALID_ARGUMENT, "loss and d_logits are NULL; expected at least one of them");
    if (d_logits) {
        CHECK(nn_check_typed_output("d_logits", d_logits, logits->shape[0], logits->shape[2], classes));
        CHECK(attn_check_apart("d_logits", d_logits, "logits", logits, 1));
    }
    CHECK(nn_check_threads(num_threads));
    const int64_t chunk = (rows + MOST_CHUNKS - 1) / MOST_CHUNKS, chunks = rows ? (rows + chunk - 1) / chunk : 0;
    const struct losses work = {
        .kernels = attn_nn_kernels_active(),
        .logits = logits,
        .out = d_logits,
        .labels = labels,
        .other = (double)label_smoothing / (double)classes,
        .more = 1 - (double)label_smoothing,
        .factor = counted ? 1 / (double)counted : 0,
        .rows = rows,
        .chunk = chunk,
        .sums = sums,
    };
    attn_run_ranges(chunks, nn_threads(num_threads, (double)rows * (double)classes * LOSS_COST), run_chunks, &work);
    for (int64_t c = 0; c < chunks; c++)
        total += sums[c];
    if (loss)
        *loss = counted ? total / (double)counted : 0;
    return ATTN_OK;
}
