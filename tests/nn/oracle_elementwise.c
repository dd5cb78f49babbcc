/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, gates, embeddings and sinusoidal positions (elementwise.h). */
#include "real.h"

void ORACLE(oracle_normalise)(const struct oracle_norm *norm, int64_t rows, const double *x, double *y)
{
    const int64_t n = norm->channels;
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        real sum = 0, squares = 0;
        for (int64_t c = 0; c < n; c++)
            sum += (real)x[oracle_backwards ? n - 1 - c : c];
        const real mean = norm->kind == ATTN_NORM_LAYER ? sum / (real)n : 0;
        for (int64_t c = 0; c < n; c++) {
            const real d = (real)x[oracle_backwards ? n - 1 - c : c] - mean;
            squares += d * d;
        }
        const real divisor = sqrt(squares / (real)n + (real)norm->eps);
        for (int64_t c = 0; c < n; c++) {
            real result = ((real)x[c] - mean) / divisor;
            if (norm->gamma)
                result *= (real)norm->gamma[c];
            if (norm->beta)
                result += (real)norm->beta[c];
            y[c] = KEPT(result);
        }
    }
}

void ORACLE(oracle_gate)(attn_activation activation, int64_t n, const double *gate, const double *up, double *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = KEPT((real)KEPT(ORACLE(oracle_activate)(activation, gate[i])) * (real)up[i]);
}

void ORACLE(oracle_embed)(const double *table, int64_t channels, int64_t rows, const int32_t *ids, double scale,
                          int accumulate, double *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            const real x = (real)KEPT((real)scale * (real)table[ids[r] * channels + c]);
            y[r * channels + c] = accumulate ? KEPT((real)y[r * channels + c] + x) : x;
        }
}

/* In double and rounded once, whatever the precision: a table in float would be no yardstick. */
void ORACLE(oracle_sinusoidal)(int64_t position, int64_t channels, double *row)
{
    for (int64_t c = 0; c < channels; c++) {
        const double angle = (double)position * pow(10000.0, -2.0 * (double)(c / 2) / (double)channels);
        row[c] = (real)(c % 2 ? cos(angle) : sin(angle));
    }
}
