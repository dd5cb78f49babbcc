/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose threads compute for Python: those of an OpenMP runtime that the process
 * has loaded already (PyTorch brings one), else a pool of the package's own.
 */
#ifndef LIBATTN_PYTHON_THREADS_H
#define LIBATTN_PYTHON_THREADS_H

/**
 * Makes sure that attn_set_executor() names the threads of this process, and says
 * how many a call should ask for that names no number itself. Called before every
 * call of the library, with the interpreter's lock; takes some tens of nanoseconds.
 */
int libattn_python_threads(void);

/** So many from now on; 0: what the runtime has, or a thread for each processor that the process may use. */
void libattn_python_set_threads(int threads);

/** The file of the OpenMP runtime whose threads are used; an empty text: the package's own. Valid until the next call.
 */
const char *libattn_python_runtime(void);

#endif
