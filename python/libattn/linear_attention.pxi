# SPDX-License-Identifier: Apache-2.0
# Linear attention with a state, and its gradients.

FEATURE_MAPS = {None: 0, "elu": 1, "positive": 2}


cdef class LinearCall:
    """The tensors and options of one call of linear attention."""
    cdef readonly Tensor q, k, v
    cdef Tensor decay, beta, state_in, state_out, resets, projection
    cdef attn_linear_attention_params p
    cdef list kept
    cdef int axes

    def __init__(self, q, k, v, str layout, dict options):
        get = options.get
        self.kept = []
        self.p = attn_linear_attention_params_default()
        self.axes = choice("layout", layout, LAYOUTS)
        self.q, self.k, self.v = tensor(q, "q", self.axes), tensor(k, "k", self.axes), tensor(v, "v", self.axes)
        if get("decay") is not None:
            self.decay = tensor(options["decay"], "decay", self.axes)
            self.p.decay = &self.decay.t
        if get("beta") is not None:
            self.beta = tensor(options["beta"], "beta", self.axes)
            self.p.beta = &self.beta.t
        if get("scale") is not None:
            self.p.scale = real("scale", options["scale"])
            if self.p.scale == 0:
                raise ValueError("scale is 0; expected any other number, or None for 1/sqrt(d)")
        if get("state") is not None:
            self.state_in = tensor(options["state"], "state", HEADS_FIRST)
            self.p.state_in = &self.state_in.t
        if get("resets") is not None:
            self.resets = tensor(options["resets"], "resets", self.axes)
            self.p.resets = &self.resets.t
        if get("cu_seqlens") is not None:
            offsets = integers(options["cu_seqlens"], "cu_seqlens", (None,))
            if len(offsets) == 0:
                raise ValueError("cu_seqlens is empty; expected an offset for each sequence, and one more")
            self.kept.append(offsets)
            self.p.cu_seqlens, self.p.num_sequences = <const int64_t *>address(offsets), len(offsets) - 1
        if get("lengths") is not None:
            lengths = integers(options["lengths"], "lengths", (self.q.t.shape[0],))
            self.kept.append(lengths)
            self.p.lengths = <const int64_t *>address(lengths)
        self.p.map = choice("features", get("features"), FEATURE_MAPS)
        if get("projection") is not None:
            self.projection = tensor(options["projection"], "projection", HEADS_FIRST)
            self.p.projection = &self.projection.t
        self.p.normalise = bool(get("normalise"))
        self.p.bidirectional = bool(get("bidirectional"))
        if get("isa") is not None:
            encoded = options["isa"].encode()
            self.kept.append(encoded)
            self.p.isa = <const char *>encoded
        self.p.num_threads = threads_of(get("num_threads"))

    @property
    def sequences(self):
        return self.p.num_sequences if self.p.cu_seqlens != NULL else self.q.t.shape[0]

    @property
    def state_shape(self):
        """(sequences, heads, rows, columns)"""
        rows = self.q.t.shape[3] if self.projection is None else self.projection.t.shape[2]
        return self.sequences, self.v.t.shape[1], rows, self.v.t.shape[3] + (1 if self.p.normalise else 0)

    def run(self, out, state_out):
        cdef Tensor written = tensor(out, "out", self.axes, True)
        cdef attn_status status
        if state_out is not None:
            self.state_out = tensor(state_out, "state_out", HEADS_FIRST, True)
            self.p.state_out = &self.state_out.t
        with nogil:
            status = attn_linear_attention(&self.q.t, &self.k.t, &self.v.t, &written.t, &self.p)
        check(status)

    def backward(self, out, d_out, d_state, dict wanted):
        cdef attn_linear_attention_gradients gradients = attn_linear_attention_gradients_default()
        cdef Tensor result, of_out = tensor(d_out, "d_out", self.axes), of_state, t
        cdef attn_tensor *result_tensor = NULL
        cdef attn_status status
        kept = []
        if out is not None:
            result = tensor(out, "out", self.axes)
            result_tensor = &result.t
        gradients.out = &of_out.t
        if d_state is not None:
            of_state = tensor(d_state, "d_state", HEADS_FIRST)
            gradients.state_out = &of_state.t
        for name, array in wanted.items():
            t = tensor(array, f"gradient of {name}", HEADS_FIRST if name == "state" else self.axes, True)
            kept.append(t)
            if name == "q":
                gradients.q = &t.t
            elif name == "k":
                gradients.k = &t.t
            elif name == "v":
                gradients.v = &t.t
            elif name == "decay":
                gradients.decay = &t.t
            elif name == "state":
                gradients.state_in = &t.t
            else:
                raise ValueError(f"there is no gradient of {name}")
        with nogil:
            status = attn_linear_attention_backward(&self.q.t, &self.k.t, &self.v.t, result_tensor, &self.p, &gradients)
        check(status)


def draw_features(projection, seed, offset):
    cdef Tensor written = tensor(projection, "projection", HEADS_FIRST, True)
    check(attn_draw_features(&written.t, <uint64_t>(seed & 0xffffffffffffffff), <uint64_t>(offset & 0xffffffffffffffff)))
