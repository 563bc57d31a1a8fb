"""The pages of a server without a worker: who may read which, what forms send; nothing that users write is markup."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.study import StudyDirection

from autoauto.records.errors import BadInput
from autoauto.records.installation import builtin_models
from autoauto.server.pages import dashboard
from autoauto.server.pages.multipart import Form, read_form
from autoauto.server.pages.search_fields import FIELDS
from autoauto.server.pages.session import check_same_site, path_after_login, token_in_cookie
from autoauto.server.rest.routes import ROUTES
from autoauto.server.store.searches import Forbidden
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.trials import study_name
from autoauto.server.store.users import Role, revoke_tokens
from autoauto.targets.registry import TARGETS
from tests.drawn import n_examples
from tests.report.test_html import Balanced
from tests.server.conftest import Caller, RunningServer, small
from tests.server.person import FormValue, Person, Shown, multipart

HOSTILE = "<script>alert('x')</script>"
ESCAPED = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"
READ = [route for route in ROUTES if route.method == "GET" and "text/html" in route.media]
PAGES = [route for route in READ if route.path not in dashboard.PATHS and not route.path.startswith("/v1")]


class ServedPeople(NamedTuple):
    """A server, and users of it: mary as a program and at the pages."""

    server: RunningServer
    api: Caller
    mary: Person
    john: Person
    reader: Person
    root: Person
    nobody: Person


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPeople]:
    folder = tmp_path_factory.mktemp("pages")
    server = RunningServer(f"sqlite:///{folder}/server.db", folder, "--no-worker")
    users = {"mary": Role.SUBMITTER, "john": Role.SUBMITTER, "reader": Role.READER, "root": Role.ADMIN}
    tokens = {name: server.caller(name, role).token for name, role in users.items()}
    people = {name: Person(server.url, token) for name, token in tokens.items()}
    yield ServedPeople(server, Caller(server.url, tokens["mary"]), **people, nobody=Person(server.url))
    server.close()


@pytest.fixture(scope="module")
def search_id(site: ServedPeople) -> str:
    """A search of mary's with a text that must not become markup."""
    return str(site.api("POST", "/v1/searches", small(7, labels={HOSTILE: HOSTILE})).body["id"])


def filled(path: str, search_id: str) -> str:
    return re.sub(r"{\w+}", "1", path.replace("{search_id}", search_id))


def test_without_a_login_every_page_leads_to_it_and_back(site: ServedPeople, search_id: str) -> None:
    assert len(PAGES) > 4
    for page in READ:
        path = filled(page.path, search_id)
        shown = site.nobody("GET", f"{path}?x=%22")
        if page.role is None:
            assert site.nobody("GET", path).status == 200
        else:
            assert (path, shown.status, shown.html) == (path, 303, "")
            assert shown.headers["Location"].startswith(f"/login?next={path.replace('/', '%2F')}%3Fx%3D")


def test_every_page_is_well_formed_and_runs_only_scripts_of_the_server(site: ServedPeople, search_id: str) -> None:
    for page in PAGES:
        for person in (site.mary, site.john, site.reader):
            shown = person("GET", filled(page.path, search_id))
            parser = Balanced()
            parser.feed(re.sub(r"<(?:link|input)\b[^>]*>", "", shown.html))
            assert (page.path, parser.open) == (page.path, [])
            assert len(parser.ids) == len(set(parser.ids))
            assert re.findall(r"<script[^>]*>", shown.html) == ['<script src="/assets/pages.js" defer>']
            assert not re.search(r"""\son\w+=|javascript:|(?:href|src|action)="(?!/|#|data:,")""", shown.html)
            policy = shown.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self';" in policy
            assert "frame-ancestors 'none'" in policy


def test_a_search_is_shown_to_its_owner_and_hidden_from_others(site: ServedPeople, search_id: str) -> None:
    of_a_search = [page.path for page in PAGES if "{search_id}" in page.path]
    assert of_a_search
    for path in of_a_search:
        theirs, unknown = (site.john("GET", filled(path, each)) for each in (search_id, "f" * 20))
        assert (path, theirs.status, unknown.status) == (path, 404, 404)
        assert without_ids(theirs, search_id) == without_ids(unknown, "f" * 20)
    assert site.john("GET", f"/compare?search={search_id}").status == 404
    assert search_id not in site.john("GET", "/").html
    assert search_id in site.mary("GET", "/").html
    assert search_id in site.root("GET", "/?owner=mary").html
    assert site.john.send(f"/searches/{search_id}/stop", {}).status == 404


def without_ids(shown: Shown, search_id: str) -> str:
    return re.sub(r"request \w+", "", shown.html.replace(search_id, ""))


def test_what_users_write_is_no_markup(site: ServedPeople, search_id: str) -> None:
    pages = [
        site.mary("GET", f"/searches/{search_id}"),
        site.mary("GET", "/?owner=" + HOSTILE.replace(" ", "%20")),
        site.mary("GET", "/" + HOSTILE.replace(" ", "%20")),
        site.mary.start({"model": HOSTILE, "constraints": f"</textarea>{HOSTILE}"}),
        site.nobody("GET", f"/login?next={HOSTILE}"),
    ]
    for shown in pages:
        assert "<script>" not in shown.html
        assert "</textarea><script" not in shown.html
        assert ESCAPED in shown.html


def test_a_token_that_is_typed_stays_in_a_cookie_of_which_scripts_know_nothing(site: ServedPeople) -> None:
    token = str(site.mary.token)
    logged_in = site.nobody.send("/login", {"token": f" {token} ", "next": "/new?x=1"})
    assert (logged_in.status, logged_in.headers["Location"]) == (303, "/new?x=1")
    assert logged_in.headers["Set-Cookie"] == f"autoauto_token={token}; Path=/; HttpOnly; SameSite=Strict"
    by_proxy = site.nobody.send("/login", {"token": token}, X_Forwarded_Proto="https")
    assert by_proxy.headers["Set-Cookie"].endswith("; Secure")
    assert by_proxy.headers["Location"] == "/"
    left = site.mary.send("/logout", {})
    assert left.headers["Set-Cookie"].startswith("autoauto_token=; ")
    assert left.headers["Set-Cookie"].endswith("; Max-Age=0")


def test_a_wrong_token_is_refused_beside_its_field(site: ServedPeople) -> None:
    for token in ("", "autoauto-wrong", "x" * 10_000):
        shown = site.nobody.send("/login", {"token": token, "next": "/new"})
        assert shown.status == 400
        assert "a token must be in force" in shown.error_of("token")
        assert "Set-Cookie" not in shown.headers
        assert not token or token not in shown.html


def test_a_revoked_token_ends_the_login(site: ServedPeople) -> None:
    token = site.server.caller("anna").token
    assert Person(site.server.url, token)("GET", "/").status == 200
    database = ServiceDatabase(site.server.storage)
    revoke_tokens(database, "anna")
    database.close()
    assert Person(site.server.url, token)("GET", "/").headers["Location"].startswith("/login")
    assert Person(site.server.url, token).send("/logout", {}).status == 303


def test_the_cookie_reads_the_interface_too(site: ServedPeople, search_id: str) -> None:
    assert site.mary("GET", f"/v1/searches/{search_id}", Accept="application/json").status == 200
    assert site.john("GET", f"/v1/searches/{search_id}", Accept="application/json").status == 404


def test_no_page_of_another_site_acts_for_a_user(site: ServedPeople, search_id: str) -> None:
    """Neither forms of pages nor the interface, whose bodies another site can send as text."""
    assert {route.method for route in ROUTES} == {"GET", "POST", "DELETE"}
    for route in ROUTES:
        if route.method != "GET":
            for person in (site.mary, site.nobody):
                path = filled(route.path, search_id)
                shown = person(route.method, path, b"", Origin="http://evil.example")
                assert (route.path, shown.status) == (route.path, 403)
    assert site.api("GET", f"/v1/searches/{search_id}").body["state"] == "waiting"


def test_the_dashboard_of_optuna_shows_a_user_the_studies_that_he_may_see_and_changes_none(
    site: ServedPeople, search_id: str
) -> None:
    shared = str(site.api("POST", "/v1/searches", small(9, shared=True)).body["id"])
    with closing(ServiceDatabase(site.server.storage)) as database:
        numbers = {
            name: database.studies.create_new_study([StudyDirection.MAXIMIZE], name)
            for name in (study_name(search_id), study_name(shared), "search-of-nobody", "mine")
        }
    seen = {
        name: [each["study_name"] for each in json.loads(person("GET", "/api/studies").html)["study_summaries"]]
        for name, person in {"mary": site.mary, "john": site.john, "root": site.root}.items()
    }
    assert seen == {
        "mary": [study_name(search_id), study_name(shared)],
        "john": [study_name(shared)],
        "root": list(numbers),
    }
    for path in (each for each in dashboard.PATHS if "{study_number}" in each and not each.startswith("/dashboard")):
        for name, number in numbers.items():
            asked = path.replace("{study_number}", str(number)).replace("{plot}", "edf")
            assert (path, name, site.john("GET", asked).status == 404) == (path, name, name != study_name(shared))
    assert search_id not in site.john("GET", f"/api/studies/{numbers[study_name(search_id)]}").html
    assert site.john("GET", "/api/studies/1e9").status == site.john("GET", f"/csv/{10**30}").status == 404
    for method in ("POST", "PUT", "DELETE"):
        assert site.root(method, f"/api/studies/{numbers['mine']}", b"{}").status == 405
    opened = site.john("GET", f"/dashboard/studies/{numbers[study_name(shared)]}")
    assert "/static/bundle.js" in opened.html
    assert "script-src 'self'" in opened.headers["Content-Security-Policy"]
    assert site.john("GET", "/static/..%2f..%2f__init__.py").status in (403, 404)


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"Host": "a.example"}, True),
        ({"Host": "a.example", "Origin": "http://a.example"}, True),
        ({"Host": "a.example", "Origin": "http://b.example"}, False),
        ({"Host": "a.example", "Origin": "null"}, False),
        ({"Host": "proxied", "Origin": "https://a.example", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Host": "a.example", "Origin": "http://a.example", "Sec-Fetch-Site": "same-site"}, False),
        ({"Host": "a.example", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_what_another_site_sends_is_known(headers: dict[str, str], is_own: bool) -> None:
    check_same_site("GET", headers)
    if is_own:
        check_same_site("POST", headers)
    else:
        with pytest.raises(Forbidden, match="a page of this server"):
            check_same_site("POST", headers)


@pytest.mark.parametrize("cookie", ["", "other=1", "autoauto_token", "\x00;;=,", 'autoauto_token="'])
def test_a_cookie_without_a_token_is_none(cookie: str) -> None:
    assert token_in_cookie({"Cookie": cookie}) in ("", '"')
    assert token_in_cookie({"Cookie": "a=1; autoauto_token=x-1; b=2"}) == "x-1"


@pytest.mark.parametrize("wanted", ["//evil.example", "/\\evil.example", "http://evil.example", "", "/a\r\nb", "x"])
def test_a_login_leads_to_this_server_only(wanted: str) -> None:
    assert path_after_login(wanted) == "/"


SAME: list[tuple[dict[str, FormValue], dict[str, Any]]] = [
    ({"model": "", "further": "\n"}, {}),
    (
        {"target": "ipu", "mode": "inference", "objective": "throughput", "model": " resnet50 ", "n_ipu": "1, 2"},
        {"model": "resnet50", "space": {"n_ipu": [1, 2]}},
    ),
    (
        {
            "cluster": "c600",
            "batch_size": "1:8",
            "memory_proportion": ".3,0.6",
            "constraints": "latency_s <= 0.02\n\n",
        },
        {
            "cluster": "c600",
            "space": {"batch_size": {"from": 1, "to": 8}, "memory_proportion": [0.3, 0.6]},
            "constraints": ["latency_s <= 0.02"],
        },
    ),
    (
        {
            "mode": "training",
            "objective": "throughput,latency",
            "trials": "9",
            "measurements": "5",
            "time_budget": "2",
        },
        {
            "mode": "training",
            "objective": ["throughput", "latency"],
            "limits": {"trials": 9, "measurements": 5},
            "time_budget": 2,
        },
    ),
    (
        {"labels": "gpu=h100, site=a", "further": "repeats = 0\n[knobs]\nreplicas = [1, 2]", "n_ipu": "4"},
        {"labels": {"gpu": "h100", "site": "a"}, "repeats": 0, "space": {"n_ipu": [4], "replicas": [1, 2]}},
    ),
    ({"target": "gpu", "model": "Qwen/Qwen3-8B"}, {"target": "gpu", "model": "Qwen/Qwen3-8B"}),
    (
        {"mode": "training", "recompute": "on,auto", "master_weights": "off", "synthetic_data": "on", "io_tiles": "32"},
        {
            **{"mode": "training", "synthetic_data": True},
            "space": {"recompute": [True, "auto"], "master_weights": [False], "io_tiles": [32]},
        },
    ),
    (
        {
            **{"target": "gpu", "model": "Qwen/Qwen3-8B", "cluster": "h100_sxm", "gpus": "4", "measure": "2"},
            **{"tensor_parallel": "1,2", "engine": "vllm", "input_tokens": "512", "cached_share": "0.5"},
            **{"max_ttft_ms": "500", "max_tpot_ms": "20.5"},
        },
        {
            **{"target": "gpu", "model": "Qwen/Qwen3-8B", "cluster": "h100_sxm-4", "measure": 2, "cached_share": 0.5},
            "space": {"tensor_parallel": [1, 2], "engine": ["vllm"], "input_tokens": [512]},
            "constraints": ["ttft_s <= 0.5", "tpot_s <= 0.0205"],
        },
    ),
    (
        {"target": "host", "cores_per_device": "1,2", "runtime": "onnxruntime", "time_budget": "60"},
        {
            **{"target": "host", "time_budget": 60},
            "space": {"cores_per_device": [1, 2], "runtime": ["onnxruntime"]},
        },
    ),
]


@pytest.mark.parametrize(("form", "submission"), SAME)
def test_the_form_makes_the_request_of_the_interface(
    site: ServedPeople, form: dict[str, FormValue], submission: dict[str, Any]
) -> None:
    known = site.api("POST", "/v1/searches", submission)
    sent = site.mary.start(form)
    assert (sent.status, sent.headers["Location"]) == (303, f"/searches/{known.body['id']}")


def fields_of(shown: Shown) -> set[str]:
    return set(re.findall(r'<(?:input|select|textarea)[^>]* name="(\w+)"', shown.html))


@pytest.mark.parametrize("target", TARGETS)
def test_the_form_of_a_target_has_its_knobs_and_options_and_no_others(site: ServedPeople, target: str) -> None:
    entry = TARGETS[target]
    shown = site.mary("GET", f"/new?target={target}")
    own = {knob.name for kind in entry.sessions for knob in kind.knobs}
    foreign = {knob.name for each in TARGETS.values() for kind in each.sessions for knob in kind.knobs} - own
    assert own | {"n_ipu", "replicas", "batch_size", "cluster", "time_budget"} <= fields_of(shown)
    assert fields_of(shown) & (foreign - {"precision"}) == set()
    for option in entry.options:
        is_offered = bool(option.help) and "FILE" not in str(option.metavar) and "HOST" not in str(option.metavar)
        assert (option.name, option.name in fields_of(shown)) == (
            option.name,
            is_offered and "FOLDER" not in str(option.metavar),
        )
    assert {"max_ttft_ms", "max_tpot_ms", "input_tokens", "gpus"} <= fields_of(shown) or not entry.serves_decoders
    assert f'href="/new?target={target}" aria-current="page"' in shown.html
    assert fields_of(shown) <= set(FIELDS) | {"to"}


def test_the_form_is_that_of_the_default_target_where_none_is_named(site: ServedPeople) -> None:
    assert fields_of(site.mary("GET", "/new")) == fields_of(site.mary("GET", "/new?target=ipu"))
    assert site.mary("GET", "/new?target=tpu").status == 400
    wrong = site.mary.start({"target": "gpu", "model": "Qwen/Qwen3-9B", "tensor_parallel": "2"})
    assert 'id="tensor_parallel" name="tensor_parallel"' in wrong.html, "a mistake leads to the same form"


def test_nothing_is_offered_that_a_search_does_not_have_yet(site: ServedPeople) -> None:
    path = site.mary.start({"batch_size": "13"}).headers["Location"]
    shown = site.mary("GET", path)
    for word in ("report?as=html", "table?as=csv", "/export", "autoauto report", "autoauto export"):
        assert word not in shown.html
    assert f"/compare?search={path.rpartition('/')[2]}" in shown.html


def test_a_search_that_waits_for_engines_says_what_its_worker_must_do(site: ServedPeople) -> None:
    form: dict[str, FormValue] = {"target": "gpu", "model": "Qwen/Qwen3-8B", "measure": "2", "labels": "site=a"}
    shown = site.mary("GET", site.mary.start(form).headers["Location"])
    assert "waiting for a worker that starts engines (autoauto worker --launch WAY) with site=a" in shown.text
    plain = site.mary("GET", site.mary.start({**form, "labels": ""}).headers["Location"])
    assert "--measure 2 --server" in " ".join(plain.text.split())


def test_the_form_shares_a_search_and_says_its_priority(site: ServedPeople) -> None:
    path = site.mary.start({"shared": "on", "priority": "-3", "batch_size": "3"}).headers["Location"]
    assert site.john("GET", path).status == 200
    assert "Stop" not in site.john("GET", path).text
    assert site.api("GET", f"/v1{path}").body["priority"] == -3


@pytest.mark.parametrize(
    ("form", "field", "part"),
    [
        ({"n_ipu": "0"}, "n_ipu", "n_ipu must be a whole number from 1 to 100,000, got 0"),
        ({"n_ipu": "two"}, "n_ipu", "got 'two'"),
        ({"batch_size": "8:1"}, "batch_size", "none from 8 to 1"),
        ({"model": "resnet"}, "model", "did you mean 'resnet50'"),
        ({"cluster": "h100_sxm-8", "target": "ipu"}, "cluster", "h100_sxm-8 is for gpu"),
        ({"target": "gpu"}, "model", "needs a model, got none"),
        ({"target": "gpu", "model": "Qwen/Qwen3-8B", "cluster": "c600"}, "cluster", "c600 is for ipu"),
        ({"target": "gpu", "model": "Qwen/Qwen3-8B", "max_tpot_ms": "soon"}, "max_tpot_ms", "a finite number"),
        ({"target": "gpu", "model": "Qwen/Qwen3-8B", "engine": "tgi"}, "engine", "engine must be one of"),
        ({"cluster": "../etc"}, "cluster", "a cluster is a built-in name or an uploaded file"),
        ({"constraints": "latenci <= 1"}, "constraints", "latency"),
        ({"objective": "speed"}, "objective", "speed"),
        ({"time_budget": "-1"}, "time_budget", "-1"),
        ({"trials": "0"}, "trials", "limit trials must be"),
        ({"priority": "1000"}, "priority", "priority must be a whole number"),
        ({"labels": "gpu"}, "labels", "labels are texts by names"),
        ({"further": "a ="}, "further", "further options must be lines in TOML"),
        ({"further": "budget = 3"}, "", "budget"),
        ({"n_ipu": "1", "further": "[knobs]\nn_ipu = 2"}, "n_ipu", "leave one out"),
        ({"model": "resnet50", "model_file": ("a.onnx", b"x")}, "model", "got both; leave one out"),
    ],
)
def test_an_error_is_beside_its_field_and_nothing_that_was_written_is_lost(
    site: ServedPeople, form: dict[str, FormValue], field: str, part: str
) -> None:
    shown = site.mary.start({"replicas": "1,2,4", **form})
    assert shown.status == 400
    assert part in shown.text
    assert part in (shown.error_of(field) if field else shown.text)
    assert 'value="1,2,4"' in shown.html
    assert f'href="#{field}"' in shown.html if field else 'href="#' in shown.html


def test_a_model_is_uploaded_by_the_form(site: ServedPeople) -> None:
    content = builtin_models()["resnet50"].read_bytes()
    wrong = site.mary.start({"model": "", "model_file": ("net.onnx", content), "n_ipu": "x"})
    match = re.search(r'<option value="(sha256:[0-9a-f]{64})" selected="selected">net.onnx, ', wrong.html)
    assert match, "the file is chosen, so that it need not be sent again"
    both = site.mary.start({"model": "resnet50", "model_upload": match[1], "n_ipu": "1"})
    assert "leave one out" in both.error_of("model")
    sent = site.mary.start({"model": "", "model_upload": match[1], "model_file": ("", b""), "n_ipu": "1"})
    named = {"model": match[1], "space": {"n_ipu": [1]}}
    assert site.api("POST", "/v1/searches", named).body["id"] == sent.headers["Location"].rpartition("/")[2]
    assert "net.onnx on bow-2000" in site.mary("GET", sent.headers["Location"]).text
    assert "net.onnx" not in site.john("GET", "/uploads").text
    assert "net.onnx" not in site.john("GET", "/new").text


def test_a_trace_is_uploaded_by_the_form(site: ServedPeople) -> None:
    trace = "time_s,input_tokens,output_tokens\n0,100,10\n1,100,10\n"
    asked: dict[str, FormValue] = {"target": "gpu", "model": "Qwen/Qwen3-8B", "cluster": "h100_sxm-2"}
    wrong = site.mary.start({**asked, "trace_file": ("chat.csv", trace.encode()), "tensor_parallel": "x"})
    match = re.search(r'<option value="(sha256:[0-9a-f]{64})" selected="selected">chat.csv, ', wrong.html)
    assert match, "the file is chosen, so that it need not be sent again"
    sent = site.mary.start({**asked, "trace_upload": match[1], "tensor_parallel": "1"})
    named = {**asked, "trace": match[1], "space": {"tensor_parallel": [1]}}
    assert site.api("POST", "/v1/searches", named).body["id"] == sent.headers["Location"].rpartition("/")[2]
    assert "chat.csv" in site.mary("GET", sent.headers["Location"]).text


def test_an_upload_is_deleted_by_its_page(site: ServedPeople) -> None:
    site.mary.start({"model_file": ('my "old" net.onnx', b"no model"), "n_ipu": "x"})
    shown = site.mary("GET", "/uploads")
    assert 'my "old" net.onnx' in shown.text
    match = re.search(r'action="(/uploads/[0-9a-f]{64}/delete)"', shown.html)
    assert match
    assert site.john.send(match[1], {}).status == 404
    assert site.mary.send(match[1], {}).headers["Location"] == "/uploads"
    assert 'my "old" net.onnx' not in site.mary("GET", "/uploads").text


def test_a_search_is_stopped_and_resumed_by_its_page(site: ServedPeople) -> None:
    path = site.mary.start({"batch_size": "5"}).headers["Location"]
    waiting = site.mary("GET", path)
    assert "waiting for a worker" in waiting.text
    assert '<noscript><meta http-equiv="refresh"' in waiting.html
    assert site.mary.send(f"{path}/stop", {}).headers["Location"] == path
    stopped = site.mary("GET", path)
    assert "stopped before it began" in stopped.text
    assert "refresh" not in stopped.html
    assert site.mary.send(f"{path}/resume", {}).status == 303
    assert "waiting" in site.mary("GET", path).text


def test_the_list_is_filtered_and_has_pages(site: ServedPeople, search_id: str) -> None:
    assert "No search is like that" in site.mary("GET", "/?state=finished").text
    first = site.mary("GET", "/?limit=1&state=waiting")
    match = re.search(r'href="(/\?[^"]*)">Older', first.html)
    assert match
    older = site.mary("GET", match[1].replace("&amp;", "&"))
    assert set(re.findall(r"/searches/(\w+)", first.html)).isdisjoint(re.findall(r"/searches/(\w+)", older.html))
    assert site.mary("GET", "/?state=done").status == 400


def test_two_searches_are_compared(site: ServedPeople) -> None:
    ids = [site.mary.start({"batch_size": size, "cluster": "c600"}).headers["Location"][10:] for size in ("6", "12")]
    shown = site.mary("GET", f"/compare?search={ids[0]}&other={ids[1]}")
    asked = shown.html.partition('id="what-was-asked-for-otherwise"')[2]
    assert re.findall(r'<td data-head="(?:what|first|second)">(.*?)</td>', asked) == ["batch_size", "6", "12"]
    for search_id in ids:  # of one name
        assert f'<option value="{search_id}"' in shown.html
        assert shown.text.count(f"resnet50 on c600, ipu, {search_id[:6]}, 20") == 3
        assert f'<td data-head="id">{search_id[:6]}</td>' in site.mary("GET", "/").html
    same = site.mary("GET", f"/compare?search={ids[0]}&other={ids[0]}")
    assert "Nothing: it is the same." in same.text


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,20}", fullmatch=True), st.binary(max_size=300) | st.text(), min_size=1, max_size=5
    )
)
@settings(max_examples=n_examples(30))
def test_a_form_with_files_is_read_as_it_was_sent(values: dict[str, bytes | str]) -> None:
    texts = {name: value for name, value in values.items() if isinstance(value, str) and "\0" not in value}
    texts = {name: value.replace("\r", "") for name, value in texts.items()}
    files = {name: value for name, value in values.items() if isinstance(value, bytes)}
    sent: dict[str, FormValue] = {**texts, **{name: ("a.onnx", value) for name, value in files.items()}}
    form = saved(multipart(sent))
    contents = {}
    for name, file in form.files.items():
        with file.content as content:
            content.seek(0)
            contents[name] = content.read()
        assert file.name == "a.onnx"
    assert (form.values, contents) == (texts, files)


@settings(max_examples=n_examples(50))
@given(st.binary(max_size=200).map(lambda tail: b"--x-y\r\n" + tail) | st.binary(max_size=200))
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(BadInput, match="a form"):
        saved(body)


@pytest.mark.parametrize("cut", [3, 10, 60, 100])
def test_a_form_that_was_cut_is_refused(cut: int) -> None:
    whole = multipart({"model": "resnet50", "model_file": ("a.onnx", b"content")})
    with pytest.raises(BadInput, match="a form with files"):
        saved(whole[:-cut])


def saved(body: bytes) -> Form:
    with tempfile.TemporaryFile() as file:
        file.write(body)
        return read_form(cast("BinaryIO", file))
