/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last of gradients of decays: walks have left them for each channel of each
 * head of out. A decay that many of these have, channels of a head, heads of a state, or all
 * along an axis of length 1, has their sum, in double precision and in the order of
 * the axes.
 */
#include "driver/linear_decays.h"

#include "driver/tensors.h"

#include <string.h>

/** Whether every token has a decay of its own. */
static int is_by_token(const struct attn_linear_backward *call)
{
    return call->d_decay.shape[2] == call->forward.v.shape[2];
}

int64_t attn_linear_decays_tasks(const struct attn_linear_backward *call)
{
    if (!call->wants_decay || !call->d_decay.shape[3])
        return 0;
    return call->d_decay.shape[0] * call->d_decay.shape[1] * (is_by_token(call) ? call->cut.blocks : 1);
}

/** Adds what one head of a batch element has for a token. */
static void add(const struct attn_run *run, int64_t batch, int64_t head, int64_t token, double *sums)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const int64_t per_state = call->cut.heads / call->forward.v.shape[1];
    for (int64_t i = head * per_state; i < (head + 1) * per_state; i++) {
        const float *const row = attn_linear_region_rows(run, &call->cut.decays, batch, i, token, 0).data;
        for (int64_t c = 0; c < call->cut.dk; c++)
            sums[c] += (double)row[c];
    }
}

/** Adds everything that an element of the gradient is the sum of, at a token. */
static void add_all(const struct attn_run *run, int64_t batch, int64_t head, int64_t token, double *sums)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const attn_tensor *d = &call->d_decay, *v = &call->forward.v;
    const int64_t last_batch = d->shape[0] == v->shape[0] ? batch : v->shape[0] - 1;
    const int64_t last_head = d->shape[1] == v->shape[1] ? head : v->shape[1] - 1;
    if (call->cut.dk == 0 || call->cut.dv == 0)
        return;
    for (int64_t b = batch; b <= last_batch; b++)
        for (int64_t h = head; h <= last_head && token < attn_linear_live(&call->forward, b); h++)
            add(run, b, h, token, sums);
}

/** Rounds sums to the elements at a token, and clears them; row is for as many floats. */
static void store(const struct attn_run *run, int64_t batch, int64_t head, int64_t token, double *sums, float *row)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const attn_tensor *d = &call->d_decay;
    const int64_t channels = d->shape[3], dk = call->cut.dk, size = attn_element_size(d->dtype);
    const int side_by_side = attn_step_of(d, 3) == 1;
    const float one = 1.0f;
    for (int64_t c = 1; c < dk && channels == 1; c++)
        sums[0] += sums[c];
    for (int64_t c = 0; c < channels; c++)
        row[c] = dk > 0 ? (float)sums[c] : 0.0f;
    char *to =
        (char *)d->data + (batch * attn_step_of(d, 0) + head * attn_step_of(d, 1) + token * attn_step_of(d, 2)) * size;
    for (int64_t c = 0; c < channels; c += side_by_side ? channels : 1) {
        run->geometry->kernels.vectors->write_few(&to, d->dtype, row + c, 1, side_by_side ? channels : 1, &one);
        to += attn_step_of(d, 3) * size;
    }
    memset(sums, 0, (size_t)dk * sizeof *sums);
}

size_t attn_linear_decays_scratch(const struct attn_linear_backward *call)
{
    return attn_aligned((size_t)call->cut.dk * sizeof(double)) +
           attn_aligned((size_t)(call->cut.dk + 1) * sizeof(float));
}

void attn_linear_decays_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const int by_token = is_by_token(call);
    const int64_t blocks = by_token ? call->cut.blocks : 1, tokens = call->forward.v.shape[2];
    const int64_t batch = task / blocks / call->d_decay.shape[1], head = task / blocks % call->d_decay.shape[1];
    const int64_t first = by_token ? task % blocks * ATTN_CHUNK : 0;
    const int64_t end = by_token && first + ATTN_CHUNK < tokens ? first + ATTN_CHUNK : tokens;
    double *const sums = scratch;
    float *const row = (float *)(void *)((char *)scratch + attn_aligned((size_t)call->cut.dk * sizeof(double)));
    memset(sums, 0, (size_t)call->cut.dk * sizeof *sums);
    for (int64_t t = first; t < end; t++) {
        add_all(run, batch, head, t, sums);
        if (by_token)
            store(run, batch, head, t, sums, row);
    }
    if (!by_token)
        store(run, batch, head, 0, sums, row);
}
