/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows progress as the commands do, for a test: "shown_progress text DONE TOTAL UNIT SECONDS" prints what a line says,
 * "shown_progress work [quiet]" works for a little more than a second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "progress.h"

static void work(bool quiet)
{
    const struct timespec second = {.tv_sec = 1, .tv_nsec = 50000000};
    struct progress progress;
    progress_start(&progress, 10, "tokens", quiet);
    progress_add(&progress, 4);
    nanosleep(&second, NULL);
    progress_add(&progress, 1);
    progress_add(&progress, 1); /* too soon for another line */
    progress_finish(&progress);
    progress_finish(&progress);
    fputs("done\n", stderr);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "text") == 0) {
        char text[160];
        progress_text(text, sizeof text, atoll(argv[2]), atoll(argv[3]), argv[4], atof(argv[5]));
        puts(text);
        return 0;
    }
    if (argc < 2 || strcmp(argv[1], "work") != 0)
        return 2;
    work(argc == 3 && strcmp(argv[2], "quiet") == 0);
    return 0;
}
