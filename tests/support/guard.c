/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guard pages by mmap and mprotect, and the handler that names the case when
 * one is touched. The handler only calls what is allowed in a signal handler
 * (write and _exit) and runs on a stack of its own, so that it also reports an
 * exhausted stack. AddressSanitizer has a handler of the same kind; ours is
 * installed later and wins, since the reproducer is worth more than the trace
 * that running it again will give.
 */
#include "guard.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MARGIN 512

char guard_case_line[2048];

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

struct guard guard_create(size_t capacity)
{
    const size_t page = page_size();
    const size_t size = (capacity + MARGIN + page - 1) / page * page;
    unsigned char *map = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, size, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "cannot map %zu bytes between guard pages\n", size);
        exit(1);
    }
    return (struct guard){.base = map + page, .size = size, .data = map + page, .used = 0};
}

void guard_destroy(struct guard *guard)
{
    const size_t page = page_size();
    munmap(guard->base - page, guard->size + 2 * page);
    memset(guard, 0, sizeof *guard);
}

void *guard_place(struct guard *guard, size_t size, int at_end)
{
    if (size + MARGIN > guard->size)
        return NULL;
    guard->used = size;
    guard->data = at_end ? guard->base + guard->size - size : guard->base;
    memset(at_end ? guard->data - MARGIN : guard->data, GUARD_CANARY, size + MARGIN);
    return guard->data;
}

int guard_intact(const struct guard *guard)
{
    const unsigned char *margin = guard->data == guard->base ? guard->data + guard->used : guard->data - MARGIN;
    for (size_t i = 0; i < MARGIN; i++)
        if (margin[i] != GUARD_CANARY)
            return 0;
    return 1;
}

static void put(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(3);
}

static void report_fault(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    char address[19] = "0x";
    uintptr_t bits = (uintptr_t)info->si_addr;
    for (int i = 17; i >= 2; i--, bits >>= 4)
        address[i] = "0123456789abcdef"[bits & 15];
    put("FAULT: ");
    put(signal_number == SIGSEGV  ? "invalid memory access"
        : signal_number == SIGBUS ? "bus error"
        : signal_number == SIGILL ? "illegal instruction"
                                  : "arithmetic exception");
    put(" at ");
    put(address);
    put("\n  ");
    put(guard_case_line);
    put("\n");
    _exit(3);
}

void guard_catch_faults(void)
{
    static unsigned char stack[65536];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaltstack(&alternate, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
}
