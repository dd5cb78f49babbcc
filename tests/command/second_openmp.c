/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shared library that does nothing, for the warning about a second OpenMP runtime. The build names it libomp, as
 * LLVM's OpenMP runtime is named, and a test loads it into attn info beside the runtime that libattn uses: then two
 * stand in the list of loaded libraries, and the warning about it can be tested on a machine that has one.
 */
extern const int attn_second_openmp;

const int attn_second_openmp = 1;
