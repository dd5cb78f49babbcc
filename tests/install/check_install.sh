#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the build into an empty folder and uses it as a stranger would: a
# program is compiled outside the build with nothing but what pkg-config says,
# runs with the installed library, and asks for it by its versioned soname.
set -euo pipefail

if (($# != 5)); then
    echo "usage: check_install.sh MESON SOURCE_FOLDER BUILD_FOLDER PREFIX VERSION" >&2
    exit 2
fi
read -ra meson <<<"$1"
source=$2 build=$3 prefix=$4 version=$5

fail() {
    echo "check_install: $1" >&2
    exit 1
}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
"${meson[@]}" install -C "$build" --no-rebuild --destdir "$stage" >"$stage/install.log" 2>&1 ||
    fail "meson install failed: $(cat "$stage/install.log")"

for header in attn backward params patterns quantise rope types nn nn/linear nn/mha nn/models nn/weights; do
    [[ -f $stage$prefix/include/attn/$header.h ]] || fail "attn/$header.h is not below $prefix/include"
done
pc=$(find "$stage" -name attn.pc)
[[ -n $pc ]] || fail "no attn.pc was installed"

# The .pc file names the prefix, which is below the stage only for this test.
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$pc")
ask() {
    pkg-config --define-variable=prefix="$stage$prefix" "$@" attn
}
[[ $(ask --modversion) == "$version" ]] || fail "pkg-config says version $(ask --modversion); expected $version"
read -ra flags <<<"$(ask --cflags --libs)"
gcc -std=c99 -Wall -Wextra -Werror "$source/examples/simple.c" -o "$stage/simple" "${flags[@]}"
readelf --dynamic "$stage/simple" | grep -q 'NEEDED.*\[libattn\.so\.[0-9]*\]' ||
    fail "the program does not need libattn.so.N: $(readelf --dynamic "$stage/simple" | grep NEEDED)"

# The layers, with what their own .pc file says.
read -ra flags <<<"$(pkg-config --define-variable=prefix="$stage$prefix" --cflags --libs attn_nn)"
gcc -std=c99 -Wall -Wextra -Werror "$source/examples/mha.c" -o "$stage/mha" "${flags[@]}" -lm
readelf --dynamic "$stage/mha" | grep -q 'NEEDED.*\[libattn_nn\.so\.[0-9]*\]' ||
    fail "the program does not need libattn_nn.so.N: $(readelf --dynamic "$stage/mha" | grep NEEDED)"

libdir=$(ask --variable=libdir)
LD_LIBRARY_PATH=$libdir "$stage/mha" >"$stage/install.log" || fail "the program with layers failed"
output=$(LD_LIBRARY_PATH=$libdir "$stage/simple") || fail "the program failed: $output"
grep -qF "libattn $version" <<<"$output" || fail "the program says '$output'; expected libattn $version"

# Whatever commands were installed must run from there too.
while read -r command; do
    output=$(LD_LIBRARY_PATH=$libdir "$command" --version) || fail "$(basename "$command") --version failed"
    grep -qF "$version" <<<"$output" || fail "$(basename "$command") --version says '$output'; expected $version"
done < <(find "$stage$prefix/bin" -type f 2>/dev/null)

# Nothing but the library's own files may be installed.
unexpected=$(find "$stage$prefix" -type f ! -name 'libattn*' ! -path '*/include/attn/*' ! -name '*.pc' ! -path '*/bin/attn*' \
    ! -path '*/share/*attn*')
[[ -z $unexpected ]] || fail "installed besides what belongs to libattn: $unexpected"

# A program that is linked with the static libraries, as where there are no others, needs no library of ours. It may have
# functions with the names of internal ones; attn_geometry_of is one, in the static library a local name.
if [[ -f $libdir/libattn.a ]]; then
    find "$stage" -name 'libattn*.so*' -delete
    nm "$libdir/libattn.a" >"$stage/names"
    grep -q ' t attn_geometry_of$' "$stage/names" || fail "attn_geometry_of is no local name of libattn.a"
    cat >"$stage/own.c" <<'EOF'
void attn_geometry_of(void);
void io_fail(void);
void attn_geometry_of(void) {}
void io_fail(void) {}
EOF
    for program in simple:attn mha:attn_nn; do
        read -ra flags <<<"$(pkg-config --define-variable=prefix="$stage$prefix" --static --cflags --libs "${program#*:}")"
        program=${program%:*}
        gcc -std=c99 -Wall -Wextra -Werror "$source/examples/$program.c" "$stage/own.c" -o "$stage/static" "${flags[@]}"
        if readelf --dynamic "$stage/static" | grep 'NEEDED.*libattn'; then
            fail "$program is linked with a shared library of libattn; expected the static one"
        fi
        "$stage/static" >"$stage/install.log" || fail "$program, linked with the static libraries, failed"
        echo "$program runs with the static libraries"
    done
fi
