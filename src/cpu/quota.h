/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the processors the system lets this process use.
 */
#ifndef ATTN_CPU_QUOTA_H
#define ATTN_CPU_QUOTA_H

/**
 * Processors that a process may use on average, rounded up, by the quota of its control group or of one around it; 0:
 * as many as there are. membership is the file in which the system names its group, root where the groups' files are;
 * either may be missing, or hold anything.
 */
int attn_cpu_quota_of(const char *membership, const char *root);

/** The same of this process, as it was when it was first asked for. */
int attn_cpu_quota(void);

#endif
