/* SPDX-License-Identifier: Apache-2.0 */
/* The models of tokenizers, what is put around texts, truncation, and decoders, by hand. */
#include "tokenizer_files.h"

#include <stdlib.h>
#include <unistd.h>

#define MARK "\xe2\x96\x81" /* U+2581 */

static void test_wordpiece(void **state)
{
    attn_tokenizer *t =
        open_text("{'pre_tokenizer':{'type':'WhitespaceSplit'},'model':{'type':'WordPiece','unk_token':'?',"
                  "'max_input_chars_per_word':5,'vocab':{'?':0,'un':1,'##aff':2,'##a':3,'una':4,'##\xc3\xa9':5}}}");
    (void)state;
    /* The longest first, although the rest has no token then. */
    expect_tokens(t, "unaff una un\xc3\xa9 x", NULL, "?|una|un|##\xc3\xa9|?");
    expect_tokens(t, "unaaa unaaaa", NULL, "una|##a|##a|?");
    expect_tokens(t, "", NULL, "");
    attn_tokenizer_close(t);
}

static void test_byte_pairs(void **state)
{
    /* Rank counts, then the place; a pair that a merge has taken away is none any more. */
    attn_tokenizer *t = open_text("{'model':{'type':'BPE','vocab':{'a':0,'b':1,'c':2,'ab':3,'bc':4,'aa':5,'abc':6},"
                                  "'merges':['b c',['a','b'],['a','a'],['a','bc']]}}");
    (void)state;
    expect_tokens(t, "abc", NULL, "abc");
    expect_tokens(t, "ab", NULL, "ab");
    expect_tokens(t, "aaab", NULL, "aa|ab");
    expect_tokens(t, "aaa", NULL, "aa|a");
    expect_tokens(t, "axb", NULL, "ab");
    attn_tokenizer_close(t);
    /* What a merge has made is joined with what a later one makes behind it. */
    t = open_text("{'model':{'type':'BPE','vocab':{'a':0,'b':1,'c':2,'d':3,'e':4,'bc':5,'de':6,'bcde':7},"
                  "'merges':['b c','d e','bc de']}}");
    expect_tokens(t, "abcde", NULL, "a|bcde");
    attn_tokenizer_close(t);
}

static void test_byte_pair_options(void **state)
{
#define BPE(options, vocabulary) "{'model':{'type':'BPE'," options ",'vocab':{" vocabulary "},'merges':[]}}"
    (void)state;
    attn_tokenizer *t = open_text(BPE("'unk_token':'?'", "'?':0,'a':1"));
    expect_tokens(t, "xya", NULL, "?|?|a");
    attn_tokenizer_close(t);
    t = open_text(BPE("'unk_token':'?','fuse_unk':true", "'?':0,'a':1"));
    expect_tokens(t, "xyaz", NULL, "?|a|?");
    attn_tokenizer_close(t);
    t = open_text(BPE("'unk_token':'?','byte_fallback':true", "'?':0,'a':1,'<0xC3>':2,'<0xA9>':3"));
    expect_tokens(t, "a\xc3\xa9x", NULL, "a|<0xC3>|<0xA9>|?");
    attn_tokenizer_close(t);
    t = open_text("{'model':{'type':'BPE','ignore_merges':true,'vocab':{'a':0,'b':1,'ab':2},'merges':[]}}");
    expect_tokens(t, "ab", NULL, "ab");
    attn_tokenizer_close(t);
    t = open_text("{'model':{'type':'BPE','dropout':0.0,'continuing_subword_prefix':'#','end_of_word_suffix':'_','"
                  "vocab':{'a':0,'#b':1,"
                  "'#b_':2,'ab_':3,'a_':4},'merges':['a #b_']}}");
    expect_tokens(t, "ab", NULL, "ab_");
    expect_tokens(t, "abb", NULL, "a|#b|#b_");
    expect_tokens(t, "a", NULL, "a_");
    attn_tokenizer_close(t);
}

static void test_unigram(void **state)
{
    attn_tokenizer *t =
        open_text("{'model':{'type':'Unigram','unk_id':0,'vocab':[['?',0],['a',-1],['b',-1],['ab',-1.5],['abc',-9]]}}");
    (void)state;
    expect_tokens(t, "abab", NULL, "ab|ab");
    expect_tokens(t, "abc", NULL, "abc");
    /* Beside each other they are one. */
    expect_tokens(t, "axyb", NULL, "a|?|b");
    attn_tokenizer_close(t);
    /* Of two ways that are equally good the one that began first. */
    t = open_text("{'model':{'type':'Unigram','unk_id':0,'vocab':[['?',0],['a',-1],['b',-1],['ab',-2]]}}");
    expect_tokens(t, "ab", NULL, "ab");
    attn_tokenizer_close(t);
    t = open_text("{'model':{'type':'Unigram','unk_id':0,'byte_fallback':true,'vocab':[['?',0],['a',-1],['<0xC3>',-2],["
                  "'<0xA9>',-2]]}}");
    expect_tokens(t, "a\xc3\xa9x", NULL, "a|?");
    expect_tokens(t, "\xc3\xa9", NULL, "<0xC3>|<0xA9>");
    attn_tokenizer_close(t);
    /* Nothing stands for x. */
    attn_encoding encoding = attn_encoding_default();
    t = open_text("{'model':{'type':'Unigram','unk_id':null,'vocab':[['a',-1]]}}");
    expect_tokens(t, "aa", NULL, "a|a");
    assert_int_equal(attn_tokenizer_encode(t, "ax", 2, NULL, &encoding), ATTN_UNSUPPORTED);
    assert_string_equal(attn_last_error(), "the text has a character that is in no token; the tokenizer has no unk_id");
    assert_int_equal(encoding.count, 0);
    attn_encoding_free(&encoding);
    attn_tokenizer_close(t);
}

#define WORDS                                                                                                          \
    "'pre_tokenizer':{'type':'WhitespaceSplit'},'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':0,'a':1,'b':" \
    "2,'c':3,'d':4,'[C]':5,'[S]':6}}"

static void test_around(void **state)
{
    attn_encode_options bare = attn_encode_options_default();
    (void)state;
    bare.bare = 1;
    attn_tokenizer *t =
        open_text("{'post_processor':{'type':'BertProcessing','sep':['[S]',6],'cls':['[C]',5]}," WORDS "}");
    expect_tokens(t, "a b", NULL, "[C]|a|b|[S]");
    expect_tokens(t, "", NULL, "[C]|[S]");
    expect_tokens(t, "a b", &bare, "a|b");
    expect_pair(t, "a", "b", NULL, "[C]|a|[S]|b|[S]", "00011");
    expect_pair(t, "a", "b", &bare, "a|b", "01");
    attn_tokenizer_close(t);
    t = open_text("{'post_processor':{'type':'RobertaProcessing','sep':['[S]',6],'cls':['[C]',5],'trim_offsets':true,"
                  "'add_prefix_space':true}," WORDS "}");
    expect_pair(t, "a", "b", NULL, "[C]|a|[S]|[S]|b|[S]", "000000");
    expect_pair(t, "a", "b", &bare, "a|b", "00");
    attn_tokenizer_close(t);
    t = open_text(
        "{'post_processor':{'type':'Sequence','processors':[{'type':'ByteLevel','trim_offsets':false},{'type':"
        "'TemplateProcessing','single':[{'Sequence':{'id':'A','type_id':2}},{'SpecialToken':{'id':'[S]','type_id':3}}],"
        "'pair':[{'Sequence':{'id':'B','type_id':1}},{'Sequence':{'id':'A','type_id':0}}],'special_tokens':{'[S]':"
        "{'id':'[S]','ids':[6,5],'tokens':['[S]','[C]']}}}]}," WORDS "}");
    expect_tokens(t, "a", NULL, "a|[S]|[C]");
    expect_pair(t, "a", "b", NULL, "b|a", "10");
    attn_tokenizer_close(t);
    t = open_text("{" WORDS "}");
    expect_pair(t, "a", "b", NULL, "a|b", "01");
    attn_tokenizer_close(t);
}

static void test_truncation(void **state)
{
    attn_encode_options o = attn_encode_options_default();
    attn_encoding e = attn_encoding_default();
    attn_tokenizer *t = open_text(
        "{'post_processor':{'type':'BertProcessing','sep':['[S]',6],'cls':['[C]',5]},'truncation':{'max_length':4,"
        "'strategy':'LongestFirst','direction':'Right','stride':0}," WORDS "}");
    (void)state;
    expect_tokens(t, "a b c d", NULL, "[C]|a|b|[S]");
    o.max_tokens = 5;
    expect_tokens(t, "a b c d", &o, "[C]|a|b|c|[S]");
    o.max_tokens = 7;
    expect_pair(t, "a b c d", "d c", &o, "[C]|a|b|[S]|d|c|[S]", "0000111");
    expect_pair(t, "a b c d", "d c b", &o, "[C]|a|b|[S]|d|c|[S]", "0000111");
    o.max_tokens = 8;
    expect_pair(t, "a b c d", "d c b a", &o, "[C]|a|b|[S]|d|c|b|[S]", "00001111");
    o.max_tokens = 2;
    expect_tokens(t, "a", &o, "[C]|[S]");
    o.max_tokens = 1;
    assert_int_equal(attn_tokenizer_encode(t, "a", 1, &o, &e), ATTN_INVALID_ARGUMENT);
    assert_says(attn_last_error(), "options.max_tokens is 1; expected at least 2");
    /* Calls append, and say whether they have left something off. */
    assert_int_equal(attn_tokenizer_encode(t, "a b c", 5, NULL, &e), ATTN_OK);
    assert_true(e.truncated && e.count == 4);
    assert_int_equal(attn_tokenizer_encode(t, "a", 1, NULL, &e), ATTN_OK);
    assert_true(!e.truncated && e.count == 7);
    attn_encoding_free(&e);
    assert_null(e.ids);
    attn_tokenizer_close(t);
    t = open_text("{'truncation':{'max_length':2,'strategy':'LongestFirst','direction':'Left'}," WORDS "}");
    expect_tokens(t, "a b c", NULL, "b|c");
    attn_tokenizer_close(t);
    t = open_text("{'truncation':{'max_length':3,'strategy':'OnlySecond','direction':'Right'}," WORDS "}");
    expect_pair(t, "a b", "c d", NULL, "a|b|c", "001");
    assert_int_equal(attn_tokenizer_encode_pair(t, "a b c", 5, "d", 1, NULL, &e), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "the texts have 3 and 1 tokens, of which the file's truncation leaves off "
                                           "those of one; expected at most 3");
    /* The limit of a call leaves off the longer one's. */
    o.max_tokens = 3;
    expect_pair(t, "a b c", "d", &o, "a|b|d", "001");
    attn_encoding_free(&e);
    attn_tokenizer_close(t);
}

#define DECODER(decoder, vocabulary)                                                                                   \
    "{'decoder':" decoder ",'model':{'type':'WordLevel','unk_token':'?','vocab':{'?':0," vocabulary                    \
    "}},'added_tokens':[{'id':9,'content':'<s>','special':true}]}"

static void expect_decoded(const char *file, const char *text, const char *with_special)
{
    const int32_t ids[] = {9, 1, 2, 3, 100, -1};
    attn_tokenizer *t = open_text(file);
    expect_text(t, ids, 0, text);
    expect_text(t, ids, 1, with_special);
    attn_tokenizer_close(t);
}

static void test_decoders(void **state)
{
    (void)state;
    expect_decoded(DECODER("null", "'a':1,'b':2,'c':3"), "a b c", "<s> a b c");
    expect_decoded(DECODER("{'type':'WordPiece','prefix':'##','cleanup':true}", "'a':1,'##b':2,'!':3"), "ab!",
                   "<s> ab!");
    expect_decoded(DECODER("{'type':'WordPiece','cleanup':false}", "'a':1,'##b':2,'!':3"), "ab !", "<s> ab !");
    expect_decoded(DECODER("{'type':'ByteLevel'}", "'a':1,'\xc4\xa0':2,'\xc3\x83':3"), "a \xef\xbf\xbd",
                   "<s>a \xef\xbf\xbd");
    expect_decoded(DECODER("{'type':'Metaspace','replacement':'" MARK "','prepend_scheme':'always'}",
                           "'" MARK "a':1,'" MARK "b':2,'c':3"),
                   "a bc", "<s> a bc");
    expect_decoded(
        DECODER("{'type':'Metaspace','replacement':'" MARK "','prepend_scheme':'never'}", "'" MARK "a':1,'b':2,'c':3"),
        " abc", "<s> abc");
    expect_decoded(DECODER("{'type':'ByteFallback'}", "'<0xC3>':1,'<0xA9>':2,'<0xFF>':3"),
                   "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "<s>\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_decoded(DECODER("{'type':'ByteFallback'}", "'<0xC3>':1,'<0xA9>':2,'c':3"),
                   "\xc3\xa9"
                   "c",
                   "<s>\xc3\xa9"
                   "c");
    expect_decoded(
        DECODER(
            "{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'content':' '},{'type':'Fuse'},"
            "{'type':'Strip','content':' ','start':1,'stop':1}]}",
            "'__a':1,'_b':2,'c__':3"),
        " a bc ", "<s>  a bc ");
    expect_decoded(DECODER("{'type':'Replace','pattern':{'String':''},'content':'x'}", "'ab':1,'c':2"), "xaxbxxcx",
                   "x<xsx>xxaxbxxcx");
    expect_decoded(DECODER("{'type':'BPEDecoder','suffix':'</w>'}", "'a':1,'b</w>':2,'c</w>':3"), "ab c", "<s>ab c");
}

static void test_decode_sizes(void **state)
{
    attn_tokenizer *t = open_text(DECODER("null", "'a':1,'b':2"));
    const int32_t ids[] = {1, 2};
    char text[] = "....";
    size_t length;
    (void)state;
    assert_int_equal(attn_tokenizer_decode(t, ids, 2, 0, NULL, 0, &length), ATTN_OK);
    assert_int_equal(length, 3);
    assert_int_equal(attn_tokenizer_decode(t, ids, 2, 0, text, 2, &length), ATTN_OK);
    assert_int_equal(length, 3);
    assert_string_equal(text, "a ..");
    assert_int_equal(attn_tokenizer_decode(t, NULL, 0, 0, NULL, 0, &length), ATTN_OK);
    assert_int_equal(length, 0);
    assert_int_equal(attn_tokenizer_decode(t, NULL, 1, 0, NULL, 0, &length), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "ids is NULL; expected 1 of them");
    assert_int_equal(attn_tokenizer_decode(t, ids, -2, 0, NULL, 0, &length), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "count is -2; expected 0 or more ids");
    assert_int_equal(attn_tokenizer_decode(t, ids, 2, 0, NULL, 0, NULL), ATTN_INVALID_ARGUMENT);
    attn_tokenizer_close(t);
}

/* A file by its path, and by its folder's. */
static void test_open(void **state)
{
    char folder[] = "/tmp/attn-text-XXXXXX", path[64];
    attn_tokenizer *t;
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(attn_tokenizer_open(&t, folder), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "tokenizer.json");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}}}", file);
    fclose(file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(attn_tokenizer_open(&t, i ? path : folder), ATTN_OK);
        assert_int_equal(attn_tokenizer_size(t), 1);
        attn_tokenizer_close(t);
    }
    unlink(path);
    rmdir(folder);
    attn_tokenizer_close(NULL);
    attn_encoding_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wordpiece), cmocka_unit_test(test_byte_pairs), cmocka_unit_test(test_byte_pair_options),
        cmocka_unit_test(test_unigram),   cmocka_unit_test(test_around),     cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_decoders),  cmocka_unit_test(test_open),       cmocka_unit_test(test_decode_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
