/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that holds several arrays under names, safetensors or .npz alike.
 */
#ifndef ATTN_IO_CONTAINER_H
#define ATTN_IO_CONTAINER_H

#include "io/array.h"
#include "io/npz.h"
#include "io/safetensors.h"

struct container {
    int users;
    char *label; /* the file, for sentences */
    struct file_bytes *bytes;
    struct npz *npz;
    struct safetensors index;
    const unsigned char *data; /* of a safetensors file: where its data begins */
};

struct container_entry {
    struct array_shape is;
    struct array_storage stored;
    const unsigned char *data; /* NULL in an archive, from which it is unpacked */
    size_t member;
    struct npy_header header; /* of a member of an archive */
};

/* path is "-" for standard input. Whoever opens or shares releases. */
attn_status container_open(struct container **c, struct file_bytes *bytes, const char *path);
struct container *container_share(struct container *c);
/* NULL is allowed. */
void container_release(struct container *c);

/* The arrays' names, count of them, in the order of the file, in memory that the caller frees. */
attn_status container_names(struct container *c, char ***names, size_t *count);
/* The name of the only array; a usage sentence with the names if there are others. spec is what the user gave. */
attn_status container_only(struct container *c, const char *spec, char **name);
attn_status container_find(struct container *c, const char *name, struct container_entry *entry);
/* The __metadata__ of a safetensors file, which is the container's; NULL if there is none. */
struct json_t *container_metadata(const struct container *c);
/* Unpacks all data of an entry of an archive. */
attn_status container_unpack(struct container *c, const struct container_entry *entry, void *dst);

#endif
