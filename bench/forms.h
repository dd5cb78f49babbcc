/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms of attention that the bench measures: windows, block patterns,
 * biases, ragged batches and so on, one for a case.
 */
#ifndef BENCH_FORMS_H
#define BENCH_FORMS_H

#include "problem.h"

/**
 * Makes the arrays of the case's form and sets p->params to use them. Comes
 * before the tensors: a ragged batch sets their sizes, p->batch, p->tq and
 * p->tk. 0, or -1 when memory is short.
 */
int bench_form_create(struct bench_problem *p);

/** Frees what bench_form_create() made, also after it failed. */
void bench_form_destroy(struct bench_problem *p);

/** What the callback of BENCH_CALLBACK adds to the score of a query that stands distance behind its key. */
double bench_callback_term(int64_t distance);

#endif
