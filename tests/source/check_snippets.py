# SPDX-License-Identifier: Apache-2.0
"""Compiles the C snippets of the documents, and of the public headers' comments, with every warning an error.

In a document a snippet is a block that begins with ```c; what is no C that compiles is ```text. A block without the
name of its language is refused.

- A block with a function in it, that is with a line that is only "{", is compiled as it is.
- Any other is the body of a function, behind its own #include lines.
- Names that it takes from its surroundings are declared in a comment of the document, which readers do not see:

      <!-- compile with: attn_tensor q, out; -->          for the next block
      <!-- compile all with: enum { B = 2 }; -->          for all blocks behind it

  Such a comment includes <attn/attn.h>, <attn/nn.h>, <attn/text.h> and what C programs usually include. A block without any has to
  bring its own.

In a header it is what stands between @code and @endcode, as a body; NAMES below has the names.

Usage: check_snippets.py SOURCE_FOLDER COMPILER...
"""

import re
import subprocess
import sys
from pathlib import Path

DOCUMENTS = ("*.md", "docs/*.md", "bench/**/*.md", "examples/**/*.md", "tests/**/*.md", "tools/**/*.md")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-fsyntax-only", "-fdiagnostics-color=never", "-Wall", "-Wextra", "-Werror")
# Snippets end before they use all that they declare.
OF_BODIES = ("-Wno-unused",)
INCLUDES = "".join(f"#include <{name}.h>\n" for name in
                   ("attn/attn", "attn/backward", "attn/cache", "attn/linear_attention",
                    "attn/linear_attention_backward", "attn/nn", "attn/patterns", "attn/quantise", "attn/rope", "attn/text", "math",
                    "stdint",
                    "stdio", "stdlib", "string"))

# What the snippets of a header take from their surroundings.
NAMES = {
    "attn.h": "enum { B = 1, H = 2, T = 3, d = 4 }; float q_data[24], k_data[24], v_data[24], o_data[24];",
    "backward.h": "attn_tensor q, k, v, out, lse, d_out, d_q, d_k, d_v; attn_params params;",
    "cache.h": "int layer; attn_tensor q, k, v, out;",
    "linear_attention.h": "attn_tensor q, k, v, out, decay, beta, state;",
    "linear_attention_backward.h": "attn_tensor q, k, v, out, d_out, d_q, d_k, d_v, d_decay; "
                                   "attn_linear_attention_params p;",
    "linformer.h": "float weights[256 * 512]; attn_tensor q, k, v, out;",
    "model.h": "const attn_model *model; attn_cache *cache; attn_model_batch batch; attn_model_tokens tokens; "
               "attn_model_outputs outputs; int64_t id, one, sources[1]; int32_t start;",
    "patterns.h": "int64_t Tq, Tk; attn_params params;",
    "progress.h": "attn_tensor q, k, v, e, out; void *workspace; size_t size; int64_t begun, tasks;",
    "quantise.h": "enum { T = 3, D = 4 }; attn_tensor q, k, v, out; attn_params params;",
    "rope.h": "enum { T = 3, head_dim = 4 }; float table[T * head_dim]; attn_params params;",
}

PART = re.compile(
    r"^(?P<indent> *)```c\n(?P<block>.*?)^ *```$|^<!-- compile (?P<all>all )?with:(?P<names>.*?)-->", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^ \* @code\n(?P<block>.*?)^ \* @endcode$", re.DOTALL | re.MULTILINE)


class Problem(Exception):
    """A document that breaks the rules; its text is for the user."""


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def unit(block, names, where, line):
    """A snippet as a whole file, and the flags for it."""
    code = f'#line {line} "{where}"\n{block}'
    if re.search(r"^\{$", block, re.MULTILINE):
        return (f"{INCLUDES}{names}\n{code}", OF_BODIES) if names else (code, ())
    includes = "".join(re.findall(r"^#include .*\n", block, re.MULTILINE))
    body = re.sub(r"^#include .*$", "", block, flags=re.MULTILINE)
    return (f"{INCLUDES if names else ''}{includes}{names}\nvoid snippet(void);\nvoid snippet(void)\n{{\n"
            f'#line {line} "{where}"\n{body}\n}}\n', OF_BODIES)


def snippets_of_document(text, where):
    """Yields (line, file, flags) of each snippet."""
    page, own, own_line = "", "", 0
    for bare in list(re.finditer(r"^ *```(.*)$", text, re.MULTILINE))[::2]:
        if not bare[1].strip():
            raise Problem(f"{where}:{line_of(text, bare.start())}: the block has no language, such as ```c or ```text")
    for part in PART.finditer(text):
        line = line_of(text, part.start())
        if part["names"] is not None:
            names = f'#line {line} "{where}"\n{part["names"]}\n'
            if part["all"]:
                page += names
            elif own:
                raise Problem(f"{where}:{own_line}: no snippet follows this comment")
            else:
                own, own_line = names, line
        else:
            block = re.sub(f"^{part['indent']}", "", part["block"], flags=re.MULTILINE)
            yield line, *unit(block, page + own, where, line + 1)
            own = ""
    if own:
        raise Problem(f"{where}:{own_line}: no snippet follows this comment")


def snippets_of_header(text, where, names):
    for part in CODE.finditer(text):
        line = line_of(text, part.start())
        block = re.sub(r"^ \* ?", "", part["block"], flags=re.MULTILINE)
        yield line, *unit(block, names, where, line + 1)


def main():
    if len(sys.argv) < 3:
        print("usage: check_snippets.py SOURCE_FOLDER COMPILER...", file=sys.stderr)
        return 2
    source, compiler = Path(sys.argv[1]), sys.argv[2:]
    compiled = failed = 0
    snippets = []
    try:
        for path in sorted({path for pattern in DOCUMENTS for path in source.glob(pattern)}):
            where = path.relative_to(source).as_posix()
            snippets += ((where, *s) for s in snippets_of_document(path.read_text(encoding="utf-8"), where))
        for path in sorted(source.glob("include/**/*.h")):
            where = path.relative_to(source).as_posix()
            text = path.read_text(encoding="utf-8")
            snippets += ((where, *s) for s in snippets_of_header(text, where, NAMES.get(path.name, "")))
    except Problem as problem:
        print(problem)
        return 1
    for where, line, code, flags in snippets:
        run = subprocess.run([*compiler, *FLAGS, *flags, "-I", source / "include", "-x", "c", "-"],
                             input=code, capture_output=True, text=True, check=False)
        compiled += 1
        if run.returncode:
            failed += 1
            print(f"{where}:{line}: the snippet does not compile:\n{run.stderr}")
    print(f"{compiled} snippets, {failed} failed")
    return 1 if failed or not compiled else 0


if __name__ == "__main__":
    sys.exit(main())
