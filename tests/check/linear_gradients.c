/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes, layouts and values of gradients of random cases of linear attention. */
#include "linear_gradients.h"

#include "dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 64 << 20, READ_OUT = 0, READ_STATE = 1 };

void linear_gradient_case_initialize(struct linear_gradient_case *c)
{
    memset(c, 0, sizeof *c);
    linear_case_initialize(&c->forward);
    for (int i = 0; i < 2; i++)
        c->read[i] = guard_create(CAPACITY);
    for (int i = 0; i < LINEAR_GRADIENTS; i++)
        c->written[i] = guard_create(CAPACITY);
    c->workspace = guard_create(4 * (size_t)CAPACITY);
}

static void fill(const struct guard *guard, const attn_tensor *t, float size, struct rng *rng)
{
    if (guard->used)
        memset(guard->data, 0xff, guard->used); /* a NaN in every gap */
    linear_fill_normal(t, size, rng);
}

/** Gradients of tokens that no sequence has are not read. */
static void poison_unread(struct linear_gradient_case *c)
{
    const attn_linear_attention_params *p = &c->forward.params;
    const attn_tensor *t = &c->d_out;
    if ((!p->lengths && !p->cu_seqlens) || t->stride[2] == 0 || (t->shape[0] > 1 && t->stride[0] == 0))
        return;
    FOR_EACH_ELEMENT(t)
    {
        if (i >= (p->lengths ? p->lengths[b] : p->cu_seqlens[p->num_sequences]))
            tensor_set(t, b, h, i, j, NAN);
    }
}

static void remember(struct linear_gradient_case *c)
{
    for (int i = 0; i < 2; i++) {
        const struct guard *g = &c->read[i];
        if (g->used > c->capacity[i]) {
            free(c->before[i]);
            c->capacity[i] = 2 * g->used;
            c->before[i] = malloc(c->capacity[i]);
            if (!c->before[i]) {
                fprintf(stderr, "no memory for %zu bytes of gradients\n", c->capacity[i]);
                exit(1);
            }
        }
        if (g->used)
            memcpy(c->before[i], g->data, g->used);
    }
}

static void place_written(struct linear_gradient_case *c, struct rng *rng)
{
    const attn_linear_attention_params *p = &c->forward.params;
    const attn_tensor *const shapes[LINEAR_GRADIENTS] = {&c->forward.q, &c->forward.k, &c->forward.v, p->decay,
                                                         p->state_in};
    const attn_tensor **const places[LINEAR_GRADIENTS] = {&c->gradients.q, &c->gradients.k, &c->gradients.v,
                                                          &c->gradients.decay, &c->gradients.state_in};
    for (int i = 0; i < LINEAR_GRADIENTS; i++) {
        guard_place(&c->written[i], 0, 1);
        if (!shapes[i] || rng_percent(rng, 15))
            continue;
        const int any = i < LINEAR_DSTATE && rng_percent(rng, 30);
        const attn_dtype dtype = any ? (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_BF16, ATTN_F16) : shapes[i]->dtype;
        const int64_t *n = shapes[i]->shape;
        c->d[i] = tensor_of_shape(dtype, n[0], n[1], n[2], n[3]);
        place_tensor(&c->written[i], &c->d[i], i == LINEAR_DDECAY ? FREE_CHANNELS : 0, rng);
        *places[i] = &c->d[i];
    }
}

void linear_gradient_case_generate(struct linear_gradient_case *c, uint64_t seed, uint64_t index, const char *isa)
{
    struct rng generator = rng_for_case(seed + 3, index), *rng = &generator;
    struct linear_case *f = &c->forward;
    uint64_t draw = index; /* planted numbers are for the forward call; here another case takes their place */
    do {
        linear_case_generate(f, seed, draw, isa);
        draw = rng_bits(rng);
    } while (f->planted);
    f->params.beta = NULL;
    f->params.state_out = NULL;
    f->params.bidirectional = !f->params.decay && rng_percent(rng, 30);
    c->gradients = attn_linear_attention_gradients_default();
    c->d_out = f->out;
    place_tensor(&c->read[READ_OUT], &c->d_out, MAY_BROADCAST, rng);
    c->gradients.out = &c->d_out;
    fill(&c->read[READ_OUT], &c->d_out, rng_percent(rng, 70) ? 1 : (float)pow(10, 4 * rng_uniform(rng) - 2), rng);
    guard_place(&c->read[READ_STATE], 0, 1);
    if (rng_percent(rng, 50)) {
        c->d_state = tensor_of_shape(ATTN_F32, f->state_in.shape[0], f->state_in.shape[1], f->state_in.shape[2],
                                     f->state_in.shape[3]);
        place_tensor(&c->read[READ_STATE], &c->d_state, MAY_BROADCAST, rng);
        fill(&c->read[READ_STATE], &c->d_state, 1, rng);
        c->gradients.state_out = &c->d_state;
    }
    /* A row that all tokens have is coarse (linear_fill.c), and products with a power of two are, too. */
    if (f->q.shape[2] > 1 && (f->q.stride[2] == 0 || c->d_out.stride[2] == 0))
        f->params.scale = 0.25f;
    poison_unread(c);
    remember(c);
    place_written(c, rng);
}

const attn_tensor *linear_gradient_of(const struct linear_gradient_case *c, enum linear_gradient of)
{
    const attn_linear_attention_gradients *g = &c->gradients;
    const attn_tensor *const all[LINEAR_GRADIENTS] = {g->q, g->k, g->v, g->decay, g->state_in};
    return all[of];
}

int linear_gradient_case_check_memory(const struct linear_gradient_case *c, char *message, size_t size)
{
    static const char *const names[LINEAR_GRADIENTS] = {"q", "k", "v", "decay", "state_in"};
    for (int i = 0; i < 2; i++)
        if (c->read[i].used && memcmp(c->before[i], c->read[i].data, c->read[i].used) != 0) {
            snprintf(message, size, "gradients.%s was written to", i == READ_OUT ? "out" : "state_out");
            return 0;
        }
    for (int i = 0; i < LINEAR_GRADIENTS; i++)
        if (linear_gradient_of(c, (enum linear_gradient)i) && !place_gaps_intact(&c->written[i], &c->d[i])) {
            snprintf(message, size, "something was written between the elements of gradients.%s", names[i]);
            return 0;
        }
    return linear_case_check_memory(&c->forward, message, size);
}
