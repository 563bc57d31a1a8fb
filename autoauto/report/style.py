"""How reports look: `plain_table`, `format_value`, `LayerName`, `ACTIVITIES`, and the origin of a number in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from autoauto.records.schedule import KINDS
from autoauto.records.units import format_bytes

ESTIMATED = "estimated"
SIMULATED = "simulated"
MEASURED_BY_COST_MODEL = "measured (cost model)"  # the ipu target compiles stages whole; no hardware is involved
MEASURED_BY_DEVICES = "measured"


class Activity(NamedTuple):
    """How an activity of a device is shown."""

    letter: str
    name: str
    colour: str


ACTIVITIES = (
    Activity("F", "forward", "#56B4E9"),
    Activity("B", "backward", "#E69F00"),
    Activity("W", "weight gradient", "#009E73"),
    Activity("C", "check", "#CC79A7"),
    Activity("x", "exchange", "#999999"),
    Activity(".", "idle", ""),
)
"""By index into `KINDS`, then exchange and idle; the colours are of `[okabe-ito]`."""

EXCHANGE, IDLE = len(KINDS), len(KINDS) + 1


def measured_by(target: str) -> str:
    """The origin of a measured number, by the version of the target that measured it.

    >>> measured_by("ipu-5"), measured_by("host 1")
    ('measured (cost model)', 'measured')
    """
    return MEASURED_BY_COST_MODEL if target.startswith("ipu") else MEASURED_BY_DEVICES


def plain_table(title: str, columns: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """An empty table with a line under its head; the columns that are also in `numbers` are set flush right."""
    right = set(numbers)
    table = Table(
        title=Text(title, "bold"),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def format_value(quantity: str, value: float) -> str:
    """Write a value by the unit in its field's name.

    >>> format_value("forward_cycles", 1234567), format_value("memory_bytes.temporary", 2048)
    ('1,234,567', '2.0 KiB')
    >>> format_value("samples_per_s", 1234.56), format_value("busy_fraction", 0.5), format_value("latency_s", 0.0123)
    ('1,234.6', '50.0 %', '12.300 ms')
    """
    if "_bytes" in quantity:
        return format_bytes(int(value))
    if quantity == "latency_s":
        return f"{1e3 * value:,.3f} ms"
    if quantity.endswith("_fraction"):
        return f"{100 * value:.1f} %"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def difference_percent(estimated: float, measured: float) -> float | None:
    """How far the estimate is from the measured value, in percent of the latter; None when only that is 0.

    >>> difference_percent(11, 10), difference_percent(0, 0), difference_percent(1, 0)
    (10.0, 0.0, None)
    """
    if measured:
        return 100.0 * (estimated - measured) / measured
    return None if estimated else 0.0


def format_difference(percent: float | None) -> str:
    """Write a difference in percent, "-" where there is none.

    >>> format_difference(-3.04), format_difference(None)
    ('-3.0 %', '-')
    """
    return "-" if percent is None else f"{percent:+.1f} %"


@dataclass(frozen=True, slots=True)
class LayerName:
    """The name of a layer in one line, shortened to the width of its column."""

    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Write the name, shortened if it is wider than the column."""
        yield Text(shorten(self.name, options.max_width, "..." if options.ascii_only else "…"), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Between 8 columns and the whole name."""
        return Measurement(min(8, len(self.name)), len(self.name)).with_maximum(options.max_width)


def shorten(name: str, width: int, dots: str = "…") -> str:
    """Make a layer's name at most `width` long; numbers and the end stay, because they distinguish layers.

    >>> shorten("/encoder/layer.7/attention/query/MatMul", 30)
    '/e/layer.7/a/q/MatMul'
    >>> shorten("/encoder/layer.7/attention/query/MatMul", 10)
    '…/q/MatMul'
    """
    if len(name) > width:
        *parents, last = name.split("/")
        name = "/".join([part if any(map(str.isdigit, part)) else part[:1] for part in parents] + [last])
    return name if len(name) <= width else (dots + name[len(name) - width + len(dots) :])[:width]
