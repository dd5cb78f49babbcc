/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in huge pages. */
#include "cpu/large.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)64)
#define HUGE_PAGE ((size_t)2 << 20)

void *attn_alloc_large(size_t bytes)
{
    const size_t wanted = bytes > 0 ? bytes : 1, huge = wanted / HUGE_PAGE * HUGE_PAGE;
    const size_t unit = huge ? HUGE_PAGE : ALIGNMENT;
    void *memory = wanted <= SIZE_MAX - unit ? aligned_alloc(unit, (wanted + unit - 1) / unit * unit) : NULL;
#ifdef MADV_HUGEPAGE
    /* Without the last part of a page, which costs no more memory than it has bytes. A refusal does no harm. */
    if (memory && huge)
        madvise(memory, huge, MADV_HUGEPAGE);
#endif
    return memory;
}
