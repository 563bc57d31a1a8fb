"""Layers timed in their model against layers measured alone, on this machine: `python studies/layers_in_model.py`.

    python studies/layers_in_model.py [MODEL ...] [--batch-size N] [--rounds N]

For every model and every session that this machine has: the seconds that it takes to time the layers each way, with an
empty cache and the whole model measured, and how much faster it is in the model. Then the model is cut at a quarter, a
half and three quarters of its layers; both ranges of each cut run alone, in turns, and the median of the rounds is
compared with the estimates. "alone" adds up layers that were measured alone, scaled to the whole model; "in model" is
what plans are made by. Errors are means over the six ranges.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import mean, median
from time import perf_counter

from autoauto.evaluate.flow import Flow
from autoauto.profile.cache import ProfileCache
from autoauto.records.layers import LayerRange
from autoauto.space.knobs import Knobs
from autoauto.targets.host.runtimes.registry import SESSIONS, installed
from studies.host_benchmark import in_words, open_flow, print_row, target_precisions

MODELS = ("squeezenet", "resnet50", "bert-base-128")
COLUMNS = (
    ("model", -14),
    ("session", -16),
    ("kinds", 5),
    ("alone s", 8),
    ("in model s", 10),
    ("ratio", 6),
    ("alone", 8),
    ("in model", 8),
)


def rows(model: str, batch_size: int, n_rounds: int) -> Iterator[list[str]]:
    """A line for every session."""
    flow = open_flow(model)
    for precision in target_precisions(flow):
        for runtime in (runtime for runtime in installed() if precision in SESSIONS[runtime].precisions):
            knobs = Knobs(n_ipu=1, batch_size=batch_size, runtime=runtime, precision=precision)
            with tempfile.TemporaryDirectory() as folder:
                empty = flow.with_setting(cache=ProfileCache(Path(folder) / "profiles.db"))
                yield [model, *row(empty, knobs, n_rounds)]


def row(flow: Flow, knobs: Knobs, n_rounds: int) -> list[str]:
    """How long both ways take, and the errors of their estimates."""
    options, n_layers = flow.options(knobs), len(flow.graph)
    flow.predict(knobs)  # the whole model
    start_s = perf_counter()
    table = flow.table(knobs)
    in_model_s = perf_counter() - start_s
    start_s = perf_counter()
    alone = [0, *accumulate(layer.forward_cycles for layer in flow.profile(options).layers)]
    alone_s = perf_counter() - start_s
    cuts = [n_layers * quarter // 4 for quarter in (1, 2, 3)]
    ranges = [LayerRange(*ends) for cut in cuts for ends in ((0, cut), (cut, n_layers))]
    cycles: dict[LayerRange, list[int]] = {layers: [] for layers in ranges}
    for _ in range(n_rounds):
        for layers, measured in cycles.items():
            whole = flow.setting.compiler.compile(flow.graph, layers, flow.setting.device(options), options)
            measured.append(whole.forward_cycles)
    scale = int(table.compute_prefix_cycles[-1]) / alone[-1]
    by_alone = [scale * (alone[layers.stop] - alone[layers.start]) for layers in ranges]
    in_model = [table.compute_cycles(*layers) for layers in ranges]
    n_kinds = len({layer.kind for layer in flow.graph.layers})
    seconds = [f"{alone_s:.1f}", f"{in_model_s:.1f}", f"{alone_s / in_model_s:.1f}"]
    errors = [f"{100 * error(each, list(cycles.values())):.1f} %" for each in (by_alone, in_model)]
    return [in_words(knobs.session), str(n_kinds), *seconds, *errors]


def error(estimated: Sequence[float], measured: Sequence[Sequence[int]]) -> float:
    """The mean relative error of estimates, against the medians of what was measured."""
    return mean(abs(guess / median(each) - 1) for guess, each in zip(estimated, measured, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=4, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    args = parser.parse_args(arguments)
    print_row((name for name, _ in COLUMNS), COLUMNS)
    for model in args.models:
        for cells in rows(model, args.batch_size, args.rounds):
            print_row(cells, COLUMNS)


if __name__ == "__main__":
    main()
