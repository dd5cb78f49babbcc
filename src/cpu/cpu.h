/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processor offers: instruction sets and sizes of caches.
 */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

/** Whether the processor, and the system's saving of registers, have all features of a list of names, space between. */
int attn_cpu_has(const char *features);

/**
 * Whether instructions that multiply pairs of bf16 do more work in a second than multiply-adds of f32: they need not
 * be faster where they exist.
 */
int attn_cpu_gains_by_pairs(void);

/**
 * Whether a core that reads from end to end keeps memory busy without being told what comes next: telling it takes time
 * then.
 */
int attn_cpu_fetches_ahead(void);

/** Whether rows that few queries will read are best asked for into the nearest cache, not just the one behind it. */
int attn_cpu_fetches_near(void);

/**
 * Whether shifts and conversions, which widen narrow weights in registers, take little time from multiply-adds: units
 * of their own compute them.
 */
int attn_cpu_widens_beside(void);

/** Whether rows come from the last level of cache as fast as products of f32 take them up. */
int attn_cpu_has_fast_l3(void);

/** Whether the system lets this process use matrix registers (AMX's tiles). Asks it, the first time. */
int attn_cpu_permits_matrix(void);

#endif
