"""The page of a timeline: its content, and how a real browser shows it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order
from autoauto.report.charts.plan import N_BARS, timeline_chart
from autoauto.report.html import timeline_page, write_page
from autoauto.schedule.stash import stash_entries

Simulated = Callable[..., Timeline]


def page_of(timeline: Timeline) -> str:
    return timeline_page(timeline, stash_entries(timeline.schedule))


@pytest.fixture
def barrier(simulated: Simulated) -> Timeline:
    """Two devices that compute and exchange in half cycles."""
    return simulated(Order.POPART, 2, 3, "1/2", "1", "3/2", barrier=True)


@pytest.fixture
def large(simulated: Simulated) -> Timeline:
    return simulated(Order.ONE_F_ONE_B, 16, 256)


def test_the_page_has_a_title_the_picture_and_the_table(barrier: Timeline) -> None:
    page = page_of(barrier)
    assert "<title>popart: 2 devices, 3 micro-batches</title>" in page
    assert page.count("<svg id=") == 1
    text = re.sub("<[^>]*>", " ", page).replace("\xa0", " ")
    assert "makespan: 21 cycles" in " ".join(text.split())


def test_the_page_loads_nothing(barrier: Timeline) -> None:
    assert not re.search(r"""(?:src|href)=|url\(|@import|https?://""", page_of(barrier))


def test_pages_of_long_timelines_are_small(barrier: Timeline, large: Timeline) -> None:
    assert len(page_of(barrier).encode()) < 30_000
    assert large.schedule.n_actions > 2 * N_BARS
    assert len(page_of(large).encode()) < 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 400])
def test_a_browser_shows_it_without_a_script_in_both_themes(
    browser: Any, barrier: Timeline, large: Timeline, width: int, tmp_path: Path
) -> None:
    """Every bar is drawn, no page is wider than its screen, and nothing else is requested."""
    file = tmp_path / "page.html"
    browser.run_scripts(False)
    for timeline in (barrier, large):
        write_page(page_of(timeline), file)
        panels = timeline_chart(timeline, None).panels
        marks = [mark for panel in panels for series in panel.series for mark in series.marks]
        grounds = set()
        for scheme in ("light", "dark"):
            browser.open(file.as_uri(), width, scheme)
            assert browser.ask("document.documentElement.scrollWidth") <= width
            assert browser.ask("document.querySelectorAll('svg[role=img] rect').length") == len(marks)
            assert browser.ask("document.querySelectorAll('#devices tbody tr').length") == len(timeline.starts)
            grounds.add(browser.ask("getComputedStyle(document.body).backgroundColor"))
            assert (browser.requests, browser.errors) == ([file.as_uri()], [])
        assert len(grounds) == 2
