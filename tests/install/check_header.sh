#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the public headers by themselves as C99 or C++11 with every warning an
# error: users build with flags and languages that the library itself does not.
set -euo pipefail

if (($# != 3)); then
    echo "usage: check_header.sh COMPILER c|c++ INCLUDE_FOLDER" >&2
    exit 2
fi
compiler=$1 language=$2 include=$3
if ! command -v "$compiler" >/dev/null; then
    echo "$compiler is not installed"
    exit 77 # Meson counts this as skipped
fi
flags=(-fsyntax-only -pedantic -Wall -Wextra -Wconversion -Wshadow -Wundef -Werror)
case $language in
    c) flags+=(-std=c99 -Wstrict-prototypes) ;;
    c++) flags+=(-std=c++11) ;;
    *)
        echo "check_header.sh: the language is '$language'; expected c or c++" >&2
        exit 2
        ;;
esac
# Used twice and called, so that the include guard and the inline functions are compiled too.
"$compiler" "${flags[@]}" -I "$include" -x "$language" - <<'EOF'
#include <attn/attn.h>
#include <attn/attn.h>
int main(void)
{
    float data[6] = {0, 0, 0, 0, 0, 0};
    attn_params params = attn_params_default();
    attn_tensor rows = attn_bhtd(data, 1, 1, 2, 3), columns = attn_bthd(data, 1, 2, 1, 3);
    return attn_forward(&rows, &rows, &rows, &columns, &params) == ATTN_OK ? 0 : 1;
}
EOF
for header in types params backward cache patterns quantise rope mpi_plan nn nn/alignment nn/block nn/elementwise nn/linear nn/mha nn/model nn/models \
    nn/recurrent \
    nn/tensors nn/weights; do
    printf '#include <attn/%s.h>\n' "$header" "$header" |
        "$compiler" "${flags[@]}" -I "$include" -x "$language" -
done
# With MPI's own header as one of the system's, whose warnings are not ours.
if folders=$(pkg-config --cflags-only-I ompi-c 2>/dev/null); then
    read -ra folders <<<"${folders//-I/-isystem }"
    for header in "$include"/attn/mpi*.h; do
        printf '#include <attn/%s>\n' "${header##*/}" "${header##*/}" |
            "$compiler" "${flags[@]}" "${folders[@]}" -I "$include" -x "$language" -
    done
fi
