# SPDX-License-Identifier: Apache-2.0
"""
What a case of each suite of layers and models is, as case_kinds.py has it for those of attention.
"""

from dataclasses import dataclass
from typing import ClassVar

from .case_kinds import CACHE_BYTES, Saved

# What a layer or model may be asked to multiply; bare attention has DTYPES.
PRECISIONS = ("f32", "bf16", "int8")

# Weights of all matrices of a product with few rows: four times the last level of cache that two cores of a server
# usually have to themselves; with more, libraries would take minutes to quantise them. With more rows than these it does
# not matter where weights come from.
WEIGHT_BYTES = 128 << 20
FEW_ROWS = 64
PRECISION_BYTES = {precision: CACHE_BYTES[precision] for precision in PRECISIONS}


@dataclass(frozen=True)
class LinearCase(Saved):
    """
    One linear layer, y = x Wt + b, with `outputs` x `inputs` weights. With few rows a call computes the product with
    each of several matrices, one after the other, which together come from memory, as those of a model do. `dtype` is a
    precision, as in MhaCase.
    """

    suite: ClassVar[str] = "linear"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False

    rows: int
    outputs: int
    inputs: int
    quick: bool = False
    dtype: str = "f32"

    @property
    def matrices(self):
        if self.rows > FEW_ROWS:
            return 1
        return max(2, -(-WEIGHT_BYTES // (self.outputs * self.inputs * PRECISION_BYTES[self.dtype])))

    @property
    def name(self):
        tail = f"/matrices:{self.matrices}" if self.matrices > 1 else ""
        return f"{self.dtype}/linear/M{self.rows}/N{self.outputs}/K{self.inputs}{tail}"

    @property
    def kind(self):
        return "linear-row" if self.rows == 1 else "linear"

    @property
    def tokens(self):
        return self.rows

    @property
    def far(self):
        """Whether the weights come from memory."""
        return self.matrices > 1

    def bytes(self):
        """The weights of all matrices where reading them is what the time is made of: with one row. Else None."""
        if self.rows > 1:
            return None
        return self.matrices * self.outputs * self.inputs * PRECISION_BYTES[self.dtype]

    def flops(self):
        return 2.0 * self.matrices * self.rows * self.outputs * self.inputs


@dataclass(frozen=True)
class MhaCase(Saved):
    """
    Self-attention of `batch` sequences of `t` tokens with its four projections. `promised` cases are those that a
    bar speaks of. `dtype` is a precision: in bf16 x and the weights are bf16, in int8 both are f32, and everybody
    quantises them.
    """

    suite: ClassVar[str] = "mha"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False

    batch: int
    t: int
    d_model: int
    heads: int
    kv_heads: int
    bias: bool = False
    causal: bool = False
    promised: bool = False
    quick: bool = False
    dtype: str = "f32"

    @property
    def name(self):
        parts = [f"{self.dtype}/mha/B{self.batch}/T{self.t}/C{self.d_model}/H{self.heads}"]
        if self.kv_heads != self.heads:
            parts.append(f"kv_heads:{self.kv_heads}")
        parts.append(f"causal:{'top-left' if self.causal else 'none'}")
        if self.bias:
            parts.append("bias")
        return "/".join(parts)

    @property
    def kind(self):
        return "mha" if self.promised else "mha-small"

    @property
    def group(self):
        return self.heads // self.kv_heads

    @property
    def head_dim(self):
        return self.d_model // self.heads

    @property
    def tokens(self):
        return self.t

    @property
    def widths(self):
        """Outputs of the projections of queries, keys, values, and of the last one; all have d_model inputs."""
        kv = self.kv_heads * self.head_dim
        return {"q": self.d_model, "k": kv, "v": kv, "o": self.d_model}

    def projection_flops(self):
        return 2.0 * self.batch * self.t * self.d_model * sum(self.widths.values())

    def attention_flops(self):
        pairs = self.t * (self.t + 1) // 2 if self.causal else self.t * self.t
        return 4.0 * self.head_dim * self.batch * self.heads * pairs

    def flops(self, _sum=None):
        return self.projection_flops() + self.attention_flops()


@dataclass(frozen=True)
class EmbedCase(Saved):
    """
    All sentences through the encoder, sorted by length and `batch` at a time. `tokens` is the batch, for plots. `dtype`
    is a precision: everybody is given the model in f32 and rounds or quantises it before.
    """

    suite: ClassVar[str] = "embed"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False
    kind: ClassVar[str] = "embed"

    batch: int
    quick: bool = False
    dtype: str = "f32"

    @property
    def name(self):
        return f"{self.dtype}/embed/all-MiniLM-L6-v2/batch{self.batch}"

    @property
    def tokens(self):
        return self.batch


@dataclass(frozen=True)
class GenerateCase(Saved):
    """
    SmolLM2-135M-Instruct: the prompts of `batch` sequences, or `new` tokens one after the other behind them. `dtype` is
    the precision of the weights.
    """

    suite: ClassVar[str] = "generate"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False

    batch: int
    prompt: int
    new: int = 0
    quick: bool = False
    dtype: str = "f32"

    @property
    def name(self):
        what = f"after{self.prompt}/new{self.new}" if self.new else f"prompt{self.prompt}"
        return f"{self.dtype}/generate/SmolLM2-135M/B{self.batch}/{what}"

    @property
    def kind(self):
        return "generate" if self.new else "prompt"

    @property
    def tokens(self):
        return self.batch


@dataclass(frozen=True)
class TransformersCase(Saved):
    """
    A model in Transformers from one end to the other: `prefill`, a prompt of t tokens for SmolLM2-135M-Instruct, or
    `train`, a training step of all-MiniLM-L6-v2 on a batch of texts of at most t tokens, with the dropout of its
    configuration or without. `dtype` is that of weights and activations.
    """

    suite: ClassVar[str] = "transformers"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False

    task: str
    batch: int
    t: int
    dropout: bool = False
    quick: bool = False
    dtype: str = "f32"

    @property
    def name(self):
        model = {"prefill": "SmolLM2-135M", "train": "all-MiniLM-L6-v2"}[self.task]
        tail = "/dropout" if self.dropout else ""
        return f"{self.dtype}/transformers/{model}/{self.task}/B{self.batch}/T{self.t}{tail}"

    @property
    def kind(self):
        return f"transformers-{self.task}"

    @property
    def tokens(self):
        return self.t
