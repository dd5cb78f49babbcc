/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn-ring-bench: how long calls of libattn_mpi take on the ranks of mpirun, and how fast messages are between the
 * first two of them. Prints one line of JSON for each; bench/cluster/model makes a model of time of many.
 *
 * Usage: mpirun -n RANKS attn-ring-bench [OPTION=NUMBER]...   see USAGE below
 */
#include <attn/mpi.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] = "attn-ring-bench: expected OPTION=NUMBER with one of\n"
                            "  tokens     of the whole sequence (8192)\n"
                            "  heads, kv_heads, channels  of queries, of keys, of a head (4, heads, 64)\n"
                            "  causal     0 or 1: every query sees the keys up to its own (1)\n"
                            "  window     keys before its own that a query sees; 0: all (0)\n"
                            "  placement  0 contiguous, 1 zig-zag, 2 striped (1)\n"
                            "  wire       0 as given, 1 bf16 (0)\n"
                            "  head_ranks as in attn_mpi_config (1)\n"
                            "  backward   0 or 1: the gradients of q, k and v instead (0)\n"
                            "  threads    of a rank; 0: as many as it has processors (1)\n"
                            "  calls      that are timed, after one that is not (5)\n"
                            "  ping       0 or 1: messages from rank 0 to rank 1 and back instead (0)\n";

enum {
    TOKENS,
    HEADS,
    KV_HEADS,
    CHANNELS,
    CAUSAL,
    WINDOW,
    PLACEMENT,
    WIRE,
    HEAD_RANKS,
    BACKWARD,
    THREADS,
    CALLS,
    PING,
    OPTIONS
};

static const char *const names[OPTIONS] = {"tokens",  "heads",     "kv_heads", "channels",   "causal",
                                           "window",  "placement", "wire",     "head_ranks", "backward",
                                           "threads", "calls",     "ping"};
static int64_t options[OPTIONS] = {8192, 4, 0, 64, 1, 0, ATTN_MPI_ZIGZAG, ATTN_MPI_AS_GIVEN, 1, 0, 1, 5, 0};

static int rank, ranks;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "attn-ring-bench: rank %d: %s: %s\n", rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int found = 0;
        for (int o = 0; o < OPTIONS && !found; o++) {
            const size_t length = strlen(names[o]);
            char *end;
            if (strncmp(argv[i], names[o], length) != 0 || argv[i][length] != '=')
                continue;
            options[o] = strtoll(argv[i] + length + 1, &end, 10);
            found = end != argv[i] + length + 1 && !*end && options[o] >= 0 && options[o] <= INT64_C(1) << 40;
        }
        if (!found)
            fail(argv[i], USAGE);
    }
    if (!options[KV_HEADS])
        options[KV_HEADS] = options[HEADS];
    if (!options[CALLS])
        fail("calls=0", "expected 1 or more");
}

/* ----------------------------------------------------------------- messages -- */

/** Seconds of a message there and back, the best of some, halved. */
static double time_message(char *bytes, int size)
{
    double best = 1e9;
    for (int i = 0; i < 30 && rank < 2; i++) {
        const double begin = MPI_Wtime();
        for (int half = 0; half < 2; half++)
            if (half == rank)
                MPI_Send(bytes, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
            else
                MPI_Recv(bytes, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const double seconds = (MPI_Wtime() - begin) / 2;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void run_messages(void)
{
    enum { MOST = 1 << 24 };
    char *bytes = calloc(MOST, 1);
    if (ranks < 2 || !bytes)
        fail("ping", "expected two ranks or more, and 16 MiB");
    for (int size = 8; size <= MOST; size *= 8) {
        const double seconds = time_message(bytes, size);
        if (rank == 0)
            printf("{\"message\": %d, \"seconds\": %.9f}\n", size, seconds);
    }
    free(bytes);
}

/* -------------------------------------------------------------------- calls -- */

/** Tensors of a rank's tokens, side by side; values of the size that those of a model have. */
static attn_tensor rows(int64_t heads, int64_t tokens, int64_t channels, unsigned seed)
{
    const size_t count = (size_t)(heads * tokens * channels);
    float *data = malloc((count + 1) * sizeof *data);
    if (!data)
        fail("tensors", "no memory");
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
    return attn_bhtd(data, 1, heads, tokens, channels);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/** Of the slowest rank, for each call. */
static void time_calls(attn_mpi_plan *plan, const attn_tensor t[4], const attn_params *params, const attn_gradients *g)
{
    const int64_t calls = options[CALLS];
    double *seconds = calloc((size_t)calls, sizeof *seconds);
    if (!seconds)
        fail("times", "no memory");
    for (int64_t i = -1; i < calls; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        const attn_status status = options[BACKWARD] && i >= 0
                                       ? attn_mpi_backward(plan, &t[0], &t[1], &t[2], &t[3], params, g)
                                       : attn_mpi_forward(plan, &t[0], &t[1], &t[2], &t[3], params);
        double ours = MPI_Wtime() - begin, slowest;
        if (status != ATTN_OK)
            fail("attention", attn_last_error());
        MPI_Allreduce(&ours, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (i >= 0)
            seconds[i] = slowest;
    }
    qsort(seconds, (size_t)calls, sizeof *seconds, compare);
    if (rank == 0) {
        printf("{\"ranks\": %d", ranks);
        for (int o = 0; o < PING; o++)
            printf(", \"%s\": %" PRId64, names[o], options[o]);
        printf(", \"best\": %.9f, \"median\": %.9f}\n", seconds[0], seconds[calls / 2]);
    }
    free(seconds);
}

static void run_calls(void)
{
    const int64_t heads = options[HEADS], kv_heads = options[KV_HEADS], channels = options[CHANNELS];
    attn_mpi_config config = attn_mpi_config_default();
    config.queries = config.keys = options[TOKENS];
    config.placement = (attn_mpi_placement)options[PLACEMENT];
    config.wire = (attn_mpi_wire)options[WIRE];
    config.head_ranks = (int)options[HEAD_RANKS];
    config.backward = options[BACKWARD] != 0;
    const int64_t mine = attn_mpi_local_tokens(&config, options[TOKENS], ranks, rank);
    if (mine < 0)
        fail("tokens", attn_last_error());
    attn_tensor t[4], g[4];
    for (int i = 0; i < 4; i++) {
        const int64_t count = i == 1 || i == 2 ? kv_heads : heads;
        t[i] = rows(count, mine, channels, (unsigned)(8 * rank + i));
        g[i] = rows(count, options[BACKWARD] ? mine : 0, channels, (unsigned)(8 * rank + 4 + i));
    }
    const attn_tensor lse = rows(heads, mine, 1, 0);
    const attn_window window = {.left = options[WINDOW], .right = ATTN_UNLIMITED};
    attn_params params = attn_params_default();
    attn_gradients gradients = attn_gradients_default();
    params.causal = options[CAUSAL] ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    params.num_threads = (int)options[THREADS];
    params.lse = &lse;
    params.window = options[WINDOW] ? &window : NULL;
    gradients.q = &g[0], gradients.k = &g[1], gradients.v = &g[2], gradients.out = &g[3];
    attn_mpi_plan *plan;
    if (attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &t[0], &t[1], &t[2], &t[3], &params, &config) != ATTN_OK)
        fail("plan", attn_last_error());
    time_calls(plan, t, &params, &gradients);
    attn_mpi_plan_destroy(plan);
    for (int i = 0; i < 4; i++) {
        free(t[i].data);
        free(g[i].data);
    }
    free(lse.data);
}

int main(int argc, char **argv)
{
    int threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    read_options(argc, argv);
    if (options[PING])
        run_messages();
    else
        run_calls();
    MPI_Finalize();
    return 0;
}
