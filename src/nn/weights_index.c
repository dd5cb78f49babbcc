/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of a model in several safetensors files, as an index names them.
 *
 * Each file becomes a set of its own, checked like any other. The set of the
 * index has copies of their entries, whose names and views stay where they are.
 */
#include "nn/weights_set.h"

#include "io/config.h"
#include "nn/check.h"

#include <stdlib.h>

int nn_weights_is_index(const char *path)
{
    static const char end[] = ".json";
    const size_t length = strlen(path);
    return length >= sizeof end - 1 && strcmp(path + length - (sizeof end - 1), end) == 0;
}

/** A file beside the index. What it names is a file's own name: no index reaches out of its folder. */
static attn_status open_shard(struct attn_weights **shard, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    if (!*name || strchr(name, '/'))
        return io_fail(ATTN_INVALID_FILE, "%s: 'weight_map' names the file '%s'; expected one in the index's folder",
                       path, name);
    char *full = malloc(folder + strlen(name) + 1);
    if (!full)
        return attn_fail(ATTN_OUT_OF_MEMORY, "the name of a file could not be allocated");
    memcpy(full, path, folder);
    strcpy(full + folder, name);
    const attn_status status =
        nn_weights_is_index(name)
            ? io_fail(ATTN_INVALID_FILE, "%s: 'weight_map' names '%s'; expected safetensors files", path, name)
            : attn_weights_open(shard, full);
    free(full);
    return status;
}

/** Opens each file once; files of one name are found by it, as there are a few hundred at most. */
static attn_status open_shards(struct attn_weights *weights, json_t *map, const char *path)
{
    const char *tensor;
    json_t *file;
    const char **names = calloc(json_object_size(map) + 1, sizeof *names);
    weights->shards = calloc(json_object_size(map) + 1, sizeof(struct attn_weights *));
    attn_status status =
        names && weights->shards ? ATTN_OK : attn_fail(ATTN_OUT_OF_MEMORY, "a list of files could not be allocated");
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        size_t i = 0;
        if (status)
            break;
        if (!name) {
            status = io_fail(ATTN_INVALID_FILE, "%s: 'weight_map' has no file for '%s'; expected the name of one", path,
                             tensor);
            break;
        }
        while (i < weights->num_shards && strcmp(names[i], name) != 0)
            i++;
        if (i == weights->num_shards)
            status = open_shard(&weights->shards[i], path, name);
        if (!status && i == weights->num_shards)
            names[weights->num_shards++] = name;
        if (!status && !attn_weights_has(weights->shards[i], tensor))
            status = io_fail(ATTN_INVALID_FILE, "%s has no tensor '%s'; expected it there, as %s says",
                             weights->shards[i]->label, tensor, path);
    }
    free(names);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct weights_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/** That no two files have a tensor of one name. */
static attn_status check_names(const struct attn_weights *weights)
{
    const struct weights_entry **sorted = calloc((size_t)weights->count + 1, sizeof *sorted);
    attn_status status = ATTN_OK;
    if (!sorted)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of tensors could not be allocated");
    for (int64_t i = 0; i < weights->count; i++)
        sorted[i] = &weights->entries[i];
    qsort(sorted, (size_t)weights->count, sizeof(void *), by_name);
    for (int64_t i = 1; i < weights->count && !status; i++)
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) == 0)
            status = io_fail(ATTN_INVALID_FILE, "tensor '%s' is in %s and in %s; expected it in one of them",
                             sorted[i]->name, sorted[i - 1]->label, sorted[i]->label);
    free(sorted);
    return status;
}

static attn_status join_shards(struct attn_weights *weights)
{
    for (size_t s = 0; s < weights->num_shards; s++)
        weights->count += weights->shards[s]->count;
    weights->entries = calloc((size_t)weights->count + 1, sizeof *weights->entries);
    if (!weights->entries)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of tensors could not be allocated");
    struct weights_entry *to = weights->entries;
    for (size_t s = 0; s < weights->num_shards; s++)
        for (int64_t i = 0; i < weights->shards[s]->count; i++) {
            *to = weights->shards[s]->entries[i];
            to++->label = weights->shards[s]->label;
        }
    return check_names(weights);
}

attn_status nn_weights_read_index(struct attn_weights *weights, const char *path)
{
    struct config config;
    CHECK(config_open_file(&config, path));
    json_t *map = json_object_get(config.root, "weight_map");
    attn_status status =
        json_object_size(map) > 0
            ? open_shards(weights, map, path)
            : io_fail(ATTN_INVALID_FILE, "%s: 'weight_map' is %s; expected an object with the file of each tensor",
                      path, map ? "empty or something else" : "missing");
    if (!status)
        status = join_shards(weights);
    config_close(&config);
    return status;
}
