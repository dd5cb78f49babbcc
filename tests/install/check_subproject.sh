#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Uses the sources as a Meson subproject: a project outside the tree asks for
# the dependencies attn and attn_nn, gets them from subprojects/libattn, and its
# programs run. Only the libraries are built there, with the scalar kernels; tools,
# bench and tests are switched off, so that their dependencies are not needed.
set -euo pipefail

if (($# != 2)); then
    echo "usage: check_subproject.sh MESON SOURCE_FOLDER" >&2
    exit 2
fi
read -ra meson <<<"$1"
source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/subprojects/libattn"
cp -r "$source"/{meson.build,meson_options.txt,README.md,NEWS.md,cmake,docs,examples,include,src} "$work/subprojects/libattn"
cp "$source"/examples/{simple,mha}.c "$work"
cat >"$work/meson.build" <<'EOF'
project('user', 'c', default_options: ['c_std=c99', 'buildtype=plain', 'c_args=-DATTN_SMALL_CODE'])
attn = dependency('attn', fallback: 'libattn',
  default_options: ['tools=false', 'text=false', 'bench=false', 'tests=false', 'examples=false', 'max_isa=scalar'])
test('simple', executable('simple', 'simple.c', dependencies: attn))
attn_nn = dependency('attn_nn', fallback: 'libattn')
maths = meson.get_compiler('c').find_library('m')
test('mha', executable('mha', 'mha.c', dependencies: [attn_nn, maths]))
EOF
# An installed libattn must not stand in for the subproject.
if ! { "${meson[@]}" setup --wrap-mode forcefallback "$work/build" "$work" &&
    "${meson[@]}" compile -C "$work/build" -j 2 &&
    "${meson[@]}" test -C "$work/build"; } >"$work/log" 2>&1; then
    cat "$work/log"
    exit 1
fi
grep -q 'Subproject.*libattn.*finished' "$work/log" || {
    cat "$work/log"
    echo "check_subproject: Meson did not build the subproject libattn" >&2
    exit 1
}
