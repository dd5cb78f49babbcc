/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn info: what the library is, what it found, and what it would use; or of
 * files, which arrays they hold. As lines for people or as one JSON document; the
 * lines are made from what the document holds, so that neither says more.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "file_info.h"
#include "machine.h"
#include "options.h"

enum { INFO_HELP, INFO_VERSION, INFO_QUIET, INFO_JSON, INFO_COUNT };

/* ----------------------------------------------------------------- machine -- */

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static json_int_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void print_libraries(const char *title, const json_t *paths)
{
    if (!json_is_array(paths))
        printf("%-22s unknown: /proc/self/maps cannot be read\n", title);
    else if (json_array_size(paths) == 0)
        printf("%-22s none loaded\n", title);
    for (size_t i = 0; i < json_array_size(paths); i++)
        printf("%-22s %s\n", i == 0 ? title : "", json_string_value(json_array_get(paths, i)));
}

static void print_instruction_sets(const json_t *machine)
{
    const json_t *sets = json_object_get(machine, "instruction_sets");
    const json_t *pairs = json_object_get(machine, "bf16_dot_products");
    printf("%-22s", "instruction sets");
    for (size_t i = 0; i < json_array_size(sets); i++)
        printf(" %s", json_string_value(json_array_get(sets, i)));
    printf("\n%-22s", "bf16 dot products");
    if (text_of(pairs, "found") == NULL)
        printf(" not found: bf16 is widened\n");
    else
        printf(" found (%s)%s\n", text_of(pairs, "found"),
               json_is_true(json_object_get(pairs, "used")) ? "" : ", but not used: bf16 is widened");
    printf("%-22s %s", "chosen", text_of(machine, "chosen"));
    const char *cap = text_of(json_object_get(machine, "environment"), "ATTN_MAX_CPU_ISA");
    if (cap != NULL)
        printf(" (ATTN_MAX_CPU_ISA=%s)", cap);
    printf("\n");
}

static void print_kernels(const json_t *kernels)
{
    static const char *const rows[][2] = {{"f32", "f32 kernels"},
                                          {"bf16", "bf16 kernels"},
                                          {"f16", "f16 kernels"},
                                          {"int8_scores", "int8 scores"},
                                          {"int8_scores_bf16", "int8 scores, bf16"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const json_t *kernel = json_object_get(kernels, rows[i][0]);
        const char *plan = text_of(kernel, "plan");
        printf("%-22s %s%s\n", rows[i][1],
               plan != NULL ? "" : "none: ", plan != NULL ? plan : text_of(kernel, "refused"));
    }
}

static void print_caches(const json_t *caches)
{
    for (size_t i = 0; i < json_array_size(caches); i++) {
        char title[48];
        const json_int_t size = json_integer_value(json_array_get(caches, i));
        snprintf(title, sizeof title, "L%zu data cache", i + 1);
        if (size > 0)
            printf("%-22s %" JSON_INTEGER_FORMAT " KiB\n", title, size / 1024);
        else
            printf("%-22s unknown\n", title);
    }
}

static void print_environment(json_t *settings)
{
    const char *title = "environment", *name;
    json_t *value;
    json_object_foreach(settings, name, value)
    {
        printf("%-22s %s=%s\n", title, name, json_string_value(value));
        title = "";
    }
    if (title[0] != '\0')
        printf("%-22s nothing set\n", title);
}

static void print_machine(const json_t *machine)
{
    const char *processor = text_of(machine, "processor");
    const json_t *processors = json_object_get(machine, "processors"), *sleef = json_object_get(machine, "sleef");
    printf("%-22s %s\n", "libattn", text_of(machine, "libattn"));
    printf("%-22s %s\n", "built against", text_of(machine, "built_against"));
    printf("%-22s %s\n", "processor", processor != NULL ? processor : "unknown");
    print_instruction_sets(machine);
    print_kernels(json_object_get(machine, "kernels"));
    print_caches(json_object_get(machine, "data_caches"));
    if (json_is_integer(json_object_get(processors, "usable")))
        printf("%-22s %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT "\n", "processors usable",
               number_of(processors, "usable"), number_of(processors, "online"));
    else
        printf("%-22s %" JSON_INTEGER_FORMAT "\n", "processors online", number_of(processors, "online"));
    printf("%-22s %" JSON_INTEGER_FORMAT "\n", "threads", number_of(machine, "threads"));
    print_environment(json_object_get(machine, "environment"));
    print_libraries("OpenMP runtime", json_object_get(machine, "openmp_runtimes"));
    printf("%-22s %s (headers)\n", "SLEEF", text_of(sleef, "headers"));
    print_libraries("", json_object_get(sleef, "libraries"));
}

static attn_status show_machine(bool as_json)
{
    json_t *machine = machine_describe();
    if (machine == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    const json_t *warnings = json_object_get(machine, "warnings");
    for (size_t i = 0; i < json_array_size(warnings); i++)
        command_note("warning: %s", json_string_value(json_array_get(warnings, i)));
    if (as_json) {
        json_dumpf(machine, stdout, JSON_INDENT(2));
        printf("\n");
    } else {
        print_machine(machine);
    }
    json_decref(machine);
    return ATTN_OK;
}

/* ------------------------------------------------------------------- files -- */

/* Names are a stranger's: what could steer a terminal is not printed. */
static void print_safely(const char *text)
{
    for (; *text != '\0'; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void print_array(const json_t *array, int width)
{
    const char *name = text_of(array, "name");
    const json_t *shape = json_object_get(array, "shape");
    const size_t ndim = json_array_size(shape);
    printf("  ");
    if (name != NULL) {
        print_safely(name);
        printf("%*s  ", strlen(name) < (size_t)width ? width - (int)strlen(name) : 0, "");
    }
    print_safely(text_of(array, "dtype"));
    printf(" (");
    for (size_t i = 0; i < ndim; i++) {
        const json_t *length = json_array_get(shape, i);
        fputs(i > 0 ? ", " : "", stdout);
        if (json_is_integer(length))
            printf("%" JSON_INTEGER_FORMAT, json_integer_value(length));
        else
            printf("...");
    }
    printf("%s), %" JSON_INTEGER_FORMAT " bytes%s%s\n", ndim == 1 ? "," : "", number_of(array, "bytes"),
           json_is_true(json_object_get(array, "fortran_order")) ? ", Fortran order" : "",
           json_is_true(json_object_get(array, "big_endian")) ? ", big-endian" : "");
}

static void print_file(json_t *file)
{
    const json_t *arrays = json_object_get(file, "arrays");
    const size_t count = json_array_size(arrays);
    int width = 0;
    const char *key;
    json_t *value;
    for (size_t i = 0; i < count; i++) {
        const char *name = text_of(json_array_get(arrays, i), "name");
        const size_t length = name != NULL ? strlen(name) : 0;
        width = length < 60 && (int)length > width ? (int)length : width;
    }
    print_safely(text_of(file, "path"));
    printf(": %s, %" JSON_INTEGER_FORMAT " bytes, %zu array%s\n", text_of(file, "form"), number_of(file, "bytes"),
           count, count == 1 ? "" : "s");
    json_object_foreach(json_object_get(file, "metadata"), key, value)
    {
        printf("  metadata ");
        print_safely(key);
        printf(" = ");
        print_safely(json_string_value(value));
        printf("\n");
    }
    for (size_t i = 0; i < count; i++)
        print_array(json_array_get(arrays, i), width);
}

static attn_status show_files(const struct operands *operands, bool as_json)
{
    json_t *files = json_array();
    attn_status status = files != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (int i = 0; status == ATTN_OK && i < operands->count; i++) {
        json_t *file;
        status = file_describe(&file, operands->values[i]);
        if (status == ATTN_OK && json_array_append_new(files, file) != 0)
            status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", operands->values[i]);
    }
    for (size_t i = 0; status == ATTN_OK && !as_json && i < json_array_size(files); i++)
        print_file(json_array_get(files, i));
    if (status == ATTN_OK && as_json) {
        json_t *document = json_pack("{s:O}", "files", files);
        json_dumpf(document, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(document);
    }
    json_decref(files);
    return status;
}

attn_status command_info(int argc, char *const *argv)
{
    struct option options[INFO_COUNT] = {
        [INFO_HELP] = OPTION_ROW_HELP,
        [INFO_VERSION] = OPTION_ROW_VERSION,
        [INFO_QUIET] = OPTION_ROW_QUIET,
        [INFO_JSON] = {"json", 0, NULL, "write one JSON document", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, INFO_COUNT, argc, argv, &operands, MOST_OPERANDS));
    command_quiet(&options[INFO_QUIET]);
    const bool as_json = options[INFO_JSON].value != NULL;
    if (options[INFO_HELP].value != NULL) {
        printf("Usage: attn info [FILE]... [OPTION]...\n\n"
               "Shows versions, the processor, instruction sets, which kernels a call of each type\n"
               "gets, caches, threads, what is set in the environment, and the OpenMP runtime;\n"
               "warns when two OpenMP runtimes are loaded. Of files, .npy, .npz or safetensors or -\n"
               "for standard input, shows which arrays they hold.\n\n");
        options_print(stdout, options, INFO_COUNT);
        return ATTN_OK;
    }
    if (options[INFO_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    return operands.count > 0 ? show_files(&operands, as_json) : show_machine(as_json);
}
