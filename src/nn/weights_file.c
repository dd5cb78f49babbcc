/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights from a safetensors file.
 *
 * The file is mapped, so that opening a model costs its header, and the layers
 * that pack their weights read each page once, straight from the page cache.
 * io/safetensors.c judges the header before any of it is believed. The format
 * puts tensors behind each other without holes, but does not align them: after
 * a header of odd length, or bytes before halves, elements lie where C may not
 * read them. Such tensors are copied to aligned memory once, when the file is
 * opened, so that every view can be used like any other.
 */
#include "nn/weights_set.h"

#include "nn/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/** Maps the file that the label stands for. */
static attn_status map_file(struct attn_weights *weights, const char *path)
{
    struct stat info;
    attn_status status = ATTN_OK;
    /* Without O_NONBLOCK opening a FIFO would wait for a writer before it can be refused. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", weights->label, strerror(errno));
    if (fstat(fd, &info) != 0)
        status = io_fail(ATTN_INVALID_FILE, "%s: cannot look at the file: %s", weights->label, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = io_fail(ATTN_INVALID_FILE, "%s is not a regular file", weights->label);
    else if (info.st_size < SAFETENSORS_PREFIX) {
        const unsigned char none[SAFETENSORS_PREFIX] = {0};
        size_t length;
        status = safetensors_header_length(&length, none, (uint64_t)info.st_size, weights->label);
    }
    if (status == ATTN_OK) {
        weights->map_size = (size_t)info.st_size;
        weights->map = mmap(NULL, weights->map_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (weights->map == MAP_FAILED) {
            weights->map = NULL;
            status = io_fail(ATTN_INVALID_FILE, "%s: cannot map the file: %s", weights->label, strerror(errno));
        }
    }
    close(fd);
    return status;
}

/** Whether a type of the file is one that layers read. */
static int find_dtype(const char *type, attn_dtype *dtype)
{
    if (strcmp(type, "F32") == 0)
        *dtype = ATTN_F32;
    else if (strcmp(type, "BF16") == 0)
        *dtype = ATTN_BF16;
    else if (strcmp(type, "F16") == 0)
        *dtype = ATTN_F16;
    else
        return 0;
    return 1;
}

/** Copies readable tensors whose elements do not lie on multiples of their size. */
static attn_status align_entries(struct attn_weights *weights)
{
    /* The first pass measures. The sum cannot overflow: the tensors are apart and in the file. */
    for (int pass = 0; pass < 2; pass++) {
        size_t used = 0;
        for (int64_t i = 0; i < weights->count; i++) {
            const struct safetensors_entry *in_file = &weights->index.entries[i];
            attn_tensor *view = &weights->entries[i].view;
            const size_t bytes = (size_t)(in_file->end - in_file->begin);
            if (!weights->entries[i].readable || (uintptr_t)view->data % attn_dtype_size(view->dtype) == 0)
                continue;
            if (pass == 1)
                view->data = memcpy((char *)weights->aligned + used, view->data, bytes);
            /* Also without elements a place of its own. */
            used += bytes / 4 * 4 + 4;
        }
        if (pass == 0 && used > 0 && !(weights->aligned = malloc(used)))
            return attn_fail(ATTN_OUT_OF_MEMORY, "%zu bytes to align tensors in could not be allocated", used);
    }
    return ATTN_OK;
}

static attn_status read_entries(struct attn_weights *weights, char *data)
{
    weights->count = (int64_t)weights->index.count;
    weights->entries = calloc(weights->index.count + 1, sizeof *weights->entries);
    if (!weights->entries)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of %" PRId64 " tensors could not be allocated", weights->count);
    for (int64_t i = 0; i < weights->count; i++) {
        const struct safetensors_entry *from = &weights->index.entries[i];
        struct weights_entry *to = &weights->entries[i];
        to->name = from->name;
        to->type = from->dtype;
        to->ndim = from->ndim;
        memcpy(to->shape, from->shape, sizeof to->shape);
        to->view = attn_matrix(data + from->begin, from->ndim == 2 ? from->shape[0] : 1,
                               from->ndim ? from->shape[from->ndim < 2 ? 0 : 1] : 1);
        to->readable = find_dtype(from->dtype, &to->view.dtype);
    }
    return align_entries(weights);
}

attn_status nn_weights_read(struct attn_weights *weights, const char *path)
{
    size_t length;
    CHECK(map_file(weights, path));
    CHECK(safetensors_header_length(&length, (const unsigned char *)weights->map, weights->map_size, weights->label));
    char *header = weights->map + SAFETENSORS_PREFIX, *data = header + length;
    CHECK(safetensors_parse(&weights->index, header, length, weights->map_size - SAFETENSORS_PREFIX - length,
                            weights->label));
    return read_entries(weights, data);
}
