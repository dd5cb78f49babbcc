/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a machine is made of, as the system tells it.
 */
#ifndef SCALING_TOPOLOGY_H
#define SCALING_TOPOLOGY_H

#include <jansson.h>

/** Processors that this process may use, which hwloc and taskset may have narrowed; 1 at least. */
int scaling_processors(void);

/** Bytes of memory that can be had without swapping; 0: unknown. */
double scaling_memory(void);

/**
 * A JSON object: the processor's name, sockets, cores, NUMA nodes with their processors, caches and by how many
 * processors each is shared, processors that this process may use, the system's release, and settings of OpenMP. What
 * the system does not tell is left out. NULL without memory.
 */
json_t *scaling_topology(void);

#endif
