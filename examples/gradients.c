/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training loop in C: gradient descent by attn_backward().
 *
 * A teacher's attention has a slope of ALiBi for each head. The program knows
 * the queries, keys and values and what the teacher makes of them, and finds the
 * slopes from nothing but the difference between its own output and that: each
 * step is a forward call, the gradient of half the squared distance, a backward
 * call, and an update (Adam, Kingma & Ba 2015, as the slopes are far apart in
 * size). It checks that the slopes are found.
 */
#include <attn/attn.h>
#include <attn/backward.h>
#include <attn/patterns.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { H = 4, T = 32, D = 16, N = H * T * D, STEPS = 300 };

static float q_data[N], k_data[N], v_data[N], target[N], out_data[N], d_out_data[N], lse_data[H * T];

static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* One step of Adam on a slope. */
static void update(float *x, float gradient, float mean[2], int step)
{
    const float rate = 0.02f * (1.0f - (float)step / (float)(STEPS + 1));
    mean[0] = 0.9f * mean[0] + 0.1f * gradient;
    mean[1] = 0.99f * mean[1] + 0.01f * gradient * gradient;
    const float first = mean[0] / (1.0f - powf(0.9f, (float)step));
    const float second = mean[1] / (1.0f - powf(0.99f, (float)step));
    *x -= rate * first / (sqrtf(second) + 1e-8f);
}

int main(void)
{
    attn_tensor q = attn_bhtd(q_data, 1, H, T, D), k = attn_bhtd(k_data, 1, H, T, D), v = attn_bhtd(v_data, 1, H, T, D);
    attn_tensor out = attn_bhtd(out_data, 1, H, T, D), d_out = attn_bhtd(d_out_data, 1, H, T, D);
    attn_tensor lse = attn_bhtd(lse_data, 1, H, T, 1), taught = attn_bhtd(target, 1, H, T, D);
    float teacher[H], slopes[H] = {0}, d_slopes[H], means[H][2] = {{0}};
    fill(q_data, N, 1), fill(k_data, N, 2), fill(v_data, N, 3);

    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.alibi_slopes = teacher;
    if (attn_alibi_slopes(teacher, H) || attn_forward(&q, &k, &v, &taught, &params)) {
        fprintf(stderr, "%s\n", attn_last_error());
        return 1;
    }

    params.alibi_slopes = slopes;
    params.lse = &lse;
    attn_gradients gradients = attn_gradients_default();
    gradients.out = &d_out;
    gradients.alibi_slopes = d_slopes;
    for (int step = 1; step <= STEPS; step++) {
        double loss = 0;
        if (attn_forward(&q, &k, &v, &out, &params)) {
            fprintf(stderr, "%s\n", attn_last_error());
            return 1;
        }
        for (int i = 0; i < N; i++) {
            d_out_data[i] = out_data[i] - target[i];
            loss += 0.5 * d_out_data[i] * d_out_data[i];
        }
        if (attn_backward(&q, &k, &v, &out, &params, &gradients)) {
            fprintf(stderr, "%s\n", attn_last_error());
            return 1;
        }
        for (int h = 0; h < H; h++)
            update(&slopes[h], d_slopes[h], means[h], step);
        if (step == 1 || step % 100 == 0)
            printf("step %3d: loss %.3e\n", step, loss);
    }

    double worst = 0;
    for (int h = 0; h < H; h++) {
        printf("head %d: slope %.6f, the teacher's %.6f\n", h, (double)slopes[h], (double)teacher[h]);
        worst = fmax(worst, fabs((double)slopes[h] - (double)teacher[h]));
    }
    if (worst > 1e-4) {
        fprintf(stderr, "a slope is off by %g\n", worst);
        return 1;
    }
    return 0;
}
