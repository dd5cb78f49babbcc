#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Holds the manual pages to the command and to the headers: each page has every option of the command's --help and no
# other, attn(3) every exported function, mandoc finds nothing to warn of, and tools/command-pages would write the same.
set -euo pipefail

if (($# != 2)); then
    echo "usage: check_man.sh ATTN SOURCE_FOLDER" >&2
    exit 2
fi
attn=$1 source=$2
pages=$source/docs/man
bad=0
complain() {
    echo "check_man: $1" >&2
    bad=1
}

"$source/tools/command-pages" "$attn" --check || bad=1

# same WHAT HELP PAGE: two lists, one a line.
same() {
    [[ -n $2 ]] || complain "no $1 were found; expected some"
    [[ $2 == "$3" ]] || complain "$1 differ (< said, > in the page): $(diff <(echo "$2") <(echo "$3") || true)"
}
commands=$("$attn" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | sort)
same "the commands of attn --help" "$commands" "$(sed -n 's/^\.It Cm //p' "$pages/attn.1" | sort)"
for command in $commands; do
    same "the options of attn $command --help" \
        "$("$attn" "$command" --help | sed -nE 's/^  (-[a-zA-Z], |    )(--[a-z0-9-]+).*/\1\2/p' | tr -d ' ' | sort)" \
        "$(sed -nE 's/^\.It (Fl ([a-zA-Z]) , )?Fl (-[a-z0-9-]+).*/\2\t\3/p' "$pages/attn-$command.1" |
            sed -E 's/^\t/-/; s/^([a-zA-Z])\t/-\1,-/' | sort)"
done
while read -r function; do
    grep -qE "^\.Fn $function( ,)?$" "$pages/attn.3" || complain "attn(3) does not name $function"
done < <(cat "$source/src/exports.txt" "$source/src/nn/exports.txt")

if command -v mandoc >/dev/null; then
    mandoc -Tlint -W warning "$pages"/* || complain "mandoc warns, see above"
else
    echo "mandoc is not installed, so the form of the pages is not looked at"
fi
if ((bad)); then
    exit 1
fi
echo "$(find "$pages" -type f | wc -l) pages say what the command and the headers say"
