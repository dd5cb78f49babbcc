/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of matrix_*.h: registers that are entered, left, moved and
 * multiplied, under modes of the caller's that must neither matter nor change.
 */
#include "matrix.h"
#include "operations.h"

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

/** Runs an operation, or times it; with modes of the caller's that must neither matter nor change. */
static void run_operation(const struct tile_case *c, const char *name, const struct call *call)
{
    TIME_IF_WANTED(c, call_operation(c->set, name, call));
    const unsigned modes = draw_modes(c);
#if defined(__x86_64__)
    const unsigned kept = _mm_getcsr();
    _mm_setcsr(modes);
    call_operation(c->set, name, call);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(kept);
    expect_word(c, "MXCSR without its flags", 0, 0, after & ~0x3fu, modes);
#else
    (void)modes;
    call_operation(c->set, name, call);
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
        call_operation(c->set, "matrix_leave", &(struct call){.set = c->set, .n = 1});
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

static const struct row rows[] = {
    TILE_ROW("matrix_enter", HAS_MATRIX, check_enter),
    TILE_ROW("matrix_leave", HAS_MATRIX, check_leave),
    TILE_ROW("matrix_load", HAS_MATRIX, check_load),
    TILE_ROW("matrix_stream", HAS_MATRIX, check_stream),
    TILE_ROW("matrix_store", HAS_MATRIX, check_store),
    TILE_ROW("matrix_zero", HAS_MATRIX, check_zero),
    TILE_ROW("matrix_dot_bf16", HAS_MATRIX, check_dot),
    TILE_ROW("matrix_dot_int8", HAS_MATRIX | HAS_MATRIX_INT8, check_dot_int8),
};

const struct group group_matrix_operations = {
    .name = "matrix_operations",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = operation_has_code,
    .check = check_tiles,
    .time = time_tile,
};
