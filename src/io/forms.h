/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which form a file has, by its first bytes; and files of other programs, whose
 * sentences say what to do with them instead.
 */
#ifndef ATTN_IO_FORMS_H
#define ATTN_IO_FORMS_H

#include <stddef.h>

#include "io/error.h"

/* So many first bytes are enough; of a shorter file all. */
#define FORMS_PREFIX ((size_t)64)

enum file_form { FORM_UNKNOWN, FORM_NPY, FORM_ZIP, FORM_SAFETENSORS, FORM_FOREIGN };

/* A safetensors file has no mark of its own: it is known by the '{' behind a length that the format allows. */
enum file_form form_of_bytes(const unsigned char *bytes, size_t size);

/*
 * Fails with what to do if the file, whose bytes are given as a whole, is one of another program: a shard index,
 * PyTorch's pickles, GGUF, ONNX, HDF5, compressed files. ATTN_OK for any other.
 */
attn_status form_refuse_foreign(const unsigned char *bytes, size_t size, const char *path);

#endif
