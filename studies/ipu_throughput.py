"""The cost model against published throughput of real IPUs: `python studies/ipu_throughput.py`.

Reads `data/measurements/throughput.json`. Conditions are those of the source: synthetic data, one IPU, available
memory proportion 0.6 (the default). A line compares the stages compiled whole with the published figure.
"""

from __future__ import annotations

import json
from typing import Any

from autoauto.flow import Flow
from autoauto.graph import load_graph
from autoauto.records.errors import DoesNotFit
from autoauto.records.places import data_dir
from autoauto.records.trial import Knobs
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu import IpuTarget


def modelled_samples_per_s(row: dict[str, Any]) -> float | None:
    """The cost model's throughput under a row's conditions; None when it does not fit."""
    cluster = load_cluster(row["cluster"]).with_synthetic_data()
    flow = Flow(load_graph(row["model"]), cluster, IpuTarget(), Precision(row["precision"]))
    knobs = Knobs(1, 0.6, row["batch_size"])
    try:
        return flow.samples_per_s(knobs, flow.measure(knobs, flow.predict(knobs)))
    except DoesNotFit:
        return None


def main() -> None:
    """Print one line a published figure."""
    print(f"{'model':14}{'precision':10}{'batch':>6}{'cost model':>12}{'published':>11}{'difference':>12}")
    for row in json.loads((data_dir() / "measurements" / "throughput.json").read_text())["rows"]:
        ours, published = modelled_samples_per_s(row), row["samples_per_s"]
        told = f"{'does not fit':>12}" if ours is None else f"{ours:12,.0f}"
        difference = "" if ours is None else f"{100 * (ours / published - 1):+11.1f}%"
        print(f"{row['model']:14}{row['precision']:10}{row['batch_size']:6}{told}{published:11,.0f}{difference:>12}")


if __name__ == "__main__":
    main()
