/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learning rates: a straight line up to the peak, then constant, a straight line
 * or half a cosine down, or the inverse square root of the step. All in double.
 */
#include "nn/check.h"

#include <inttypes.h>
#include <math.h>

static attn_status check_rate(const char *name, double rate)
{
    if (!(rate >= 0) || isinf(rate))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %g; expected a finite number, 0 or more", name, rate);
    return ATTN_OK;
}

static int falls_to_final(const attn_schedule *s)
{
    return s->kind == ATTN_SCHEDULE_LINEAR || s->kind == ATTN_SCHEDULE_COSINE;
}

static attn_status check_schedule(attn_schedule *ours, const attn_schedule *schedule)
{
    if (!schedule)
        return attn_fail(ATTN_INVALID_ARGUMENT, "schedule is NULL; expected a schedule");
    CHECK(attn_take_struct("schedule", ours, sizeof *ours, NN_SCHEDULE_FIRST, schedule));
    if ((unsigned)ours->kind > ATTN_SCHEDULE_LAST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "schedule.kind is %d; expected an attn_schedule_kind", (int)ours->kind);
    CHECK(check_rate("schedule.peak", ours->peak));
    CHECK(nn_check_length("schedule.warmup", ours->warmup, 0));
    if (!falls_to_final(ours))
        return ATTN_OK;
    CHECK(check_rate("schedule.final", ours->final));
    CHECK(nn_check_length("schedule.steps", ours->steps, 1));
    if (ours->steps < ours->warmup)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "schedule.steps is %" PRId64 "; expected %" PRId64 " or more, the end of warm-up", ours->steps,
                         ours->warmup);
    return ATTN_OK;
}

static double rate_of(const attn_schedule *s, int64_t step)
{
    if (step < s->warmup)
        return s->peak * ((double)step / (double)s->warmup);
    if (s->kind == ATTN_SCHEDULE_CONSTANT)
        return s->peak;
    if (s->kind == ATTN_SCHEDULE_INVERSE_SQRT) {
        const int64_t from = s->warmup > 1 ? s->warmup : 1;
        return s->peak * sqrt((double)from / (double)(step > 1 ? step : 1));
    }
    if (step >= s->steps)
        return s->final;
    const double done = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    const double left = s->kind == ATTN_SCHEDULE_LINEAR ? 1 - done : (1 + cos(M_PI * done)) / 2;
    return s->final * (1 - left) + s->peak * left; /* of two rates no difference overflows, and ends are exact */
}

attn_status attn_schedule_rate(const attn_schedule *schedule, int64_t step, double *rate)
{
    attn_schedule ours;
    CHECK(check_schedule(&ours, schedule));
    CHECK(nn_check_length("step", step, 0));
    if (!rate)
        return attn_fail(ATTN_INVALID_ARGUMENT, "rate is NULL; expected where to put it");
    *rate = rate_of(&ours, step);
    return ATTN_OK;
}
