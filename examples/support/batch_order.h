/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the samples of an epoch. */
#ifndef ATTN_EXAMPLES_BATCH_ORDER_H
#define ATTN_EXAMPLES_BATCH_ORDER_H

#include "io/error.h"
#include "random.h"

/*
 * Puts samples, of lengths[count], in an order for batches of size: neighbours
 * in length share one, which saves padding, and chance decides between equals
 * and on the order of the batches. Every order[count] of a stream is another one.
 */
attn_status batch_order(const int64_t *lengths, int64_t count, int64_t size, struct stream stream, int64_t *order);

#endif
