# SPDX-License-Identifier: Apache-2.0
"""Whether the attn command sets every field of the structs that say what a call does, and has a word for each.

A field that a header gets and the command does not know would be something that C takes and the command silently lacks.
Those that are left out on purpose are listed in docs/command.md, with the reason, as struct.field. A sentence of the library
that names a field is put into the words of the command by tools/attn/wording.c, which needs a row for each.

Usage: check_command.py SOURCE_FOLDER
"""

import re
import sys
from pathlib import Path

from check_python import fields_of

# Header, struct, and what sentences of the library say before the name of a field; None where they name none of them.
STRUCTS = (
    ("params.h", "attn_params", "params."),
    ("params.h", "attn_window", "params.window->"),
    ("params.h", "attn_block_mask", "params.block_mask->"),
    ("params.h", "attn_ragged", "params.ragged->"),
    ("params.h", "attn_relative_bias", "params.relative_bias->"),
    ("params.h", "attn_disentangled", "params.disentangled->"),
    ("params.h", "attn_rope_tables", "params.rope->"),
    ("params.h", "attn_tree", "params.tree->"),
    ("params.h", "attn_segments", "params.segments->"),
    ("params.h", "attn_dropout", "params.dropout->"),
    ("linear_attention.h", "attn_linear_attention_params", "params."),
    ("nn/alignment.h", "attn_alignment_config", "config."),
    ("patterns.h", "attn_longformer", "options."),
    ("patterns.h", "attn_bigbird", "options."),
    ("patterns.h", "attn_strided", "options."),
    ("rope.h", "attn_rope_config", "config."),
)


def main(root):
    sources = sorted((root / "tools/attn").glob("*.c"))
    command = "".join(path.read_text(encoding="utf-8") for path in sources if path.name != "wording.c")
    words = set(re.findall(r'^    \{"([^"]+)", ', (root / "tools/attn/wording.c").read_text(encoding="utf-8"), re.MULTILINE))
    listed = set(re.findall(r"`(attn_\w+\.\w+)`", (root / "docs/command.md").read_text(encoding="utf-8")))
    wrong, count, known = [], 0, set()
    for file, struct, before in STRUCTS:
        fields = fields_of((root / "include/attn" / file).read_text(encoding="utf-8"), struct)
        count += len(fields)
        known |= {f"{struct}.{name}" for name in fields}
        for name in fields:
            if name == "struct_size":  # set by the defaults
                continue
            is_set = re.search(r"(?:\.|->)%s\s*=[^=]|&\w+->%s\b" % (name, name), command)
            # Structs of a few fields are written as one list.
            is_set = is_set or re.search(r"\(%s\)\{(?!\.)" % struct, command)
            if f"{struct}.{name}" in listed:
                continue
            if not is_set:
                wrong.append(f"{struct}.{name} is set nowhere in tools/attn; docs/command.md does not say why")
            if before + name not in words:
                wrong.append(f"tools/attn/wording.c has no row for {before}{name}, of {struct}")
    wrong += [f"docs/command.md lists {name}, which is no field" for name in sorted(listed - known)]
    print(*wrong, sep="\n")
    print(f"{count} fields of {len(STRUCTS)} structs, {len(listed)} left out, {len(wrong)} problems")
    return int(bool(wrong) or count < 100)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
