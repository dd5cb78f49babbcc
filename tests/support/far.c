/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors moved apart in sparse mappings, and calls that must not notice. */
#include "far.h"

#include "arguments.h"
#include "dtype.h"
#include "guard.h"
#include "random.h"
#include "test_isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *far_map(size_t size)
{
    /* Where the first one was, if that is free: an emulator keeps notes on every page that has ever been mapped. */
    static void *first;
    void *map = mmap(first, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        printf("skipped: no address space for %zu bytes\n", size);
        exit(TEST_SKIPPED);
    }
    if (!first)
        first = map;
    madvise(map, size, MADV_NOHUGEPAGE); /* each element would take 2 MiB; where it is refused, it does */
    return map;
}

void far_unmap(void *map, size_t size)
{
    munmap(map, size);
}

/** Bytes that hold any tensor of check_axis(): a mapping that is made once, as an emulator walks over all its pages. */
#define ROOM ((size_t)FAR_UNSIGNED * sizeof(float) + ((size_t)1 << 30))

static char *room;

/** Memcheck reads all that is mapped at the end, in search of pointers. */
static void unmap_room(void)
{
    munmap(room, ROOM);
}

/** Bytes of so many elements; of ATTN_I4 of whole groups. */
static int64_t bytes_of(attn_dtype dtype, int64_t elements)
{
    return dtype == ATTN_I4 ? elements / 2 : elements * (int64_t)attn_dtype_size(dtype);
}

/** Bytes from the first to the last of a tensor whose strides are 0 or more. */
static int64_t reach(const attn_tensor *t)
{
    int64_t last = 0;
    for (int axis = 0; axis < 3; axis++)
        last += (t->shape[axis] - 1) * t->stride[axis];
    if (t->dtype == ATTN_I4)
        return bytes_of(t->dtype, last) + (int64_t)attn_row_size(t->dtype, t->shape[3]);
    return bytes_of(t->dtype, last + (t->shape[3] - 1) * t->stride[3] + 1);
}

/** Takes away the memory of the pages of some bytes, which are 0 again. */
static void forget(char *bytes, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), in_page = (uintptr_t)bytes % page;
    madvise(bytes - in_page, (in_page + size + page - 1) / page * page, MADV_DONTNEED);
}

/** What is done with each piece of two views of one shape. */
enum deed { COPY, COMPARE, FORGET };

/** Copies the pieces of near, or forgets the pages of far's, or returns whether one differs. */
static int for_each_piece(const attn_tensor *far, const attn_tensor *near, enum deed deed)
{
    const int rows = far->stride[3] == 1 && near->stride[3] == 1;
    const size_t size = rows ? attn_row_size(far->dtype, far->shape[3]) : attn_dtype_size(far->dtype);
    int64_t at[4];
    for (at[0] = 0; at[0] < far->shape[0]; at[0]++)
        for (at[1] = 0; at[1] < far->shape[1]; at[1]++)
            for (at[2] = 0; at[2] < far->shape[2]; at[2]++)
                for (at[3] = 0; at[3] < (rows ? 1 : far->shape[3]); at[3]++) {
                    int64_t to = 0, from = 0;
                    for (int axis = 0; axis < 4; axis++) {
                        to += at[axis] * far->stride[axis];
                        from += at[axis] * near->stride[axis];
                    }
                    char *const piece = (char *)far->data + bytes_of(far->dtype, to);
                    const char *const other = (const char *)near->data + bytes_of(far->dtype, from);
                    if (deed == COPY)
                        memcpy(piece, other, size);
                    else if (deed == FORGET)
                        forget(piece, size);
                    else if (memcmp(piece, other, size) != 0)
                        return 1;
                }
    return 0;
}

struct check {
    const char *what;
    const struct far_tensor *tensors;
    int num;
    far_call *call;
    void *user;
    void *initial[FAR_TENSORS];  /**< what the tensors held */
    void *expected[FAR_TENSORS]; /**< what the call close together has made of them */
    int wrong;
};

/** Calls, and compares what it has written with what was expected, moved being number which of the tensors. */
static void call_far(struct check *c, int which, const attn_tensor *near)
{
    for (int n = 0; n < c->num; n++) {
        const attn_tensor *const t = c->tensors[n].tensor;
        if (n != which)
            memcpy(t->data, c->initial[n], (size_t)reach(t));
    }
    const attn_status status = c->call(c->user);
    if (status != ATTN_OK) {
        printf("%s: status %d, %s\n", guard_case_line, (int)status, attn_last_error());
        c->wrong++;
        return;
    }
    for (int n = 0; n < c->num; n++) {
        const struct far_tensor *const t = &c->tensors[n];
        attn_tensor view = n == which ? *near : *t->tensor;
        view.data = t->use == FAR_WRITTEN ? c->expected[n] : c->initial[n];
        if (for_each_piece(t->tensor, &view, COMPARE)) {
            printf("%s: %s differs from that of tensors close together\n", guard_case_line, t->name);
            c->wrong++;
        }
    }
}

/** Moves one tensor apart along an axis, forwards or backwards, and calls. */
static void check_axis(struct check *c, int which, int axis, int backwards)
{
    attn_tensor *const t = c->tensors[which].tensor;
    const attn_tensor near = *t;
    attn_tensor far = near;
    const int64_t steps = near.shape[axis] - 1, group = near.dtype == ATTN_I4 ? ATTN_I4_GROUP : 1;
    far.stride[axis] = (backwards ? FAR_SIGNED : FAR_UNSIGNED) / steps / group * group;
    if ((size_t)reach(&far) > ROOM) {
        printf("%s: %s has no room in a mapping\n", c->what, c->tensors[which].name);
        c->wrong++;
        return;
    }
    if (!room) {
        room = far_map(ROOM);
        atexit(unmap_room);
    }
    far.data = room;
    if (backwards) {
        far.data = room + bytes_of(near.dtype, steps * far.stride[axis]);
        far.stride[axis] = -far.stride[axis];
    }
    attn_tensor initial = near;
    initial.data = c->initial[which];
    for_each_piece(&far, &initial, COPY);
    snprintf(guard_case_line, sizeof guard_case_line, "%s: %s, axis %d, %s", c->what, c->tensors[which].name, axis,
             backwards ? "backwards" : "forwards");
    *t = far;
    call_far(c, which, &near);
    *t = near;
    for_each_piece(&far, &near, FORGET);
}

static void *copy_of(const attn_tensor *t)
{
    void *const copy = malloc((size_t)reach(t));
    if (!copy) {
        printf("no memory\n");
        exit(1);
    }
    return memcpy(copy, t->data, (size_t)reach(t));
}

int far_check(const char *what, const struct far_tensor *tensors, int num, far_call *call, void *user)
{
    struct check c = {.what = what, .tensors = tensors, .num = num, .call = call, .user = user};
    if (num > FAR_TENSORS) {
        printf("%s: %d tensors; expected %d at most\n", what, num, FAR_TENSORS);
        return 1;
    }
    for (int n = 0; n < num; n++)
        c.initial[n] = copy_of(tensors[n].tensor);
    snprintf(guard_case_line, sizeof guard_case_line, "%s: close together", what);
    const attn_status status = call(user);
    if (status != ATTN_OK) {
        printf("%s: status %d, %s\n", guard_case_line, (int)status, attn_last_error());
        c.wrong++;
    }
    for (int n = 0; n < num; n++) {
        c.expected[n] = copy_of(tensors[n].tensor);
        if (tensors[n].use == FAR_WRITTEN &&
            memcmp(c.expected[n], c.initial[n], (size_t)reach(tensors[n].tensor)) == 0) {
            printf("%s: the call has not written %s\n", what, tensors[n].name);
            c.wrong++;
        }
    }
    for (int n = 0; n < num && !c.wrong; n++)
        for (int axis = 0; axis < 3 + !!tensors[n].any_channels; axis++)
            for (int backwards = 0; backwards < 2 && tensors[n].tensor->shape[axis] > 1; backwards++)
                if (!surroundings_are_slow() || backwards == (n + axis) % 2)
                    check_axis(&c, n, axis, backwards);
    for (int n = 0; n < num; n++) {
        memcpy(tensors[n].tensor->data, c.initial[n], (size_t)reach(tensors[n].tensor));
        free(c.initial[n]);
        free(c.expected[n]);
    }
    return c.wrong;
}

attn_tensor *far_add(struct far_set *set, const char *name, enum far_use use, int any_channels, attn_dtype dtype,
                     int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    struct rng rng = rng_for_case(31, (uint64_t)set->num);
    if (set->num == FAR_TENSORS) {
        printf("no room for %s among %d tensors\n", name, FAR_TENSORS);
        exit(1);
    }
    attn_tensor *const t = &set->views[set->num];
    const int64_t group = dtype == ATTN_I4 ? ATTN_I4_GROUP : 1;
    *t = attn_bhtd(NULL, batch, heads, tokens, (channels + group - 1) / group * group);
    t->dtype = dtype;
    t->shape[3] = channels;
    const int64_t elements = batch * t->stride[0];
    const size_t size = (size_t)bytes_of(dtype, elements);
    t->data = malloc(size);
    if (!t->data) {
        printf("no memory for %s\n", name);
        exit(1);
    }
    memset(t->data, use == FAR_WRITTEN ? GUARD_CANARY : 0, size);
    for (int64_t i = 0; i < elements && use == FAR_READ && dtype <= ATTN_F16; i++)
        dtype_store(dtype, t->data, i, rng_normal(&rng));
    for (int64_t i = 0; i < elements && use == FAR_READ && dtype == ATTN_BOOL; i++)
        ((uint8_t *)t->data)[i] = (uint8_t)rng_percent(&rng, 60);
    set->tensors[set->num++] = (struct far_tensor){name, t, use, any_channels};
    return t;
}

int far_check_set(const char *what, const struct far_set *set, far_call *call, void *user)
{
    return far_check(what, set->tensors, set->num, call, user);
}

void far_clear(struct far_set *set)
{
    for (int n = 0; n < set->num; n++)
        free(set->views[n].data);
    set->num = 0;
}
