/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The norm of gradients, clipping, and AdamW.
 *
 * A list of parameters is one long array, cut wherever it suits threads. The
 * norm's squares are exact in double and cannot overflow there; they are added in
 * chunks that follow from the number of elements alone, and the chunks' sums in
 * their order.
 *
 * The loops wait for memory: a step of AdamW reads 16 bytes and writes 12 for a
 * dozen operations. So they are plain C, which the compiler makes vectors of, for
 * all processors the same operations and bits.
 */
#include "driver/ranges.h"
#include "nn/check.h"

#include <inttypes.h>
#include <math.h>

/** What an element costs beside a layer's operations. */
#define OPTIMISE_COST 4.0

/** Sums that are kept, on the stack. */
#define MOST_CHUNKS 256
/** Elements that are worth a sum of their own. */
#define LEAST_CHUNK 4096

/** Sums side by side, so that they need not wait for each other. */
#define SUMS 8

/** What runs on elements of one parameter. */
typedef void each_function(const void *context, const attn_parameter *p, int64_t first, int64_t end);

/** Calls each for what the elements first..end-1 of all parameters are of one. */
static void walk(const attn_parameter *p, int64_t first, int64_t end, each_function *each, const void *context)
{
    for (int64_t before = 0; before < end; before += p->count, p++) {
        const int64_t from = first > before ? first - before : 0;
        const int64_t behind = end - before < p->count ? end - before : p->count;
        if (from < behind)
            each(context, p, from, behind);
    }
}

/* ------------------------------------------------------------------ checks -- */

static attn_status check_array(const attn_parameter *p, int64_t i, const char *member, const float *array)
{
    if (array || !p->count)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %" PRId64 " floats",
                     nn_name_of("parameters", i, member).text, p->count);
}

/** What a step writes lies apart from what else the parameter has. */
static attn_status check_arrays(const attn_parameter *p, int64_t i)
{
    const struct {
        const char *member;
        const float *array;
    } all[] = {{"values", p->values}, {"gradients", p->gradients}, {"mean", p->mean}, {"square", p->square}};
    enum { ALL = sizeof all / sizeof *all };
    for (int a = 0; a < ALL; a++)
        CHECK(check_array(p, i, all[a].member, all[a].array));
    for (int a = 1; a < ALL; a++)
        for (int b = 0; b < a; b++) {
            const attn_tensor x = attn_vector(all[a].array, p->count), y = attn_vector(all[b].array, p->count);
            CHECK(attn_check_apart(nn_name_of("parameters", i, all[a].member).text, &x,
                                   nn_name_of("parameters", i, all[b].member).text, &y, 0));
        }
    return ATTN_OK;
}

/** Checks a list, for AdamW or for gradients alone, and counts all elements. */
static attn_status check_parameters(const attn_parameter *parameters, int64_t num, int adamw, int64_t *total)
{
    *total = 0;
    CHECK(nn_check_length("num", num, 0));
    if (!parameters && num)
        return attn_fail(ATTN_INVALID_ARGUMENT, "parameters is NULL; expected %" PRId64 " parameters", num);
    for (int64_t i = 0; i < num; i++) {
        const attn_parameter *const p = &parameters[i];
        CHECK(nn_check_length(nn_name_of("parameters", i, "count").text, p->count, 0));
        CHECK(attn_check_count(nn_name_of("parameters", i, "count").text, sizeof(float), p->count, 1, 1));
        if (p->count > INT64_MAX - *total)
            return attn_fail(ATTN_SIZE_OVERFLOW,
                             "parameters[%" PRId64 "].count is %" PRId64 "; expected less, with %" PRId64 " before it",
                             i, p->count, *total);
        CHECK(check_array(p, i, "gradients", p->gradients));
        if (adamw)
            CHECK(check_arrays(p, i));
        *total += p->count;
    }
    return ATTN_OK;
}

/* -------------------------------------------------------------------- norm -- */

struct squares {
    const attn_parameter *parameters;
    int64_t total, chunk;
    double *sums;
};

static void add_squares(const void *context, const attn_parameter *p, int64_t first, int64_t end)
{
    double *const sum = *(double *const *)context;
    const float *const g = p->gradients;
    double side[SUMS] = {0};
    int64_t i = first;
    for (; i + SUMS <= end; i += SUMS)
        for (int s = 0; s < SUMS; s++)
            side[s] += (double)g[i + s] * (double)g[i + s];
    for (int s = 0; i < end; i++, s++)
        side[s] += (double)g[i] * (double)g[i];
    for (int s = 0; s < SUMS; s++)
        *sum += side[s];
}

static void run_squares(const void *context, int64_t first, int64_t end)
{
    const struct squares *s = context;
    for (int64_t c = first; c < end; c++) {
        double sum = 0, *const to = &sum;
        const int64_t behind = s->total - c * s->chunk < s->chunk ? s->total : (c + 1) * s->chunk;
        walk(s->parameters, c * s->chunk, behind, add_squares, &to);
        s->sums[c] = sum;
    }
}

static double norm_of(const attn_parameter *parameters, int64_t total, int num_threads)
{
    double sums[MOST_CHUNKS], sum = 0;
    const int64_t even = total / MOST_CHUNKS + 1, chunk = even > LEAST_CHUNK ? even : LEAST_CHUNK;
    const int64_t chunks = total / chunk + (total % chunk != 0);
    const struct squares work = {parameters, total, chunk, sums};
    attn_run_ranges(chunks, nn_threads(num_threads, (double)total * OPTIMISE_COST), run_squares, &work);
    for (int64_t c = 0; c < chunks; c++)
        sum += sums[c];
    return sqrt(sum);
}

attn_status attn_gradient_norm(const attn_parameter *parameters, int64_t num, double *norm, int num_threads)
{
    int64_t total;
    CHECK(check_parameters(parameters, num, 0, &total));
    if (!norm)
        return attn_fail(ATTN_INVALID_ARGUMENT, "norm is NULL; expected where to put it");
    CHECK(nn_check_threads(num_threads));
    *norm = norm_of(parameters, total, num_threads);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- clipping -- */

struct scaling {
    const attn_parameter *parameters;
    double factor; /**< smaller than a float can be, where gradients are large */
};

static void scale(const void *context, const attn_parameter *p, int64_t first, int64_t end)
{
    const double factor = *(const double *)context;
    float *const g = p->gradients;
    for (int64_t i = first; i < end; i++)
        g[i] = (float)((double)g[i] * factor);
}

static void run_scaling(const void *context, int64_t first, int64_t end)
{
    const struct scaling *s = context;
    walk(s->parameters, first, end, scale, &s->factor);
}

attn_status attn_clip_gradients(const attn_parameter *parameters, int64_t num, double max_norm, double *norm,
                                int num_threads)
{
    int64_t total;
    CHECK(check_parameters(parameters, num, 0, &total));
    if (!(max_norm >= 0))
        return attn_fail(ATTN_INVALID_ARGUMENT, "max_norm is %g; expected 0 or more", max_norm);
    CHECK(nn_check_threads(num_threads));
    const double found = norm_of(parameters, total, num_threads);
    if (isfinite(found) && found > max_norm) {
        const struct scaling work = {parameters, max_norm / found};
        attn_run_ranges(total, nn_threads(num_threads, (double)total * OPTIMISE_COST), run_scaling, &work);
    }
    if (norm)
        *norm = found;
    return ATTN_OK;
}

/* ------------------------------------------------------------------- AdamW -- */

/** The factors of a step. */
struct adamw {
    const attn_parameter *parameters;
    float decay;      /**< what a value loses of itself */
    float new_mean;   /**< 1 - beta1 */
    float old_square; /**< beta2 */
    float new_square; /**< 1 - beta2 */
    float rate;       /**< learning_rate / (1 - beta1^step) */
    float root;       /**< sqrt(1 - beta2^step) */
    float eps;
};

static void update(const void *context, const attn_parameter *p, int64_t first, int64_t end)
{
    const struct adamw a = *(const struct adamw *)context;
    const int decays = p->decays && a.decay > 0;
    float *restrict const values = p->values, *restrict const mean = p->mean, *restrict const square = p->square;
    const float *restrict const gradients = p->gradients;
    for (int64_t i = first; i < end; i++) {
        const float g = gradients[i], lost = decays ? a.decay * values[i] : 0.0f;
        const float m = mean[i] + a.new_mean * (g - mean[i]);
        const float v = a.old_square * square[i] + a.new_square * g * g;
        mean[i] = m;
        square[i] = v;
        values[i] -= lost + a.rate * (m / (sqrtf(v) / a.root + a.eps)); /* rounded once */
    }
}

static void run_updates(const void *context, int64_t first, int64_t end)
{
    const struct adamw *a = context;
    walk(a->parameters, first, end, update, a);
}

static attn_status check_positive(const char *name, float x)
{
    if (!(x >= 0) || isinf(x))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %g; expected a finite number, 0 or more", name, (double)x);
    return ATTN_OK;
}

static attn_status check_beta(const char *name, float beta)
{
    if (!(beta >= 0 && beta < 1))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %g; expected 0 or more and less than 1", name, (double)beta);
    return ATTN_OK;
}

static attn_status check_options(attn_adamw_options *ours, const attn_adamw_options *options)
{
    CHECK(attn_take_struct("options", ours, sizeof *ours, NN_ADAMW_OPTIONS_FIRST, options));
    CHECK(check_positive("options.learning_rate", ours->learning_rate));
    CHECK(check_beta("options.beta1", ours->beta1));
    CHECK(check_beta("options.beta2", ours->beta2));
    CHECK(check_positive("options.eps", ours->eps));
    CHECK(check_positive("options.weight_decay", ours->weight_decay));
    if (ours->num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "options.num_threads is %d; expected 0 or more", ours->num_threads);
    return ATTN_OK;
}

attn_status attn_adamw_step(const attn_parameter *parameters, int64_t num, int64_t step,
                            const attn_adamw_options *options)
{
    int64_t total;
    attn_adamw_options o;
    CHECK(check_parameters(parameters, num, 1, &total));
    CHECK(nn_check_length("step", step, 1));
    CHECK(check_options(&o, options));
    const double beta1 = (double)(o.beta1 > 0 ? o.beta1 : 0.9f), beta2 = (double)(o.beta2 > 0 ? o.beta2 : 0.999f);
    const struct adamw work = {
        .parameters = parameters,
        .decay = (float)((double)o.learning_rate * (double)o.weight_decay),
        .new_mean = (float)(1 - beta1),
        .old_square = (float)beta2,
        .new_square = (float)(1 - beta2),
        .rate = (float)((double)o.learning_rate / (1 - pow(beta1, (double)step))),
        .root = (float)sqrt(1 - pow(beta2, (double)step)),
        .eps = o.eps > 0 ? o.eps : 1e-8f,
    };
    attn_run_ranges(total, nn_threads(o.num_threads, (double)total * OPTIMISE_COST), run_updates, &work);
    return ATTN_OK;
}
