# SPDX-License-Identifier: Apache-2.0
"""Compares attn tokenize with the package tokenizers, on the tokenizer.json files of many kinds of models.

Two are real, those of the sentence encoder and the language model that examples/train/run prepares. The others are trained
here on the same prose: byte pairs as GPT-2, Llama 3, Qwen 2 and CLIP have them; byte pairs and Unigram by SentencePiece, with
its own table of normalised characters, as Llama 2, T5 and XLM-RoBERTa have them; WordPiece with other settings; words.
Each file encodes 10,000 lines, alone and as pairs, and decodes what it has encoded: ids, types and text have to be
the same. Lines are prose (scikit-learn's descriptions of data sets), code (numpy's modules), and strings that mix
scripts, white space of all kinds, punctuation, names of special tokens and long repetitions.

Random strings have no characters that are younger than Unicode 8, on which the tables of the reference and of utf8proc
and PCRE2 may disagree; check_wordpiece.py and check_byte_pairs.py list those, one by one.
"""

import argparse
import io
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import numpy
import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from check_wordpiece import prose

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|"
          r"\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
SHOWN = 4
# Younger than Unicode 8, or with another category since.
OLD = unicodedata.ucd_3_2_0


def code():
    """Lines of Python files."""
    return [line for path in sorted(Path(numpy.__file__).parent.glob("*/*.py"))
            for line in path.read_text(encoding="utf-8").splitlines()]


def random_text(rng):
    """A string of pieces from one or several kinds."""
    ranges = {
        "ascii": (0x20, 0x7E), "digits": (0x30, 0x39), "latin": (0xA1, 0x24F), "extended": (0x1E00, 0x1EFF),
        "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x52F), "hebrew": (0x590, 0x5FF), "arabic": (0x600, 0x6FF),
        "devanagari": (0x900, 0x97F), "thai": (0xE00, 0xE7F), "hangul": (0xAC00, 0xD7A3), "kana": (0x3040, 0x30FF),
        "ideographs": (0x4E00, 0x9FFF), "marks": (0x300, 0x36F), "spaces": (0x2000, 0x2070), "forms": (0xFF00, 0xFFEF),
        "numbers": (0x2070, 0x218F), "symbols": (0x2190, 0x2BFF), "controls": (0x01, 0xA0), "ligatures": (0xFB00, 0xFB06)}
    words = ["<s>", "</s>", "<unk>", "[SEP]", "[CLS]", "<|im_start|>", "<|endoftext|>", "<mask>", " <mask> ", "<extra>", "<Extra>",
             "'s", "'t", "'re", "'LL", "''s", "'", " ", "  ", "   ", "\t", "\r", "\u00a0", "\u3000", "\u200b", "\u200d",
             "\ufeff", "\ufffd", "\u2581", "\u2581a", "the", " the", "The", "don't", "I'll", "3.14", "1,000,000", "½", "x²", "e\u0301", "naïve",
             "İstanbul", "straße", "日本語", "👩\u200d👩\u200d👧", "🇫🇷", "unaffable", "##ed", "a" * 120, "ab" * 60, "!" * 40, "=" * 9, "<0x41>"]
    kinds = rng.sample(sorted(ranges), rng.randint(1, 4))
    pieces = []
    for _ in range(rng.choice((1, 3, 10, 30, 60))):
        if rng.random() < 0.4:
            pieces.append(rng.choice(words))
        else:
            first, last = ranges[rng.choice(kinds)]
            c = chr(rng.randint(first, last))
            if OLD.category(c) == unicodedata.category(c) and c not in "\0\n":
                pieces.append(c)
    return "".join(pieces).replace("\n", " ")


# ------------------------------------------------------------------- tokenizers --

def trained(model, trainer, texts, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        if name != "post_processor":
            setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(texts, trainer)
    if "post_processor" in parts:
        tokenizer.post_processor = parts["post_processor"](tokenizer)
    return tokenizer


def template(single, pair, *names):
    return lambda t: processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(n, t.token_to_id(n)) for n in names])


def byte_level(texts, cut, special, **options):
    return trained(models.BPE(ignore_merges=options.pop("ignore_merges", False)),
                   trainers.BpeTrainer(vocab_size=1500, special_tokens=special, show_progress=False,
                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
                   texts, pre_tokenizer=cut, decoder=decoders.ByteLevel(), **options)


def clip(texts):
    return trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False),
                   trainers.BpeTrainer(vocab_size=1000, special_tokens=["<unk>", "<s>", "</s>"], end_of_word_suffix="</w>",
                                       show_progress=False),
                   texts, normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                                           normalizers.Lowercase()]),
                   pre_tokenizer=pre_tokenizers.Split(Regex(CLIP), "removed", invert=True), decoder=decoders.BPEDecoder("</w>"),
                   post_processor=lambda t: processors.RobertaProcessing(("</s>", 2), ("<s>", 1)))


def wordpiece(texts, **options):
    return trained(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20),
                   trainers.WordPieceTrainer(vocab_size=1000, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False),
                   texts, decoder=decoders.WordPiece(cleanup=options.pop("cleanup", True)),
                   post_processor=lambda t: processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)), **options)


def words(texts):
    return trained(models.WordLevel(unk_token="<unk>"),
                   trainers.WordLevelTrainer(vocab_size=2000, special_tokens=["<unk>", "<s>"], show_progress=False), texts,
                   normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
                   pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("isolated"),
                                                          pre_tokenizers.Digits(individual_digits=False)]))


def sentence_pieces(texts, kind, rule, byte_fallback):
    """The vocabulary that SentencePiece trains: its model, and the table of normalised characters in base64."""
    import base64
    from sentencepiece import sentencepiece_model_pb2
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([t for t in texts if t.strip()]), model_writer=written, vocab_size=1200, model_type=kind,
        normalization_rule_name=rule, byte_fallback=byte_fallback, character_coverage=0.995, minloglevel=2,
        user_defined_symbols=["<extra>"])
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(written.getvalue())
    return model, base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


def describe(model, **parts):
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, c in enumerate(("<unk>", "<s>", "</s>"))]
    return Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
                                          "pre_tokenizer": None, "post_processor": None, "decoder": None,
                                          "added_tokens": added, "model": model} | parts))


def unigram(texts, scheme, rule="nmt_nfkc", byte_fallback=False):
    model, charsmap = sentence_pieces(texts, "unigram", rule, byte_fallback)
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}
    return describe({"type": "Unigram", "unk_id": 0, "byte_fallback": byte_fallback, "vocab": [[p.piece, p.score] for p in model.pieces]},
                    normalizer={"type": "Sequence", "normalizers": [
                        {"type": "Precompiled", "precompiled_charsmap": charsmap},
                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]} if charsmap else None,
                    pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]} if scheme == "always" else space,
                    decoder=space if not byte_fallback else {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, space]},
                    post_processor={"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
                                             {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                                    "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}})


def llama2(texts):
    """As transformers converts it: no pre-tokenizer, so a text is one piece."""
    model, _ = sentence_pieces(texts, "bpe", "identity", True)
    pieces = [p.piece for p in model.pieces]
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = sorted(((ids[piece], [piece[:cut], piece[cut:]]) for piece in pieces for cut in range(1, len(piece))
                     if piece[:cut] in ids and piece[cut:] in ids and model.pieces[ids[piece]].type == 1), key=lambda m: m[0])
    return describe({"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": ids,
                     "merges": [pair for _, pair in merges]},
                    normalizer={"type": "Sequence", "normalizers": [
                        {"type": "Prepend", "prepend": "\u2581"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
                    decoder={"type": "Sequence", "decoders": [
                        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})


def all_tokenizers(options, texts):
    """Name and tokenizer, one after the other."""
    for name, folder in (("MiniLM", options.encoder), ("SmolLM2", options.smollm)):
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        yield name, tokenizer
    yield "GPT-2", byte_level(texts, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    yield "RoBERTa", byte_level(texts, pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "</s>", AddedToken("<mask>", lstrip=True)],
                                post_processor=lambda t: processors.RobertaProcessing(("</s>", 1), ("<s>", 0)))
    yield "Llama 3", byte_level(texts, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        ["<s>", "<|im_start|>"], ignore_merges=True,
        post_processor=lambda t: processors.Sequence([processors.ByteLevel(), template("<s> $A", "<s> $A <s>:1 $B:1", "<s>")(t)]))
    yield "Qwen 2", byte_level(texts, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        ["<|im_start|>"], normalizer=normalizers.NFC())
    yield "CLIP", clip(texts)
    yield "cased WordPiece", wordpiece(texts, normalizer=normalizers.BertNormalizer(lowercase=False),
                                       pre_tokenizer=pre_tokenizers.BertPreTokenizer())
    yield "WordPiece of NFD", wordpiece(texts, cleanup=False, normalizer=normalizers.Sequence([
        normalizers.Strip(), normalizers.NFD(), normalizers.Nmt(), normalizers.Replace("e", "é")]),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
                                               pre_tokenizers.Digits(individual_digits=True)]))
    for behaviour in ("merged_with_next", "contiguous", "removed"):
        yield f"WordPiece, {behaviour}", wordpiece(texts, normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"\s+"), "removed"), pre_tokenizers.Split(Regex(r"[aeiou-]"), behaviour)]))
    yield "words", words(texts)
    yield "T5", unigram(texts, "always")
    yield "XLM-RoBERTa, spaces first alone", unigram(texts, "first", "nfkc_cf")
    yield "Unigram with bytes", unigram(texts, "never", "identity", True)
    yield "Llama 2", llama2(texts)


# ------------------------------------------------------------------- comparison --

class Sides:
    def __init__(self, program, path, tokenizer):
        self.program, self.path, self.tokenizer = program, path, tokenizer
        tokenizer.save(str(path))

    def run(self, texts, *options):
        run = subprocess.run([self.program, "tokenize", str(self.path), "-0", *options], stdout=subprocess.PIPE, check=True,
                             input="".join(t + "\0" for t in texts).encode("utf-8"))
        return run.stdout

    def encodings(self, texts, *options):
        lines = self.run(texts, "--json", *options).decode("utf-8").split("\n")[:-1]
        return [(line["ids"], line["types"]) for line in map(json.loads, lines)]

    def check(self, name, texts, pairs, limit):
        bad = []
        ours = self.encodings(texts)
        reference = self.tokenizer.encode_batch(texts)
        for text, left, right in zip(texts, ours, reference, strict=True):
            if left != (right.ids, right.type_ids):
                bad.append((text, left[0], right.ids))
        ids = [e.ids for e in reference]
        decoded = self.run([" ".join(map(str, i)) for i in ids], "--decode").decode("utf-8").split("\0")[:-1]
        for i, left, right in zip(ids, decoded, self.tokenizer.decode_batch(ids), strict=True):
            if left != right:
                bad.append((i, left, right))
        for options in ([], ["--max-tokens", str(limit)]):
            if options:
                self.tokenizer.enable_truncation(limit)
            ours = self.encodings([f"{a}\t{b}" for a, b in pairs], "--pairs", *options)
            for pair, left, right in zip(pairs, ours, self.tokenizer.encode_batch(pairs), strict=True):
                if left != (right.ids, right.type_ids):
                    bad.append((pair, left[0], right.ids))
        self.tokenizer.no_truncation()
        print(f"{'FAILED' if bad else 'ok    '} {name}: {len(texts)} lines, {len(pairs)} pairs, {len(bad)} differ", flush=True)
        for text, left, right in bad[:SHOWN]:
            print(f"       {ascii(text)[:300]}: {ascii(left)[:300]}; expected {ascii(right)[:300]}")
        return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the command attn")
    parser.add_argument("--encoder", type=Path, required=True, metavar="FOLDER", help="with the tokenizer.json of MiniLM")
    parser.add_argument("--smollm", type=Path, required=True, metavar="FOLDER", help="with that of SmolLM2")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--only", help="the name of one tokenizer")
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}; --seed {options.seed} repeats this run")
    rng = random.Random(options.seed)
    texts = [t for t in prose()[1] if t.strip()]
    program = code()
    lines = texts[:3000] + rng.sample(program, 3000) + [random_text(rng) for _ in range(10000 - 3000 - min(3000, len(texts)))]
    # A tab stands between the texts of a pair.
    plain = [line.replace("\t", " ") for line in lines]
    pairs = [(rng.choice(plain), rng.choice(plain)) for _ in range(1000)]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in all_tokenizers(options, texts):
            if options.only in (None, name):
                results.append(Sides(options.program, Path(folder) / "tokenizer.json", tokenizer).check(name, lines, pairs, 24))
    print(f"{sum(results)} of {len(results)} tokenizers agree")
    return 0 if all(results) and results else 1


if __name__ == "__main__":
    sys.exit(main())
