"""The page of a timeline: what a browser draws."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput, MissingExtra
from autoauto.records.schedule import Order
from autoauto.records.timeline import Timeline
from autoauto.report.charts.timeline import timeline_chart
from autoauto.report.html.timeline import N_BARS, write_timeline_html
from tests.running import PATIENCE_S

Simulated = Callable[..., Timeline]


@pytest.fixture
def barrier(simulated: Simulated) -> Timeline:
    """Two devices that compute and exchange in half cycles."""
    return simulated(Order.POPART, 2, 3, "1/2", "1", "3/2", barrier=True)


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
        series = timeline_chart(timeline, None, N_BARS).panels[0].series
        marks = [mark for line in series for mark in line.marks]
        assert len(paths) == len(marks)
        assert sorted(names) == sorted(mark.text for mark in marks if mark.text)


def dom(chromium: str, page: Path) -> str:
    """The page's elements after its scripts have run."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    options += [f"--user-data-dir={page.parent / 'browser'}", "--virtual-time-budget=60000", "--dump-dom"]
    command = [chromium, *options, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
