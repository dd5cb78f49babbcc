/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recognises files by their first bytes, and by their names where bytes say
 * nothing: ONNX has no mark, and an index of shards is JSON like any other.
 */
#include "io/forms.h"

#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "io/safetensors.h"

/* An index of a model's shards is far smaller. */
#define MOST_INDEX ((size_t)100000000)

static const struct {
    const char *mark;
    size_t length;
    const char *is, *advice;
} foreign[] = {
    {"GGUF", 4, "a GGUF file", "its weights are llama.cpp's; expected the model's safetensors files"},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file", "save the arrays with numpy's save or savez, or as safetensors"},
    {"\x80\x02\x8a\x0a", 4, "a pickle of PyTorch",
     "it is code and is not run; save the tensors in Python with safetensors.torch.save_file"},
    {"\x80\x02", 2, "a pickle of Python's", "it is code and is not run; save the arrays with numpy's save or savez"},
    {"\x80\x03", 2, "a pickle of Python's", "it is code and is not run; save the arrays with numpy's save or savez"},
    {"\x80\x04", 2, "a pickle of Python's", "it is code and is not run; save the arrays with numpy's save or savez"},
    {"\x80\x05", 2, "a pickle of Python's", "it is code and is not run; save the arrays with numpy's save or savez"},
    {"\x1f\x8b", 2, "compressed with gzip", "give what gunzip makes of it, or pipe it: gunzip -c FILE | attn ... -"},
    {"\x28\xb5\x2f\xfd", 4, "compressed with zstd",
     "give what unzstd makes of it, or pipe it: unzstd -c FILE | attn ... -"},
    {"\xfd"
     "7zXZ",
     5, "compressed with xz", "give what unxz makes of it, or pipe it: unxz -c FILE | attn ... -"},
};

static const size_t num_foreign = sizeof foreign / sizeof foreign[0];

static bool begins(const unsigned char *bytes, size_t size, const char *mark, size_t length)
{
    return size >= length && memcmp(bytes, mark, length) == 0;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

/* A safetensors file may begin with any of the short marks, as these are lengths, too. */
static bool is_safetensors(const unsigned char *bytes, size_t size)
{
    uint64_t length = 0;
    if (size <= SAFETENSORS_PREFIX || bytes[SAFETENSORS_PREFIX] != '{')
        return false;
    for (int i = 0; i < SAFETENSORS_PREFIX; i++)
        length |= (uint64_t)bytes[i] << (8 * i);
    return length >= 2 && length <= SAFETENSORS_MAX_HEADER;
}

enum file_form form_of_bytes(const unsigned char *bytes, size_t size)
{
    if (begins(bytes, size, "\x93NUMPY", 6))
        return FORM_NPY;
    if (begins(bytes, size, "PK\3\4", 4) || begins(bytes, size, "PK\5\6", 4))
        return FORM_ZIP;
    if (is_safetensors(bytes, size))
        return FORM_SAFETENSORS;
    for (size_t i = 0; i < num_foreign; i++) {
        if (begins(bytes, size, foreign[i].mark, foreign[i].length))
            return FORM_FOREIGN;
    }
    return FORM_UNKNOWN;
}

/* The first of the shards that a Transformers index names, and how many there are. */
static attn_status refuse_index(const unsigned char *bytes, size_t size, const char *path)
{
    json_t *root = json_loadb((const char *)bytes, size, 0, NULL), *shards = json_object();
    const char *name, *first = NULL;
    json_t *shard;
    json_object_foreach(json_object_get(root, "weight_map"), name, shard)
    {
        const char *file = json_string_value(shard);
        if (file == NULL)
            continue;
        json_object_set(shards, file, shard);
        if (first == NULL || strcmp(file, first) < 0)
            first = file;
    }
    attn_status status = ATTN_OK;
    if (first != NULL)
        status =
            io_fail(ATTN_INVALID_FILE,
                    "%s is the index of a model's %zu files and holds no arrays; expected one of these files, such as "
                    "%.*s%s:NAME, or the model's folder where a command takes one",
                    path, json_object_size(shards),
                    strrchr(path, '/') != NULL ? (int)(strrchr(path, '/') - path) + 1 : 0, path, first);
    json_decref(shards);
    json_decref(root);
    return status;
}

attn_status form_refuse_foreign(const unsigned char *bytes, size_t size, const char *path)
{
    enum file_form form = form_of_bytes(bytes, size);
    if (form == FORM_UNKNOWN && ends_with(path, ".onnx"))
        return io_fail(ATTN_INVALID_FILE,
                       "%s is an ONNX model, a graph and not arrays; libattn.onnx, in Python, runs its attention",
                       path);
    if (form == FORM_UNKNOWN && size > 0 && bytes[0] == '{' && size <= MOST_INDEX)
        CHECK(refuse_index(bytes, size, path));
    for (size_t i = 0; form == FORM_FOREIGN && i < num_foreign; i++) {
        if (begins(bytes, size, foreign[i].mark, foreign[i].length))
            return io_fail(ATTN_INVALID_FILE, "%s is %s, which is not read: %s", path, foreign[i].is,
                           foreign[i].advice);
    }
    return ATTN_OK;
}
