#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the build into an empty folder and uses it as a stranger would: a
# program is compiled outside the build with nothing but what pkg-config says,
# runs with the installed library, and asks for it by its versioned soname.
set -euo pipefail

if (($# != 6)); then
    echo "usage: check_install.sh MESON SOURCE_FOLDER BUILD_FOLDER PREFIX VERSION COMPILER" >&2
    exit 2
fi
read -ra meson <<<"$1"
source=$2 build=$3 prefix=$4 version=$5 compiler=$6

fail() {
    echo "check_install: $1" >&2
    exit 1
}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
"${meson[@]}" install -C "$build" --no-rebuild --destdir "$stage" >"$stage/install.log" 2>&1 ||
    fail "meson install failed: $(cat "$stage/install.log")"

for header in attn backward params patterns quantise rope text types nn nn/linear nn/mha nn/models nn/weights; do
    [[ -f $stage$prefix/include/attn/$header.h ]] || fail "attn/$header.h is not below $prefix/include"
done
mpi=$(find "$stage" -name attn_mpi.pc) # nothing without -Dmpi
for header in "$source"/include/attn/mpi*.h; do
    [[ -z $mpi || -f $stage$prefix/include/attn/${header##*/} ]] || fail "attn/${header##*/} is not below $prefix/include"
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
# needs PROGRAM LIBRARY: by its versioned soname, unless only the static libraries were built.
needs() {
    local needed
    [[ -n $(find "$stage" -name "$2.so") ]] || return 0
    needed=$(readelf --dynamic "$1" | grep NEEDED)
    grep -q "\[$2\.so\.[0-9]*\]" <<<"$needed" || fail "$(basename "$1") does not need $2.so.N: $needed"
}
needs "$stage/simple" libattn

# The layers, with what their own .pc file says.
read -ra flags <<<"$(pkg-config --define-variable=prefix="$stage$prefix" --cflags --libs attn_nn)"
gcc -std=c99 -Wall -Wextra -Werror "$source/examples/mha.c" -o "$stage/mha" "${flags[@]}" -lm
needs "$stage/mha" libattn_nn

libdir=$(ask --variable=libdir)
LD_LIBRARY_PATH=$libdir "$stage/mha" >"$stage/install.log" || fail "the program with layers failed"
output=$(LD_LIBRARY_PATH=$libdir "$stage/simple") || fail "the program failed: $output"
grep -qF "libattn $version" <<<"$output" || fail "the program says '$output'; expected libattn $version"

# over_ranks PROGRAM: on one process and on two of mpirun, unless it starts none here.
over_ranks() {
    local ranks code
    for ranks in 1 2; do
        code=0
        "$source/tests/mpi/under_mpirun.sh" mpirun "$ranks" "$1" --tokens 1000 >"$stage/install.log" 2>&1 || code=$?
        ((code == 0 || code == 77)) || fail "$(basename "$1") on $ranks processes failed: $(cat "$stage/install.log")"
    done
    ((code == 77)) && sed 1q "$stage/install.log" || echo "$(basename "$1") runs on 1 and 2 processes"
}

# Attention over several processes, with MPI's own compiler flags from attn_mpi.pc.
if [[ $mpi ]]; then
    read -ra flags <<<"$(pkg-config --define-variable=prefix="$stage$prefix" --cflags --libs attn_mpi)"
    gcc -std=gnu99 -Wall -Wextra -Werror "$source/examples/ring_attention.c" -o "$stage/ring_attention" "${flags[@]}" -lm
    needs "$stage/ring_attention" libattn_mpi
    LD_LIBRARY_PATH=$libdir over_ranks "$stage/ring_attention"
    [[ -z $(find "$stage" -name libattn.so) ]] || ! readelf --dynamic "$libdir/libattn.so" | grep 'NEEDED.*mpi' ||
        fail "libattn.so needs MPI"
fi

# Whatever commands were installed find their libraries, with nothing set in the environment, wherever the folder is moved;
# below /usr they are found by the system.
moved=$stage/moved/here
mkdir -p "$(dirname "$moved")"
cp -r "$stage$prefix" "$moved"
environment=()
[[ $prefix != /usr ]] || environment=(LD_LIBRARY_PATH="$moved${libdir#"$stage$prefix"}")
while read -r command; do
    output=$(env -i "${environment[@]}" "$command" --version) || fail "$(basename "$command") --version failed"
    grep -qF "$version" <<<"$output" || fail "$(basename "$command") --version says '$output'; expected $version"
    if [[ $command == */attn ]]; then
        env -i "${environment[@]}" "$command" info >"$stage/install.log" || fail "attn info failed"
        grep -qF "$version" "$stage/install.log" || fail "attn info does not name version $version: $(cat "$stage/install.log")"
    fi
    echo "$(basename "$command") runs where it was moved"
done < <(find "$moved/bin" -type f 2>/dev/null)
rm -rf "$stage/moved"

# Nothing but the library's own files may be installed.
unexpected=$(find "$stage$prefix" -type f ! -name 'libattn*' ! -path '*/include/attn/*' ! -name '*.pc' ! -path '*/bin/attn*' \
    ! -path '*/cmake/attn/attnConfig*.cmake' ! -path '*/share/*attn*')
[[ -z $unexpected ]] || fail "installed besides what belongs to libattn: $unexpected"

# Manual pages and completions come with what they are about.
[[ -f $stage$prefix/share/man/man3/attn.3 ]] || fail "attn(3) is not below $prefix/share/man"
if [[ -x $stage$prefix/bin/attn ]]; then
    for file in man/man1/attn.1 man/man1/attn-run.1 bash-completion/completions/attn zsh/site-functions/_attn \
        fish/vendor_completions.d/attn.fish; do
        [[ -f $stage$prefix/share/$file ]] || fail "share/$file is not below $prefix"
    done
fi

# So do documents, links to others included, and examples, which compile with what is installed.
documents=$stage$prefix/share/doc/attn
for document in "$source"/docs/*.md; do
    [[ -f $documents/docs/${document##*/} ]] || fail "${document##*/} is not below $documents"
done
examples=("$documents"/examples/*.c)
((${#examples[@]} >= 10)) || fail "$documents has ${#examples[@]} examples; expected at least 10"
read -ra flags <<<"$(pkg-config --define-variable=prefix="$stage$prefix" --cflags attn_nn ${mpi:+attn_mpi})"
gcc -fsyntax-only "${flags[@]}" "${examples[@]}" || fail "an installed example does not compile"
echo "${#examples[@]} installed examples compile"

# A program that is linked with the static libraries, as where there are no others, needs no library of ours; but its
# OpenMP is that of the compiler that made them. It may have functions with the names of internal ones; attn_geometry_of is one, in the static library a local name.
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
        "$compiler" -std=c99 -Wall -Wextra -Werror "$source/examples/$program.c" "$stage/own.c" -o "$stage/static" "${flags[@]}"
        if readelf --dynamic "$stage/static" | grep 'NEEDED.*libattn'; then
            fail "$program is linked with a shared library of libattn; expected the static one"
        fi
        "$stage/static" >"$stage/install.log" || fail "$program, linked with the static libraries, failed"
        echo "$program runs with the static libraries"
    done
    if [[ $mpi ]]; then
        # MPI itself is shared, and what it takes to link it statically is its own affair.
        read -ra flags <<<"$(pkg-config --define-variable=prefix="$stage$prefix" --static --cflags --libs attn_mpi)"
        "$compiler" -std=gnu99 -Wall -Wextra -Werror "$source/examples/ring_attention.c" "$stage/own.c" -o "$stage/static_ring" \
            "${flags[@]}"
        ! readelf --dynamic "$stage/static_ring" | grep 'NEEDED.*libattn' ||
            fail "ring_attention is linked with a shared library of libattn; expected the static one"
        over_ranks "$stage/static_ring"
    fi
fi
