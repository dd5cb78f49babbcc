# SPDX-License-Identifier: Apache-2.0
# attn_cache, and rows that are stored in pools of one's own.

cdef class Cache:
    """attn_cache. One thread at a time works with it: another gets a RuntimeError."""
    cdef attn_cache *cache
    cdef bint busy
    cdef readonly int64_t layers, kv_heads, dk, dv
    cdef int64_t step_tokens, step_sequences

    def __init__(self, dict config, dict rotations, str rotation):
        cdef attn_cache_config c = attn_cache_config_default()
        cdef attn_rope_config r
        kept = []
        if self.cache != NULL:
            raise RuntimeError("a cache is made once")
        c.layers = self.layers = whole("layers", config["layers"])
        c.kv_heads = self.kv_heads = whole("kv_heads", config["kv_heads"])
        c.dk = self.dk = whole("dk", config["dk"])
        c.dv = self.dv = whole("dv", config["dv"])
        if c.dv == 0:
            self.dv = c.dk
        c.dtype = choice("dtype", config["dtype"], TYPES)
        c.max_tokens = whole("max_tokens", config["max_tokens"])
        c.max_sequences = whole("max_sequences", config["max_sequences"])
        c.page_size = whole("page_size", config["page_size"])
        c.num_pages = whole("num_pages", config["num_pages"])
        c.window = whole("window", config["window"])
        c.first_tokens = whole("first_tokens", config["first_tokens"])
        c.v_in_k = bool(config["v_in_k"])
        if rotations is not None:
            rope_config(&r, rotations, kept)
            c.rope = &r
            c.rope_layout = choice("rotation", rotation, ROPE_LAYOUTS)
        check(attn_cache_create(&self.cache, &c))

    def __dealloc__(self):
        attn_cache_destroy(self.cache)

    cdef int enter(self) except -1:
        if self.cache == NULL:
            raise RuntimeError("the cache was not made")
        if self.busy:
            raise RuntimeError("the cache is in use by another thread")
        return 0

    def usage(self):
        cdef attn_cache_usage u = attn_cache_usage_default()
        self.enter()
        check(attn_cache_get_usage(self.cache, &u))
        return (u.num_pages, u.pages_in_use, u.page_size, u.page_bytes, u.num_sequences, u.tokens, u.bytes)

    def add(self):
        cdef int64_t id
        self.enter()
        check(attn_cache_add(self.cache, &id))
        return id

    def fork(self, id):
        cdef int64_t fork
        self.enter()
        check(attn_cache_fork(self.cache, whole("id", id), &fork))
        return fork

    def truncate(self, id, length):
        self.enter()
        check(attn_cache_truncate(self.cache, whole("id", id), whole("length", length)))

    def keep(self, id, length, tokens):
        self.enter()
        array = integers(tokens, "tokens", (None,))
        check(attn_cache_keep(self.cache, whole("id", id), whole("length", length), len(array),
                              <const int64_t *>address(array)))

    def remove(self, id):
        self.enter()
        check(attn_cache_remove(self.cache, whole("id", id)))

    def length(self, id):
        self.enter()
        return attn_cache_length(self.cache, whole("id", id))

    def step(self, ids, tokens, positions):
        cdef const int64_t *at = NULL
        self.enter()
        ids = integers(ids, "ids", (None,))
        tokens = integers(tokens, "tokens", (len(ids),))
        if positions is not None:
            positions = integers(positions, "positions", (max(int(tokens.sum()), 0),))
            at = <const int64_t *>address(positions)
        check(attn_cache_step(self.cache, len(ids), <const int64_t *>address(ids), <const int64_t *>address(tokens), at))
        self.step_tokens, self.step_sequences = tokens.sum(), len(ids)

    def keys(self):
        self.enter()
        return attn_cache_keys(self.cache)

    @property
    def sequences(self):
        """Of the step."""
        return self.step_sequences

    def append(self, layer, k, v, str layout, num_threads):
        cdef int axes = choice("layout", layout, LAYOUTS), threads = threads_of(num_threads)
        cdef Tensor keys = tensor(k, "k", axes), values = None if v is None else tensor(v, "v", axes)
        cdef int64_t at = whole("layer", layer)
        cdef attn_tensor *values_tensor = optional(values)
        cdef attn_status status
        self.enter()
        self.busy = True
        with nogil:
            status = attn_cache_append(self.cache, at, &keys.t, values_tensor, threads)
        self.busy = False
        check(status)

    def rotate(self, q, out, str layout, num_threads):
        cdef int axes = choice("layout", layout, LAYOUTS), threads = threads_of(num_threads)
        cdef Tensor queries = tensor(q, "q", axes), written = tensor(out, "out", axes, True)
        cdef attn_status status
        self.enter()
        self.busy = True
        with nogil:
            status = attn_cache_rotate(self.cache, &queries.t, &written.t, threads)
        self.busy = False
        check(status)

    def attend(self, layer, q, out, lse, weights, key_sums, str layout, dict options):
        cdef int axes = choice("layout", layout, LAYOUTS)
        cdef Tensor queries = tensor(q, "q", axes), written = tensor(out, "out", axes, True)
        cdef Tensor of_lse, of_weights, of_sums
        cdef Tensor keys = Tensor.__new__(Tensor)
        cdef int64_t at = whole("layer", layer)
        cdef Params params = Params.__new__(Params)
        cdef attn_status status
        self.enter()
        # Options say how many keys there are by a tensor, which a cache does not hand out.
        keys.t.shape[2] = attn_cache_keys(self.cache)
        for name in ("cu_seqlens", "block_table", "causal", "query_offset", "lengths", "starts"):
            if options.get(name) is not None:
                raise ValueError(f"{name} is given; a cache knows where its keys are and what hides them")
        params.set_all(queries, keys, {name: value for name, value in options.items() if name not in ("prefix", "tree")}, None)
        params.sequences = self.step_sequences
        if options.get("prefix") is not None:
            params.set_one("prefix", options["prefix"])
        if options.get("tree") is not None:
            params.set_tree(options["tree"])
        if lse is not None:
            of_lse = tensor(lse, "lse", A_NUMBER_EACH, True)
            params.p.lse = &of_lse.t
        if weights is not None:
            of_weights = tensor(weights, "weights", HEADS_FIRST, True)
            params.p.weights = &of_weights.t
        if key_sums is not None:
            of_sums = tensor(key_sums, "key_sums", A_ROW_EACH, True)
            params.p.key_sums = &of_sums.t
        self.busy = True
        with nogil:
            status = attn_cache_attend(self.cache, at, &queries.t, &written.t, &params.p)
        self.busy = False
        check(status)
        raise_from(params)


def store(x, slots, rotations, rotation, pool, str layout, num_threads):
    """pool: an array, or a Quantised, of shape (pages, heads, page_size, d)."""
    cdef int axes = choice("layout", layout, LAYOUTS), turned = choice("rotation", rotation, ROPE_LAYOUTS)
    cdef int threads = threads_of(num_threads)
    cdef Tensor read = tensor(x, "x", axes), written, scales, rows
    cdef attn_tensor *scales_tensor = NULL
    cdef attn_tensor *rows_tensor = NULL
    cdef const int64_t *at
    cdef attn_status status
    if hasattr(pool, "channels"):
        tensor(pool.data, "pool", HEADS_FIRST, True) # that it can be written
        written, scales = quantised(pool, "pool", HEADS_FIRST), tensor(pool.scale, "pool.scale", HEADS_FIRST, True)
        scales_tensor = &scales.t
    else:
        written = tensor(pool, "pool", HEADS_FIRST, True)
    if rotations is not None:
        rows = tensor(rotations, "rotations", HEADS_FIRST)
        rows_tensor = &rows.t
    slots = integers(slots, "slots", (read.t.shape[2],))
    at = <const int64_t *>address(slots)
    with nogil:
        status = attn_store(&read.t, at, rows_tensor, turned, &written.t, scales_tensor, threads)
    check(status)
