/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn convert: copies arrays from files to one file of another form or type. All
 * inputs are opened and all names are known to differ before anything is
 * converted, and the output appears whole or not at all, as everywhere.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "io/container.h"
#include "io/forms.h"
#include "io/note.h"
#include "io/output.h"
#include "io/stored.h"
#include "options.h"
#include "progress.h"

enum { CONVERT_HELP, CONVERT_VERSION, CONVERT_QUIET, CONVERT_DTYPE, CONVERT_TO, CONVERT_COMPRESS, CONVERT_COUNT };

enum form { FORM_GIVEN, TO_NPY, TO_NPZ, TO_SAFETENSORS };

/* One array on its way. */
struct item {
    const char *input; /* the operand that it comes from */
    char *name;        /* in the output */
    struct array_file file;
    struct array array;
};

struct conversion {
    enum form to; /* of standard output */
    bool has_dtype;
    enum array_dtype dtype;
    struct item *items;
    size_t count, space;
    json_t *metadata; /* of all inputs; NULL if there is none */
    const char *metadata_from;
};

static void print_help(const struct option *options)
{
    printf("Usage: attn convert [NAME=]IN... OUT [OPTION]...\n\n"
           "Copies arrays between .npy, .npz and safetensors files, and changes their type.\n\n");
    options_print(stdout, options, CONVERT_COUNT);
    printf("\n"
           "  IN is FILE.npy, or FILE.npz or FILE.safetensors with all its arrays, or some of\n"
           "  these as FILE:NAME or FILE:PATTERN, * standing for anything; - and -:NAME read\n"
           "  standard input. Arrays keep their names, a .npy file's array has that of the file;\n"
           "  NAME=IN gives another one. OUT is FILE.npz, FILE.safetensors, or for one array\n"
           "  FILE.npy, FILE.npz:NAME or FILE.safetensors:NAME; - writes standard output.\n"
           "  float64 becomes float32, Fortran order C order, and a line says so.\n");
}

/* -------------------------------------------------------------------- inputs -- */

/* Takes the name: frees it on failure. */
static attn_status add_item(struct conversion *c, const char *input, char *name, struct item **item)
{
    if (name != NULL && c->count == c->space) {
        const size_t space = c->space > 0 ? 2 * c->space : 16;
        struct item *items = realloc(c->items, space * sizeof *items);
        if (items != NULL) {
            c->items = items;
            c->space = space;
        }
    }
    if (name == NULL || c->count == c->space) {
        free(name);
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", input);
    }
    *item = &c->items[c->count++];
    **item = (struct item){.input = input, .name = name};
    return ATTN_OK;
}

/* The name of the array of a .npy file: the file's own. */
static char *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    const size_t length = strlen(base);
    return strndup(base, length > 4 && strcmp(base + length - 4, ".npy") == 0 ? length - 4 : length);
}

/* Whether the file may hold several arrays, which have names of their own. */
static attn_status has_names(const char *path, bool *names)
{
    *names = file_spec_is_container(path);
    if (strcmp(path, "-") != 0)
        return ATTN_OK;
    struct file_bytes *bytes;
    CHECK(file_bytes_open(&bytes, path));
    *names = form_of_bytes(bytes->data, bytes->size) != FORM_NPY;
    file_bytes_release(bytes);
    return ATTN_OK;
}

static attn_status keep_metadata(struct conversion *c, const struct container *container, const char *spec)
{
    json_t *metadata = container_metadata(container);
    if (metadata == NULL)
        return ATTN_OK;
    if (c->metadata == NULL) {
        c->metadata = json_object();
        c->metadata_from = spec;
    }
    /* Of two files that give the same key, the first one's value stays. */
    if (c->metadata == NULL || json_object_update_missing(c->metadata, metadata) != 0)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", container->label);
    return ATTN_OK;
}

static attn_status open_several(struct conversion *c, const char *spec, const char *name)
{
    struct array_names names;
    CHECK(array_names_open(&names, spec));
    attn_status status = ATTN_OK;
    if (name[0] != '\0' && names.count > 1)
        status = io_fail(ATTN_INVALID_ARGUMENT, "%s holds %zu arrays; expected one for the name '%s'", spec,
                         names.count, name);
    for (size_t i = 0; status == ATTN_OK && i < names.count; i++) {
        struct item *item;
        status = add_item(c, spec, strdup(name[0] != '\0' ? name : names.names[i]), &item);
        if (status == ATTN_OK)
            status = array_open_member(&item->file, names.container, names.names[i]);
    }
    if (status == ATTN_OK)
        status = keep_metadata(c, names.container, spec);
    array_names_free(&names);
    return status;
}

/*
 * Takes "NAME=" off an operand; *name is empty without it. A name has no slash and is no file with an array, so that
 * ./a=b.npy and w.safetensors:a=b are files.
 */
static attn_status take_name(const char *operand, const char **spec, char **name)
{
    const char *equals = strchr(operand, '=');
    *spec = operand;
    *name = strndup(operand, equals != NULL ? (size_t)(equals - operand) : 0);
    if (*name == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", operand);
    struct file_spec parts = {NULL, NULL};
    bool named = equals != NULL && equals > operand && strchr(*name, '/') == NULL;
    if (named)
        named = file_spec_parse(&parts, *name) == ATTN_OK && parts.name == NULL;
    file_spec_free(&parts);
    if (named)
        *spec = equals + 1;
    else
        (*name)[0] = '\0';
    return ATTN_OK;
}

static attn_status open_input(struct conversion *c, const char *operand)
{
    const char *spec;
    char *name;
    struct file_spec parts;
    bool several = false;
    CHECK(take_name(operand, &spec, &name));
    attn_status status = file_spec_parse(&parts, spec);
    if (status == ATTN_OK)
        status = has_names(parts.path, &several);
    if (status == ATTN_OK && (several || parts.name != NULL)) {
        status = open_several(c, spec, name);
    } else if (status == ATTN_OK && strcmp(spec, "-") == 0 && name[0] == '\0') {
        status = io_fail(ATTN_INVALID_ARGUMENT, "the array of standard input has no name; expected NAME=-");
    } else if (status == ATTN_OK) {
        struct item *item;
        status = add_item(c, spec, name[0] != '\0' ? strdup(name) : name_of_file(parts.path), &item);
        if (status == ATTN_OK)
            status = array_open(&item->file, spec);
    }
    file_spec_free(&parts);
    free(name);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct item *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static attn_status check_names(const struct conversion *c)
{
    const struct item **sorted = calloc(c->count + 1, sizeof *sorted);
    if (sorted == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < c->count; i++)
        sorted[i] = &c->items[i];
    qsort(sorted, c->count, sizeof *sorted, by_name);
    attn_status status = ATTN_OK;
    for (size_t i = 1; status == ATTN_OK && i < c->count; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status =
                io_fail(ATTN_INVALID_ARGUMENT, "%s and %s both give an array '%s'; expected NAME=IN for one of them",
                        sorted[i - 1]->input, sorted[i]->input, sorted[i]->name);
    }
    free(sorted);
    return status;
}

/* -------------------------------------------------------------------- output -- */

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

/* One output for each array, all in the file that OUT names. */
static attn_status declare(struct conversion *c, struct output_set *outputs, const char *out)
{
    struct file_spec parts;
    CHECK(file_spec_parse(&parts, out));
    const bool standard = strcmp(parts.path, "-") == 0;
    const bool several = parts.name == NULL &&
                         (standard ? c->to == TO_NPZ || c->to == TO_SAFETENSORS || (c->to == FORM_GIVEN && c->count > 1)
                                   : file_spec_is_container(parts.path));
    attn_status status = ATTN_OK;
    outputs->standard_npz = c->to == TO_NPZ;
    if (c->to != FORM_GIVEN && !standard)
        status = io_fail(ATTN_INVALID_ARGUMENT, "option --to has no effect on %s, whose name says its form", out);
    else if (c->to == TO_NPY && parts.name != NULL)
        status = io_fail(ATTN_INVALID_ARGUMENT, "--to is 'npy', which has no names; expected - instead of %s", out);
    else if (!several && c->count != 1)
        status = io_fail(ATTN_INVALID_ARGUMENT,
                         "%s holds one array, but there are %zu; expected FILE.npz or FILE.safetensors", out, c->count);
    for (size_t i = 0; status == ATTN_OK && i < c->count; i++) {
        char *spec = NULL;
        if (several && asprintf(&spec, "%s:%s", parts.path, c->items[i].name) < 0) {
            spec = NULL; /* of which asprintf() does not say what it leaves there */
            status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
        }
        if (status == ATTN_OK)
            status = output_add(outputs, "the output", several ? spec : out, &c->items[i].array);
        free(spec);
    }
    const bool keeps =
        standard ? (several || parts.name != NULL) && c->to != TO_NPZ : ends_with(parts.path, ".safetensors");
    if (status == ATTN_OK && c->metadata != NULL && keeps)
        outputs->metadata = c->metadata;
    else if (status == ATTN_OK && c->metadata != NULL)
        io_note("%s: its metadata is left out; only safetensors files hold any", c->metadata_from);
    file_spec_free(&parts);
    return status;
}

static bool is_float(enum array_dtype dtype)
{
    return dtype == ARRAY_F32 || dtype == ARRAY_F16 || dtype == ARRAY_BF16;
}

static attn_status load(const struct conversion *c, struct item *item)
{
    CHECK(array_take(&item->array, &item->file));
    if (!c->has_dtype || item->array.is.dtype == c->dtype || !is_float(item->array.is.dtype))
        return ATTN_OK;
    struct array wide = item->array;
    item->array = (struct array){.size = 0};
    attn_status status = stored_as_dtype(&item->array, &wide, c->dtype, item->file.spec);
    array_free(&wide);
    return status;
}

static void add_written(void *progress, size_t bytes)
{
    progress_add(progress, (int64_t)bytes);
}

/* How much deflated arrays will have is not known. */
static attn_status write_all(const struct conversion *c, struct output_set *outputs)
{
    struct progress progress;
    int64_t bytes = 0;
    for (size_t i = 0; i < c->count && !outputs->compressed; i++)
        bytes += (int64_t)c->items[i].array.size;
    outputs->written = add_written;
    outputs->user = &progress;
    progress_start(&progress, bytes, "B", command_is_quiet());
    const attn_status status = output_write(outputs);
    progress_finish(&progress);
    return status;
}

static attn_status convert(struct conversion *c, const struct operands *operands, bool compressed)
{
    struct output_set outputs = {.compressed = compressed};
    const char *out = operands->values[operands->count - 1];
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < operands->count - 1; i++)
        status = open_input(c, operands->values[i]);
    if (status == ATTN_OK)
        status = check_names(c);
    if (status == ATTN_OK)
        status = declare(c, &outputs, out);
    for (size_t i = 0; status == ATTN_OK && i < c->count; i++)
        status = output_spare_input(&outputs, "the conversion", c->items[i].input);
    for (size_t i = 0; status == ATTN_OK && i < c->count; i++)
        status = load(c, &c->items[i]);
    if (status == ATTN_OK)
        status = write_all(c, &outputs);
    output_free(&outputs);
    return status;
}

attn_status command_convert(int argc, char *const *argv)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16"}, *const forms[] = {"npy", "npz", "safetensors"};
    static const enum array_dtype values[] = {ARRAY_F32, ARRAY_BF16, ARRAY_F16};
    struct option options[CONVERT_COUNT] = {
        [CONVERT_HELP] = OPTION_ROW_HELP,
        [CONVERT_VERSION] = OPTION_ROW_VERSION,
        [CONVERT_QUIET] = OPTION_ROW_QUIET,
        [CONVERT_DTYPE] = {"dtype", 0, "NAME", "f32, bf16 or f16, of arrays of floats; default: as they are", NULL},
        [CONVERT_TO] = {"to", 0, "NAME",
                        "npy, npz or safetensors, of standard output; without it npy\n"
                        "for one array, safetensors for several",
                        NULL},
        [CONVERT_COMPRESS] = {"compress", 0, NULL, "deflate the arrays of a .npz file", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, CONVERT_COUNT, argc, argv, &operands, MOST_OPERANDS));
    if (options[CONVERT_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[CONVERT_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[CONVERT_QUIET]);
    struct conversion c = {.count = 0};
    int dtype = 0, form = 0;
    CHECK(option_choice(&options[CONVERT_DTYPE], dtypes, 3, &dtype));
    CHECK(option_choice(&options[CONVERT_TO], forms, 3, &form));
    c.has_dtype = options[CONVERT_DTYPE].value != NULL;
    c.dtype = values[dtype];
    c.to = options[CONVERT_TO].value != NULL ? (enum form)(form + TO_NPY) : FORM_GIVEN;
    if (operands.count < 2)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s; expected [NAME=]IN... OUT",
                       operands.count == 0 ? "there is nothing to convert" : "the output is missing");
    const char *out = operands.values[operands.count - 1];
    if (options[CONVERT_COMPRESS].value != NULL && c.to != TO_NPZ && strstr(out, ".npz") == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "option --compress has no effect on %s; expected FILE.npz", out);
    attn_status status = convert(&c, &operands, options[CONVERT_COMPRESS].value != NULL);
    for (size_t i = 0; i < c.count; i++) {
        array_close(&c.items[i].file);
        array_free(&c.items[i].array);
        free(c.items[i].name);
    }
    free(c.items);
    json_decref(c.metadata);
    return status;
}
