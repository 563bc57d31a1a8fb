"""The page of a timeline: the bars of its figure, and what a browser draws."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.records.errors import BadInput, MissingExtra
from autoauto.records.schedule import ActionKind, Order
from autoauto.records.timeline import Timeline
from autoauto.report.html import timeline as timeline_html
from autoauto.report.html.timeline import timeline_figure, write_timeline_html
from tests.running import PATIENCE_S

Simulated = Callable[..., Timeline]

KINDS = {"forward": ActionKind.FORWARD, "backward": ActionKind.BACKWARD}


@pytest.fixture
def barrier(simulated: Simulated) -> Timeline:
    """Two devices that compute and exchange in half cycles."""
    return simulated(Order.POPART, 2, 3, "1/2", "1", "3/2", barrier=True)


def bars(figure: Any, axis: str = "x") -> list[tuple[int, str, float, float]]:
    """Device, name, start and stop of all bars on a time axis."""
    entries = []
    for trace in figure.data:
        for device, start, length, facts in zip(trace.y, trace.base, trace.x, trace.customdata, strict=True):
            stage, micro_batch, *times = facts.tolist()
            assert times == [start, start + length, length]
            name = f"{stage:g}{KINDS[trace.name]}{micro_batch:g}" if trace.name in KINDS else trace.name
            entries += [(device, name, start, start + length)] if trace.xaxis == axis else []
    return sorted(entries)


def spans(timeline: Timeline) -> list[tuple[int, str, float, float]]:
    """Device, name, start and stop of all actions and exchanges of a timeline."""
    devices = range(timeline.schedule.n_devices)
    actions = [
        (device, str(action), start, stop) for device in devices for action, start, stop in timeline.spans(device)
    ]
    exchanges = [
        (device, "exchange", timeline.cycles(start), timeline.cycles(stop))
        for device in devices
        for start, stop in timeline.exchanges[device].tolist()
    ]
    return sorted(actions + exchanges)


def test_every_action_and_exchange_has_its_bar(barrier: Timeline) -> None:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    figure = timeline_figure(barrier)
    assert bars(figure) == spans(barrier)
    assert figure.layout.title.text == "popart, 3 micro-batches, simulated"
    assert [trace.name for trace in figure.data] == ["forward", "backward", "exchange"]


def test_bars_are_named_after_their_stage_where_devices_have_several(simulated: Simulated) -> None:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    plain, with_stage = (timeline_figure(simulated(order, 2, 2)).data[0] for order in (Order.GPIPE, Order.INTERLEAVED))
    assert (plain.texttemplate, with_stage.texttemplate) == ("F%{customdata[1]}", "%{customdata[0]}F%{customdata[1]}")


def test_of_a_long_timeline_both_ends_are_shown(simulated: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """1F1B on one device: each micro-batch is two bars of 1 + 2 cycles, and ten bars are five micro-batches."""
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    monkeypatch.setattr(timeline_html, "N_BARS", 20)
    timeline = simulated(Order.ONE_F_ONE_B, 1, 1000)
    figure, everything = timeline_figure(timeline), spans(timeline)
    assert bars(figure, "x") == [span for span in everything if span[2] < 15]
    assert bars(figure, "x2") == [span for span in everything if span[3] > 2985]
    assert figure.layout.title.text == (
        "1f1b, 1,000 micro-batches, simulated<br>first and last 10 of 2,000 bars, micro-batches 0 to 4 and 995 to 999"
    )
    assert (figure.layout.xaxis.range, figure.layout.xaxis2.range) == ((0, 15), (2985, 3000))


def test_a_few_traces_hold_thousands_of_bars(simulated: Simulated) -> None:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    figure = timeline_figure(simulated(Order.ONE_F_ONE_B, 16, 256))
    assert [len(trace.x) for trace in figure.data] == [16 * 256, 16 * 256]


def test_the_page_loads_nothing(barrier: Timeline, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    write_timeline_html(barrier, tmp_path / "timeline.html")
    page = (tmp_path / "timeline.html").read_text(encoding="utf-8")
    assert "Plotly.newPlot(" in page
    tags = re.sub("(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert "<script" in tags
    assert not re.search("src|href|http", tags)


def test_without_plotly_the_error_names_the_extra(
    barrier: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'"plot".*pip install plotly'):
        write_timeline_html(barrier, tmp_path / "timeline.html")


def test_a_file_that_cannot_be_written_is_bad_input(barrier: Timeline, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    with pytest.raises(BadInput, match="a file that can be written"):
        write_timeline_html(barrier, tmp_path / "missing" / "timeline.html")


@pytest.mark.slow
def test_a_browser_draws_all_bars(barrier: Timeline, simulated: Simulated, tmp_path: Path) -> None:
    """Without a network, every bar with a length becomes a path, and every action's name is in the page."""
    pytest.importorskip("plotly", reason="the extra plot is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium to open the page")
    for name, timeline in {"small": barrier, "large": simulated(Order.ONE_F_ONE_B, 16, 256)}.items():
        page = tmp_path / f"{name}.html"
        write_timeline_html(timeline, page)
        drawn = dom(chromium, page)
        paths = re.findall('<g class="point"><path [^>]*d="M[^"]+"', drawn)
        names = re.findall(r'<text class="bartext[^>]*>([^<]*)</text>', drawn)
        expected = [span[1] for span in spans(timeline)]
        assert len(paths) == len(expected)
        assert sorted(names) == sorted(name.lstrip("0123456789") for name in expected if name != "exchange")


def dom(chromium: str, page: Path) -> str:
    """The page's elements after its scripts have run."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    options += [f"--user-data-dir={page.parent / 'browser'}", "--virtual-time-budget=60000", "--dump-dom"]
    command = [chromium, *options, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
