#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Uses libattn from the build folder, where nothing is installed: in the environment of meson devenv, pkg-config gives
# what a program needs to be compiled, the program finds the library, and the command is found by its name.
set -euo pipefail

if (($# != 4)); then
    echo "usage: check_build_folder.sh MESON SOURCE_FOLDER BUILD_FOLDER VERSION" >&2
    exit 2
fi
read -ra meson <<<"$1"
export SOURCE=$2 BUILD=$3 VERSION=$4

WORK=$(mktemp -d)
export WORK
trap 'rm -rf "$WORK"' EXIT
# pkg-config would hide folders that the environment names already.
unset C_INCLUDE_PATH CPATH LIBRARY_PATH LD_LIBRARY_PATH PKG_CONFIG_PATH
# shellcheck disable=SC2016 # expanded in the environment of meson devenv
"${meson[@]}" devenv -C "$BUILD" bash -euo pipefail -c '
    cd "$WORK"
    [[ $(pkg-config --modversion attn) == "$VERSION" ]] || {
        echo "check_build_folder: pkg-config says version $(pkg-config --modversion attn); expected $VERSION" >&2
        exit 1
    }
    for program in simple:attn mha:attn_nn; do
        package=${program#*:} program=${program%:*}
        pkg-config --exists "$package" || continue # without -Dnn
        gcc -std=c99 -Wall -Wextra -Werror "$SOURCE/examples/$program.c" -o "$program" $(pkg-config --cflags --libs "$package") -lm
        "./$program" >"$program.log" || {
            cat "$program.log"
            echo "check_build_folder: $program failed in the environment of meson devenv" >&2
            exit 1
        }
        echo "$program runs"
    done
    if pkg-config --exists attn_mpi; then
        gcc -std=gnu99 -Wall -Wextra -Werror "$SOURCE/examples/ring_attention.c" -o ring_attention $(pkg-config --cflags --libs attn_mpi) -lm
        "$SOURCE/tests/mpi/under_mpirun.sh" mpirun 1 ./ring_attention --tokens 1000
    fi
    if [[ -x $BUILD/tools/attn ]]; then
        [[ $(command -v attn) == "$BUILD/tools/attn" && $(attn --version) == *"$VERSION"* ]] || {
            echo "check_build_folder: the command attn is \"$(command -v attn)\"; expected $BUILD/tools/attn" >&2
            exit 1
        }
    fi
'
