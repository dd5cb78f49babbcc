# SPDX-License-Identifier: Apache-2.0
# Completion of the attn command for bash.

# _attn_words COMMAND: its options. COMMAND:--option: the names that the option accepts. COMMAND:files and COMMAND:free:
# its options whose value is a file, or anything.
# made by tools/command-pages from attn --help
_attn_words() {
    case $1 in
        '') echo 'run heatmap pattern view convert embed rerank generate tokenize bench info help --help --version' ;;
        help) echo 'run heatmap pattern view convert embed rerank generate tokenize bench info' ;;
        run)
            echo --help --version --quiet --query --key --layout --causal --mask --kv-len --kv-start --scale \
                --temperature --qk --inputs --sums --isa --threads --value --output --lse --weights --scores \
                --key-sums --weight-rows --average-heads --score-stage --out-dtype --kv-type --kind --wq --wk \
                --score-v --score-bias --decay --beta --state-in --state-out --resets --feature-map --normalise \
                --bidirectional --features --projection --project-k --project-v --softcap --head-scale --sinks \
                --alibi --alibi-slopes --relative-bias --buckets --max-distance --rel-k --rel-q --rel-delta --rope \
                --rope-pairs --rope-base --rope-scaling --rope-factor --rope-original-length --rope-beta-fast \
                --rope-beta-slow --rope-no-truncation --rope-attention-factor --rope-low-freq-factor \
                --rope-high-freq-factor --rope-short-factor --rope-long-factor --rope-length --query-offset --window \
                --first-tokens --global --prefix --segments --segments-k --tree --cu-seqlens --cu-seqlens-k \
                --block-pattern --block --block-window --block-global --block-random --block-seed --block-stride \
                --block-heads --block-offsets --block-columns --dropout --seed --offset
            ;;
        run:files)
            echo --query --key --mask --kv-len --kv-start --value --output --lse --weights --scores --key-sums --wq \
                --wk --score-v --score-bias --decay --beta --state-in --state-out --resets --projection --project-k \
                --project-v --relative-bias --rel-k --rel-q --segments --segments-k --tree --block-offsets \
                --block-columns -q -k -v -o
            ;;
        run:free)
            echo --scale --temperature --isa --threads --weight-rows --features --softcap --head-scale --sinks \
                --alibi-slopes --max-distance --rope-pairs --rope-base --rope-factor --rope-original-length \
                --rope-beta-fast --rope-beta-slow --rope-attention-factor --rope-low-freq-factor \
                --rope-high-freq-factor --rope-short-factor --rope-long-factor --rope-length --query-offset --window \
                --first-tokens --global --prefix --cu-seqlens --cu-seqlens-k --block --block-window --block-global \
                --block-random --block-seed --block-stride --block-heads --dropout --seed --offset
            ;;
        run:--layout) echo 'bhtd bthd' ;;
        run:--causal) echo 'none top-left bottom-right offset' ;;
        run:--qk) echo 'exact int8' ;;
        run:--inputs) echo 'as-given may-be-bf16' ;;
        run:--sums) echo 'ordered free' ;;
        run:--score-stage) echo 'raw scaled capped masked' ;;
        run:--out-dtype) echo 'f32 bf16 f16' ;;
        run:--kv-type) echo 'as-given int8 fp8 int4' ;;
        run:--kind) echo 'softmax additive linear gated delta gated-delta performer linformer' ;;
        run:--feature-map) echo 'none elu' ;;
        run:--buckets) echo 'clipped t5 t5-bidirectional' ;;
        run:--rel-delta) echo 'query-key key-query' ;;
        run:--rope) echo 'half interleaved' ;;
        run:--rope-scaling) echo 'linear ntk yarn llama3 longrope' ;;
        run:--block-pattern) echo 'longformer bigbird strided' ;;
        heatmap)
            echo --help --version --quiet --query --key --layout --causal --mask --kv-len --kv-start --scale \
                --temperature --qk --inputs --sums --isa --threads --output --to --grid --batch --head --row \
                --labels --row-labels --column-labels --title --size --max --reduce --hidden --limit-mib --softcap \
                --head-scale --sinks --alibi --alibi-slopes --relative-bias --buckets --max-distance --rel-k --rel-q \
                --rel-delta --rope --rope-pairs --rope-base --rope-scaling --rope-factor --rope-original-length \
                --rope-beta-fast --rope-beta-slow --rope-no-truncation --rope-attention-factor \
                --rope-low-freq-factor --rope-high-freq-factor --rope-short-factor --rope-long-factor --rope-length \
                --query-offset --window --first-tokens --global --prefix --segments --segments-k --tree --cu-seqlens \
                --cu-seqlens-k --block-pattern --block --block-window --block-global --block-random --block-seed \
                --block-stride --block-heads --block-offsets --block-columns
            ;;
        heatmap:files)
            echo --query --key --mask --kv-len --kv-start --output --labels --row-labels --column-labels \
                --relative-bias --rel-k --rel-q --segments --segments-k --tree --block-offsets --block-columns -q -k \
                -o operand
            ;;
        heatmap:free)
            echo --scale --temperature --isa --threads --to --batch --head --row --title --size --max --reduce \
                --hidden --limit-mib --softcap --head-scale --sinks --alibi-slopes --max-distance --rope-pairs \
                --rope-base --rope-factor --rope-original-length --rope-beta-fast --rope-beta-slow \
                --rope-attention-factor --rope-low-freq-factor --rope-high-freq-factor --rope-short-factor \
                --rope-long-factor --rope-length --query-offset --window --first-tokens --global --prefix \
                --cu-seqlens --cu-seqlens-k --block --block-window --block-global --block-random --block-seed \
                --block-stride --block-heads
            ;;
        heatmap:--layout) echo 'bhtd bthd' ;;
        heatmap:--causal) echo 'none top-left bottom-right offset' ;;
        heatmap:--qk) echo 'exact int8' ;;
        heatmap:--inputs) echo 'as-given may-be-bf16' ;;
        heatmap:--sums) echo 'ordered free' ;;
        heatmap:--buckets) echo 'clipped t5 t5-bidirectional' ;;
        heatmap:--rel-delta) echo 'query-key key-query' ;;
        heatmap:--rope) echo 'half interleaved' ;;
        heatmap:--rope-scaling) echo 'linear ntk yarn llama3 longrope' ;;
        heatmap:--block-pattern) echo 'longformer bigbird strided' ;;
        pattern)
            echo longformer bigbird strided --help --version --quiet --tokens --tq --tk --block --window --global \
                --random --seed --heads --head --stride --causal --output --to --size --reduce
            ;;
        pattern:files)
            echo --output -o
            ;;
        pattern:free)
            echo --tokens --tq --tk --block --window --global --random --seed --heads --head --stride --to --size \
                --reduce
            ;;
        view)
            echo --help --version --quiet --output --batch --head --labels --row-labels --column-labels --title \
                --hidden --limit-mib
            ;;
        view:files)
            echo --output --labels --row-labels --column-labels -o operand
            ;;
        view:free)
            echo --batch --head --title --hidden --limit-mib
            ;;
        convert)
            echo --help --version --quiet --dtype --to --compress
            ;;
        convert:files)
            echo operand
            ;;
        convert:free)
            echo
            ;;
        convert:--dtype) echo 'f32 bf16 f16' ;;
        convert:--to) echo 'npy npz safetensors' ;;
        embed)
            echo --help --version --quiet --output --nearest --pooling --normalize --precision --max-tokens --batch \
                --threads --weights --labels --line
            ;;
        embed:files)
            echo --output --weights --labels -o operand
            ;;
        embed:free)
            echo --nearest --max-tokens --batch --threads --line
            ;;
        embed:--pooling) echo 'mean first last max' ;;
        embed:--precision) echo 'f32 bf16 int8 int4' ;;
        rerank)
            echo --help --version --quiet --query --top --sigmoid --json --precision --max-tokens --batch --threads
            ;;
        rerank:files)
            echo operand
            ;;
        rerank:free)
            echo --query --top --max-tokens --batch --threads
            ;;
        rerank:--precision) echo 'f32 bf16 int8 int4' ;;
        generate)
            echo --help --version --quiet --prompt --chat --system --max-new-tokens --stop --temperature --top-k \
                --top-p --seed --json --drafts --parallel --chunk --precision --multiply --group --activations \
                --cache --page --threads --logits
            ;;
        generate:files)
            echo --logits operand
            ;;
        generate:free)
            echo --prompt --system --max-new-tokens --stop --temperature --top-k --top-p --seed --drafts --parallel \
                --chunk --group --page --threads
            ;;
        generate:--precision) echo 'f32 bf16 int8 int4' ;;
        generate:--multiply) echo 'f32 bf16 int8' ;;
        generate:--activations) echo 'f32 bf16 f16' ;;
        generate:--cache) echo 'f32 bf16 f16 int8 fp8 int4' ;;
        tokenize)
            echo FOLDER FILE.json --help --version --quiet --tokens --json --decode --pairs --bare --special-as-text \
                --keep-special --max-tokens --null
            ;;
        tokenize:files)
            echo
            ;;
        tokenize:free)
            echo --max-tokens
            ;;
        bench)
            echo --help --version --quiet --batch --heads --kv-heads --q-len --k-len --head-dim --value-dim --dtype \
                --kv-type --causal --scale --temperature --qk --inputs --sums --isa --threads --repetitions \
                --min-time --json --softcap --head-scale --sinks --alibi --alibi-slopes --relative-bias --buckets \
                --max-distance --rel-k --rel-q --rel-delta --rope --rope-pairs --rope-base --rope-scaling \
                --rope-factor --rope-original-length --rope-beta-fast --rope-beta-slow --rope-no-truncation \
                --rope-attention-factor --rope-low-freq-factor --rope-high-freq-factor --rope-short-factor \
                --rope-long-factor --rope-length --query-offset --window --first-tokens --global --prefix --segments \
                --segments-k --tree --cu-seqlens --cu-seqlens-k --block-pattern --block --block-window \
                --block-global --block-random --block-seed --block-stride --block-heads --block-offsets \
                --block-columns
            ;;
        bench:files)
            echo --relative-bias --rel-k --rel-q --segments --segments-k --tree --block-offsets --block-columns
            ;;
        bench:free)
            echo --batch --heads --kv-heads --q-len --k-len --head-dim --value-dim --scale --temperature --isa \
                --threads --repetitions --min-time --softcap --head-scale --sinks --alibi-slopes --max-distance \
                --rope-pairs --rope-base --rope-factor --rope-original-length --rope-beta-fast --rope-beta-slow \
                --rope-attention-factor --rope-low-freq-factor --rope-high-freq-factor --rope-short-factor \
                --rope-long-factor --rope-length --query-offset --window --first-tokens --global --prefix \
                --cu-seqlens --cu-seqlens-k --block --block-window --block-global --block-random --block-seed \
                --block-stride --block-heads
            ;;
        bench:--dtype) echo 'f32 bf16 f16' ;;
        bench:--kv-type) echo 'as-given int8 fp8 int4' ;;
        bench:--causal) echo 'none top-left bottom-right offset' ;;
        bench:--qk) echo 'exact int8' ;;
        bench:--inputs) echo 'as-given may-be-bf16' ;;
        bench:--sums) echo 'ordered free' ;;
        bench:--buckets) echo 'clipped t5 t5-bidirectional' ;;
        bench:--rel-delta) echo 'query-key key-query' ;;
        bench:--rope) echo 'half interleaved' ;;
        bench:--rope-scaling) echo 'linear ntk yarn llama3 longrope' ;;
        bench:--block-pattern) echo 'longformer bigbird strided' ;;
        info)
            echo --help --version --quiet --json
            ;;
        info:files)
            echo operand
            ;;
        info:free)
            echo
            ;;
    esac
}
# end of what tools/command-pages makes

_attn() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= names
    COMPREPLY=()
    ((COMP_CWORD == 1)) || command=${COMP_WORDS[1]}
    # --option=value is three words here, the sign being one of them.
    if [[ $current == '=' ]]; then
        current=
    elif [[ $before == '=' ]] && ((COMP_CWORD >= 3)); then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [[ -n $command && $before == -* ]]; then
        names=$(_attn_words "$command:$before")
        if [[ -n $names ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$names" -- "$current")
            return
        fi
        if [[ " $(_attn_words "$command:free") " == *" $before "* ]]; then
            return
        fi
        if [[ " $(_attn_words "$command:files") " == *" $before "* ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$(_attn_words "$command")" -- "$current")
    if [[ $current != -* && " $(_attn_words "$command:files") " == *" operand "* ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -F _attn attn
