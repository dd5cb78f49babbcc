/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region of LLVM's OpenMP runtime, for a process whose libattn has libgomp. It asks the runtime for nothing by name:
 * names that both have are those of the one that was loaded first.
 */
void run_region(int threads, void (*body)(int number));

void run_region(int threads, void (*body)(int number))
{
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int i = 0; i < threads; i++)
        body(i);
}
