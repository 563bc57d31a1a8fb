"""A small plan, timelines, the summary of a small study, and tables as text."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from rich.console import Console, RenderableType

from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order, Transfers
from autoauto.report.charts.chart import Chart
from autoauto.report.charts.svg import panel_svg
from autoauto.report.tables.table import Table, renderable
from autoauto.schedule.orders.registry import make_schedule, stage_devices_of
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Status
from tests.report.made import made


@pytest.fixture
def measured() -> Plan:
    """Two stages: the first computes longest, the second transfers longest; the period is 2000 + 300."""
    return Plan(
        (
            Stage(LayerRange(0, 2), 0, 2000, 0, 50, 150, {"vertexCode": 1024, "temporary": 1024}, 4096),
            Stage(LayerRange(2, 5), 1, 1000, 0, 200, 100, {"vertexCode": 3072}, 4096),
        )
    )


@pytest.fixture
def estimated() -> Plan:
    """The same stages as estimated: the first takes 10 % more, and has a category that was not measured."""
    return Plan(
        (
            Stage(LayerRange(0, 2), 0, 2200, 0, 50, 150, {"vertexCode": 1024, "parameter": 512}, 4096),
            Stage(LayerRange(2, 5), 1, 1000, 0, 200, 100, {"vertexCode": 1536}, 4096),
        )
    )


@pytest.fixture
def text() -> Callable[..., str]:
    """Render a table, or text, at a width, without colours, without blanks at line ends."""

    def render(shown: Table | RenderableType, width: int = 80) -> str:
        console = Console(width=width, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(renderable(shown) if isinstance(shown, Table) else shown)
        lines = capture.get().splitlines()
        assert all(len(line) <= width for line in lines)
        return "\n".join(line.rstrip() for line in lines)

    return render


@pytest.fixture(scope="session")
def simulated() -> Callable[..., Timeline]:
    """Simulate an order on `p` devices with `m` micro-batches; forwards take 1 cycle and backwards 2 by default."""

    def simulated(
        order: Order, p: int, m: int, forward: str = "1", backward: str = "2", comm: str = "0", barrier: bool = False
    ) -> Timeline:
        n_chunks = 2 if order is Order.INTERLEAVED else 1
        devices = stage_devices_of(order, p, n_chunks)
        cycles = ([Fraction(text)] * p for text in (forward, backward, "0", comm))
        times = stage_times(devices, *cycles, split_backward=False)
        schedule = make_schedule(order, p, m, n_chunks=n_chunks)
        return simulate(schedule, times, Transfers.BARRIER if barrier else Transfers.OVERLAP)

    return simulated


INFERENCE = {"model": "net", "cluster": "pair", "mode": "inference", "precision": "fp16", "autoauto": "0.1.0"}


@pytest.fixture
def summary(measured: Plan, estimated: Plan) -> StudySummary:
    """Three cells: one device is half as fast, two win with batch 8, and none fits with memory proportion 1.0."""
    slow = made(
        0,
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4),
        100.0,
        estimated_samples_per_s=104.0,
        compute_cycles=4000,
        transfer_cycles=100,
    )
    slow = slow.with_values(latency_s=0.008)
    large = made(
        1,
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=5),
        excess_bytes=2048,
        reason="stage 0 lacks 2 KiB; try less",
    )
    second = made(
        2,
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4),
        150.0,
        estimated_samples_per_s=150.0,
        compute_cycles=1500,
        transfer_cycles=300,
    )
    second = second.with_values(latency_s=0.01)
    winner = made(
        3,
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8),
        200.0,
        estimated_samples_per_s=190.0,
        compute_cycles=2000,
        transfer_cycles=300,
    )
    winner = winner.with_values(latency_s=0.014)
    unfit = made(
        4,
        Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1),
        excess_bytes=1024,
        reason="no stage <fits>: layers [0, 5) need more; try less",
    )
    trials = (slow, large, second, winner, unfit)
    failures = (
        made(5, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=9), status=Status.BUG, reason="RuntimeError: a <bug>"),
    )
    finalists = tuple(replace(trial, measured=measured, estimate=estimated) for trial in (winner, second))
    return StudySummary("small", "sqlite:///x.db", Objective.THROUGHPUT, INFERENCE, trials, failures, finalists)


@pytest.fixture
def nothing_fits(summary: StudySummary) -> StudySummary:
    """The same study if no configuration had fitted."""
    return replace(summary, trials=tuple(trial for trial in summary.trials if not trial.fits), finalists=())


@pytest.fixture
def elements() -> Callable[..., list[ElementTree.Element]]:
    """Draw a panel as SVG, well-formed XML, and return its elements of a class, or those in groups of the class."""

    def elements(chart: Chart, class_: str, panel: int = 0) -> list[ElementTree.Element]:
        every = ElementTree.fromstring(panel_svg(chart, panel)).iter()
        named = [element for element in every if class_ in element.get("class", "").split()]
        return [inner for element in named for inner in (element if element.tag == "g" else [element])]

    return elements
