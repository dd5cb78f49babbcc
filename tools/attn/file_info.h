/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a file of arrays, without its data.
 */
#ifndef ATTN_TOOLS_FILE_INFO_H
#define ATTN_TOOLS_FILE_INFO_H

#include <jansson.h>

#include "io/error.h"

/* *info is an object with the fields that docs/arrays.md lists, the caller's. */
attn_status file_describe(json_t **info, const char *path);

#endif
