/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands of tiles. Each lies in a guard of its own, flush with its end or
 * its beginning, at an address that is a multiple of 4 (2 for rows of narrow
 * elements); gaps between rows hold NaN.
 */
#include "operands.h"
#include "dtype.h"
#include "guard.h"
#include "operations.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPERANDS 24
#define MAX_COPIES   (1 << 20)

static struct {
    struct guard guard;
    size_t capacity;
} slots[MAX_OPERANDS];

static int placed;
static _Alignas(ATTN_ALIGN) unsigned char copies[MAX_COPIES];
static size_t copied;

void operands_begin(void)
{
    placed = 0;
    copied = 0;
}

void *operand_place(const struct tile_case *c, size_t size)
{
    if (placed == MAX_OPERANDS) {
        fputs("a tile has more operands than MAX_OPERANDS\n", stderr);
        exit(1);
    }
    const int slot = placed++;
    if (slots[slot].capacity < size || !slots[slot].guard.base) {
        if (slots[slot].guard.base)
            guard_destroy(&slots[slot].guard);
        slots[slot].capacity = 2 * size + 4096;
        slots[slot].guard = guard_create(slots[slot].capacity);
    }
    return guard_place(&slots[slot].guard, size, c->cycles ? 0 : rng_percent(c->rng, 70));
}

int operands_intact(void)
{
    for (int i = 0; i < placed; i++)
        if (!guard_intact(&slots[i].guard))
            return 0;
    return 1;
}

void *operand_copy(const void *at, size_t size)
{
    void *copy = copies + copied;
    copied += (size + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
    if (copied > MAX_COPIES) {
        fputs("a tile has more operands than MAX_COPIES\n", stderr);
        exit(1);
    }
    memcpy(copy, at, size);
    return copy;
}

float draw_number(const struct tile_case *c)
{
    const float usual = rng_normal(c->rng);
    if (!c->shape.wild || c->shape.plain || rng_percent(c->rng, 90))
        return usual;
    return (float[]){NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 3e38f, -3e38f}[rng_range(c->rng, 0, 7)];
}

float *operand_floats(const struct tile_case *c, int64_t n)
{
    float *x = operand_place(c, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = draw_number(c);
    return x;
}

/** A number of a quantised row; NaN only if the case has such. */
static char draw_byte(const struct tile_case *c, attn_dtype dtype)
{
    uint8_t byte = (uint8_t)rng_bits(c->rng);
    if (dtype == ATTN_F8_E4M3 && (byte & 0x7f) == 0x7f && !c->shape.wild)
        byte ^= 1;
    return (char)byte;
}

/** Scales of n rows, in any order and with gaps. */
static void draw_scales(const struct tile_case *c, int n, int64_t width, struct drawn_rows *rows)
{
    const int groups = rows->rows.dtype == ATTN_I4;
    const ptrdiff_t each = groups ? (ptrdiff_t)(width + 31) / 32 : 1;
    ptrdiff_t stride = each + (c->shape.plain ? 0 : (ptrdiff_t)rng_range(c->rng, 0, 2));
    const size_t count = n > 0 ? (size_t)((n - 1) * stride + each) : 0;
    float *at = operand_place(c, count * sizeof *at);
    for (size_t i = 0; i < count; i++)
        at[i] = NAN;
    if (n > 0 && !c->shape.plain && rng_percent(c->rng, 20)) {
        at += (n - 1) * stride;
        stride = -stride;
    }
    for (int r = 0; r < n; r++)
        for (ptrdiff_t g = 0; g < each; g++) /* those of groups may be negative */
            at[r * stride + g] = (groups ? draw_number(c) : fabsf(draw_number(c))) / 64.0f;
    rows->rows.scale = at;
    rows->rows.scale_stride = stride;
}

attn_dtype draw_stored_type(const struct tile_case *c, attn_dtype otherwise)
{
    if (c->shape.plain || rng_percent(c->rng, 60))
        return otherwise;
    return (attn_dtype[]){ATTN_I8, ATTN_F8_E4M3, ATTN_I4}[rng_range(c->rng, 0, 2)];
}

struct drawn_rows draw_rows(const struct tile_case *c, attn_dtype dtype, int n, int64_t width)
{
    const ptrdiff_t element = dtype == ATTN_I4 ? 16 : attn_element_size(dtype);
    const ptrdiff_t bytes = (ptrdiff_t)(dtype == ATTN_I4 ? (width + 31) / 32 : width) * element;
    ptrdiff_t stride = bytes + (c->shape.plain ? 0 : (ptrdiff_t)rng_range(c->rng, 0, 9)) * element;
    const size_t size = n > 0 ? (size_t)((n - 1) * stride + bytes) : 0;
    char *at = operand_place(c, size);
    memset(at, 0xff, size); /* NaN in each type */
    if (n > 0 && !c->shape.plain && rng_percent(c->rng, 20)) {
        at += (n - 1) * stride;
        stride = -stride;
    }
    struct drawn_rows rows = {.rows = {.data = at, .stride = stride, .dtype = dtype}};
    if (attn_is_quantised(dtype))
        draw_scales(c, n, width, &rows);
    for (int r = 0; r < n; r++) {
        rows.pointers[r] = at + r * stride;
        for (int64_t i = 0; i < bytes && attn_is_quantised(dtype); i++)
            at[r * stride + i] = draw_byte(c, dtype); /* behind the last number of a group, too */
        for (int64_t i = 0; i < width && !attn_is_quantised(dtype); i++)
            dtype_store(dtype, at + r * stride, i, draw_number(c));
    }
    return rows;
}

float number_of(const struct drawn_rows *rows, int r, int64_t i)
{
    if (!attn_is_quantised(rows->rows.dtype))
        return dtype_load(rows->rows.dtype, rows->pointers[r], i);
    if (rows->rows.dtype == ATTN_I4)
        return dtype_i4_at(rows->pointers[r], i);
    const uint8_t byte = (uint8_t)rows->pointers[r][i];
    return rows->rows.dtype == ATTN_I8 ? (float)(int8_t)byte : dtype_of_f8(byte);
}

float scale_of(const struct drawn_rows *rows, int r, int64_t i)
{
    const int64_t group = rows->rows.dtype == ATTN_I4 ? i / 32 : 0;
    return attn_is_quantised(rows->rows.dtype) ? rows->rows.scale[r * rows->rows.scale_stride + group] : 1.0f;
}

float element_of(const struct drawn_rows *rows, int r, int64_t i)
{
    return attn_is_quantised(rows->rows.dtype) ? number_of(rows, r, i) * scale_of(rows, r, i) : number_of(rows, r, i);
}

struct drawn_words draw_words(const struct tile_case *c, int pack, int n, int64_t words)
{
    const ptrdiff_t unit = 4 / pack;
    ptrdiff_t stride = words * 4 + (c->shape.plain ? 0 : unit * rng_range(c->rng, 0, 9));
    char *at = operand_place(c, (size_t)((n - 1) * stride + words * 4));
    memset(at, 0xff, (size_t)((n - 1) * stride + words * 4));
    if (!c->shape.plain && rng_percent(c->rng, 20)) {
        at += (n - 1) * stride;
        stride = -stride;
    }
    for (int j = 0; j < n; j++) {
        for (int64_t w = 0; w < words * pack; w++) {
            char *element = at + j * stride + w * unit;
            if (pack == 4)
                *(int8_t *)element = (int8_t)rng_bits(c->rng);
            else
                dtype_store(pack == 2 ? ATTN_BF16 : ATTN_F32, element, 0, draw_number(c));
        }
    }
    return (struct drawn_words){at, stride};
}

struct attn_tile_mask draw_mask(const struct tile_case *c)
{
    const int width = c->shape.nv * c->set->lanes, n = c->shape.n;
    struct attn_tile_mask mask = {.kind = MASK_NONE};
    const int64_t kind = c->shape.plain ? 0 : rng_range(c->rng, 0, 3);
    if (kind == 1) {
        mask.kind = MASK_DIAGONAL;
        mask.diagonal = rng_range(c->rng, -width - 2, n + 2);
    } else if (kind == 2) {
        mask.kind = MASK_LIVE;
        mask.live_pitch = width + rng_range(c->rng, 0, 5);
        const size_t size = (size_t)((n - 1) * mask.live_pitch + width);
        uint8_t *live = operand_place(c, size);
        for (size_t i = 0; i < size; i++)
            live[i] = rng_percent(c->rng, 40) ? 0 : (uint8_t)rng_bits(c->rng);
        mask.live = live;
    } else if (kind == 3) {
        const int by_distance = rng_percent(c->rng, 50);
        const int64_t size = by_distance ? n - 1 + width : (int64_t)n * width;
        float *bias = operand_place(c, (size_t)size * sizeof *bias);
        for (int64_t i = 0; i < size; i++)
            bias[i] = rng_percent(c->rng, 30) ? -INFINITY : draw_number(c);
        mask.kind = MASK_BIAS;
        mask.bias = by_distance ? bias + n - 1 : bias;
        mask.bias_pitch = by_distance ? -1 : width;
    }
    return mask;
}

float mask_bias_of(const struct attn_tile_mask *mask, int j, int lane)
{
    return mask->bias[j * mask->bias_pitch + lane];
}

int mask_sees(const struct attn_tile_mask *mask, int j, int lane)
{
    switch (mask->kind) {
    case MASK_DIAGONAL:
        return j <= lane + mask->diagonal;
    case MASK_LIVE:
        return mask->live[j * mask->live_pitch + lane] != 0;
    case MASK_BIAS:
        return mask_bias_of(mask, j, lane) != -INFINITY;
    default:
        return 1;
    }
}

float masked(const struct kernel_set *set, const struct attn_tile_mask *mask, int j, int lane, int raw, float factor,
             float x)
{
    if (!mask_sees(mask, j, lane))
        return -INFINITY;
    if (mask->kind != MASK_BIAS)
        return x;
    const float bias = mask_bias_of(mask, j, lane);
    return raw ? fma_of(set, x, factor, bias) : x + bias;
}

void expect_word(const struct tile_case *c, const char *what, int64_t i, int64_t lane, uint32_t got, uint32_t expected)
{
    if (got != expected)
        report_failure(c->run, c->number,
                       "%s[%lld][%lld] is 0x%08x, expected 0x%08x (%d vectors, %d keys, %lld channels)", what,
                       (long long)i, (long long)lane, got, expected, c->shape.nv, c->shape.n, (long long)c->shape.d);
}

void expect_float(const struct tile_case *c, const char *what, int64_t i, int64_t lane, float got, float expected)
{
    if (memcmp(&got, &expected, sizeof got) != 0 && !(isnan(got) && isnan(expected)))
        report_failure(c->run, c->number, "%s[%lld][%lld] is %a, expected %a (%d vectors, %d keys, %lld channels)",
                       what, (long long)i, (long long)lane, (double)got, (double)expected, c->shape.nv, c->shape.n,
                       (long long)c->shape.d);
}

int *draw_ends(const struct tile_case *c, int n, int least)
{
    const int last = c->shape.nv - 1;
    int *ends = operand_place(c, (size_t)c->shape.nv * sizeof *ends);
    for (int v = 0, lowest = 0; v <= last; v++) {
        lowest = v == last && lowest < least ? least : lowest;
        ends[v] = c->shape.plain || rng_percent(c->rng, 30) ? n : (int)rng_range(c->rng, lowest, n);
        lowest = ends[v];
    }
    return ends;
}

enum attn_accumulate draw_mode(const struct tile_case *c)
{
    return c->shape.plain ? ACCUMULATE_ADD : (enum attn_accumulate)rng_range(c->rng, 0, 2);
}

float start_of(enum attn_accumulate mode, float o, float alpha)
{
    return mode == ACCUMULATE_FIRST ? 0.0f : mode == ACCUMULATE_RESCALE ? o * alpha : o;
}

void call_operation(const struct kernel_set *set, const char *name, const struct call *call)
{
    for (size_t i = 0; i < set->num_operations; i++)
        if (strcmp(set->operations[i].name, name) == 0) {
            set->operations[i].run(call, 1);
            return;
        }
    fprintf(stderr, "the set %s has no %s\n", set->name, name);
    exit(1);
}

void apply(const struct kernel_set *set, const char *name, float *out, const float *in)
{
    call_operation(set, name, &(struct call){.set = set, .n = set->lanes, .in = {in}, .out = {out}});
}

int64_t score_words(const struct tile_case *c)
{
    const int pack = c->set->score_pack, step = c->set->kernels->scores->word_step;
    const int64_t words = (c->shape.d + pack - 1) / pack;
    return step ? (words + step - 1) / step * step : words;
}

/** Vectors of a strip that every function of a set takes. */
static int strip_of(const struct kernel_set *set)
{
    const struct attn_isa_kernels *k = set->kernels;
    int vectors = set->strip_vectors;
    if (k->scores && k->scores->strip_vectors && k->scores->strip_vectors < vectors)
        vectors = k->scores->strip_vectors;
    if (k->values && k->values->strip_vectors && k->values->strip_vectors < vectors)
        vectors = k->values->strip_vectors;
    return vectors;
}

/** A few keys and channels mostly, sometimes as many as a call has; a matrix register takes more of both. */
static struct tile_shape draw_shape(struct rng *rng, const struct kernel_set *set)
{
    const int matrix = (set->features & HAS_MATRIX) != 0;
    const int64_t most_keys = rng_percent(rng, matrix ? 40 : 5) ? ATTN_KEY_BLOCK : 24;
    const int64_t most_channels = rng_percent(rng, matrix ? 20 : 5) ? 160 : 40;
    struct tile_shape shape = {.nv = (int)rng_range(rng, 1, strip_of(set)),
                               .n = (int)rng_range(rng, 1, most_keys),
                               .d = rng_range(rng, 1, most_channels),
                               .wild = rng_percent(rng, 30),
                               .dtype = (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16)};
    if (matrix && rng_percent(rng, 2))
        shape.d = rng_range(rng, 257, MAX_CHANNELS);
    return shape;
}

/** The kernels of a call for which a set brings what it has, for attn_enter() and attn_leave(). */
static struct attn_kernels with_registers(const struct kernel_set *set)
{
    static const struct attn_score_kernels no_scores;
    static const struct attn_value_kernels no_values;
    const struct attn_isa_kernels *own = set->kernels, *base = set->extends;
    return (struct attn_kernels){.scores = own->scores ? own->scores : &no_scores,
                                 .values = own->values    ? own->values
                                           : base->values ? base->values
                                                          : &no_values};
}

/* A tile is some hundred times the work of an operation. */
void check_tiles(const struct row *row, const struct kernel_set *set, struct run *run)
{
    const struct tile_row *tile = row->spec;
    const struct attn_kernels kernels = with_registers(set);
    const int64_t cases = (run->cases + 4) / 5;
    for (int64_t i = run->only >= 0 ? run->only : 0; i < (run->only >= 0 ? run->only + 1 : cases); i++) {
        struct rng rng = begin_case(run, i);
        struct tile_case c = {.set = set, .run = run, .number = i, .rng = &rng};
        c.shape = draw_shape(&rng, set);
        operands_begin();
        attn_enter(&kernels);
        tile->function(&c);
        attn_leave(&kernels);
        if (!operands_intact())
            report_failure(run, i, "%s wrote beside an operand (%d vectors, %d keys, %lld channels)", row->name,
                           c.shape.nv, c.shape.n, (long long)c.shape.d);
    }
}

/** A full strip, a whole block of keys, heads of 64 channels. */
double time_tile(const struct row *row, const struct kernel_set *set)
{
    const struct tile_row *tile = row->spec;
    const struct attn_kernels kernels = with_registers(set);
    struct rng rng = {1};
    double cycles = 0;
    const struct tile_case c = {.set = set,
                                .rng = &rng,
                                .shape = {.nv = strip_of(set), .n = ATTN_KEY_BLOCK, .d = 64, .plain = 1},
                                .cycles = &cycles};
    operands_begin();
    attn_enter(&kernels);
    tile->function(&c);
    attn_leave(&kernels);
    return cycles;
}
