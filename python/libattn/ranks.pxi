# SPDX-License-Identifier: Apache-2.0
# Attention over a sequence that is cut among processes: libattn_mpi's plans, with messages that an object of Python's
# carries. Its methods are those of mpi_transport_functions (src/mpi/transport.h), with memory as memoryviews of bytes and
# messages as whole numbers; an exception of theirs ends the call.

cdef dict PLACEMENTS = {"contiguous": 0, "zigzag": 1, "striped": 2}
cdef dict WIRES = {"as-given": 0, "bfloat16": 1}


cdef attn_mpi_config cut_config(dict options) except *:
    cdef attn_mpi_config config = attn_mpi_config_default()
    config.placement = choice("placement", options["placement"], PLACEMENTS)
    config.wire = choice("wire", options["wire"], WIRES)
    config.stripe = whole("stripe", options["stripe"])
    head_ranks = whole("head_ranks", options["head_ranks"])
    if not 0 <= head_ranks < 2**31:
        raise ValueError(f"head_ranks is {head_ranks}; expected 0 or more")
    config.head_ranks = head_ranks
    config.timeout = real("timeout", options["timeout"])
    return config


def ranges(dict options, tokens, ranks, rank):
    """The tokens of a rank, as a list of (first, count)."""
    cdef attn_mpi_config config = cut_config(options)
    cdef int64_t num = 0, n, all_tokens = whole("tokens", tokens)
    cdef int of = whole_int("ranks", ranks), which = whole_int("rank", rank)
    cdef attn_mpi_range *found
    check(attn_mpi_ranges(&config, all_tokens, of, which, NULL, 0, &num))
    found = <attn_mpi_range *>malloc(<size_t>(num + 1) * sizeof(attn_mpi_range))
    if found == NULL:
        raise MemoryError("no memory for the ranges of a rank")
    try:
        check(attn_mpi_ranges(&config, all_tokens, of, which, found, num, NULL))
        return [(found[n].first, found[n].count) for n in range(num)]
    finally:
        free(found)


cdef int whole_int(str name, object value) except? -1:
    number = whole(name, value)
    if not -2**31 <= number < 2**31:
        raise ValueError(f"{name} is {number}; expected less than 2**31")
    return number


cdef class Ranks:
    """The processes of a call, and how the sequence is cut among them."""
    cdef mpi_transport transport
    cdef attn_mpi_config config
    cdef object carrier
    cdef readonly int64_t queries, keys
    cdef public bint has_begun # all ranks know about this call

    def __init__(self, carrier, dict options, queries, keys):
        self.carrier = carrier
        self.config = cut_config(options)
        self.config.queries = self.queries = whole("queries", queries)
        self.config.keys = self.keys = whole("keys", keys)
        self.transport.functions = &CARRIED
        self.transport.own[0] = <void *>carrier
        self.transport.rank, self.transport.ranks = carrier.rank, carrier.ranks

    def refuse(self, object error):
        """Tells all ranks that this one cannot, or with None that another cannot; collective. Raises what all get."""
        cdef attn_mpi_plan *plan = NULL
        cdef attn_status status = (
            ATTN_OK if error is None else ATTN_OUT_OF_MEMORY if isinstance(error, MemoryError) else
            ATTN_UNSUPPORTED if isinstance(error, NotImplementedError) else ATTN_INVALID_ARGUMENT)
        encoded = str(error).encode(errors="replace")
        cdef const char *text = encoded
        self.has_begun = True
        with nogil:
            if status != ATTN_OK:
                attn_fail(status, "%s", text)
            status = mpi_plan_create(&plan, &self.transport, status, NULL, NULL, &self.config)
        try:
            self.ended(status)
        except Exception as agreed:
            raise agreed from error

    cdef int ended(self, attn_status status) except -1:
        if status == ATTN_PEER_LOST:
            failure = self.carrier.failure
            if failure is not None and not isinstance(failure, Exception):
                raise failure # Ctrl-C
            raise ConnectionError(last_sentence()) from failure
        return check(status)

    cdef int forward(self, Call call) except -1:
        cdef attn_mpi_plan *plan = NULL
        cdef mpi_tensors t = mpi_tensors(&call.q.t, &call.k.t, &call.v.t, &call.out.t)
        cdef attn_status status
        self.has_begun = True
        with nogil:
            status = mpi_plan_create(&plan, &self.transport, ATTN_OK, &t, &call.params.p, &self.config)
            if status == ATTN_OK:
                status = attn_mpi_forward(plan, t.q, t.k, t.v, t.out, &call.params.p)
            attn_mpi_plan_destroy(plan)
        return self.ended(status)

    cdef int backward(self, Call call, const attn_gradients *gradients) except -1:
        cdef attn_mpi_plan *plan = NULL
        cdef mpi_tensors t = mpi_tensors(&call.q.t, &call.k.t, &call.v.t, &call.out.t)
        cdef attn_mpi_config config = self.config
        cdef attn_status status
        config.backward = 1
        self.has_begun = True
        with nogil:
            status = mpi_plan_create(&plan, &self.transport, ATTN_OK, &t, &call.params.p, &config)
            if status == ATTN_OK:
                status = attn_mpi_backward(plan, t.q, t.k, t.v, t.out, &call.params.p, gradients)
            attn_mpi_plan_destroy(plan)
        return self.ended(status)


# -------------------------------------------------------------------- functions of a transport --

cdef object bytes_at(const void *data, size_t size):
    return PyMemoryView_FromMemory(<char *>data, <Py_ssize_t>size, PyBUF_WRITE)


cdef int failed(mpi_transport *t, object error) noexcept:
    (<object>t.own[0]).failure = error
    return 1


cdef int carried_prepare(mpi_transport *t, int sends, void *data, size_t size, int rank, int tag,
                         mpi_message *message) noexcept with gil:
    try:
        message.id = (<object>t.own[0]).prepare(bool(sends), bytes_at(data, size), rank, tag)
        message.is_there = 1
        return 0
    except BaseException as error:
        return failed(t, error)


cdef int carried_start(mpi_transport *t, mpi_message *message) noexcept with gil:
    try:
        (<object>t.own[0]).start(message.id)
        return 0
    except BaseException as error:
        return failed(t, error)


cdef int carried_test(mpi_transport *t, mpi_message *message, int *done) noexcept with gil:
    try:
        done[0] = (<object>t.own[0]).test(message.id)
        return 0
    except BaseException as error:
        return failed(t, error)


cdef void carried_discard(mpi_transport *t, mpi_message *message) noexcept with gil:
    try:
        (<object>t.own[0]).discard(message.id)
    except BaseException as error:
        failed(t, error)


cdef int carried_broadcast(mpi_transport *t, void *data, size_t size, int root, mpi_message *message) noexcept with gil:
    try:
        message.id = (<object>t.own[0]).broadcast(bytes_at(data, size), root)
        message.is_there = 1
        return 0
    except BaseException as error:
        return failed(t, error)


cdef int carried_lowest(mpi_transport *t, const int *mine, int *lowest, mpi_message *message) noexcept with gil:
    try:
        message.id = (<object>t.own[0]).lowest(bytes_at(mine, sizeof(int)), bytes_at(lowest, sizeof(int)))
        message.is_there = 1
        return 0
    except BaseException as error:
        return failed(t, error)


cdef int carried_gather(mpi_transport *t, const void *mine, size_t size, void *all, mpi_message *message) noexcept with gil:
    try:
        message.id = (<object>t.own[0]).gather(bytes_at(mine, size), bytes_at(all, size * <size_t>t.ranks))
        message.is_there = 1
        return 0
    except BaseException as error:
        return failed(t, error)


cdef void carried_idle(mpi_transport *t) noexcept with gil:
    try:
        (<object>t.own[0]).idle()
    except BaseException as error:
        failed(t, error)


cdef void carried_explain(mpi_transport *t, int error, char *sentence, size_t size) noexcept with gil:
    try:
        failure = (<object>t.own[0]).failure
        lines = str(failure).strip().splitlines() or [type(failure).__name__]
        text = lines[0].encode(errors="replace")[: size - 1]
        memcpy(sentence, <const char *>text, len(text) + 1)
    except BaseException:
        sentence[0] = 0


cdef void carried_close(mpi_transport *t) noexcept:
    pass # the object is the caller's


cdef mpi_transport_functions CARRIED = mpi_transport_functions(
    prepare=carried_prepare, start=carried_start, test=carried_test, discard=carried_discard, broadcast=carried_broadcast,
    lowest=carried_lowest, gather=carried_gather, idle=carried_idle, explain=carried_explain, close=carried_close,
    needs_tests=0)
