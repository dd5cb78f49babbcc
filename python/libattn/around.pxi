# SPDX-License-Identifier: Apache-2.0
# What stands around attention: parts that are joined, rotations, quantised rows, patterns, and the machine.

def merge(parts, lses, out, lse, str layout, num_threads):
    cdef int axes = choice("layout", layout, LAYOUTS)
    cdef int64_t num = len(parts), n
    cdef Tensor written = tensor(out, "out", axes, True)
    cdef Tensor sums = None if lse is None else tensor(lse, "lse", A_NUMBER_EACH, True)
    cdef attn_status status
    cdef attn_tensor *tensors
    cdef attn_tensor *sums_tensor = optional(sums)
    cdef int threads = threads_of(num_threads)
    if len(lses) != num:
        raise ValueError(f"lses has {len(lses)} arrays; expected {num}, as parts has")
    kept = [tensor(part, f"parts[{n}]", axes) for n, part in enumerate(parts)]
    kept += [tensor(part, f"lses[{n}]", A_NUMBER_EACH) for n, part in enumerate(lses)]
    tensors = <attn_tensor *>malloc(<size_t>(2 * num + 1) * sizeof(attn_tensor))
    if tensors == NULL:
        raise MemoryError("no memory for the list of parts")
    for n in range(2 * num):
        tensors[n] = (<Tensor>kept[n]).t
    with nogil:
        status = attn_merge(num, tensors, tensors + num, &written.t, sums_tensor, threads)
    free(tensors)
    check(status)


def dropout_keeps(dropout, batch, head, query, key):
    cdef attn_dropout d
    d.p = real("p", dropout.p)
    d.seed = <uint64_t>(dropout.seed & 0xffffffffffffffff)
    d.offset = <uint64_t>(dropout.offset & 0xffffffffffffffff)
    return bool(attn_dropout_keeps(&d, batch, head, query, key))


# ------------------------------------------------------------------------------ rotations --

ROPE_SCALINGS = {None: 0, "linear": 1, "ntk": 2, "yarn": 3, "llama3": 4, "longrope": 5}


cdef int rope_config(attn_rope_config *config, dict options, list kept) except -1:
    """Names are those of attn_rope_config's fields; what they point to is kept in the list."""
    config[0] = attn_rope_config_default()
    for name, value in options.items():
        if name == "scaling":
            config.scaling = choice(name, value, ROPE_SCALINGS)
        elif value is None:
            continue
        elif name == "pairs":
            config.pairs = whole(name, value)
        elif name == "base":
            config.base = float(value)
        elif name == "factor":
            config.factor = float(value)
        elif name == "original_length":
            config.original_length = whole(name, value)
        elif name == "beta_fast":
            config.beta_fast = float(value)
        elif name == "beta_slow":
            config.beta_slow = float(value)
        elif name == "attention_factor":
            config.attention_factor = float(value)
        elif name == "low_freq_factor":
            config.low_freq_factor = float(value)
        elif name == "high_freq_factor":
            config.high_freq_factor = float(value)
        elif name == "no_truncation":
            config.no_truncation = bool(value)
        elif name == "length":
            config.length = whole(name, value)
        elif name in ("short_factor", "long_factor"):
            array = floats(value, name, (config.pairs,), "float64")
            kept.append(array)
            if name == "short_factor":
                config.short_factor = <const double *>address(array)
            else:
                config.long_factor = <const double *>address(array)
        else:
            raise TypeError(f"there is no option {name!r}")
    return 0


def rope_table(dict options, positions, table):
    """Fills table, a contiguous float32 array (num, 2 * pairs) of NumPy's."""
    cdef attn_rope_config config
    cdef const int64_t *at = NULL
    kept = []
    rope_config(&config, options, kept)
    if positions is not None:
        kept.append(positions)
        at = <const int64_t *>address(positions)
    check(attn_rope_table(&config, at, table.shape[0], <float *>address(table)))


def rope(x, table, str rotation, out, str layout, num_threads):
    cdef int axes = choice("layout", layout, LAYOUTS), turned = choice("rotation", rotation, ROPE_LAYOUTS)
    cdef Tensor read = tensor(x, "x", axes), rows = tensor(table, "table", HEADS_FIRST)
    cdef Tensor written = tensor(out, "out", axes, True)
    cdef attn_status status
    cdef int threads = threads_of(num_threads)
    with nogil:
        status = attn_rope(&read.t, &rows.t, turned, &written.t, threads)
    check(status)


# ------------------------------------------------------------------- quantised keys and values --

def quantise(x, out, str layout, num_threads):
    """out: a Quantised whose arrays are written."""
    cdef int axes = choice("layout", layout, LAYOUTS)
    cdef Tensor read = tensor(x, "x", axes), numbers = quantised(out, "out", axes)
    cdef Tensor scale = tensor(out.scale, "out.scale", axes, True)
    cdef attn_status status
    cdef int threads = threads_of(num_threads)
    with nogil:
        status = attn_quantise(&read.t, &numbers.t, &scale.t, threads)
    check(status)


# ------------------------------------------------------------------------------- patterns --

cdef object pattern_arrays(attn_pattern *pattern):
    """(size, heads, rows, offsets, columns) of a pattern, which ends here."""
    cdef const attn_block_mask *mask = attn_pattern_block_mask(pattern)
    cdef int64_t heads = max(mask.heads, 1), n
    try:
        offsets = full(heads * mask.rows + 1, 0, "int64")
        to_offsets = <int64_t *>address(offsets)
        for n in range(heads * mask.rows + 1):
            to_offsets[n] = mask.offsets[n]
        columns = full(offsets[-1], 0, "int32")
        to_columns = <int32_t *>address(columns)
        for n in range(len(columns)):
            to_columns[n] = mask.columns[n]
        return mask.size, heads, mask.rows, offsets, columns
    finally:
        attn_pattern_destroy(pattern)


def longformer(tq, tk, size, window, global_blocks, causal):
    cdef attn_longformer options
    cdef attn_pattern *pattern
    options.window, options.globals_, options.causal = whole("window", window), whole("global_blocks", global_blocks), bool(causal)
    check(attn_pattern_longformer(&pattern, whole("tq", tq), whole("tk", tk), whole("size", size), &options))
    return pattern_arrays(pattern)


def bigbird(tq, tk, size, window, global_blocks, random, seed, heads, causal):
    cdef attn_bigbird options
    cdef attn_pattern *pattern
    options.window, options.globals_ = whole("window", window), whole("global_blocks", global_blocks)
    options.random, options.seed = whole("random", random), <uint64_t>(seed & 0xffffffffffffffff)
    options.heads, options.causal = whole("heads", heads), bool(causal)
    check(attn_pattern_bigbird(&pattern, whole("tq", tq), whole("tk", tk), whole("size", size), &options))
    return pattern_arrays(pattern)


def strided(tq, tk, size, stride, causal):
    cdef attn_strided options
    cdef attn_pattern *pattern
    options.stride, options.causal = whole("stride", stride), bool(causal)
    check(attn_pattern_strided(&pattern, whole("tq", tq), whole("tk", tk), whole("size", size), &options))
    return pattern_arrays(pattern)


def alibi_slopes(heads):
    if not 0 <= whole("heads", heads) <= 2**24:
        raise ValueError(f"heads is {heads}; expected 0 to {2**24}")
    slopes = full(heads, 0, "float32")
    check(attn_alibi_slopes(<float *>address(slopes), heads))
    return slopes


# ---------------------------------------------------------------------------- the machine --

def version():
    return attn_version_string().decode()


def instruction_sets():
    """Pairs of a name and whether this processor has it."""
    cdef int n = 0
    sets = []
    while attn_isa_name(n) != NULL:
        sets.append((attn_isa_name(n).decode(), bool(attn_isa_supported(attn_isa_name(n)))))
        n += 1
    return sets


def active_set():
    return attn_isa_active().decode()


def cache_size(int level):
    return attn_cache_size(level)


def set_num_threads(num_threads):
    wanted = whole("num_threads", num_threads)
    if not 0 <= wanted < 2**31:
        raise ValueError(f"num_threads is {num_threads}; expected 0 or more")
    libattn_python_set_threads(<int>wanted)


def num_threads():
    return libattn_python_threads()


def runtime():
    """The file of the OpenMP runtime whose threads are used; empty: the package's own."""
    return libattn_python_runtime().decode()
