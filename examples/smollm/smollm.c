/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt in, generated text out: SmolLM2-135M-Instruct in C. docs/generate.md
 * is its page.
 *
 * The prompt's tokens are read in one call (prefill). Then each token that is
 * chosen is printed and read in a call of its own (decoding), for which a cache
 * has the keys and values of all that came before.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "drafts.h"
#include "io/output.h"
#include "language_model.h"
#include "options.h"
#include "sampler.h"
#include "text_stream.h"

enum {
    MODEL,
    SYSTEM,
    RAW,
    NUM_TOKENS,
    TEMPERATURE,
    TOP_P,
    SEED,
    WEIGHTS,
    MULTIPLY,
    GROUP,
    ACTIVATIONS,
    CACHE,
    PAGE,
    DRAFTS,
    THREADS,
    IDS,
    LOGITS,
    HELP,
    NUM_OPTIONS
};

struct request {
    const char *model, *system, *prompt;
    struct output_set outputs; /* of the logits, if they are wanted */
    struct array kept;         /* those logits, once there is room */
    bool raw, ids;
    long long tokens, threads, seed, drafts;
    double temperature, top_p;
    attn_linear_format format;
    attn_dtype activations;
    struct kept_keys keys;
};

/* What a text was made of, and how long that took. */
struct progress {
    struct token_ids ids;              /* the prompt, then what was made */
    int64_t prompt;                    /* tokens */
    int64_t decoded;                   /* tokens that were read one at a time */
    double prefill, decoding;          /* seconds */
    struct drafts drafts;              /* that were read last */
    int node;                          /* of these, where the text has come to */
    int64_t steps, drafted;            /* calls that read drafts, and how many of these */
    int64_t accepted[DRAFTS_MOST + 1]; /* calls by how many drafts the text went on with */
    bool full;                         /* the model's positions have come to an end */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --------------------------------------------------------------- generating -- */

static attn_status flush(void)
{
    return fflush(stdout) == 0 && !ferror(stdout)
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "cannot write to standard output: %s", strerror(errno));
}

static attn_status read_timed(struct language_model *model, const int32_t *ids, int64_t count, int threads,
                              const float **logits, double *seconds)
{
    const double begin = now();
    CHECK(language_model_read(model, ids, count, threads, logits));
    *seconds += now() - begin;
    return ATTN_OK;
}

/* Ends with the drafts that were read last: what the text went on with stays. */
static attn_status accept_drafts(struct language_model *model, struct progress *p)
{
    if (p->drafts.count == 0)
        return ATTN_OK;
    p->accepted[p->drafts.depths[p->node]]++;
    return language_model_accept(model, &p->drafts, p->node);
}

/* The logits after the last token: of a draft that has come true, or by reading the token, with new drafts behind it.
 */
static attn_status read_last(struct language_model *model, const struct request *r, struct progress *p,
                             const float **logits)
{
    const int32_t *last = &p->ids.ids[p->ids.count - 1];
    const double begin = now();
    p->decoded++;
    if (r->drafts == 0)
        return read_timed(model, last, 1, (int)r->threads, logits, &p->decoding);
    const int child = p->drafts.count > 0 ? drafts_child(&p->drafts, p->node, *last) : -1;
    if (child >= 0) {
        *logits += (child - p->node) * language_model_vocabulary(model);
        p->node = child;
        return ATTN_OK;
    }
    CHECK(accept_drafts(model, p));
    drafts_make(&p->drafts, p->ids.ids, (int64_t)p->ids.count, (int)r->drafts);
    p->node = 0;
    p->steps++;
    p->drafted += p->drafts.count - 1;
    CHECK(language_model_verify(model, &p->drafts, (int)r->threads, logits));
    p->decoding += now() - begin;
    return ATTN_OK;
}

/* Chooses tokens until there are enough, each with its text; kept: NULL or where their logits go. */
static attn_status generate(struct language_model *model, struct sampler *sampler, const struct request *r,
                            int64_t most, float *kept, struct progress *p)
{
    const int64_t vocabulary = language_model_vocabulary(model);
    struct text_stream stream = {0};
    const float *logits;
    CHECK(read_timed(model, p->ids.ids, p->prompt, (int)r->threads, &logits, &p->prefill));
    for (int64_t made = 0; made < most; made++) {
        const int32_t id = sampler_take(sampler, logits);
        size_t length;
        if (id < 0)
            return io_fail(ATTN_INVALID_FILE, "%s: the logits of token %lld are all NaN or -inf", r->model,
                           (long long)(p->prompt + made));
        if (kept)
            memcpy(kept + made * vocabulary, logits, (size_t)vocabulary * sizeof *kept);
        if (!token_ids_add(&p->ids, id))
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld tokens", (long long)made + 1);
        if (language_model_ends(model, id))
            break;
        if (!r->ids) {
            const char *bytes = byte_pairs_bytes(language_model_tokenizer(model), id, &length);
            text_stream_put(&stream, bytes, length, stdout);
            CHECK(flush());
        }
        if (made + 1 < most)
            CHECK(read_last(model, r, p, &logits));
    }
    CHECK(accept_drafts(model, p));
    if (!r->ids) {
        text_stream_end(&stream, stdout);
        putchar('\n');
    }
    return flush();
}

/* ------------------------------------------------------------------ reports -- */

static void print_ids(const struct progress *p)
{
    for (size_t i = 0; i < p->ids.count; i++)
        printf("%s%d", i == 0 ? "" : i == (size_t)p->prompt ? "\n" : " ", (int)p->ids.ids[i]);
    putchar('\n');
}

static void print_speed(const struct progress *p, const struct request *r)
{
    if (p->full)
        fprintf(stderr, "smollm: stopped where the model's positions end, after %zu tokens\n", p->ids.count);
    fprintf(stderr, "smollm: prefill: %lld tokens, %.1f tokens/s", (long long)p->prompt,
            (double)p->prompt / p->prefill);
    if (p->decoded > 0)
        fprintf(stderr, "; decoding: %lld tokens, %.1f tokens/s", (long long)p->decoded,
                (double)p->decoded / p->decoding);
    if (p->steps > 0) {
        fprintf(stderr, "\nsmollm: drafts: %lld in %lld calls; accepted", (long long)p->drafted, (long long)p->steps);
        for (int n = 0; n <= DRAFTS_MOST; n++)
            if (p->accepted[n] > 0)
                fprintf(stderr, " %d: %lldx", n, (long long)p->accepted[n]);
    }
    fprintf(stderr, r->temperature > 0 ? "; seed %lld\n" : "\n", r->seed);
}

/* --------------------------------------------------------------------- run -- */

/* The tokens of the prompt, and how many may follow. */
static attn_status take_prompt(struct language_model *model, const struct request *r, struct progress *p, int64_t *most)
{
    const int64_t positions = language_model_positions(model);
    if (r->raw)
        CHECK(byte_pairs_encode(language_model_tokenizer(model), r->prompt, strlen(r->prompt), &p->ids));
    else
        CHECK(language_model_chat(model, r->system, r->prompt, &p->ids));
    p->prompt = (int64_t)p->ids.count;
    if (p->prompt < 1 || p->prompt >= positions)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "the prompt has %lld tokens; expected 1 to %lld, as the model has %lld "
                       "positions",
                       (long long)p->prompt, (long long)positions - 1, (long long)positions);
    *most = r->tokens < positions - p->prompt ? r->tokens : positions - p->prompt;
    return ATTN_OK;
}

static attn_status run_model(struct language_model *model, struct request *r, struct sampler *sampler,
                             struct progress *p)
{
    int64_t most = 0;
    CHECK(take_prompt(model, r, p, &most));
    const int64_t vocabulary = language_model_vocabulary(model);
    const struct array_shape room = {ARRAY_F32, 2, {most, vocabulary}};
    if (r->outputs.count > 0)
        CHECK(array_allocate(&r->kept, "the logits", &room));
    CHECK(sampler_open(sampler, vocabulary, r->temperature, r->top_p, (uint64_t)r->seed));
    /* The last token that is made is not read. */
    CHECK(language_model_start(model, p->prompt + most - 1, &r->keys));
    CHECK(generate(model, sampler, r, most, r->kept.data, p));
    const int64_t made = (int64_t)p->ids.count - p->prompt;
    p->full = made == most && most < r->tokens && !language_model_ends(model, p->ids.ids[p->ids.count - 1]);
    if (r->ids) {
        print_ids(p);
        CHECK(flush());
    }
    print_speed(p, r);
    if (r->outputs.count == 0)
        return ATTN_OK;
    r->kept.is.shape[0] = made;
    r->kept.size = (size_t)(made * vocabulary) * sizeof(float);
    return output_write(&r->outputs);
}

static attn_status run(struct request *r)
{
    struct language_model *model;
    struct sampler sampler = {.candidates = NULL};
    struct progress progress = {.prompt = 0};
    CHECK(language_model_open(&model, r->model, &r->format, r->activations));
    const attn_status status = run_model(model, r, &sampler, &progress);
    sampler_close(&sampler);
    token_ids_free(&progress.ids);
    language_model_close(model);
    return status;
}

/* ------------------------------------------------------------- command line -- */

static attn_status read_sampling(struct request *r, const struct option *options)
{
    const int drawing[] = {TOP_P, SEED};
    r->top_p = 1;
    CHECK(option_double(&options[TEMPERATURE], 0, INFINITY, &r->temperature));
    CHECK(option_double(&options[TOP_P], 0, INFINITY, &r->top_p));
    CHECK(option_integer(&options[SEED], 0, INT64_MAX, &r->seed));
    if (!(r->top_p > 0 && r->top_p <= 1))
        return io_fail(ATTN_INVALID_ARGUMENT, "--top-p is '%s'; expected a number above 0, and 1 at most",
                       options[TOP_P].value);
    for (int i = 0; i < 2; i++)
        if (options[drawing[i]].value && r->temperature == 0)
            return io_fail(ATTN_INVALID_ARGUMENT,
                           "--%s is given without --temperature; expected one above 0, as 0 draws nothing",
                           options[drawing[i]].name);
    return ATTN_OK;
}

static attn_status read_precision(struct request *r, const struct option *options)
{
    static const char *const weights[] = {"file", "f32", "bf16", "int8", "int4"};
    static const char *const multiply[] = {"f32", "bf16", "int8"};
    static const char *const types[] = {"f32", "bf16", "f16", "int8", "fp8", "int4"};
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};
    int format = 0, product = 0, type = 0, kept = 0;
    long long group = 0, page = 0;
    CHECK(option_choice(&options[WEIGHTS], weights, 5, &format));
    CHECK(option_choice(&options[MULTIPLY], multiply, 3, &product));
    CHECK(option_integer(&options[GROUP], 0, 128, &group));
    CHECK(option_choice(&options[ACTIVATIONS], types, 3, &type));
    kept = type;
    CHECK(option_choice(&options[CACHE], types, 6, &kept));
    CHECK(option_integer(&options[PAGE], 0, 1000000, &page));
    r->format = attn_linear_format_default();
    r->format.weights = (attn_weight_format)format;
    r->format.multiply = (attn_multiply)product;
    r->format.group = group;
    r->activations = dtypes[type];
    r->keys = (struct kept_keys){dtypes[kept], page};
    return ATTN_OK;
}

static attn_status read_request(struct request *r, const struct option *options, const struct operands *operands)
{
    *r = (struct request){.model = options[MODEL].value,
                          .system = options[SYSTEM].value,
                          .prompt = operands->values[0],
                          .raw = options[RAW].value != NULL,
                          .ids = options[IDS].value != NULL,
                          .tokens = 256};
    CHECK(option_require(&options[MODEL]));
    CHECK(option_integer(&options[NUM_TOKENS], 1, 1000000, &r->tokens));
    CHECK(option_integer(&options[THREADS], 0, 1024, &r->threads));
    CHECK(option_integer(&options[DRAFTS], 0, DRAFTS_MOST, &r->drafts));
    CHECK(read_sampling(r, options));
    CHECK(read_precision(r, options));
    if (operands->count != 1)
        return io_fail(ATTN_INVALID_ARGUMENT, "no prompt is given; expected one, in quotation marks");
    if (r->raw && r->system)
        return io_fail(ATTN_INVALID_ARGUMENT, "--system is given with --raw, which has no place for it");
    return options[LOGITS].value ? output_add(&r->outputs, "--logits", options[LOGITS].value, &r->kept) : ATTN_OK;
}

static void print_help(const struct option *options)
{
    printf("Usage: smollm --model FOLDER [OPTION]... PROMPT\n\n"
           "Answers a prompt with SmolLM2-135M-Instruct, as examples/train/run converts it: FOLDER holds\n"
           "config.json, tokenizer.json, tokenizer_config.json and model.safetensors. The text appears as it\n"
           "is made; tokens per second come last, on standard error.\n\n");
    options_print(stdout, options, NUM_OPTIONS);
    printf("\n  Exit codes: 0 done, 1 failure, 2 wrong usage.\n");
}

int main(int argc, char **argv)
{
    struct option options[NUM_OPTIONS] = {
        [MODEL] = {"model", 'm', "FOLDER", "the model; must be given", NULL},
        [SYSTEM] = {"system", 0, "TEXT", "what the model is told before the prompt, instead of its own name", NULL},
        [RAW] = {"raw", 0, NULL, "go on with the prompt as it stands, without the chat template", NULL},
        [NUM_TOKENS] = {"tokens", 'n', "N", "stop after N tokens at the latest (default 256)", NULL},
        [TEMPERATURE] = {"temperature", 't', "T",
                         "draw tokens by softmax(logits / T); 0, the default, takes the likeliest", NULL},
        [TOP_P] = {"top-p", 0, "P", "draw from the likeliest tokens that have P together (default 1, all)", NULL},
        [SEED] = {"seed", 0, "N", "where the random numbers begin (default 0)", NULL},
        [WEIGHTS] = {"weights", 'w', "TYPE",
                     "keep weights as in the file (file, the default), in f32, bf16, int8 or int4", NULL},
        [MULTIPLY] = {"multiply", 0, "TYPE",
                      "what products multiply: f32 (the default), bf16 (of weights in bf16),\n"
                      "int8 (of weights in int8 or int4)",
                      NULL},
        [GROUP] = {"group", 0, "N", "int8: inputs that share a scale, 32, 64 or 128 (default 0: all of an output)",
                   NULL},
        [ACTIVATIONS] = {"activations", 'a', "TYPE", "what lies between products: f32 (the default), bf16 or f16",
                         NULL},
        [CACHE] = {"cache", 'c', "TYPE",
                   "keep keys and values in f32, bf16, f16, int8, fp8 or int4 (default: the type of\n"
                   "activations)",
                   NULL},
        [PAGE] = {"page", 0, "N", "keep them in pages of N tokens (default 0: side by side)", NULL},
        [DRAFTS] = {"drafts", 'd', "N",
                    "guess up to N tokens, 63 at most, by what the text has said before, and\n"
                    "verify them in the call that reads a token (default 0)",
                    NULL},
        [THREADS] = {"threads", 0, "N", "default: all", NULL},
        [IDS] = {"ids", 0, NULL, "print token ids, not text: those of the prompt, then those made, a line each", NULL},
        [LOGITS] = {"logits", 0, "FILE",
                    "write what each token was chosen by, float32 (tokens made, vocabulary), to\n"
                    "FILE.npy or FILE.safetensors:NAME",
                    NULL},
        [HELP] = {"help", 'h', NULL, "show this text", NULL},
    };
    struct operands operands;
    struct request request;
    attn_status status = options_parse(options, NUM_OPTIONS, argc - 1, argv + 1, &operands, 1);
    if (status == ATTN_OK && options[HELP].value) {
        print_help(options);
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (status == ATTN_OK)
        status = read_request(&request, options, &operands);
    const int failure = status != ATTN_OK ? 2 : EXIT_FAILURE;
    if (status == ATTN_OK) {
        status = run(&request);
        output_free(&request.outputs);
        array_free(&request.kept);
    }
    if (status == ATTN_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "smollm: %s\n", attn_last_error());
    return failure;
}
