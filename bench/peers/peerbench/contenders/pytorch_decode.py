# SPDX-License-Identifier: Apache-2.0
"""
PyTorch's scaled_dot_product_attention for a token of decoding, with the flash
kernel as in bare attention, and zentorch's operator in its place.

Grouped heads are asked for by PyTorch's option, or repeated in the call, as
transformers does by default. zentorch's operator has no option; it is tried with
fewer heads of keys, which its check of shapes may refuse, and with repeated ones.
A third way is open to all of them while there is one token: its query heads as
queries of their key head, which needs no option and no copies.
"""

import math

from .. import decode
from .base import Way, refuse
from .pytorch import Pytorch, tensors_of, torch_rows
from .zen import Zentorch


def decode_ways(case, tensors, forms):
    """A way for each of {label: function of one layer's q, k, v}, which computes all layers."""
    parts = list(zip(*(decode.layers(case, t) for t in tensors), strict=True))

    def way(label, attend):
        def rows(outputs, wanted):
            import torch

            return torch_rows(torch.cat(outputs), wanted)

        return Way(label, lambda: [attend(*layer) for layer in parts], rows)

    return [way(label, attend) for label, attend in forms.items()]


def forms(case, attend, grouped):
    """
    attend(q, k, v) in the ways in which heads that share keys can be handed over; `grouped` takes them as they are.
    """
    if case.group == 1:
        return {"direct": attend}

    def repeated(q, k, v):
        return attend(q, k.repeat_interleave(case.group, 1), v.repeat_interleave(case.group, 1))

    def folded(q, k, v):
        return attend(q.view(case.batch, case.kv_heads, case.group, case.d), k, v).reshape(q.shape)

    return {"enable_gqa": grouped, "heads repeated in the call": repeated, "heads as queries": folded}


NARROWEST = "its attention has no keys and values of less than 16 bits"


class PytorchDecode(Pytorch):
    def check(self, case):
        refuse(case.quantised, NARROWEST)

    def ways(self, case, arrays):
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return decode_ways(
            case,
            tensors_of(self.torch, case, arrays),
            forms(case, attend, lambda q, k, v: attend(q, k, v, enable_gqa=True)),
        )


class ZentorchDecode(Zentorch):
    def check(self, case):
        refuse(case.quantised, NARROWEST)

    def ways(self, case, arrays):
        def attend(q, k, v):
            return self.attend(q, k, v, 0.0, False)[0]

        ways = forms(case, attend, attend)
        if case.group > 1:
            ways["fewer heads of keys"] = ways.pop("enable_gqa")
        return decode_ways(case, tensors_of(self.torch, case, arrays), ways)


CONTENDERS = {"torch": PytorchDecode, "torch-mkl": PytorchDecode, "zentorch": ZentorchDecode}
