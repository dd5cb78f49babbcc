/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a set of named weights is made of, for the file that reads files and the
 * one that looks names up.
 */
#ifndef ATTN_NN_WEIGHTS_SET_H
#define ATTN_NN_WEIGHTS_SET_H

#include "attn/nn/weights.h"
#include "io/safetensors.h"

struct weights_entry {
    const char *name, *type;       /* of the index, or in attn_weights.names */
    size_t ndim;                   /* 4 for more than a matrix in memory */
    int64_t shape[ARRAY_MAX_DIMS]; /* the first lengths */
    int readable;                  /* the type is one that layers take */
    int either;                    /* a single row of the caller's may be meant as a matrix or a vector */
    attn_tensor view;              /* when readable and a vector or matrix */
    const char *label;             /* of the file that it is in; NULL: that of the set */
};

/* Room for a path in sentences, of which attn_fail() keeps 511 bytes: a longer one loses its head. */
#define WEIGHTS_LABEL 160

struct attn_weights {
    char label[WEIGHTS_LABEL];
    int64_t count;
    struct weights_entry *entries;
    struct safetensors index;     /* of a file: names and types */
    struct attn_weights **shards; /* of an index: the sets of its files, which have the data and the names */
    size_t num_shards;
    char *names; /* of a set in memory: behind each other */
    char *map;   /* the file */
    size_t map_size;
    void *aligned; /* copies of what the file has at odd places */
    int64_t num_ignored;
    char **ignored; /* patterns of attn_weights_ignore() */
};

/** The number of the tensor of that name, or -1. */
int64_t nn_weights_find(const attn_weights *weights, const char *name);
/** Whether a pattern, in which each '*' stands for any characters, stands for all of name. */
int nn_weights_match(const char *pattern, const char *name);
/** Whether attn_weights_ignore() was given a pattern that stands for name. */
int nn_weights_ignored(const attn_weights *weights, const char *name);

/** Fills a set from the file that its label stands for. On an error the set is to be destroyed. */
attn_status nn_weights_read(struct attn_weights *weights, const char *path);

/** Whether a path is that of an index of several files: it ends in ".json". */
int nn_weights_is_index(const char *path);
/** Fills a set from the files that an index names. On an error the set is to be destroyed. */
attn_status nn_weights_read_index(struct attn_weights *weights, const char *path);

#endif
