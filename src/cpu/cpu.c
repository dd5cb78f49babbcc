/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detection of what the processor can do, by names. The compiler's own run-time
 * support asks CPUID and, through XGETBV, whether the operating system saves
 * the wide registers; a feature without that state is reported as absent. What
 * has been asked is kept: on a virtual machine CPUID takes microseconds.
 */
#include "cpu/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1 << 13)
#endif
#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1 << 14)
#endif
#endif

static struct feature {
    const char *name;
    int there;
} features[] = {
#if defined(__x86_64__)
    {"avx2", 0},     {"fma", 0},      {"f16c", 0},       {"avx512f", 0},    {"avx512bw", 0},
    {"avx512dq", 0}, {"avx512vl", 0}, {"avx512bf16", 0}, {"avx512vnni", 0}, {"avx512vbmi", 0},
    {"avxvnni", 0},  {"amxtile", 0},  {"amxbf16", 0},    {"amxint8", 0},
#elif defined(__aarch64__)
    {"dotprod", 0},
    {"i8mm", 0},
    {"bf16", 0},
#else
    {"nothing", 0},
#endif
};

static int pairs_gain, fetches_ahead, fetches_near, widens_beside, fast_l3;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void note(const char *name, int there)
{
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (strcmp(features[i].name, name) == 0)
            features[i].there = there;
}

#if defined(__x86_64__)
/** Processors of a maker: of one family, or ANY_FAMILY. */
struct processors {
    const char *vendor; /**< as CPUID names it, 12 letters */
    unsigned family;
};

enum { ANY_FAMILY = 0, AMD_ZEN_3_AND_4 = 0x19, AMD_ZEN_5 = 0x1a };

/**
 * Whose VDPBF16PS has less than the rate of multiply-adds, that is half of it, and so no gain from its pairs.
 * Measured (bench/README.md, peaks): Intel, Granite Rapids class: 247 against 495 GFLOP/s on two cores; AMD, Zen 4 and
 * Zen 5: twice the rate of f32 in operations.
 */
static const struct processors slow_pairs[] = {{"GenuineIntel", ANY_FAMILY}};

/**
 * Whose prefetchers do better alone. Measured (attn-bench, linear layers of one row, 4096 by 4096, one thread,
 * part of the read bandwidth with prefetch instructions and without): Zen 4: bf16 0.73 and 1.04, its pairs 0.78
 * and 0.99, int8 0.77 and 0.99, int4 0.76 and 0.86. On Zen 5 it is the other way round (GB/s, the best of three runs of
 * both in turns, a program written for the question): f32 59 and 56, bf16 50 and 43, its pairs 52 and 53, int8 55 and
 * 52, int4 49 and 38. States of linear attention that a token changes in place, Zen 4, two threads, 512 of 128 x 128
 * (L3), ns each, asked for and not: linear 982 and 873, gated delta 1394 and 1360, and with the next state asked for
 * while one is written 1206 (docs/performance.md). Rows of K and V that one query reads, Zen 4, one thread, d = 128, of
 * the speed of a plain loop, asked for and not: f32 0.67 and 0.88, bf16 0.66 and 0.86, f16 0.65 and 0.88.
 */
static const struct processors own_prefetch[] = {{"AuthenticAMD", AMD_ZEN_3_AND_4}};

/**
 * Where requests ahead of few queries' rows do better into L1. Measured (one query, d=128, 32 heads, T=4096, from
 * memory, one thread, ns a key, best of four runs of both in turns, a program written for the question): Zen 5, into L2
 * and into L1: f32 45 and 42, with free sums 41 and 37; bf16 19.4 and 18.0, 20.4 and 18.9; f16 free 17.8 and 16.1. On
 * Zen 4 an earlier form of them had 18 GB/s into L2 and 13 into L1.
 */
static const struct processors near_prefetch[] = {{"AuthenticAMD", AMD_ZEN_5}};

/**
 * Where weights in bf16, widened in registers for each 8 rows, meet more multiply-adds than widened once for
 * 128 rows. Measured (attn-bench, 4096 by 4096, part of the peak with 24, 128 and 1300 rows): Zen 4: 0.93, 0.95,
 * 0.92 against 0.83, 0.91, 0.88; Intel, Granite Rapids class, 1300 rows: 0.68 against 0.78. Zen 5 has 0.94 with 128 and
 * 1300 rows.
 */
static const struct processors own_widening[] = {{"AuthenticAMD", ANY_FAMILY}};

/**
 * Where 128 rows of x in f32 are best read from L3 by each panel, rather than as few as L2 holds. Measured on Zen 5
 * alone (two threads, GFLOP/s, of both in turns, docs/layers.md): 1300 rows, 4096 inputs and outputs 459 and 474, 8192
 * inputs and 2048 outputs 450 and 469.
 */
static const struct processors near_l3[] = {{"AuthenticAMD", AMD_ZEN_5}};

static int is_one_of(const struct processors *list, size_t count, const uint32_t vendor[4], unsigned family)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(vendor, list[i].vendor, 12) == 0 && (list[i].family == ANY_FAMILY || list[i].family == family))
            return 1;
    return 0;
}

/** The family of the processor, by the first number of CPUID's leaf 1. */
static unsigned family_of(unsigned signature)
{
    const unsigned base = signature >> 8 & 0xf;
    return base == 0xf ? base + (signature >> 20 & 0xff) : base;
}

/** Whether the operating system saves registers: bits of XCR0. */
static int system_saves(uint32_t state)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & state) == state;
}

static void ask(void)
{
    unsigned a, b, c, d = 0;
    __builtin_cpu_init();
    note("avx2", __builtin_cpu_supports("avx2") != 0);
    note("fma", __builtin_cpu_supports("fma") != 0);
    note("avx512f", __builtin_cpu_supports("avx512f") != 0);
    note("avx512bw", __builtin_cpu_supports("avx512bw") != 0);
    note("avx512dq", __builtin_cpu_supports("avx512dq") != 0);
    note("avx512vl", __builtin_cpu_supports("avx512vl") != 0);
    note("avx512bf16", __builtin_cpu_supports("avx512bf16") != 0);
    note("avx512vnni", __builtin_cpu_supports("avx512vnni") != 0);
    note("avx512vbmi", __builtin_cpu_supports("avx512vbmi") != 0);
    /* Not every compiler knows these names; their registers are those of AVX, whose state has been asked for. */
    note("f16c", __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0);
    /* Bit 4 of EAX in subleaf 1 of leaf 7, whose subleaf 0 says in EAX which one is the last. */
    note("avxvnni", __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
                        (a & (1u << 4)) != 0);
    /* Bits 22, 24 and 25 of EDX of leaf 7; the system saves tiles if bits 17 and 18 of XCR0 are set. */
    const int saved = system_saves(3u << 17);
    const int known = saved && __get_cpuid_count(7, 0, &a, &b, &c, &d);
    note("amxbf16", known && (d & (1u << 22)) != 0);
    note("amxtile", known && (d & (1u << 24)) != 0);
    note("amxint8", known && (d & (1u << 25)) != 0);
    uint32_t vendor[4] = {0};
    __get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1]);
    const unsigned family = __get_cpuid(1, &a, &b, &c, &d) ? family_of(a) : 0;
    pairs_gain = !is_one_of(slow_pairs, sizeof slow_pairs / sizeof *slow_pairs, vendor, family);
    fetches_ahead = is_one_of(own_prefetch, sizeof own_prefetch / sizeof *own_prefetch, vendor, family);
    fetches_near = is_one_of(near_prefetch, sizeof near_prefetch / sizeof *near_prefetch, vendor, family);
    widens_beside = is_one_of(own_widening, sizeof own_widening / sizeof *own_widening, vendor, family);
    fast_l3 = is_one_of(near_l3, sizeof near_l3 / sizeof *near_l3, vendor, family);
}
#else
static void ask(void)
{
#if defined(__aarch64__)
    note("dotprod", (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0);
    note("i8mm", (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0);
    note("bf16", (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0); /* BFDOT and BFMMLA alike: they are one feature */
#endif
    pairs_gain = 1;
    fetches_ahead = 0;
    fetches_near = 0;
    widens_beside = 0;
    fast_l3 = 0;
}
#endif

int attn_cpu_has(const char *list)
{
    pthread_once(&once, ask);
    while (*list) {
        const size_t length = strcspn(list, " ");
        int there = 0;
        for (size_t i = 0; i < sizeof features / sizeof *features; i++)
            if (strlen(features[i].name) == length && memcmp(features[i].name, list, length) == 0)
                there = features[i].there;
        if (!there)
            return 0;
        list += length + (list[length] == ' ');
    }
    return 1;
}

int attn_cpu_gains_by_pairs(void)
{
    pthread_once(&once, ask);
    return pairs_gain;
}

int attn_cpu_fetches_ahead(void)
{
    pthread_once(&once, ask);
    return fetches_ahead;
}

int attn_cpu_fetches_near(void)
{
    pthread_once(&once, ask);
    return fetches_near;
}

int attn_cpu_widens_beside(void)
{
    pthread_once(&once, ask);
    return widens_beside;
}

int attn_cpu_has_fast_l3(void)
{
    pthread_once(&once, ask);
    return fast_l3;
}

static int permits_matrix;
static pthread_once_t permission_once = PTHREAD_ONCE_INIT;

/** Linux gives a process the registers of AMX, some KiB for each thread and signal, when it asks. */
static void ask_permission(void)
{
#if defined(__x86_64__) && defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
    permits_matrix = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#endif
}

int attn_cpu_permits_matrix(void)
{
    pthread_once(&permission_once, ask_permission);
    return permits_matrix;
}
