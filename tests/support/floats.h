/* SPDX-License-Identifier: Apache-2.0 */
/* Floats by their bits, and the unit in the last place of one. */
#ifndef TEST_FLOATS_H
#define TEST_FLOATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/** What one ULP of the float nearest to a finite number is; 2^-149 for those below 2^-126. */
static inline double ulp_of(double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return ldexp(1, exponent > -125 ? exponent - 24 : -149);
}

#endif
