# SPDX-License-Identifier: Apache-2.0
# Arrays of anybody's as attn_tensor: NumPy's and other buffers through the buffer protocol, which knows what is read
# only, and PyTorch's, JAX's and others through DLPack. Nothing is copied.

cdef extern from *:
    """
    #include <stdint.h>
    /* DLPack's structs, https://dmlc.github.io/dlpack, of the version that every producer still speaks. */
    typedef struct { int32_t device_type, device_id; } dl_device;
    typedef struct { uint8_t code, bits; uint16_t lanes; } dl_type;
    typedef struct {
        void *data;
        dl_device device;
        int32_t ndim;
        dl_type dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } dl_tensor;
    typedef struct dl_managed {
        dl_tensor tensor;
        void *context;
        void (*deleter)(struct dl_managed *);
    } dl_managed;
    """
    ctypedef struct dl_device:
        int32_t device_type
    ctypedef struct dl_type:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    ctypedef struct dl_tensor:
        void *data
        dl_device device
        int32_t ndim
        dl_type dtype
        int64_t *shape
        int64_t *strides
        uint64_t byte_offset
    ctypedef struct dl_managed:
        dl_tensor tensor
        void (*deleter)(dl_managed *) noexcept

# How the axes of an array are those of attn_tensor: batch, head, token, channel.
cdef enum Axes:
    HEADS_FIRST   # (..., head, token, channel)
    TOKENS_FIRST  # (..., token, head, channel)
    A_NUMBER_EACH # (..., head, token)
    A_ROW_EACH    # (..., head, channel)

TYPE_NAMES = ("float32", "bfloat16", "float16", "bool", "int8", "uint8", "float8_e4m3fn", "int4")
cdef dict TYPES = {name: n for n, name in enumerate(TYPE_NAMES)}
# Types of ml_dtypes that NumPy cannot describe to others, and of PyTorch's that DLPack had no name for at first.
cdef dict VIEWED = {"bfloat16": ("uint16", ATTN_BF16), "float8_e4m3fn": ("uint8", ATTN_F8_E4M3)}
cdef dict FORMATS = {"f": ATTN_F32, "e": ATTN_F16, "?": ATTN_BOOL, "b": ATTN_I8, "B": ATTN_U8, "H": -1}


cdef class Tensor:
    """A view of somebody's array, and whatever keeps its memory where it is."""
    cdef attn_tensor t
    cdef Py_buffer view
    cdef bint has_view
    cdef dl_managed *managed
    cdef object owner
    cdef int axes
    cdef readonly str name
    cdef int64_t sizes[4]   # of the array, as it is
    cdef int64_t strides[4] # in elements
    cdef readonly int ndim

    def __dealloc__(self):
        if self.has_view:
            PyBuffer_Release(&self.view)
        if self.managed != NULL and self.managed.deleter != NULL:
            self.managed.deleter(self.managed)

    @property
    def shape(self):
        """Batch, heads, tokens, channels."""
        return (self.t.shape[0], self.t.shape[1], self.t.shape[2], self.t.shape[3])

    @property
    def dtype(self):
        return TYPE_NAMES[self.t.dtype]

    cdef int set_axes(self) except -1:
        """From the array's sizes and strides, missing axes in front having the length 1."""
        cdef int n = self.ndim, axis, at, shift
        cdef int wanted = 4 if self.axes in (HEADS_FIRST, TOKENS_FIRST) else 3
        cdef int64_t size[4]
        cdef int64_t stride[4]
        if n > wanted:
            raise ValueError(f"{self.name} has {n} axes; expected {wanted} at most")
        for axis in range(4):
            size[axis] = 1
            stride[axis] = 0
        shift = wanted - n
        for axis in range(n):
            size[axis + shift] = self.sizes[axis]
            stride[axis + shift] = self.strides[axis]
        if self.axes == TOKENS_FIRST:
            size[1], size[2] = size[2], size[1]
            stride[1], stride[2] = stride[2], stride[1]
        elif self.axes == A_NUMBER_EACH:
            size[3], stride[3] = 1, 1
        elif self.axes == A_ROW_EACH:
            size[3], stride[3] = size[2], stride[2]
            size[2], stride[2] = 1, 0
        for axis in range(4):
            self.t.shape[axis] = size[axis]
            self.t.stride[axis] = stride[axis]
        return 0

    cdef int from_buffer(self, object x, int dtype, bint written) except -1:
        cdef int axis
        cdef object format
        try:
            PyObject_GetBuffer(x, &self.view, PyBUF_STRIDES | PyBUF_FORMAT | (PyBUF_WRITABLE if written else 0))
        except (BufferError, ValueError) as error:
            raise ValueError(f"{self.name} cannot be used: {error}") from None
        self.has_view = True
        if dtype < 0:
            format = "B" if self.view.format == NULL else (<bytes>self.view.format).decode()
            dtype = FORMATS.get(format.lstrip("@=<"), -1)
            if dtype < 0:
                raise ValueError(f"{self.name} has elements of the type {type_of(x)}; expected {EXPECTED_TYPES}")
        if self.view.ndim > 4:
            raise ValueError(f"{self.name} has {self.view.ndim} axes; expected 4 at most")
        self.ndim = self.view.ndim
        self.t.data = self.view.buf
        self.t.dtype = dtype
        for axis in range(self.ndim):
            self.sizes[axis] = self.view.shape[axis]
            if self.view.strides[axis] % self.view.itemsize and self.sizes[axis] > 1:
                raise ValueError(f"{self.name} has a stride of {self.view.strides[axis]} bytes, which is not a "
                                 f"multiple of an element's {self.view.itemsize}; copy it")
            self.strides[axis] = self.view.strides[axis] // self.view.itemsize
        return 0

    cdef int from_dlpack(self, object x, int dtype) except -1:
        cdef dl_managed *managed
        cdef dl_tensor *t
        cdef int axis
        cdef int64_t stride = 1
        device = x.__dlpack_device__()
        if device[0] != 1: # kDLCPU
            raise ValueError(f"{self.name} is on another device ({getattr(x, 'device', device)}); "
                             f"libattn computes on CPUs: move it there")
        try:
            capsule = x.__dlpack__()
        except Exception as error:
            raise ValueError(f"{self.name} cannot be used: {error}") from None
        managed = <dl_managed *>PyCapsule_GetPointer(capsule, "dltensor")
        PyCapsule_SetName(capsule, "used_dltensor")
        self.managed = managed
        t = &managed.tensor
        if t.ndim > 4:
            raise ValueError(f"{self.name} has {t.ndim} axes; expected 4 at most")
        if dtype < 0:
            dtype = type_of_dlpack(t.dtype)
            if dtype < 0:
                raise ValueError(f"{self.name} has elements of the type {type_of(x)}; expected {EXPECTED_TYPES}")
        self.ndim = t.ndim
        self.t.data = <char *>t.data + t.byte_offset
        self.t.dtype = dtype
        for axis in range(self.ndim - 1, -1, -1):
            self.sizes[axis] = t.shape[axis]
            self.strides[axis] = stride if t.strides == NULL else t.strides[axis]
            stride *= t.shape[axis]
        return 0

    cdef int set_data(self, object x, bint written) except -1:
        """Finds out what x is."""
        cdef int dtype = -1
        cdef str name
        self.owner = x
        if isinstance(x, ndarray):
            viewed = VIEWED.get(x.dtype.name)
            if viewed is not None:
                x, dtype = x.view(viewed[0]), viewed[1]
            return self.from_buffer(x, dtype, written)
        if hasattr(x, "__dlpack__"):
            torch = modules.get("torch")
            if torch is not None and isinstance(x, torch.Tensor):
                x = on_cpu(without_gradient(x, self.name), self.name)
                if x.layout is not torch.strided:
                    raise ValueError(f"{self.name} has the layout {x.layout}; expected torch.strided")
                if x.is_conj() or x.is_neg():
                    raise ValueError(f"{self.name} has a pending conjugation or negation; resolve it")
                if x.dtype is getattr(torch, "float8_e4m3fn", None):
                    x, dtype = x.view(torch.uint8), ATTN_F8_E4M3
            elif written:
                raise ValueError(f"{self.name} is a {type(x).__module__}.{type(x).__qualname__}; expected a NumPy "
                                 f"array or a PyTorch tensor, which can be written")
            return self.from_dlpack(x, dtype)
        if PyObject_CheckBuffer(x):
            return self.from_buffer(x, -1, written)
        raise ValueError(f"{self.name} is a {type(x).__module__}.{type(x).__qualname__}; expected an array: of NumPy, "
                         f"PyTorch, JAX, or anything with __dlpack__ or a buffer")


EXPECTED_TYPES = "float32, float16, bfloat16, or where it is a mask bool, where it is quantised int8, uint8 or float8_e4m3fn"


cdef str type_of(object x):
    return str(getattr(x, "dtype", type(x).__qualname__))


cdef int type_of_dlpack(dl_type t):
    if t.lanes == 1:
        if t.code == 2 and t.bits == 32:
            return ATTN_F32
        if t.code == 2 and t.bits == 16:
            return ATTN_F16
        if t.code == 4 and t.bits == 16:
            return ATTN_BF16
        if t.code == 6 and t.bits == 8:
            return ATTN_BOOL
        if t.code == 0 and t.bits == 8:
            return ATTN_I8
        if t.code == 1 and t.bits == 8:
            return ATTN_U8
        if t.code == 10 and t.bits == 8:
            return ATTN_F8_E4M3
    return -1


cdef Tensor tensor(object x, str name, int axes, bint written=False):
    cdef Tensor result = Tensor.__new__(Tensor)
    result.name = name
    result.axes = axes
    if x is None:
        raise ValueError(f"{name} is None; expected an array")
    result.set_data(x, written)
    result.set_axes()
    return result


cdef attn_tensor *optional(Tensor x):
    return NULL if x is None else &x.t


cdef Tensor quantised(object x, str name, int axes):
    """Of a Quantised, the tensor of its numbers."""
    cdef Tensor result = tensor(x.data, name, axes)
    cdef int dtype = TYPES[x.dtype]
    if dtype == ATTN_I4:
        if result.t.dtype != ATTN_U8:
            raise ValueError(f"{name}.data has elements of the type {result.dtype}; expected uint8, two numbers in each")
        if x.channels < 0 or result.t.shape[3] != (x.channels + 31) // 32 * 16:
            raise ValueError(f"{name}.data has rows of {result.t.shape[3]} bytes; expected "
                             f"{(x.channels + 31) // 32 * 16}, of {x.channels} channels")
        for axis in range(3):
            result.t.stride[axis] *= 2
        result.t.shape[3] = x.channels
    elif result.t.dtype != dtype and not (dtype == ATTN_F8_E4M3 and result.t.dtype == ATTN_U8):
        raise ValueError(f"{name}.data has elements of the type {result.dtype}; expected {x.dtype}")
    result.t.dtype = dtype
    return result


cdef object without_gradient(object x, str name):
    """A tensor of PyTorch's that records nothing; one that should is refused."""
    if not x.requires_grad:
        return x
    if modules["torch"].is_grad_enabled():
        raise ValueError(f"{name} requires a gradient, which this function does not record; use libattn.torch, or "
                         f"torch.no_grad() where none is wanted")
    return x.detach()


cdef object on_cpu(object x, str name):
    if x.device.type != "cpu":
        raise ValueError(f"{name} is on another device ({x.device}); libattn computes on CPUs: move it there")
    return x


# ------------------------------------------------------------------- arrays of options --

cdef object numpy_array(object x, str name):
    """x as NumPy's, whose bfloat16 is that of ml_dtypes if it is there."""
    torch = modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        x = without_gradient(x, name)
        x = on_cpu(x, name)
        if x.dtype is torch.bfloat16:
            x = x.float()
    try:
        return asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be used: {error}") from None


cdef object integers(object x, str name, object shape, str dtype="int64"):
    """A contiguous array of whole numbers. An entry of shape that is None may be anything; a number alone is repeated.

    Always a copy: they are checked once, and another thread of Python's could write other ones afterwards.
    """
    array = numpy_array(x, name)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"{name} has elements of the type {array.dtype}; expected whole numbers")
    if array.ndim == 0 and None not in shape:
        array = full(shape, array)
    check_shape(array, name, shape)
    wide = array.astype("int64") if array.dtype.kind == "u" else array
    if dtype == "int32" and array.size and (wide.min() < -2**31 or wide.max() >= 2**31):
        raise ValueError(f"{name} has numbers beyond 32 bits")
    return copied(array, dtype, order="C")


cdef object floats(object x, str name, object shape, str dtype="float32"):
    array = numpy_array(x, name)
    if array.dtype.kind not in "fiu" and array.dtype.name not in VIEWED:
        raise ValueError(f"{name} has elements of the type {array.dtype}; expected real numbers")
    check_shape(array, name, shape)
    return ascontiguousarray(array, dtype)


cdef int check_shape(object array, str name, object shape) except -1:
    if array.ndim != len(shape) or any(want is not None and want != have for want, have in zip(shape, array.shape)):
        expected = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"{name} has the shape {tuple(array.shape)}; expected ({expected}{',' * (len(shape) == 1)})")
    return 0


cdef void *address(object array) except? NULL:
    """Of a contiguous NumPy array of ours."""
    return <void *><size_t>array.__array_interface__["data"][0]
