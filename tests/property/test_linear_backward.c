/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of linear attention with all options: differences of the recurrence in double, and bits that
 * do not depend on threads, workspaces and what else is in a call.
 *
 * The loss is the sum of out and of the states times numbers, which are their
 * gradients. Where the library may not look, behind the lengths, stand NaN.
 */
#include "properties.h"

#include "dtype.h"

#include "attn/linear_attention_backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 220, MOST_ROWS = 2 * 8 * 700 }; /* channels or features; rows of out */

/** What a call reads, then what it writes. */
enum slot { Q, K, V, DECAY, STATE_IN, INPUTS, D_OUT = INPUTS, D_STATE, OUT, PROJECTION, RESETS, SLOTS };

/** A call, with memory of its own. */
struct gradient_call {
    attn_tensor in[SLOTS], d[INPUTS]; /**< data NULL: not there, or not wanted */
    int64_t lengths[4], offsets[4], sequences;
    attn_linear_attention_params params; /**< points to these */
    attn_linear_attention_gradients gradients;
};

static int64_t count(const attn_tensor *x)
{
    return x->data ? x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3] : 0;
}

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
    for (int64_t i = 0; i < count(x); i++)
        dtype_store(x->dtype, x->data, i, size * rng_normal(rng));
}

static void make_positive(const attn_tensor *x)
{
    for (int64_t i = 0; i < count(x); i++)
        dtype_store(x->dtype, x->data, i, fabsf(dtype_load(x->dtype, x->data, i)) + 0.05f);
}

static void free_call(struct gradient_call *c)
{
    for (int i = 0; i < SLOTS; i++)
        free(c->in[i].data);
    for (int i = 0; i < INPUTS; i++)
        free(c->d[i].data);
}

static const attn_tensor *given(const attn_tensor *x)
{
    return x->data ? x : NULL;
}

/** Points the options to the tensors that there are. */
static void attach(struct gradient_call *c)
{
    attn_linear_attention_params *p = &c->params;
    p->decay = given(&c->in[DECAY]);
    p->resets = given(&c->in[RESETS]);
    p->projection = given(&c->in[PROJECTION]);
    p->state_in = given(&c->in[STATE_IN]);
    p->lengths = p->lengths ? c->lengths : NULL;
    p->cu_seqlens = p->cu_seqlens ? c->offsets : NULL;
    c->gradients = attn_linear_attention_gradients_default();
    c->gradients.out = &c->in[D_OUT];
    c->gradients.state_out = given(&c->in[D_STATE]);
    c->gradients.q = given(&c->d[Q]);
    c->gradients.k = given(&c->d[K]);
    c->gradients.v = given(&c->d[V]);
    c->gradients.decay = given(&c->d[DECAY]);
    c->gradients.state_in = given(&c->d[STATE_IN]);
}

static int is_positive(const struct gradient_call *c)
{
    return c->params.map == ATTN_FEATURES_POSITIVE;
}

/** Tokens behind the lengths hold NaN. */
static void spoil(struct gradient_call *c)
{
    static const enum slot rows[] = {Q, K, V, D_OUT};
    for (int i = 0; i < 4; i++) {
        const attn_tensor *x = &c->in[rows[i]];
        for (int64_t at = 0; at < count(x); at++)
            if (at / x->shape[3] % x->shape[2] >= c->lengths[at / x->stride[0]])
                dtype_store(x->dtype, x->data, at, NAN);
    }
}

static void draw_decay(struct gradient_call *c, struct rng *rng)
{
    const attn_tensor *v = &c->in[V];
    const int64_t channels = is_positive(c) || rng_percent(rng, 50) ? 1 : c->in[Q].shape[3];
    c->in[DECAY] = new_tensor(ATTN_F32, rng_percent(rng, 20) ? 1 : v->shape[0], rng_percent(rng, 20) ? 1 : v->shape[1],
                              rng_percent(rng, 20) ? 1 : v->shape[2], channels);
    const float size = rng_percent(rng, 70) ? 0.2f : 3.0f;
    for (int64_t i = 0; i < count(&c->in[DECAY]); i++)
        ((float *)c->in[DECAY].data)[i] = rng_percent(rng, 3) ? -INFINITY : -size * (float)rng_uniform(rng);
}

static void draw_options(struct gradient_call *c, struct rng *rng)
{
    attn_linear_attention_params *p = &c->params;
    const int64_t b = c->in[Q].shape[0], t = c->in[Q].shape[2], heads = c->in[V].shape[1];
    if (!p->bidirectional && rng_percent(rng, 60))
        draw_decay(c, rng);
    if (rng_percent(rng, 40)) {
        c->in[RESETS] = new_tensor(ATTN_BOOL, b, rng_percent(rng, 50) ? heads : 1, t, 1);
        for (int64_t i = 0; i < count(&c->in[RESETS]); i++)
            ((uint8_t *)c->in[RESETS].data)[i] = rng_percent(rng, 4) != 0;
    }
    if (p->cu_seqlens == NULL && rng_percent(rng, 30)) {
        for (int64_t i = 0; i < b; i++)
            c->lengths[i] = rng_range(rng, 0, t);
        p->lengths = c->lengths;
        spoil(c);
    }
    const int64_t rows = is_positive(c) ? c->in[PROJECTION].shape[2] : c->in[K].shape[3];
    const int64_t columns = c->in[V].shape[3] + (p->normalise != 0);
    if (rng_percent(rng, 60)) {
        c->in[STATE_IN] = new_tensor(ATTN_F32, c->sequences, heads, rows, columns);
        fill(&c->in[STATE_IN], rng, 1);
        make_positive(&c->in[STATE_IN]);
    }
    if (c->in[Q].shape[3] < 200 && rng_percent(rng, 60)) { /* a state of e^60 would be all of the loss */
        c->in[D_STATE] = new_tensor(ATTN_F32, c->sequences, heads, rows, columns);
        fill(&c->in[D_STATE], rng, 1);
    }
}

/** Gradients of everything, or not of some of it; NaN is in them before. */
static void draw_wanted(struct gradient_call *c, struct rng *rng)
{
    for (int i = 0; i < INPUTS; i++) {
        const attn_tensor *x = &c->in[i];
        if (!x->data || rng_percent(rng, 15))
            continue;
        const attn_dtype dtype =
            i < STATE_IN && rng_percent(rng, 25) ? (attn_dtype)RNG_PICK(rng, ATTN_BF16, ATTN_F16) : ATTN_F32;
        c->d[i] = new_tensor(dtype, x->shape[0], x->shape[1], x->shape[2], x->shape[3]);
        memset(c->d[i].data, 0xff, (size_t)count(&c->d[i]) * attn_dtype_size(dtype));
    }
    attach(c);
}

/** The result that is divided by. */
static void compute_out(struct gradient_call *c)
{
    if (attn_linear_attention(&c->in[Q], &c->in[K], &c->in[V], &c->in[OUT], &c->params) == ATTN_OK)
        return;
    printf("  %s\n", attn_last_error());
    abort();
}

static void draw(struct gradient_call *c, struct rng *rng, const char *isa, int large)
{
    attn_linear_attention_params *p = &c->params;
    const int64_t heads = large ? 4 : RNG_PICK(rng, 1, 2, 4), kind = rng_range(rng, 0, 3);
    const int64_t q_heads = kind <= 1 ? heads : kind == 2 ? 2 * heads : heads > 1 ? heads / 2 : 1;
    const int64_t k_heads = heads > 1 && rng_percent(rng, 40) ? heads / 2 : heads,
                  out_heads = q_heads > heads ? q_heads : heads;
    const int64_t t = rng_percent(rng, 3) ? 700 : RNG_PICK(rng, 1, 5, 9, 17, 40, 63, 64, 65, 100, 130, 140);
    memset(c, 0, sizeof *c);
    *p = attn_linear_attention_params_default();
    p->map = (attn_feature_map)rng_range(rng, 0, 2);
    p->normalise = is_positive(c) || rng_percent(rng, 40);
    p->bidirectional = rng_percent(rng, 30);
    p->isa = isa;
    p->num_threads = (int)rng_range(rng, 1, 4);
    const int held = is_positive(c) && rng_percent(rng, 15);
    const int64_t dk = held ? 200 : large ? 48 : RNG_PICK(rng, 1, 3, 8, 16, 19, 33), batch = rng_range(rng, 1, 2);
    const int64_t dv = large ? 70 : RNG_PICK(rng, 1, 5, 16, 17, 33);
    const attn_dtype type = rng_percent(rng, 70) ? ATTN_F32 : rng_percent(rng, 50) ? ATTN_BF16 : ATTN_F16;
    c->in[Q] = new_tensor(type, batch, q_heads, t, dk), c->in[K] = new_tensor(type, batch, k_heads, t, dk);
    c->in[V] = new_tensor(type, batch, heads, t, dv), c->in[OUT] = new_tensor(ATTN_F32, batch, out_heads, t, dv);
    c->in[D_OUT] = new_tensor(type, batch, out_heads, t, dv);
    fill(&c->in[Q], rng, 0.7f), fill(&c->in[K], rng, 0.7f), fill(&c->in[V], rng, 1), fill(&c->in[D_OUT], rng, 1);
    if (p->map == ATTN_FEATURES_NONE && p->normalise) /* weights that can be averaged with */
        make_positive(&c->in[Q]), make_positive(&c->in[K]);
    if (is_positive(c)) {
        c->in[PROJECTION] =
            new_tensor(ATTN_F32, 1, rng_percent(rng, 50) ? heads : 1, RNG_PICK(rng, 1, 8, 20, 33, 70), dk);
        if (attn_draw_features(&c->in[PROJECTION], 5, rng_bits(rng)) != ATTN_OK)
            abort();
        p->scale = held || rng_percent(rng, 50) ? 0.0f : 0.3f;
    } else if (!p->normalise && rng_percent(rng, 40)) {
        p->scale = 0.4f;
    }
    for (int64_t e = 0; e < dk && held && t > 3; e++) /* a key at which a feature would be e^100 */
        dtype_store(type, c->in[K].data, 3 * dk + e,
                    ((const float *)c->in[PROJECTION].data)[e] * sqrtf(sqrtf((float)dk)));
    c->sequences = batch;
    if (batch == 1 && rng_percent(rng, 40)) {
        c->sequences = 3;
        c->offsets[1] = rng_range(rng, 0, t), c->offsets[2] = rng_range(rng, c->offsets[1], t);
        c->offsets[3] = rng_range(rng, c->offsets[2], t);
        p->cu_seqlens = c->offsets;
        p->num_sequences = c->sequences;
    }
    draw_options(c, rng);
    attach(c);
    compute_out(c);
    draw_wanted(c, rng);
}

static int run(const struct gradient_call *c)
{
    const attn_tensor *out = c->params.normalise ? &c->in[OUT] : NULL;
    if (attn_linear_attention_backward(&c->in[Q], &c->in[K], &c->in[V], out, &c->params, &c->gradients) == ATTN_OK)
        return 1;
    printf("  %s\n", attn_last_error());
    return 0;
}

/* ----------------------------------------------------------------- the loss -- */

/** Inputs as numbers that can be moved. */
struct numbers {
    const struct gradient_call *c;
    double *x[SLOTS];
};

/** An element of an input, whose axes may have the length 1. */
static double get(const struct numbers *n, enum slot slot, int64_t b, int64_t h, int64_t t, int64_t e)
{
    const int64_t *s = n->c->in[slot].shape;
    return n->x[slot][(((s[0] > 1 ? b : 0) * s[1] + (s[1] > 1 ? h : 0)) * s[2] + (s[2] > 1 ? t : 0)) * s[3] +
                      (s[3] > 1 ? e : 0)];
}

/** Features of a row of q, or of k; returns how many. */
static int64_t features(const struct numbers *n, enum slot slot, int64_t b, int64_t h, int64_t t, int64_t state,
                        double *f)
{
    const struct gradient_call *c = n->c;
    const int64_t dk = c->in[Q].shape[3];
    for (int64_t e = 0; e < dk && !is_positive(c); e++) {
        const double y = get(n, slot, b, h, t, e);
        f[e] = c->params.map == ATTN_FEATURES_NONE ? y : y > 0 ? y + 1 : exp(y);
    }
    if (!is_positive(c))
        return dk;
    const double scale = c->params.scale != 0.0f ? (double)c->params.scale : 1 / sqrt((double)dk);
    for (int64_t r = 0; r < c->in[PROJECTION].shape[2]; r++) {
        double product = 0, square = 0;
        for (int64_t e = 0; e < dk; e++) {
            const double y = get(n, slot, b, h, t, e);
            product += get(n, PROJECTION, 0, state, r, e) * y, square += y * y;
        }
        const double exponent = sqrt(scale) * product - scale * square / 2;
        f[r] = exp(slot == K ? fmin(exponent, 60) : exponent);
    }
    return c->in[PROJECTION].shape[2];
}

static int is_reset(const struct gradient_call *c, int64_t b, int64_t h, int64_t t)
{
    const attn_tensor *x = &c->in[RESETS];
    return x->data && ((const uint8_t *)x->data)[b * x->stride[0] + (x->shape[1] > 1 ? h : 0) * x->stride[1] + t];
}

static double s[MOST][MOST + 1];

static void write_token(const struct numbers *n, int64_t b, int64_t h, int64_t t)
{
    const struct gradient_call *c = n->c;
    const int64_t dv = c->in[V].shape[3], k_head = h / (c->in[V].shape[1] / c->in[K].shape[1]);
    double f[MOST];
    const int64_t rows = features(n, K, b, k_head, t, h, f);
    for (int64_t r = 0; r < rows; r++) {
        const double a = c->in[DECAY].data ? exp(get(n, DECAY, b, h, t, r)) : 1;
        for (int64_t e = 0; e <= dv; e++)
            s[r][e] = a * s[r][e] + f[r] * (e < dv ? get(n, V, b, h, t, e) : 1);
    }
}

/* What rows are divided by where no number has been moved, and what read_token() does with it. */
static double divisors[MOST_ROWS];
static enum { DIVIDE, REMEMBER, DIVIDE_BY_REMEMBERED } division;

/** What the averages of a row are divided by: the sum of weights, or, where that is held still, what it was. */
static double divisor_of(const struct numbers *n, int64_t b, int64_t out_head, int64_t t, double sum)
{
    const int64_t *out = n->c->in[OUT].shape;
    double *const remembered = &divisors[(b * out[1] + out_head) * out[2] + t];
    if (division == REMEMBER)
        *remembered = sum;
    return division == DIVIDE_BY_REMEMBERED ? *remembered : sum;
}

static double read_token(const struct numbers *n, int64_t b, int64_t out_head, int64_t h, int64_t t)
{
    const struct gradient_call *c = n->c;
    const int64_t dv = c->in[V].shape[3], q_heads = c->in[Q].shape[1], heads = c->in[V].shape[1];
    double f[MOST], sum[MOST + 1] = {0}, loss = 0;
    const int64_t rows = features(n, Q, b, q_heads < heads ? out_head / (heads / q_heads) : out_head, t, h, f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e <= dv; e++)
            sum[e] += f[r] * s[r][e];
    const double scale = c->params.scale != 0.0f ? (double)c->params.scale : 1 / sqrt((double)c->in[Q].shape[3]);
    const double factor = c->params.normalise ? 1 / divisor_of(n, b, out_head, t, sum[dv]) : scale;
    for (int64_t e = 0; e < dv; e++)
        loss += get(n, D_OUT, b, out_head, t, e) * sum[e] * factor;
    return loss;
}

/** The loss of a sequence, tokens first..end-1 of batch element b, and a state. */
static double loss_of_head(const struct numbers *n, int64_t sequence, int64_t b, int64_t first, int64_t end, int64_t h)
{
    const struct gradient_call *c = n->c;
    const int64_t heads = c->in[V].shape[1], readers = c->in[Q].shape[1] > heads ? c->in[Q].shape[1] / heads : 1;
    const int64_t rows = is_positive(c) ? c->in[PROJECTION].shape[2] : c->in[Q].shape[3];
    const int64_t columns = c->in[V].shape[3] + (c->params.normalise != 0);
    double loss = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e <= c->in[V].shape[3]; e++)
            s[r][e] = c->in[STATE_IN].data && e < columns ? get(n, STATE_IN, sequence, h, r, e) : 0;
    for (int64_t t = first; t < end;) {
        int64_t behind = t + 1; /* of the tokens that are read when all of them have written */
        if (is_reset(c, b, h, t))
            memset(s, 0, sizeof s);
        while (c->params.bidirectional && behind < end && !is_reset(c, b, h, behind))
            behind++;
        for (int64_t i = t; i < behind; i++)
            write_token(n, b, h, i);
        for (; t < behind; t++)
            for (int64_t i = 0; i < readers; i++)
                loss += read_token(n, b, h * readers + i, h, t);
    }
    for (int64_t r = 0; r < rows && c->in[D_STATE].data; r++)
        for (int64_t e = 0; e < columns; e++)
            loss += get(n, D_STATE, sequence, h, r, e) * s[r][e];
    return loss;
}

static double loss_of(const struct numbers *n)
{
    const struct gradient_call *c = n->c;
    const attn_linear_attention_params *p = &c->params;
    double loss = 0;
    for (int64_t i = 0; i < c->sequences; i++) {
        const int64_t b = p->cu_seqlens ? 0 : i, first = p->cu_seqlens ? c->offsets[i] : 0;
        const int64_t end = p->cu_seqlens ? c->offsets[i + 1] : p->lengths ? c->lengths[i] : c->in[Q].shape[2];
        for (int64_t h = 0; h < c->in[V].shape[1]; h++)
            loss += loss_of_head(n, i, b, first, end, h);
    }
    return loss;
}

/* ---------------------------------------------------------------- properties -- */

static const char *const names[INPUTS] = {"q", "k", "v", "decay", "state_in"};

/** The quotient of differences as a number moves; 0 for a decay of -inf and a token that is not there. */
static double slope_of_loss(struct numbers *n, int slot, int64_t at)
{
    const double x = n->x[slot][at], step = 1e-5;
    if (!isfinite(x))
        return 0;
    n->x[slot][at] = x + step;
    const double above = loss_of(n);
    n->x[slot][at] = x - step;
    const double below = loss_of(n);
    n->x[slot][at] = x;
    return (above - below) / (2 * step);
}

/** The two parts of a slope, by way of the averages' sums and of what they are divided by, which may make up 0: their
 * size. */
static double size_of_parts(struct numbers *n, int slot, int64_t at, double slope)
{
    if (!n->c->params.normalise)
        return 0;
    division = DIVIDE_BY_REMEMBERED;
    const double of_sums = slope_of_loss(n, slot, at);
    division = DIVIDE;
    return fabs(of_sums) + fabs(slope - of_sums);
}

/** A number of a gradient is the quotient of differences, to what f32 and the gradient's type leave of it. */
static int element_is_right(struct numbers *n, int slot, int64_t at, double size)
{
    const attn_tensor *d = &n->c->d[slot];
    const double got = (double)dtype_load(d->dtype, d->data, at), difference = slope_of_loss(n, slot, at);
    const double rounding = d->dtype == ATTN_BF16 ? 0x1p-8 : d->dtype == ATTN_F16 ? 0x1p-10 : 0;
    const double allowed = (is_positive(n->c) ? 5e-4 : 5e-5) * (size + fabs(difference)) + rounding * fabs(difference);
    const double cancelled = 1e-6 + 2e-6 * size_of_parts(n, slot, at, difference); /* 4.8e-7 of them was seen */
    if (fabs(got - difference) <= allowed + cancelled)
        return 1;
    printf("  gradient %d of %s is %.9g, expected %.9g (others are up to %.3g)\n", (int)at, names[slot], got,
           difference, size);
    return 0;
}

static int like_differences(struct rng *rng, const char *isa)
{
    struct gradient_call c;
    struct numbers n = {.c = &c};
    draw(&c, rng, isa, 0);
    int right = run(&c);
    for (int i = 0; i < SLOTS; i++) {
        n.x[i] = calloc((size_t)count(&c.in[i]) + 1, sizeof(double));
        if (!n.x[i])
            abort();
        for (int64_t at = 0; at < count(&c.in[i]) && i != RESETS; at++)
            n.x[i][at] = (double)dtype_load(c.in[i].dtype, c.in[i].data, at);
    }
    division = REMEMBER;
    loss_of(&n);
    division = DIVIDE;
    for (int i = 0; i < INPUTS; i++) {
        double size = 0;
        for (int64_t at = 0; at < count(&c.d[i]); at++)
            size = fmax(size, fabs((double)dtype_load(c.d[i].dtype, c.d[i].data, at)));
        for (int sample = 0; sample < 6 && right && count(&c.d[i]) > 0; sample++)
            right = element_is_right(&n, i, rng_range(rng, 0, count(&c.d[i]) - 1), size);
    }
    for (int i = 0; i < SLOTS; i++)
        free(n.x[i]);
    free_call(&c);
    return right;
}

/** Whether all gradients have the bits of others, which are freed. */
static int same_gradients(const char *what, const struct gradient_call *c, void *expected[INPUTS])
{
    int same = 1;
    for (int i = 0; i < INPUTS; i++) {
        if (same && memcmp(expected[i], c->d[i].data ? c->d[i].data : expected[i],
                           (size_t)count(&c->d[i]) * attn_dtype_size(c->d[i].dtype)) != 0) {
            printf("  %s: the gradient of %s has other bits\n", what, names[i]);
            same = 0;
        }
        free(expected[i]);
    }
    return same;
}

static void copy_gradients(const struct gradient_call *c, void *copies[INPUTS])
{
    for (int i = 0; i < INPUTS; i++) {
        const size_t size = (size_t)count(&c->d[i]) * attn_dtype_size(c->d[i].dtype);
        copies[i] = malloc(size + 1);
        if (!copies[i])
            abort();
        memcpy(copies[i], c->d[i].data ? c->d[i].data : copies[i], size);
        if (size)
            memset(c->d[i].data, 0x7f, size);
    }
}

static int any_threads(struct rng *rng, const char *isa)
{
    struct gradient_call c;
    draw(&c, rng, isa, rng_percent(rng, 50));
    c.params.num_threads = 1;
    int same = run(&c);
    for (int threads = 2; threads <= 7 && same; threads++) {
        void *expected[INPUTS];
        copy_gradients(&c, expected);
        c.params.num_threads = threads;
        same = run(&c);
        same = same_gradients("threads", &c, expected) && same;
    }
    free_call(&c);
    return same;
}

/** Workspaces from as large as is asked for down to the least. */
static int any_workspace(struct rng *rng, const char *isa)
{
    struct gradient_call c;
    void *expected[INPUTS];
    size_t size = 0;
    draw(&c, rng, isa, 1);
    const attn_tensor *out = c.params.normalise ? &c.in[OUT] : NULL;
    int same = run(&c) && attn_linear_attention_backward_workspace_size(&c.in[Q], &c.in[K], &c.in[V], out, &c.params,
                                                                        &c.gradients, &size) == ATTN_OK;
    char *const workspace = malloc(size + 1);
    if (!workspace)
        abort();
    for (size_t bytes = size; same; bytes -= bytes / 8) {
        copy_gradients(&c, expected);
        const attn_status status = attn_linear_attention_backward_in(&c.in[Q], &c.in[K], &c.in[V], out, &c.params,
                                                                     &c.gradients, workspace + 1, bytes);
        if (status == ATTN_WORKSPACE_TOO_SMALL && bytes < size) {
            for (int i = 0; i < INPUTS; i++)
                free(expected[i]);
            break;
        }
        if (status != ATTN_OK)
            printf("  a workspace of %zu of %zu bytes: %s\n", bytes, size, attn_last_error());
        same = same_gradients("workspace", &c, expected) && status == ATTN_OK;
    }
    free(workspace);
    free_call(&c);
    return same;
}

/** Batch element b as a call by itself, over the same memory. */
static void narrow(attn_tensor *x, int64_t b)
{
    if (!x->data || x->shape[0] == 1)
        return;
    x->data = (char *)x->data + b * x->stride[0] * (int64_t)attn_dtype_size(x->dtype);
    x->shape[0] = 1;
}

static int alone(struct rng *rng, const char *isa)
{
    struct gradient_call c;
    void *expected[INPUTS];
    for (;; free_call(&c)) {
        draw(&c, rng, isa, 0);
        if (c.in[Q].shape[0] == 2 && (!c.in[DECAY].data || c.in[DECAY].shape[0] == 2)) /* else sums over both */
            break;
    }
    int same = run(&c);
    copy_gradients(&c, expected);
    for (int64_t b = 0; b < 2 && same; b++) {
        struct gradient_call part = c;
        for (int i = 0; i < SLOTS; i++)
            narrow(&part.in[i], b);
        for (int i = 0; i < INPUTS; i++)
            narrow(&part.d[i], b);
        part.lengths[0] = c.lengths[b];
        attach(&part);
        same = run(&part);
    }
    same = same_gradients("alone", &c, expected) && same;
    free_call(&c);
    return same;
}

/** Rows that no sequence has are 0. */
static int rest_is_clear(struct rng *rng, const char *isa)
{
    struct gradient_call c;
    for (;; free_call(&c)) {
        draw(&c, rng, isa, 0);
        if (c.params.lengths || c.params.cu_seqlens)
            break;
    }
    int right = run(&c);
    for (int i = 0; i < STATE_IN; i++)
        for (int64_t at = 0; at < count(&c.d[i]) && right; at++) {
            const attn_tensor *d = &c.d[i];
            const int64_t b = at / d->stride[0], t = at / d->shape[3] % d->shape[2];
            const int64_t live = c.params.lengths ? c.lengths[b] : c.offsets[c.sequences];
            if (d->shape[2] == c.in[Q].shape[2] && (d->shape[0] == c.in[Q].shape[0]) && t >= live)
                right = dtype_load(d->dtype, d->data, at) == 0.0f;
            if (!right)
                printf("  the gradient of %s at token %d, behind all others, is not 0\n", names[i], (int)t);
        }
    free_call(&c);
    return right;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"like differences of the loss", like_differences}, {"threads change no bit", any_threads},
        {"workspaces change no bit", any_workspace},        {"a batch element alone has the same bits", alone},
        {"what no sequence has is 0", rest_is_clear},
    };
    return properties_run(argc, argv, "test_linear_backward", properties, sizeof properties / sizeof *properties);
}
