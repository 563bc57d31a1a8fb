"""The drawings of docs/concepts.md, by the charts of reports: `python studies/drawings.py [FOLDER]`.

An SVG for each concept, light or dark as its reader prefers. Times are cycles of made-up stages, put in order by the
package's schedules and its simulator; the costs of the last drawing are those of a small search.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import autoauto
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import BACKWARD, FORWARD, Order, Transfers
from autoauto.report.charts.chart import Axis, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.charts.plan import timeline_chart
from autoauto.report.charts.study import parity_chart
from autoauto.report.charts.svg import picture_file
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times

FOLDER = Path(__file__).parents[1] / "docs" / "drawings"
WIDTH, ROW = 520, 34.0
"""Of a picture and of a row, in pixels: text can be read on a telephone."""
LIGHT = ("s4", "s1", "s2")
"""Styles on which dark text can be read."""
LAYERS = (0, 4, 6, 10)
"""The cuts of the pipeline that is drawn: the first layer of every stage, and the number of layers."""


def timeline(
    order: Order, forward: Sequence[int], n_micro_batches: int, comm: int = 0, transfers: Transfers = Transfers.OVERLAP
) -> Timeline:
    """An order on devices whose forward takes so many cycles, its backward twice as many."""
    n_stages = len(forward)
    schedule = make_schedule(order, n_stages, n_micro_batches)
    cycles, double = [Fraction(n) for n in forward], [Fraction(2 * n) for n in forward]
    zero, links = [Fraction(0)] * n_stages, [Fraction(comm)] * n_stages
    times = stage_times(range(n_stages), cycles, double, zero, links, split_backward=False)
    return simulate(schedule, times, transfers)


def drawn(name: str, title: str, made: Timeline, *more: Series) -> Chart:
    """A timeline as wide as a page of text, with more series on it."""
    (panel,) = timeline_chart(made, None).panels
    axis, height = Axis("time (cycles)", 0.0, made.makespan_cycles), ROW * made.schedule.n_devices
    panel = panel._replace(x=axis, width=WIDTH, height=height, series=(*panel.series, *more))
    return Chart(name, title, "", (panel,))


def rows(title: str, names: Sequence[str], across: Axis, series: Sequence[Series]) -> Chart:
    """A chart of bars in named rows."""
    panel = Panel("", across, category_axis("", tuple(names)), tuple(series), WIDTH, ROW * len(names))
    return Chart("rows", title, "", (panel,))


def bars(name: str, style: str, marks: Sequence[tuple[float, float, int, str]]) -> Series:
    """Bars from start to stop in a row, with a text."""
    return Series(name, style, Shape.BAR, tuple(Mark(x, row, text, text, stop) for x, stop, row, text in marks))


def pipeline() -> Chart:
    """Layers, and the stages that hold them."""
    n_layers = LAYERS[-1]
    layers = bars("", "do-forward", [(i, i + 1, 0, str(i)) for i in range(n_layers)])
    stages = [
        bars("", LIGHT[index], [(first, stop, row, f"{name} {index}") for row, name in ((1, "stage"), (2, "device"))])
        for index, (first, stop) in enumerate(pairwise(LAYERS))
    ]
    return rows("A pipeline", ("layers", "stages", "devices"), Axis("layer", 0, n_layers), [layers, *stages])


def micro_batch() -> Chart:
    """Five micro-batches in three stages; the third of them has a frame."""
    ring = [(2.0 * (2 + device), 2.0 * (3 + device), device, "") for device in range(3)]
    return drawn("micro-batch", "Micro-batches", timeline(Order.INFERENCE, (2, 2, 2), 5), bars("", "ring", ring))


def period() -> Chart:
    """Stages that all compute and then all exchange; lines where a period ends."""
    made = timeline(Order.INFERENCE, (3, 5, 2), 4, comm=1, transfers=Transfers.BARRIER)
    ends = sorted({stop for exchanges in made.exchanges for stop in exchanges[:, 1].tolist()})
    marks = tuple(Mark(made.cycles(end), device) for end in ends for device in range(3))
    return drawn("period", "The period", made, Series("", "limit", Shape.TICK, marks))


def bubble() -> Chart:
    """A step of 1F1B: what is grey is idle."""
    return drawn("bubble", "A bubble", timeline(Order.ONE_F_ONE_B, (1, 1, 1, 1), 6))


def stash() -> Chart:
    """How many micro-batches the first device has in flight, in GPipe and in 1F1B."""
    series, stop = [], 0.0
    for index, (name, order) in enumerate((("GPipe", Order.GPIPE), ("1F1B", Order.ONE_F_ONE_B))):
        made = timeline(order, (1, 1, 1, 1), 8)
        steps = tuple(Mark(x, y) for x, y in _in_flight(made))
        series += [Series("", f"s{index}", Shape.LINE, steps), Series(name, f"s{index}", Shape.DOT, steps[1::2])]
        stop = max(stop, made.makespan_cycles)
    panel = Panel("", Axis("time (cycles)", 0, stop), Axis("stashed micro-batches", 0, 9), tuple(series), WIDTH, 150)
    return Chart("stash", "The stash of the first of four devices", "", (panel,))


def _in_flight(made: Timeline) -> Iterator[tuple[float, int]]:
    """The corners of the number of micro-batches that device 0 has begun and not ended."""
    program = made.schedule.programs[0]
    kinds = made.schedule.codes.kinds(program)
    moments = [(start, 1) for start in made.starts[0][kinds == FORWARD].tolist()]
    moments += [(stop, -1) for stop in made.stops[0][kinds == BACKWARD].tolist()]
    n_stashed = 0
    for tick, change in sorted(moments):
        yield made.cycles(tick), n_stashed
        n_stashed += change
        yield made.cycles(tick), n_stashed


def replica() -> Chart:
    """Two pipelines side by side, each with micro-batches of its own."""
    made = timeline(Order.INFERENCE, (2, 2), 3)
    names = tuple(f"replica {copy}, device {device}" for copy in range(2) for device in range(2))
    both = [
        bars(
            f"replica {copy}",
            LIGHT[copy],
            [
                (made.cycles(start), made.cycles(stop), 2 * copy + device, f"{copy + 2 * i}")
                for device in range(2)
                for i, (start, stop) in enumerate(zip(made.starts[device], made.stops[device], strict=True))
            ],
        )
        for copy in range(2)
    ]
    return rows("Replicas", names, Axis("time (cycles); numbers are micro-batches", 0, made.makespan_cycles), both)


def tensor_parallelism() -> Chart:
    """One GPU, and a group of two that has half of every matrix each and adds up what both have."""
    whole = bars("multiply by a matrix", "do-forward", [(0, 4, 0, "A"), (4, 8, 0, "B")])
    halves = [(x, x + 2, row, f"half of {name}") for row in (1, 2) for x, name in ((0, "A"), (3, "B"))]
    sums = [(x, x + 1, row, "") for row in (1, 2) for x in (2, 5)]
    group = [bars("", "do-forward", halves), bars("all-reduce", "do-all-reduce", sums)]
    names = ("1 GPU", "group, GPU 0", "group, GPU 1")
    return rows("Tensor parallelism", names, Axis("time", 0, 8), [whole, *group])


def kv_cache() -> Chart:
    """What prefill writes, and what each decode step reads and adds."""
    n_prompt, names = 6, ("prefill", "decode 1", "decode 2", "decode 3")
    written = [(0, n_prompt, 0, "prompt"), *((n_prompt + i, n_prompt + i + 1, i + 1, "") for i in range(3))]
    read = [(0, n_prompt + i, i + 1, f"{n_prompt + i} tokens") for i in range(3)]
    across = Axis("keys and values (tokens)", 0, n_prompt + 3)
    return rows("A KV cache", names, across, [bars("written", "s1", written), bars("read", "s4", read)])


def estimate() -> Chart:
    """Estimates of a small search against what the model of the compiler gives for whole stages."""
    space = autoauto.SearchSpace(n_ipu=(1, 2, 4), memory_proportion=(0.6,), batch_size=(1, 2, 4, 8))
    flow = autoauto.load_flow("resnet50", "bow-2000")
    summary = autoauto.search_flow(flow, space, method=autoauto.Method.EXHAUSTIVE).summary
    assert summary is not None
    return parity_chart(summary)


DRAWINGS: Mapping[str, Callable[[], Chart]] = {
    "pipeline": pipeline,
    "micro-batch": micro_batch,
    "period": period,
    "bubble": bubble,
    "stash": stash,
    "replica": replica,
    "tensor-parallelism": tensor_parallelism,
    "kv-cache": kv_cache,
    "estimate": estimate,
}
"""By the name of the file."""


def main() -> None:
    """Write all drawings."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        (folder / f"{name}.svg").write_text(picture_file(draw()) + "\n", encoding="utf-8")
    print(f"{len(DRAWINGS)} drawings")


if __name__ == "__main__":
    main()
