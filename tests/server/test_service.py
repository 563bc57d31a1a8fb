"""A whole service in processes: searches are answered, once for all, and no kill of a server or worker loses one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import autoauto
from autoauto.cli.main import main
from autoauto.records.installation import builtin_models
from autoauto.server.client import ServerError, connect
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.trials import study_name
from autoauto.server.store.users import Role
from autoauto.study.store.study import load_study
from tests.drawn import daily
from tests.running import PATIENCE_S, children_of, command_line, wait_until
from tests.server.conftest import ROOT, Caller, Start, small

StartWorker = Callable[..., "subprocess.Popen[bytes]"]
LONG: dict[str, Any] = {
    "space": {"n_ipu": [1], "replicas": [1], "memory_proportion": [0.6], "batch_size": {"from": 1, "to": 12}},
    "cluster": "c600",
    "method": "exhaustive",
}
"""A search of many configurations."""


def runners_of(worker: int) -> list[int]:
    """The process that runs searches for a worker, below its guard; others are forks of the worker itself."""
    own = command_line(worker)
    guards = [child for child, command in children_of(worker).items() if command != own]
    return [runner for guard in guards for runner in children_of(guard)]


def lines_without_times(text: str) -> list[str]:
    """The lines of a table or of CSV without when and how long trials ran, and without where they are stored."""
    return [re.sub(r",2\d{3}-.*|--storage \S+ ?", "", line) for line in text.splitlines()]


def n_trials(caller: Caller, search_id: str) -> int:
    return int(caller("GET", f"/v1/searches/{search_id}").body["n_trials"])


def trials_of(storage: str, search_id: str) -> list[dict[str, Any]]:
    """The parameters of all trials that were stored for a search."""
    return [trial.params for trial in load_study(storage, study_name(search_id)).get_trials()]


def refuse_doubles(storage: str, search_id: str) -> None:
    params = [json.dumps(each, sort_keys=True) for each in trials_of(storage, search_id)]
    assert params
    assert len(params) == len(set(params))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_with_a_worker_in_it_finds_what_the_command_finds(
    storage: str, start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(storage)
    mary = server.caller("mary")
    search_id = mary("POST", "/v1/searches", small()).body["id"]
    outcome = mary.ended(search_id)
    assert (outcome["state"], outcome["reason"], outcome["ended_by"]) == ("finished", "", None)
    options = "--cluster c600 --n-ipu 1 --replicas 1 --memory-proportion 0.6 --batch-size 4 --repeats 0"
    command = ["search", "resnet50", *options.split()]
    assert main([*command, "--json", "--storage", f"sqlite:///{tmp_path}/local.db"]) == 0
    local = json.loads(capfd.readouterr().out)
    assert outcome["best"] == local["best"]
    assert {name: outcome["answer"][name] for name in local if name not in ("storage", "study_name")} == {
        name: value for name, value in local.items() if name not in ("storage", "study_name")
    }
    monkeypatch.setenv("AUTOAUTO_TOKEN", mary.token or "")
    assert main([*command, "--server", server.url]) == 0
    remote = capfd.readouterr().out
    assert remote.endswith(f"search {search_id} on {server.url}, finished\n")
    assert main([*command, "--storage", f"sqlite:///{tmp_path}/local.db"]) == 0
    shown = capfd.readouterr().out.partition("\nstudy ")[0]
    assert remote.startswith(shown)
    storage_options = ["--storage", f"sqlite:///{tmp_path}/local.db"]
    for words in (["report"], ["explain"], ["trials"], ["trials", "--csv"]):
        assert main([*words, *storage_options]) == 0
        here = lines_without_times(capfd.readouterr().out)
        assert main([*words, "--server", server.url]) == 0
        assert lines_without_times(capfd.readouterr().out) == here
    assert main(["diff", search_id, search_id[:6], "--server", server.url, "--json"]) == 0
    compared = json.loads(capfd.readouterr().out)
    assert f"{local['best']['samples_per_s']:,.1f} samples/s" in [row["first"] for row in compared["What each gave"]]
    assert compared["Knobs that differ"] == []
    assert main(["export", search_id, "--to", "onnx", "--output", f"{tmp_path}/art", "--server", server.url]) == 0
    assert {"pipeline.json", "README.md"} <= {path.name for path in (tmp_path / "art").iterdir()}
    assert main(["studies", "--server", server.url]) == 0
    assert search_id in capfd.readouterr().out
    assert main([*command, "--server", server.url, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["best"] == local["best"]
    ids = {each["id"] for each in mary("GET", "/v1/searches").body["searches"]}
    assert ids == {search_id}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_clients_with_equal_and_other_searches_lose_double_and_see_none_of_others(
    storage: str, start: Start, start_worker: StartWorker
) -> None:
    """Four owners ask for five searches each at once, three of which all ask for; two workers elsewhere run them."""
    server = start(storage, "--no-worker")
    workers = [start_worker(storage), start_worker(storage)]
    owners = [server.caller(f"owner{n}") for n in range(4)]
    wanted = [[small(size) for size in (1, 2, 3, 10 + 2 * n, 11 + 2 * n)] for n in range(4)]
    with ThreadPoolExecutor(16) as pool:
        asked = [(caller, body) for n, caller in enumerate(owners) for body in wanted[n]]
        flat = list(pool.map(lambda pair: pair[0]("POST", "/v1/searches", pair[1]), asked))
    replies = [flat[start : start + 5] for start in range(0, len(flat), 5)]
    ids = [[reply.body["id"] for reply in of_owner] for of_owner in replies]
    assert sum(reply.status == 202 for of_owner in replies for reply in of_owner) == 3 + 4 * 2
    for n, caller in enumerate(owners):
        for search_id in ids[n]:
            assert caller.ended(search_id)["state"] == "finished"
        seen = [each["id"] for each in caller("GET", "/v1/searches?limit=200").body["searches"]]
        assert sorted(seen) == sorted(ids[n])
    for search_id in {each for of_owner in ids for each in of_owner}:
        assert len(trials_of(storage, search_id)) == 1
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_of_server_worker_and_runner_lose_nothing(storage: str, start: Start, start_worker: StartWorker) -> None:
    server = start(storage, "--no-worker")
    mary = server.caller("mary")
    search_id = mary("POST", "/v1/searches", LONG).body["id"]
    first = start_worker(storage)
    wait_until(lambda: n_trials(mary, search_id) >= 1, "the first trial")
    [runner] = runners_of(first.pid)
    os.kill(runner, signal.SIGKILL)
    before = n_trials(mary, search_id)
    server.kill()
    again = start(storage, "--no-worker", listen=server.url.removeprefix("http://"))
    assert again.url == server.url
    before = min(before, 11)  # of 12; stored forecasts may have let all of them be made before the kill
    wait_until(lambda: n_trials(mary, search_id) > before, "a trial after the kill of the runner and the server")
    first.kill()
    first.wait()
    start_worker(storage)
    outcome = mary.ended(search_id)
    assert (outcome["state"], outcome["reason"] if outcome["best"] is None else "") == ("finished", "")
    refuse_doubles(storage, search_id)
    assert len(trials_of(storage, search_id)) == 12


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_that_reach_only_the_server_go_on_where_a_killed_one_left(
    sqlite_storage: str, start: Start, start_worker: StartWorker
) -> None:
    server = start(sqlite_storage, "--no-worker")
    mary, worker = server.caller("mary"), server.caller("machine", Role.WORKER)
    model = next((ROOT / "data" / "models").glob("resnet50.onnx")).read_bytes()
    uploaded = mary("POST", "/v1/models", model).body["model"]
    search_id = mary("POST", "/v1/searches", {**LONG, "model": uploaded}).body["id"]
    first = start_worker(None, "--server", server.url, token=worker.token)
    wait_until(lambda: len(mary("GET", f"/v1/searches/{search_id}/trials").body["trials"]) >= 2, "trials are there")
    first.kill()
    first.wait()
    start_worker(None, "--server", server.url, token=worker.token)
    assert mary.ended(search_id)["state"] == "finished"
    refuse_doubles(sqlite_storage, search_id)
    assert len(trials_of(sqlite_storage, search_id)) == 12


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_with_a_token_of_another_role_ends_with_2(
    sqlite_storage: str, start: Start, start_worker: StartWorker, tmp_path: Path
) -> None:
    server = start(sqlite_storage, "--no-worker")
    token = server.caller("mary").token
    assert start_worker(None, "--server", server.url, token=token).wait(PATIENCE_S) == 2
    assert "needs the role worker, mary has submitter" in (tmp_path / "workers.log").read_text()


def test_a_worker_whose_server_is_away_ends_at_a_signal(
    sqlite_storage: str, start: Start, start_worker: StartWorker, tmp_path: Path
) -> None:
    server = start(sqlite_storage, "--no-worker")
    worker = start_worker(None, "--server", server.url, token=server.caller("box", Role.WORKER).token)
    wait_until(lambda: "joined" in (tmp_path / "workers.log").read_text(), "the worker has joined")
    server.process.send_signal(signal.SIGSTOP)  # connections are taken, and nothing is answered
    worker.send_signal(signal.SIGTERM)
    try:
        assert worker.wait(PATIENCE_S) == 0
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_the_command_says_how_a_stopped_search_goes_on_and_resume_lets_it(
    sqlite_storage: str, start: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(sqlite_storage, "--no-worker", "--open")
    command = ["search", "--server", server.url, "--cluster", "c600", "--n-ipu", "1", "--batch-size", "4"]
    waiting = subprocess.Popen([sys.executable, "-m", "autoauto", *command], stderr=subprocess.DEVNULL, cwd=ROOT)
    client = connect(server.url, "")
    wait_until(lambda: any(client.searches()), "the search waits")
    search = next(client.searches())["id"]
    client.ask("POST", f"/v1/searches/{search}/stop")
    assert waiting.wait(PATIENCE_S) == 2
    assert main(command) == 2
    assert "stopped before it began; the same command with --resume goes on" in capsys.readouterr().err
    monkeypatch.setattr("autoauto.server.client.ServerSearch.wait", lambda self, _: self.read() | {"reason": "seen"})
    assert main([*command, "--resume"]) == 2
    assert f"search {search} waiting: seen" in capsys.readouterr().err


@pytest.mark.parametrize("storage", daily(["sqlite", "postgres"]), indirect=True)
def test_a_stop_leaves_the_best_so_far_verified_and_resume_goes_on(
    storage: str, start: Start, start_worker: StartWorker
) -> None:
    longer = {
        **LONG,
        "space": {**LONG["space"], "batch_size": {"from": 1, "to": 60}},
    }  # it must not end before the stop
    server = start(storage, "--no-worker")
    mary = server.caller("mary")
    search_id = mary("POST", "/v1/searches", longer).body["id"]
    start_worker(storage)
    wait_until(lambda: n_trials(mary, search_id) >= 1, "the first trial")
    mary("POST", f"/v1/searches/{search_id}/stop")
    stopped: dict[str, Any] = {}

    def has_answer() -> bool:
        stopped.update(mary("GET", f"/v1/searches/{search_id}").body)
        return stopped["answer"] is not None

    wait_until(has_answer, "the best so far")
    assert (stopped["state"], stopped["ended_by"]) == ("stopped", "stop")
    assert stopped["best"]["samples_per_s"] > 0
    assert stopped["answer"]["n_repeats"] == 1
    n_before = stopped["n_trials"]
    assert n_before < 60
    assert mary("POST", f"/v1/searches/{search_id}/resume").body["state"] == "waiting"
    outcome = mary.ended(search_id)
    assert (outcome["state"], outcome["ended_by"]) == ("finished", None)
    refuse_doubles(storage, search_id)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_limit_of_trials_ends_a_search_with_an_answer(sqlite_storage: str, start: Start) -> None:
    mary = start(sqlite_storage).caller("mary")
    search_id = mary("POST", "/v1/searches", {**LONG, "limits": {"trials": 3}}).body["id"]
    outcome = mary.ended(search_id)
    assert (outcome["state"], outcome["ended_by"], outcome["n_trials"]) == ("finished", "trials", 3)
    assert outcome["best"]["samples_per_s"] > 0
    mary("POST", f"/v1/searches/{search_id}/resume")
    assert mary.ended(search_id)["n_trials"] == 6


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_that_kills_its_runner_is_failed_and_others_go_on(
    sqlite_storage: str, start: Start, start_worker: StartWorker
) -> None:
    server = start(sqlite_storage, "--no-worker")
    mary = server.caller("mary")
    search_id = mary("POST", "/v1/searches", LONG).body["id"]
    worker = start_worker(sqlite_storage)
    killed: set[int] = set()

    def kill_runner_or_ended() -> bool:
        with suppress(ProcessLookupError):  # it has just ended
            for runner in set(runners_of(worker.pid)) - killed:
                killed.add(runner)
                os.kill(runner, signal.SIGKILL)
        return bool(mary("GET", f"/v1/searches/{search_id}").body["state"] == "failed")

    wait_until(kill_runner_or_ended, "three kills")
    failed = mary("GET", f"/v1/searches/{search_id}").body
    assert "3 times" in failed["reason"]
    assert "signal 9" in failed["reason"]
    other = mary("POST", "/v1/searches", small()).body["id"]
    assert mary.ended(other)["state"] == "finished"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_nothing_fits_or_cannot_be_opened_says_why(sqlite_storage: str, start: Start) -> None:
    mary = start(sqlite_storage).caller("mary")
    never = mary("POST", "/v1/searches", small(constraints=["latency_s <= 0.000001"])).body["id"]
    unfit = mary.ended(never)
    assert (unfit["state"], unfit["best"], unfit["answer"]["exit_code"]) == ("finished", None, 3)
    assert unfit["reason"].startswith("no configuration fits")
    digest = mary("POST", "/v1/models", b"this is no model").body["model"]
    unread = mary.ended(mary("POST", "/v1/searches", {"model": digest}).body["id"])
    assert unread["state"] == "failed"
    assert unread["reason"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_client_of_python_uploads_a_model_once_and_ctrl_c_leaves_its_search(
    sqlite_storage: str, start: Start, tmp_path: Path
) -> None:
    server = start(sqlite_storage)
    mary = server.caller("mary")
    model = next((ROOT / "data" / "models").glob("resnet50.onnx"))
    (tmp_path / "mine.onnx").write_bytes(model.read_bytes())
    client = autoauto.connect(server.url, mary.token)
    space = {"n_ipu": [1], "replicas": [1], "memory_proportion": [0.6], "batch_size": [4]}
    first, again = (client.search(tmp_path / "mine.onnx", "c600", space, repeats=0) for _ in range(2))
    assert first.id == again.id
    assert first.wait()["state"] == "finished"
    options = ["--cluster", "c600", "--n-ipu", "1", "--replicas", "1", "--method", "exhaustive", "--log", "json"]
    command = [sys.executable, "-m", "autoauto", "search", *options, "--server", server.url]
    environment = {**os.environ, "AUTOAUTO_TOKEN": mary.token or ""}
    waiting = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    assert waiting.stderr is not None
    assert json.loads(waiting.stderr.readline())["event"] == "progress"
    waiting.send_signal(signal.SIGINT)
    _, error = waiting.communicate()
    assert waiting.returncode == 130
    assert "goes on at" in error.splitlines()[-1]
    newest = next(iter(client.searches()))
    assert newest["state"] in ("waiting", "running")
    mary("POST", f"/v1/searches/{newest['id']}/stop")


TRACE = "time_s,input_tokens,output_tokens\n" + "".join(f"{i / 4},{200 + i},{20 + i % 9}\n" for i in range(80))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_trace_is_uploaded_and_answers_as_it_does_here(sqlite_storage: str, start: Start, tmp_path: Path) -> None:
    server = start(sqlite_storage)
    mary, john = server.caller("mary"), server.caller("john")
    (tmp_path / "mine.csv").write_text(TRACE)
    words = ["search", "Qwen/Qwen3-0.6B", "--cluster", "h100_sxm-1", "--engine", "sglang", "--batch-size", "8,16"]
    command = [sys.executable, "-m", "autoauto", *words, "--trace", str(tmp_path / "mine.csv"), "--json"]
    environment = {**os.environ, "AUTOAUTO_TOKEN": mary.token or ""}
    run = partial(subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    there = run([*command, "--server", server.url])
    here = run([*command, "--storage", sqlite_storage])
    assert (there.returncode, here.returncode) == (0, 0), there.stderr + here.stderr
    there_best, here_best = (json.loads(done.stdout)["best"] for done in (there, here))
    assert there_best["ttft_p99_s"] > 0
    names = ("tensor_parallel", "batch_size", "tokens_per_s", "ttft_p99_s", "tpot_p50_s")
    assert [there_best[name] for name in names] == [here_best[name] for name in names]
    (search,) = mary("GET", "/v1/searches").body["searches"]
    assert search["files"] == {"trace": "mine.csv"}
    digest = hashlib.sha256(TRACE.encode()).hexdigest()
    shared = {"target": "gpu", "model": "Qwen/Qwen3-0.6B", "trace": f"sha256:{digest}"}
    assert john("POST", "/v1/searches", shared).status == 400


def test_a_server_that_does_not_answer_is_waited_for_and_then_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.server.client.WORD_S", 0.0)
    lines: list[str] = []
    client = connect("http://127.0.0.1:9", "x", 0.1, lines.append)
    with pytest.raises(autoauto.AutoautoError, match="must answer, it does not: Connection refused; check"):
        client.search()
    assert lines == ["waiting for http://127.0.0.1:9, 0.1 s at most"]


@pytest.mark.parametrize("named", [{"model": "missing.onnx"}, {"cluster": "missing.toml"}])
def test_a_missing_file_is_called_missing_before_the_server_is_asked(named: dict[str, Any]) -> None:
    present = {"model": builtin_models()["resnet50"], "cluster": "c600"}
    with pytest.raises(autoauto.AutoautoError, match="there is no file 'missing"):
        connect("http://127.0.0.1:9", "x").search(**{**present, **named})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.onnx"], "there is no file 'missing.onnx'"),
        ([str(builtin_models()["resnet50"]), "--cluster", "missing.toml"], "there is no file 'missing.toml'"),
        (["--target", "host", "--inputs", "a.npz"], "there is no file 'a.npz' for --inputs"),
    ],
)
def test_what_was_typed_is_checked_before_the_server_is_asked(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", *words, "--server", "http://127.0.0.1:9"]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert "waiting for" not in error


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://"])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(autoauto.BadInput, match="a server is written http://HOST:PORT"):
        connect(url)


def test_commands_make_list_and_revoke_tokens_and_check(
    sqlite_storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*words: str) -> str:
        assert main(["server", *words, "--storage", sqlite_storage]) == 0
        return capsys.readouterr().out

    token = printed("token", "create", "mary", "--role", "admin").split()[-1]
    assert token.startswith("autoauto-")
    assert printed("token", "list").startswith("mary admin in force, made ")
    assert printed("token", "revoke", "mary") == "revoked: 1 of mary\n"
    assert "tokens: 0 in force, 1 ended" in printed("check")
    assert main(["server", "tokens", "--storage", sqlite_storage]) == 2
    assert main(["server", "--open", "--listen", "0.0.0.0:0", "--storage", sqlite_storage]) == 2
    assert "must listen at this machine alone" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_server_with_a_certificate_answers_clients_that_accept_it(
    sqlite_storage: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = start(sqlite_storage, "--no-worker", "--tls-cert", str(certificate), "--tls-key", str(key))
    assert server.url.startswith("https://127.0.0.1:")
    client = connect(server.url, server.caller("mary").token)
    with pytest.raises(ServerError, match="certificate of your own in SSL_CERT_FILE"):
        client.search("resnet50", **small())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert client.search("resnet50", **small()).id


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--proxy-header", "X-User"], "go together"),
        (["--tls-cert", "cert.pem"], "go together"),
        (["--tls-cert", "no.pem", "--tls-key", "no.pem"], "TLS needs a certificate"),
        (["--proxy-header", "X-User", "--proxy-address", "10.0.0.300"], "an address is written"),
    ],
)
def test_options_of_identity_that_do_not_go_together_are_refused(
    options: list[str], part: str, sqlite_storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "--storage", sqlite_storage, *options]) == 2
    assert part in capsys.readouterr().err


def test_a_database_of_another_schema_is_refused(sqlite_storage: str) -> None:
    database = ServiceDatabase(sqlite_storage)
    database.write(lambda connection: connection.exec_driver_sql("UPDATE autoauto_server_schema SET schema = 99"))
    database.close()
    with pytest.raises(autoauto.BadInput, match="must be 2, got 99"):
        ServiceDatabase(sqlite_storage)


def test_an_open_server_needs_no_token_and_says_so(sqlite_storage: str, start: Start) -> None:
    server = start(sqlite_storage, "--no-worker", "--open")
    assert "as an administrator" in server.open_text
    assert Caller(server.url, None)("GET", "/v1/searches").status == 200
    assert Caller(server.url, "wrong")("GET", "/v1/searches").status == 401
