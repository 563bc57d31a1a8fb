"""The forecast of training against published throughput of Bow Pods: `python studies/training_accuracy.py`.

Prints for every row of `data/measurements/training.json` the throughput of the plan that autoauto makes under the
published conditions, modelled | published | error, and how much memory it lacks. Where it does not fit, its throughput
is that of devices with as much memory as it needs. Nothing was fitted to the rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.load import load_flow
from autoauto.records.hardware import Cluster
from autoauto.records.installation import data_dir
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.profile import Optimizer
from autoauto.records.schedule import Order
from autoauto.records.units import format_bytes

MORE_MEMORY = 4
"""The largest factor by which the memory of the devices is raised."""


class Result(NamedTuple):
    """A row of the figures: samples a second as modelled and as published, and the bytes that a device lacks."""

    name: str
    modelled: float
    published: float
    excess_bytes: int

    @property
    def error(self) -> float:
        """Relative error of the model."""
        return self.modelled / self.published - 1


def knobs_of(row: dict[str, Any]) -> Knobs:
    """The configuration of a row; Graphcore's PyTorch trains in PopART's order."""
    settings = row["settings"]
    return Knobs(**{**settings, "optimizer": Optimizer(settings["optimizer"])}, schedule=Order.POPART)


def result_of(row: dict[str, Any]) -> Result:
    """The modelled throughput of a row."""
    flow, knobs = load_flow(row["model"], row["cluster"]), knobs_of(row)
    trial = flow.evaluate(knobs)
    excess_bytes = trial.excess_bytes
    for factor in range(2, MORE_MEMORY + 1):
        if not trial.fits:
            trial = _with_memory(flow, factor).evaluate(knobs)
    return Result(row["name"], trial.samples_per_s, row["samples_per_s"], excess_bytes)


def _with_memory(flow: Flow, factor: int) -> Flow:
    cluster: Cluster = flow.cluster
    devices = (replace(device, memory_bytes=device.memory_bytes * factor) for device in cluster.devices)
    return replace(flow, cluster=replace(cluster, devices=tuple(devices)))


def lines(results: list[Result]) -> Iterator[str]:
    """The table, and the mean error."""
    yield f"{'row':32}{'modelled':>10}{'published':>11}{'error':>9}  lacks"
    for result in results:
        lacks = format_bytes(result.excess_bytes) if result.excess_bytes else "nothing"
        yield f"{result.name:32}{result.modelled:10,.0f}{result.published:11,.0f}{result.error:+9.1%}  {lacks}"
    yield f"mean absolute error: {mean(abs(result.error) for result in results):.1%}"


def main() -> int:
    """Print the table."""
    rows = json.loads(Path(data_dir() / "measurements" / "training.json").read_text(encoding="utf-8"))["rows"]
    print("\n".join(lines(list(map(result_of, rows)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
