/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library is, what it found on this machine, and what it would use.
 */
#ifndef ATTN_TOOLS_MACHINE_H
#define ATTN_TOOLS_MACHINE_H

#include <jansson.h>

/* An object with the fields that docs/arrays.md lists; NULL when memory is short. */
json_t *machine_describe(void);

#endif
