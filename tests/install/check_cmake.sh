#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Uses an installed libattn from CMake: find_package(attn) finds it where the folder was moved to, its targets compile and
# link programs that run, with the shared libraries and with the static ones, and other versions are refused.
set -euo pipefail

if (($# != 6)); then
    echo "usage: check_cmake.sh MESON SOURCE_FOLDER BUILD_FOLDER PREFIX VERSION COMPILER" >&2
    exit 2
fi
read -ra meson <<<"$1"
source=$2 build=$3 prefix=$4 version=$5 compiler=$6
if ! cmake --version >/dev/null 2>&1; then
    echo "cmake is not installed"
    exit 77 # Meson counts this as skipped
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    cat "$work/log" 2>/dev/null || true
    echo "check_cmake: $1" >&2
    exit 1
}

"${meson[@]}" install -C "$build" --no-rebuild --destdir "$work/stage" >"$work/log" 2>&1 || fail "meson install failed"
mv "$work/stage$prefix" "$work/moved"
mkdir "$work/user"
cp "$source"/examples/{simple,mha,ring_attention}.c "$source/examples/reference.h" "$work/user"
cat >"$work/user/text.c" <<'EOT'
#include <attn/text.h>

int main(void)
{
    attn_tokenizer *tokenizer;
    return attn_tokenizer_parse(&tokenizer, "{}", 2, "nothing") == ATTN_INVALID_FILE ? 0 : 1;
}
EOT
cat >"$work/user/CMakeLists.txt" <<'EOT'
cmake_minimum_required(VERSION 3.16)
project(user C)
enable_testing()
find_package(attn ${ASKED} REQUIRED COMPONENTS ${PARTS})
message(STATUS "version ${attn_VERSION}")
foreach(kind "" _static)
  if(TARGET attn::attn${kind})
    add_executable(simple${kind} simple.c)
    target_link_libraries(simple${kind} PRIVATE attn::attn${kind})
    add_test(NAME simple${kind} COMMAND simple${kind})
  endif()
  if(TARGET attn::nn${kind})
    add_executable(mha${kind} mha.c)
    target_link_libraries(mha${kind} PRIVATE attn::nn${kind} m)
    add_test(NAME mha${kind} COMMAND mha${kind})
  endif()
  if(TARGET attn::text${kind})
    add_executable(text${kind} text.c)
    target_link_libraries(text${kind} PRIVATE attn::text${kind})
    add_test(NAME text${kind} COMMAND text${kind})
  endif()
  if(TARGET attn::mpi${kind})
    add_executable(ring_attention${kind} ring_attention.c)
    target_link_libraries(ring_attention${kind} PRIVATE attn::mpi${kind} m)
    add_test(NAME ring_attention${kind} COMMAND ${UNDER_MPIRUN} ${MPIEXEC_EXECUTABLE} 2 $<TARGET_FILE:ring_attention${kind}> --tokens 1000)
    set_tests_properties(ring_attention${kind} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endforeach()
EOT

# configure FOLDER ASKED PARTS OPTION...
configure() {
    cmake -S "$work/user" -B "$work/$1" -DASKED="$2" -DPARTS="$3" "${@:4}" -DCMAKE_PREFIX_PATH="$work/moved" \
        -DUNDER_MPIRUN="$source/tests/mpi/under_mpirun.sh" \
        -DCMAKE_C_COMPILER="$compiler" >"$work/log" 2>&1
}

parts=()
[[ -z $(find "$work/moved" -name 'libattn_nn.*') ]] || parts=(nn)
[[ -z $(find "$work/moved" -name 'libattn_text.*') ]] || parts+=(text)
[[ -z $(find "$work/moved" -name 'libattn_mpi.*') ]] || parts+=(mpi)
configure good "$version" "$(IFS=";"; echo "${parts[*]}")" || fail "find_package(attn $version COMPONENTS ${parts[*]}) failed"
grep -q "version $version" "$work/log" || fail "find_package(attn) did not set the version to $version"
cmake --build "$work/good" >"$work/log" 2>&1 || fail "the programs could not be built"
env -u LD_LIBRARY_PATH ctest --test-dir "$work/good" --output-on-failure >"$work/log" 2>&1 || fail "a program failed"
for program in "$work"/good/{simple,mha,text,ring_attention}*; do
    [[ -f $program && -x $program ]] || continue
    needs=$(readelf --dynamic "$program" | grep 'NEEDED.*libattn' || true)
    case $program in
        *_static) [[ -z $needs ]] || fail "$(basename "$program") needs a shared library of libattn: $needs" ;;
        *) [[ -n $needs || -z $(find "$work/moved" -name 'libattn.so') ]] || fail "$(basename "$program") needs no libattn.so" ;;
    esac
    echo "$(basename "$program") is built with find_package(attn) and runs"
done

major=${version%%.*} rest=${version#*.}
minor=${rest%%.*}
for other in "$((major + 1)).0" "$major.$((minor + 1))"; do
    ! configure other "$other" "" || fail "find_package(attn $other) found $version"
    grep -q "version: $version" "$work/log" || fail "find_package(attn $other) does not say that there is $version"
    rm -rf "$work/other"
done
! configure other "" nowhere || fail "find_package(attn COMPONENTS nowhere) found it"
grep -q "'nowhere'" "$work/log" || fail "find_package(attn COMPONENTS nowhere) does not name it"

# Without MPI the component mpi alone is not there, which is said, and fails nobody who can do without it.
if [[ " ${parts[*]} " == *" mpi "* ]]; then
    ! configure other "$version" mpi -DCMAKE_DISABLE_FIND_PACKAGE_MPI=TRUE || fail "find_package(attn COMPONENTS mpi) did without MPI"
    grep -q "needs MPI" "$work/log" || fail "find_package(attn COMPONENTS mpi) does not say that it needs MPI"
    rm -rf "$work/other"
    configure other "$version" "OPTIONAL_COMPONENTS;mpi" -DCMAKE_DISABLE_FIND_PACKAGE_MPI=TRUE ||
        fail "find_package(attn OPTIONAL_COMPONENTS mpi) failed without MPI"
fi
