/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values in 8 or 4 bits, as a cache would keep them, so that attn run shows what that does to a result.
 */
#ifndef ATTN_TOOLS_ROUNDED_H
#define ATTN_TOOLS_ROUNDED_H

#include <attn/attn.h>

#include "io/array.h"
#include "options.h"

struct rounded {
    int kind;                         /* of the names of --kv-type; 0: as given */
    struct array bytes[2], scales[2]; /* of k and v */
    attn_tensor rows[2], scale_views[2];
};

attn_status rounded_parse(struct rounded *rounded, const struct option *option);
/* Rounds *k and *v, if that is asked for, and has them, and the scales of params, point to what has become of them. */
attn_status rounded_apply(struct rounded *rounded, attn_tensor *k, attn_tensor *v, attn_params *params);
void rounded_free(struct rounded *rounded);

#endif
