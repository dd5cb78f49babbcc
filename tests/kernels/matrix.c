/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets with matrix registers: the operations of matrix_*.h, the table of
 * exponentials, and the functions of tiles whose operands lie otherwise than in
 * vectors: V in pieces, rows of words and of sums padded to whole registers.
 *
 * All of it is written out in plain C, one element after the other. A product
 * adds 32 terms to an element: two sums from 0, of the first and of the second
 * elements of 16 pairs, then their sum, whatever MXCSR says. So a processor that
 * has the registers and an emulation of them are held to the same bits. What is
 * padding holds NaN where it may, since none of it must come into a result.
 */
#include "operands.h"
#include "dtype.h"
#include "guard.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROWS = 16, WORDS = 16, PAIRED = 2 * WORDS, REGISTERS = 8, ROW_BYTES = 64, PIECE = ROWS * ROW_BYTES };

static int rounded_up(int64_t n, int step)
{
    return (int)((n + step - 1) / step * step);
}

static int key_words(int keys)
{
    return (keys + 1) / 2;
}

static float widened(uint16_t half)
{
    return dtype_widen(ATTN_BF16, half);
}

/** c and what a product adds to it: a row of 32 elements and a column of as many. */
static float product(const uint16_t *a, const uint16_t *b, float c)
{
    float first = 0, second = 0;
    for (int i = 0; i < PAIRED; i += 2) {
        first = fused_flushing(widened(a[i]), widened(b[i]), first);
        second = fused_flushing(widened(a[i + 1]), widened(b[i + 1]), second);
    }
    return flushed(flushed(c) + flushed(first + second));
}

/** Words in lane order from at on, as the column that a lane has of them. */
static void gather(const void *at, int width, int lane, int64_t words, uint16_t *column)
{
    for (int64_t w = 0; w < words; w++)
        memcpy(column + 2 * w, (const char *)at + (w * width + lane) * 4, 4);
}

/* ------------------------------------------------------------- operations -- */

/** Rows of registers, one behind the other. */
struct drawn_registers {
    char *at;
    int rows;
    ptrdiff_t stride;
};

static struct drawn_registers place_registers(const struct tile_case *c, int count, ptrdiff_t stride)
{
    const ptrdiff_t step = stride < 0 ? -stride : stride, last = (count * ROWS - 1) * step;
    char *at = operand_place(c, (size_t)(last + ROW_BYTES));
    memset(at, 0xff, (size_t)(last + ROW_BYTES));
    return (struct drawn_registers){stride < 0 ? at + last : at, count * ROWS, stride};
}

static char *row_of(const struct drawn_registers *r, int row)
{
    return r->at + row * r->stride;
}

/** Rows are contiguous, or have gaps, or come backwards. */
static ptrdiff_t draw_stride(const struct tile_case *c)
{
    if (c->shape.plain)
        return ROW_BYTES;
    const ptrdiff_t step = ROW_BYTES + 2 * rng_range(c->rng, 0, rng_percent(c->rng, 50) ? 0 : 40);
    return rng_percent(c->rng, 20) ? -step : step;
}

/* What the elements of a product are like. */
enum numbers { USUAL, MANY_SIZES, TINY, BORDER, HUGE_ONES, SPECIAL, ANY_BITS, NUM_NUMBERS };

static float draw_element(struct rng *rng, enum numbers numbers)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, -1e-40f, 3e38f, -3e38f, FLT_MIN};
    const float usual = rng_normal(rng);
    switch (numbers) {
    case MANY_SIZES:
        return ldexpf(usual, (int)rng_range(rng, -30, 30));
    case TINY: /* products are denormal, or not, and so are some elements */
        return ldexpf(usual, (int)rng_range(rng, -70, rng_percent(rng, 10) ? -120 : -57));
    case BORDER: /* sums differ from the smallest normal number by half a unit in their last place */
        return rng_percent(rng, 60) ? 0.0f
                                    : ldexpf(usual < 0 ? -1.0f : 1.0f, (int)RNG_PICK(rng, -63, -63, -74, -75, -76));
    case HUGE_ONES:
        return ldexpf(usual, (int)rng_range(rng, 58, 64));
    case SPECIAL:
        return rng_percent(rng, 95) ? usual : special[rng_range(rng, 0, sizeof special / sizeof *special - 1)];
    case ANY_BITS: {
        const uint32_t bits = (uint32_t)rng_bits(rng);
        float any;
        memcpy(&any, &bits, sizeof any);
        return any;
    }
    default:
        return usual;
    }
}

/** What is added to: of the size of the products. */
static float draw_sum(struct rng *rng, enum numbers numbers)
{
    const float x = draw_element(rng, numbers);
    if (numbers == TINY || numbers == BORDER)
        return rng_percent(rng, 30) ? ldexpf(x, -80) : x * ldexpf(1.0f, -63);
    return numbers == HUGE_ONES ? x * 0x1p63f : x;
}

/** A modes of rounding and of denormals for the caller; the default one where there is no such register. */
static unsigned draw_modes(const struct tile_case *c)
{
    const unsigned rounding = (unsigned)rng_range(c->rng, 0, 3) << 13, denormals = (unsigned)rng_range(c->rng, 0, 3);
    return 0x1f80u | rounding | (denormals & 1 ? 0x8000u : 0) | (denormals & 2 ? 0x0040u : 0);
}

static void run_named(const struct kernel_set *set, const char *name, const struct call *call)
{
    for (size_t i = 0; i < set->num_operations; i++)
        if (strcmp(set->operations[i].name, name) == 0)
            set->operations[i].run(call, 1);
}

/** Runs an operation, or times it; with modes of the caller's that must neither matter nor change. */
static void run_operation(const struct tile_case *c, const char *name, const struct call *call)
{
    TIME_IF_WANTED(c, run_named(c->set, name, call));
    const unsigned modes = draw_modes(c);
#if defined(__x86_64__)
    const unsigned kept = _mm_getcsr();
    _mm_setcsr(modes);
    run_named(c->set, name, call);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(kept);
    expect_word(c, "MXCSR without its flags", 0, 0, after & ~0x3fu, modes);
#else
    (void)modes;
    run_named(c->set, name, call);
#endif
}

static void expect_bytes(const struct tile_case *c, const char *what, int row, const void *got, const void *expected)
{
    for (int i = 0; i < WORDS; i++) {
        uint32_t x, y = 0;
        memcpy(&x, (const char *)got + 4 * i, 4);
        if (expected)
            memcpy(&y, (const char *)expected + 4 * i, 4);
        expect_word(c, what, row, i, x, y);
    }
}

/** Nothing but rows of registers has been written. */
static void expect_gaps(const struct tile_case *c, const struct drawn_registers *r)
{
    const ptrdiff_t step = r->stride < 0 ? -r->stride : r->stride;
    const char *const first = r->stride < 0 ? row_of(r, r->rows - 1) : r->at;
    for (int i = 0; i + 1 < r->rows; i++)
        for (ptrdiff_t at = ROW_BYTES; at < step; at++)
            expect_word(c, "gap", i, at, *(const unsigned char *)(first + i * step + at), 0xff);
}

/** An operation that moves all registers: to where those are that it does not clear. */
static void check_moves(const struct tile_case *c, const char *name, unsigned cleared)
{
    const ptrdiff_t stride = draw_stride(c);
    const struct drawn_registers in = place_registers(c, REGISTERS, stride);
    const struct drawn_registers out = place_registers(c, REGISTERS, stride);
    for (int i = 0; i < in.rows; i++)
        for (int w = 0; w < WORDS; w++) {
            const uint32_t bits = (uint32_t)rng_bits(c->rng);
            memcpy(row_of(&in, i) + 4 * w, &bits, sizeof bits);
        }
    run_operation(c, name, &(struct call){.set = c->set, .in = {in.at}, .out = {out.at}, .stride = stride});
    for (int i = 0; i < in.rows && !c->cycles; i++)
        expect_bytes(c, "register", i, row_of(&out, i), cleared >> (i / ROWS) & 1 ? NULL : row_of(&in, i));
    expect_gaps(c, &out);
}

static void check_enter(const struct tile_case *c)
{
    check_moves(c, "matrix_enter", 0xff);
}

static void check_load(const struct tile_case *c)
{
    check_moves(c, "matrix_load", 0);
}

static void check_stream(const struct tile_case *c)
{
    check_moves(c, "matrix_stream", 0);
}

static void check_zero(const struct tile_case *c)
{
    check_moves(c, "matrix_zero", 1u << 2 | 1u << 7);
}

/** A register that is stored keeps what it has. */
static void check_store(const struct tile_case *c)
{
    const ptrdiff_t stride = draw_stride(c);
    const struct drawn_registers in = place_registers(c, 1, stride);
    const struct drawn_registers out[2] = {place_registers(c, 1, stride), place_registers(c, 1, stride)};
    for (int i = 0; i < ROWS; i++)
        for (int w = 0; w < WORDS; w++) {
            const uint32_t bits = (uint32_t)rng_bits(c->rng);
            memcpy(row_of(&in, i) + 4 * w, &bits, sizeof bits);
        }
    run_operation(c, "matrix_store",
                  &(struct call){.set = c->set, .in = {in.at}, .out = {out[0].at, out[1].at}, .stride = stride});
    for (int k = 0; k < 2 && !c->cycles; k++) {
        for (int i = 0; i < ROWS; i++)
            expect_bytes(c, "register", i, row_of(&out[k], i), row_of(&in, i));
        expect_gaps(c, &out[k]);
    }
}

/** After it an operation ends the process, which is done in one of its own. */
static void check_leave(const struct tile_case *c)
{
    run_operation(c, "matrix_leave", &(struct call){.set = c->set});
    if (c->cycles || c->number > 0)
        return;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGILL, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        run_named(c->set, "matrix_leave", &(struct call){.set = c->set, .n = 1});
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGILL)
        report_failure(c->run, c->number, "a register can be used after matrix_leave (status %d)", status);
}

static void check_dot(const struct tile_case *c)
{
    const ptrdiff_t stride = draw_stride(c);
    const struct drawn_registers a = place_registers(c, 1, stride), b = place_registers(c, 1, stride);
    const struct drawn_registers sums = place_registers(c, 1, stride), out = place_registers(c, 1, stride);
    const enum numbers numbers = c->shape.plain ? USUAL : (enum numbers)rng_range(c->rng, 0, NUM_NUMBERS - 1);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < PAIRED; k++) {
            const float x = draw_element(c->rng, numbers), y = draw_element(c->rng, numbers);
            uint32_t bits[2]; /* cut off, so that any bits come in */
            memcpy(&bits[0], &x, sizeof x);
            memcpy(&bits[1], &y, sizeof y);
            const uint16_t halves[2] = {(uint16_t)(bits[0] >> 16), (uint16_t)(bits[1] >> 16)};
            memcpy(row_of(&a, i) + 2 * k, &halves[0], 2);
            memcpy(row_of(&b, i) + 2 * k, &halves[1], 2);
        }
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < WORDS; k++) {
            const float x = draw_sum(c->rng, numbers);
            memcpy(row_of(&sums, i) + 4 * k, &x, sizeof x);
        }
    run_operation(c, "matrix_dot_bf16",
                  &(struct call){.set = c->set, .in = {a.at, b.at, sums.at}, .out = {out.at}, .stride = stride});
    for (int k = 0; k < WORDS && !c->cycles; k++) {
        uint16_t column[PAIRED], row[PAIRED];
        for (int u = 0; u < ROWS; u++)
            memcpy(column + 2 * u, row_of(&b, u) + 4 * k, 4);
        for (int i = 0; i < ROWS; i++) {
            float before, got;
            memcpy(row, row_of(&a, i), sizeof row);
            memcpy(&before, row_of(&sums, i) + 4 * k, sizeof before);
            memcpy(&got, row_of(&out, i) + 4 * k, sizeof got);
            expect_float(c, "product", i, k, got, product(row, column, before));
        }
    }
    expect_gaps(c, &out);
}

/** Rows of registers with any bytes, or those whose sums are largest. */
static struct drawn_registers draw_bytes(const struct tile_case *c, ptrdiff_t stride)
{
    const struct drawn_registers r = place_registers(c, 1, stride);
    const int extreme = !c->shape.plain && rng_percent(c->rng, 30), lowest = rng_percent(c->rng, 50) ? -128 : -127;
    for (int i = 0; i < ROWS; i++)
        for (int at = 0; at < ROW_BYTES; at++)
            *(row_of(&r, i) + at) = (char)(!extreme                  ? rng_range(c->rng, -128, 127)
                                           : rng_percent(c->rng, 80) ? lowest
                                                                     : 127);
    return r;
}

static void check_dot_int8(const struct tile_case *c)
{
    const ptrdiff_t stride = draw_stride(c);
    const struct drawn_registers a = draw_bytes(c, stride), b = draw_bytes(c, stride);
    const struct drawn_registers sums = draw_bytes(c, stride), out = place_registers(c, 1, stride);
    run_operation(c, "matrix_dot_int8",
                  &(struct call){.set = c->set, .in = {a.at, b.at, sums.at}, .out = {out.at}, .stride = stride});
    for (int i = 0; i < ROWS && !c->cycles; i++)
        for (int k = 0; k < WORDS; k++) {
            uint32_t sum, got;
            memcpy(&sum, row_of(&sums, i) + 4 * k, sizeof sum);
            memcpy(&got, row_of(&out, i) + 4 * k, sizeof got);
            for (int u = 0; u < ROW_BYTES; u++) {
                const int8_t x = *(const int8_t *)(row_of(&a, i) + u);
                const int8_t y = *(const int8_t *)(row_of(&b, u / 4) + 4 * k + u % 4);
                sum += (uint32_t)(x * y);
            }
            expect_word(c, "product", i, k, got, sum);
        }
    expect_gaps(c, &out);
}

/* ------------------------------------------------------------------ table -- */

enum { TABLE_ENTRIES = 64, TABLE_SHARED = 4, TABLE_BIAS = 127 * 256 - 26 };

/** The bits of a weight from fixed point and its entry. */
static uint16_t table_weight(uint32_t x, uint32_t entry)
{
    return (uint16_t)((x + entry + 1) / 2);
}

/** For each fraction the entry with the least squared relative error over the x that share it. */
static const uint8_t *best_entries(void)
{
    static uint8_t entries[TABLE_ENTRIES];
    static int known;
    for (int f = 0; f < TABLE_ENTRIES && !known; f++) {
        double least = INFINITY;
        for (unsigned entry = 0; entry < 256; entry++) {
            double sum = 0;
            for (int i = 0; i < TABLE_SHARED; i++) {
                const int x = 127 * 256 + TABLE_SHARED * f + i;
                const double error =
                    (double)widened(table_weight((uint32_t)x, entry)) / exp2((x - TABLE_BIAS) / 256.0) - 1;
                sum += error * error;
            }
            if (sum < least) {
                least = sum;
                entries[f] = (uint8_t)entry;
            }
        }
    }
    known = 1;
    return entries;
}

/** A weight from t, fixed point in the lower bits of a float. */
static uint16_t weight_of_fixed(float t)
{
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits &= 0xffff;
    return table_weight(bits, best_entries()[bits / TABLE_SHARED % TABLE_ENTRIES]);
}

static void check_table(const struct tile_case *c)
{
    const struct call call = {.set = c->set, .out = {operand_place(c, TABLE_ENTRIES)}};
    TIME_IF_WANTED(c, run_named(c->set, "exp2_table", &call));
    run_named(c->set, "exp2_table", &call);
    for (int f = 0; f < TABLE_ENTRIES; f++)
        expect_word(c, "entry", f, 0, ((const uint8_t *)call.out[0])[f], best_entries()[f]);
}

static void check_table_pair(const struct tile_case *c)
{
    const int lanes = c->set->lanes;
    float *t[2] = {operand_place(c, (size_t)lanes * 4), operand_place(c, (size_t)lanes * 4)};
    for (int i = 0; i < 2 * lanes; i++) /* any 16 bits */
        t[i / lanes][i % lanes] = (float)(0x1.8p23 + (double)rng_range(c->rng, 0, 0xffff));
    const struct call call = {.set = c->set, .in = {t[0], t[1]}, .out = {operand_place(c, (size_t)lanes * 4)}};
    TIME_IF_WANTED(c, run_named(c->set, "exp2_table_pair", &call));
    run_named(c->set, "exp2_table_pair", &call);
    for (int i = 0; i < lanes; i++)
        expect_word(c, "word", 0, i, ((const uint32_t *)call.out[0])[i],
                    weight_of_fixed(t[0][i]) | (uint32_t)weight_of_fixed(t[1][i]) << 16);
}

/* ----------------------------------------------------------------- scores -- */

static void check_scores(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int n = c->shape.n, width = c->shape.nv * c->set->lanes;
    const int64_t words = score_words(c);
    struct attn_tile_mask mask = draw_mask(c);
    if (mask.kind == MASK_DIAGONAL && mask.diagonal < n - width) /* keys that no lane sees have been cut off */
        mask.diagonal = n - width;
    const struct drawn_words k = draw_words(c, 2, n, words);
    const struct tile_case contiguous = {
        .set = c->set, .rng = c->rng, .shape = {.plain = !c->shape.wild, .wild = c->shape.wild}};
    char *q = operand_place(c, (size_t)(words * width) * 4);
    for (int64_t i = 0; i < words * width * 2; i++)
        dtype_store(ATTN_BF16, q, i, draw_number(&contiguous));
    float *factor = operand_floats(c, width), *max = operand_place(c, (size_t)width * 4);
    for (int i = 0; i < width; i++)
        factor[i] = fabsf(factor[i]) + 0.125f;
    float *s = operand_place(c, (size_t)(rounded_up(n, ROWS) * width) * 4);
    const struct drawn_rows soon = draw_rows(c, ATTN_BF16, n, 64);
    struct attn_score_operands x = {.q = (const float *)(const void *)q,
                                    .k = k.at,
                                    .k_stride = k.stride,
                                    .words = words,
                                    .mask = &mask,
                                    .factor = factor,
                                    .s = s};
    if (!c->shape.plain && rng_percent(c->rng, 50)) {
        x.next[0] = soon.rows;
        x.next_width[0] = 64;
    }
    TIME_IF_WANTED(c, kernels->scores(c->shape.nv, &x, n, max));
    kernels->scores(c->shape.nv, &x, n, max);
    for (int lane = 0; lane < width; lane++) {
        uint16_t query[MAX_CHANNELS], key[MAX_CHANNELS];
        float top = -INFINITY;
        gather(q, width, lane, words, query);
        for (int j = 0; j < n; j++) {
            float raw = 0;
            memcpy(key, k.at + j * k.stride, (size_t)words * 4);
            for (int64_t i = 0; i < 2 * words; i += PAIRED)
                raw = product(key + i, query + i, raw);
            const float score = masked(c->set, &mask, j, lane, 1, factor[lane], raw);
            top = score > top ? score : top;
            expect_float(c, "s", j, lane, s[j * width + lane], score);
        }
        expect_float(c, "max", 0, lane, max[lane], mask.kind == MASK_BIAS ? top : top * factor[lane]);
    }
}

/* ----------------------------------------------------------------- values -- */

/** V^T in pieces of 16 channels by 32 keys, those of a group of keys one behind the other. */
struct pieces {
    char *at;
    int keys;         /**< whole groups */
    int64_t channels; /**< whole pieces */
    ptrdiff_t stride; /**< from word to word of keys, if a group were rows of words */
};

static char *piece_element(const struct pieces *v, int j, int64_t i)
{
    return v->at + (j / PAIRED * (v->channels / ROWS) + i / ROWS) * PIECE + i % ROWS * ROW_BYTES + j % PAIRED * 2;
}

static float piece_value(const struct pieces *v, int j, int64_t i)
{
    return dtype_load(ATTN_BF16, piece_element(v, j, i), 0);
}

static struct pieces place_pieces(const struct tile_case *c, int keys)
{
    struct pieces v = {.keys = rounded_up(keys, PAIRED), .channels = rounded_up(c->shape.d, ROWS)};
    v.stride = v.channels * 4;
    v.at = operand_place(c, (size_t)(v.keys * v.channels) * 2);
    return v;
}

/** Numbers for keys and d channels; the keys behind them are what behind is, the channels what beside is. */
static struct pieces draw_pieces(const struct tile_case *c, int keys, float behind, float beside)
{
    const struct pieces v = place_pieces(c, keys);
    for (int j = 0; j < v.keys; j++)
        for (int64_t i = 0; i < v.channels; i++) {
            const float x = draw_number(c);
            dtype_store(ATTN_BF16, piece_element(&v, j, i), 0, i >= c->shape.d ? beside : j >= keys ? behind : x);
        }
    return v;
}

static void check_pack_values(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n;
    const struct drawn_rows rows = draw_rows(c, ATTN_BF16, n, c->shape.d);
    const struct pieces v = place_pieces(c, n);
    TIME_IF_WANTED(c, kernels->pack_values((float *)(void *)v.at, &rows.rows, n, c->shape.d));
    kernels->pack_values((float *)(void *)v.at, &rows.rows, n, c->shape.d);
    for (int j = 0; j < v.keys; j++)
        for (int64_t i = 0; i < v.channels; i++)
            expect_float(c, "v", j, i, piece_value(&v, j, i), j < n && i < c->shape.d ? element_of(&rows, j, i) : 0.0f);
}

/** Ends of vectors that do not fall, up to n; the last vector sees something. */
static int *draw_ends(const struct tile_case *c, int n)
{
    int *ends = operand_place(c, (size_t)c->shape.nv * sizeof *ends);
    for (int v = 0, least = 0; v < c->shape.nv; v++) {
        least = v + 1 == c->shape.nv && least < 1 ? 1 : least;
        ends[v] = c->shape.plain || rng_percent(c->rng, 30) ? n : (int)rng_range(c->rng, least, n);
        least = ends[v];
    }
    return ends;
}

/** What a lane subtracts and multiplies by: mostly of the usual size, for which weights are made in one step. */
static void draw_lane(const struct tile_case *c, int whole, float *m, float *factor)
{
    struct rng *rng = c->rng;
    const int wild = !c->shape.plain && rng_percent(rng, c->shape.wild ? 10 : 0);
    *m = (float)(rng_range(rng, -20000, 20000)) / 256.0f + (rng_percent(rng, 10) ? rng_normal(rng) : 0);
    *factor = fabsf(rng_normal(rng)) + 0.125f;
    if (wild && rng_percent(rng, 80))
        *m = (float)RNG_PICK(rng, 4096, 4097, -4097, -4096, 70000, 1 << 24);
    else if (wild)
        *m = rng_percent(rng, 50) ? 3e38f : INFINITY;
    if (!c->shape.plain && rng_percent(rng, 3))
        *m = -INFINITY;
    if (wild && rng_percent(rng, 50))
        *factor = ldexpf(*factor, (int)RNG_PICK(rng, 99, 100, 101, 120, -100));
    if (whole)
        *factor = 1.0f;
}

/** Fixed point of a weight 2^(score factor - base), as the comment of weights_table.h has it. */
static float fixed_of(float score, float m, float factor)
{
    const float zero = 0x1.8p23f, origin = zero + (float)TABLE_BIAS, nan = zero + (float)(2 * 0x7fc0);
    const float base = m == -INFINITY ? 0.0f : m;
    float t;
    if (factor <= 0x1p100f && fabsf(base) <= 4096.0f)
        t = score * (factor * 256.0f) + (origin - base * 256.0f);
    else
        t = fmaf(score * factor - base, 256.0f, origin);
    t = isnan(t) || t > nan ? nan : t;
    return t < zero ? zero : t;
}

static void check_weights(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, rows = rounded_up(n, ROWS), lanes = c->set->lanes, width = c->shape.nv * lanes;
    const int *ends = draw_ends(c, n), whole = c->shape.plain || rng_percent(c->rng, 50);
    float *m = operand_place(c, (size_t)width * 4), *factor = operand_place(c, (size_t)width * 4);
    float *s = operand_place(c, (size_t)(rows * width) * 4), *l = operand_floats(c, width);
    for (int r = 0; r < width; r++)
        draw_lane(c, whole, &m[r], &factor[r]);
    for (int j = 0; j < rows; j++)
        for (int r = 0; r < width; r++) {
            const float y = (float)(rng_uniform(c->rng) * 160 - 150) + (isfinite(m[r]) ? m[r] : 0);
            const float special = draw_number(c);
            float *at = s + j * width + r;
            *at = j >= n ? NAN : rng_percent(c->rng, 80) || fabsf(special) < 8 ? y / factor[r] : special;
            if (j < n && (j >= ends[r / lanes] || (!c->shape.plain && rng_percent(c->rng, 5))))
                *at = -INFINITY; /* what a lane does not see has been masked */
        }
    TIME_IF_WANTED(c, kernels->weights(c->shape.nv, m, ends, n, whole ? NULL : factor, s, l));
    const float *scores = operand_copy(s, (size_t)(n * width) * 4), *sums = operand_copy(l, (size_t)width * 4);
    kernels->weights(c->shape.nv, m, ends, n, whole ? NULL : factor, s, l);
    for (int r = 0; r < width; r++) {
        const int words = key_words(ends[r / lanes]);
        float total[2] = {0, 0};
        for (int u = 0; u < rounded_up(words, WORDS); u++) {
            uint16_t expected[2] = {0, 0};
            uint32_t got, word;
            for (int k = 0; k < 2 && u < words && 2 * u + k < n; k++)
                expected[k] = weight_of_fixed(fixed_of(scores[(2 * u + k) * width + r], m[r], factor[r]));
            memcpy(&got, s + u * width + r, sizeof got);
            memcpy(&word, expected, sizeof word);
            expect_word(c, "p", u, r, got, word);
            if (u < words)
                total[u % 2] = dot_of(c->set, 2, (const uint16_t[2]){0x3f80, 0x3f80}, expected, total[u % 2]);
        }
        expect_float(c, "l", 0, r, l[r], sums[r] + (total[0] + total[1]));
    }
}

/**
 * Words of weights for keys that vectors see up to ends (in keys), 0 to the end of that group, and NaN behind it. A
 * weight of a lane that does not see its key is 0, or a denormal, which counts as one.
 */
static float *draw_weights(const struct tile_case *c, const int *ends, const struct attn_tile_mask *mask)
{
    const int lanes = c->set->lanes, width = c->shape.nv * lanes, words = rounded_up(key_words(c->shape.n), WORDS);
    char *p = operand_place(c, (size_t)(words * width) * 4);
    for (int j = 0; j < 2 * words; j++)
        for (int r = 0; r < width; r++) {
            const int end = ends[r / lanes];
            float x = draw_number(c);
            if (j >= rounded_up(end, PAIRED))
                x = NAN;
            else if (j >= end)
                x = 0;
            else if (!mask_sees(mask, j, r))
                x = rng_percent(c->rng, 50) ? 0.0f : widened(9);
            dtype_store(ATTN_BF16, p, (j / 2 * width + r) * 2 + j % 2, x);
        }
    return (float *)(void *)p;
}

/** Sums to go on from, with NaN in the rows behind the last channel. */
static float *draw_sums(const struct tile_case *c)
{
    const int width = c->shape.nv * c->set->lanes;
    const int64_t channels = rounded_up(c->shape.d, ROWS);
    float *o = operand_place(c, (size_t)(channels * width) * 4);
    for (int64_t i = 0; i < channels * width; i++)
        o[i] = i < c->shape.d * width ? draw_number(c) : NAN;
    return o;
}

static enum attn_accumulate draw_mode(const struct tile_case *c)
{
    return c->shape.plain ? ACCUMULATE_ADD : (enum attn_accumulate)rng_range(c->rng, 0, 2);
}

/** The sum of channel i in a lane: products of the groups that its vector sees; finite: without what of V is not. */
static float sum_of(const struct tile_case *c, const struct attn_value_operands *x, const struct pieces *v, int end,
                    int64_t i, int r, const float *before, int finite)
{
    const int width = c->shape.nv * c->set->lanes;
    float sum = x->mode == ACCUMULATE_FIRST ? 0.0f : before[i * width + r];
    if (x->mode == ACCUMULATE_RESCALE)
        sum *= x->alpha[r];
    for (int j = 0; j < rounded_up(end, PAIRED); j += PAIRED) {
        uint16_t row[PAIRED], column[PAIRED];
        memcpy(row, piece_element(v, j, i), sizeof row);
        gather(x->p + j / 2 * width, width, r, WORDS, column);
        for (int k = 0; k < PAIRED; k++)
            if (finite && !isfinite(widened(row[k])))
                row[k] = 0;
        sum = product(row, column, sum);
    }
    return sum;
}

static void check_values(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int lanes = c->set->lanes, width = c->shape.nv * lanes;
    const struct attn_tile_mask mask = {.kind = MASK_NONE};
    const int *keys = draw_ends(c, c->shape.n);
    int *ends = operand_place(c, (size_t)c->shape.nv * sizeof *ends);
    for (int v = 0; v < c->shape.nv; v++)
        ends[v] = key_words(keys[v]);
    const struct pieces v = draw_pieces(c, c->shape.n, 0.0f, NAN);
    const struct attn_value_operands x = {.p = draw_weights(c, keys, &mask),
                                          .v = v.at,
                                          .v_stride = v.stride,
                                          .dv = c->shape.d,
                                          .ends = ends,
                                          .o = draw_sums(c),
                                          .mode = draw_mode(c),
                                          .alpha = operand_floats(c, width)};
    TIME_IF_WANTED(c, kernels->values(c->shape.nv, &x));
    const float *before = operand_copy(x.o, (size_t)(c->shape.d * width) * 4);
    kernels->values(c->shape.nv, &x);
    for (int64_t i = 0; i < c->shape.d; i++)
        for (int r = 0; r < width; r++)
            expect_float(c, "o", i, r, x.o[i * width + r], sum_of(c, &x, &v, keys[r / lanes], i, r, before, 0));
}

static void check_finite(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, words = key_words(n);
    const struct pieces v = draw_pieces(c, n, 0.0f, 0.0f);
    volatile int kept = 0;
    TIME_IF_WANTED(c, kept = kernels->finite(v.at, v.stride, words, c->shape.d));
    (void)kept;
    if (rng_percent(c->rng, 70)) { /* one number at most that is not finite, at any place */
        for (int j = 0; j < n; j++)
            for (int64_t i = 0; i < c->shape.d; i++)
                dtype_store(ATTN_BF16, piece_element(&v, j, i), 0, rng_normal(c->rng) * 1e37f);
        if (rng_percent(c->rng, 70))
            dtype_store(ATTN_BF16,
                        piece_element(&v, (int)rng_range(c->rng, 0, n - 1), rng_range(c->rng, 0, c->shape.d - 1)), 0,
                        rng_percent(c->rng, 50) ? NAN : -INFINITY);
    }
    int finite = 1;
    for (int j = 0; j < n; j++)
        for (int64_t i = 0; i < c->shape.d; i++)
            finite &= isfinite(piece_value(&v, j, i)) != 0;
    expect_word(c, "finite", 0, 0, kernels->finite(v.at, v.stride, words, c->shape.d) != 0, (uint32_t)finite);
}

/** Behind the keys of a run there may be others of its last group; they have no weights, but may be anything. */
static void check_values_seen(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, lanes = c->set->lanes, width = c->shape.nv * lanes;
    struct attn_tile_mask mask = draw_mask(c);
    if (mask.kind == MASK_DIAGONAL && mask.diagonal < 1 - width) /* some lane sees a key */
        mask.diagonal = 1 - width;
    int *ends = operand_place(c, (size_t)c->shape.nv * sizeof *ends); /* in keys */
    for (int v = 0; v < c->shape.nv; v++)
        ends[v] = mask.kind == MASK_DIAGONAL ? attn_visible_before(mask.diagonal, (v + 1) * lanes, n) : n;
    const struct pieces v = draw_pieces(c, n, rng_percent(c->rng, 50) ? NAN : 1.0f, NAN);
    const struct attn_value_operands x = {.p = draw_weights(c, ends, &mask),
                                          .v = v.at,
                                          .v_stride = v.stride,
                                          .dv = c->shape.d,
                                          .ends = ends,
                                          .o = draw_sums(c),
                                          .mode = draw_mode(c),
                                          .alpha = operand_floats(c, width)};
    TIME_IF_WANTED(c, kernels->values_seen(c->shape.nv, &mask, &x, n));
    const float *before = operand_copy(x.o, (size_t)(c->shape.d * width) * 4);
    kernels->values_seen(c->shape.nv, &mask, &x, n);
    for (int64_t i = 0; i < c->shape.d; i++)
        for (int r = 0; r < width; r++) {
            float sum = sum_of(c, &x, &v, ends[r / lanes], i, r, before, 1);
            for (int j = 0; j < n; j++) {
                if (isfinite(piece_value(&v, j, i)) || !mask_sees(&mask, j, r))
                    continue;
                uint16_t value[2] = {0, 0}, weight[2];
                memcpy(&value[j % 2], piece_element(&v, j, i), 2);
                memcpy(weight, x.p + j / 2 * width + r, sizeof weight);
                weight[1 - j % 2] = 0;
                sum = dot_of(c->set, 2, value, weight, sum);
            }
            expect_float(c, "o", i, r, x.o[i * width + r], sum);
        }
}

#define ROW(name, needed, called)                                                                                      \
    {                                                                                                                  \
        name, HAS_MATRIX | (needed), &(const struct tile_row)                                                          \
        {                                                                                                              \
            called                                                                                                     \
        }                                                                                                              \
    }

static const struct row rows[] = {
    ROW("matrix_enter", 0, check_enter),
    ROW("matrix_leave", 0, check_leave),
    ROW("matrix_load", 0, check_load),
    ROW("matrix_stream", 0, check_stream),
    ROW("matrix_store", 0, check_store),
    ROW("matrix_zero", 0, check_zero),
    ROW("matrix_dot_bf16", 0, check_dot),
    ROW("matrix_dot_int8", HAS_MATRIX_INT8, check_dot_int8),
    ROW("exp2_table", HAS_TABLE, check_table),
    ROW("exp2_table_pair", HAS_TABLE, check_table_pair),
    ROW("scores", HAS_SCORES, check_scores),
    ROW("pack_values", HAS_VALUES, check_pack_values),
    ROW("weights", HAS_VALUES | HAS_TABLE, check_weights),
    ROW("values", HAS_VALUES, check_values),
    ROW("finite", HAS_VALUES, check_finite),
    ROW("values_seen", HAS_VALUES, check_values_seen),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    if (row->needs & HAS_SCORES)
        return set->kernels->scores->scores != NULL;
    if (row->needs & HAS_VALUES) {
        const struct attn_value_kernels *k = set->kernels->values;
        return k->pack_values && k->weights && k->values && k->finite && k->values_seen;
    }
    for (size_t i = 0; i < set->num_operations; i++)
        if (strcmp(set->operations[i].name, row->name) == 0)
            return 1;
    return 0;
}

const struct group group_matrix = {
    .name = "matrix_kernels",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
