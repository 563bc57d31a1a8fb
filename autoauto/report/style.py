"""How reports look: `format_value`, `shorten`, `printable`, `ACTIVITIES`, `spans_besides_actions`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from autoauto.records.schedule import KINDS
from autoauto.records.units import IntArray, format_bytes, format_number

if TYPE_CHECKING:
    from autoauto.records.plans.timeline import Timeline


class Activity(NamedTuple):
    """An activity of a device: its letter, name and colour in pictures."""

    letter: str
    name: str
    colour: str


ACTIVITIES = (
    Activity("F", "forward", "#56B4E9"),
    Activity("B", "backward", "#E69F00"),
    Activity("W", "weight gradient", "#009E73"),
    Activity("C", "check", "#CC79A7"),
    Activity("x", "exchange", "#999999"),
    Activity("R", "all-reduce", "#D55E00"),
    Activity("U", "update", "#F0E442"),
    Activity(".", "idle", ""),
)
"""By index into `KINDS`, then what is no action of the schedule; the colours are of `[okabe-ito]`."""

EXCHANGE, ALL_REDUCE, UPDATE, IDLE = range(len(KINDS), len(ACTIVITIES))


def spans_besides_actions(timeline: Timeline, device: int) -> IntArray:
    """(n, 3) activity, start and stop tick of the exchanges of a device, and of its part of the end of a step."""
    rows = [np.insert(timeline.exchanges[device], 0, EXCHANGE, axis=1)]
    if timeline.step_end is not None:
        for activity, spans in ((ALL_REDUCE, timeline.step_end.all_reduce), (UPDATE, timeline.step_end.update)):
            rows.append(np.insert(spans[device : device + 1], 0, activity, axis=1))
    every = np.concatenate(rows)
    longer: IntArray = every[every[:, 2] > every[:, 1]]
    return longer


def format_value(quantity: str, value: float) -> str:
    """Write a value by the unit in its field's name."""
    if "_bytes" in quantity:
        return format_bytes(int(value))
    if quantity.endswith("_percent"):
        return format_gain(value) if quantity == "gain_percent" else format_difference(value)
    if quantity.endswith("_fraction"):
        return f"{100 * value:.1f} %"
    if quantity == "latency_s":
        return f"{format_number(1e3 * value, 3)} ms" if value < 1.0 else f"{format_number(1e3 * value, 0)} ms"
    if quantity == "tokens_per_s" and value >= 1000:
        value = round(value)
    return format_number(value) if isinstance(value, float) else f"{value:,}"


def difference_percent(estimated: float, measured: float) -> float | None:
    """Difference of an estimate from the measured value, in percent of the measured one; None if only that is 0."""
    if measured:
        return 100.0 * (estimated - measured) / measured
    return None if estimated else 0.0


def format_difference(percent: float | None) -> str:
    """Write a difference in percent, "-" where there is none."""
    return "-" if percent is None else f"{percent:+.1f} %"


def format_gain(percent: float) -> str:
    """Write how much better something is: in percent, from twice as good on as a factor.

    >>> format_gain(34.52), format_gain(2190.1)
    ('+34.5 %', 'x 22.9')
    """
    return format_difference(percent) if percent < 100 else f"x {1 + percent / 100:,.1f}"


def shorten(name: str, width: int, dots: str = "…") -> str:
    """Make a layer's name at most `width` long; numbers and the end stay, because they distinguish layers."""
    if len(name) <= width:
        return name
    *parents, last = name.split("/")
    parts = [part if any(map(str.isdigit, part)) else part[:1] for part in parents]
    name = "/".join([*parts, last])
    if len(name) <= width:
        return name
    return (dots + name[len(name) - width + len(dots) :])[:width]


def assumed_text(notes: Sequence[str]) -> str:
    """The assumptions about a model and its numbers: one line, or a line each if one is too long; empty without any.

    >>> assumed_text(["computed in fp16", "height 320"]), assumed_text([])
    ('assumed: computed in fp16; height 320', '')
    >>> print(assumed_text(["tokens are like those of measured rows", "every client sends ten requests", "batch 1"]))
    assumed:
      tokens are like those of measured rows
      every client sends ten requests
      batch 1
    """
    if not notes:
        return ""
    line = f"assumed: {'; '.join(notes)}"
    if len(line) <= 80 or len(notes) == 1:
        return line
    return "\n  ".join(["assumed:", *notes])


def printable(text: str, keep: str = "\n") -> str:
    """Text that controls no terminal: control characters, bidirectional and invisible ones are shown as escapes.

    >>> printable("conv\\x1b[2J\\u202e"), printable("a\\nb", keep="")
    ('conv\\\\x1b[2J\\\\u202e', 'a\\\\nb')
    """
    if text.isprintable():
        return text
    shown = ""
    for char in text:
        if char.isprintable() or char in keep:
            shown += char
        else:
            shown += char.encode("unicode_escape").decode()
    return shown


def broken_command(command: str, width: int) -> list[str]:
    """The lines of a command as a shell reads them, no wider than `width` where its words are not.

    >>> broken_command("autoauto search --constraint 'n_ipu < 3' --top 5", 34)
    ['  autoauto search --constraint \\\\', "    'n_ipu < 3' --top 5"]
    """
    lines = [" "]
    for word in map(shlex.quote, shlex.split(command)):
        if len(lines[-1]) + len(word) + 3 > width and lines[-1].strip():  # 3 for the blank and " \" at the end
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return lines


_UNIT = re.compile(r"(\d) (%|[KMG]iB|B\b|ms|µs|(?:sample|token)s/s)")


def tag(name: str, *content: str, **attributes: object) -> str:
    """An element around `content`, which is markup; attributes that are None are left out.

    Names end with an underscore where Python reserves them, and hyphens are written as underscores.

    >>> tag("text", "F0", x=1.25, class_="muted", text_anchor=None)
    '<text x="1.2" class="muted">F0</text>'
    """
    head = name
    for key, value in attributes.items():
        if value is not None:
            text = escape(str(value))
            if isinstance(value, float):
                text = f"{value:.1f}".removesuffix(".0")  # a tenth of a pixel
            head += f' {key.rstrip("_").replace("_", "-")}="{text}"'
    return f"<{head}>{''.join(content)}</{name}>"


def words(text: object) -> str:
    """Text as markup; no line break separates a number from its unit.

    >>> words("a < b"), words("22 % of it")
    ('a &lt; b', '22\xa0% of it')
    """
    return _UNIT.sub("\\1\xa0\\2", escape(str(text)))
