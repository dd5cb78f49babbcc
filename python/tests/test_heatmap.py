# SPDX-License-Identifier: Apache-2.0
"""Pictures of weights."""
import subprocess
import sys

import libattn
import numpy as np
import pytest

pyplot = None


@pytest.fixture(autouse=True)
def matplotlib():
    global pyplot
    module = pytest.importorskip("matplotlib")
    module.use("Agg")
    from matplotlib import pyplot
    yield
    pyplot.close("all")


def test_of_attention(tmp_path):
    q = np.random.default_rng(1).standard_normal((1, 3, 4, 16)).astype(np.float32)
    weights = libattn.attention(q, q, q, return_weights=True).weights
    axes = libattn.heatmap(weights, queries="abcd", keys="wxyz")
    np.testing.assert_allclose(axes.images[0].get_array(), weights[0].mean(0))
    assert [text.get_text() for text in axes.get_yticklabels()] == list("abcd")
    assert [text.get_text() for text in axes.get_xticklabels()] == list("wxyz")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")
    assert axes.images[0].norm.vmin == 0
    axes.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_options_and_axes():
    _, (left, right) = pyplot.subplots(1, 2)
    assert libattn.heatmap(np.eye(3), ax=right, cmap="magma", vmax=2, colorbar=False, alpha=0.5) is right
    assert not left.images and right.images[0].get_cmap().name == "magma"
    assert right.images[0].norm.vmax == 2 and right.images[0].get_alpha() == 0.5
    assert len(right.figure.axes) == 2  # and no bar of colours


def test_of_torch():
    torch = pytest.importorskip("torch")
    axes = libattn.heatmap(torch.eye(3, requires_grad=True))
    np.testing.assert_array_equal(axes.images[0].get_array(), np.eye(3))


@pytest.mark.parametrize("weights, options, sentence", [
    (np.zeros(3), {}, r"weights has the shape \(3,\); expected \(Tq, Tk\)"),
    (np.zeros((2, 2, 3, 3)), {}, "weights has the shape"),
    (np.zeros((3, 4)), {"keys": "abc"}, "keys has 3 labels; expected 4"),
    (np.zeros((3, 4)), {"queries": "ab"}, "queries has 2 labels; expected 3"),
])
def test_wrong_input(weights, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        libattn.heatmap(weights, **options)


def test_matplotlib_is_not_loaded_before():
    code = "import libattn, sys; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"
