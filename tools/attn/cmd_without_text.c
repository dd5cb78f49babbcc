/* SPDX-License-Identifier: Apache-2.0 */
/* attn tokenize of a build without libattn_text. */
#include "commands.h"

attn_status command_tokenize(int argc, char *const *argv)
{
    (void)argc, (void)argv;
    return io_fail(ATTN_UNSUPPORTED,
                   "attn tokenize is not in this build, which is without libattn_text; expected one with -Dtext=true");
}
