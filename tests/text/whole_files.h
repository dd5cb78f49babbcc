/* SPDX-License-Identifier: Apache-2.0 */
/* Files that have a step of every kind, for tests of memory and of threads. */
#ifndef ATTN_TESTS_TEXT_WHOLE_FILES_H
#define ATTN_TESTS_TEXT_WHOLE_FILES_H

static const char *const whole_files[] = {
    "{'normalizer':{'type':'BertNormalizer'},'pre_tokenizer':{'type':'BertPreTokenizer'},'added_tokens':[{'id':4,'"
    "content':'<X>',"
    "'special':true,'normalized':false},{'id':5,'content':'<Y>'}],'model':{'type':'WordPiece','unk_token':'?','vocab':{"
    "'?':0,'a':1,"
    "'##b':2,'!':3}},'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'X','type_id':0}},{'"
    "Sequence':"
    "{'id':'A','type_id':0}}],'pair':[{'Sequence':{'id':'A','type_id':0}},{'Sequence':{'id':'B','type_id':1}}],'"
    "special_tokens':{'X':"
    "{'id':'X','ids':[4],'tokens':['<X>']}}},'decoder':{'type':'WordPiece'}}",
    "{'normalizer':{'type':'Sequence','normalizers':[{'type':'Replace','pattern':{'Regex':' +'},'content':' "
    "'},{'type':'Strip'}]},"
    "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits','individual_digits':true},{'type':'ByteLevel'"
    "}]},'model':"
    "{'type':'BPE','byte_fallback':true,'unk_token':'?','vocab':{'?':0,'a':1,'b':2,'ab':3,'\xc4\xa0':4,'\xc4\xa0"
    "ab':5},'merges':"
    "[['a','b'],['\xc4\xa0','ab']]},'decoder':{'type':'ByteLevel'}}",
    "{'normalizer':{'type':'Prepend','prepend':'_'},'pre_tokenizer':{'type':'Metaspace','replacement':'_','prepend_"
    "scheme':'first'},"
    "'model':{'type':'Unigram','unk_id':0,'byte_fallback':true,'vocab':[['?',0],['_',-1],['a',-1],['_ab',-2],['<0x21>',"
    "-3]]},'decoder':"
    "{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'content':' "
    "'},{'type':'ByteFallback'},{'type':'Fuse'},"
    "{'type':'Strip','content':' ','start':1,'stop':0}]}}",
};
enum { WHOLE_FILES = sizeof whole_files / sizeof *whole_files };
static const char whole_text[] = " \xc3\x81"
                                 "b ab <X> abab! <y> ab12 ab\xff ab";

#endif
