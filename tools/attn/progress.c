/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what is done and writes the line five times a second. Whoever finds that its time has come writes it, so there
 * is no thread for it, and a line is one call of the system, so that two never mix. It is erased by spaces, which any
 * terminal understands, and cut to the width of the terminal, as what has been wrapped could not be erased.
 */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 160, FIRST = 1000000000, AGAIN = 200000000 };

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* "1234", or of bytes "12.3 MB". */
static void print_amount(char *text, size_t size, double amount, const char *unit)
{
    static const char *const larger[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    size_t n = 0;
    if (strcmp(unit, "B") != 0) {
        snprintf(text, size, amount < 10 && amount != (double)(int64_t)amount ? "%.2g %s" : "%.0f %s", amount, unit);
        return;
    }
    for (; amount >= 999.5 && n + 1 < sizeof larger / sizeof *larger; n++)
        amount /= 1000;
    snprintf(text, size, n > 0 && amount < 99.95 ? "%.1f %s" : "%.0f %s", amount, larger[n]);
}

/* "0:14", "1:02:03" */
static void print_time(char *text, size_t size, double seconds)
{
    const int64_t s = seconds < 359999 ? (int64_t)(seconds + 0.5) : 359999;
    if (s < 3600)
        snprintf(text, size, "%" PRId64 ":%02" PRId64, s / 60, s % 60);
    else
        snprintf(text, size, "%" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60, s % 60);
}

void progress_text(char *text, size_t size, int64_t done, int64_t total, const char *unit, double seconds)
{
    char some[64], all[64], rate[64], left[32];
    const bool bytes = strcmp(unit, "B") == 0;
    const double speed = (double)done / seconds;
    print_amount(some, sizeof some, (double)done, unit);
    print_amount(all, sizeof all, (double)total, unit);
    print_amount(rate, sizeof rate, speed, unit);
    print_time(left, sizeof left, done > 0 && total > done ? (double)(total - done) / speed : 0);
    if (total <= 0)
        snprintf(text, size, "%s, %s/s", some, rate);
    else if (done <= 0)
        snprintf(text, size, "0 of %s", all);
    else if (bytes)
        snprintf(text, size, "%s of %s, %s/s, %s left", some, all, rate, left);
    else
        snprintf(text, size, "%" PRId64 " of %s, %s/s, %s left", done, all, rate, left);
}

/* Writes text, if any, in the place of what stands on the line. */
static void write_line(struct progress *p, const char *text, size_t columns)
{
    char line[2 * LINE + 2];
    const size_t length = strlen(text) < columns ? strlen(text) : columns;
    const size_t before = (size_t)atomic_exchange(&p->width, (int)length);
    size_t used = 0;
    line[used++] = '\r';
    memcpy(line + used, text, length);
    used += length;
    for (size_t i = length; i < before; i++)
        line[used++] = ' ';
    if (length == 0)
        line[used++] = '\r';
    /* A terminal that is gone is no reason to stop the work. */
    fwrite(line, 1, used, stderr);
}

static void draw(struct progress *p, int64_t time)
{
    char text[LINE];
    struct winsize window;
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    progress_text(text, sizeof text, atomic_load(&p->done), p->total, p->unit, 1e-9 * (double)(time - p->begin));
    write_line(p, text, (size_t)(known ? window.ws_col : 80) - 1);
}

void progress_start(struct progress *p, int64_t total, const char *unit, bool quiet)
{
    p->total = total;
    p->unit = unit;
    p->shown = !quiet && isatty(STDERR_FILENO) == 1;
    p->begin = p->shown ? now() : 0;
    atomic_init(&p->done, 0);
    atomic_init(&p->next, p->begin + FIRST);
    atomic_init(&p->width, 0);
}

static void draw_in_time(struct progress *p)
{
    const int64_t time = now();
    int64_t next = atomic_load_explicit(&p->next, memory_order_relaxed);
    if (time >= next && atomic_compare_exchange_strong(&p->next, &next, time + AGAIN))
        draw(p, time);
}

void progress_add(struct progress *p, int64_t units)
{
    if (!p->shown)
        return;
    atomic_fetch_add_explicit(&p->done, units, memory_order_relaxed);
    draw_in_time(p);
}

void progress_set(struct progress *p, int64_t units)
{
    if (!p->shown)
        return;
    atomic_store_explicit(&p->done, units, memory_order_relaxed);
    draw_in_time(p);
}

void progress_finish(struct progress *p)
{
    if (p->shown && atomic_load(&p->width) > 0)
        write_line(p, "", 0);
    p->shown = false;
}
