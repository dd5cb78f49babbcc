/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of .npy headers. The header is a Python literal,
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * padded with spaces and ended by a newline. Accepted is exactly such a
 * dictionary: its three keys in any order, each once, nothing else. All
 * arithmetic on lengths is checked, and the size of the file must be that of
 * the header plus that of the data: a byte too few is a truncated file and a
 * byte too many is something that is not understood, so both are refused.
 */
#include "io/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct cursor {
    const char *start, *at, *end;
    const char *path;
};

enum key { KEY_DESCR = 1, KEY_ORDER = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

#define MAX_STRING 32

static attn_status expected(const struct cursor *c, const char *what)
{
    return io_fail(ATTN_INVALID_FILE, "%s: the .npy header is malformed at its byte %td; expected %s", c->path,
                   c->at - c->start, what);
}

static void skip_spaces(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n'))
        c->at++;
}

/* Takes one punctuation mark, with the spaces around it. */
static bool take(struct cursor *c, char mark)
{
    skip_spaces(c);
    if (c->at == c->end || *c->at != mark)
        return false;
    c->at++;
    skip_spaces(c);
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

static attn_status read_string(struct cursor *c, char out[MAX_STRING], const char *what)
{
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return expected(c, what);
    char quote = *c->at;
    const char *from = c->at + 1;
    const char *to = from;
    while (to < c->end && *to != quote && *to != '\\' && *to >= 0x20 && *to < 0x7f)
        to++;
    if (to == c->end || *to != quote || to - from >= MAX_STRING)
        return expected(c, what);
    memcpy(out, from, (size_t)(to - from));
    out[to - from] = '\0';
    c->at = to + 1;
    return ATTN_OK;
}

/* What a type code that is not read stands for, or NULL. */
static const char *refused_dtype(const char *code)
{
    static const char *const table[][2] = {{"i1", "int8"},
                                           {"u1", "uint8"},
                                           {"i2", "int16"},
                                           {"u2", "uint16"},
                                           {"u4", "uint32"},
                                           {"u8", "uint64"},
                                           {"c8", "complex64"},
                                           {"c16", "complex128"},
                                           {"O", "Python objects"},
                                           {"f16", "long double"},
                                           {"f1", "float8_e5m2 of ml_dtypes"},
                                           {"V1", "a raw byte; ml_dtypes has float8_e4m3fn written so"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(code, table[i][0]) == 0)
            return table[i][1];
    }
    return code[0] == 'V' ? "raw bytes" : NULL;
}

#define EXPECTED "float32, float64, float16, bfloat16, bool, int32 or int64"

static attn_status read_dtype(struct cursor *c, enum array_dtype *dtype, struct array_storage *stored)
{
    static const struct {
        const char *code;
        enum array_dtype dtype;
    } table[] = {{"f4", ARRAY_F32},  {"f8", ARRAY_F32}, {"f2", ARRAY_F16}, {"V2", ARRAY_BF16},
                 {"b1", ARRAY_BOOL}, {"i4", ARRAY_I32}, {"i8", ARRAY_I64}};
    if (c->at < c->end && *c->at == '[')
        return io_fail(ATTN_INVALID_FILE, "%s: the dtype is structured; expected " EXPECTED, c->path);
    char text[MAX_STRING];
    CHECK(read_string(c, text, "a dtype such as '<f4'"));
    bool ordered = text[0] == '<' || text[0] == '>' || text[0] == '|' || text[0] == '=';
    const char *code = ordered ? text + 1 : text;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(code, table[i].code) != 0)
            continue;
        *dtype = table[i].dtype;
        stored->is_f64 = strcmp(code, "f8") == 0;
        stored->swapped = text[0] == '>';
        stored->element_size = stored->is_f64 ? 8 : array_dtype_size(*dtype);
        /*
         * A single byte has no order, so numpy writes '|' there and '<' for the others. Raw bytes have none either, but
         * ml_dtypes gives its bfloat16 one; numpy, which does not know that type, writes it again without.
         */
        const bool raw = *dtype == ARRAY_BF16, orderless = raw || stored->element_size == 1;
        if (text[0] == '<' || (orderless ? text[0] == '|' : text[0] == '>'))
            return ATTN_OK;
        break;
    }
    const char *meaning = refused_dtype(code);
    return io_fail(ATTN_INVALID_FILE,
                   "%s: dtype '%s'%s%s%s is not read; expected " EXPECTED " (numpy's astype('float32') converts)",
                   c->path, text, meaning != NULL ? " (" : "", meaning != NULL ? meaning : "",
                   meaning != NULL ? ")" : "");
}

static attn_status read_order(struct cursor *c, bool *fortran)
{
    *fortran = take_word(c, "True");
    return *fortran || take_word(c, "False") ? ATTN_OK : expected(c, "True or False");
}

static attn_status read_length(struct cursor *c, int64_t *length)
{
    if (c->at == c->end || *c->at < '0' || *c->at > '9')
        return expected(c, "a length of the shape");
    int64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        int digit = *c->at - '0';
        if (value > (INT64_MAX - digit) / 10)
            return io_fail(ATTN_INVALID_FILE, "%s: a length in the shape exceeds 63 bits", c->path);
        value = value * 10 + digit;
    }
    *length = value;
    return ATTN_OK;
}

static attn_status read_shape(struct cursor *c, struct array_shape *is)
{
    is->ndim = 0;
    if (!take(c, '('))
        return expected(c, "a shape such as (3, 4)");
    if (take(c, ')'))
        return ATTN_OK;
    for (;;) {
        if (is->ndim == ARRAY_MAX_DIMS)
            return io_fail(ATTN_INVALID_FILE, "%s: the array has more than %d dimensions; expected at most that",
                           c->path, ARRAY_MAX_DIMS);
        CHECK(read_length(c, &is->shape[is->ndim]));
        is->ndim++;
        bool comma = take(c, ',');
        if (take(c, ')')) {
            /* Without the comma, (3) is a number in Python and no tuple. */
            return comma || is->ndim > 1 ? ATTN_OK : expected(c, "a comma in a shape of one length");
        }
        if (!comma)
            return expected(c, "',' or ')' in the shape");
    }
}

static attn_status read_dictionary(struct cursor *c, struct array_shape *is, struct array_storage *stored)
{
    unsigned seen = 0;
    if (!take(c, '{'))
        return expected(c, "'{'");
    while (!take(c, '}')) {
        char key[MAX_STRING];
        CHECK(read_string(c, key, "'descr', 'fortran_order' or 'shape'"));
        unsigned which = strcmp(key, "descr") == 0           ? KEY_DESCR
                         : strcmp(key, "fortran_order") == 0 ? KEY_ORDER
                         : strcmp(key, "shape") == 0         ? KEY_SHAPE
                                                             : 0;
        if (which == 0)
            return io_fail(ATTN_INVALID_FILE, "%s: the .npy header has the unknown key '%s'", c->path, key);
        if ((seen & which) != 0)
            return io_fail(ATTN_INVALID_FILE, "%s: the .npy header has the key '%s' twice", c->path, key);
        seen |= which;
        if (!take(c, ':'))
            return expected(c, "':'");
        CHECK(which == KEY_DESCR   ? read_dtype(c, &is->dtype, stored)
              : which == KEY_ORDER ? read_order(c, &stored->fortran)
                                   : read_shape(c, is));
        if (!take(c, ',') && (c->at == c->end || *c->at != '}'))
            return expected(c, "',' or '}'");
    }
    if (c->at != c->end)
        return expected(c, "only spaces after '}'");
    if (seen != KEY_ALL)
        return io_fail(ATTN_INVALID_FILE, "%s: the .npy header lacks the key '%s'", c->path,
                       !(seen & KEY_DESCR)   ? "descr"
                       : !(seen & KEY_ORDER) ? "fortran_order"
                                             : "shape");
    return ATTN_OK;
}

/* With at most one length that is not 1, both orders are the same bytes. */
static bool order_matters(const struct array_shape *is)
{
    int longer = 0;
    for (int i = 0; i < is->ndim; i++)
        longer += is->shape[i] != 1;
    return longer > 1;
}

attn_status npy_parse(struct npy_header *header, const unsigned char *bytes, size_t available, uint64_t file_size,
                      const char *path)
{
    memset(header, 0, sizeof *header);
    if (available < 6 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return io_fail(ATTN_INVALID_FILE, "%s is not a .npy file: it does not begin with \\x93NUMPY", path);
    if (available < 10)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: the .npy file is truncated: it ends after %zu bytes, inside its preamble", path, available);
    unsigned major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return io_fail(ATTN_INVALID_FILE, "%s: .npy version %u.%u is unknown; expected 1.0, 2.0 or 3.0", path, major,
                       minor);
    size_t preamble = major == 1 ? 10 : 12;
    if (available < preamble)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: the .npy file is truncated: it ends after %zu bytes, inside its preamble", path, available);
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > NPY_MAX_HEADER)
        return io_fail(ATTN_INVALID_FILE, "%s: the .npy header claims %zu bytes; expected at most %zu", path, length,
                       NPY_MAX_HEADER);
    if (length > available - preamble)
        return io_fail(ATTN_INVALID_FILE, "%s: the .npy file is truncated: its header claims %zu bytes, but %zu follow",
                       path, length, available - preamble);

    struct cursor c = {.path = path};
    c.start = c.at = (const char *)bytes + preamble;
    c.end = c.start + length;
    CHECK(read_dictionary(&c, &header->is, &header->stored));
    header->stored.fortran = header->stored.fortran && order_matters(&header->is);

    char shape[ARRAY_SHAPE_TEXT];
    array_shape_text(&header->is, shape);
    if (!array_bytes(header->is.shape, header->is.ndim, header->stored.element_size, &header->data_size))
        return io_fail(ATTN_INVALID_FILE, "%s: the shape %s overflows: its size in bytes exceeds 63 bits", path, shape);
    header->data_offset = preamble + length;
    uint64_t present = file_size - header->data_offset;
    if (present < header->data_size)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: the .npy file is truncated: the shape %s of %s needs %" PRIu64
                       " bytes of data, but %" PRIu64 " follow the header",
                       path, shape, header->stored.is_f64 ? "float64" : array_dtype_name(header->is.dtype),
                       header->data_size, present);
    if (present > header->data_size)
        return io_fail(ATTN_INVALID_FILE, "%s: %" PRIu64 " bytes stand after the data of shape %s; expected none", path,
                       present - header->data_size, shape);
    return ATTN_OK;
}

size_t npy_header_write(char out[NPY_HEADER_SPACE], const struct array_shape *is)
{
    static const char *const codes[] = {"<f4", "|b1", "<i4", "<i8", "<f2", "<V2"};
    char shape[ARRAY_SHAPE_TEXT];
    int text = snprintf(out + 10, NPY_HEADER_SPACE - 10, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                        codes[is->dtype], array_shape_text(is, shape));
    size_t total = ((size_t)text + 1 + 10 + 63) / 64 * 64;
    memset(out + 10 + text, ' ', total - 10 - (size_t)text);
    out[total - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((total - 10) & 0xff);
    out[9] = (char)((total - 10) >> 8);
    return total;
}
