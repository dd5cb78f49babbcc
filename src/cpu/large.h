/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of what calls read from end to end: weights, and pools of keys and values.
 */
#ifndef ATTN_LARGE_H
#define ATTN_LARGE_H

#include <stddef.h>

/**
 * So many bytes, aligned to 64; for free(). NULL if there is not as much. From 2 MiB on they lie in huge pages where
 * the system has some to give: what is read once comes faster from there, as the processor's own requests for what is
 * next stop at the end of a page, and others have to find the page first (docs/performance.md, docs/layers.md).
 */
void *attn_alloc_large(size_t bytes);

#endif
