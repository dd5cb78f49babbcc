/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the place of kinds_nn.c where libattn_nn is not built: its kinds are
 * refused before any file is read.
 */
#include "kinds.h"

attn_status kinds_built(enum kind kind)
{
    if (kind != KIND_ADDITIVE && kind != KIND_LINFORMER)
        return ATTN_OK;
    return io_fail(ATTN_UNSUPPORTED,
                   "--kind %s is part of libattn_nn, without which this program was built; expected softmax, linear, "
                   "gated, delta, gated-delta or performer",
                   kind_names[kind]);
}

attn_status kinds_additive(const struct kinds *k, const struct inputs *in, const attn_tensor *out,
                           const attn_params *params)
{
    (void)in, (void)out, (void)params;
    return kinds_built(k->kind);
}

attn_status kinds_linformer(const struct kinds *k, const struct inputs *in, const attn_tensor *out,
                            const attn_params *params)
{
    (void)in, (void)out, (void)params;
    return kinds_built(k->kind);
}
