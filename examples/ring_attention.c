/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring attention over a sequence in files: a million tokens, cut among the processes of mpirun.
 *
 *     mpirun -n 4 ring_attention [--tokens N] [--window N] [FOLDER]
 *
 * q, k, v and out are files of FOLDER (default: the current one), [token][channel] in f32, which the program makes;
 * each process maps them, and its tensors are its own rows in place, so that none has the sequence in its memory: the
 * system reads what is needed. Each query sees the window tokens up to its own and the first four (Xiao et al. 2023). A
 * process sends its keys to those alone that see them, here its neighbour, and the first one to all.
 *
 * Then every process computes some of its rows in double from the files, whose keys are all there for it, and compares.
 * The files are removed.
 */
#include "reference.h"

#include <attn/mpi.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD_DIM = 64, FIRST_TOKENS = 4, FILES = 4, ROWS = 8 };

static const char *const names[FILES] = {"q.f32", "k.f32", "v.f32", "out.f32"};

struct sequence {
    int rank, ranks;
    int64_t tokens, window;
    attn_mpi_range mine;
    float *rows[FILES]; /* the whole files, mapped */
    char path[FILES][4096];
};

/* Says what went wrong and ends all processes. */
static void fail(const struct sequence *s, const char *what, const char *why)
{
    fprintf(stderr, "ring_attention: rank %d: %s: %s\n", s->rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Makes the files, and maps them. */
static void open_files(struct sequence *s, const char *folder)
{
    const size_t size = (size_t)s->tokens * HEAD_DIM * sizeof(float);
    for (int i = 0; i < FILES; i++) {
        if ((size_t)snprintf(s->path[i], sizeof s->path[i], "%s/%s", folder, names[i]) >= sizeof s->path[i])
            fail(s, folder, "the name is too long");
        if (s->rank == 0) {
            const int made = open(s->path[i], O_RDWR | O_CREAT | O_EXCL, 0600);
            if (made < 0 || ftruncate(made, (off_t)size) != 0)
                fail(s, s->path[i], strerror(errno));
            close(made);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < FILES; i++) {
        const int file = open(s->path[i], O_RDWR);
        if (file < 0)
            fail(s, s->path[i], strerror(errno));
        s->rows[i] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (s->rows[i] == MAP_FAILED)
            fail(s, s->path[i], strerror(errno));
        close(file);
    }
    for (int64_t t = 0; t < s->mine.count; t++)
        for (int i = 0; i < 3; i++)
            fill(s->rows[i] + (s->mine.first + t) * HEAD_DIM, HEAD_DIM, (unsigned)(3 * (s->mine.first + t) + i + 1));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* This process's rows of a file, as they lie there. */
static attn_tensor own_rows(const struct sequence *s, int file)
{
    return attn_bthd(s->rows[file] + s->mine.first * HEAD_DIM, 1, s->mine.count, 1, HEAD_DIM);
}

static double attend(struct sequence *s, const attn_mpi_config *config)
{
    const attn_tensor q = own_rows(s, 0), k = own_rows(s, 1), v = own_rows(s, 2), out = own_rows(s, 3);
    const attn_window window = {.left = s->window - 1, .right = 0, .first_tokens = FIRST_TOKENS};
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.window = &window;
    attn_mpi_plan *plan;
    if (attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &q, &k, &v, &out, &params, config) != ATTN_OK)
        fail(s, "plan", attn_last_error());
    char text[256];
    attn_mpi_plan_describe(plan, text, sizeof text);
    if (s->rank == 0)
        printf("%s\n", text);
    const double begin = MPI_Wtime();
    if (attn_mpi_forward(plan, &q, &k, &v, &out, &params) != ATTN_OK)
        fail(s, "attention", attn_last_error());
    const double seconds = MPI_Wtime() - begin;
    attn_mpi_plan_destroy(plan);
    return seconds;
}

/* One row in double; returns the largest difference from what was written. */
static double row_error(const struct sequence *s, int64_t t)
{
    const float *q = s->rows[0] + t * HEAD_DIM, *out = s->rows[3] + t * HEAD_DIM;
    double sums[HEAD_DIM] = {0}, total = 0, worst = 0;
    for (int64_t j = 0; j <= t; j++) {
        if (j >= FIRST_TOKENS && j <= t - s->window)
            j = t - s->window + 1 > FIRST_TOKENS ? t - s->window + 1 : j;
        double score = 0;
        for (int c = 0; c < HEAD_DIM; c++)
            score += (double)q[c] * (double)s->rows[1][j * HEAD_DIM + c];
        const double weight = exp(score / sqrt(HEAD_DIM)); /* scores are below 8 */
        total += weight;
        for (int c = 0; c < HEAD_DIM; c++)
            sums[c] += weight * (double)s->rows[2][j * HEAD_DIM + c];
    }
    for (int c = 0; c < HEAD_DIM; c++)
        worst = fmax(worst, fabs((double)out[c] - sums[c] / total));
    return worst;
}

/* The worst of some rows: the first ones, whose keys are a neighbour's, the last ones, and some between. */
static double check(const struct sequence *s)
{
    double worst = 0;
    for (int64_t n = 0; n < ROWS && n < s->mine.count; n++) {
        const int64_t between = n * (s->mine.count / ROWS);
        worst = fmax(worst, row_error(s, s->mine.first + n));
        worst = fmax(worst, row_error(s, s->mine.first + between));
        worst = fmax(worst, row_error(s, s->mine.first + s->mine.count - 1 - n));
    }
    return worst;
}

static int64_t number(const struct sequence *s, const char *option, const char *text)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (*end || end == text || errno || value < 1 || value > INT64_C(1) << 40)
        fail(s, option, "expected a number from 1 to 2^40");
    return value;
}

int main(int argc, char **argv)
{
    struct sequence s = {.tokens = 1048576, .window = 2048};
    const char *folder = ".";
    int threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tokens") == 0 && i + 1 < argc)
            s.tokens = number(&s, argv[i], argv[i + 1]), i++;
        else if (strcmp(argv[i], "--window") == 0 && i + 1 < argc)
            s.window = number(&s, argv[i], argv[i + 1]), i++;
        else if (argv[i][0] == '-')
            fail(&s, argv[i], "expected --tokens N, --window N or a folder");
        else
            folder = argv[i];
    }
    attn_mpi_config config = attn_mpi_config_default();
    config.queries = config.keys = s.tokens;
    config.timeout = 600;
    int64_t ranges;
    if (attn_mpi_ranges(&config, s.tokens, s.ranks, s.rank, &s.mine, 1, &ranges) != ATTN_OK)
        fail(&s, "ranges", attn_last_error());
    if (!ranges)
        fail(&s, "--tokens", "expected as many as there are processes");
    open_files(&s, folder);
    const double seconds = attend(&s, &config);
    MPI_Barrier(MPI_COMM_WORLD);
    double worst = check(&s), of_all;
    MPI_Allreduce(&worst, &of_all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    /* Means of values below 1, with scores below 8. */
    const int right = of_all <= allowed(8);
    if (s.rank == 0) {
        printf("%" PRId64 " tokens on %d processes in %.1f s; some rows are off by %.2g at most: %s\n", s.tokens,
               s.ranks, seconds, of_all, right ? "right" : "WRONG");
        for (int i = 0; i < FILES; i++)
            unlink(s.path[i]);
    }
    MPI_Finalize();
    return right ? 0 : 1;
}
