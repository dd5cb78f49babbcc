/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feature maps, averages and both directions of linear attention: the recurrence on
 * features in double, and bits that do not depend on threads, batch and cuts.
 *
 * Where the library may not look, behind the lengths, stand NaN. Positive features of
 * a key are no more than e^60, which keys that lie on a row of the projection reach;
 * those of a query may have any factor in common.
 */
#include "properties.h"

#include "dtype.h"

#include "attn/linear_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 80, MOST_ROWS = 200 };

/** A call, with memory of its own. */
struct feature_call {
    attn_tensor q, k, v, out, decay, resets, projection, state_in, state_out;
    int64_t lengths[4], offsets[4];
    attn_linear_attention_params params; /**< points to these */
};

static attn_tensor new_tensor(attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    attn_tensor x = attn_bhtd(calloc((size_t)(b * h * t * c) + 1, sizeof(float)), b, h, t, c);
    x.dtype = dtype;
    if (!x.data)
        abort();
    return x;
}

static void fill(const attn_tensor *x, struct rng *rng, float size)
{
    for (int64_t i = 0; i < x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]; i++)
        dtype_store(x->dtype, x->data, i, size * rng_normal(rng));
}

static float number(const attn_tensor *x, int64_t b, int64_t h, int64_t t, int64_t c)
{
    return dtype_load(x->dtype, x->data,
                      (x->shape[0] > 1 ? b * x->stride[0] : 0) + (x->shape[1] > 1 ? h * x->stride[1] : 0) +
                          t * x->stride[2] + c);
}

static void free_call(struct feature_call *c)
{
    attn_tensor *const all[] = {&c->q,      &c->k,          &c->v,        &c->out,      &c->decay,
                                &c->resets, &c->projection, &c->state_in, &c->state_out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->data);
}

/** Points the options to the tensors that there are. */
static void attach(struct feature_call *c)
{
    attn_linear_attention_params *p = &c->params;
    p->decay = c->decay.data ? &c->decay : NULL;
    p->resets = c->resets.data ? &c->resets : NULL;
    p->projection = c->projection.data ? &c->projection : NULL;
    p->state_in = c->state_in.data ? &c->state_in : NULL;
    p->state_out = &c->state_out;
    p->lengths = p->lengths ? c->lengths : NULL;
    p->cu_seqlens = p->cu_seqlens ? c->offsets : NULL;
}

static int is_positive(const struct feature_call *c)
{
    return c->params.map == ATTN_FEATURES_POSITIVE;
}

/** Tokens behind the lengths hold NaN. */
static void spoil(struct feature_call *c)
{
    attn_tensor *const rows[] = {&c->q, &c->k, &c->v, &c->decay};
    for (int i = 0; i < 4; i++)
        for (int64_t b = 0; rows[i]->data && b < rows[i]->shape[0]; b++)
            for (int64_t h = 0; h < rows[i]->shape[1]; h++)
                for (int64_t t = c->lengths[b]; t < rows[i]->shape[2]; t++)
                    for (int64_t e = 0; e < rows[i]->shape[3]; e++)
                        dtype_store(rows[i]->dtype, rows[i]->data,
                                    b * rows[i]->stride[0] + h * rows[i]->stride[1] + t * rows[i]->stride[2] + e, NAN);
}

static void draw_options(struct feature_call *c, struct rng *rng, int64_t states)
{
    attn_linear_attention_params *p = &c->params;
    const int64_t b = c->q.shape[0], t = c->q.shape[2];
    if (!p->bidirectional && rng_percent(rng, 40)) {
        c->decay = new_tensor(ATTN_F32, b, c->v.shape[1], t, 1);
        for (int64_t i = 0; i < b * c->v.shape[1] * t; i++)
            ((float *)c->decay.data)[i] = rng_percent(rng, 3) ? -INFINITY : -0.2f * (float)rng_uniform(rng);
    }
    if (rng_percent(rng, 40)) {
        c->resets = new_tensor(ATTN_BOOL, b, 1, t, 1);
        for (int64_t i = 0; i < b * t; i++)
            ((uint8_t *)c->resets.data)[i] = rng_percent(rng, 2) != 0;
    }
    if (p->cu_seqlens == NULL && rng_percent(rng, 40)) {
        for (int64_t i = 0; i < b; i++)
            c->lengths[i] = rng_range(rng, 0, t);
        p->lengths = c->lengths;
        spoil(c);
    }
    const int64_t rows = is_positive(c) ? c->projection.shape[2] : c->k.shape[3];
    const int64_t columns = c->v.shape[3] + (p->normalise != 0);
    if (rng_percent(rng, 60)) {
        c->state_in = new_tensor(ATTN_F32, states, c->v.shape[1], rows, columns);
        for (int64_t i = 0; i < states * c->v.shape[1] * rows * columns; i++) /* sums of positive numbers */
            ((float *)c->state_in.data)[i] = fabsf(rng_normal(rng));
    }
    c->state_out = new_tensor(ATTN_F32, states, c->v.shape[1], rows, columns);
    attach(c);
}

static void draw(struct feature_call *c, struct rng *rng, const char *isa)
{
    attn_linear_attention_params *p = &c->params;
    const int64_t b = rng_range(rng, 1, 3), heads = rng_range(rng, 1, 3), readers = rng_range(rng, 1, 2);
    const int64_t t = RNG_PICK(rng, 0, 1, 7, 8, 9, 40, 63, 64, 65, 130, 200);
    memset(c, 0, sizeof *c);
    *p = attn_linear_attention_params_default();
    p->map = (attn_feature_map)rng_range(rng, 0, 2);
    p->normalise = is_positive(c) || rng_percent(rng, 60);
    p->bidirectional = rng_percent(rng, 50);
    p->isa = isa;
    p->num_threads = (int)rng_range(rng, 1, 4);
    const int64_t dk = is_positive(c) && rng_percent(rng, 10) ? 200 : RNG_PICK(rng, 1, 3, 16, 17, 32, 64);
    const int64_t dv = RNG_PICK(rng, 1, 5, 15, 16, 31, 64, 70);
    const attn_dtype type = rng_percent(rng, 70) ? ATTN_F32 : rng_percent(rng, 50) ? ATTN_BF16 : ATTN_F16;
    const int64_t batch = rng_percent(rng, 20) ? 1 : b;
    c->q = new_tensor(type, batch, heads * readers, t, dk), c->k = new_tensor(type, batch, heads, t, dk);
    c->v = new_tensor(type, batch, heads, t, dv), c->out = new_tensor(type, batch, heads * readers, t, dv);
    fill(&c->q, rng, 0.7f), fill(&c->k, rng, 0.7f), fill(&c->v, rng, 1.0f);
    if (p->map == ATTN_FEATURES_NONE && p->normalise) /* weights that can be averaged with */
        for (int side = 0; side < 2; side++) {
            const attn_tensor *x = side ? &c->k : &c->q;
            for (int64_t i = 0; i < x->shape[0] * x->shape[1] * t * dk; i++)
                dtype_store(type, x->data, i, fabsf(dtype_load(type, x->data, i)));
        }
    if (is_positive(c)) {
        c->projection = new_tensor(ATTN_F32, 1, rng_percent(rng, 50) ? heads : 1, RNG_PICK(rng, 1, 8, 33, 64, 128), dk);
        if (attn_draw_features(&c->projection, 5, rng_bits(rng)) != ATTN_OK)
            abort();
        p->scale = rng_percent(rng, 50) ? 0.0f : 0.3f;
    }
    if (dk == 200 && t > 3 && rng_percent(rng, 50)) /* a key at which a feature would be e^100 */
        for (int64_t e = 0; e < dk; e++) {
            const double scale = p->scale != 0.0f ? (double)p->scale : 1 / sqrt((double)dk);
            dtype_store(type, c->k.data, 3 * dk + e, (float)((double)number(&c->projection, 0, 0, 0, e) / sqrt(scale)));
        }
    int64_t states = batch;
    if (batch == 1 && rng_percent(rng, 40)) {
        states = 3;
        c->offsets[1] = rng_range(rng, 0, t), c->offsets[2] = rng_range(rng, c->offsets[1], t);
        c->offsets[3] = rng_range(rng, c->offsets[2], t);
        p->cu_seqlens = c->offsets;
        p->num_sequences = states;
    }
    draw_options(c, rng, states);
}

static int run(const struct feature_call *c)
{
    if (attn_linear_attention(&c->q, &c->k, &c->v, &c->out, &c->params) == ATTN_OK)
        return 1;
    printf("  %s\n", attn_last_error());
    return 0;
}

/* ----------------------------------------------------------------- reference -- */

/** Features of a row of q, or of k; returns how many. */
static int64_t features(const struct feature_call *c, const attn_tensor *x, int64_t b, int64_t h, int64_t t, int keys,
                        int64_t state_head, double *f)
{
    const int64_t dk = x->shape[3];
    for (int64_t e = 0; e < dk && !is_positive(c); e++) {
        const double y = (double)number(x, b, h, t, e);
        f[e] = c->params.map == ATTN_FEATURES_NONE ? y : y > 0 ? y + 1 : exp(y);
    }
    if (!is_positive(c))
        return dk;
    const double scale = c->params.scale != 0.0f ? (double)c->params.scale : 1 / sqrt((double)dk);
    for (int64_t r = 0; r < c->projection.shape[2]; r++) {
        double product = 0, square = 0;
        for (int64_t e = 0; e < dk; e++) {
            const double y = (double)number(x, b, h, t, e), w = (double)number(&c->projection, 0, state_head, r, e);
            product += w * y, square += y * y;
        }
        const double exponent = sqrt(scale) * product - scale * square / 2;
        f[r] = exp(keys ? fmin(exponent, 60) : exponent);
    }
    return c->projection.shape[2];
}

/** S of one head: row by row, and what the sizes of its terms come to. */
struct state {
    double s[MOST_ROWS][MOST_COLUMNS + 1], size[MOST_ROWS][MOST_COLUMNS + 1];
};

static void write_token(const struct feature_call *c, struct state *s, int64_t b, int64_t h, int64_t t)
{
    const int64_t dv = c->v.shape[3];
    const double decay = c->decay.data ? exp((double)number(&c->decay, b, h, t, 0)) : 1;
    double f[MOST_ROWS];
    const int64_t rows = features(c, &c->k, b, h, t, 1, h, f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e <= dv; e++) {
            const double v = e < dv ? (double)number(&c->v, b, h, t, e) : 1;
            s->s[r][e] = decay * s->s[r][e] + f[r] * v;
            s->size[r][e] = decay * s->size[r][e] + fabs(f[r] * v);
        }
}

/** How far a result of this type may be from what is exactly so large. */
static double allowed(const struct feature_call *c, double expected, double size)
{
    const double f32 = is_positive(c) ? 1e-4 : 1e-5;
    const double rounding = c->out.dtype == ATTN_BF16 ? 0x1p-8 : c->out.dtype == ATTN_F16 ? 0x1p-11 : 0;
    return f32 * size + rounding * fabs(expected) + (c->out.dtype == ATTN_F16 ? 1e-7 : 1e-30);
}

static int token_is_right(const struct feature_call *c, const struct state *s, int64_t b, int64_t head, int64_t t)
{
    const int64_t h = head / (c->q.shape[1] / c->v.shape[1]), dv = c->v.shape[3];
    const double scale = c->params.normalise ? 1 : 1 / sqrt((double)c->q.shape[3]);
    double f[MOST_ROWS], sum[MOST_COLUMNS + 1] = {0}, size[MOST_COLUMNS + 1] = {0};
    const int64_t rows = features(c, &c->q, b, head, t, 0, h, f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e <= dv; e++) {
            sum[e] += f[r] * s->s[r][e];
            size[e] += fabs(f[r]) * s->size[r][e];
        }
    const double divisor = c->params.normalise ? sum[dv] : 1 / scale;
    if (divisor < 1e-36) /* nothing of it is known in f32 */
        return 1;
    for (int64_t e = 0; e < dv; e++) {
        const double expected = sum[e] / divisor, bound = size[e] / divisor;
        const double got = (double)number(&c->out, b, head, t, e);
        if (fabs(got - expected) <= allowed(c, expected, bound))
            continue;
        printf("  out[%d,%d,%d,%d] is %.9g, expected %.9g\n", (int)b, (int)head, (int)t, (int)e, got, expected);
        return 0;
    }
    return 1;
}

static int is_reset(const struct feature_call *c, int64_t b, int64_t t)
{
    return c->resets.data && ((const uint8_t *)c->resets.data)[b * c->resets.stride[0] + t];
}

/** A sequence, tokens first..end-1 of batch element b, and a head of its states. */
static int head_is_right(const struct feature_call *c, int64_t sequence, int64_t b, int64_t first, int64_t end,
                         int64_t h)
{
    static struct state s;
    const int64_t per_state = c->q.shape[1] / c->v.shape[1], rows = c->state_out.shape[2];
    const int64_t columns = c->state_out.shape[3];
    memset(&s, 0, sizeof s);
    for (int64_t r = 0; r < rows && c->state_in.data; r++)
        for (int64_t e = 0; e < columns; e++)
            s.s[r][e] = s.size[r][e] = (double)number(&c->state_in, sequence, h, r, e);
    for (int64_t t = first; t < end;) {
        int64_t behind = t + 1; /* of the tokens that are read when all of them have written */
        if (is_reset(c, b, t))
            memset(&s, 0, sizeof s);
        while (c->params.bidirectional && behind < end && !is_reset(c, b, behind))
            behind++;
        for (int64_t i = t; i < behind; i++)
            write_token(c, &s, b, h, i);
        for (; t < behind; t++)
            for (int64_t n = 0; n < per_state; n++)
                if (!token_is_right(c, &s, b, h * per_state + n, t))
                    return 0;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e < columns; e++) {
            const double got = (double)number(&c->state_out, sequence, h, r, e);
            if (fabs(got - s.s[r][e]) <= (is_positive(c) ? 1e-4 : 1e-5) * s.size[r][e] + 1e-30)
                continue;
            printf("  state_out[%d,%d,%d,%d] is %.9g, expected %.9g\n", (int)sequence, (int)h, (int)r, (int)e, got,
                   s.s[r][e]);
            return 0;
        }
    return 1;
}

/** Rows of out from a token on are 0. */
static int rest_is_clear(const struct feature_call *c, int64_t b, int64_t from)
{
    for (int64_t h = 0; h < c->out.shape[1]; h++)
        for (int64_t t = from; t < c->out.shape[2]; t++)
            for (int64_t e = 0; e < c->out.shape[3]; e++)
                if (number(&c->out, b, h, t, e) != 0.0f) {
                    printf("  out[%d,%d,%d,%d] behind the tokens is not 0\n", (int)b, (int)h, (int)t, (int)e);
                    return 0;
                }
    return 1;
}

/* ---------------------------------------------------------------- properties -- */

static int like_formula(struct rng *rng, const char *isa)
{
    struct feature_call c;
    draw(&c, rng, isa);
    memset(c.out.data, 0xff, (size_t)(c.out.shape[0] * c.out.stride[0]) * attn_dtype_size(c.out.dtype));
    const attn_linear_attention_params *p = &c.params;
    const int64_t sequences = p->cu_seqlens ? p->num_sequences : c.q.shape[0];
    int right = run(&c);
    for (int64_t s = 0; s < sequences && right; s++) {
        const int64_t b = p->cu_seqlens ? 0 : s, first = p->cu_seqlens ? c.offsets[s] : 0;
        const int64_t end = p->cu_seqlens ? c.offsets[s + 1] : p->lengths ? c.lengths[s] : c.q.shape[2];
        for (int64_t h = 0; h < c.v.shape[1] && right; h++)
            right = head_is_right(&c, s, b, first, end, h);
        if (right && !p->cu_seqlens)
            right = rest_is_clear(&c, b, end);
    }
    if (right && p->cu_seqlens)
        right = rest_is_clear(&c, 0, c.offsets[sequences]);
    free_call(&c);
    return right;
}

/** Takes a copy of the outputs. */
static char *outputs_of(const struct feature_call *c, size_t *size)
{
    const size_t out = (size_t)(c->out.shape[0] * c->out.stride[0]) * attn_dtype_size(c->out.dtype);
    const size_t state = (size_t)(c->state_out.shape[0] * c->state_out.stride[0]) * sizeof(float);
    char *copy = malloc(out + state + 1);
    if (!copy)
        abort();
    memcpy(copy, c->out.data, out);
    memcpy(copy + out, c->state_out.data, state);
    *size = out + state;
    return copy;
}

static int any_threads(struct rng *rng, const char *isa)
{
    struct feature_call c;
    size_t size;
    draw(&c, rng, isa);
    c.params.num_threads = 1;
    int same = run(&c);
    char *const expected = outputs_of(&c, &size);
    for (int threads = 2; threads <= 7 && same; threads++) {
        c.params.num_threads = threads;
        memset(c.out.data, 0x7f, (size_t)(c.out.shape[0] * c.out.stride[0]) * attn_dtype_size(c.out.dtype));
        same = run(&c);
        char *const got = outputs_of(&c, &size);
        same = same && memcmp(got, expected, size) == 0;
        if (!same)
            printf("  %d threads have other bits\n", threads);
        free(got);
    }
    free(expected);
    free_call(&c);
    return same;
}

/** The call of tokens first..first+n-1: views of the same memory. */
static struct feature_call tokens_of(const struct feature_call *c, int64_t first, int64_t n)
{
    struct feature_call part = *c;
    attn_tensor *const tensors[] = {&part.q, &part.k, &part.v, &part.out, &part.decay, &part.resets};
    for (int i = 0; i < 6; i++) {
        if (!tensors[i]->data)
            continue;
        tensors[i]->data =
            (char *)tensors[i]->data + first * tensors[i]->stride[2] * (int64_t)attn_dtype_size(tensors[i]->dtype);
        tensors[i]->shape[2] = n;
    }
    return part;
}

/** The second part of a causal call, from the state that the first part has left. */
static int cut_at_chunks(struct rng *rng, const char *isa)
{
    struct feature_call c;
    for (;; free_call(&c)) {
        draw(&c, rng, isa);
        if (c.q.shape[2] > 64 && !c.params.bidirectional && !c.params.cu_seqlens && !c.params.lengths &&
            !c.params.resets) /* from which chunks are counted, too */
            break;
    }
    size_t size;
    int same = run(&c);
    char *const whole = outputs_of(&c, &size);
    const int64_t cut = 64 * rng_range(rng, 1, (c.q.shape[2] - 1) / 64);
    memset(c.out.data, 0x7f, (size_t)(c.out.shape[0] * c.out.stride[0]) * attn_dtype_size(c.out.dtype));
    struct feature_call first = tokens_of(&c, 0, cut), second = tokens_of(&c, cut, c.q.shape[2] - cut);
    attach(&first);
    second.state_in = second.state_out; /* in place */
    attach(&second);
    same = same && run(&first) && run(&second);
    char *const parts = outputs_of(&c, &size);
    same = same && memcmp(whole, parts, size) == 0;
    free(whole);
    free(parts);
    free_call(&c);
    return same;
}

/** Keys of nothing but 0 give no weight, and so 0. */
static int no_weight(struct rng *rng, const char *isa)
{
    struct feature_call c;
    for (;; free_call(&c)) {
        draw(&c, rng, isa);
        if (c.params.map == ATTN_FEATURES_NONE && c.params.normalise && !c.params.state_in && !c.params.lengths)
            break;
    }
    memset(c.k.data, 0, (size_t)(c.k.shape[0] * c.k.stride[0]) * attn_dtype_size(c.k.dtype));
    const int right = run(&c) && rest_is_clear(&c, 0, 0);
    free_call(&c);
    return right;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"like the formula", like_formula},
        {"threads change no bit", any_threads},
        {"a cut at chunks changes no bit", cut_at_chunks},
        {"keys without weight give 0", no_weight},
    };
    return properties_run(argc, argv, "test_linear_features", properties, sizeof properties / sizeof *properties);
}
