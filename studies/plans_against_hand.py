"""Plans of training against plans by hand, all compiled: `python studies/plans_against_hand.py [--quick] [FILE ...]`.

A line is a model, built in or a FILE, with one set of knobs. `planned` is what autoauto measures for these knobs,
modelled samples a second with every stage compiled whole; the others are what people write by hand, for the same knobs:

    even         all stages compute about equally long
    by block     all stages have about equally many blocks (encoder layers)
    published    encoder layers a device as `data/measurements/training.json` has them for the model

"-" does not fit, or is not known. `gain` is how much faster the planned one is than the best of the others. A line for
every model follows: in how many settings a plan by hand fits, the smallest and the mean gain there, and in how many
only the planned one fits. The exit code is 1 if any is slower by more than rounding.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.errors import DoesNotFit
from autoauto.records.installation import data_dir
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Recompute

MODELS = (
    "bert-base-128-mlm",
    "bert-base-384-mlm",
    "bert-base-512-mlm",
    "bert-large-128-mlm",
    "bert-large-384-mlm",
    "bert-large-512-mlm",
    "bert-large-384-squad",
    "vit-b16-train",
    "resnet50-train",
    "bert-base-256",
    "resnet50",
    "vit-b16",
)
QUICK = ("resnet50-train", "vit-b16-train")
ROUNDING = 1e-3  # sums of layers and stages compiled whole differ by so much
WIDTHS = (6, 8, 10, 6, 10, 10, 10, 10, 10)
_SWITCH = ("off", "on")
COLUMNS = ("model", "n_ipu", "order", "recompute", "batch", "planned", "even", "by block", "published", "gain")


class Line(NamedTuple):
    """The knobs of a line, the planned samples a second, and those by hand, 0 where a plan does not fit."""

    model: str
    knobs: Knobs
    planned: float
    by_hand: dict[str, float]

    @property
    def gain(self) -> float | None:
        """How much faster the planned one is than the best of the others; None where nothing fits."""
        best = max(self.by_hand.values(), default=0.0)
        return self.planned / best - 1 if best else None


def settings(quick: bool) -> Iterator[Knobs]:
    """All knobs to compare."""
    batch_sizes, devices = ((8,), (4,)) if quick else ((1, 4), (4, 8))
    orders = (Order.POPART,) if quick else (Order.POPART, Order.ONE_F_ONE_B)
    recomputes: tuple[bool | Recompute, ...] = (True, Recompute.AUTO) if quick else (False, True, Recompute.AUTO)
    for n_ipu, schedule, recompute, batch_size in product(devices, orders, recomputes, batch_sizes):
        yield Knobs(n_ipu, batch_size, schedule=schedule, recompute=recompute, n_micro_batches=32)


def line(flow: Flow, name: str, knobs: Knobs, published: Sequence[int]) -> Line:
    """Compile the plan and those by hand."""
    partitions = {"even": even(flow, knobs), "by block": by_block(flow, knobs.n_ipu), "published": ()}
    if published and len(published) == knobs.n_ipu:
        partitions["published"] = by_counts(flow, published)
    trial = flow.evaluate(knobs)
    by_hand = {kind: measured(flow, knobs, partition) if partition else 0.0 for kind, partition in partitions.items()}
    return Line(name, knobs, trial.samples_per_s or 0.0, by_hand)


def measured(flow: Flow, knobs: Knobs, partition: Sequence[int]) -> float:
    """Samples a second of stages compiled whole; 0 where they do not fit."""
    try:
        return flow.pipelines.measured_samples_per_s(knobs, flow.measure(knobs, flow.plans.cut_at(knobs, partition)))
    except DoesNotFit:
        return 0.0


def even(flow: Flow, knobs: Knobs) -> tuple[int, ...]:
    """The legal cuts nearest to equal shares of all compute."""
    table = flow.costs.pipeline_table(knobs.with_values(recompute=knobs.mode.recompute is True))
    cuts, prefix = np.flatnonzero(table.cut_allowed), table.compute_prefix_cycles
    shares = np.arange(1, knobs.n_ipu) * (prefix[-1] / knobs.n_ipu)
    inner = {int(cuts[abs(prefix[cuts] - share).argmin()]) for share in shares} - {0, table.n_layers}
    return (0, *sorted(inner), table.n_layers) if len(inner) == knobs.n_ipu - 1 else ()


def by_block(flow: Flow, n_ipu: int) -> tuple[int, ...]:
    """Cuts into stages of about equally many blocks."""
    n_blocks = len(flow.graph.blocks)
    counts = [n_blocks * (i + 1) // n_ipu - n_blocks * i // n_ipu for i in range(n_ipu)]
    return by_counts(flow, counts) if n_blocks >= n_ipu else ()


def by_counts(flow: Flow, counts: Sequence[int]) -> tuple[int, ...]:
    """Cuts before as many blocks as each device has; a first device without any has what lies before the blocks."""
    blocks = flow.graph.blocks
    starts = [block.layers.start for block in blocks]
    module = f"{blocks[0].module}."
    first = next((i for i, layer in enumerate(flow.graph.layers) if layer.name.startswith(module)), 0)
    cuts = (starts[n] if n else first for n in accumulate(counts[:-1]))
    return (0, *cuts, len(flow.graph))


def published_counts(model: str) -> Sequence[int]:
    """Encoder layers a device of the first row of a model."""
    rows: list[dict[str, Any]] = json.loads((data_dir() / "measurements" / "training.json").read_text())["rows"]
    return next((row["layers_per_ipu"] for row in rows if row["model"] == model and "layers_per_ipu" in row), ())


def lines(models: Sequence[str], quick: bool) -> Iterator[Line]:
    """All lines of the table."""
    for model in models:
        flow, published = load_flow(model, "bow-pod16"), published_counts(model)
        yield from map(partial(line, flow, Path(model).stem, published=published), settings(quick))


def text(row: Line) -> str:
    """A line of the table."""
    knobs, (*speeds,) = row.knobs, (row.planned, *row.by_hand.values())
    numbers = (f"{speed:,.1f}" if speed else "-" for speed in speeds)
    recompute = knobs.mode.recompute if isinstance(knobs.mode.recompute, Recompute) else _SWITCH[knobs.mode.recompute]
    gain = "-" if row.gain is None else f"{row.gain:+.2%}"
    cells = row.model, knobs.n_ipu, knobs.mode.order, recompute, knobs.batch_size, *numbers, gain
    return _aligned(cells)


def _aligned(cells: Sequence[object]) -> str:
    first, *others = cells
    return f"{first!s:<22}" + "".join(f"{cell!s:>{w}}" for cell, w in zip(others, WIDTHS, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and how many lines lose."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="two models and few settings")
    args = parser.parse_args(arguments)
    print(_aligned(COLUMNS))
    rows = []
    for row in lines(args.files or (QUICK if args.quick else MODELS), args.quick):
        print(text(row), flush=True)
        rows.append(row)
    for model in dict.fromkeys(row.model for row in rows):
        print(summary(model, [row for row in rows if row.model == model]))
    gains = [row.gain for row in rows if row.gain is not None]
    lost = [gain for gain in gains if gain < -ROUNDING]
    print(f"{len(gains)} settings; slower than by hand: {len(lost)}; smallest gain {min(gains, default=0.0):+.2%}")
    return bool(lost)


def summary(model: str, rows: Sequence[Line]) -> str:
    """The line of a model."""
    gains = [row.gain for row in rows if row.gain is not None]
    alone = sum(row.gain is None and row.planned > 0 for row in rows)
    by_hand = f", gain {min(gains):+.2%}, mean {mean(gains):+.2%}" if gains else ""
    return f"{model:22}{len(gains):4} by hand{by_hand}; {alone} planned only"


if __name__ == "__main__":
    sys.exit(main())
