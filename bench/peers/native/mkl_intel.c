/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded, it tells MKL that the processor is Intel's. MKL then takes its AVX2 or AVX-512 code by what the processor
 * can do, where it would take slower code on processors of other makers.
 */
int mkl_serv_intel_cpu_true(void);

int mkl_serv_intel_cpu_true(void)
{
    return 1;
}
