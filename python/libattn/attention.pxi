# SPDX-License-Identifier: Apache-2.0
# Attention and its gradients.

class CacheFull(MemoryError):
    """A cache has no room for a further sequence, or for further tokens. It is as it was."""


# Names of arguments in the library's sentences that have others here.
cdef list RENAMED = [
    ("NULL", "None"), ("params.query_offset", "query_offset"), ("params.kv_len", "lengths"), ("params.kv_start", "starts"),
    ("params.prefix_len", "prefix"), ("params.alibi_slopes", "alibi"), ("params.qk", "scores_of"), ("config.", "cut."),
    ("params.ragged.cu_seqlens_k", "cu_seqlens of keys"), ("params.ragged.cu_seqlens_q", "cu_seqlens"),
    ("params.ragged->cu_seqlens_k", "cu_seqlens of keys"), ("params.ragged->cu_seqlens_q", "cu_seqlens"),
    ("params.window->", "window."), ("params.tree->", "tree."), ("params.callback", "score_function"),
    ("params.weight_callback", "weight_function"),
    ("gradients.out", "d_out"), ("gradients.lse", "d_lse"), ("gradients.", "gradients of "), ("params->", ""), ("params.", "")]


cdef str last_sentence():
    sentence = attn_last_error().decode("utf-8", "replace")
    for old, new in RENAMED:
        sentence = sentence.replace(old, new)
    return sentence


cdef int check(attn_status status) except -1:
    """Raises what a status stands for, with the library's sentence."""
    if status == ATTN_OK:
        return 0
    sentence = last_sentence()
    if status == ATTN_UNSUPPORTED:
        raise NotImplementedError(sentence)
    if status == ATTN_OUT_OF_MEMORY:
        raise MemoryError(sentence)
    if status == ATTN_CACHE_FULL:
        raise CacheFull(sentence)
    raise ValueError(sentence)


cdef int raise_from(Params params) except -1:
    if params.error is not None:
        error, params.error = params.error, None
        raise error
    return 0


cdef Tensor keys_tensor(object x, str name, int axes):
    return quantised(x, name, axes) if hasattr(x, "channels") else tensor(x, name, axes)


cdef class Call:
    """The tensors and options of one call."""
    cdef readonly Tensor q, k, v
    cdef Tensor out, lse, weights, key_sums, scores, k_scale, v_scale
    cdef Params params
    cdef Ranks ranks
    cdef int axes
    cdef bint paged

    def __init__(self, q, k, v, str layout, dict options, Ranks ranks=None):
        # With ranks: this rank's tokens of q, k and v, and options of the whole sequence.
        self.ranks = ranks
        self.axes = choice("layout", layout, LAYOUTS)
        # Pools of pages have axes of their own.
        self.paged = options.get("block_table") is not None
        axes = HEADS_FIRST if self.paged else self.axes
        self.q = tensor(q, "q", self.axes)
        self.k = keys_tensor(k, "k", axes)
        self.v = keys_tensor(v, "v", axes)
        self.params = Params.__new__(Params)
        self.params.set_all(self.q, self.k, options, ranks)
        if hasattr(k, "channels"):
            self.k_scale = tensor(k.scale, "k.scale", axes)
            self.params.p.k_scale = &self.k_scale.t
        if hasattr(v, "channels"):
            self.v_scale = tensor(v.scale, "v.scale", axes)
            self.params.p.v_scale = &self.v_scale.t

    @property
    def keys(self):
        """Tk"""
        return self.params.keys

    @property
    def sequences(self):
        """Rows of key_sums: with a block table each sequence has its own keys."""
        return self.params.sequences if self.paged else self.q.t.shape[0]

    def set_outputs(self, out, lse=None, weights=None, rows=None, key_sums=None, scores=None, stage=None):
        self.out = tensor(out, "out", self.axes, True)
        if lse is not None:
            self.lse = tensor(lse, "lse", A_NUMBER_EACH, True)
        if weights is not None:
            self.weights = tensor(weights, "weights", HEADS_FIRST, True)
        if key_sums is not None:
            self.key_sums = tensor(key_sums, "key_sums", A_ROW_EACH, True)
        if scores is not None:
            self.scores = tensor(scores, "scores", HEADS_FIRST, True)
            self.params.p.score_stage = choice("return_scores", stage, SCORE_STAGES)
        if rows is not None:
            array = integers(rows, "rows", (None,))
            self.params.p.weight_rows = <const int64_t *>self.params.keep(array)
            self.params.p.num_weight_rows = len(array)
        self.params.p.lse = optional(self.lse)
        self.params.p.weights = optional(self.weights)
        self.params.p.key_sums = optional(self.key_sums)
        self.params.p.scores = optional(self.scores)

    def run(self):
        cdef attn_status status
        if self.ranks is not None:
            self.ranks.forward(self)
            return
        with nogil:
            status = attn_forward(&self.q.t, &self.k.t, &self.v.t, &self.out.t, &self.params.p)
        check(status)
        raise_from(self.params)

    def describe(self):
        cdef attn_plan *plan
        cdef char text[1024]
        check(attn_plan_create(&plan, &self.q.t, &self.k.t, &self.v.t, &self.out.t, &self.params.p))
        attn_plan_describe(plan, text, sizeof(text))
        attn_plan_destroy(plan)
        return (<bytes>text).decode()

    def backward(self, out, lse, d_out, d_lse, dict wanted, score_gradient_function):
        """wanted: arrays to be written, by the names of attn_gradients' fields."""
        cdef attn_gradients gradients = attn_gradients_default()
        cdef Tensor of_out = tensor(d_out, "d_out", self.axes), of_lse
        cdef attn_status status
        cdef Tensor t
        cdef int64_t heads = self.q.t.shape[1]
        kept = []
        self.out = tensor(out, "out", self.axes)
        self.lse = tensor(lse, "lse", A_NUMBER_EACH)
        self.params.p.lse = &self.lse.t
        gradients.out = &of_out.t
        if d_lse is not None:
            of_lse = tensor(d_lse, "d_lse", A_NUMBER_EACH)
            gradients.lse = &of_lse.t
        for name, array in wanted.items():
            axes = self.axes if name in ("q", "k", "v") else HEADS_FIRST
            t = tensor(array, f"gradient of {name}", axes, True)
            kept.append(t)
            if name == "q":
                gradients.q = &t.t
            elif name == "k":
                gradients.k = &t.t
            elif name == "v":
                gradients.v = &t.t
            elif name == "mask":
                gradients.mask = &t.t
            elif name == "rel_k":
                gradients.rel_k = &t.t
            elif name == "rel_q":
                gradients.rel_q = &t.t
            else:
                shape = [heads]
                if name == "relative_bias":
                    shape.append(self.params.relative_bias.buckets)
                if t.t.dtype != ATTN_F32:
                    raise ValueError(f"gradient of {name} has elements of the type {t.dtype}; expected float32")
                if list(array.shape) != shape or not is_contiguous(t):
                    raise ValueError(f"gradient of {name} has the shape {list(array.shape)}; expected {shape}, side by side")
                if name == "head_scale":
                    gradients.head_scale = <float *>t.t.data
                elif name == "sinks":
                    gradients.sinks = <float *>t.t.data
                elif name == "alibi":
                    gradients.alibi_slopes = <float *>t.t.data
                elif name == "relative_bias":
                    gradients.relative_bias = <float *>t.t.data
                else:
                    raise ValueError(f"there is no gradient of {name}")
        if score_gradient_function is not None:
            self.params.score_gradient_function = function("score_gradient_function", score_gradient_function)
            gradients.callback = call_score_gradient_function
            gradients.callback_user = <void *>self.params
        if self.ranks is not None:
            self.ranks.backward(self, &gradients)
            return
        with nogil:
            status = attn_backward(&self.q.t, &self.k.t, &self.v.t, &self.out.t, &self.params.p, &gradients)
        check(status)
        raise_from(self.params)


cdef bint is_contiguous(Tensor t):
    cdef int axis
    cdef int64_t stride = 1
    for axis in range(3, -1, -1):
        if t.t.shape[axis] != 1 and t.t.stride[axis] != stride:
            return False
        stride *= t.t.shape[axis]
    return True
