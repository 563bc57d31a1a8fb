"""The page of a study: its content, and how a real browser shows it."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.interval import Interval
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order
from autoauto.report.html import study_page, write_page
from autoauto.space.knobs import Knobs
from autoauto.space.study_summary import Comparison, StudySummary
from tests.report.made import made

Simulated = Callable[..., Timeline]
COMMANDS = [("Measure it again", "autoauto measure net --n-ipu 2")]


def comparisons(summary: StudySummary) -> list[Comparison]:
    gain = Comparison("runner-up", summary.trials[2].knobs, Interval(150.0, None), 33.3, "the next best configuration")
    return [gain, Comparison("one session", None, None, None, "was not tried")]


@pytest.fixture
def page(summary: StudySummary, simulated: Simulated) -> str:
    return study_page(summary, comparisons(summary), simulated(Order.INFERENCE, 2, 6), COMMANDS)


class Balanced(HTMLParser):
    """Fails on an element that is not closed in order; `open` has those that are not closed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in {"meta", "wbr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Such an element needs no end tag."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_ids_are_unique(page: str) -> None:
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    charts = {"timeline", "memory", "heat-map", "parity", "latency", "batches-0"}
    assert charts | {"cells", "trials", "study"} <= set(parser.ids)


def test_the_page_has_the_winner_and_the_command_that_measures_it_again(page: str) -> None:
    text = re.sub("<[^>]*>", "", page).replace("\xa0", " ")
    for words in (
        "200.0 samples/s",
        "modelled",
        "190.0 samples/s, estimated, -5.0 %",
        COMMANDS[0][1],
        "+33.3 %",
    ):
        assert words in text
    assert "was not tried" in text
    assert "a &lt;bug&gt;" in text


def test_the_page_has_the_throughput_of_a_device_and_of_simple_uses(summary: StudySummary) -> None:
    knobs = summary.trials[2].knobs
    rows = [
        Comparison("one device", knobs, Interval(50.0, None), 300.0, "", estimated=True, is_simple_use=True),
        Comparison("one pipeline of 2", knobs, Interval(200.0, None), None, "is the winner", is_simple_use=True),
    ]
    page = re.sub("<[^>]*>", "", study_page(summary, rows, None, COMMANDS)).replace("\xa0", " ")
    assert "200.0 samples/son 2 devices (one pipeline of 2 devices; 100.0 a device), modelled" in page
    assert "against one device" in page
    assert "estimated, 50.0 samples/s" in page
    assert "is the winner" in page


def test_the_page_loads_nothing(page: str) -> None:
    assert not re.search(r"""(?:src|href)=|url\(|@import|https?://""", page)


def test_where_nothing_fits_the_page_says_why(nothing_fits: StudySummary) -> None:
    page = study_page(nothing_fits, [], None, [])
    assert "None of the 2 configurations that were tried fits" in page
    assert "layers [0, 5) need more" in page
    assert "What binds" not in page


def test_ten_thousand_trials_make_a_small_page(summary: StudySummary) -> None:
    grid = [
        Knobs(n_ipu=n, memory_proportion=proportion, batch_size=batch)
        for n in (1, 2, 4, 8, 16)
        for proportion in (0.3, 1.0)
        for batch in range(1, 1001)
    ]
    trials = [
        made(i, knobs, i % 9.0 * knobs.batch_size, estimated_samples_per_s=5.0 * knobs.batch_size)
        for i, knobs in enumerate(grid)
    ]
    large = replace(summary, trials=(*trials, summary.trials[3].with_values(number=10_000, samples_per_s=1e5)))
    assert 100_000 < len(study_page(large, [], None, [])) < 4_000_000


def test_a_file_that_cannot_be_written_is_bad_input(page: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a file that can be written"):
        write_page(page, tmp_path / "missing" / "page.html")


def test_of_several_objectives_the_page_has_the_front_and_the_best_by_the_first(summary: StudySummary) -> None:
    attributes = {**summary.attributes, "objective": "throughput,latency"}
    several = study_page(replace(summary, attributes=attributes, front=summary.finalists), [], None, COMMANDS)
    single = study_page(summary, [], None, COMMANDS)
    assert headings(several)[:2] == ["Best by throughput", "No other is better in throughput and latency"]
    assert headings(single)[:2] == ["Best configuration", "What binds"]
    front = several.partition('id="front"')[2].partition("</section>")[0]
    assert front.count("<tr>") == 1 + len(summary.finalists)
    assert "14.000\xa0ms" in front
    assert "14.000\xa0ms" in single.partition('id="trials"')[2]


def test_every_card_has_one_name(page: str) -> None:
    """No caption of a table repeats its heading, and no heading is there twice."""
    names = headings(page)
    assert len(set(names)) == len(names)
    captions = re.findall("<caption>(.*?)</caption>", page)
    assert captions
    assert not [(name, caption) for name in names for caption in captions if caption.startswith(name)]


def headings(page: str) -> list[str]:
    """The names of the cards, from top to bottom."""
    return re.findall("<h2>(.*?)</h2>", page)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 400])
def test_a_browser_shows_it_in_both_themes(browser: Any, page: str, width: int, tmp_path: Path) -> None:
    """Every picture has a size, no page is wider than its screen, and there are no further requests and no errors."""
    file = tmp_path / "page.html"
    write_page(page, file)
    grounds = {}
    for scheme in ("light", "dark"):
        browser.open(file.as_uri(), width, scheme)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        sizes = browser.ask(
            "[...document.querySelectorAll('svg[role=img]')].map(e => e.getBoundingClientRect().height)"
        )
        assert len(sizes) == 7
        assert min(sizes) > 50
        grounds[scheme] = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert (browser.requests, browser.errors) == ([file.as_uri()], [])
    assert grounds["light"] != grounds["dark"]
    browser.ask("document.getElementById('theme').click()")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == grounds["light"]
    assert browser.ask("document.getElementById('theme').textContent") == "Dark theme"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 400])
def test_without_a_script_all_is_there(
    browser: Any, summary: StudySummary, page: str, width: int, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    write_page(page, file)
    browser.run_scripts(False)
    browser.open(file.as_uri(), width)
    assert browser.ask("document.title") == "small: net on pair"
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("[...document.querySelectorAll('button')].every(e => e.offsetWidth === 0)")
    drawn = "document.querySelectorAll('#batches-0 :is(.dot, .cross) > *, #batches-1 :is(.dot, .cross) > *').length"
    assert browser.ask(drawn) == len(summary.trials) + 1  # and the ring
    n_running = sum(trial.runs for trial in summary.trials)
    assert browser.ask("document.querySelectorAll('#latency .dot > circle').length") == n_running + 1
    assert browser.ask("document.querySelectorAll('#trials tbody tr').length") == len(summary.trials)


@pytest.mark.slow
def test_labels_do_not_lie_on_each_other(browser: Any, page: str, tmp_path: Path) -> None:
    """In no picture do the boxes of two texts overlap by more than a pixel."""
    file = tmp_path / "page.html"
    write_page(page, file)
    browser.open(file.as_uri())
    overlapping = browser.ask(
        """[...document.querySelectorAll('svg[role=img]')].flatMap(svg => {
             const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
             return texts.flatMap(([name, a], i) => texts.slice(i + 1).filter(([, b]) =>
               Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
               Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4).map(([other]) => `${name} / ${other}`));
           })"""
    )
    assert overlapping == []
