/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that are cancelled (pthread_cancel()) while they are in a call of the library's: what it has locked or opened
 * would stay so if the thread ended there. So what may be a cancellation point (pthreads(7): opening and reading
 * files, writing to stderr, waiting for threads) runs with cancellation switched off, and the thread ends at its next
 * point of its own after the call.
 */
#ifndef ATTN_CANCELLATION_H
#define ATTN_CANCELLATION_H

#include <pthread.h>

static inline int attn_cancellation_off(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void attn_cancellation_back(const int *before)
{
    int ours;
    pthread_setcancelstate(*before, &ours);
}

/** The rest of the block is not cancelled, on whichever way it is left. */
#define ATTN_UNCANCELLED                                                                                               \
    __attribute__((cleanup(attn_cancellation_back), unused)) const int cancellation_before = attn_cancellation_off()

#endif
