/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a text before the model: normalizers, pre-tokenizers and added tokens, one by one. What is expected
 * follows by hand from the documentation of Hugging Face's tokenizers; tests/models/check_tokenizers.py compares with
 * it.
 */
#include "tokenizer_files.h"

#define MARK "\xe2\x96\x81" /* U+2581 */

static void test_bert_normalizer(void **state)
{
    (void)state;
    static const char all[] =
        "{'type':'BertNormalizer','clean_text':true,'handle_chinese_chars':true,'strip_accents':null,"
        "'lowercase':true}";
    expect_pieces(all, NULL, "\xc3\x84\tB\x01\xef\xbf\xbd c", "a b c");
    expect_pieces(all, NULL,
                  "a\xe4\xb8\xad"
                  "b",
                  "a \xe4\xb8\xad b");
    /* A capital I with a dot is two characters. */
    expect_pieces("{'type':'BertNormalizer','clean_text':false,'handle_chinese_chars':false,'strip_accents':false,"
                  "'lowercase':true}",
                  NULL, "\xc4\xb0\x01\xe4\xb8\xad", "i\xcc\x87\x01\xe4\xb8\xad");
    expect_pieces("{'type':'BertNormalizer','strip_accents':true,'lowercase':false}", NULL, "\xc3\x84", "A");
    expect_pieces("{'type':'BertNormalizer','lowercase':false}", NULL, "\xc3\x84", "\xc3\x84");
}

static void test_forms(void **state)
{
    (void)state;
    /* e and an accent; the ligature fi. */
    expect_pieces("{'type':'NFC'}", NULL, "e\xcc\x81\xef\xac\x81", "\xc3\xa9\xef\xac\x81");
    expect_pieces("{'type':'NFD'}", NULL, "\xc3\xa9\xef\xac\x81", "e\xcc\x81\xef\xac\x81");
    expect_pieces("{'type':'NFKC'}", NULL, "e\xcc\x81\xef\xac\x81",
                  "\xc3\xa9"
                  "fi");
    expect_pieces("{'type':'NFKD'}", NULL, "\xc3\xa9\xef\xac\x81",
                  "e\xcc\x81"
                  "fi");
}

static void test_other_normalizers(void **state)
{
    (void)state;
    expect_pieces(NULL, NULL, "aB", "aB");
    expect_pieces("{'type':'Lowercase'}", NULL,
                  "\xce\xa3"
                  "A",
                  "\xcf\x83"
                  "a");
    expect_pieces("{'type':'StripAccents'}", NULL, "e\xcc\x81\xc3\xa9", "e\xc3\xa9");
    expect_pieces("{'type':'Strip','strip_left':true,'strip_right':false}", NULL,
                  " \xe3\x80\x80"
                  "a ",
                  "a ");
    expect_pieces("{'type':'Strip','strip_left':false,'strip_right':true}", NULL, " a \xc2\xa0", " a");
    expect_pieces("{'type':'Replace','pattern':{'String':'ab'},'content':'.'}", NULL, "aabab", "a..");
    expect_pieces("{'type':'Replace','pattern':{'Regex':'[0-9]+'},'content':'0'}", NULL, "a12b3", "a0b0");
    expect_pieces("{'type':'Replace','pattern':{'String':''},'content':'.'}", NULL, "ab", ".a.b.");
    expect_pieces("{'type':'Replace','pattern':{'Regex':''},'content':'.'}", NULL, "ab", ".a.b.");
    expect_pieces("{'type':'Prepend','prepend':'" MARK "'}", NULL, "a", MARK "a");
    expect_pieces("{'type':'Prepend','prepend':'" MARK "'}", NULL, "", "");
    expect_pieces("{'type':'Nmt'}", NULL,
                  "a\x01\tb\xe2\x80\x8b"
                  "c",
                  "a b c");
    expect_pieces("{'type':'ByteLevel'}", NULL, "a \xc3\xa9", "a\xc4\xa0\xc3\x83\xc2\xa9");
    expect_pieces("{'type':'Sequence','normalizers':[{'type':'NFD'},{'type':'Sequence','normalizers':[{'type':"
                  "'StripAccents'}]},{'type':'Lowercase'}]}",
                  NULL, "\xc3\x89", "e");
}

/* A table with one entry, from A to b: the root's children are around place 256, and the value is 2 beside the child.
 */
static void test_charsmap(void **state)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { NODES = 512, SIZE = 4 + 4 * NODES + 3, CHILD = 256 ^ 'A' };
    uint8_t table[SIZE] = {[1] = 4 * NODES / 256, [SIZE - 3] = 'b'};
    const uint32_t nodes[][2] = {{0, 256u << 10}, {CHILD, 'A' | 1u << 8 | 2u << 10}, {CHILD ^ 2, 1u << 31}};
    char file[3600] = "{'normalizer':{'type':'Precompiled','precompiled_charsmap':'", *at = file + strlen(file);
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int byte = 0; byte < 4; byte++)
            table[4 + 4 * nodes[i][0] + (uint32_t)byte] = (uint8_t)(nodes[i][1] >> 8 * byte);
    assert_int_equal(SIZE % 3, 0);
    for (int i = 0; i < SIZE; i += 3) {
        const uint32_t bits = (uint32_t)table[i] << 16 | (uint32_t)table[i + 1] << 8 | table[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6)
            *at++ = digits[bits >> shift & 63];
    }
    strcpy(at, "'},'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':0,'bxb':1}}}");
    attn_tokenizer *tokenizer = open_text(file);
    expect_tokens(tokenizer, "AxA", NULL, "bxb");
    attn_tokenizer_close(tokenizer);
}

static void test_pre_tokenizers(void **state)
{
    (void)state;
    expect_pieces(NULL, "{'type':'BertPreTokenizer'}", "a, b$\xc2\xbf", "a|,|b|$|\xc2\xbf");
    expect_pieces(NULL, "{'type':'Whitespace'}", "a_1 --b\xe2\x92\xb6", "a_1|--|b\xe2\x92\xb6");
    expect_pieces(NULL, "{'type':'WhitespaceSplit'}",
                  " a, \xe3\x80\x80"
                  "b",
                  "a,|b");
    expect_pieces(NULL, "{'type':'Digits','individual_digits':true}", "a12\xc2\xbd", "a|1|2|\xc2\xbd");
    expect_pieces(NULL, "{'type':'Digits','individual_digits':false}", "a12b", "a|12|b");
    expect_pieces(NULL, "{'type':'Punctuation'}", "a..b", "a|.|.|b");
    expect_pieces(NULL, "{'type':'Punctuation','behavior':'MergedWithPrevious'}", "a..b", "a.|.|b");
    expect_pieces(NULL, "{'type':'CharDelimiterSplit','delimiter':'-'}", "a--b", "a|b");
    expect_pieces(NULL, "{'type':'Sequence','pretokenizers':[{'type':'WhitespaceSplit'},{'type':'Punctuation'}]}",
                  "a. b", "a|.|b");
}

/* One text, cut at x in every way, and at what is no x. */
static void test_split(void **state)
{
    static const struct {
        const char *behaviour, *invert, *pieces;
    } cases[] = {
        {"Removed", "false", "a|b"},
        {"Removed", "true", "x|x|x"},
        {"Isolated", "false", "a|x|x|b|x"},
        {"Isolated", "true", "a|x|x|b|x"},
        {"MergedWithPrevious", "false", "ax|x|bx"},
        {"MergedWithPrevious", "true", "a|x|xb|x"},
        {"MergedWithNext", "false", "a|x|xb|x"},
        {"MergedWithNext", "true", "ax|x|bx"},
        {"Contiguous", "false", "a|xx|b|x"},
        {"Contiguous", "true", "a|xx|b|x"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int regex = 0; regex < 2; regex++) {
            char step[200];
            snprintf(step, sizeof step, "{'type':'Split','pattern':{'%s':'x'},'behavior':'%s','invert':%s}",
                     regex ? "Regex" : "String", cases[i].behaviour, cases[i].invert);
            expect_pieces(NULL, step, "axxbx", cases[i].pieces);
        }
    }
    /* Matches of nothing are cuts. */
    expect_pieces(NULL, "{'type':'Split','pattern':{'String':''},'behavior':'Removed'}", "abc", "a|b|c");
    expect_pieces(NULL, "{'type':'Split','pattern':{'Regex':'(?=[A-Z])'},'behavior':'Isolated'}", "aBcD", "a|Bc|D");
    expect_pieces(NULL, "{'type':'Split','pattern':{'Regex':'(?=x)'},'behavior':'MergedWithNext'}", "axx", "a|x|x");
    expect_pieces(NULL, "{'type':'Split','pattern':{'String':''},'behavior':'Isolated'}", "ab", "a|b");
    expect_pieces(NULL, "{'type':'Split','pattern':{'String':''},'behavior':'Removed','invert':true}", "ab", "");
}

/* What Oniguruma and PCRE2 read differently. */
static void test_expressions(void **state)
{
#define REPLACE(expression) "{'type':'Replace','pattern':{'Regex':'" expression "'},'content':'!'}"
    (void)state;
    expect_pieces(REPLACE("\\\\s"), NULL, "a\xe1\xa0\x8e\xc2\x85", "a\xe1\xa0\x8e!");
    expect_pieces(REPLACE("[^\\\\S]"), NULL, "a b", "a!b");
    expect_pieces(REPLACE("\\\\w"), NULL, "e\xcc\x81-", "!!-");
    expect_pieces(REPLACE("\\\\W"), NULL, "e\xcc\x81-", "e\xcc\x81!");
    expect_pieces(REPLACE("\\\\bx"), NULL, "e\xcc\x81x x", "e\xcc\x81x !");
    expect_pieces(REPLACE("[\\\\h]"), NULL, "fg ", "!g ");
    expect_pieces(REPLACE("^a"), NULL, "a\na", "!\n!");
    expect_pieces(REPLACE("\\\\u00e9"), NULL, "\xc3\xa9", "!");
    expect_pieces(REPLACE("[[:punct:]]"), NULL, "+a.", "!a!");
    expect_pieces(REPLACE("x*"), NULL, "axb", "!a!b!");
    expect_pieces(REPLACE("a++a|b"), NULL, "aab", "aa!");
    expect_pieces(REPLACE("(?i:X)"), NULL, "xX", "!!");
}

static void test_byte_level(void **state)
{
    (void)state;
    expect_pieces(NULL, "{'type':'ByteLevel','add_prefix_space':false}", "it's 12a  b!",
                  "it|'s|\xc4\xa0"
                  "12|a|\xc4\xa0|\xc4\xa0"
                  "b|!");
    expect_pieces(NULL, "{'type':'ByteLevel','add_prefix_space':true}", "a",
                  "\xc4\xa0"
                  "a");
    expect_pieces(NULL, "{'type':'ByteLevel','add_prefix_space':true}", " a",
                  "\xc4\xa0"
                  "a");
    expect_pieces(NULL, "{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}", "a \n", "a\xc4\xa0\xc4\x8a");
}

static void test_metaspace(void **state)
{
#define METASPACE(scheme, split)                                                                                       \
    "{'type':'Metaspace','replacement':'" MARK "','prepend_scheme':'" scheme "','split':" split "}"
    static const char in_words[] =
        "{'type':'Sequence','pretokenizers':[{'type':'WhitespaceSplit'}," METASPACE("first", "true") "]}";
    (void)state;
    expect_pieces(NULL, METASPACE("always", "true"), "a  b", MARK "a|" MARK "|" MARK "b");
    expect_pieces(NULL, METASPACE("always", "true"), " a", MARK "a");
    expect_pieces(NULL, METASPACE("always", "false"), "a b", MARK "a" MARK "b");
    expect_pieces(NULL, METASPACE("never", "true"), "a b", "a|" MARK "b");
    expect_pieces(NULL, METASPACE("first", "true"), "a b", MARK "a|" MARK "b");
    expect_pieces(NULL, in_words, "a b", MARK "a|b");
    expect_pieces(NULL, in_words, " a b", "a|b");
    expect_pieces("{'type':'Strip','strip_left':true,'strip_right':true}", METASPACE("first", "true"), " a", "a");
    expect_pieces(NULL, "{'type':'Metaspace','replacement':'_','add_prefix_space':false}", "a b", "a|_b");
}

static const char with_added[] =
    "{'normalizer':{'type':'Lowercase'},'pre_tokenizer':{'type':'WhitespaceSplit'},'added_tokens':["
    "{'id':4,'content':'<S>','special':true,'normalized':false},{'id':5,'content':'<S>>','normalized':false},"
    "{'id':6,'content':'Word','single_word':true},{'id':7,'content':'<l>','lstrip':true,'normalized':false},"
    "{'id':8,'content':'<r>','rstrip':true,'normalized':false}],"
    "'model':{'type':'BPE','vocab':{'a':0,'b':1,'<':2,'s':3,'>':9,'w':10,'o':11,'r':12,'d':13},'merges':[]}}";

static void test_added_tokens(void **state)
{
    attn_encode_options text = attn_encode_options_default();
    attn_tokenizer *t = open_text(with_added);
    (void)state;
    expect_tokens(t, "a<S>b", NULL, "a|<S>|b");
    expect_tokens(t, "a<S>>b", NULL, "a|<S>>|b");
    text.special_as_text = 1;
    expect_tokens(t, "a<S>b", &text, "a|<|s|>|b");
    /* One that is looked for behind the normalizer is found in any case. */
    expect_tokens(t, "a wORD b", NULL, "a|Word|b");
    expect_tokens(t, "aword", NULL, "a|w|o|r|d");
    expect_tokens(t, "worda", NULL, "w|o|r|d|a");
    expect_tokens(t, "a <l> b", NULL, "a|<l>|b");
    expect_tokens(t, "<S>  <r>  <S>", NULL, "<S>|<r>|<S>");
    assert_int_equal(attn_tokenizer_size(t), 14);
    assert_int_equal(attn_tokenizer_id(t, "<S>"), 4);
    assert_int_equal(attn_tokenizer_id(t, "d"), 13);
    assert_int_equal(attn_tokenizer_id(t, "none"), -1);
    assert_true(attn_tokenizer_is_special(t, 4));
    assert_false(attn_tokenizer_is_special(t, 5));
    assert_false(attn_tokenizer_is_special(t, 100));
    assert_null(attn_tokenizer_token(t, 14));
    assert_null(attn_tokenizer_token(t, -1));
    attn_tokenizer_close(t);
}

/* What is no UTF-8 is U+FFFD, one for each beginning of a character. */
static void test_bad_text(void **state)
{
    attn_tokenizer *t = open_text("{'model':{'type':'BPE','vocab':{'a':0,'\xef\xbf\xbd':1,'b':2},'merges':[]}}");
    (void)state;
    expect_tokens(t,
                  "a\xff\xe4\xb8"
                  "b",
                  NULL, "a|\xef\xbf\xbd|\xef\xbf\xbd|b");
    expect_tokens(t, "\xed\xa0\x80", NULL, "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd");
    expect_tokens(t, "\xc0\xaf\xf0\x9f", NULL, "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd");
    attn_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert_normalizer),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_other_normalizers),
        cmocka_unit_test(test_charsmap),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_pre_tokenizers),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_bad_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
