#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Completes command lines of attn in bash and, where it is installed, fish, and has zsh read its completions. That these
# have all options of --help is for check_man.sh to see, as tools/command-pages makes them with the manual pages.
set -euo pipefail

if (($# != 1)); then
    echo "usage: check_completions.sh SOURCE_FOLDER" >&2
    exit 2
fi
completions=$1/tools/completions
bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir arrays
touch q.npy 'with space.npy'

# expect SHELL LINE GOT WANTED
expect() {
    [[ $3 == "$4" ]] && return
    echo "check_completions: $1 completes '$2' to '$3'; expected '$4'" >&2
    bad=1
}

# shellcheck source=/dev/null
. "$completions/attn.bash"
[[ $(complete -p attn) == "complete -F _attn attn" ]] || {
    echo "check_completions: bash has no completion of attn" >&2
    exit 1
}
# bash_completes WANTED WORD...: what it makes of the last word, joined by |.
bash_completes() {
    local wanted=$1
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    # compopt refuses to work outside of a completion.
    _attn || true
    expect bash "$*" "$(printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd '|')" "$wanted"
}
export LC_ALL=C
bash_completes '--help|--version|bench|convert|embed|generate|heatmap|help|info|pattern|rerank|run|tokenize|view' attn ''
bash_completes heatmap attn hea
bash_completes '--score-bias|--score-stage|--score-v|--scores' attn run --score
bash_completes 'bottom-right' attn run -q q.npy --causal b
bash_completes 'bf16|f16|f32' attn run --out-dtype ''
bash_completes 'query-key' attn run --rel-delta = query
bash_completes 'arrays|q.npy|with space.npy' attn run -q ''
bash_completes 'with space.npy' attn run --mask w
bash_completes '' attn run --threads ''
bash_completes 'bigbird' attn pattern b
bash_completes '--tk|--tokens|--tq' attn pattern --t
bash_completes 'q.npy' attn heatmap q
bash_completes '--help|--json|--quiet|--version' attn info --
bash_completes 'bf16|f16|f32' attn convert --dtype ''
bash_completes '' attn nonsense ''

if command -v fish >/dev/null; then
    fish_completes() {
        local got
        got=$(HOME=$work fish --no-config -c "source $completions/attn.fish; complete -C '$2'" | cut -f 1 | sort | paste -sd '|')
        expect fish "$2" "$got" "$1"
    }
    fish_completes heatmap 'attn hea'
    fish_completes '--score-bias|--score-stage|--score-v|--scores' 'attn run --score'
    fish_completes 'bottom-right' 'attn run --causal bot'
    fish_completes 'q.npy' 'attn run -q q.n'
    fish_completes 'bigbird' 'attn pattern big'
fi
if command -v zsh >/dev/null; then
    zsh -n "$completions/_attn" || bad=1
    # The functions are defined, and each is called with arguments that zsh's own checker of options accepts.
    zsh -f -c '
        autoload -U compinit; compinit -D -u
        _arguments() { print -r -- "${(j:|:)@}" }
        _describe() { print -r -- $3 "${(P@)3}" }
        fpath=($1 $fpath); autoload -Uz _attn
        line=(); _attn >/dev/null
        for command in run heatmap view pattern embed rerank generate tokenize convert bench info; do _attn_$command; done
    ' zsh "$completions" >zsh.log 2>&1 || {
        cat zsh.log
        bad=1
    }
    for option in --score-stage --labels --tokens --help; do
        grep -qF -e "$option" zsh.log || {
            echo "check_completions: zsh's completions do not have $option" >&2
            bad=1
        }
    done
fi
if ((bad)); then
    exit 1
fi
echo "command lines are completed"
