/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment variables, read once.
 */
#ifndef ATTN_ENVIRONMENT_H
#define ATTN_ENVIRONMENT_H

#include "attn/attn.h"

struct attn_environment {
    int max_isa;     /**< ATTN_MAX_CPU_ISA as attn_isa_row() counts; 0: no cap */
    int num_threads; /**< ATTN_NUM_THREADS; 0: not set */
    int verbose;     /**< ATTN_VERBOSE */
};

const struct attn_environment *attn_environment(void);

#endif
