"""Every rule against ONNX Runtime: the re-batched file gives the results of single samples, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.graph.batch.rebatch import rebatch
from autoauto.records.errors import BadInput
from tests.drawn import n_examples

G = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return G.standard_normal(shape).astype(np.float32)


X = {"x": [1, 4, 6]}
IMAGE = {"x": [1, 4, 6, 6]}
HEADS = (  # x is (sequence, batch, features), as in PyTorch's MultiheadAttention
    "Transpose x > f perm=1,0,2; MatMul f w > q; Reshape q split > r; Transpose r > h perm=1,0,2; "
    "Transpose r > k perm=1,2,0; MatMul h k > s; Softmax s > p axis=-1; MatMul p h > o; Transpose o > t perm=1,0,2; "
    "Reshape t rows > u; Gemm u w b > v; Reshape v back > y"
)
RIGHT: dict[str, tuple[Any, ...]] = {
    "reshape to rows": ("Reshape x s > r; MatMul r w > y", IMAGE, "y", {"s": [1, 144], "w": floats(144, 3)}),
    "reshape with -1": ("Reshape x s > r; MatMul r w > y", IMAGE, "y", {"s": [1, -1], "w": floats(144, 3)}),
    "reshape with 0": ("Reshape x s > y", IMAGE, "y", {"s": [0, 0, 36]}),
    "channel shuffle": (
        "Reshape x a > r; Transpose r > t perm=0,2,1,3,4; Reshape t b > y",
        IMAGE,
        "y",
        {"a": [1, 2, 2, 6, 6], "b": [1, 4, 6, 6]},
    ),
    "samples and heads merged": (
        "Reshape x a > r; Transpose r > q perm=0,2,1,3; Reshape q m > h; Transpose h > k perm=0,2,1; MatMul h k > s; "
        "Softmax s > p axis=-1; MatMul p h > o; Reshape o c > u; Transpose u > t perm=0,2,1,3; Reshape t d > y",
        X,
        "y",
        {"a": [1, 4, 2, 3], "m": [2, 4, 3], "c": [1, 2, 4, 3], "d": [1, 4, 6]},
    ),
    "sequence first": (
        HEADS,
        X,
        "y",
        {"w": floats(6, 6), "b": floats(6), "split": [4, 2, 3], "rows": [4, 6], "back": [4, 1, 6]},
    ),
    "windows with a shared bias": ("Reshape x s > r; Add r b > y", X, "y", {"s": [2, 2, 6], "b": floats(2, 2, 6)}),
    "flatten": ("Flatten x > f; Gemm f w b > y transB=1", IMAGE, "y", {"w": floats(5, 144), "b": floats(5)}),
    "flatten later axes": ("Flatten x > y axis=2", IMAGE, "y"),
    "columns": ("Transpose x > t; Gemm w t > y", {"x": [1, 4]}, "y", {"w": floats(3, 4)}),
    "gemm of a transposed left": ("Transpose x > t; Gemm t w > y transA=1", {"x": [1, 4]}, "y", {"w": floats(4, 3)}),
    "transposed and back": (
        "Transpose x > t perm=2,1,0; Softmax t > s axis=1; Transpose s > y perm=2,1,0",
        X,
        "y",
    ),
    "mean of features": ("ReduceMean x > y axes=1,2 keepdims=0", X, "y"),
    "sum with an operand": ("ReduceSum x a > y", X, "y", {"a": [-1]}),
    "class token": ("Concat c x > j axis=1; Add j p > y", X, "y", {"c": floats(1, 1, 6), "p": floats(1, 5, 6)}),
    "gather and slice": (
        "Gather x i > g axis=1; Slice g a b a > y",
        X,
        "y",
        {"i": [2, 0], "a": [1], "b": [4]},
    ),
    "whole slice": ("Slice x a b a > y", X, "y", {"a": [0], "b": [2**63 - 1]}),
    "embedding": ("Gather w x > e; ReduceMean e > y axes=1,", {"int:x": [1, 5]}, "y", {"w": floats(2, 3)}),
    "picked by elements": ("GatherElements w x > y axis=1", {"int:x": [1, 5]}, "y", {"w": floats(1, 7)}),
    "picked by positions": ("GatherND x i > y", X, "y", {"i": [[[0, 1], [0, 3]]]}),
    "shape of the input": (
        "Shape x > s; Expand m s > e; Add x e > a; Gather s i > n; Concat n l > t axis=0; Reshape a t > y",
        X,
        "y",
        {"m": floats(1, 4, 1), "i": [0], "l": [24]},
    ),
    "two inputs": ("MatMul x z > m; Add m x > y", {"x": [1, 4, 4], "z": [1, 4, 4]}, "y"),
    "a scalar input": ("Mul x z > y", {"x": [1, 4], "z": []}, "y"),
    "normalised": (
        "BatchNormalization x s b m v > n; LRN n > l size=3; InstanceNormalization l s b > y",
        IMAGE,
        "y",
        {"s": floats(4), "b": floats(4), "m": floats(4), "v": np.abs(floats(4))},
    ),
    "layer norm": ("LayerNormalization x s b > y", X, "y", {"s": floats(6), "b": floats(6)}),
    "convolved": (
        "Conv x w > c group=2; MaxPool c > p kernel_shape=2,2; Resize p - f > y",
        IMAGE,
        "y",
        {"w": floats(4, 2, 3, 3), "f": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resized to lengths": ("Resize x - - s > y", IMAGE, "y", {"s": [1, 4, 12, 12]}),
    "padded and tiled": ("Pad x p > q; Tile q r > y", X, "y", {"p": [0, 1, 0, 0, 0, 2], "r": [1, 2, 1]}),
    "split and joined": ("Split x > a b axis=2; Concat b a > y axis=1", X, "y"),
    "squeezed": ("Unsqueeze x a > u; Squeeze u b > y", {"x": [1, 1, 6]}, "y", {"a": [0], "b": [2]}),
    "expanded": ("Expand x s > y", {"x": [1, 1, 6]}, "y", {"s": [2, 1, 4, 6]}),
    "einsum": ("Einsum x w > y equation=bij,jk->bik", X, "y", {"w": floats(6, 2)}),
    "lstm": (
        "Transpose x > t perm=1,0,2; LSTM t w r - - h h > o y z hidden_size=3",
        X,
        "o y z",
        {"w": floats(1, 12, 6), "r": floats(1, 12, 3), "h": np.zeros((1, 1, 3), np.float32)},
    ),
    "top k, arg max, cumulated": (
        "TopK x k > v i; ArgMax v > m axis=1; Cast m > c to=1; CumSum c a > y",
        X,
        "y",
        {"k": [2], "a": np.array(2)},
    ),
    "old softmax": ("Softmax x > y axis=1", X, "y", {}, 11),
    "old operands": (
        "Slice x > a starts=1, ends=3, axes=2,; Unsqueeze a > b axes=1,; Upsample b > y scales=1.0,1.0,2.0,2.0",
        X,
        "y",
        {},
        7,
    ),
    "eight samples": ("Reshape x s > r; Softmax r > y axis=-1", {"x": [8, 4, 6]}, "y", {"s": [32, 6]}),
    "open inputs, fixed inside": (
        "Reshape x s > r; MatMul r w > y",
        {"x": ["n", 4, 6]},
        "y",
        {"s": [1, 24], "w": floats(24, 2)},
    ),
    "quantized": (
        "QuantizeLinear x s > q; DequantizeLinear q s > y",
        X,
        "y",
        {"s": np.array(0.1, np.float32)},
    ),
}

WRONG: dict[str, tuple[Any, ...]] = {
    "mixes rows": ("Transpose x > t perm=1,0,2; Reshape t s > y", {"x": [2, 4, 6]}, "y", {"s": [2, 4, 6]}),
    "softmax over samples": ("Softmax x > y axis=0", X, "y"),
    "old softmax over samples": ("Softmax x > y axis=0", X, "y", {}, 11),
    "mean over samples": ("ReduceMean x > y axes=0,", X, "y"),
    "sum of everything": ("ReduceSum x > y", X, "y"),
    "joined on samples": ("Concat x x > y axis=0", X, "y"),
    "the first sample": ("Gather x i > y", X, "y", {"i": np.array(0)}),
    "cut samples": ("Slice x a b a > y", X, "y", {"a": [0], "b": [1]}),
    "padded samples": ("Pad x p > y", X, "y", {"p": [1, 0, 0, 0, 0, 0]}),
    "repeated samples": ("Tile x r > y", X, "y", {"r": [2, 1, 1]}),
    "summed by a product": ("Transpose x > t; MatMul t x > y", {"x": [1, 4]}, "y"),
    "flat product": ("Reshape x s > r; MatMul r w > y", {"x": [1, 4]}, "y", {"s": [4], "w": floats(4, 2)}),
    "flattened away": ("Flatten x > f axis=0; MatMul f w > y", {"x": [1, 4]}, "y", {"w": floats(4, 2)}),
    "squeezed away": ("Squeeze x > y", X, "y"),
    "squeezed by name": ("Squeeze x a > y", X, "y", {"a": [0]}),
    "trained": ("BatchNormalization x s s s s > y n o training_mode=1", IMAGE, "y", {"s": np.abs(floats(4))}),
    "normalised over samples": ("LayerNormalization x s > y axis=0", X, "y", {"s": floats(1, 4, 6)}),
    "a weight for each sample": ("Add x b > y", {"x": [2, 4]}, "y", {"b": floats(2, 4)}),
    "samples against heads": ("Transpose x > t perm=1,0,2; Add t x > y", {"x": [1, 1, 6]}, "y"),
    "cumulated over samples": ("CumSum x a > y", X, "y", {"a": np.array(0)}),
    "samples as weights": ("Conv w x > y", {"x": [1, 4, 3, 3]}, "y", {"w": floats(1, 4, 6, 6)}),
    "summed by einsum": ("Einsum x > y equation=bij->ij", X, "y"),
    "a scale that rounds": ("Resize x - f > y", IMAGE, "y", {"f": np.array([1.4, 1, 1, 1], np.float32)}),
    "positions of pooling": ("MaxPool x > p i kernel_shape=2,2; Cast i > y to=1", IMAGE, "y"),
    "an operator without a rule": ("MaxRoiPool x r > y pooled_shape=2,2", IMAGE, "y", {"r": floats(1, 5)}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_samples_do_not_change_each_other(name: str, make: Callable[..., onnx.ModelProto], check: Any) -> None:
    check(make(*RIGHT[name]))


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_mixes_samples_is_refused(name: str, make: Callable[..., onnx.ModelProto]) -> None:
    with pytest.raises(BadInput, match="the file fixes the batch at") as caught:
        rebatch(make(*WRONG[name]), 4)
    assert "\n" not in str(caught.value)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[str], list[int], dict[str, Any]]:
    """A chain of up to six operators on one tensor, chosen without regard to the batch."""
    shape = [1, *draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))]
    lines, constants, first = [], {}, list(shape)
    for index in range(draw(st.integers(1, 6))):
        axis = draw(st.integers(0, len(shape) - 1))
        op, change = draw(st.sampled_from(list(CHANGES.items())))
        attributes, constant, shape = change(draw, shape, axis)
        if constant is not None:
            constants[f"c{index}"] = constant
        lines.append(f"{op} t{index}{f' c{index}' * (constant is not None)} > t{index + 1} {attributes}")
    return lines, first, constants


Change = tuple[str, Any, list[int]]  # attributes, constant operand, shape afterwards


def transpose(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    order = draw(st.permutations(range(len(shape))))
    return f"perm={','.join(map(str, order))},", None, [shape[position] for position in order]


def reshape(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    rest, factors = int(np.prod(shape)), []
    for _ in range(draw(st.integers(1, 3))):
        factors.append(draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0])))
        rest //= factors[-1]
    after = draw(st.permutations([*factors, rest]))
    return "", np.array(after), after


def softmax(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    return f"axis={axis}", None, shape


def mean(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    keep = draw(st.integers(0, 1)) if len(shape) > 1 else 1
    return f"axes={axis}, keepdims={keep}", None, [*shape[:axis], *[1] * keep, *shape[axis + 1 :]]


def add(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    return "", floats(*[draw(st.sampled_from([1, length])) for length in shape]), shape


def matmul(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    return "", floats(shape[-1], 2), [*shape[:-1], 2]


def gather(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    return f"axis={axis}", np.array([shape[axis] - 1, 0]), [*shape[:axis], 2, *shape[axis + 1 :]]


def concat(draw: st.DrawFn, shape: list[int], axis: int) -> Change:
    part = floats(*shape[:axis], 1, *shape[axis + 1 :])
    return f"axis={axis}", part, [*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]]


CHANGES = {
    "Transpose": transpose,
    "Reshape": reshape,
    "Softmax": softmax,
    "ReduceMean": mean,
    "Add": add,
    "MatMul": matmul,
    "Gather": gather,
    "Concat": concat,
}


@settings(deadline=None, derandomize=True, max_examples=n_examples(150))
@given(program=programs())
def test_a_random_program_is_rebatched_right_or_refused(make: Any, check: Any, program: Any) -> None:
    lines, shape, constants = program
    model = make("; ".join(lines), {"t0": shape}, f"t{len(lines)}", constants)
    try:
        rebatch(model, 3)
    except BadInput:
        return
    check(model, differ=False)
