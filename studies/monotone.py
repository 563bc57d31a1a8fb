"""Whether what fits at a batch size fits below: `python studies/monotone.py [--quick] [MODEL ...]`.

Compiles models whole with the cost model, without a limit on memory, in inference (fp16, fp32, fp8) and in training
(fp16, fp32), at batch sizes of a grid up to 256 and around the last one that fits on one C600. "falls" counts the
programs that need less than one of a smaller batch: less memory, less memory with one subgraph for equal layers (what a
device gets that is too small otherwise), or little enough code where a smaller batch has too much. "fits" are the
largest batch sizes that fit on one C600, at the memory proportions with the least and the most; 256 is the end.

MODEL is a built-in name or an ONNX file (`studies/unseen_models.py` exports some); without it, all built-in models.
`--quick` takes two memory proportions instead of five, from 0.1 to 1. Exits with 1 when anything falls.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from autoauto.graph.kinds import quantise
from autoauto.graph.load import load_graph
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import OUTLINED
from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Device
from autoauto.records.installation import builtin_models
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.target import IpuTarget

MODES = {
    False: (Precision.FP16, Precision.FP32, Precision.FP8),
    True: (Precision.FP16, Precision.FP32),
}
"""Precisions of inference and of training."""
PROPORTIONS, QUICK_PROPORTIONS = (0.1, 0.2, 0.4, 0.6, 1.0), (0.1, 0.6)
BATCH_SIZES = (1, 2, 3, 5, 8, 9, 16, 23, 32, 33, 64, 100, 128, 129, 200, 256)
AROUND = 2
"""Batch sizes on either side of the last that fits."""


class Need(NamedTuple):
    """Bytes that a program needs on a device, as it is and with one subgraph for equal layers; inf: too much code."""

    plain_bytes: float
    outlined_bytes: float


class Row(NamedTuple):
    """What came of one model in one mode and precision.

    Attributes:
        n_programs: compiled.
        n_falls: of them, those that need less than a smaller batch at the same proportion.
        largest: the batch sizes that fit, one a proportion; 0 when none does.
    """

    n_programs: int
    n_falls: int
    largest: tuple[int, ...]


def need(graph: LayerGraph, device: Device, options: CompileOptions) -> Need:
    """What one program needs, whatever memory the device has."""
    too_small = replace(device, memory_bytes=0.0)  # so that equal layers are one subgraph
    try:
        memory_bytes = compiled_bytes(IpuTarget().compile(graph, LayerRange(0, len(graph)), too_small, options))
    except OutOfMemory:  # too much code
        return Need(float("inf"), float("inf"))
    outlined_bytes = sum(memory_bytes.values())
    return Need(outlined_bytes - memory_bytes.get(OUTLINED, 0), outlined_bytes)


def falls(needs: Sequence[Need]) -> int:
    """How many of the needs at growing batch sizes are below an earlier one.

    >>> falls([Need(1.0, 1.0), Need(3.0, 2.0), Need(2.0, 2.0), Need(2.0, 1.0), Need(3.0, 2.0)])
    2
    """
    most = accumulate(needs, lambda seen, new: Need(*map(max, seen, new)))
    return sum(any(new < before for new, before in zip(*both, strict=True)) for both in zip(needs, most, strict=True))


def sweep(graph: LayerGraph, device: Device, precision: Precision, training: bool, proportions: Sequence[float]) -> Row:
    """Compile a model at the batch sizes of the grid and where it ends on `device`, at all proportions."""
    n_programs, n_falls, largest = 0, 0, []
    for proportion in proportions:

        def at(batch_size: int, proportion: float = proportion) -> Need:
            return need(graph, device, CompileOptions(batch_size, precision, training, IpuSession(proportion)))

        needs = {n: at(n) for n in BATCH_SIZES}
        largest.append(last_fit(needs, at, device.memory_bytes))
        n_programs += len(needs)
        n_falls += falls([needs[n] for n in sorted(needs)])
    return Row(n_programs, n_falls, tuple(largest))


def last_fit(needs: dict[int, Need], at: Callable[[int], Need], memory_bytes: float) -> int:
    """The largest batch size that fits, 0 when none does; adds what is compiled for it and around it to `needs`."""

    def fits(batch_size: int) -> bool:
        if batch_size not in needs:
            needs[batch_size] = at(batch_size)
        return min(needs[batch_size]) <= memory_bytes

    last = max((n for n in BATCH_SIZES if fits(n)), default=0)
    after = min((n for n in BATCH_SIZES if n > last), default=last)
    last += bisect_left(range(last + 1, after), True, key=lambda n: not fits(n))
    around = range(last - AROUND, last + AROUND + 2)
    return max((n for n in around if 1 <= n <= BATCH_SIZES[-1] and fits(n)), default=0)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line a model, mode and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all built-in models")
    parser.add_argument("--quick", action="store_true", help="two memory proportions")
    args = parser.parse_args(argv)
    proportions = QUICK_PROPORTIONS if args.quick else PROPORTIONS
    device, n_falls = load_cluster("c600").devices[0], 0
    print(f"{'model':26}{'mode':11}{'precision':>9}{'programs':>10}{'falls':>7}{'fits':>12}")
    for model in args.models or builtin_models():
        plain = load_graph(model)
        if plain.fixed_batch is not None:
            print(f"{Path(model).stem} has a fixed batch size: left out", file=sys.stderr)
            continue
        for training, precisions in MODES.items():
            for precision in precisions:
                graph = quantise(plain) if precision is Precision.FP8 else plain
                row = sweep(graph, device, precision, training, proportions)
                n_falls += row.n_falls
                ends = f"{min(row.largest)} to {max(row.largest)}"
                mode = "training" if training else "inference"
                name = f"{Path(model).stem:26}{mode:11}{precision:>9}"
                print(f"{name}{row.n_programs:>10,}{row.n_falls:>7}{ends:>12}", flush=True)
    return 1 if n_falls else 0


if __name__ == "__main__":
    sys.exit(main())
