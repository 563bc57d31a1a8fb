"""Checks GPUs as devices, on a machine that has one: `python studies/gpu_check.py`.

- conformance: the suite that every runtime passes (`tests/targets/host/runtimes/test_conformance.py`), for `cuda`.
- prediction: the estimated period of one session against the measured one, in fp32, for every model and batch size.
- search: what it finds in fp32, tf32 and fp16 is at least as fast as the best of these sessions.
- boundary: the largest batch size that a device of `--memory-gib` holds, found by bisection. It is true where a plain
  session of ONNX Runtime, in a process of its own and without a limit, takes about as much memory by nvidia-smi.
- unlike: a pipeline of all cores but one, as one device, and the GPU runs, each with layers of its own.
- export: of both plans, the program of the artifact and the processes that serve it compute what the model computes.

It exits with 0 where all of them hold, with 1 where one does not, and with 77, which test drivers take for "skipped",
where there is no GPU or no runtime for it. What it printed on one GPU is in docs/validation.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.export import deployment
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.exporters.onnx_stages import compared, examples, whole_model
from autoauto.exporters.registry import write_artifact
from autoauto.graph.cut import onnx_source
from autoauto.processes.channel import Channel
from autoauto.records.errors import AutoautoError, OutOfMemory
from autoauto.records.layers import LayerRange, SubModel
from autoauto.records.plans.timeline import Runner
from autoauto.records.units import GIB, MIB, Array, Precision, format_bytes
from autoauto.serve.artifact import Artifact
from autoauto.space.knobs import Knobs
from autoauto.study.defaults import default_space
from autoauto.study.search import search_flow
from autoauto.targets.host.detect import usable_cores
from autoauto.targets.host.devices import CORES
from autoauto.targets.host.gpu.gpus import gpus_named, used_bytes
from autoauto.targets.host.measure.examples import examples as made_up
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.run.run import copy_of
from autoauto.targets.host.runtimes.registry import SESSIONS, check_cuda_installed
from autoauto.targets.host.transport.shared_memory import SubModelFile

ROOT = Path(__file__).parents[1]
SKIPPED = 77
MODELS, BATCH_SIZES = ("resnet50", "bert-base-128"), (1, 8, 64)
MAX_ERROR, MAX_LOSS, MAX_DIFFERENCE = 0.10, 0.05, 0.10
"""Bounds: on the mean error of predictions; on what a search may lose to one session, since both are measured once; and
on the difference between the memory of a plain session and that of the device, relative to it."""
MAX_BATCH_SIZE = 4096
KINDS = ("conformance", "prediction", "search", "boundary", "export", "unlike")


class Check(NamedTuple):
    """What was checked, whether it holds, and the figures."""

    name: str
    holds: bool
    figures: str


class Session(NamedTuple):
    """One session of a whole model: its estimated and measured throughput."""

    batch_size: int
    predicted_samples_per_s: float
    samples_per_s: float

    @property
    def error(self) -> float:
        """Of the estimated period, relative to the measured one."""
        return self.samples_per_s / self.predicted_samples_per_s - 1


def open_flow(model: str, device: str | None, memory_mib: int | None = None) -> Flow:
    """A model on a device; None is cores."""
    given = {"device": device, "device_memory_mib": memory_mib}
    return load_flow(model, target="host", options={name: value for name, value in given.items() if value is not None})


def runtime_of(flow: Flow) -> str:
    """The runtime of its devices."""
    runtime: str = flow.traits.space["runtime"][0]
    return runtime


def sessions(flow: Flow, batch_sizes: Sequence[int]) -> Iterator[Session]:
    """One session in fp32 for every batch size, estimated before it is measured."""
    for batch_size in batch_sizes:
        knobs = Knobs(n_ipu=1, batch_size=batch_size, runtime=runtime_of(flow), precision=Precision.FP32)
        plan = flow.predict(knobs)
        run = flow.measure(knobs, plan)
        yield Session(batch_size, flow.samples_per_s(knobs, plan), flow.pipelines.measured_samples_per_s(knobs, run))


def prediction(model: str, measured: Sequence[Session]) -> Check:
    """The mean error of the estimates."""
    error = mean(abs(session.error) for session in measured)
    each = ", ".join(f"batch {s.batch_size}: {s.samples_per_s:.1f}/s, {100 * s.error:+.1f} %" for s in measured)
    return Check(f"prediction {model}", error <= MAX_ERROR, f"mean error {100 * error:.1f} % ({each})")


def searched(model: str, flow: Flow, measured: Sequence[Session]) -> Check:
    """The result of a search against the best of the sessions that one would run without it."""
    given = {
        "n_ipu": (1,),
        "batch_size": tuple(session.batch_size for session in measured),
        "precision": SESSIONS[runtime_of(flow)].precisions,
    }
    best = search_flow(flow, default_space(flow, given)).best
    simple = max(session.samples_per_s for session in measured)
    if best is None:
        return Check(f"search {model}", False, "nothing fits")
    ratio = best.samples_per_s / simple
    layout = ", channels last" * best.knobs.session.values["channels_last"]
    knobs = f"{best.knobs.session.computes_in} batch {best.knobs.batch_size} x {best.knobs.replicas}{layout}"
    figures = f"{best.samples_per_s:.1f}/s with {knobs}, {ratio:.2f} x the best"
    return Check(f"search {model}", ratio >= 1 - MAX_LOSS, figures)


def largest(fits: Callable[[int], bool], most: int = MAX_BATCH_SIZE) -> int:
    """The largest number up to `most` that fits, where smaller ones fit as well; 0 where none does.

    >>> largest(lambda n: n <= 37), largest(lambda n: False), largest(lambda n: True, most=100)
    (37, 0, 100)
    """
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def fits_device(flow: Flow) -> Callable[[int], bool]:
    """Whether one session of the whole model runs on a device at a batch size: False where it is out of memory."""
    assert isinstance(flow.target, Runner)
    runner = flow.target
    first = Knobs(n_ipu=1, batch_size=1, runtime=runtime_of(flow), precision=Precision.FP32)
    plan = replace(flow.predict(first), placement=(), other_plans=())

    def fits(batch_size: int) -> bool:
        options = flow.options(replace(first, batch_size=batch_size))
        try:
            runner.run(flow.graph, plan, flow.cluster, options, 1)
        except OutOfMemory:
            return False
        return True

    return fits


def boundary(model: str, device: str, memory_gib: float) -> Check:
    """The largest batch size by bisection, and what plain sessions take at it and above."""
    flow = open_flow(model, device, round(memory_gib * GIB / MIB))
    batch_size = largest(fits_device(flow))
    name, budget_bytes = f"boundary {model}", memory_gib * GIB
    if not 0 < batch_size < MAX_BATCH_SIZE:
        return Check(name, False, f"batch {batch_size} in {memory_gib:g} GiB; try another --memory-gib")
    (gpu,) = gpus_named(device)
    cut, whole = onnx_source(model).cut, LayerRange(0, len(flow.graph))
    plain = [plain_bytes(cut(flow.graph, whole, batch_size + more), gpu.uuid) for more in (0, 1)]
    holds = plain[0] <= (1 + MAX_DIFFERENCE) * budget_bytes and plain[1] >= (1 - MAX_DIFFERENCE) * budget_bytes
    takes = " and ".join(map(format_bytes, plain))
    figures = f"batch {batch_size} in {memory_gib:g} GiB; plain sessions of it and one more take {takes}"
    return Check(name, holds, figures)


def of_devices(flow: Flow, n_devices: int) -> Knobs:
    """A pipeline of so many devices in fp32."""
    return Knobs(n_ipu=n_devices, batch_size=BATCH_SIZES[1], runtime=runtime_of(flow), precision=Precision.FP32)


def unlike(model: str, flow: Flow) -> Check:
    """The best plan on one device of each of two kinds: both compute, and what the estimate said of it."""
    knobs = of_devices(flow, 2)
    plan = flow.predict(knobs)
    run = flow.measure(knobs, plan)
    stages = run.plan.stages
    parts = " and ".join(f"{len(range(*stage.layers))} layers on {stage.device_kind}" for stage in stages)
    figures = f"{parts}: estimated {flow.samples_per_s(knobs, plan):.1f}/s, "
    figures += f"measured {flow.pipelines.measured_samples_per_s(knobs, run):.1f}/s"
    return Check(f"unlike {model}", len({stage.device_kind for stage in stages}) == 2, figures)


def exported(model: str, flow: Flow, n_devices: int) -> Check:
    """The artifact of the best plan, by its program and by the processes that serve it."""
    deployed = deployment(flow, model, flow.expect(of_devices(flow, n_devices)))
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "artifact"
        checks = write_artifact(deployed, "onnx", folder, check=True)
        _, inputs = examples(deployed, 1)
        with Artifact(folder).pipelines() as pipelines:
            outputs: dict[str, Array] = {}
            pipelines.stream(iter([inputs]), lambda _pipeline, _number, batch: outputs.update(copy_of(batch)))
    checks += compared(outputs, whole_model(deployed, inputs), 1)
    devices = ", ".join(device.name for device in deployed.devices)
    return Check(f"export {model}, {devices}", all(each.passed for each in checks), "; ".join(c.detail for c in checks))


def plain_bytes(sub_model: SubModel, uuid: str) -> int:
    """Memory of a GPU that a process with a plain session takes, by nvidia-smi."""
    file = SubModelFile(sub_model.content)
    with Workers() as workers:
        workers.start("a plain session", _run_plain, file, replace(sub_model, content=b""), uuid)
        n_bytes: int = workers.receive(0)
    file.close()
    return n_bytes


def _run_plain(connection: Channel, file: SubModelFile, sub_model: SubModel, uuid: str) -> None:
    before = used_bytes(uuid)
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    import onnxruntime

    onnxruntime.preload_dlls()
    options = {"arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"}
    session = onnxruntime.InferenceSession(file.path, providers=[("CUDAExecutionProvider", options)])
    inputs = {name: np.array(array) for name, array in made_up(sub_model.inputs).items()}
    for _ in range(3):
        session.run(None, inputs)
    connection.send(used_bytes(uuid) - before)


def conformance() -> Check:
    """The suite of all runtimes, its slow tests included."""
    suite = ROOT / "tests" / "targets" / "host" / "runtimes" / "test_conformance.py"
    command = [sys.executable, "-m", "pytest", str(suite), "-k", "cuda-", "-m", "slow or not slow", "-rf"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="\n", flush=True)
    lines = done.stdout.strip().splitlines()
    return Check("conformance", done.returncode == 0, lines[-1] if lines else f"exit code {done.returncode}")


def checks(args: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], Check]]]:
    """The checks in their order, each with its kind and its model."""
    yield "conformance", "", conformance
    for model in args.models.split(","):
        yield from checks_of(model, args)


def checks_of(model: str, args: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], Check]]]:
    """Those of a model, which is opened by the first of them."""

    @cache
    def flow() -> Flow:
        return open_flow(model, args.device)

    @cache
    def mixed() -> Flow:
        return open_flow(model, f"{CORES}:{usable_cores() - 1},{args.device}")

    @cache
    def measured() -> list[Session]:
        return list(sessions(flow(), [int(size) for size in args.batch_sizes.split(",")]))

    yield "prediction", model, lambda: prediction(model, measured())
    yield "search", model, lambda: searched(model, flow(), measured())
    yield "boundary", model, lambda: boundary(model, args.device, args.memory_gib)
    yield "export", model, lambda: exported(model, flow(), 1)
    yield "unlike", model, lambda: unlike(model, mixed())
    yield "export", f"{model}, unlike", lambda: exported(model, mixed(), 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for every check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="one GPU; default %(default)s")
    parser.add_argument("--models", default=",".join(MODELS), help="with commas; default %(default)s")
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)), help="default %(default)s")
    parser.add_argument("--memory-gib", type=float, default=4.0, help="of the boundary; default %(default)g")
    parser.add_argument("--checks", nargs="+", choices=KINDS, default=KINDS, help="which; default all")
    args = parser.parse_args(argv)
    try:
        check_cuda_installed(f"--device {args.device}")
        gpus_named(args.device)
    except AutoautoError as error:
        print(f"not checked, there is no GPU to check: {error}")
        return SKIPPED
    all_hold = True
    for kind, model, run in checks(args):
        if kind not in args.checks:
            continue
        start_s = perf_counter()
        try:
            check = run()
        except Exception as error:  # noqa: BLE001 (the other checks still count)
            traceback.print_exc()
            check = Check(f"{kind} {model}", False, f"{type(error).__name__}: {error}")
        took = f"{perf_counter() - start_s:.0f} s"
        print(f"{'holds' if check.holds else 'FAILS'}  {check.name}: {check.figures} ({took})", flush=True)
        all_hold &= check.holds
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
