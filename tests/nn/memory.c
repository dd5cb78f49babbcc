/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded tensors with gaps, and shared assertions. */
#include "memory.h"

#include "sentences.h"

uint64_t nn_seed(void)
{
    static uint64_t seed;
    static int drawn;
    if (!drawn)
        seed = rng_seed_of_run(NULL);
    drawn = 1;
    return seed;
}

uint64_t cases(uint64_t n)
{
    enum { ALL = 2000, LEAST = 3 };
    const char *text = getenv("ATTN_CHECK_CASES");
    const uint64_t limit = text && *text ? strtoull(text, NULL, 10) : ALL;
    const uint64_t share = limit < ALL ? n * limit / ALL : n;
    return share > LEAST ? share : n < LEAST ? n : LEAST;
}

void nn_begin(void)
{
    printf("seed %llu (ATTN_CHECK_SEED), instruction set %s\n", (unsigned long long)nn_seed(), attn_isa_active());
}

void run_in(struct memory *m, attn_dtype dtype)
{
    m->dtype = oracle_type = dtype;
}

static struct memory *create(const char *test, uint64_t n, uint64_t seed)
{
    struct memory *m = calloc(1, sizeof *m);
    uint64_t name = 0;
    assert_non_null(m);
    guard_catch_faults(); /* here, as cmocka puts its own handlers in place before each test */
    for (const char *c = test; *c; c++)
        name = name * 31 + (unsigned char)*c;
    m->rng = rng_for_case(seed ^ name, n);
    run_in(m, ATTN_F32);
    snprintf(guard_case_line, sizeof guard_case_line, "%s, case %llu, ATTN_CHECK_SEED=%llu", test,
             (unsigned long long)n, (unsigned long long)seed);
    return m;
}

struct memory *memory_create(const char *test, uint64_t n)
{
    return create(test, n, nn_seed());
}

struct memory *memory_for_refusals(const char *test, uint64_t n)
{
    return create(test, n, 20250607);
}

static void *keep(struct memory *m, void *p)
{
    assert_true(m->num_arrays < MEMORY_ARRAYS);
    assert_non_null(p);
    return m->arrays[m->num_arrays++] = p;
}

double *zeros(struct memory *m, int64_t n)
{
    return keep(m, calloc(n > 0 ? (size_t)n : 1, sizeof(double)));
}

double *absolute(struct memory *m, const double *x, int64_t n)
{
    double *y = zeros(m, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = fabs(x[i]);
    return y;
}

void *bytes(struct memory *m, size_t n)
{
    return memset(keep(m, malloc(n ? n : 1)), GUARD_CANARY, n);
}

struct trio trio(struct memory *m, int64_t n)
{
    return (struct trio){{zeros(m, n), zeros(m, n), zeros(m, n)}};
}

double *softmax_sizes(struct memory *m, const double *exact, int64_t rows, int64_t channels, double least,
                      const double *s, int64_t same)
{
    double *sizes = zeros(m, rows * channels);
    for (int64_t r = 0; r < rows; r++) {
        double largest = least;
        for (int64_t c = 0; c < channels; c++)
            if (isfinite(exact[r * channels + c]))
                largest = fmax(largest, fabs(exact[r * channels + c]));
        for (int64_t c = 0; c < channels; c++)
            sizes[r * channels + c] = largest * (1 + s[r / same]);
    }
    return sizes;
}

/** Gives a tensor of span elements its memory. */
static attn_tensor place(struct memory *m, attn_tensor t, int64_t span)
{
    assert_true(m->num_buffers < MEMORY_BUFFERS);
    struct buffer *b = &m->buffers[m->num_buffers++];
    b->size = (size_t)span * attn_dtype_size(t.dtype);
    b->guard = guard_create(b->size);
    t.data = guard_place(&b->guard, b->size, 1);
    b->tensor = t;
    return t;
}

attn_dtype random_activations(struct memory *m)
{
    return (attn_dtype)RNG_PICK(&m->rng, ATTN_F32, ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_BF16, ATTN_F16);
}

attn_tensor place_rows(struct memory *m, int64_t batch, int64_t tokens, int64_t channels)
{
    return place_rows_of(m, m->dtype, batch, tokens, channels);
}

attn_tensor place_rows_of(struct memory *m, attn_dtype dtype, int64_t batch, int64_t tokens, int64_t channels)
{
    const int64_t gap = RNG_PICK(&m->rng, 0, 0, 1, 3, 8), batch_gap = RNG_PICK(&m->rng, 0, 0, 5);
    attn_tensor t = tensor_as(attn_bhtd(NULL, batch, 1, tokens, channels), dtype);
    t.stride[2] = channels + gap;
    t.stride[1] = t.stride[0] = tokens * (channels + gap) + batch_gap;
    const int64_t span = batch && tokens ? (batch - 1) * t.stride[0] + (tokens - 1) * t.stride[2] + channels : 0;
    return place(m, t, span);
}

attn_tensor place_dense(struct memory *m, int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    return place(m, attn_bhtd(NULL, batch, heads, tokens, channels), batch * heads * tokens * channels);
}

attn_tensor place_matrix(struct memory *m, attn_dtype dtype, int64_t rows, int64_t columns)
{
    attn_tensor t = attn_matrix(NULL, rows, columns);
    const int64_t gap = RNG_PICK(&m->rng, 0, 0, 3);
    t.dtype = dtype;
    if (rng_percent(&m->rng, 25) && rows > 1 && columns > 1) {
        t.stride[3] = rows + gap;
        t.stride[2] = 1;
        return place(m, t, columns * (rows + gap));
    }
    t.stride[2] = columns + gap;
    return place(m, t, rows * (columns + gap));
}

static struct buffer *buffer_of(struct memory *m, const attn_tensor *t)
{
    for (int i = 0; i < m->num_buffers; i++)
        if (m->buffers[i].tensor.data == t->data)
            return &m->buffers[i];
    fail_msg("a tensor that was not placed");
    return NULL;
}

#define FOR_ELEMENTS(t)                                                                                                \
    for (int64_t b = 0; b < (t)->shape[0]; b++)                                                                        \
        for (int64_t h = 0; h < (t)->shape[1]; h++)                                                                    \
            for (int64_t i = 0; i < (t)->shape[2]; i++)                                                                \
                for (int64_t c = 0; c < (t)->shape[3]; c++)

void mark_input(struct memory *m, const attn_tensor *t)
{
    buffer_of(m, t)->is_input = 1;
}

void mark_output(struct memory *m, const attn_tensor *t)
{
    buffer_of(m, t)->is_input = 0;
}

void fill(struct memory *m, const attn_tensor *t, double scale)
{
    mark_input(m, t);
    FOR_ELEMENTS(t)
    tensor_set(t, b, h, i, c, (float)(scale * (double)rng_normal(&m->rng)));
}

attn_tensor random_rows(struct memory *m, int64_t batch, int64_t tokens, int64_t channels)
{
    const attn_tensor t = place_rows(m, batch, tokens, channels);
    fill(m, &t, 1);
    return t;
}

attn_tensor random_matrix(struct memory *m, attn_dtype dtype, int64_t rows, int64_t columns, double scale)
{
    const attn_tensor t = place_matrix(m, dtype, rows, columns);
    fill(m, &t, scale);
    return t;
}

attn_tensor random_vector(struct memory *m, attn_dtype dtype, int64_t n, double scale, double mean)
{
    attn_tensor t = attn_vector(NULL, n);
    t.dtype = dtype;
    t = place(m, t, n);
    fill(m, &t, scale);
    for (int64_t i = 0; i < n; i++)
        tensor_set(&t, 0, 0, 0, i, tensor_get(&t, 0, 0, 0, i) + (float)mean);
    return t;
}

attn_dtype random_dtype(struct memory *m)
{
    return (attn_dtype)RNG_PICK(&m->rng, ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F16);
}

double *read_all(struct memory *m, const attn_tensor *t)
{
    double *all = zeros(m, t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]), *at = all;
    FOR_ELEMENTS(t)
    *at++ = (double)tensor_get(t, b, h, i, c);
    return all;
}

/** Whether what is between the elements still holds the pattern. */
static int gaps_intact(const struct buffer *buffer)
{
    const attn_tensor *t = &buffer->tensor;
    const size_t size = attn_dtype_size(t->dtype);
    if (t->dtype == ATTN_U8) /* a workspace: all of it may be written */
        return guard_intact(&buffer->guard);
    unsigned char *used = calloc(1, buffer->size + 1);
    int intact = guard_intact(&buffer->guard);
    assert_non_null(used);
    FOR_ELEMENTS(t)
    memset(used + (size_t)tensor_offset(t, b, h, i, c) * size, 1, size);
    for (size_t n = 0; n < buffer->size; n++)
        intact &= used[n] || buffer->guard.data[n] == GUARD_CANARY;
    free(used);
    return intact;
}

void memory_seal(struct memory *m)
{
    for (int i = 0; i < m->num_buffers; i++) {
        struct buffer *b = &m->buffers[i];
        if (!b->sealed)
            b->sealed = malloc(b->size + 1);
        assert_non_null(b->sealed);
        memcpy(b->sealed, b->guard.data, b->size);
    }
}

int memory_untouched(const struct memory *m)
{
    for (int i = 0; i < m->num_buffers; i++)
        if (m->buffers[i].sealed && memcmp(m->buffers[i].sealed, m->buffers[i].guard.data, m->buffers[i].size) != 0)
            return 0;
    return 1;
}

void memory_destroy(struct memory *m)
{
    for (int i = 0; i < m->num_buffers; i++) {
        struct buffer *b = &m->buffers[i];
        if (!gaps_intact(b))
            fail_msg("%s: something was written between the rows of tensor %d or beside it", guard_case_line, i);
        if (b->sealed && b->is_input && memcmp(b->sealed, b->guard.data, b->size) != 0)
            fail_msg("%s: input %d has changed", guard_case_line, i);
        guard_destroy(&b->guard);
        free(b->sealed);
    }
    for (int i = 0; i < m->num_arrays; i++)
        free(m->arrays[i]);
    free(m);
}

int equal_bits(const attn_tensor *a, const attn_tensor *b)
{
    for (int axis = 0; axis < 4; axis++)
        if (a->shape[axis] != b->shape[axis])
            return 0;
    for (int64_t n = 0; n < a->shape[0]; n++)
        for (int64_t h = 0; h < a->shape[1]; h++)
            for (int64_t i = 0; i < a->shape[2]; i++)
                for (int64_t c = 0; c < a->shape[3]; c++) {
                    const float x = tensor_get(a, n, h, i, c), y = tensor_get(b, n, h, i, c);
                    if (memcmp(&x, &y, sizeof x) != 0)
                        return 0;
                }
    return 1;
}

void assert_rounded(const char *what, const attn_tensor *got, const attn_tensor *expected)
{
    for (int64_t b = 0; b < got->shape[0]; b++)
        for (int64_t i = 0; i < got->shape[2]; i++)
            for (int64_t c = 0; c < got->shape[3]; c++) {
                const float y = tensor_get(got, b, 0, i, c);
                const float e = dtype_round(got->dtype, tensor_get(expected, b, 0, i, c));
                if (!(isnan(y) && isnan(e)) && (y != e || signbit(y) != signbit(e)))
                    fail_msg("%s: %s of row %lld, channel %lld is %.9g; expected %.9g", guard_case_line, what,
                             (long long)i, (long long)c, (double)y, (double)e);
            }
}

attn_tensor slice(const attn_tensor *t, int64_t batch, int64_t first_token, int64_t tokens)
{
    attn_tensor s = *t;
    s.data = (char *)t->data + (batch * t->stride[0] + first_token * t->stride[2]) * (int64_t)attn_dtype_size(t->dtype);
    s.shape[0] = 1;
    s.shape[2] = tokens;
    return s;
}

attn_tensor advanced(const attn_tensor *t, int64_t elements)
{
    attn_tensor moved = *t;
    moved.data = (char *)t->data + elements * (int64_t)attn_dtype_size(t->dtype);
    return moved;
}

size_t said_least(void)
{
    size_t least = 0;
    const char *number = strstr(attn_last_error(), "; expected ");
    assert_true(number && sscanf(number, "; expected %zu bytes or more", &least) == 1 && least > 0);
    return least;
}

int says(const char *words)
{
    return sentence_has(attn_last_error(), words);
}

static int refusals_wrong;

void nn_check_refusal(const struct memory *m, attn_status status, attn_status expected, const char *words,
                      const char *call, const char *file, int line)
{
    const int untouched = !m || memory_untouched(m);
    const int right = expected == ANY_ERROR ? status != ATTN_OK : status == expected;
    if (right && says(words) && untouched)
        return;
    refusals_wrong++;
    printf("%s:%d: %s\n  status %d (%s), \"%s\"\n  expected %d and the words %s%s\n", file, line, call, (int)status,
           attn_status_string(status), attn_last_error(), (int)expected, words,
           untouched ? "" : "; something WAS WRITTEN");
}

void nn_end_refusals(void)
{
    const int wrong = refusals_wrong;
    refusals_wrong = 0;
    if (wrong)
        fail_msg("%d refusals are not as expected, see above", wrong);
}
