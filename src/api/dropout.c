/* SPDX-License-Identifier: Apache-2.0 */
/* The decision of dropout, one weight at a time, as the kernels take it. */
#include "attn/attn.h"
#include "kernels/philox.h"

int attn_dropout_keeps(const attn_dropout *dropout, int64_t batch, int64_t head, int64_t query, int64_t key)
{
    if (!dropout)
        return 1;
    const uint64_t at = (uint64_t)key;
    const uint32_t counter[4] = {(uint32_t)(at / 4), (uint32_t)query, (uint32_t)head, (uint32_t)batch};
    uint32_t from[2], word[4];
    attn_dropout_key(dropout->seed, dropout->offset, from);
    attn_philox(counter, from, word);
    return word[at % 4] >= attn_dropout_threshold(dropout->p);
}
