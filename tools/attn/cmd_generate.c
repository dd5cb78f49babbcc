/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn generate: what a language model goes on with behind prompts, one or many at once. One text appears as it is
 * made; tokens per second come last, on stderr.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "io/output.h"
#include "models/chat.h"
#include "models/generator.h"
#include "models/precision.h"
#include "models/prompts.h"
#include "progress.h"

enum {
    GENERATE_HELP,
    GENERATE_VERSION,
    GENERATE_QUIET,
    GENERATE_PROMPT,
    GENERATE_CHAT,
    GENERATE_SYSTEM,
    GENERATE_TOKENS,
    GENERATE_STOP,
    GENERATE_TEMPERATURE,
    GENERATE_TOP_K,
    GENERATE_TOP_P,
    GENERATE_SEED,
    GENERATE_JSON,
    GENERATE_DRAFTS,
    GENERATE_PARALLEL,
    GENERATE_CHUNK,
    GENERATE_PRECISION,
    GENERATE_MULTIPLY,
    GENERATE_GROUP,
    GENERATE_ACTIVATIONS,
    GENERATE_CACHE,
    GENERATE_PAGE,
    GENERATE_THREADS,
    GENERATE_LOGITS,
    GENERATE_COUNT
};

enum { DEFAULT_TOKENS = 256, DEFAULT_PARALLEL = 8, DEFAULT_CHUNK = 512, DEFAULT_PAGE = 64 };

struct generate {
    const struct option *options;
    const char *folder, *file; /* file: NULL if there is none, "-" standard input */
    struct texts prompts, stops;
    struct lines lines; /* the prompts */
    struct precision precision;
    struct output_set outputs; /* of the logits, if they are wanted */
    struct array logits;
    struct text_model model;
    struct generator generator;
    struct prompts out;
    int64_t at_last_position; /* texts that ended there */
    struct progress progress; /* of several texts */
};

static void print_help(const struct option *options)
{
    printf("Usage: attn generate FOLDER [FILE] [OPTION]...\n\n"
           "Goes on with prompts as the language model in FOLDER does: with each --prompt, and each line\n"
           "of FILE (-: of standard input). The text of one prompt appears as it is made; of several each\n"
           "is a line, in their order, with line breaks written \\n.\n\n");
    options_print(stdout, options, GENERATE_COUNT);
    printf("\n"
           "  FOLDER is a decoder as Transformers saves it: config.json, model.safetensors, tokenizer.json\n"
           "  and perhaps generation_config.json, whose eos_token_id end a text. A prompt is taken as it\n"
           "  is, special tokens in it by their names. An encoder-decoder (T5) reads a prompt and writes a\n"
           "  text of its own: a translation, say. The speed comes last, on standard error.\n");
}

/* ----------------------------------------------------------------- options -- */

static attn_status read_sampling(struct generate *g)
{
    const struct option *o = g->options;
    struct sampling *s = &g->generator.sampling;
    long long seed = 0, top_k = 0;
    s->top_p = 1;
    CHECK(option_double(&o[GENERATE_TEMPERATURE], 0, INFINITY, &s->temperature));
    CHECK(option_double(&o[GENERATE_TOP_P], 0, INFINITY, &s->top_p));
    CHECK(option_integer(&o[GENERATE_TOP_K], 1, INT32_MAX, &top_k));
    CHECK(option_integer(&o[GENERATE_SEED], 0, INT64_MAX, &seed));
    if (!(s->top_p > 0 && s->top_p <= 1))
        return io_fail(ATTN_INVALID_ARGUMENT, "--top-p is '%s'; expected a number above 0, and 1 at most",
                       o[GENERATE_TOP_P].value);
    for (int i = GENERATE_TOP_K; i <= GENERATE_SEED; i++)
        if (o[i].value != NULL && s->temperature == 0)
            return io_fail(ATTN_INVALID_ARGUMENT,
                           "--%s is given without --temperature; expected one above 0, as 0 draws nothing", o[i].name);
    s->top_k = top_k;
    g->generator.seed = (uint64_t)seed;
    return ATTN_OK;
}

static attn_status read_cache(struct generate *g)
{
    static const char *const types[] = {"f32", "bf16", "f16", "int8", "fp8", "int4"};
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};
    const struct option *o = g->options;
    long long page = DEFAULT_PAGE, tokens = DEFAULT_TOKENS, parallel = DEFAULT_PARALLEL, chunk = DEFAULT_CHUNK;
    long long drafts = 0, threads = 0;
    int type = -1;
    CHECK(option_choice(&o[GENERATE_CACHE], types, 6, &type));
    CHECK(option_integer(&o[GENERATE_PAGE], 0, 1000000, &page));
    CHECK(option_integer(&o[GENERATE_TOKENS], 1, 1000000, &tokens));
    CHECK(option_integer(&o[GENERATE_PARALLEL], 1, 1024, &parallel));
    CHECK(option_integer(&o[GENERATE_CHUNK], 1, 1000000, &chunk));
    CHECK(option_integer(&o[GENERATE_DRAFTS], 0, DRAFTS_MOST, &drafts));
    CHECK(option_integer(&o[GENERATE_THREADS], 0, 1024, &threads));
    struct generator *r = &g->generator;
    r->kept = type >= 0 ? dtypes[type] : g->precision.activations;
    r->page = page;
    r->tokens = tokens;
    r->parallel = parallel;
    r->chunk = chunk;
    r->drafts = (int)drafts;
    r->threads = (int)threads;
    return ATTN_OK;
}

static attn_status read_prompts(struct generate *g)
{
    for (int64_t i = 0; i < g->prompts.count; i++)
        CHECK(lines_add(&g->lines, g->prompts.values[i], strlen(g->prompts.values[i])));
    if (g->file != NULL)
        CHECK(lines_read(&g->lines, strcmp(g->file, "-") == 0 ? NULL : g->file));
    if (g->lines.count == 0)
        return io_fail(ATTN_INVALID_FILE, "%s has no lines; expected a prompt on each",
                       strcmp(g->file, "-") == 0 ? "standard input" : g->file);
    if (g->lines.count > 1 && g->outputs.count > 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "--logits is given with %" PRId64 " prompts; expected one",
                       g->lines.count);
    return lines_check_text(&g->lines, "prompt");
}

static attn_status parse(struct generate *g, const struct operands *operands)
{
    const struct option *o = g->options;
    if (operands->count == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "no model is given; expected attn generate FOLDER");
    g->folder = operands->values[0];
    g->file = operands->count == 2 ? operands->values[1] : NULL;
    if (g->prompts.count == 0 && g->file == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "no prompt is given; expected --prompt TEXT, a file of them, or -");
    if (o[GENERATE_SYSTEM].value != NULL && o[GENERATE_CHAT].value == NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--system is given without --chat, whose first turn it is");
    for (int64_t i = 0; i < g->stops.count; i++)
        if (g->stops.values[i][0] == '\0')
            return io_fail(ATTN_INVALID_ARGUMENT, "--stop is ''; expected a text that is not empty");
    g->out.stops = (struct stop_texts){g->stops.values, g->stops.count};
    CHECK(precision_read(&g->precision, &o[GENERATE_PRECISION], &o[GENERATE_MULTIPLY], &o[GENERATE_GROUP],
                         &o[GENERATE_ACTIVATIONS]));
    CHECK(read_sampling(g));
    CHECK(read_cache(g));
    return o[GENERATE_LOGITS].value != NULL ? output_add(&g->outputs, "--logits", o[GENERATE_LOGITS].value, &g->logits)
                                            : ATTN_OK;
}

/* ----------------------------------------------------------------- prompts -- */

static attn_status encode_prompt(const struct generate *g, int64_t i, attn_encoding *tokens)
{
    const char *text = g->lines.text[i];
    tokens->count = 0;
    if (g->options[GENERATE_CHAT].value != NULL)
        return chat_encode(&g->model, g->options[GENERATE_SYSTEM].value, text, g->lines.size[i], tokens);
    attn_encode_options options = attn_encode_options_default();
    options.max_tokens = INT64_MAX;
    return attn_tokenizer_encode(g->model.tokenizer, text, g->lines.size[i], &options, tokens);
}

/* Sentences say which prompt is meant if there are several. */
static attn_status add_prompts(struct generate *g)
{
    attn_encoding tokens = attn_encoding_default();
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < g->lines.count; i++) {
        status = encode_prompt(g, i, &tokens);
        if (status == ATTN_OK)
            status = generator_add(&g->generator, tokens.ids, tokens.count);
        if (status != ATTN_OK && g->lines.count > 1)
            status = io_fail_at(status, "prompt %" PRId64, i + 1);
        else if (status != ATTN_OK)
            status = io_fail_at(status, "the prompt");
    }
    attn_encoding_free(&tokens);
    return status;
}

/* -------------------------------------------------------------- generating -- */

static attn_status took(void *user, const struct generation *text, const float *logits, bool *stop)
{
    struct generate *g = user;
    const int64_t vocabulary = g->model.info.vocabulary, made = text->count - text->prompt;
    if (g->outputs.count > 0) {
        memcpy((float *)g->logits.data + (made - 1) * vocabulary, logits, (size_t)vocabulary * sizeof *logits);
        g->logits.is.shape[0] = made;
        g->logits.size = (size_t)(made * vocabulary) * sizeof *logits;
    }
    progress_add(&g->progress, 1);
    return prompts_take(&g->out, text, stop);
}

static attn_status ended(void *user, const struct generation *text)
{
    struct generate *g = user;
    g->at_last_position += text->ending == ENDING_POSITIONS;
    return prompts_end(&g->out, text);
}

static void report(const struct generate *g)
{
    const struct generator *r = &g->generator;
    char accepted[1024] = "";
    size_t used = 0;
    if (g->at_last_position > 0 && r->count == 1)
        command_note("stopped where the model's positions end, after %" PRId64 " tokens", r->texts[0].count);
    else if (g->at_last_position > 0)
        command_note("%" PRId64 " texts stopped where the model's positions end", g->at_last_position);
    if (r->made > 0)
        command_note(
            "prompts: %" PRId64 " tokens, %.1f tokens/s; generated behind them: %" PRId64 " tokens, %.1f tokens/s",
            r->prompt_tokens, (double)r->prompt_tokens / r->prompt_seconds, r->made, (double)r->made / r->seconds);
    else
        command_note("prompts: %" PRId64 " tokens, %.1f tokens/s", r->prompt_tokens,
                     (double)r->prompt_tokens / r->prompt_seconds);
    for (int n = 0; n <= DRAFTS_MOST; n++)
        if (r->accepted[n] > 0 && used < sizeof accepted)
            used += (size_t)snprintf(accepted + used, sizeof accepted - used, " %d: %" PRId64 "x", n, r->accepted[n]);
    if (r->steps > 0)
        command_note("drafts: %" PRId64 " in %" PRId64 " trees; accepted%s", r->drafted, r->steps, accepted);
}

static attn_status check_model(const struct generate *g)
{
    const attn_model_info *info = &g->model.info;
    if (info->kind == ATTN_MODEL_ENCODER)
        return io_fail(ATTN_UNSUPPORTED,
                       "%s is an encoder (%s), which attn embed or attn rerank runs; expected a decoder", g->folder,
                       info->model_type);
    if (info->kind == ATTN_MODEL_ENCODER_DECODER && info->decoder_start < 0)
        return io_fail(ATTN_INVALID_FILE, "%s/config.json has no decoder_start_token_id, with which texts begin",
                       g->folder);
    if (info->kind == ATTN_MODEL_ENCODER_DECODER && g->generator.drafts > 0)
        return io_fail(ATTN_UNSUPPORTED, "--drafts is given with %s, an encoder-decoder; expected a decoder",
                       g->folder);
    if (info->logits == 0)
        return io_fail(ATTN_UNSUPPORTED, "%s is %s, which has no logits of tokens; expected ...ForCausalLM", g->folder,
                       info->architecture);
    return g->options[GENERATE_CHAT].value != NULL ? chat_check(&g->model) : ATTN_OK;
}

static attn_status run(struct generate *g)
{
    attn_model_options options = attn_model_options_default();
    options.format = &g->precision.format;
    options.activations = g->precision.activations;
    CHECK(read_prompts(g));
    CHECK(text_model_open(&g->model, g->folder, &options));
    CHECK(check_model(g));
    struct generator *r = &g->generator;
    r->model = &g->model;
    r->took = took;
    r->ended = ended;
    r->user = g;
    CHECK(add_prompts(g));
    g->out.lines = &g->lines;
    g->out.model = &g->model;
    g->out.output = g->options[GENERATE_JSON].value != NULL ? PROMPTS_JSON
                    : g->lines.count == 1                   ? PROMPTS_STREAM
                                                            : PROMPTS_LINES;
    CHECK(prompts_begin(&g->out));
    if (g->outputs.count > 0) {
        const struct array_shape room = {
            ARRAY_F32, 2, {r->texts[0].limit - r->texts[0].prompt, g->model.info.vocabulary}};
        CHECK(array_allocate(&g->logits, "the logits", &room));
    }
    /* What is printed would be mixed with it on a terminal. */
    progress_start(&g->progress, 0, "tokens", command_is_quiet() || g->lines.count == 1 || isatty(STDOUT_FILENO));
    const attn_status status = generator_run(r);
    progress_finish(&g->progress);
    CHECK(status);
    CHECK(output_write(&g->outputs));
    report(g);
    return ATTN_OK;
}

attn_status command_generate(int argc, char *const *argv)
{
    struct option options[GENERATE_COUNT] = {
        [GENERATE_HELP] = OPTION_ROW_HELP,
        [GENERATE_VERSION] = OPTION_ROW_VERSION,
        [GENERATE_QUIET] = OPTION_ROW_QUIET,
        [GENERATE_PROMPT] = {"prompt", 'p', "TEXT...", "go on with a text; may be given several times", NULL},
        [GENERATE_CHAT] = {"chat", 0, NULL,
                           "make a prompt the user's turn of a conversation in ChatML, which\n"
                           "the model answers; names of special tokens in it are text",
                           NULL},
        [GENERATE_SYSTEM] = {"system", 0, "TEXT", "with --chat: what the model is told before", NULL},
        [GENERATE_TOKENS] = {"max-new-tokens", 'n', "N", "stop after N tokens at the latest; default 256", NULL},
        [GENERATE_STOP] = {"stop", 0, "TEXT...", "end a text before TEXT; may be given several times", NULL},
        [GENERATE_TEMPERATURE] = {"temperature", 't', "T",
                                  "draw tokens by softmax(logits / T); 0, the default, takes the\n"
                                  "likeliest",
                                  NULL},
        [GENERATE_TOP_K] = {"top-k", 0, "K", "draw from the K likeliest tokens; default: all", NULL},
        [GENERATE_TOP_P] = {"top-p", 0, "P",
                            "draw from the likeliest of these that have P together;\n"
                            "default 1, all",
                            NULL},
        [GENERATE_SEED] = {"seed", 0, "N",
                           "where the random numbers begin, of prompt i at N + i - 1;\n"
                           "default 0",
                           NULL},
        [GENERATE_JSON] = {"json", 0, NULL, "print an object for each prompt on a line, as its text ends", NULL},
        [GENERATE_DRAFTS] = {"drafts", 'd', "N",
                             "guess up to N tokens, 63 at most, by what a text has said before,\n"
                             "and verify them in the step that reads a token; default 0",
                             NULL},
        [GENERATE_PARALLEL] = {"parallel", 0, "N", "texts that are made at once; default 8", NULL},
        [GENERATE_CHUNK] = {"chunk", 0, "N", "tokens of prompts that a step reads at most; default 512", NULL},
        [GENERATE_PRECISION] = {"precision", 0, "NAME", PRECISION_HELP, NULL},
        [GENERATE_MULTIPLY] = {"multiply", 0, "NAME", "multiply in f32, bf16 or int8; default: as --precision says",
                               NULL},
        [GENERATE_GROUP] = {"group", 0, "N",
                            "int8: inputs that share a scale, 32, 64 or 128; 0: all of an\n"
                            "output; default 64",
                            NULL},
        [GENERATE_ACTIVATIONS] = {"activations", 0, "NAME",
                                  "what lies between products: f32, bf16 or f16;\n"
                                  "default: as --precision says",
                                  NULL},
        [GENERATE_CACHE] = {"cache", 'c', "NAME",
                            "keep keys and values in f32, bf16, f16, int8, fp8 or int4;\n"
                            "default: the type of activations",
                            NULL},
        [GENERATE_PAGE] = {"page", 0, "N", "in pages of N tokens; 0: each text side by side; default 64", NULL},
        [GENERATE_THREADS] = {"threads", 0, "N", "number of threads; default: all", NULL},
        [GENERATE_LOGITS] = {"logits", 0, "FILE",
                             "one prompt: write what each token was chosen by, float32 (tokens,\n"
                             "vocabulary), to FILE.npy or FILE.safetensors:NAME",
                             NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, GENERATE_COUNT, argc, argv, &operands, 2));
    if (options[GENERATE_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[GENERATE_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[GENERATE_QUIET]);
    struct generate g = {.options = options};
    attn_status status = option_values(options, GENERATE_COUNT, argc, argv, &options[GENERATE_PROMPT], &g.prompts);
    if (status == ATTN_OK)
        status = option_values(options, GENERATE_COUNT, argc, argv, &options[GENERATE_STOP], &g.stops);
    if (status == ATTN_OK)
        status = parse(&g, &operands);
    if (status == ATTN_OK)
        status = run(&g);
    prompts_free(&g.out);
    generator_close(&g.generator);
    text_model_close(&g.model);
    output_free(&g.outputs);
    array_free(&g.logits);
    lines_free(&g.lines);
    free(g.prompts.values);
    free(g.stops.values);
    return status;
}
