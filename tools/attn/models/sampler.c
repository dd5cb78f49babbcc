/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws tokens. With top_p (Holtzman et al. 2020, "nucleus sampling") tokens are sorted by their
 * probability. Not all of them: those below (1 - top_p) / vocabulary have less
 * than 1 - top_p together, so that the others have top_p without them.
 *
 * Random numbers are those of SplitMix64 (Steele et al. 2014), 53 bits each.
 */
#include "models/sampler.h"

#include <math.h>
#include <stdlib.h>

attn_status sampler_open(struct sampler *sampler, int64_t vocabulary, const struct sampling *how)
{
    *sampler = (struct sampler){.vocabulary = vocabulary, .how = *how, .candidates = NULL};
    sampler->candidates = calloc((size_t)vocabulary, sizeof *sampler->candidates);
    return sampler->candidates ? ATTN_OK
                               : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld tokens", (long long)vocabulary);
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->candidates);
    sampler->candidates = NULL;
}

/* From 0 to below 1. */
static double draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static int32_t greatest(const float *logits, int64_t vocabulary)
{
    int32_t best = -1;
    float most = -INFINITY;
    for (int32_t id = 0; id < vocabulary; id++)
        if (logits[id] > most) {
            most = logits[id];
            best = id;
        }
    return best;
}

/* From the likeliest on, the lower id among equals. */
static int compare(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return a->weight != b->weight ? (a->weight < b->weight) - (a->weight > b->weight)
                                  : (a->id > b->id) - (a->id < b->id);
}

static double sum_of(const struct candidate *candidates, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += candidates[i].weight;
    return sum;
}

/* Leaves the nucleus; *sum is changed to that of what is left. */
static int64_t cut(struct candidate *candidates, int64_t count, double top_p, int64_t vocabulary, double *sum)
{
    const double least = *sum * (1 - top_p) / (double)vocabulary, wanted = *sum * top_p;
    int64_t kept = 0, taken = 0;
    for (int64_t i = 0; i < count; i++)
        if (candidates[i].weight >= least)
            candidates[kept++] = candidates[i];
    qsort(candidates, (size_t)kept, sizeof *candidates, compare);
    for (*sum = 0; taken < kept && (taken == 0 || *sum < wanted); taken++)
        *sum += candidates[taken].weight;
    return taken;
}

int32_t sampler_take(struct sampler *s, uint64_t *state, const float *logits)
{
    const int32_t best = greatest(logits, s->vocabulary);
    if (best < 0 || s->how.temperature == 0 || isinf(logits[best]))
        return best;
    int64_t count = 0;
    double sum = 0;
    for (int32_t id = 0; id < s->vocabulary; id++) {
        const double weight = exp(((double)logits[id] - (double)logits[best]) / s->how.temperature);
        if (!(weight > 0))
            continue;
        s->candidates[count++] = (struct candidate){weight, id};
        sum += weight;
    }
    if (s->how.top_k > 0 && s->how.top_k < count) {
        qsort(s->candidates, (size_t)count, sizeof *s->candidates, compare);
        count = s->how.top_k;
        sum = sum_of(s->candidates, count);
    }
    if (s->how.top_p < 1)
        count = cut(s->candidates, count, s->how.top_p, s->vocabulary, &sum);
    double left = draw(state) * sum;
    for (int64_t i = 0; i < count; i++) {
        left -= s->candidates[i].weight;
        if (left < 0)
            return s->candidates[i].id;
    }
    /* The sum was rounded. */
    return s->candidates[count - 1].id;
}
