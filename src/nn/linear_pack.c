/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the weights of a linear layer are packed.
 *
 * The outputs of a part are cut into panels of as many as the register tile has
 * lanes; a panel is stored word by word, [words of inputs][lanes], so that a kernel
 * reads its weights from front to back. The last panel of a part has only the
 * vectors that it needs, the lanes behind the last output are 0, and so is what the last words hold behind the last
 * input. The panels of a part lie behind each other. Scales lie apart, in the same order.
 *
 * A model is opened as fast as this goes, so rows are read in pieces that stay in L1, and threads share the panels.
 */
#include "driver/ranges.h"
#include "nn/check.h"
#include "nn/linear_layer.h"
#include "simd/half.h"

#include <math.h>
#include <string.h>

/** Inputs that are read at once, so that the rows of a panel stay in L1; a multiple of what a word has. */
#define PIECE 64

/** Elementary operations that a weight costs, about. */
#define PACK_COST 4.0

/* ------------------------------------------------------------------- scales -- */

/** The smallest bf16 that is not less than a positive finite size, as a float. */
static float bf16_above(double size)
{
    float x = (float)size;
    if ((double)x < size)
        x = nextafterf(x, INFINITY);
    uint32_t bits = half_to_bits(x);
    bits = (bits + 0xffffu) & 0xffff0000u;
    return half_from_bits(bits);
}

/**
 * The scale of some inputs of an output. All integers of the range are used: -127 to 127, and of -8 to 7 the end that
 * is further away for the sign whose numbers are larger, so a scale may be negative.
 */
static float scale_of(const attn_tensor *weight, int64_t row, int64_t first, int64_t end, attn_weight_format format,
                      int grouped)
{
    float piece[PIECE], highest = 0, lowest = 0;
    for (int64_t c = first; c < end; c += PIECE) {
        const int64_t n = end - c < PIECE ? end - c : PIECE;
        nn_read_weights(weight, row, c, n, piece);
        for (int64_t i = 0; i < n; i++) {
            highest = highest > piece[i] ? highest : piece[i];
            lowest = lowest < piece[i] ? lowest : piece[i];
        }
    }
    const double above = (double)highest, below = -(double)lowest, size = fmax(above, below);
    if (size == 0)
        return 0;
    if (format == ATTN_WEIGHTS_INT8 && !grouped)
        return fmaxf((float)(size / 127), 0x1p-149f);
    if (format == ATTN_WEIGHTS_INT8)
        return bf16_above(size / 127);
    const double up = fmax(above / 7, below / 8), down = fmax(above / 8, below / 7);
    return up <= down ? bf16_above(up) : -bf16_above(down);
}

/** The integer that is nearest to a weight, ties to even. */
static int integer_of(double weight, float scale, int least, int most)
{
    const double shift = 0x1.8p52; /* leaves no bits behind the point */
    const int nearest = scale != 0 ? (int)(weight / (double)scale + shift - shift) : 0;
    return nearest < least ? least : nearest > most ? most : nearest;
}

/* ------------------------------------------------------------------ packing -- */

/** What the words of some outputs of a part are made from. */
struct packing {
    const struct attn_linear *linear;
    const struct linear_part *part;
    const attn_tensor *weight;
    attn_weight_format format;
    int64_t first, live, width; /* outputs of the panel */
    char *scale;                /* of the panel */
};

/** The scale of output o of the panel for input c. */
static float scale_at(const struct packing *k, int64_t o, int64_t c)
{
    if (!k->linear->group) {
        float scale;
        memcpy(&scale, k->scale + o * (int64_t)sizeof scale, sizeof scale);
        return scale;
    }
    uint16_t scale;
    memcpy(&scale, k->scale + (c / k->linear->group * k->width + o) * (int64_t)sizeof scale, sizeof scale);
    return bf16_to_f32(scale);
}

static void pack_scales(const struct packing *k)
{
    const int64_t group = k->linear->group, inputs = k->linear->inputs, span = group ? group : inputs;
    int64_t c = 0;
    char *to = k->scale;
    do {
        const int64_t end = inputs - c < span ? inputs : c + span;
        for (int64_t o = 0; o < k->width; o++) {
            const float scale = o < k->live ? scale_of(k->weight, k->first + o, c, end, k->format, group != 0) : 0;
            const uint16_t half = (uint16_t)(half_to_bits(scale) >> 16);
            memcpy(to, group ? (const void *)&half : &scale, group ? sizeof half : sizeof scale);
            to += group ? sizeof half : sizeof scale;
        }
        c = end;
    } while (c < inputs);
}

/** The word of output o that begins with input c, of the weights from there on. */
static uint32_t word_of(const struct packing *k, int64_t o, int64_t c, const float *weights)
{
    const enum nn_panel kind = k->part->kind;
    const int unit = nn_panel_inputs(kind);
    const float scale = k->scale && o < k->live ? scale_at(k, o, c) : 0; /* words do not cross groups */
    uint32_t word = 0;
    for (int i = 0; i < unit; i++) {
        switch (kind) {
        case NN_PANEL_PAIRS:
            word |= (uint32_t)bf16_from_f32(weights[i]) << 16 * i;
            break;
        case NN_PANEL_INT8:
        case NN_PANEL_QUADS: {
            const int offset = kind == NN_PANEL_QUADS ? k->linear->products.extend->int8_offset : 0;
            const int w = integer_of((double)weights[i], scale, -127, 127);
            word |= (uint32_t)(uint8_t)(w + offset) << 8 * i;
            break;
        }
        case NN_PANEL_NIBBLES: {
            const int w = integer_of((double)weights[i], scale, -8, 7);
            word |= (uint32_t)(w + 8) << (8 * (i & 3) + (i & 4));
            break;
        }
        default:
            word = half_to_bits(weights[i]);
        }
    }
    return word;
}

/** n inputs of output o from the first on, to the words of that output, the first of which is at to. */
static void pack_piece(const struct packing *k, int64_t o, int64_t first, int64_t n, char *to)
{
    const enum nn_panel kind = k->part->kind;
    const int unit = nn_panel_inputs(kind);
    const size_t size = (size_t)nn_panel_word(kind);
    float weights[PIECE] = {0};
    if (o < k->live && kind != NN_PANEL_F16)
        nn_read_weights(k->weight, k->first + o, first, n, weights);
    for (int64_t i = 0; i < n; i += unit, to += (size_t)k->width * size) {
        if (kind == NN_PANEL_F32) {
            memcpy(to, &weights[i], size);
        } else if (kind == NN_PANEL_F16) { /* as it came, which a signalling NaN would not survive otherwise */
            const uint16_t zero = 0;
            memcpy(to, o < k->live ? nn_weight_address(k->weight, k->first + o, first + i) : &zero, size);
        } else {
            const uint32_t word = word_of(k, o, first + i, weights + i);
            const uint8_t byte = (uint8_t)word;
            memcpy(to, kind == NN_PANEL_INT8 ? (const void *)&byte : &word, size);
        }
    }
}

static void pack_panel(const struct packing *k, char *to)
{
    const enum nn_panel kind = k->part->kind;
    const size_t size = (size_t)nn_panel_word(kind);
    const int64_t inputs = k->linear->inputs;
    for (int64_t c = 0; c < inputs; c += PIECE) {
        const int64_t n = inputs - c < PIECE ? inputs - c : PIECE;
        char *words = to + (size_t)(c / nn_panel_inputs(kind) * k->width) * size;
        for (int64_t o = 0; o < k->width; o++)
            pack_piece(k, o, c, n, words + (size_t)o * size);
    }
}

/** Panels of a part, begun for all of them. */
static void pack_panels(const void *context, int64_t first, int64_t end)
{
    struct packing k = *(const struct packing *)context;
    const struct attn_linear *linear = k.linear;
    for (int64_t panel = first; panel < end; panel++) {
        k.first = panel * linear->panel_outputs;
        const int64_t left = k.part->outputs - k.first;
        k.live = left < linear->panel_outputs ? left : linear->panel_outputs;
        k.width = nn_rounded_up(k.live, linear->products.base->lanes);
        if (k.part->scale) {
            k.scale = k.part->scale + k.first * nn_scale_column(linear);
            pack_scales(&k);
        }
        pack_panel(&k, k.part->weights + k.first * nn_panel_column(linear, k.part));
    }
}

void nn_linear_pack(const struct attn_linear *linear, const struct linear_part *part, const attn_tensor *weight,
                    const attn_tensor *bias, attn_weight_format format)
{
    const struct packing k = {.linear = linear, .part = part, .weight = weight, .format = format};
    const double weights = (double)part->outputs * (double)linear->inputs;
    attn_run_ranges(part->panels, nn_threads(0, weights * PACK_COST), pack_panels, &k);
    for (int64_t o = 0; o < part->panels * linear->panel_outputs; o++)
        part->bias[o] = bias && o < part->outputs ? nn_weight_at(bias, 0, o) : 0.0f;
}
