/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target as an ordinary test, without libFuzzer: valid files are
 * mutated by a seeded generator. The seed is printed; ATTN_CHECK_SEED repeats a
 * run, and the environment variable ATTN_FUZZ_RUNS sets its length. A run fails
 * by a crash, when a valid file is refused, or when the mutated files were all
 * accepted or all refused, because then it tested nothing. Arguments are files
 * to run the target on instead, such as one that libFuzzer found.
 */
#include "fuzz.h"

#include <inttypes.h>
#include <string.h>

#include "random.h"

enum { CAPACITY = 4096 };

static struct rng generator;

static size_t below(size_t bound)
{
    return bound > 0 ? (size_t)(rng_bits(&generator) % bound) : 0;
}

static size_t insert(uint8_t *file, size_t size, size_t at, const void *bytes, size_t length)
{
    if (size + length > CAPACITY)
        return size;
    memmove(file + at + length, file + at, size - at);
    memcpy(file + at, bytes, length);
    return size + length;
}

static size_t erase(uint8_t *file, size_t size, size_t at, size_t length)
{
    if (length > size - at)
        length = size - at;
    memmove(file + at, file + at + length, size - at - length);
    return size - length;
}

/* The length fields of both formats are in the first bytes: often let them fit again. */
static void repair_length(uint8_t *file, size_t before, size_t after)
{
    /* An archive has none at its beginning. */
    if (file[0] == 'P')
        return;
    size_t at = file[0] == 0x93 ? 8 : 0;
    unsigned value = (unsigned)file[at] | (unsigned)file[at + 1] << 8;
    value += (unsigned)(after - before);
    file[at] = (uint8_t)value;
    file[at + 1] = (uint8_t)(value >> 8);
}

static size_t mutate(uint8_t *file, size_t size, size_t num_words)
{
    size_t before = size, at = below(size + 1);
    switch (below(7)) {
    case 0:
        if (at < size)
            file[at] ^= (uint8_t)(1u << below(8));
        return size;
    case 1:
        if (at < size)
            file[at] = (uint8_t)rng_bits(&generator);
        return size;
    case 2:
        return at; /* truncated */
    case 3:
        size = erase(file, size, at, 1 + below(8));
        break;
    case 4: {
        const char *word = fuzz_words[below(num_words)];
        size = insert(file, size, at, word, strlen(word));
        break;
    }
    case 5: {
        /* Turn a digit into another one: shapes and offsets. */
        for (size_t i = 0; i < size; i++) {
            size_t where = (at + i) % size;
            if (file[where] >= '0' && file[where] <= '9') {
                file[where] = (uint8_t)('0' + below(10));
                break;
            }
        }
        return size;
    }
    default: {
        uint8_t piece[32];
        size_t from = below(size + 1), length = below(sizeof piece);
        length = length > size - from ? size - from : length;
        memcpy(piece, file + from, length);
        size = insert(file, size, at, piece, length);
        break;
    }
    }
    if (size > 10 && below(2) == 0)
        repair_length(file, before, size);
    return size;
}

static int run_file(const char *path)
{
    fuzz_accepted = 0;
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    printf("%s: %s\n", path, fuzz_accepted > 0 ? "accepted" : "refused");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        int failures = 0;
        for (int i = 1; i < argc; i++)
            failures += run_file(argv[i]);
        return failures > 0;
    }
    const char *runs_text = getenv("ATTN_FUZZ_RUNS");
    unsigned long runs = runs_text != NULL ? strtoul(runs_text, NULL, 0) : 300000;
    generator.state = rng_seed_of_run(NULL);
    printf("ATTN_CHECK_SEED=%" PRIu64 " ATTN_FUZZ_RUNS=%lu\n", generator.state, runs);
    fflush(stdout);

    static uint8_t file[CAPACITY];
    unsigned seeds = 0;
    for (size_t size; (size = fuzz_seed(seeds, file, CAPACITY)) > 0; seeds++) {
        LLVMFuzzerTestOneInput(file, size);
        if (fuzz_accepted != seeds + 1) {
            printf("the valid file %u was refused\n", seeds);
            return 1;
        }
    }
    size_t num_words = 0;
    while (fuzz_words[num_words] != NULL)
        num_words++;

    fuzz_accepted = 0;
    for (unsigned long run = 0; run < runs; run++) {
        size_t size = fuzz_seed((unsigned)below(seeds), file, CAPACITY);
        for (size_t changes = 1 + below(4); changes > 0; changes--)
            size = mutate(file, size, num_words);
        LLVMFuzzerTestOneInput(file, size);
    }
    printf("%lu accepted, %lu refused\n", fuzz_accepted, runs - fuzz_accepted);
    return fuzz_accepted == 0 || fuzz_accepted == runs;
}
