/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn bench: times one shape of attention with any of the forms that `run` has, on random numbers, beside what the
 * machine can do at most. Everything is measured in one run, as clocks and neighbours change from one to the next.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bench/numbers.h"
#include "bench/rounding.h"
#include "commands.h"
#include "inputs.h"
#include "progress.h"
#include "rounded.h"
#include "timing.h"
#include "wording.h"

enum {
    BENCH_BATCH = INPUT_COUNT,
    BENCH_HEADS,
    BENCH_KV_HEADS,
    BENCH_Q_LEN,
    BENCH_K_LEN,
    BENCH_HEAD_DIM,
    BENCH_VALUE_DIM,
    BENCH_DTYPE,
    BENCH_KV_TYPE,
    BENCH_REPETITIONS,
    BENCH_MIN_TIME,
    BENCH_JSON,
    BENCH_COUNT
};

/* The call: numbers, and the shapes and options that they belong to. */
struct bench {
    struct inputs inputs;   /* its options and forms; no array of it is read */
    struct array arrays[4]; /* q, k, v, out */
    struct rounded rounded;
    struct timed_call call;
    bool json;
};

static void print_help(const struct option *options)
{
    printf("Usage: attn bench --q-len N [OPTION]...\n\n"
           "Times attention of one shape, on random numbers, beside what this machine allows.\n\n");
    options_print(stdout, options, INPUT_Q);
    printf("\nShape:\n");
    options_print(stdout, options + BENCH_BATCH, BENCH_REPETITIONS - BENCH_BATCH);
    printf("\nHow it is computed:\n");
    options_print(stdout, options + INPUT_Q, INPUT_FORMS - INPUT_Q);
    printf("\nHow it is measured:\n");
    options_print(stdout, options + BENCH_REPETITIONS, BENCH_COUNT - BENCH_REPETITIONS);
    inputs_print_forms(stdout, options);
    printf("\n"
           "  The peak of multiply-adds, the call, and threads that only read its keys and values\n"
           "  take turns. Time is the median and the fastest of the turns. Work is 2 operations\n"
           "  for each channel of q and of v, for each pair of query and key that see each other.\n"
           "  A call of few queries is bound by memory: how fast its keys and values are read says\n"
           "  more of it than the peak does.\n");
}

static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
static const enum array_dtype array_dtypes[] = {ARRAY_F32, ARRAY_BF16, ARRAY_F16};

/* Random numbers of a type: those of f32, of which the others are roundings. */
static attn_status fill(struct bench *b, int n, const int64_t shape[4], int dtype, attn_tensor *view)
{
    static const char *const names[] = {"the queries", "the keys", "the values", "the output"};
    struct array_shape is = {.dtype = array_dtypes[dtype], .ndim = 4};
    memcpy(is.shape, shape, sizeof is.shape[0] * 4);
    CHECK(array_allocate(&b->arrays[n], names[n], &is));
    *view = inputs_view(&b->arrays[n], false);
    const int64_t count = (int64_t)(b->arrays[n].size / array_dtype_size(is.dtype));
    if (n == 3)
        return ATTN_OK;
    if (dtype == 0) {
        bench_fill_normal(b->arrays[n].data, count, (uint64_t)n + 1);
        return ATTN_OK;
    }
    /* A block at a time, so that no second array is needed. */
    float block[1024];
    uint16_t *to = b->arrays[n].data;
    for (int64_t done = 0; done < count; done += 1024) {
        const int64_t some = count - done < 1024 ? count - done : 1024;
        bench_fill_normal(block, some, (uint64_t)(done / 1024 * 4 + n + 1));
        bench_round_rows(block, to + done, dtypes[dtype], NULL, 1, some);
    }
    return ATTN_OK;
}

/* batch, heads, kv-heads, q-len, k-len, head-dim, value-dim */
enum { SIZE_BATCH, SIZE_HEADS, SIZE_KV_HEADS, SIZE_Q, SIZE_K, SIZE_DIM, SIZE_VALUE, SIZES };

static attn_status make(struct bench *b, int dtype, const int64_t sizes[SIZES])
{
    const int64_t q[4] = {sizes[SIZE_BATCH], sizes[SIZE_HEADS], sizes[SIZE_Q], sizes[SIZE_DIM]};
    const int64_t k[4] = {q[0], sizes[SIZE_KV_HEADS], sizes[SIZE_K], q[3]};
    const int64_t v[4] = {q[0], k[1], k[2], sizes[SIZE_VALUE]}, out[4] = {q[0], q[1], q[2], v[3]};
    struct inputs *in = &b->inputs;
    CHECK(fill(b, 0, q, dtype, &in->q_view));
    CHECK(fill(b, 1, k, dtype, &in->k_view));
    CHECK(fill(b, 2, v, dtype, &in->v_view));
    CHECK(fill(b, 3, out, dtype, &b->call.out));
    CHECK(forms_load_sequences(&in->forms, &in->q_view, &in->k_view, &in->params));
    CHECK(forms_load(&in->forms, &in->q_view, &in->k_view, &in->params));
    CHECK(forms_whole_tree(&in->forms, &in->q_view, &in->k_view, &in->params));
    b->call.q = in->q_view;
    b->call.k = in->k_view;
    b->call.v = in->v_view;
    b->call.params = in->params;
    return rounded_apply(&b->rounded, &b->call.k, &b->call.v, &b->call.params);
}

/* Sizes, and those that others are by default. */
static attn_status parse_sizes(const struct option *options, int64_t sizes[SIZES])
{
    long long values[SIZES] = {1, 8, 0, 0, 0, 64, 0};
    static const long long most[SIZES] = {1 << 20, 1 << 20, 1 << 20, INT64_C(1) << 40, INT64_C(1) << 40, 4096, 4096};
    CHECK(option_require(&options[BENCH_Q_LEN]));
    for (int i = 0; i < SIZES; i++) {
        CHECK(option_integer(&options[BENCH_BATCH + i], 1, most[i], &values[i]));
        sizes[i] = values[i];
    }
    sizes[SIZE_KV_HEADS] = sizes[SIZE_KV_HEADS] > 0 ? sizes[SIZE_KV_HEADS] : sizes[SIZE_HEADS];
    sizes[SIZE_K] = sizes[SIZE_K] > 0 ? sizes[SIZE_K] : sizes[SIZE_Q];
    sizes[SIZE_VALUE] = sizes[SIZE_VALUE] > 0 ? sizes[SIZE_VALUE] : sizes[SIZE_DIM];
    if (sizes[SIZE_HEADS] % sizes[SIZE_KV_HEADS] != 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "--kv-heads is '%s'; expected a divisor of --heads, %" PRId64,
                       options[BENCH_KV_HEADS].value, sizes[SIZE_HEADS]);
    return ATTN_OK;
}

static attn_status parse(struct bench *b, struct option *options, int *dtype, int64_t sizes[SIZES])
{
    static const char *const names[] = {"f32", "bf16", "f16"};
    long long repetitions = 10;
    b->call.min_time = 0.02;
    CHECK(parse_sizes(options, sizes));
    CHECK(option_choice(&options[BENCH_DTYPE], names, 3, dtype));
    CHECK(rounded_parse(&b->rounded, &options[BENCH_KV_TYPE]));
    CHECK(option_integer(&options[BENCH_REPETITIONS], 1, 1000, &repetitions));
    CHECK(option_double(&options[BENCH_MIN_TIME], 0.0001, 60, &b->call.min_time));
    CHECK(inputs_parse(&b->inputs, options));
    attn_params *params = &b->inputs.params;
    if (params->num_threads == 0)
        params->num_threads = attn_default_num_threads();
    if (params->isa == NULL)
        params->isa = attn_isa_active();
    b->call.repetitions = (int)repetitions;
    b->json = options[BENCH_JSON].value != NULL;
    return ATTN_OK;
}

/* ----------------------------------------------------------------- results -- */

static double tokens_per_second(const struct bench *b, const struct timed *t)
{
    return (double)b->call.q.shape[0] * (double)b->call.q.shape[2] / t->fastest;
}

static void print_text(const struct bench *b, const struct timed *t)
{
    const struct timed_call *c = &b->call;
    const double run = 1e-9 / t->fastest;
    printf("plan        %s\n", t->plan);
    printf("time        %.4g ms median, %.4g ms fastest of %d\n", t->median * 1e3, t->fastest * 1e3, c->repetitions);
    printf("products    %.4g GFLOP/s, %.3f of the peak, %.4g GFLOP/s of %s (%s, %d thread%s)\n", t->operations * run,
           t->peak_fraction, t->peak, t->peak_of, t->peak_isa, c->params.num_threads,
           c->params.num_threads == 1 ? "" : "s");
    printf("            %.3f the median of the turns; products of L1 reach %.4g GFLOP/s\n", t->peak_fraction_median,
           t->loads);
    printf("keys        %.4g GB/s", t->bytes * run);
    if (t->read > 0)
        printf(", %.3f of the %.4g GB/s at which k and v are read", t->read_fraction, t->read);
    printf("\n");
    printf("tokens      %.4g queries/s\n", tokens_per_second(b, t));
}

static attn_status print_json(const struct bench *b, const struct timed *t)
{
    const struct timed_call *c = &b->call;
    const int64_t *q = c->q.shape, *k = c->k.shape;
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:i, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, "
        "s:o, s:f, s:s, s:s}",
        "version", attn_version_string(), "threads", c->params.num_threads, "plan", t->plan, "repetitions",
        c->repetitions, "shape", "batch", (json_int_t)q[0], "heads", (json_int_t)q[1], "kv_heads", (json_int_t)k[1],
        "q_len", (json_int_t)q[2], "k_len", (json_int_t)k[2], "head_dim", (json_int_t)q[3], "value_dim",
        (json_int_t)c->v.shape[3], "time_median", t->median, "time_fastest", t->fastest, "pairs", t->pairs, "gflops",
        1e-9 * t->operations / t->fastest, "peak_gflops", t->peak, "loads_gflops", t->loads, "fraction",
        t->peak_fraction, "fraction_median", t->peak_fraction_median, "gbytes_per_second", 1e-9 * t->bytes / t->fastest,
        "read_gbytes_per_second", t->read > 0 ? json_real(t->read) : json_null(), "read_fraction",
        t->read > 0 ? json_real(t->read_fraction) : json_null(), "queries_per_second", tokens_per_second(b, t),
        "peak_isa", t->peak_isa, "peak_factors", t->peak_of);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (text == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the results");
    puts(text);
    free(text);
    return ATTN_OK;
}

static void turn_done(void *progress)
{
    progress_add(progress, 1);
}

static attn_status run(struct bench *b, struct option *options)
{
    int dtype = 0;
    int64_t sizes[SIZES];
    struct timed timed = {.median = 0};
    struct progress progress;
    CHECK(parse(b, options, &dtype, sizes));
    CHECK(make(b, dtype, sizes));
    progress_start(&progress, b->call.repetitions, "turns", command_is_quiet());
    attn_status status = time_call(&b->call, &timed, turn_done, &progress);
    progress_finish(&progress);
    CHECK(status);
    if (b->json)
        return print_json(b, &timed);
    print_text(b, &timed);
    return ATTN_OK;
}

attn_status command_bench(int argc, char *const *argv)
{
    struct option options[BENCH_COUNT] = {
        [BENCH_BATCH] = {"batch", 0, "N", "batch elements; default 1", NULL},
        [BENCH_HEADS] = {"heads", 0, "N", "query heads; default 8", NULL},
        [BENCH_KV_HEADS] = {"kv-heads", 0, "N", "heads of keys and values; default: as many as --heads", NULL},
        [BENCH_Q_LEN] = {"q-len", 0, "N", "queries; 1 for a token of decoding", NULL},
        [BENCH_K_LEN] = {"k-len", 0, "N", "keys; default: as many as queries", NULL},
        [BENCH_HEAD_DIM] = {"head-dim", 0, "N", "channels of a query and key; default 64", NULL},
        [BENCH_VALUE_DIM] = {"value-dim", 0, "N", "channels of a value; default: as --head-dim", NULL},
        [BENCH_DTYPE] = {"dtype", 0, "NAME", "f32 (default), bf16 or f16", NULL},
        [BENCH_KV_TYPE] = {"kv-type", 0, "NAME",
                           "k and v as-given (default: of --dtype), or as a cache keeps\n"
                           "them: int8, fp8 (E4M3) or int4, with scales",
                           NULL},
        [BENCH_REPETITIONS] = {"repetitions", 'r', "N", "turns, 1 to 1000; default 10", NULL},
        [BENCH_MIN_TIME] = {"min-time", 0, "X", "seconds that a sample takes at least; default 0.02", NULL},
        [BENCH_JSON] = {"json", 0, NULL, "print the results as JSON, times in seconds", NULL},
    };
    /* What names a file of tokens' data has no place here; a row without a name is no option. */
    static const enum input_option files[] = {INPUT_Q, INPUT_K, INPUT_LAYOUT, INPUT_MASK, INPUT_KV_LEN, INPUT_KV_START};
    inputs_options(options);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        options[files[i]] = (struct option){.name = NULL};
    options[INPUT_THREADS].letter = 't';
    struct operands operands;
    CHECK(options_parse(options, BENCH_COUNT, argc, argv, &operands, 0));
    if (options[INPUT_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[INPUT_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[INPUT_QUIET]);
    struct bench *b = calloc(1, sizeof *b);
    if (b == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    attn_status status = run(b, options);
    for (int i = 0; i < 4; i++)
        array_free(&b->arrays[i]);
    rounded_free(&b->rounded);
    inputs_free(&b->inputs);
    free(b);
    return status;
}
