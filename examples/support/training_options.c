/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a training. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer.h"

const char training_options_usage[] =
    "  -o, --out FOLDER   where the model goes, with log.csv, curve.png and checkpoint.safetensors\n"
    "  -s, --seed N       of all that is random\n"
    "  -e, --epochs N     rounds of training, with a test at the end of each\n"
    "  -c, --checkpoint-every STEPS  write a checkpoint after so many steps (default: each epoch)\n"
    "  -r, --resume       go on from the checkpoint\n"
    "  -q, --quiet        no progress and no line for each epoch\n"
    "  -V, --version      print the version\n"
    "  -h, --help         print this text\n";

static attn_status take_number(int64_t *number, const char *option, const char *text, int64_t least)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > 1000000000)
        return io_fail(ATTN_INVALID_ARGUMENT, "--%s is '%s'; expected a number from %lld to 1000000000", option, text,
                       (long long)least);
    *number = value;
    return ATTN_OK;
}

static attn_status take(struct training_options *o, int option, const char *usage)
{
    switch (option) {
    case 'd':
        o->data = optarg;
        return ATTN_OK;
    case 'o':
        o->out = optarg;
        return ATTN_OK;
    case 'm':
        if (!o->takes_model)
            return io_fail(ATTN_INVALID_ARGUMENT,
                           "--model is set; expected none, as this training begins from scratch");
        o->model = optarg;
        return ATTN_OK;
    case 's':
        return take_number(&o->seed, "seed", optarg, 0);
    case 'e':
        return take_number(&o->epochs, "epochs", optarg, 1);
    case 'c':
        return take_number(&o->every, "checkpoint-every", optarg, 1);
    case 'r':
        o->resume = true;
        return ATTN_OK;
    case 'q':
        o->quiet = true;
        return ATTN_OK;
    case 'V':
        printf("%s %s\n", program_invocation_short_name, attn_version_string());
        exit(0);
    case 'h':
        fputs(usage, stdout);
        fputs(training_options_usage, stdout);
        exit(0);
    default:
        return io_fail(ATTN_INVALID_ARGUMENT, "see --help");
    }
}

attn_status training_options(struct training_options *o, int argc, char **argv, const char *usage)
{
    static const struct option known[] = {
        {"data", 1, NULL, 'd'},   {"out", 1, NULL, 'o'},    {"model", 1, NULL, 'm'},
        {"seed", 1, NULL, 's'},   {"epochs", 1, NULL, 'e'}, {"checkpoint-every", 1, NULL, 'c'},
        {"resume", 0, NULL, 'r'}, {"quiet", 0, NULL, 'q'},  {"version", 0, NULL, 'V'},
        {"help", 0, NULL, 'h'},   {NULL, 0, NULL, 0}};
    int option;
    while ((option = getopt_long(argc, argv, "d:o:m:s:e:c:rqVh", known, NULL)) != -1)
        CHECK(take(o, option, usage));
    if (optind < argc)
        return io_fail(ATTN_INVALID_ARGUMENT, "'%s' is too much; see --help", argv[optind]);
    if (!o->data || !o->out)
        return io_fail(ATTN_INVALID_ARGUMENT, "no %s is given; expected --data FOLDER and --out FOLDER",
                       o->data ? "--out" : "--data");
    if (o->takes_model && !o->model)
        return io_fail(ATTN_INVALID_ARGUMENT, "no --model is given; expected --model FOLDER");
    return ATTN_OK;
}
