/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of samples of like lengths, in an order of chance. */
#include "batch_order.h"

#include <stdlib.h>

struct place {
    int64_t length, index;
    uint64_t chance;
};

static int by_length(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->chance != y->chance ? (x->chance < y->chance ? -1 : 1) : (x->index > y->index) - (x->index < y->index);
}

attn_status batch_order(const int64_t *lengths, int64_t count, int64_t size, struct stream stream, int64_t *order)
{
    const int64_t batches = (count + size - 1) / size;
    struct place *places = calloc((size_t)count, sizeof *places);
    int64_t *turns = calloc((size_t)batches, sizeof *turns);
    if (!places || !turns) {
        free(places);
        free(turns);
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for an order of %lld texts", (long long)count);
    }
    for (int64_t i = 0; i < count; i++)
        places[i] = (struct place){lengths[i] / 4, i, random_bits(stream, (uint64_t)i)};
    qsort(places, (size_t)count, sizeof *places, by_length);
    /* Fisher and Yates. The last batch stays the last: it may have fewer texts. */
    const int64_t full = count / size;
    for (int64_t b = 0; b < batches; b++)
        turns[b] = b;
    for (int64_t b = full - 1; b > 0; b--) {
        const int64_t other = (int64_t)(random_bits(stream, (uint64_t)(count + b)) % (uint64_t)(b + 1));
        const int64_t kept = turns[b];
        turns[b] = turns[other];
        turns[other] = kept;
    }
    int64_t at = 0;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t i = turns[b] * size; i < (turns[b] + 1) * size && i < count; i++)
            order[at++] = places[i].index;
    free(places);
    free(turns);
    return ATTN_OK;
}
