"""A small plan, timelines, what a small study found, and tables as text."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from rich.console import Console, RenderableType

from autoauto.records.knobs import Knobs, Objective
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.schedule import Order, Transfers
from autoauto.records.study_summary import Contender, Failure, Findings, Tried
from autoauto.records.timeline import Timeline
from autoauto.schedule.orders.registry import make_schedule, stage_devices_of
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times


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
    """Render something at a width, without colours, without blanks at line ends."""

    def render(renderable: RenderableType, width: int = 80) -> str:
        console = Console(width=width, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(renderable)
        lines = capture.get().splitlines()
        assert all(len(line) <= width for line in lines)
        return "\n".join(line.rstrip() for line in lines)

    return render


@pytest.fixture(scope="session")
def simulated() -> Callable[..., Timeline]:
    """An order with forwards of 1 cycle and backwards of 2 on every device, or what is asked for."""

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
def found(measured: Plan, estimated: Plan) -> Findings:
    """Three cells: one device is half as fast, two win with batch 8, and with memory proportion 1.0 nothing fits."""
    winner = Tried(3, Knobs(2, 0.6, 8), 200.0, 190.0, 2000, 300, compiled=True)
    tried = (
        Tried(0, Knobs(1, 0.6, 4), 100.0, 104.0, 4000, 100, compiled=True),
        Tried(1, Knobs(1, 0.6, 5), excess_bytes=2048, reason="stage 0 lacks 2 KiB; try less"),
        Tried(2, Knobs(2, 0.6, 4), 150.0, 150.0, 1500, 300, compiled=True),
        winner,
        Tried(4, Knobs(2, 1.0, 1), excess_bytes=1024, reason="no stage <fits>: layers [0, 5) need more; try less"),
    )
    failures = (Failure(5, {"n_ipu": 2, "batch_size": 9}, "RuntimeError: a <bug>"),)
    runner_up = Contender(tried[2], measured, estimated)
    contenders = (Contender(winner, measured, estimated), runner_up)
    return Findings("small", "sqlite:///x.db", Objective.THROUGHPUT, INFERENCE, tried, failures, contenders)


@pytest.fixture
def nothing(found: Findings) -> Findings:
    """The same study if nothing had fitted."""
    return replace(found, tried=tuple(tried for tried in found.tried if not tried.fits), contenders=())


@pytest.fixture
def elements() -> Callable[[str, str], list[ElementTree.Element]]:
    """Read SVG and return its elements of a class, which is well-formed XML for that."""

    def elements(svg: str, class_: str) -> list[ElementTree.Element]:
        every = ElementTree.fromstring(svg).iter()
        return [one for one in every if class_ in one.get("class", "").split()]

    return elements
