/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Some rows of the output in double precision, for cases that the naive
 * implementation cannot compute, or not without a matrix of Tq x Tk scores.
 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include "problem.h"

/**
 * Chooses rows of p->out, computes them and puts them in p->expected and
 * p->rows. 0, or -1 after a sentence on stderr.
 */
int bench_rows_create(struct bench_problem *p);

#endif
