/* SPDX-License-Identifier: Apache-2.0 */
/* attn embed, rerank and generate of a build without the libraries that they are made of. */
#include "commands.h"

static attn_status refuse(const char *command)
{
    return io_fail(ATTN_UNSUPPORTED,
                   "attn %s is not in this build, which is without libattn_nn or libattn_text; expected one with "
                   "-Dnn=true and -Dtext=true",
                   command);
}

attn_status command_embed(int argc, char *const *argv)
{
    (void)argc, (void)argv;
    return refuse("embed");
}

attn_status command_rerank(int argc, char *const *argv)
{
    (void)argc, (void)argv;
    return refuse("rerank");
}

attn_status command_generate(int argc, char *const *argv)
{
    (void)argc, (void)argv;
    return refuse("generate");
}
