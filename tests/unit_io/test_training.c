/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a training that are no layers: words and vocabularies, samples
 * and the order of batches, parameters and logs in files, and what is refused.
 */
#include "cmocka_all.h"

#include <attn/attn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch_order.h"
#include "file.h"
#include "parameters.h"
#include "samples.h"
#include "token_texts.h"
#include "training_log.h"

static char folder[] = "/tmp/attn-training-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static const char *beside(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *name, const char *text)
{
    assert_int_equal(file_write(beside(name), &(struct file_part){text, strlen(text)}, 1), ATTN_OK);
}

/* -------------------------------------------------------------------- words -- */

static void takes_words_apart(void **state)
{
    (void)state;
    struct words words = {0};
    static const char text[] = "  It's GREAT--really, 100%\xc3\xa9t\xc3\xa9!";
    assert_int_equal(words_split(NULL, text, sizeof text - 1, &words), ATTN_OK);
    static const char *const expected[] = {"it's", "great", "really", "100", "\xc3\xa9t\xc3\xa9"};
    assert_int_equal(words.text.count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(words.text.text[i], expected[i]);
    assert_int_equal(words_split(NULL, "...", 3, &words), ATTN_OK);
    assert_int_equal(words.text.count, 1);
    assert_string_equal(words.text.text[0], "<unk>");
    assert_int_equal(words.ids[0], WORD_UNKNOWN);
    words_free(&words);
}

static void counts_words(void **state)
{
    (void)state;
    struct samples samples = {0};
    struct lines classes = {0};
    struct vocabulary vocabulary = {0};
    write_text("train.tsv", "good\tb a c b\nbad\ta b d\ngood\td once\n");
    assert_int_equal(samples_read(&samples, beside("train.tsv"), &classes, true), ATTN_OK);
    assert_int_equal(samples.count, 3);
    assert_int_equal(samples.longest, 4);
    assert_int_equal(classes.count, 2);
    assert_int_equal(samples.source.labels[1], 1);
    assert_int_equal(samples_vocabulary(&samples, 2, &vocabulary), ATTN_OK);
    /* b three times; a and d twice, in the order of the alphabet; c and once are too rare. */
    static const char *const expected[] = {"<pad>", "<unk>", "b", "a", "d"};
    assert_int_equal(vocabulary.count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(vocabulary.tokens[i], expected[i]);
    samples_number(&samples, &vocabulary);
    static const int32_t ids[] = {2, 3, WORD_UNKNOWN, 2};
    assert_memory_equal(samples.texts[0].ids, ids, sizeof ids);

    struct batch batch;
    static const int64_t order[] = {2, 0};
    assert_int_equal(batch_create(&batch, 2, samples.longest), ATTN_OK);
    batch_fill(&batch, &samples, order, 2);
    static const int32_t padded[] = {4, WORD_UNKNOWN, WORD_PADDING, WORD_PADDING, 2, 3, WORD_UNKNOWN, 2};
    assert_int_equal(batch.longest, 4);
    assert_memory_equal(batch.ids, padded, sizeof padded);
    assert_int_equal(batch.lengths[0], 2);
    assert_int_equal(batch.labels[1], 0);
    batch_free(&batch);
    vocabulary_free(&vocabulary);
    samples_free(&samples);
    lines_free(&classes);
}

static void refuses_samples(void **state)
{
    (void)state;
    struct lines classes = {0};
    static const struct {
        const char *text, *says;
    } wrong[] = {{"", "is empty"},
                 {"good\ta\nno class\n", "line 2 has no class"},
                 {"\ttext\n", "line 1 has no class"},
                 {"good\ta\nnew\tb\n", "line 2 has the class new"}};
    assert_int_equal(lines_add(&classes, "good", 4), ATTN_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct samples samples = {0};
        write_text("wrong.tsv", wrong[i].text);
        assert_int_equal(samples_read(&samples, beside("wrong.tsv"), &classes, false), ATTN_INVALID_FILE);
        assert_says(attn_last_error(), wrong[i].says);
        samples_free(&samples);
    }
    struct samples samples = {0};
    assert_int_equal(samples_read(&samples, beside("missing.tsv"), &classes, true), ATTN_INVALID_FILE);
    lines_free(&classes);
}

/* Each once, neighbours in length together, and another order for another stream. */
static void shuffles(void **state)
{
    (void)state;
    enum { COUNT = 203, SIZE = 16 };
    int64_t lengths[COUNT], orders[3][COUNT];
    for (int i = 0; i < COUNT; i++)
        lengths[i] = 1 + i * 7 % 40;
    for (int o = 0; o < 3; o++)
        assert_int_equal(batch_order(lengths, COUNT, SIZE, (struct stream){5, (uint64_t)o / 2}, orders[o]), ATTN_OK);
    assert_memory_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);
    int seen[COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        seen[orders[2][i]]++;
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], 1);
    for (int first = 0; first < COUNT; first += SIZE) {
        int64_t least = 100, most = 0;
        for (int i = first; i < first + SIZE && i < COUNT; i++) {
            const int64_t length = lengths[orders[2][i]];
            least = length < least ? length : least;
            most = length > most ? length : most;
        }
        assert_true(most - least < 8); /* lengths of two fours at most */
    }
}

/* Texts of a sentence encoder: behind each other, without padding, and cut at the most tokens. */
static void joins_tokens(void **state)
{
    (void)state;
    static const char json[] =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null,"
        "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"decoder\": null,"
        "\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 3], \"cls\": [\"[CLS]\", 2]},"
        "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\","
        "\"max_input_chars_per_word\": 100, \"vocab\": {\"[PAD]\": 0, \"[UNK]\": 1, \"[CLS]\": 2, \"[SEP]\": 3,"
        "\"a\": 4, \"b\": 5, \"##c\": 6}}}";
    attn_tokenizer *tokenizer;
    struct token_texts texts = {0};
    struct lines classes = {0};
    struct token_batch batch;
    assert_int_equal(attn_tokenizer_parse(&tokenizer, json, sizeof json - 1, "words"), ATTN_OK);
    write_text("tokens.tsv", "good\ta bc\nbad\tb\nbad\ta a a a a\n");
    assert_int_equal(token_texts_read(&texts, beside("tokens.tsv"), tokenizer, 6, &classes, true), ATTN_OK);
    assert_int_equal(texts.count, 3);
    assert_int_equal(texts.longest, 6);
    static const int64_t order[] = {1, 2, 0};
    static const int64_t offsets[] = {0, 3, 9, 14};
    static const int32_t ids[] = {2, 5, 3, 2, 4, 4, 4, 4, 3, 2, 4, 5, 6, 3};
    assert_int_equal(token_batch_create(&batch, 3, texts.longest), ATTN_OK);
    token_batch_fill(&batch, &texts, order, 3);
    assert_memory_equal(batch.offsets, offsets, sizeof offsets);
    assert_memory_equal(batch.ids, ids, sizeof ids);
    assert_int_equal(batch.labels[0], 1);
    assert_int_equal(batch.labels[2], 0);
    token_batch_free(&batch);
    token_texts_free(&texts);
    lines_free(&classes);
    attn_tokenizer_close(tokenizer);
}

/* -------------------------------------------------------------------- files -- */

static struct array floats(float *values, int64_t count)
{
    return (struct array){.is = {.dtype = ARRAY_F32, .ndim = 1, .shape = {count}},
                          .data = values,
                          .size = (size_t)count * sizeof *values};
}

static void keeps_parameters(void **state)
{
    (void)state;
    struct parameters p[2] = {{0}, {0}};
    int which;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(parameters_add(&p[i], "w", 2, 3, &which), ATTN_OK);
        assert_int_equal(parameters_add(&p[i], "b", 0, 4, &which), ATTN_OK);
        assert_int_equal(which, 1);
    }
    for (int i = 0; i < 2; i++)
        for (int64_t e = 0; e < 3 * p[0].all[i].count; e++) /* mean and square lie behind values and gradients */
            p[0].all[i].values[e < p[0].all[i].count ? e : e + p[0].all[i].count] = (float)(10 * i + e);
    float more[2] = {5, 6};
    struct array extra = floats(more, 2), back = {0};
    assert_int_equal(parameters_write(&p[0], beside("c.safetensors"), true, &(struct extra){"more", &extra}, 1),
                     ATTN_OK);
    assert_int_equal(parameters_read(&p[1], beside("c.safetensors"), &(struct extra){"more", &back}, 1), ATTN_OK);
    for (int i = 0; i < 2; i++) {
        const size_t bytes = (size_t)p[0].all[i].count * sizeof(float);
        assert_memory_equal(p[0].all[i].values, p[1].all[i].values, bytes);
        assert_memory_equal(p[0].all[i].mean, p[1].all[i].mean, bytes);
        assert_memory_equal(p[0].all[i].square, p[1].all[i].square, bytes);
    }
    assert_int_equal(back.size, sizeof more);
    assert_memory_equal(back.data, more, sizeof more);
    array_free(&back);

    /* A vector of files is one of layers. */
    attn_weights *weights;
    attn_tensor b;
    assert_int_equal(attn_weights_open(&weights, beside("c.safetensors")), ATTN_OK);
    assert_int_equal(attn_weights_get(weights, "b", 0, 4, &b), ATTN_OK);
    attn_weights_destroy(weights);

    struct parameters other = {0};
    assert_int_equal(parameters_add(&other, "w", 3, 2, &which), ATTN_OK);
    assert_int_equal(parameters_read(&other, beside("c.safetensors"), NULL, 0), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "w is float32 (2, 3); expected float32 (3, 2)");
    parameters_free(&other);
    assert_int_equal(parameters_add(&other, "missing", 3, 2, &which), ATTN_OK);
    assert_int_not_equal(parameters_read(&other, beside("c.safetensors"), NULL, 0), ATTN_OK);
    parameters_free(&other);
    for (int i = 0; i < 2; i++)
        parameters_free(&p[i]);
}

static struct training_log new_log(void)
{
    struct training_log log = {.program = "test", .title = "A test", .steps_per_epoch = 3, .epochs = 2};
    log.schedule = attn_schedule_default();
    log.schedule.peak = 0.5;
    assert_int_equal(training_log_open(&log), ATTN_OK);
    return log;
}

static void keeps_logs(void **state)
{
    (void)state;
    struct training_log log = new_log(), again = new_log();
    assert_int_equal(training_log_write(&log, folder), ATTN_OK); /* nothing yet */
    for (int i = 0; i < 5; i++)
        training_log_step(&log, i == 1 ? NAN : 2 - 0.25 * i, 1 + i);
    training_log_epoch(&log, 0.75);
    assert_int_equal(training_log_write(&log, folder), ATTN_OK);
    char text[512] = {0};
    FILE *file = fopen(beside("log.csv"), "re");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, "step,epoch,learning_rate,gradient_norm,loss,accuracy\n"
                              "1,1,0.5,1,2,\n2,1,0.5,2,nan,\n3,1,0.5,3,1.5,0.75\n4,2,0.5,4,1.25,\n5,2,0.5,5,1,\n");
    struct array arrays[TRAINING_LOG_ARRAYS];
    training_log_arrays(&log, arrays);
    assert_int_equal(training_log_restore(&again, arrays, "a file"), ATTN_OK);
    assert_int_equal(again.steps, 5);
    assert_int_equal(again.evaluations, 1);
    assert_true(again.losses[4] == 1 && again.norms[4] == 5 && again.accuracies[0] == 0.75f);
    float many[8] = {0};
    arrays[0] = arrays[1] = floats(many, 8);
    assert_int_equal(training_log_restore(&again, arrays, "a file"), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "a file: log.losses is not that of a training of 6 steps in 2 epochs");
    training_log_close(&log);
    training_log_close(&again);
}

static void makes_folders(void **state)
{
    (void)state;
    char path[160];
    struct stat is;
    snprintf(path, sizeof path, "%s/a/b//c", folder);
    assert_int_equal(file_make_folder(path), ATTN_OK);
    assert_int_equal(file_make_folder(path), ATTN_OK);
    assert_true(stat(path, &is) == 0 && S_ISDIR(is.st_mode));
    write_text("a/file", "text");
    snprintf(path, sizeof path, "%s/a/file/c", folder);
    assert_int_equal(file_make_folder(path), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "could not be made");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_words_apart), cmocka_unit_test(counts_words),  cmocka_unit_test(refuses_samples),
        cmocka_unit_test(shuffles),          cmocka_unit_test(joins_tokens),  cmocka_unit_test(keeps_parameters),
        cmocka_unit_test(keeps_logs),        cmocka_unit_test(makes_folders),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
