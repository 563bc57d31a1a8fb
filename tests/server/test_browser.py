"""The pages of a server in a real browser: a person logs in, starts a search, and sees it end without a reload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from autoauto.server.store.users import Role
from autoauto.targets.registry import TARGETS
from tests.server.conftest import Caller, RunningServer

SMALL = {"cluster": "c600", "n_ipu": "1", "replicas": "1", "memory_proportion": "0.6", "further": "repeats = 0"}
"""What is written in the form for a search of one configuration."""


class Open(NamedTuple):
    """A browser at a server, and the program of its user."""

    browser: Any
    server: RunningServer
    api: Caller

    def log_in(self, wanted: str = "") -> None:
        """Type the token."""
        self.browser.open(f"{self.server.url}/{wanted}")
        assert self.browser.ask("location.pathname") == "/login"
        self.write(token=str(self.api.token))

    def write(self, **fields: str) -> None:
        """Write in fields, and press the main button of their form."""
        for name, text in fields.items():
            self.browser.ask(f"document.getElementById({name!r}).value = {text!r}")
        before = self.browser.ask("performance.timeOrigin")
        self.browser.ask("document.querySelector('button.main').click()")
        self.browser.wait(f"performance.timeOrigin !== {before} && document.readyState === 'complete'")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Caller]]:
    folder = tmp_path_factory.mktemp("browser")
    with closing(RunningServer(f"sqlite:///{folder}/server.db", folder)) as server:
        yield server, server.caller("mary", Role.SUBMITTER)


@pytest.fixture
def site(browser: Any, served: tuple[RunningServer, Caller]) -> Open:
    return Open(browser, *served)


@pytest.mark.slow
def test_a_person_starts_a_search_and_sees_it_end(site: Open) -> None:
    """With a mistake first, which is shown beside its field; then the page is never loaded again until it has ended."""
    browser = site.browser
    site.log_in("new")
    assert browser.ask("location.pathname") == "/new"
    assert browser.ask("document.cookie") == ""
    site.write(**SMALL, batch_size="none")
    error = "document.getElementById('batch_size').getAttribute('aria-describedby').split(' ')[0]"
    assert "got 'none'" in browser.ask(f"document.getElementById({error}).textContent")
    assert browser.ask("document.getElementById('cluster').value") == "c600"
    site.write(batch_size="4")
    assert browser.ask("location.pathname").startswith("/searches/")
    browser.ask("window.sameDocument = true")
    browser.wait(
        "document.querySelector('#best .big') && document.querySelector('#status').innerText.includes('finished')"
    )
    assert browser.ask("window.sameDocument")
    assert browser.ask("document.querySelector('#actions').innerText") == ""
    search = site.api("GET", f"/v1{browser.ask('location.pathname')}").body
    assert f"{search['best']['samples_per_s']:,.1f}" in browser.ask("document.querySelector('#best').innerText")
    assert all("400 (Bad Request)" in each for each in browser.errors)  # the form with a mistake


@pytest.mark.slow
def test_every_page_fits_its_screen_in_both_themes_and_has_names_for_readers_of_screens(site: Open) -> None:
    search = site.api(
        "POST", "/v1/searches", {"cluster": "c600", "space": {"n_ipu": [1], "batch_size": [4, 8]}, "repeats": 0}
    )
    search_id = site.api.ended(search.body["id"])["id"]
    browser = site.browser
    site.log_in()
    paths = [
        "",
        *(f"new?target={target}" for target in TARGETS),
        f"searches/{search_id}",
        f"compare?search={search_id}&other={search_id}",
        "nothing",
    ]
    unnamed = """[...document.querySelectorAll(
        'input:not([type=hidden]), select, textarea, button, a, table, svg[role=img], form')].filter(e =>
        !(e.labels?.length || e.ariaLabel || e.getAttribute('aria-labelledby') || e.textContent.trim())
        ).map(e => e.outerHTML)"""
    for path in paths:
        for width in (400, 1400):
            grounds = set()
            for scheme in ("light", "dark"):
                browser.open(f"{site.server.url}/{path}", width, scheme)
                assert browser.ask("document.documentElement.scrollWidth") <= width, path
                assert browser.ask(unnamed) == []
                assert browser.ask("document.querySelectorAll('h1').length") == 1
                grounds.add(browser.ask("getComputedStyle(document.body).backgroundColor"))
                assert [each for each in browser.errors if "/nothing" not in each] == []
            assert len(grounds) == 2, path
    browser.open(f"{site.server.url}/v1/searches/{search_id}/report?as=html")
    assert browser.ask("document.getElementById('theme').hidden") is False, "its own script runs"
    assert browser.errors == []


@pytest.mark.slow
def test_searches_for_gpus_are_asked_for_and_compared_in_tokens(site: Open) -> None:
    """The form of GPUs is a link away; what was found is exported for the engine that it names."""
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    browser, ids = site.browser, []
    site.log_in("new")
    for gpus in ("2", "4"):
        browser.open(f"{site.server.url}/new")
        browser.ask("document.getElementById('model').value = 'Qwen/Qwen3-8B'")
        browser.ask("document.querySelector('.targets a[href$=gpu]').click()")
        browser.wait("location.search === '?target=gpu' && !!document.getElementById('tensor_parallel')")
        assert browser.ask("document.getElementById('model').value") == "Qwen/Qwen3-8B", "what was written stays"
        asked = {"cluster": "h100_sxm", "gpus": gpus, "engine": "sglang"}
        site.write(**asked, input_tokens="512", batch_size="8,16", max_tpot_ms="100")
        browser.wait(
            "document.querySelector('#best .big') && document.querySelector('#status').innerText.includes('finished')"
        )
        browser.wait("document.querySelector('#to')?.value === 'sglang'")
        assert browser.ask("[...document.querySelector('#to').options].map(option => option.value)") == ["sglang"]
        assert "export" in browser.ask("document.querySelector('#commands').innerText")
        ids.append(browser.ask("location.pathname").rpartition("/")[2])
    for width in (400, 1200):
        browser.open(f"{site.server.url}/searches/{ids[1]}", width)
        assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.open(f"{site.server.url}/compare?search={ids[0]}&other={ids[1]}")
    text = browser.ask("document.querySelector('main').innerText")
    assert "tokens/s" in text
    assert "samples/s" not in text
    assert browser.errors == []


@pytest.mark.slow
def test_a_search_with_a_bound_on_a_percentile_draws_latencies_over_the_rate(site: Open) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    asked = {"model": "Qwen/Qwen3-8B", "target": "gpu", "cluster": "h100_sxm-2", "constraints": ["ttft_p99 <= 1s"]}
    space = {"engine": ["vllm"], "replicas": [2], "batch_size": [32], "input_tokens": [512], "output_tokens": [100]}
    search = site.api("POST", "/v1/searches", {**asked, "space": space})
    ended = site.api.ended(search.body["id"])
    browser = site.browser
    site.log_in()
    for width in (400, 1400):
        browser.open(f"{site.server.url}/searches/{ended['id']}", width)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        text = browser.ask("document.querySelector('main').innerText")
        assert "Latency over the request rate" in text
        assert "Highest rate of arrivals" in text
        legend = browser.ask("[...document.querySelectorAll('figure .legend li')].map(e => e.innerText.trim())")
        assert {"1 replica", "2 replicas"} <= set(legend)
    browser.open(f"{site.server.url}/v1/searches/{ended['id']}/report?as=html")
    assert "arrivals" in browser.ask("document.querySelector('#binds').innerText")
    assert "Latency over the request rate" in browser.ask("document.querySelector('#charts').innerText")
    assert browser.errors == []


@pytest.mark.slow
def test_without_scripts_a_page_loads_itself_again_and_all_forms_work(site: Open) -> None:
    browser = site.browser
    browser.run_scripts(False)
    site.log_in("new")
    site.write(**SMALL, batch_size="1:64")
    browser.wait("document.querySelector('#status')?.innerText.includes('finished')")
    browser.wait("!!document.querySelector('#best .big')")
    browser.ask("document.querySelector('nav form').requestSubmit()")
    browser.wait("location.pathname === '/login'")
    browser.open(f"{site.server.url}/")
    assert browser.ask("location.pathname") == "/login"


@pytest.mark.slow
def test_a_link_from_another_site_finds_who_is_logged_in(site: Open, tmp_path: Any) -> None:
    """The cookie does not come with the first request from there; the page asks again for itself."""
    browser = site.browser
    site.log_in()
    link = tmp_path / "chat.html"
    link.write_text(f'<a href="{site.server.url}/new">a search</a>')
    browser.open(link.as_uri())
    browser.ask("document.querySelector('a').click()")
    browser.wait("location.pathname === '/new' && !!document.querySelector('#batch_size')")
