/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are refused, each with a sentence that names the entry; and arguments. */
#include "tokenizer_files.h"

#define MODEL "'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':0}}"

static const struct {
    const char *file;
    attn_status status;
    const char *says;
} refused[] = {
    {"", ATTN_INVALID_FILE, "t.json: "},
    {"[]", ATTN_INVALID_FILE, "t.json"},
    {"{'model':", ATTN_INVALID_FILE, " (line 1)"},
    {"{}", ATTN_INVALID_FILE, "t.json: model is missing; expected an object"},
    {"{" MODEL ",'extra':1}", ATTN_UNSUPPORTED, "extra is 1; expected no entry of this name"},
    {"{" MODEL ",'version':'2.0'}", ATTN_UNSUPPORTED, "t.json: version is '2.0'; expected 1.0"},
    {"{'model':{'type':'Other'}}", ATTN_UNSUPPORTED, "model.type is 'Other'"},
    {"{'model':{'type':'WordLevel','unk_token':'x','vocab':{'?':0}}}", ATTN_INVALID_FILE,
     "t.json: model.unk_token is 'x'; expected a token of the vocabulary"},
    {"{'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':-1}}}", ATTN_INVALID_FILE,
     "t.json: the id of token '?' is no whole number from 0 to 16777215"},
    {"{'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':4000000000000}}}", ATTN_INVALID_FILE, "'?'"},
    {"{'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':'0'}}}", ATTN_INVALID_FILE, "'?'"},
    {"{'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':0,'b':0}}}", ATTN_INVALID_FILE,
     "t.json: tokens '?' and 'b' have the same id, 0"},
    {"{'model':{'type':'WordLevel','unk_token':'?','vocab':[]}}", ATTN_INVALID_FILE,
     "t.json: model.vocab is a list; expected an object of tokens and their ids"},
    {"{'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':0},'more':true}}", ATTN_UNSUPPORTED,
     "model.more is true"},
    {"{'model':{'type':'BPE','vocab':{'a':0},'merges':['a b']}}", ATTN_INVALID_FILE,
     "t.json: model.merges[0] is 'a' and 'b'; expected tokens that make a token"},
    {"{'model':{'type':'BPE','vocab':{'a':0},'merges':['a']}}", ATTN_INVALID_FILE,
     "t.json: model.merges[0] is neither a pair of texts nor a text with one space"},
    {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[],'dropout':0.1}}", ATTN_UNSUPPORTED,
     "t.json: model.dropout is 0.1; expected null or 0"},
    {"{'model':{'type':'BPE','vocab':{'a':0},'merges':[],'unk_token':'x'}}", ATTN_INVALID_FILE,
     "t.json: model.unk_token is 'x'; expected a token of the vocabulary"},
    {"{'model':{'type':'Unigram','unk_id':1,'vocab':[['a',0]]}}", ATTN_INVALID_FILE, "model.unk_id is 1"},
    {"{'model':{'type':'Unigram','vocab':[['a']]}}", ATTN_INVALID_FILE,
     "t.json: model.vocab[0] is no pair of a token and its score"},
    {"{'normalizer':{'type':'Other'}," MODEL "}", ATTN_UNSUPPORTED,
     "t.json: normalizer.type is 'Other'; expected BertNormalizer"},
    {"{'normalizer':{'type':'NFC','form':1}," MODEL "}", ATTN_UNSUPPORTED, "normalizer.form is 1"},
    {"{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Other'}]}," MODEL "}", ATTN_UNSUPPORTED,
     "normalizer.normalizers[1].type is 'Other'"},
    {"{'normalizer':{'type':'Precompiled','precompiled_charsmap':'!!!!'}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: normalizer.precompiled_charsmap is '!!!!'; expected base64"},
    {"{'normalizer':{'type':'Precompiled','precompiled_charsmap':'////'}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: normalizer.precompiled_charsmap is no table of 3 bytes"},
    {"{'pre_tokenizer':{'type':'UnicodeScripts'}," MODEL "}", ATTN_UNSUPPORTED,
     "t.json: pre_tokenizer.type is 'UnicodeScripts'; expected BertPreTokenizer"},
    {"{'pre_tokenizer':{'type':'Split','pattern':{'String':'a'},'behavior':'Other'}," MODEL "}", ATTN_UNSUPPORTED,
     "t.json: pre_tokenizer.behavior is 'Other'; expected Removed"},
    {"{'pre_tokenizer':{'type':'Split','pattern':{},'behavior':'Removed'}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: pre_tokenizer.pattern.String is missing; expected an object with String or Regex"},
    {"{'pre_tokenizer':{'type':'Metaspace','replacement':'ab'}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: pre_tokenizer.replacement is 'ab'; expected one character"},
    {"{'pre_tokenizer':{'type':'Digits','individual_digits':1}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: pre_tokenizer.individual_digits is 1; expected true or false"},
    {"{'post_processor':{'type':'Other'}," MODEL "}", ATTN_UNSUPPORTED,
     "t.json: post_processor.type is 'Other'; expected BertProcessing"},
    {"{'post_processor':{'type':'BertProcessing','sep':['a'],'cls':['a',0]}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: post_processor.sep is a list; expected a token and its id"},
    {"{'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'x','type_id':0}}],'pair':[]}"
     "," MODEL "}",
     ATTN_INVALID_FILE, "t.json: post_processor.special_tokens.x is missing; expected an object with ids"},
    {"{'decoder':{'type':'CTC'}," MODEL "}", ATTN_UNSUPPORTED, "t.json: decoder.type is 'CTC'; expected ByteLevel"},
    {"{'added_tokens':[{'content':'a'}]," MODEL "}", ATTN_INVALID_FILE,
     "t.json: added_tokens[0].id is missing; expected a whole number"},
    {"{'added_tokens':[{'id':2147483647,'content':'a'}]," MODEL "}", ATTN_INVALID_FILE,
     "added_tokens[0].id is 2147483647"},
    {"{'post_processor':{'type':'TemplateProcessing','single':[{'Sequence':{'id':'B'}}]}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: post_processor.single[0].Sequence.id is 'B'; expected A"},
    {"{'post_processor':{'type':'TemplateProcessing','pair':[{'Sequence':{'id':'C'}}]}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: post_processor.pair[0].Sequence.id is 'C'; expected A or B"},
    {"{'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'x'}}],"
     "'special_tokens':{'x':{'ids':[0,-1]}}}," MODEL "}",
     ATTN_INVALID_FILE, "t.json: post_processor.special_tokens.x.ids[1] is -1; expected the id of a token"},
    {"{'post_processor':{'type':'Sequence','processors':[{'type':'TemplateProcessing'},{'type':'BertProcessing'}]}"
     "," MODEL "}",
     ATTN_UNSUPPORTED,
     "t.json: post_processor.processors[1].type is 'BertProcessing'; expected only one step that adds tokens"},
    {"{'pre_tokenizer':{'type':'Metaspace','replacement':'a','prepend_scheme':'last'}," MODEL "}", ATTN_UNSUPPORTED,
     "t.json: pre_tokenizer.prepend_scheme is 'last'; expected always, first or never"},
    {"{'decoder':{'type':'WordPiece','prefix':1}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: decoder.prefix is 1; expected a text"},
    {"{'decoder':{'type':'Replace','pattern':{'String':'a'}}," MODEL "}", ATTN_INVALID_FILE,
     "t.json: decoder.content is missing; expected a text"},
    {"{'added_tokens':[{'id':0}]," MODEL "}", ATTN_INVALID_FILE,
     "t.json: added_tokens[0].content is missing; expected a text"},
    {"{'decoder':{'type':'WordPiece','prefix':'#\\u0000'}," MODEL "}", ATTN_UNSUPPORTED,
     "t.json: decoder.prefix is '#'; expected a text without NUL"},
    {"{'added_tokens':{}," MODEL "}", ATTN_INVALID_FILE, "t.json: added_tokens is an object; expected a list"},
    {"{'added_tokens':[{'id':1,'content':'?'}]," MODEL "}", ATTN_INVALID_FILE,
     "t.json: added_tokens[0].id is 1; expected 0, which '?' has in model.vocab"},
    {"{'added_tokens':[{'id':0,'content':'b'}]," MODEL "}", ATTN_INVALID_FILE,
     "t.json: added_tokens[0].id is 0, which '?' has in model.vocab; expected another"},
    {"{'truncation':{'max_length':0,'strategy':'LongestFirst'}," MODEL "}", ATTN_INVALID_FILE,
     "truncation.max_length is 0"},
    {"{'truncation':{'max_length':3,'strategy':'Other'}," MODEL "}", ATTN_UNSUPPORTED,
     "truncation.strategy is 'Other'"},
};

static void test_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const attn_status status = refuse_text(refused[i].file);
        assert_says(attn_last_error(), refused[i].says);
        if (status != refused[i].status)
            fail_msg("%s: status %d", refused[i].file, (int)status);
    }
}

/* Expressions, as JSON has them. */
static const struct {
    const char *expression;
    attn_status status;
    const char *says;
} expressions[] = {
    {"[a[b]]", ATTN_UNSUPPORTED, "'[a[b]]'; expected an expression without a class in a class (at its byte 2)"},
    {"[a&&b]", ATTN_UNSUPPORTED, "'[a&&b]'; expected an expression without && in brackets (at its byte 2)"},
    {"a{2}+", ATTN_UNSUPPORTED, "'a{2}+'; expected an expression without a repetition of a repetition (at its byte 3)"},
    {"(*ACCEPT)", ATTN_UNSUPPORTED, "'(*ACCEPT)'; expected an expression without (* (at its byte 0)"},
    {"\\\\R", ATTN_UNSUPPORTED, "'\\R'; expected an expression without a rare escape sequence (at its byte 0)"},
    {"\\\\j", ATTN_UNSUPPORTED, "'\\j'; expected an expression without an unknown escape sequence (at its byte 0)"},
    {"[\\\\W]", ATTN_UNSUPPORTED, "'[\\W]'; expected an expression without \\W in a class (at its byte 1)"},
    {"[\\\\H]", ATTN_UNSUPPORTED, "'[\\H]'; expected an expression without \\H in a class (at its byte 1)"},
    {"[\\\\b]", ATTN_UNSUPPORTED, "'[\\b]'; expected an expression without \\b in a class (at its byte 1)"},
    {"[]a]", ATTN_UNSUPPORTED, "'[]a]'; expected an expression without ] at the beginning of a class (at its byte 1)"},
    {"(?m).", ATTN_UNSUPPORTED, "'(?m).'; expected an expression without flags other than (?i) (at its byte 0)"},
    {"[[:alpha:]]", ATTN_UNSUPPORTED,
     "'[[:alpha:]]'; expected an expression without such a class in colons (at its "
     "byte 1)"},
    {"\\\\uffxx", ATTN_UNSUPPORTED,
     "'\\uffxx'; expected an expression without \\u but with four digits (at its byte 0)"},
    {"a(", ATTN_INVALID_FILE, "'a('; expected a regular expression: missing closing parenthesis"},
    {"\\\\", ATTN_INVALID_FILE, "'\\'; expected a regular expression: "},
};

static void test_expressions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        char file[300], sentence[300];
        snprintf(file, sizeof file, "{'normalizer':{'type':'Replace','pattern':{'Regex':'%s'},'content':''}," MODEL "}",
                 expressions[i].expression);
        snprintf(sentence, sizeof sentence, "t.json: normalizer.pattern.Regex is %s", expressions[i].says);
        assert_int_equal(refuse_text(file), expressions[i].status);
        assert_says(attn_last_error(), sentence);
    }
}

/* Sequences in Sequences, and lists in lists, deeper than any file has them. */
static void test_deep(void **state)
{
    enum { DEPTH = 100 };
    static const struct {
        const char *step, *steps, *place;
    } kinds[] = {{"decoder", "decoders", "decoder.decoders[0].decoders[0].decoders[0].decoders[0].deco.decoders[0]"},
                 {"normalizer", "normalizers", "normalizer.normalizers[0]."},
                 {"pre_tokenizer", "pretokenizers", "pre_tokenizer.pretokenizers[0]."}};
    attn_tokenizer *t;
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        char file[60 * DEPTH + 200];
        snprintf(file, sizeof file, "{'%s':", kinds[kind].step);
        for (int i = 0; i < DEPTH; i++)
            snprintf(file + strlen(file), sizeof file - strlen(file), "{'type':'Sequence','%s':[", kinds[kind].steps);
        for (int i = 0; i < DEPTH; i++)
            strcat(file, "]}");
        strcat(file, "," MODEL "}");
        for (char *c = file; *c != '\0'; c++)
            *c = *c == '\'' ? '"' : *c;
        assert_int_equal(attn_tokenizer_parse(&t, file, strlen(file), "t.json"), ATTN_UNSUPPORTED);
        assert_says(attn_last_error(), kinds[kind].place);
        assert_says(attn_last_error(), " is an object; expected sequences in sequences no deeper than 16");
    }
    static char lists[100000];
    memset(lists, '[', sizeof lists);
    assert_int_equal(attn_tokenizer_parse(&t, lists, sizeof lists, "t.json"), ATTN_INVALID_FILE);
}

/* An expression that goes back too often is found out on the text. */
static void test_slow_expression(void **state)
{
    attn_tokenizer *t = open_text(
        "{'pre_tokenizer':{'type':'Split','pattern':{'Regex':'(x+x+)+[yz]'},'behavior':'Removed'}," MODEL "}");
    attn_encoding e = attn_encoding_default();
    char text[40];
    (void)state;
    memset(text, 'x', sizeof text);
    assert_int_equal(attn_tokenizer_encode(t, text, sizeof text, NULL, &e), ATTN_UNSUPPORTED);
    assert_says(attn_last_error(), "a regular expression of the tokenizer gave up on the text");
    assert_int_equal(e.count, 0);
    attn_encoding_free(&e);
    attn_tokenizer_close(t);
}

static void expect_argument(attn_status status, const char *says)
{
    assert_int_equal(status, ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), says);
}

static void test_arguments(void **state)
{
    attn_tokenizer *t = open_text("{" MODEL "}"), *other;
    attn_encoding e = attn_encoding_default();
    attn_encode_options o = attn_encode_options_default();
    const int32_t id = 0;
    size_t length;
    (void)state;
    expect_argument(attn_tokenizer_parse(NULL, "{}", 2, "t"), "tokenizer is NULL; expected where to put the tokenizer");
    expect_argument(attn_tokenizer_parse(&other, NULL, 2, "t"), "json is NULL; expected a text");
    expect_argument(attn_tokenizer_parse(&other, "{}", 2, NULL), "name is NULL; expected a text");
    expect_argument(attn_tokenizer_open(NULL, "t"), "tokenizer is NULL; expected where to put the tokenizer");
    expect_argument(attn_tokenizer_open(&other, NULL), "path is NULL; expected a tokenizer.json or its folder");
    expect_argument(attn_tokenizer_encode(NULL, "", 0, NULL, &e), "tokenizer is NULL; expected a tokenizer");
    expect_argument(attn_tokenizer_encode(t, NULL, 1, NULL, &e), "text is NULL; expected 1 bytes");
    expect_argument(attn_tokenizer_encode(t, "", ((size_t)1 << 29) + 1, NULL, &e),
                    "text has 536870913 bytes; expected at most 536870912");
    expect_argument(attn_tokenizer_encode(t, "", 0, NULL, NULL),
                    "encoding is NULL; expected one of attn_encoding_default()");
    expect_argument(attn_tokenizer_encode(t, "", 0, NULL, &(attn_encoding){0}),
                    "encoding is without a size; expected one of attn_encoding_default()");
    expect_argument(attn_tokenizer_encode_pair(t, "", 0, NULL, 1, NULL, &e), "second is NULL; expected 1 bytes");
    o.max_tokens = -1;
    expect_argument(attn_tokenizer_encode(t, "", 0, &o, &e), "options.max_tokens is -1; expected 0 or more");
    o.struct_size = 1;
    assert_int_equal(attn_tokenizer_encode(t, "", 0, &o, &e), ATTN_INVALID_ARGUMENT);
    expect_argument(attn_tokenizer_decode(t, &id, 1, 0, NULL, 1, &length), "text is NULL; expected room for 1 bytes");
    assert_int_equal(attn_tokenizer_encode(t, NULL, 0, NULL, &e), ATTN_OK);
    assert_int_equal(e.count, 0);
    attn_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_expressions),
                                       cmocka_unit_test(test_deep), cmocka_unit_test(test_slow_expression),
                                       cmocka_unit_test(test_arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
