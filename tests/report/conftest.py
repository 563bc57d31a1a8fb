"""A small plan, and tables as text."""

from collections.abc import Callable

import pytest
from rich.console import Console, RenderableType

from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage


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
