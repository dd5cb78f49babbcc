# SPDX-License-Identifier: Apache-2.0
"""The interpreter's lock, other threads, other runtimes, forks and Ctrl-C."""
import os
import subprocess
import sys
import threading
import time

import libattn
import numpy as np
import pytest

random = np.random.default_rng(5)


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


def run(code, **options):
    """The last line that another interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_lock_is_released():
    q = numbers(1, 4, 4096, 64)
    counted, stop = 0, False

    def count():
        nonlocal counted
        while not stop:
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    time.sleep(0.01)
    before = counted
    libattn.attention(q, q, q, num_threads=1)
    inside = counted - before
    stop = True
    thread.join()
    assert inside > 2


def test_calls_at_once():
    q = numbers(2, 2, 100, 16)
    want = libattn.attention(q, q, q, causal=True)
    wrong = []

    def attend():
        for n in range(50):
            if not np.array_equal(libattn.attention(q, q, q, causal=True, num_threads=1 + n % 3), want):
                wrong.append(n)

    threads = [threading.Thread(target=attend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_that_write_meanwhile():
    """Whatever they write: numbers are checked in a copy, so nothing is read from where it is not."""
    q = numbers(2, 2, 64, 16)
    lengths, offsets = np.array([64, 64]), np.array([0, 0])
    labels = np.zeros((2, 64), np.int32)
    mask = libattn.longformer(64, size=16, window=1)
    stop = False

    def write():
        while not stop:
            lengths[:] = random.integers(-(2**62), 2**62, 2)
            offsets[:] = random.integers(-(2**62), 2**62, 2)
            labels[:] = random.integers(-(2**31), 2**31, labels.shape)
            mask.columns[:] = random.integers(-(2**31), 2**31, mask.columns.shape)
            q[:] = random.standard_normal(q.shape)

    thread = threading.Thread(target=write)
    thread.start()
    calls = 0
    try:
        for n in range(400):
            options = [{"lengths": lengths}, {"causal": "offset", "query_offset": offsets}, {"segments": labels},
                       {"block_mask": mask}][n % 4]
            try:
                libattn.attention(q, q, q, **options)
            except ValueError:
                pass
            calls += 1
    finally:
        stop = True
        thread.join()
    assert calls == 400


def test_arrays_that_die_while_in_use():
    arrays = [numbers(1, 1, 40, 16) for _ in range(3)]
    want = libattn.attention(*arrays)
    given = [x.copy() for x in arrays]

    def forget(tile):
        given.clear()
        [np.full((1, 1, 40, 16), np.nan, np.float32) for _ in range(8)]  # in the memory that is free now, if it is

    np.testing.assert_allclose(libattn.attention(*given, score_function=forget), want, atol=1e-5)
    assert not given
    kept = numbers(1, 1, 40, 16)
    refused = []

    def resize(tile):
        try:
            kept.resize(2)
        except ValueError:
            refused.append(True)

    libattn.attention(kept, kept, kept, score_function=resize)
    assert refused


def test_number_of_threads():
    usual = libattn.num_threads()
    try:
        libattn.set_num_threads(3)
        assert libattn.num_threads() == 3
        q = numbers(1, 8, 512, 64)
        assert "3 threads" in libattn.describe(q, q, q)
    finally:
        libattn.set_num_threads(0)
    assert libattn.num_threads() == usual
    with pytest.raises(ValueError, match="num_threads is -1"):
        libattn.set_num_threads(-1)
    with pytest.raises(ValueError, match="num_threads is 'two'"):
        libattn.attention(q, q, q, num_threads="two")
    assert run("import libattn; print(libattn.num_threads())", env=os.environ | {"ATTN_NUM_THREADS": "5"}) == "5"


def test_fork():
    assert run("""
import libattn, numpy as np, os
q = np.random.default_rng(1).standard_normal((1, 8, 300, 64)).astype("f")
want = libattn.attention(q, q, q, num_threads=2)
if os.fork() == 0:
    same = all(np.array_equal(libattn.attention(q, q, q, num_threads=2), want) for _ in range(3))
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
""") == "0"


def test_runtime_of_torch():
    pytest.importorskip("torch")
    code = """
import libattn, numpy as np, os
q = np.random.default_rng(1).standard_normal((1, 8, 300, 64)).astype("f")
before, want = libattn.runtime(), libattn.attention(q, q, q, num_threads=2)
import torch
assert "torch" in libattn.runtime(), libattn.runtime()
torch.set_num_threads(2)
same = np.array_equal(libattn.attention(q, q, q), want)
here = threads()
for _ in range(20):
    torch.mm(torch.ones(500, 500), torch.ones(500, 500))
    libattn.attention(q, q, q)
grown = threads() - here
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(libattn.attention(q, q, q, num_threads=2), want) else 1)
print(before, same, grown, os.waitstatus_to_exitcode(os.wait()[1]))
"""
    code = "def threads(): return len(__import__('os').listdir('/proc/self/task'))\n" + code
    before, same, grown, child = run(code).rsplit(" ", 3)
    assert (same, child) == ("True", "0") and "torch" not in before
    assert int(grown) <= 1  # mm's own team; attention brings no second one


def test_interrupt():
    """Ctrl-C works after the call, whose result is whole."""
    assert run("""
import libattn, numpy as np, os, signal, threading, time
q = np.ones((1, 4, 8192, 64), np.float32)
out = np.zeros_like(q)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

def interrupt():
    while out[0, 0, 0, 0] == 0:  # until the call has written something, long before its end
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    libattn.attention(q, q, q, out=out, num_threads=1)
    time.sleep(5)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", np.allclose(out, 1))
""") == "interrupted True"
