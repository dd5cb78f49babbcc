/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the command line of attn-bench. Every value is checked here, with one sentence that
 * names the option, the value and what was expected, so that a mistake ends
 * the program before anything is measured.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS     1024
#define MAX_REPETITIONS 1000

enum {
    OPT_BLAS = 256,
    OPT_CHECK,
    OPT_COMPARE,
    OPT_FORMAT,
    OPT_ISA,
    OPT_LIST,
    OPT_MEMORY,
    OPT_MEMORY_CHILD,
    OPT_MIN_TIME,
};

static const char usage_text[] =
    "Usage: attn-bench [options]\n"
    "\n"
    "Measures libattn, the machine's multiply-add peak and its bandwidth, and a naive\n"
    "implementation on OpenBLAS, and reports each case as a fraction of the peak: of bf16\n"
    "dot products, or of AMX's products of matrix registers, where the kernels that run use\n"
    "them (q, k and v in bf16, on avx512_bf16, neon_bf16(mm) or amx_bf16), and else of f32\n"
    "multiply-adds of the instruction set that runs. Beside it stands the fraction of a second\n"
    "peak, of multiply-adds with a product's loads from L1.\n"
    "\n"
    "What is run:\n"
    "  -f, --filter REGEX      only rows whose name matches (extended regular expression)\n"
    "  -t, --threads N         threads, 1 to 1024 (default: what the library uses)\n"
    "      --isa NAME          auto or a name that `attn info` lists, such as scalar\n"
    "                          (default: auto)\n"
    "  -r, --repetitions R     samples of each case, 1 to 1000 (default: 10)\n"
    "      --min-time S        seconds that each sample takes at least (default: 0.02)\n"
    "      --compare naive     only the cases that are compared with the naive\n"
    "                          implementation, or with OpenBLAS; prints their time / libattn's\n"
    "      --blas NAME         kernels that OpenBLAS uses, such as SkylakeX or Haswell, or\n"
    "                          'environment': those that OPENBLAS_CORETYPE or OpenBLAS chooses\n"
    "      --memory            adds T=131072, one head, causal, in a fresh process, and\n"
    "                          the memory that it takes beyond its tensors\n"
    "      --check             only what the library promises, and whether it is met\n"
    "                          (includes --memory); exit code 1 if something is not\n"
    "  -l, --list              prints the names of the rows and stops\n"
    "\n"
    "How it is shown:\n"
    "      --format FORMAT     table, csv or json (default: table)\n"
    "  -o, --out FILE          writes there instead of standard output; the file appears\n"
    "                          when the run is complete\n"
    "  -h, --help              this text\n"
    "  -V, --version           the version\n"
    "\n"
    "How a case is measured: its variants (the library and naive) and the peak take\n"
    "turns, R times: peak, variant, peak, variant, ..., peak; one run that is not timed puts a\n"
    "variant's data back into the caches. Other programs and other guests\n"
    "of the machine only ever make a sample slower, so the fastest of R samples is the\n"
    "closest to the undisturbed machine. Hence time, gflops and peak_gflops are those of\n"
    "the fastest samples of this case's turns, and fraction is their ratio. The medians are\n"
    "given too: real_time_median, and fraction_median, the median over the turns of\n"
    "(variant / mean of the peaks before and after it). Where the two fractions differ by\n"
    "much the machine was busy: run again. Only pairs of query and key that the masks leave\n"
    "alive count as work, 4 d operations each. Every result is compared with the naive one,\n"
    "which is computed in f32, for bf16 and f16 from the same values widened. Rows named\n"
    "/form:NAME measure windows, patterns, biases, ragged batches, dropout and so on; they,\n"
    "and the longest dense ones, are compared in 48 rows with the definition in double.\n"
    "Rows with /cost are forms in which a token must not cost more in a longer sequence: of up\n"
    "to 1048576 tokens, which take 1 GiB.\n"
    "\n"
    "Rows with Tq1 are a token of decoding: GB/s is the rate at which keys and values are read,\n"
    "and 'of read' its median part of the rate at which threads read the same bytes. Rows append/...\n"
    "keep new tokens in pages, and 'of write' is the same of plain stores.\n"
    "\n"
    "Rows linear-attention/... carry states on, 4 d^2 operations for each token and head, 6 with\n"
    "beta; of a few tokens 'of write' is the part of the rate at which threads change the\n"
    "same memory in place. Their first tokens are compared with the recurrence in double.\n"
    "\n"
    "Rows backward/... are attn_backward() on what a forward call has left, 10 d operations for each\n"
    "live pair whatever is computed again, forward-backward/... both calls, 14 d. They are compared\n"
    "in 48 rows of each gradient with its definition in double.\n"
    "\n"
    "Rows linear/f32/M../N../K.. are linear layers of libattn_nn, of M rows, N outputs and K\n"
    "inputs, 2 MNK operations; sgemm/... is OpenBLAS's product, their baseline as the naive\n"
    "implementation is that of attention. /matrices:C takes C matrices of weights in turns, and\n"
    "GB/s is the rate at which they are read; where they come from memory, 'of read' is the\n"
    "median part of the read bandwidth in the same turn. linear/bf16/..., linear/int8/... and\n"
    "linear/int4/... keep their weights so; /group:64 gives 64 inputs of an output a scale,\n"
    "instead of all of them, and /multiply:TYPE says what is multiplied. Layers\n"
    "run on the active instruction set, so they are left out where --isa asks for another;\n"
    "ATTN_MAX_CPU_ISA caps it for them too.\n"
    "\n"
    "OpenBLAS is started with the kernels of the same instruction set as libattn, whatever\n"
    "OPENBLAS_CORETYPE says, unless --blas is given. ATTN_MAX_CPU_ISA caps the instruction\n"
    "set: with avx512, bf16 is widened to f32 and measured against the peak of f32.\n"
    "\n"
    "Exit codes: 0 done, 1 failure or a promise not met, 2 wrong usage.\n";

static int usage_error(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "attn-bench: %s is '%s'; expected %s\n", option, value, expected);
    return BENCH_USAGE;
}

/* Parses a whole decimal number from 1 to most. */
static bool parse_count(const char *text, int most, int *value)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || n < 1 || n > most)
        return false;
    *value = (int)n;
    return true;
}

static bool parse_seconds(const char *text, double *value)
{
    char *end;
    const double x = strtod(text, &end);
    if (end == text || *end != '\0' || !(x > 0.0) || !(x <= 60.0))
        return false;
    *value = x;
    return true;
}

static bool parse_format(const char *text, enum bench_format *format)
{
    static const char *const names[] = {[BENCH_TABLE] = "table", [BENCH_CSV] = "csv", [BENCH_JSON] = "json"};
    for (int i = BENCH_TABLE; i <= BENCH_JSON; i++)
        if (strcmp(text, names[i]) == 0) {
            *format = (enum bench_format)i;
            return true;
        }
    return false;
}

static bool parse_isa(const char *text, const char **isa)
{
    *isa = NULL;
    for (int i = 0; attn_isa_name(i) != NULL; i++)
        if (strcmp(text, attn_isa_name(i)) == 0)
            *isa = attn_isa_name(i);
    return *isa != NULL || strcmp(text, "auto") == 0;
}

/* What --isa takes: "scalar, avx2 or auto". */
static const char *isa_list(void)
{
    static char list[256];
    size_t length = 0;
    for (int i = 0; attn_isa_name(i) != NULL && length < sizeof list; i++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i > 0 ? ", " : "", attn_isa_name(i));
    if (length < sizeof list)
        snprintf(list + length, sizeof list - length, " or auto");
    return list;
}

static int parse_filter(struct bench_options *options, const char *text)
{
    if (options->has_filter)
        regfree(&options->filter);
    options->has_filter = false;
    const int code = regcomp(&options->filter, text, REG_EXTENDED | REG_NOSUB);
    if (code != 0) {
        char why[128];
        regerror(code, &options->filter, why, sizeof why);
        fprintf(stderr, "attn-bench: --filter is '%s'; expected an extended regular expression: %s\n", text, why);
        return BENCH_USAGE;
    }
    options->has_filter = true;
    return -1;
}

static int parse_one(struct bench_options *options, int option)
{
    switch (option) {
    case 'f':
        return parse_filter(options, optarg);
    case 't':
        return parse_count(optarg, MAX_THREADS, &options->threads)
                   ? -1
                   : usage_error("--threads", optarg, "a number from 1 to 1024");
    case 'r':
        return parse_count(optarg, MAX_REPETITIONS, &options->repetitions)
                   ? -1
                   : usage_error("--repetitions", optarg, "a number from 1 to 1000");
    case OPT_MIN_TIME:
        return parse_seconds(optarg, &options->min_time)
                   ? -1
                   : usage_error("--min-time", optarg, "seconds, more than 0 and at most 60");
    case OPT_FORMAT:
        return parse_format(optarg, &options->format) ? -1 : usage_error("--format", optarg, "table, csv or json");
    case OPT_ISA:
        if (!parse_isa(optarg, &options->isa))
            return usage_error("--isa", optarg, isa_list());
        if (options->isa != NULL && !attn_isa_supported(options->isa))
            return usage_error("--isa", optarg, "an instruction set that this machine has");
        return -1;
    case OPT_COMPARE:
        options->compare = true;
        return strcmp(optarg, "naive") == 0 ? -1 : usage_error("--compare", optarg, "naive");
    case OPT_BLAS:
        options->blas = optarg;
        return optarg[0] != '\0' ? -1 : usage_error("--blas", optarg, "the name of OpenBLAS kernels, or environment");
    case 'o':
        options->out = optarg;
        return optarg[0] != '\0' ? -1 : usage_error("--out", optarg, "the name of a file");
    case OPT_MEMORY:
        options->memory = true;
        return -1;
    case OPT_MEMORY_CHILD:
        options->memory_child = true;
        return -1;
    case OPT_CHECK:
        options->check = true;
        return -1;
    case 'l':
        options->list = true;
        return -1;
    case 'h':
        fputs(usage_text, stdout);
        return BENCH_OK;
    case 'V':
        printf("attn-bench %s\n", attn_version_string());
        return BENCH_OK;
    default: /* getopt_long has said what is wrong */
        fputs("Try 'attn-bench --help'.\n", stderr);
        return BENCH_USAGE;
    }
}

int bench_options_parse(struct bench_options *options, int argc, char **argv)
{
    static const struct option table[] = {{"filter", required_argument, NULL, 'f'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"repetitions", required_argument, NULL, 'r'},
                                          {"min-time", required_argument, NULL, OPT_MIN_TIME},
                                          {"format", required_argument, NULL, OPT_FORMAT},
                                          {"isa", required_argument, NULL, OPT_ISA},
                                          {"blas", required_argument, NULL, OPT_BLAS},
                                          {"compare", required_argument, NULL, OPT_COMPARE},
                                          {"out", required_argument, NULL, 'o'},
                                          {"memory", no_argument, NULL, OPT_MEMORY},
                                          {"memory-child", no_argument, NULL, OPT_MEMORY_CHILD},
                                          {"check", no_argument, NULL, OPT_CHECK},
                                          {"list", no_argument, NULL, 'l'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {NULL, 0, NULL, 0}};
    *options = (struct bench_options){.repetitions = 10, .min_time = 0.02, .argv = argv};
    int option;
    while ((option = getopt_long(argc, argv, "f:t:r:o:lVh", table, NULL)) != -1) {
        const int code = parse_one(options, option);
        if (code != -1)
            return code;
    }
    if (optind < argc) {
        fprintf(stderr, "attn-bench: the argument '%s' is not an option; expected options only\n", argv[optind]);
        return BENCH_USAGE;
    }
    if (options->check && options->compare) {
        fputs("attn-bench: --check and --compare exclude each other; --check makes the comparison too\n", stderr);
        return BENCH_USAGE;
    }
    if (options->isa == NULL)
        options->isa = attn_isa_active();
    if (options->threads == 0)
        options->threads = attn_default_num_threads();
    return -1;
}

void bench_options_destroy(struct bench_options *options)
{
    if (options->has_filter)
        regfree(&options->filter);
    options->has_filter = false;
}

bool bench_options_match(const struct bench_options *options, const char *name)
{
    return !options->has_filter || regexec(&options->filter, name, 0, NULL, 0) == 0;
}
