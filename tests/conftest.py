"""Fixtures for every room: numeric vectors, profiles of auto_pipeline, models of layers in a row, and a browser."""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from autoauto.records.costs.traffic import load
from autoauto.records.layers import Layer, LayerGraph, Tensor
from tests.drawn import N_EXAMPLES
from tests.running import PATIENCE_S, wait_until

VECTORS = Path(__file__).parent / "vectors"

# A run of all tests compiles modules once, not in every worker and every process of a test, whatever the machine sets.
# One of a changed file, `studies/mutants.py`, may be over within the second that tells old bytecode from new.
if "PYTEST_XDIST_WORKER" in os.environ:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Drawn examples are the same in every run, and none is late on a busy machine.
settings.register_profile("thorough", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("daily", settings.get_profile("thorough"), max_examples=N_EXAMPLES)
settings.load_profile("daily")

gc.set_threshold(100_000)
"""New objects after which Python looks for circles; every 700, as by default, takes a tenth of the time of tests."""


class ModulesWithExamples:
    """Look for examples in docstrings only in files that have some: the others are not imported for it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        collectors = yield
        if file_path.suffix != ".py" or b">>>" in file_path.read_bytes():
            return collectors
        return [collector for collector in collectors if not isinstance(collector, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    """Register what applies to the package too; functions of this file apply to the folder of it."""
    config.pluginmanager.register(ModulesWithExamples())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that may take longest, so that at the end no process is left alone with one of them."""
    items.sort(key=lambda item: -max((mark.args[0] for mark in item.iter_markers("timeout")), default=0))


def pytest_collection_finish() -> None:
    """Look for no circles in what was collected, and in the modules that this loaded: a look takes half a second."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_interrupts() -> None:
    """Handle SIGINT even where a shell ignores it in the background, so that processes of tests do not ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def measure_at_any_speed() -> Iterator[None]:
    """Do not wait for a fast core before measurements, nor for a steady pace: no test looks at their values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOAUTO_PATIENCE_S", "0")
        patch.setenv("AUTOAUTO_RUN_S", "0.1")
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache of profiles for all tests, and for the other pytest processes: what it holds changes no answer.

    It is new in every run, unless AUTOAUTO_TEST_CACHE_DIR names one for several runs.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOAUTO_CACHE_DIR", os.environ.get("AUTOAUTO_TEST_CACHE_DIR", str(folder / "cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def share_kernel_times() -> Iterator[None]:
    """Write kernel times that a file of tests asked for, so that other processes open no table for them."""
    yield
    if (answers := sys.modules.get("autoauto.targets.gpu.answers")) is not None:
        answers.write_all()


@pytest.fixture
def brief_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a quarter of the requests of a load, for tests of what is made of simulations."""
    for name in ("_MIN_REQUESTS", "_MAX_REQUESTS", "_MIN_LOAD_S", "_LATENCIES"):
        monkeypatch.setattr(load, name, getattr(load, name) // 4)


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], Any]:
    """Read `tests/vectors/NAME.json`."""
    return lambda name: json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def expand_profile() -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Turn a vector's compact columns into a ModelInfo dictionary [auto-pipeline]."""
    return _expand


def _expand(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "layerName": columns["layerName"],
        "layerType": [f"type {name}" for name in columns["layerName"]],
        "layerInfo": [
            {
                "cycle": {"forward": cycles, "backward": 0, "total": cycles},
                "memory": {
                    "shared": columns["shared"][i],
                    "exclusive": columns["exclusive"][i],
                    "inputs": columns["inputs"][i],
                    "outputs": columns["outputs"][i],
                    "curActivation": 0,
                    "maxTemporary": columns["maxTemporary"][i],
                    "curCarryOver": columns["curCarryOver"][i],
                },
            }
            for i, cycles in enumerate(columns["cycles"])
        ],
    }


@pytest.fixture(scope="session")
def chain() -> Callable[..., LayerGraph]:
    """Make a model of layers in a row, one matrix multiplication each."""
    return _chain


def _chain(kinds: Sequence[str], tie: Sequence[int] = ()) -> LayerGraph:
    """Layer i has `kinds[i]`, reads tensor i, writes tensor i + 1; layers in `tie` read one weight."""
    n = len(kinds)
    activations = [Tensor(f"x{i}", (1, 64), 0, "float", i - 1, i) for i in range(n + 1)]
    weights = [Tensor(f"w{i}", (64, 64), None, "float", -1, -1) for i in range(n)]
    layers = []
    for i, kind in enumerate(kinds):
        weight = n + 1 + (min(tie) if i in tie else i)
        tied = "shared" if i in tie else None
        layers.append(Layer(f"layer{i}", "MatMul", (), (i,), (i + 1,), (weight,), (i, weight), kind, tied))
    return LayerGraph("chain", tuple(layers), (*activations, *weights), None, "content of " + " ".join(kinds))


class Browser:
    """Chromium without a window, controlled through a pipe; it records what pages log, raise and request."""

    def __init__(self, chromium: str, folder: Path) -> None:
        commands, answers = os.pipe(), os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={folder}"]
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        pipes = f'exec 3<&{commands[0]} 4>&{answers[1]}; exec "$@"'
        command = ["bash", "-c", pipes, "bash", chromium, *options, "about:blank"]
        ends = (commands[0], answers[1])
        self._process = subprocess.Popen(command, pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in ends:
            os.close(end)
        self._out, self._in, self._rest, self._count = commands[1], answers[0], b"", 0
        self._events: list[dict[str, Any]] = []
        self._session: dict[str, str] = {}
        (page,) = (info for info in self.send("Target.getTargets")["targetInfos"] if info["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its result."""
        answer = self._answer(method, **params)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _answer(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **self._session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._count:
            self._events.append(answer)
        return answer

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], PATIENCE_S)
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, url: str, width: int = 1280, scheme: str = "light") -> None:
        """Load a page on a screen of this width, with this preferred colour scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self.send("Page.navigate", url=url)
        self.wait('document.readyState === "complete"')

    def run_scripts(self, allowed: bool) -> None:
        """Whether pages that are opened from now on may run scripts; `ask` works in any case."""
        self.send("Emulation.setScriptExecutionDisabled", value=not allowed)

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression of JavaScript in the page is true; the page may load itself again meanwhile."""

        def is_true() -> bool:
            answer = self._answer("Runtime.evaluate", expression=condition, returnByValue=True, awaitPromise=True)
            if "navigated" in answer.get("error", {}).get("message", ""):
                return False
            assert "exceptionDetails" not in answer.get("result", {"exceptionDetails": answer}), answer
            return bool(answer["result"]["result"].get("value"))

        wait_until(is_true, condition)

    @property
    def requests(self) -> list[str]:
        """All addresses that the page requested."""
        sent = (event["params"] for event in self._events if event.get("method") == "Network.requestWillBeSent")
        return [params["request"]["url"] for params in sent]

    @property
    def errors(self) -> list[str]:
        """Exceptions of the page, and errors and warnings on its console."""
        bad = {"error", "warning", "assert"}
        errors = []
        for event in self._events:
            params = event.get("params", {})
            kind = params.get("type") if event["method"] == "Runtime.consoleAPICalled" else None
            kind = params["entry"]["level"] if event["method"] == "Log.entryAdded" else kind
            if event["method"] == "Runtime.exceptionThrown" or kind in bad:
                errors.append(json.dumps(params))
        return errors

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_S)
        os.close(self._out)
        os.close(self._in)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A real browser; without one the test is skipped, with AUTOAUTO_REQUIRE_BROWSER it fails."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        assert not os.environ.get("AUTOAUTO_REQUIRE_BROWSER"), "no Chromium to open the page"
        pytest.skip("no Chromium to open the page")
    running = Browser(chromium, tmp_path / "browser")
    yield running
    running.close()
