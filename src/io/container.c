/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the two forms a container has is known by its first bytes, not by its
 * name. What is neither is taken for what its name says, so that the sentence is
 * that of the form which was meant.
 */
#include "io/container.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/forms.h"

static bool named_npz(const char *path)
{
    size_t length = strlen(path);
    return length >= 4 && strcmp(path + length - 4, ".npz") == 0;
}

static attn_status open_safetensors(struct container *c, const struct file_bytes *bytes)
{
    unsigned char prefix[SAFETENSORS_PREFIX] = {0};
    size_t length, some = bytes->size < sizeof prefix ? bytes->size : sizeof prefix;
    if (some > 0)
        memcpy(prefix, bytes->data, some);
    CHECK(safetensors_header_length(&length, prefix, bytes->size, c->label));
    const size_t data = SAFETENSORS_PREFIX + length;
    c->data = bytes->data + data;
    return safetensors_parse(&c->index, (const char *)bytes->data + SAFETENSORS_PREFIX, length, bytes->size - data,
                             c->label);
}

attn_status container_open(struct container **out, struct file_bytes *bytes, const char *path)
{
    *out = NULL;
    struct container *c = calloc(1, sizeof *c);
    char *label = strdup(file_bytes_label(path));
    if (c == NULL || label == NULL) {
        free(c);
        free(label);
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    *c = (struct container){.users = 1, .label = label, .bytes = file_bytes_share(bytes)};
    const enum file_form form = form_of_bytes(bytes->data, bytes->size);
    attn_status status = form == FORM_ZIP || (form == FORM_UNKNOWN && named_npz(path))
                             ? npz_open(&c->npz, bytes->data, bytes->size, c->label)
                             : open_safetensors(c, bytes);
    if (status != ATTN_OK)
        container_release(c);
    else
        *out = c;
    return status;
}

struct container *container_share(struct container *c)
{
    c->users++;
    return c;
}

void container_release(struct container *c)
{
    if (c == NULL || --c->users > 0)
        return;
    npz_close(c->npz);
    if (c->index.root != NULL)
        safetensors_free(&c->index);
    file_bytes_release(c->bytes);
    free(c->label);
    free(c);
}

struct json_t *container_metadata(const struct container *c)
{
    return c->npz != NULL ? NULL : safetensors_metadata(&c->index);
}

static attn_status add_name(const struct container *c, char **names, size_t *count, char *name)
{
    if (name == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", c->label);
    names[(*count)++] = name;
    return ATTN_OK;
}

attn_status container_names(struct container *c, char ***names, size_t *count)
{
    const size_t most = c->npz != NULL ? npz_count(c->npz) : c->index.count;
    attn_status status = ATTN_OK;
    *count = 0;
    *names = calloc(most + 1, sizeof **names);
    if (*names == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", c->label);
    for (size_t i = 0; status == ATTN_OK && i < most; i++) {
        char *name = NULL;
        if (c->npz != NULL)
            status = npz_name(c->npz, i, &name);
        if (status == ATTN_OK && (c->npz == NULL || name != NULL))
            status = add_name(c, *names, count, c->npz != NULL ? name : strdup(c->index.entries[i].name));
    }
    if (status != ATTN_OK) {
        for (size_t i = 0; i < *count; i++)
            free((*names)[i]);
        free(*names);
        *names = NULL;
        *count = 0;
    }
    return status;
}

attn_status container_only(struct container *c, const char *spec, char **name)
{
    char **names, some[512] = "";
    size_t count, used = 0, shown = 0;
    *name = NULL;
    CHECK(container_names(c, &names, &count));
    attn_status status = ATTN_OK;
    for (; count > 1 && shown < count && shown < 6 && used + strlen(names[shown]) + 8 < sizeof some; shown++)
        used += (size_t)snprintf(some + used, sizeof some - used, "%s'%s'", shown > 0 ? ", " : "", names[shown]);
    if (count == 0)
        status = io_fail(ATTN_INVALID_FILE, "%s holds no arrays", c->label);
    else if (count > 1)
        status = io_fail(ATTN_INVALID_ARGUMENT, "%s names no array; expected %s:NAME, one of %zu: %s%s", c->label, spec,
                         count, some, shown < count ? ", ..." : "");
    else
        *name = names[0];
    for (size_t i = *name != NULL ? 1 : 0; i < count; i++)
        free(names[i]);
    free(names);
    return status;
}

attn_status container_find(struct container *c, const char *name, struct container_entry *entry)
{
    *entry = (struct container_entry){.data = NULL};
    if (c->npz != NULL) {
        CHECK(npz_find(c->npz, name, &entry->member, &entry->header));
        entry->is = entry->header.is;
        entry->stored = entry->header.stored;
        return ATTN_OK;
    }
    const struct safetensors_entry *found;
    CHECK(safetensors_find(&c->index, name, c->label, &found));
    CHECK(safetensors_usable(found, c->label, &entry->is, &entry->stored));
    entry->data = c->data + found->begin;
    return ATTN_OK;
}

attn_status container_unpack(struct container *c, const struct container_entry *entry, void *dst)
{
    return npz_read(c->npz, entry->member, &entry->header, dst);
}
