# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature=False
"""The C library, called with the interpreter's lock released.

Nothing here allocates results or knows the frameworks' own conventions; the modules around it do. Names of arguments in
messages are those of Python.
"""
from sys import modules
from operator import index

from numpy import arange, array as copied, asarray, ascontiguousarray, full, ndarray

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer)
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from libattn.c_api cimport *

cdef extern from "Python.h":
    int PyBUF_WRITE
    int PyCapsule_SetName(object capsule, const char *name) except -1
    object PyMemoryView_FromMemory(char *memory, Py_ssize_t size, int flags)

include "tensors.pxi"
include "options.pxi"
include "attention.pxi"
include "ranks.pxi"
include "around.pxi"
include "caches.pxi"
include "linear_attention.pxi"
