#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Takes one dependency after the other away, and holds Meson to one sentence that names it, the Debian package that brings
# it, and the option that does without. A SLEEF without a .pc file is found as well, and attn.pc then names its library.
set -euo pipefail

if (($# != 2)); then
    echo "usage: check_dependencies.sh MESON SOURCE_FOLDER" >&2
    exit 2
fi
read -ra meson <<<"$1"
source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    tail -n 5 "$work/log"
    echo "check_dependencies: $1" >&2
    exit 1
}

# All .pc files of the system but those that a case removes.
mkdir "$work/pc"
IFS=: read -ra folders <<<"$(pkg-config --variable=pc_path pkg-config):${PKG_CONFIG_PATH-}"
for folder in "${folders[@]}"; do
    find "$folder" -maxdepth 1 -name '*.pc' -exec ln -sf -t "$work/pc" '{}' + 2>/dev/null || true
done
# A gcc that has neither OpenMP nor, with NO_SLEEF, SLEEF; and no CMake and no mpicc, which Meson would ask as well.
cat >"$work/gcc" <<'EOT'
#!/bin/sh
case "$*" in
    *-fopenmp*) [ -z "$NO_OPENMP" ] || exit 1 ;;
    *sleef*) [ -z "$NO_SLEEF" ] || exit 1 ;;
    *--print-search-dirs*) [ -z "$NO_SLEEF" ] || exec echo "libraries: =/nonexistent" ;;
esac
exec gcc "$@"
EOT
chmod +x "$work/gcc"
printf "[binaries]\nc = '%s'\ncmake = '/bin/false'\nmpicc = '/bin/false'\n" "$work/gcc" >"$work/native.ini"

# configure OPTION...: with no more of the sources than the options ask for.
configure() {
    rm -rf "$work/build"
    env -u PKG_CONFIG_PATH PKG_CONFIG_LIBDIR="$work/pc" "${meson[@]}" setup --native-file "$work/native.ini" \
        --wrap-mode nofallback "$work/build" "$source" -Dauto_features=enabled -Dopenmp=disabled -Dnn=false -Dtext=false -Dtools=false \
        -Dbench=false -Dtests=false -Dexamples=false "$@" >"$work/log" 2>&1
}

# refused WHAT PACKAGE WITHOUT OPTION...: the sentence has all three.
refused() {
    local sentence what=$1 package=$2 without=$3
    shift 3
    ! configure "$@" || fail "Meson went on without $what"
    sentence=$(grep 'ERROR:' "$work/log" || true)
    [[ $sentence == *"$what"*"is missing; install it"*"$package"*"$without"* ]] ||
        fail "without $what Meson says '$sentence'; expected a sentence with $package and $without"
    echo "${sentence#*ERROR: }"
}

# without PC WHAT PACKAGE WITHOUT OPTION...: the same with one .pc file removed.
without() {
    local files=$1
    shift
    mkdir "$work/away"
    find "$work/pc" -name "$files" -exec mv -t "$work/away" '{}' +
    refused "$@"
    find "$work/away" -name '*.pc' -exec mv -t "$work/pc" '{}' +
    rmdir "$work/away"
}

without 'jansson.pc' jansson libjansson-dev -Dnn=false -Dnn=true
without 'libzip.pc' libzip libzip-dev -Dtools=false -Dtools=true
without 'pangocairo*.pc' pangocairo libpango1.0-dev -Dtools=false -Dtools=true
without 'cmocka.pc' cmocka libcmocka-dev -Dtests=false -Dtests=true
without 'openblas.pc' OpenBLAS libopenblas-openmp-dev -Dbench=false -Dbench=true
without 'libutf8proc.pc' utf8proc libutf8proc-dev -Dtext=false -Dtext=true
without 'libpcre2-8.pc' PCRE2 libpcre2-dev -Dtext=false -Dtext=true
without 'ompi-c.pc' MPI libopenmpi-dev -Dmpi=false -Dmpi=true
NO_OPENMP=1 refused OpenMP libomp-dev -Dopenmp=disabled -Dopenmp=enabled

rm -f "$work/pc/sleef.pc"
NO_SLEEF=1 refused SLEEF libsleef-dev 'nothing does without'
for kind in both static; do
    configure -Ddefault_library=$kind || fail "Meson does not find a SLEEF without a .pc file"
    for file in "$work/build/meson-private/attn.pc" "$work/build/meson-uninstalled/attn-uninstalled.pc"; do
        ! grep '^Requires.*sleef' "$file" || fail "$(basename "$file") asks for sleef.pc, which is not there"
        grep -q '^Libs.*-lsleef' "$file" || fail "$(basename "$file") does not name SLEEF's library: $(cat "$file")"
    done
done
echo "a SLEEF without a .pc file is found, and attn.pc has -lsleef"
