"""A small plan, timelines, and tables as text."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from rich.console import Console, RenderableType

from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.schedule import Order, Transfers
from autoauto.records.timeline import Timeline
from autoauto.schedule.orders import make_schedule, stage_devices_of
from autoauto.schedule.simulate import simulate
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
