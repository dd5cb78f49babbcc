# SPDX-License-Identifier: Apache-2.0
# The options of attention, by their names in Python, as an attn_params.

CAUSAL = {False: 0, None: 0, "top-left": 1, "bottom-right": 2, "offset": 3}
SCORE_STAGES = {"raw": 0, "scaled": 1, "capped": 2, "masked": 3}
BUCKETS = {"clipped": 0, "t5": 1, "t5-bidirectional": 2}
DELTAS = {"query-key": 0, "key-query": 1}
ROPE_LAYOUTS = {"half-split": 0, "interleaved": 1}
SCORES_OF = {"default": 0, "int8": 1}
INPUTS = {"as-given": 0, "may-be-bf16": 1}
SUMS = {"ordered": 0, "free": 1}
LAYOUTS = {"bhtd": HEADS_FIRST, "bthd": TOKENS_FIRST}

cdef int64_t UNLIMITED = 0x7fffffffffffffff


# Options that are several values, the class that holds them, and what a stand-in for it has to have.
GROUPS = {
    "relative_bias": ("RelativeBias", ("table", "kind", "max_distance")),
    "disentangled": ("Disentangled", ("span", "rel_k", "rel_q", "delta")),
    "rope": ("Rope", ("q", "k", "layout")),
    "block_mask": ("BlockMask", ("size", "heads", "rows", "offsets", "columns")),
    "tree": ("Tree", ("tokens", "ancestors")),
    "dropout": ("Dropout", ("p", "seed", "offset")),
}


cdef str shown(object value):
    """A value in a sentence: on one line, and not a long one."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


cdef tuple pair(str name, object value):
    if len(value) != 2:
        raise ValueError(f"{name} is {shown(value)}; expected two of them in a tuple, of queries and of keys")
    return value


cdef int choice(str name, object value, dict choices) except -1:
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise ValueError(f"{name} is {shown(value)}; expected {', '.join(repr(c) for c in choices if c is not None)}") from None


cdef int64_t whole(str name, object value) except? -1:
    try:
        return index(value)
    except TypeError:
        raise ValueError(f"{name} is {shown(value)}; expected a whole number") from None
    except OverflowError:
        raise ValueError(f"{name} is {shown(value)}; expected a number of 64 bits") from None


cdef float real(str name, object value) except? -1:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {shown(value)}; expected a number") from None


cdef uint64_t word(str name, object value) except? 0:
    """The lowest 64 bits of a whole number."""
    try:
        return <uint64_t>(index(value) & 0xffffffffffffffff)
    except TypeError:
        raise ValueError(f"{name} is {shown(value)}; expected a whole number") from None


cdef class Params:
    """attn_params, and the memory that it points to."""
    cdef attn_params p
    cdef attn_window window
    cdef attn_block_mask block_mask
    cdef attn_segments segments
    cdef attn_tree tree
    cdef attn_relative_bias relative_bias
    cdef attn_disentangled disentangled
    cdef attn_rope_tables rope
    cdef attn_ragged ragged
    cdef attn_dropout dropout
    cdef list kept
    cdef Tensor q, k, mask, relative_k, relative_q, rope_q, rope_k
    cdef object score_function, weight_function, score_gradient_function
    cdef public object error # the first exception of a function
    cdef int64_t sequences
    cdef int64_t queries, keys # Tq, Tk of the whole sequence

    def __cinit__(self):
        self.p = attn_params_default()
        self.kept = []

    cdef void *keep(self, object array) except? NULL:
        self.kept.append(array)
        return address(array)

    cdef int set_all(self, Tensor q, Tensor k, dict options, Ranks ranks) except -1:
        """Options of a call with these tensors; None stands for an option that is not given."""
        self.q, self.k = q, k
        self.sequences, self.queries, self.keys = q.t.shape[0], q.t.shape[2], k.t.shape[2]
        if ranks is not None:
            self.queries, self.keys = ranks.queries, ranks.keys
        for name in options:
            if name not in OPTIONS:
                raise TypeError(f"there is no option {name!r}; there are {', '.join(sorted(OPTIONS))}")
        get = options.get
        # What says how many sequences and keys there are comes first.
        if get("cu_seqlens") is not None:
            self.set_ragged(options["cu_seqlens"], get("block_table") is not None)
        if get("block_table") is not None:
            self.set_pages(options["block_table"])
        for name, value in options.items():
            if value is not None and name not in ("cu_seqlens", "block_table", "causal"):
                self.set_one(name, value)
        if get("causal") is not None:
            self.set_causal(options["causal"])
        self.p.num_threads = threads_of(get("num_threads"))
        return 0

    cdef int set_one(self, str name, object value) except -1:
        cdef int64_t heads = self.q.t.shape[1]
        if name in GROUPS:
            kind, parts = GROUPS[name]
            if not all([hasattr(value, part) for part in parts]):
                raise ValueError(f"{name} is {shown(value)}; expected a libattn.{kind}")
        if name == "scale":
            self.p.scale = real(name, value)
            if self.p.scale == 0:
                raise ValueError("scale is 0; expected any other number, or None for 1/sqrt(d)")
        elif name == "temperature":
            self.p.temperature = real(name, value)
            if self.p.temperature == 0:
                raise ValueError("temperature is 0; expected a positive number")
        elif name == "softcap":
            self.p.softcap = real(name, value)
        elif name == "head_scale":
            self.p.head_scale = <const float *>self.keep(floats(value, name, (heads,)))
        elif name == "sinks":
            self.p.sinks = <const float *>self.keep(floats(value, name, (heads,)))
        elif name == "alibi":
            self.p.alibi_slopes = <const float *>self.keep(floats(value, name, (heads,)))
        elif name == "relative_bias":
            self.set_relative_bias(value)
        elif name == "disentangled":
            self.set_disentangled(value)
        elif name == "rope":
            self.set_rope(value)
        elif name == "score_function":
            self.score_function = function(name, value)
            self.p.callback = call_score_function
            self.p.callback_user = <void *>self
        elif name == "weight_function":
            self.weight_function = function(name, value)
            self.p.weight_callback = call_weight_function
            self.p.weight_callback_user = <void *>self
        elif name == "query_offset":
            self.p.query_offset = <const int64_t *>self.keep(integers(value, name, (self.sequences,)))
        elif name == "lengths":
            self.p.kv_len = <const int64_t *>self.keep(integers(value, name, (self.sequences,)))
        elif name == "starts":
            self.p.kv_start = <const int64_t *>self.keep(integers(value, name, (self.sequences,)))
        elif name == "prefix":
            self.p.prefix_len = <const int64_t *>self.keep(integers(value, name, (self.sequences,)))
        elif name == "window":
            self.set_window(value)
        elif name == "block_mask":
            self.set_block_mask(value)
        elif name == "segments":
            self.set_segments(value)
        elif name == "tree":
            self.set_tree(value)
        elif name == "mask":
            self.mask = tensor(value, name, HEADS_FIRST)
            self.p.mask = &self.mask.t
        elif name == "dropout":
            self.dropout.p = real("dropout.p", value.p)
            self.dropout.seed = word("dropout.seed", value.seed)
            self.dropout.offset = word("dropout.offset", value.offset)
            self.p.dropout = &self.dropout
        elif name == "scores_of":
            self.p.qk = choice(name, value, SCORES_OF)
        elif name == "inputs":
            self.p.inputs = choice(name, value, INPUTS)
        elif name == "sums":
            self.p.sums = choice(name, value, SUMS)
        elif name == "isa":
            if not isinstance(value, str):
                raise ValueError(f"isa is {shown(value)}; expected the name of an instruction set")
            encoded = value.encode(errors="replace")
            self.kept.append(encoded)
            self.p.isa = <const char *>encoded
        return 0

    cdef int set_causal(self, object value) except -1:
        if value is True:
            # Where they agree there is nothing to choose.
            if self.p.query_offset != NULL:
                value = "offset"
            elif self.p.kv_len == NULL and (
                    self.queries == self.keys if self.p.ragged == NULL else
                    self.ragged.cu_seqlens_q == self.ragged.cu_seqlens_k):
                value = "top-left"
            else:
                raise ValueError(
                    "causal is True where queries and keys need not be the same tokens; expected 'top-left' (query 0 "
                    "sees key 0), 'bottom-right' (the last query sees the last key), or query_offset")
        self.p.causal = choice("causal", value, CAUSAL)
        return 0

    cdef int set_ragged(self, object value, bint pages) except -1:
        first, second = pair("cu_seqlens", value) if isinstance(value, tuple) else (value, None if pages else value)
        offsets = integers(first, "cu_seqlens", (None,))
        if len(offsets) == 0:
            raise ValueError("cu_seqlens is empty; expected an offset for each sequence, and one more")
        self.ragged.num_sequences = self.sequences = len(offsets) - 1
        self.ragged.cu_seqlens_q = <const int64_t *>self.keep(offsets)
        if second is not None:
            offsets = offsets if second is first else integers(second, "cu_seqlens of keys", (len(offsets),))
            self.ragged.cu_seqlens_k = <const int64_t *>self.keep(offsets)
        self.p.ragged = &self.ragged
        return 0

    cdef int set_pages(self, object value) except -1:
        table = integers(value, "block_table", (self.sequences, None), "int32")
        self.p.block_table = <const int32_t *>self.keep(table)
        self.p.block_table_stride = table.shape[1]
        self.p.page_size = self.k.t.shape[2]
        self.keys = self.p.block_table_stride * self.p.page_size
        return 0

    cdef int set_relative_bias(self, object value) except -1:
        table = floats(value.table, "relative_bias.table", (self.q.t.shape[1], None))
        self.relative_bias.kind = choice("relative_bias.kind", value.kind, BUCKETS)
        self.relative_bias.buckets = table.shape[1]
        self.relative_bias.max_distance = whole("relative_bias.max_distance", value.max_distance)
        self.relative_bias.table = <const float *>self.keep(table)
        self.p.relative_bias = &self.relative_bias
        return 0

    cdef int set_disentangled(self, object value) except -1:
        self.disentangled.span = whole("disentangled.span", value.span)
        if value.rel_k is not None:
            self.relative_k = tensor(value.rel_k, "disentangled.rel_k", HEADS_FIRST)
            self.disentangled.rel_k = &self.relative_k.t
        if value.rel_q is not None:
            self.relative_q = tensor(value.rel_q, "disentangled.rel_q", HEADS_FIRST)
            self.disentangled.rel_q = &self.relative_q.t
        self.disentangled.delta = choice("disentangled.delta", value.delta, DELTAS)
        self.p.disentangled = &self.disentangled
        return 0

    cdef int set_rope(self, object value) except -1:
        self.rope.layout = choice("rope.layout", value.layout, ROPE_LAYOUTS)
        self.rope_q = tensor(value.q, "rope.q", HEADS_FIRST)
        self.rope_k = tensor(value.k, "rope.k", HEADS_FIRST)
        self.rope.q = &self.rope_q.t
        self.rope.k = &self.rope_k.t
        self.p.rope = &self.rope
        return 0

    cdef int set_window(self, object value) except -1:
        if isinstance(value, tuple):
            if len(value) != 2:
                raise ValueError(f"window is {shown(value)}; expected (left, right)")
            (left, right), first, tokens = value, 0, ()
        elif all([hasattr(value, part) for part in ("left", "right", "first_tokens", "global_tokens")]):
            left, right, first, tokens = value.left, value.right, value.first_tokens, value.global_tokens
        else:
            left, right, first, tokens = value, value, 0, ()
        self.window.left = UNLIMITED if left is None else whole("window.left", left)
        self.window.right = UNLIMITED if right is None else whole("window.right", right)
        self.window.first_tokens = whole("window.first_tokens", first)
        positions = integers(tokens, "window.global_tokens", (None,))
        if len(positions):
            self.window.globals_ = <const int64_t *>self.keep(positions)
            self.window.num_global = len(positions)
        self.p.window = &self.window
        return 0

    cdef int set_block_mask(self, object value) except -1:
        heads, rows = whole("block_mask.heads", value.heads), whole("block_mask.rows", value.rows)
        if not (1 <= heads <= 2**31 and 0 <= rows <= 2**31):
            raise ValueError(f"block_mask has {heads} heads of {rows} rows; expected 1 or more heads, 0 or more rows")
        offsets = integers(value.offsets, "block_mask.offsets", (heads * rows + 1,))
        columns = integers(value.columns, "block_mask.columns", (None,), "int32")
        if offsets[-1] > len(columns):
            raise ValueError(f"block_mask.columns has {len(columns)} entries; expected {offsets[-1]}, as offsets says")
        self.block_mask.size = whole("block_mask.size", value.size)
        self.block_mask.heads, self.block_mask.rows = heads, rows
        self.block_mask.offsets = <const int64_t *>self.keep(offsets)
        self.block_mask.columns = <const int32_t *>self.keep(columns)
        self.p.block_mask = &self.block_mask
        return 0

    cdef int set_segments(self, object value) except -1:
        first, second = pair("segments", value) if isinstance(value, tuple) else (value, value)
        batch = self.q.t.shape[0]
        of_queries = integers(first, "segments of queries", (batch, self.queries), "int32")
        of_keys = integers(second, "segments of keys", (batch, self.keys), "int32")
        self.segments.q = <const int32_t *>self.keep(of_queries)
        self.segments.k = <const int32_t *>self.keep(of_keys)
        self.p.segments = &self.segments
        return 0

    cdef int set_tree(self, object value) except -1:
        self.tree.tokens = whole("tree.tokens", value.tokens)
        words = (max(self.tree.tokens, 0) + 63) // 64
        bits = numpy_array(value.ancestors, "tree.ancestors")
        if bits.dtype.name != "uint64":
            raise ValueError(f"tree.ancestors has elements of the type {bits.dtype}; expected uint64, a bit a draft")
        check_shape(bits, "tree.ancestors", (self.q.t.shape[0], self.q.t.shape[2], words))
        self.tree.ancestors = <const uint64_t *>self.keep(ascontiguousarray(bits))
        self.p.tree = &self.tree
        return 0


OPTIONS = frozenset((
    "mask", "causal", "scale", "temperature", "head_scale", "softcap", "sinks", "alibi", "relative_bias",
    "disentangled", "rope", "score_function", "weight_function", "query_offset", "lengths", "starts", "prefix",
    "window", "block_mask", "segments", "tree", "cu_seqlens", "block_table", "dropout", "scores_of", "inputs", "sums",
    "num_threads", "isa"))


cdef int threads_of(object num_threads) except -1:
    """What a call asks for, and sees to it that it gets them."""
    cdef int usual = libattn_python_threads()
    if num_threads is None or num_threads == 0:
        return usual
    wanted = whole("num_threads", num_threads)
    if not 0 <= wanted < 2**31:
        raise ValueError(f"num_threads is {shown(num_threads)}; expected 0 or more")
    return <int>wanted


# ------------------------------------------------------------------ functions of the caller's --

cdef object function(str name, object value):
    if not callable(value):
        raise ValueError(f"{name} is {shown(value)}; expected a function")
    return value


cdef object floats_at(const float *data, int64_t keys, int64_t queries, int64_t key_stride):
    """Numbers of a tile as they lie there, (queries, keys)."""
    cdef object memory = PyMemoryView_FromMemory(
        <char *>data, ((keys - 1) * key_stride + queries) * sizeof(float), PyBUF_WRITE)
    return ndarray((keys, queries), "float32", memory, 0, (key_stride * 4, 4)).T


cdef class Tile:
    """Numbers of some queries and keys of a head: `values` has the shape (queries, keys)."""
    cdef readonly int64_t batch, head, first_query, first_key
    cdef public object values
    cdef readonly object scores # of a gradient's tile, what the score function has got

    @property
    def queries(self):
        """Indices of the queries, as a column."""
        return arange(self.first_query, self.first_query + self.values.shape[0])[:, None]

    @property
    def keys(self):
        """Indices of the keys."""
        return arange(self.first_key, self.first_key + self.values.shape[1])


cdef int call(Params params, object called, const attn_score_tile *at, const float *scores, float *values) noexcept with gil:
    cdef Tile tile
    try:
        if params.error is not None:
            return 0
        tile = Tile.__new__(Tile)
        tile.batch, tile.head, tile.first_query, tile.first_key = at.batch, at.head, at.first_query, at.first_key
        place = floats_at(values, at.num_keys, at.num_queries, at.key_stride)
        tile.values = place.copy() # what Python keeps may outlive the tile
        if scores != NULL:
            tile.scores = floats_at(scores, at.num_keys, at.num_queries, at.key_stride).copy()
        result = called(tile)
        place[...] = tile.values if result is None else asarray(result)
    except BaseException as error:
        params.error = error
    return 0


cdef void call_score_function(const attn_score_tile *tile, void *user) noexcept nogil:
    with gil:
        params = <Params>user
        call(params, params.score_function, tile, NULL, tile.scores)


cdef void call_weight_function(const attn_weight_tile *tile, void *user) noexcept nogil:
    with gil:
        params = <Params>user
        call(params, params.weight_function, <const attn_score_tile *>tile, NULL, tile.weights)


cdef void call_score_gradient_function(const attn_score_gradient_tile *tile, void *user) noexcept nogil:
    with gil:
        params = <Params>user
        call(params, params.score_gradient_function, <const attn_score_tile *>tile, tile.scores, tile.gradients)
