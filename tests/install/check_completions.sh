#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Completes command lines of attn in bash and, where they are installed, fish and zsh. That completions have all options
# of --help is for check_man.sh to see, as tools/command-pages makes them with the manual pages.
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
bash_completes '--tk|--to|--tokens|--tq' attn pattern --t
bash_completes 'q.npy' attn heatmap q
bash_completes '--help|--json|--quiet|--version' attn info --
bash_completes 'bf16|f16|f32' attn convert --dtype ''
bash_completes 'heatmap' attn help hea
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
    fish_completes heatmap 'attn help hea'
fi
if command -v zsh >/dev/null; then
    zsh -n "$completions/_attn" || bad=1
    # A shell at a terminal of its own. What its completion would offer goes through compadd, but for calls that only
    # fill arrays.
    cat >inner.zsh <<'END'
PROMPT= RPROMPT=
autoload -Uz compinit && compinit -D -u
compadd() {
    local -a matches
    if [[ " ${(j: :)@[1,(i)-]} " != *' '-[a-zA-Z12]#[AOD]' '* ]]; then
        builtin compadd -A matches "$@"
        print -rl -- ${(Q)matches} >>collected
    fi
    builtin compadd "$@"
}
capture() {
    : >collected
    _main_complete
    compstate[insert]= compstate[list]=
    mv collected offered
}
zle -C capture complete-word capture
bindkey '^T' capture
END
    # drive.zsh COMPLETIONS LINE...: what is offered for each, on a line, joined by |.
    cat >drive.zsh <<'END'
zmodload zsh/zpty zsh/zselect
zpty shell zsh -f -i
zpty -w shell "fpath=(${(q)1} \$fpath); source ./inner.zsh"
shift
for line; do
    rm -f offered
    zpty -w -n shell $'\x15'"$line"$'\x14'
    for ((i = 0; i < 1000; i++)) [[ ! -e offered ]] && {
        while zpty -rt shell shown; do :; done # or the shell waits for a reader
        zselect -t 1
    }
    [[ -e offered ]] || { print -r -- "nothing within ten seconds"; continue }
    print -r -- ${(j:|:)${(ou)${(f)"$(<offered)"}}}
done
zpty -d shell
END
    zsh_lines=() zsh_wanted=()
    zsh_completes() {
        zsh_wanted+=("$1")
        zsh_lines+=("$2")
    }
    commands='bench|convert|embed|generate|heatmap|help|info|pattern|rerank|run|tokenize|view'
    zsh_completes "$commands" 'attn '
    zsh_completes heatmap 'attn hea' # not the first time: what belongs to the first call is gone
    zsh_completes '--help|--version' 'attn -'
    zsh_completes '--score-bias|--score-stage|--score-v|--scores' 'attn run --score'
    zsh_completes bottom-right 'attn run -q q.npy --causal b'
    zsh_completes 'bf16|f16|f32' 'attn run --out-dtype '
    zsh_completes query-key 'attn run --rel-delta=query'
    zsh_completes 'with space.npy' 'attn run --mask w'
    zsh_completes bigbird 'attn pattern b'
    zsh_completes '--tk|--to|--tokens|--tq' 'attn pattern --t'
    zsh_completes q.npy 'attn heatmap q'
    zsh_completes '--help|--json|--quiet|--version' 'attn info --'
    zsh_completes "$commands" 'attn help '
    zsh_completes '' 'attn nonsense '
    mapfile -t zsh_offers < <(HOME=$work TERM=dumb zsh -f drive.zsh "$completions" "${zsh_lines[@]}")
    for i in "${!zsh_lines[@]}"; do
        expect zsh "${zsh_lines[i]}" "${zsh_offers[i]-}" "${zsh_wanted[i]}"
    done
fi
if ((bad)); then
    exit 1
fi
echo "command lines are completed"
