# SPDX-License-Identifier: Apache-2.0
"""Whether the Python package sets every field of the structs that say what a call does.

A field that a header gets and the package does not know would be an option that C has and Python silently lacks. Those that
are left out on purpose are listed here, with the reason.

Usage: check_python.py SOURCE_FOLDER
"""

import keyword
import re
import sys
from pathlib import Path

# Header, struct, and the fields that Python does not set.
STRUCTS = (
    ("params.h", "attn_params", {"struct_size": "set by the defaults", "executor": "the package brings one of its own",
                                 "q_scale": "has no use in C yet, and is refused there"}),
    ("params.h", "attn_window", {}),
    ("params.h", "attn_block_mask", {}),
    ("params.h", "attn_ragged", {}),
    ("params.h", "attn_relative_bias", {}),
    ("params.h", "attn_disentangled", {}),
    ("params.h", "attn_rope_tables", {}),
    ("params.h", "attn_tree", {}),
    ("params.h", "attn_segments", {}),
    ("params.h", "attn_dropout", {}),
    ("linear_attention.h", "attn_linear_attention_params", {"struct_size": "set by the defaults", "executor": "as above"}),
    ("linear_attention_backward.h", "attn_linear_attention_gradients", {"struct_size": "set by the defaults"}),
    ("backward.h", "attn_gradients", {"struct_size": "set by the defaults"}),
    ("patterns.h", "attn_longformer", {}),
    ("patterns.h", "attn_bigbird", {}),
    ("patterns.h", "attn_strided", {}),
    ("cache.h", "attn_cache_config", {"struct_size": "set by the defaults"}),
    ("rope.h", "attn_rope_config", {"struct_size": "set by the defaults"}),
)


def fields_of(header, struct):
    body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (struct, struct), header, re.DOTALL)
    if not body:
        raise SystemExit(f"there is no struct {struct} in its header")
    text = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    names = []
    for declaration in filter(str.strip, text.split(";")):
        function = re.search(r"\(\*(\w+)\)", declaration)
        names += [function[1]] if function else re.findall(r"(\w+)(?:\[[^\]]*\])?\s*(?=,|$)", declaration.strip())
    return names


def main(root):
    package = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "python/libattn").glob("*.pxi")))
    wrong = []
    count = 0
    for file, struct, left_out in STRUCTS:
        fields = fields_of((root / "include/attn" / file).read_text(encoding="utf-8"), struct)
        count += len(fields)
        wrong += [f"{struct}.{name} is listed here, and is no field" for name in left_out if name not in fields]
        for name in fields:
            # A keyword of Python's has a longer name there.
            if name not in left_out and not re.search(r"\.%s%s\b" % (name, r"\w+" if keyword.iskeyword(name) else ""), package):
                wrong.append(f"{struct}.{name} is set nowhere in python/libattn")
    print(*wrong, sep="\n")
    print(f"{count} fields of {len(STRUCTS)} structs, {len(wrong)} problems")
    return int(bool(wrong) or count < 100)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
