# SPDX-License-Identifier: Apache-2.0
"""
The encoder as ONNX, for ONNX Runtime, in a process of its own:

    plain.onnx   as PyTorch exports it, with mean pooling and normalisation in the graph
    fused.onnx   the same after ONNX Runtime's own optimizer for BERT: EmbedLayerNormalization, Attention,
                 SkipLayerNormalization, BiasGelu
    plain-int8.onnx, fused-int8.onnx   these with their products quantised dynamically (ONNX Runtime's
                 quantize_dynamic): int8 weights with a scale for each output, activations in each call

Usage: python -m peerbench.convert_minilm MODEL_FOLDER OUT_FOLDER
"""

import os
import sys
import warnings
from pathlib import Path


def main(model, out):
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    import torch  # pylint: disable=import-outside-toplevel
    from onnx import TensorProto  # pylint: disable=import-outside-toplevel
    from onnxruntime.quantization import QuantType, quantize_dynamic  # pylint: disable=import-outside-toplevel
    from onnxruntime.transformers import optimizer  # pylint: disable=import-outside-toplevel
    from transformers import BertModel  # pylint: disable=import-outside-toplevel

    class Embed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            # "eager" exports to the pattern that the optimizer knows.
            self.bert = BertModel.from_pretrained(model, attn_implementation="eager", add_pooling_layer=False).eval()

        def forward(self, input_ids, attention_mask, token_type_ids):
            states = self.bert(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state
            weights = attention_mask.unsqueeze(-1).float()
            return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=1)

    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    example = torch.ones(2, 9, dtype=torch.int64)
    part = out / "plain.onnx.part"
    torch.onnx.export(
        Embed(),
        (example, example, torch.zeros_like(example)),
        str(part),
        dynamo=False,
        opset_version=17,
        input_names=inputs,
        output_names=["embeddings"],
        dynamic_axes={**{n: {0: "batch", 1: "tokens"} for n in inputs}, "embeddings": {0: "batch"}},
    )
    fused = optimizer.optimize_model(
        str(part),
        "bert",
        num_heads=Embed().bert.config.num_attention_heads,
        hidden_size=Embed().bert.config.hidden_size,
    )
    print(fused.get_fused_operator_statistics())
    fused.save_model_to_file(str(out / "fused.onnx"))
    for source, name in ((part, "plain-int8"), (out / "fused.onnx", "fused-int8")):
        # The types behind operators of its own domain, as in the fused graph, are not inferred.
        options = {"DefaultTensorType": TensorProto.FLOAT}
        target = str(out / f"{name}.onnx")
        quantize_dynamic(str(source), target, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)
    part.replace(out / "plain.onnx")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
