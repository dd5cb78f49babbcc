#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the command line of attn-bench: exit codes, messages, formats, and that
# a failed run leaves no file. It measures tiny cases for a few milliseconds and
# looks at the form of what comes out, never at how fast anything was.
set -u
bench=$1 nn=$2 # nn: whether linear layers were built, "nn" or "no-nn"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# expect CODE TEXT ARGS...: exit code, and TEXT in what is printed on either stream.
expect() {
    code=$1 text=$2
    shift 2
    "$bench" "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ "$got" -eq "$code" ] || fail "'$*' exits with $got; expected $code: $(cat "$dir/err")"
    grep -qF -- "$text" "$dir/out" "$dir/err" || fail "'$*' does not say '$text': $(cat "$dir/err")"
}

# refuse TEXT ARGS...: a usage error of one sentence that measures nothing and prints no data.
refuse() {
    expect 2 "$@"
    [ -s "$dir/out" ] && fail "'$*' printed data beside an error"
}

expect 0 'Usage: attn-bench' --help
expect 0 'attn-bench ' --version
expect 0 'attn-bench ' -V
refuse "--threads is '0'" --threads 0
refuse "--threads is 'two'" --threads two
refuse "--threads is '3x'" -t 3x
refuse "--repetitions is '-1'" --repetitions -1
refuse "--repetitions is '99999999999999999999'" --repetitions 99999999999999999999
refuse "--min-time is 'nan'" --min-time nan
refuse "--min-time is '0'" --min-time 0
refuse "--format is 'xml'" --format xml
refuse "--isa is 'mmx'" --isa mmx
refuse 'expected scalar' --isa mmx
refuse ' or auto' --isa avx2_int8
refuse "--compare is 'torch'" --compare torch
refuse "--blas is 'no-such-core'" --blas no-such-core --filter '/Tq16/'
refuse "--filter is '('" --filter '('
refuse '--filter leaves no row' --filter no-such-row
refuse '--out is' --out ''
refuse "argument 'extra'" extra
refuse 'exclude each other' --check --compare naive
refuse 'unrecognized option' --no-such-option

expect 1 'cannot be created' --out "$dir/missing/file" --filter 'Tq16/'
expect 0 'forward/f32/B1/H8/Tq2048/Tk2048/d64/causal:none/layout:bhtd' --list
[ "$("$bench" --list | sort | uniq -d | wc -l)" -eq 0 ] || fail 'two rows have the same name'
[ "$("$bench" --list --compare naive | grep -c '^naive/')" -ge 10 ] || fail 'the comparison has too few lengths'
"$bench" --list | grep -q '^memory/' && fail 'the memory case runs unasked'
expect 0 'memory/f32/B1/H1/Tq131072' --list --memory

# To get other kernels of OpenBLAS the program starts again: still on all processors where threads are bound to some.
OMP_PROC_BIND=true OMP_DISPLAY_ENV=true "$bench" --blas no-such-core --filter '/Tq16/' >"$dir/out" 2>&1
grep 'OMP_PLACES' "$dir/out" | sort | uniq -c >"$dir/places" # a line of each runtime in the process, OpenBLAS's among them
grep -q . "$dir/places" || fail "no runtime shows its places: $(cat "$dir/out")"
awk '$1 != 2 { exit 1 }' "$dir/places" || fail "places were lost: $(cat "$dir/places")"

# Every form has a row, and none of them a naive one.
for form in window window-global blocks/block:16 blocks/block:64 blocks/block:128 segments tree prefix alibi t5 \
    disentangled rope softcap sinks ragged dropout callback; do
    "$bench" --list | grep -q "^forward/f32/.*/form:$form\$" || fail "the form $form has no row"
done
"$bench" --list | grep -q '^naive/.*form:' && fail 'a form has a naive row'

# Costs: each of these forms has the four lengths, and all of them are promised.
"$bench" --list --check --filter '/cost$' >"$dir/costs"
[ "$(wc -l <"$dir/costs")" -eq 32 ] || fail "there are not 8 costs of 4 lengths: $(cat "$dir/costs")"
for tokens in 16384 65536 262144 1048576; do
    for form in window/size:192 blocks/block:64/listed:3 segments/size:192 ragged/size:192; do
        grep -q "/Tq$tokens/Tk$tokens/.*/form:$form/cost\$" "$dir/costs" || fail "no cost of $form at $tokens tokens"
    done
    grep -q "/Tq64/Tk$((tokens + 64))/.*/form:tree/cost\$" "$dir/costs" || fail "no cost of a tree behind $tokens keys"
done

# Short sequences are compared, from 4 tokens on.
"$bench" --list --check >"$dir/checked"
for heads in 1 8; do
    for tokens in 4 8 16 32 64 128; do
        grep -q "^naive/f32/B1/H$heads/Tq$tokens/Tk$tokens/d64/causal:none/" "$dir/checked" ||
            fail "$heads heads of $tokens tokens are not held against the naive implementation"
    done
done

# Linear layers have a row each and one of OpenBLAS's, if they were built and run on the instruction set that is asked for.
if [ "$nn" = nn ]; then
    [ "$("$bench" --list | grep -c '^linear/f32/')" -eq 19 ] || fail 'there are not 19 linear layers'
    [ "$("$bench" --list | grep -c '^linear/bf16/')" -eq 15 ] || fail 'there are not 15 linear layers with weights in bf16'
    for format in bf16/.*/multiply:bf16 int8/.*/K4096/multiply:int8 int4/.*/multiply:int8; do
        [ "$("$bench" --list | grep -c "^linear/$format")" -eq 5 ] || fail "there are not 5 linear layers of $format"
    done
    # What scales of groups cost: each beside the same layer without.
    "$bench" --list | sed -n '/^linear\/int8/s/\/group:64//p' >"$dir/groups"
    [ "$("$bench" --list | grep -cxFf "$dir/groups")" -eq 4 ] || fail 'a layer with groups has none without beside it'
    # Those with 4096 inputs, whose weights come from memory, are not held against OpenBLAS.
    "$bench" --list | sed -n '/K4096/d; s/^linear\(-backward\)\?\(.f32\)/\1\2/p' >"$dir/linear"
    "$bench" --list --compare naive | sed -n 's/^sgemm//p' | diff - "$dir/linear" ||
        fail 'a linear layer has no row of OpenBLAS'
    "$bench" --list --check | sed -n '/K4096/d; s/^linear\(-backward\)\?\(.f32\)/\1\2/p' | diff - "$dir/linear" ||
        fail 'a linear layer has no promise'
    # Narrow weights from memory are held against the bandwidth and against those of f32.
    [ "$("$bench" --list --check | grep -c '^linear/f32/.*K4096')" -eq 4 ] || fail 'there are not 4 layers to compare with'
    for format in bf16/.*K4096/matrices bf16/.*/multiply:bf16/matrices int8/.*/multiply:int8/matrices; do
        [ "$("$bench" --list --check | grep -c "^linear/$format")" -eq 3 ] || fail "not all layers of $format have a promise"
    done
    [ "$("$bench" --list --check | grep -c '^linear/int4/.*K4096')" -eq 1 ] || fail 'a layer of int4 has no promise'
    "$bench" --list --filter '^linear/.*/M24/' | grep -vq '/matrices:[1-9]' && fail 'few rows have one matrix only'
    "$bench" --list --filter '^linear/.*/M(1300|4096)/' | grep -q '/matrices:' && fail 'many rows have several matrices'
    ATTN_MAX_CPU_ISA=scalar "$bench" --list | grep -q '^linear/' || fail 'scalar code has no linear layers'
    for isa in avx2 neon; do # where there is a better set, that is the active one
        env -u ATTN_MAX_CPU_ISA "$bench" --list --isa $isa >/dev/null 2>&1 &&
            env -u ATTN_MAX_CPU_ISA "$bench" --list --isa scalar | grep -q '^linear/' &&
            fail 'linear layers that do not run scalar code are measured as such'
    done
else
    "$bench" --list | grep -qE '^(linear|sgemm)/' && fail 'there are linear layers without libattn_nn'
    refuse '--filter leaves no row' --filter '^linear/'
fi

# One repetition of the smallest cases, in every format.
tiny="--repetitions 2 --min-time 0.0005 --threads 1"
filter='/f32/B1/H1/Tq16/.*causal:none'
# shellcheck disable=SC2086
expect 0 'vs naive' $tiny --filter "$filter"
# shellcheck disable=SC2086
expect 0 'ratio' $tiny --filter "$filter" --compare naive

# shellcheck disable=SC2086
expect 0 'name,isa,threads' $tiny --filter "$filter" --format csv
columns=$(awk -F, '{print NF}' "$dir/out" | sort -u)
[ "$(echo "$columns" | wc -w)" -eq 1 ] || fail "the CSV rows have different numbers of columns: $columns"
[ "$(grep -c '^forward/' "$dir/out")" -eq 1 ] || fail 'the CSV lacks the forward row'

# Beside the register peak stands one with a product's loads, for the row's own instruction set.
awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) column[$i] = i}
         /^peak-loads\/f32/ {best[$2] = $column["gflops"]; loads++}
         /^peak\/f32/ {registers++}
         /^(forward|naive)/ {isa[NR] = $2; of[NR] = $column["fraction_of_loads"]; rate[NR] = $column["gflops"]
                           peak[NR] = $column["peak_loads_gflops"]}
         END {
             if (loads != registers || loads == 0) exit 1
             for (i in isa) if (!(peak[i] > 0 && peak[i] <= 1.001 * best[isa[i]])) exit 1
             for (i in isa) if (of[i] < 0.999 * rate[i] / peak[i] || of[i] > 1.001 * rate[i] / peak[i]) exit 1
         }' "$dir/out" || fail "the peak with loads is wrong: $(cat "$dir/out")"

# A form is checked by its definition: the smallest of them.
# shellcheck disable=SC2086
expect 0 '/form:tree' $tiny --filter 'form:tree' --format csv

# The shortest of each cost: checked by definition, and with a time per token.
# shellcheck disable=SC2086
expect 0 'ns_per_token' $tiny --filter '/Tk16(384|448)/.*/cost$' --format csv
awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) column[$i] = i}
         /^forward/ {rows++; if (!($column["ns_per_token"] > 0)) exit 1}
         /^peak/ {if ($column["ns_per_token"] != "") exit 1}
         END {if (rows != 6) exit 1}' "$dir/out" || fail "the costs are wrong: $(cat "$dir/out")"

# A token of decoding from a cache is held against reading the same bytes, new rows against writing them.
# shellcheck disable=SC2086
expect 0 'fraction_of_read' $tiny --filter '^(forward/bf16/B1/H8/Tq1/.*/kv:i8|append/f32/.*/kv:bf16)' --format csv
awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) column[$i] = i}
         /^forward/ {reads++; if (!($column["fraction_of_read"] > 0) || $column["fraction_of_write"] != "") exit 1}
         /^append/ {writes++; if (!($column["fraction_of_write"] > 0) || $column["fraction_of_read"] != "") exit 1
                   if ($column["gflops"] != "" || !($column["gb_per_second"] > 0)) exit 1}
         $1 ~ /^bandwidth\/(read|write)$/ {limits++; if (!($column["gb_per_second"] > 0)) exit 1}
         END {if (reads != 2 || writes != 1 || limits != 2) exit 1}' "$dir/out" ||
    fail "the rows of decoding are wrong: $(cat "$dir/out")"
# shellcheck disable=SC2086
expect 0 '"fraction_of_write":' $tiny --filter '^append/f32/.*/kv:bf16' --format json
for isa in scalar avx2; do # where there is a better set, rows are stored by that one
    env -u ATTN_MAX_CPU_ISA "$bench" --list --isa avx512 >/dev/null 2>&1 &&
        env -u ATTN_MAX_CPU_ISA "$bench" --list --isa $isa | grep -q '^append/' &&
        fail "rows that $isa does not store are measured as such"
done

# Gradients: their rows, five products of a pair in the one and seven in the other, checked by definition.
for row in 'f32/B1/H8/.*/d128/causal:none' 'f32/B1/H8/.*/d64/causal:top-left' 'f32/.*/d96' 'f32/.*/d32' \
    'f32/B1/H32/.*/kv_heads:8' 'f32/B1/H1/Tq4096' 'f32/.*/form:blocks/block:64' 'bf16/B1/H8/.*/d64/causal:top-left'; do
    "$bench" --list | grep -q "^backward/$row" || fail "there is no row of gradients $row"
done
"$bench" --list | grep -q '^forward-backward/bf16/.*/d128/causal:top-left' || fail 'the two passes have no row together'
# shellcheck disable=SC2086
expect 0 'name,isa,threads' $tiny --filter '^(forward-)?backward/b?f16/B8/|^(forward-)?backward/f32/B8/' --format csv
awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) column[$i] = i}
         /backward\// {
             rows++
             products = 96 * 128 * 128 * 2 * 64 * ($1 ~ /^forward/ ? 7 : 5)
             counted = $column["gflops"] * $column["real_time"]
             if (counted < 0.999 * products || counted > 1.001 * products) exit 1
             if (!($column["fraction"] > 0) || !($column["max_abs_diff"] > 0) || $column["speedup"] != "") exit 1
         }
         END {if (rows != 3) exit 1}' "$dir/out" || fail "the rows of gradients are wrong: $(cat "$dir/out")"
# shellcheck disable=SC2086
expect 0 'peak/f32/scalar' $tiny --isa scalar --filter '^backward/f32/B8/'
"$bench" --list --check --isa scalar --filter '^(forward-)?backward/' 2>&1 | grep -q 'leaves no row' ||
    fail "something is promised of gradients on scalar code"

# Performer and Linformer: held against their definitions, and against the peak of floats.
# shellcheck disable=SC2086
expect 0 'name,isa,threads' $tiny --filter '^(performer/.*/d64/causal:top-left|linformer/.*/Tq2048)/' --format csv
awk -F, -v nn="$nn" 'NR == 1 {for (i = 1; i <= NF; i++) column[$i] = i}
         /^(per|lin)former/ {
             rows++
             if (!($column["fraction"] > 0) || !($column["max_abs_diff"] > 0) || $column["speedup"] != "") exit 1
         }
         END {if (rows != (nn == "nn" ? 2 : 1)) exit 1}' "$dir/out" ||
    fail "the rows of Performer and Linformer are wrong: $(cat "$dir/out")"

# A linear layer beside OpenBLAS, with few rows and so several matrices: all figures, and what is promised.
if [ "$nn" = nn ]; then
    # shellcheck disable=SC2086
    expect 0 'vs naive' $tiny --filter '/M1/N1152/'
    # shellcheck disable=SC2086
    expect 0 'ratio' $tiny --filter '/M1/N1152/' --compare naive
    grep -qE '^linear/f32/M1/N1152/K384/matrices:15 .* serial(-t)? ' "$dir/out" ||
        fail "a linear layer is not compared: $(cat "$dir/out")"
    # shellcheck disable=SC2086
    ATTN_MAX_CPU_ISA=scalar expect 0 'name,isa,threads' $tiny --filter '/M1/N1152/' --format csv
    columns=$(awk -F, '{print NF}' "$dir/out" | sort -u)
    [ "$(echo "$columns" | wc -w)" -eq 1 ] || fail "linear CSV rows have different numbers of columns: $columns"
    # GFLOP/s, peak, fraction, GB/s; the difference of the layers only, the ratio of that which is compared.
    awk -F, '/^(linear|sgemm)/ {
                 rows++
                 if ($2 != "scalar" || $10 == "" || $11 == "" || $12 == "" || $14 == "") exit 1
                 ours = $1 ~ /^linear/
                 compared = $1 ~ /^linear.f32/
                 if (($15 != "") != ours || ($16 != "") != compared || ($17 != "") != compared) exit 1
             }
             END {if (rows != 3) exit 1}' "$dir/out" || fail "a figure of a linear layer is wrong: $(cat "$dir/out")"
    # shellcheck disable=SC2086
    expect 0 '"bytes_per_second"' $tiny --filter '^linear/.*/M1/N1152/' --format json
    # shellcheck disable=SC2086
    expect 0 '"fraction_of_read":' $tiny --filter '^linear/int8/M1/N4096/.*multiply' --format json
    # Whether it is met is not for a test to say.
    # shellcheck disable=SC2086
    "$bench" $tiny --check --filter '^linear/.*/M(1|1300)/N(1152|384)/' >"$dir/out" 2>"$dir/err"
    [ $? -le 1 ] || fail "--check of linear layers: $(cat "$dir/err")"
    [ "$(grep -c '>= 1.000  linear/.* OpenBLAS time / this time' "$dir/out")" -eq 3 ] ||
        fail "linear layers are not held against OpenBLAS: $(cat "$dir/out")"
    if grep -qE 'instruction set avx(2|512)' "$dir/out" && grep -q 'bars of processors: AMD' "$dir/out"; then
        [ "$(grep -c '>= 0.850  linear/.*/M1300/.* fraction of the peak' "$dir/out")" -eq 2 ] ||
            fail "linear layers are not held against the peak: $(cat "$dir/out")"
    fi
fi

# The 16-bit types, on the best set and with bf16 widened. Products of bf16 are measured against their own peak;
# all else against that of f32.
# shellcheck disable=SC2086
expect 0 'forward/f16/B1/H1/Tq16/Tk16/d64/causal:none/layout:bhtd' $tiny --filter '/b?f16/B1/H1/Tq16/'
# shellcheck disable=SC2086
expect 0 'peak/f32/scalar' $tiny --isa scalar --filter '/b?f16/B1/H1/Tq16/'
[ "$(grep -c '^forward/' "$dir/out")" -eq 2 ] || fail 'a 16-bit type lacks a row on the scalar kernels'
grep -q 'instruction set scalar' "$dir/out" || fail '--isa scalar runs another instruction set'
for dot in avx512_bf16 emulated_amx_bf16 amx_bf16 neon_bf16 neon_bf16mm; do
    "$bench" --isa $dot --list >"$dir/out" 2>"$dir/err" || continue # not on this machine
    # shellcheck disable=SC2086
    expect 0 "peak/bf16/$dot,$dot," $tiny --isa $dot --filter '16/B1/H1/Tq16/|f32/B1/H1/Tq16/.*none' --format csv
    case $dot in
    *amx_bf16) grep -q "^peak/int8/${dot%bf16}int8," "$dir/out" || fail "no peak of int8 for $dot: $(cat "$dir/out")" ;;
    esac
    case $dot in
    *amx_bf16) base=avx512 ;;
    *) base=${dot%_bf16*} ;;
    esac
    for row in "bf16:$dot" "f16:$base" "f32:$base"; do
        [ "$(grep -c "^forward/${row%:*}/.*,${row#*:}," "$dir/out")" -eq 1 ] ||
            fail "with --isa $dot there is no row of ${row%:*} on ${row#*:}: $(cat "$dir/out")"
    done
    # A row's peak is one of the samples of its own instruction set, of which the peak row has the best. The bare tanh
    # loop is no peak of these.
    awk -F, '/^peak\/[^t]/ {best[$2] = $10} /^forward/ {isa[NR] = $2; peak[NR] = $11}
             END {for (i in isa) if (peak[i] > 1.001 * best[isa[i]]) exit 1}' "$dir/out" ||
        fail "a row is measured against another set's peak: $(cat "$dir/out")"
    # Matrix registers, where they are the best that there is, run without being asked for; below pairs bf16 is widened.
    case $dot in
    *amx_bf16) cap=$dot ;;
    *) cap=$base ;;
    esac
    # shellcheck disable=SC2086
    ATTN_MAX_CPU_ISA=$cap "$bench" $tiny --filter '/bf16/B1/H1/Tq16/' --format csv >"$dir/out" 2>"$dir/err" ||
        fail "with ATTN_MAX_CPU_ISA=$cap: $(cat "$dir/err")"
    [ "$(grep -c "^forward/bf16/.*,$cap," "$dir/out")" -eq 1 ] ||
        fail "with ATTN_MAX_CPU_ISA=$cap other kernels run: $(cat "$dir/out")"
    # Fractions of the peak of matrix registers are promised of these, not of what emulates them or of other sets.
    "$bench" --isa $dot --check --list --filter '^forward/bf16/.*/(d96|kv_heads:4)' >"$dir/out" 2>"$dir/err"
    checked=$(wc -l <"$dir/out")
    [ "$checked" -eq "$([ $dot = amx_bf16 ] && echo 2 || echo 0)" ] ||
        fail "--check --isa $dot has $checked rows with promises of matrix registers only: $(cat "$dir/out")"
done

# A run that cannot get its threads fails and leaves an older file, and nothing else, where it was.
mkdir "$dir/results"
echo old >"$dir/results/run.json"
OMP_THREAD_LIMIT=1 "$bench" --threads 2 --filter "$filter" --out "$dir/results/run.json" 2>"$dir/err"
[ $? -eq 1 ] || fail 'a run without its threads does not fail'
grep -q 'OMP_THREAD_LIMIT' "$dir/err" || fail "a run without its threads says: $(cat "$dir/err")"
[ "$(cat "$dir/results/run.json")" = old ] || fail 'a failed run changed the file of --out'
[ "$(ls "$dir/results")" = run.json ] || fail "a failed run left files: $(ls "$dir/results")"

# shellcheck disable=SC2086
"$bench" $tiny --filter "$filter" --format json --out "$dir/results/run.json" >"$dir/out" 2>"$dir/err" ||
    fail "JSON fails: $(cat "$dir/err")"
[ -s "$dir/out" ] && fail '--out prints on standard output too'
[ -s "$dir/err" ] && fail "progress is written to a file: $(cat "$dir/err")"
[ "$(ls "$dir/results")" = run.json ] || fail "--out left files: $(ls "$dir/results")"
grep '"command": ' "$dir/results/run.json" | grep -qF "attn-bench $tiny --filter '$filter' --format json --out " ||
    fail "the JSON does not say how it was made: $(grep '"command"' "$dir/results/run.json")"
for key in context benchmarks name run_type iterations real_time cpu_time time_unit gflops peak_gflops fraction peak_loads_gflops \
    fraction_of_loads isa \
    threads repetitions dtype speedup_over_naive max_abs_diff plan; do
    grep -q "\"$key\":" "$dir/results/run.json" || fail "the JSON lacks the key $key"
done

# A filter that selects nothing with a promise is no success of --check.
# shellcheck disable=SC2086
refuse '--filter leaves no row' $tiny --check --filter 'cross|kv_heads:2$'

if [ "$failures" -gt 0 ]; then
    echo "$failures checks failed"
    exit 1
fi
echo 'all checks of the command line passed'
