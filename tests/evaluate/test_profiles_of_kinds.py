"""Profiles of devices of several kinds: a profile each, or a speed each; against plans made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import main
from autoauto.evaluate.open import load_flow, open_problem
from autoauto.records.costs.options import PlainSession
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.requests.problem import Problem, ProfileFiles
from autoauto.targets.clusters import load_cluster
from tests.profile.importers.test_mutations import check_one_line

FAST_S, SLOW_S = (0.001, 0.002, 0.003, 0.004), (0.004, 0.003, 0.008, 0.005)
"""Of four layers: the fast devices are not the same number of times as fast at each."""
OUTPUT_BYTES = (3_000_000, 1_000_000, 2_000_000, 500_000)
LINK_BYTES_PER_S = {"fast": 4e9, "slow": 2e9}
HOST_BYTES_PER_S = {"fast": 1e9, "slow": 5e8}
COUNTS = {"fast": 1, "slow": 2}


def cluster_text(target: str = "profile", speeds: dict[str, float] | None = None) -> str:
    """One fast device and two slow ones."""
    text = f'name = "two"\ntarget = "{target}"\n'
    clock = "" if target == "profile" else "clock_hz = 1e9, n_tiles = 1, tile_memory_bytes = 1_000_000, "
    for name, n_devices in COUNTS.items():
        text += f"[[kinds]]\nn_devices = {n_devices}\n"
        text += f"speed = {speeds[name]}\n" if speeds and name in speeds else ""
        text += f'device = {{ name = "{name}", {clock}memory_bytes = 1_000_000_000 }}\n'
        text += f"device_link = {{ bytes_per_s = {LINK_BYTES_PER_S[name]}, idle_cycles = 0 }}\n"
        text += f"host_link = {{ bytes_per_s = {HOST_BYTES_PER_S[name]}, idle_cycles = 0 }}\n"
    return text


def table_text(times_s: tuple[float, ...]) -> str:
    rows = [f"l{i},{s},{n}" for i, (s, n) in enumerate(zip(times_s, OUTPUT_BYTES, strict=True))]
    return "\n".join(["name,forward_s,output_bytes", *rows])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fast.csv").write_text(table_text(FAST_S))
    (tmp_path / "slow.csv").write_text(table_text(SLOW_S))
    (tmp_path / "two.toml").write_text(cluster_text())
    return tmp_path


def problem(folder: Path, *profiles: str, cluster: str = "two.toml") -> Problem:
    return Problem(None, cluster=str(folder / cluster), profile=ProfileFiles(profiles, "csv"))


def of_each(folder: Path) -> tuple[str, str]:
    return f"fast:1={folder / 'fast.csv'}", f"slow:1={folder / 'slow.csv'}"


def stage_s(kind: str, times_s: tuple[float, ...], start: int, stop: int) -> float:
    """What a device does one after the other: it receives, computes and sends."""
    host, link = HOST_BYTES_PER_S[kind], LINK_BYTES_PER_S[kind]
    receive_s = OUTPUT_BYTES[start - 1] / link if start else 0.0
    return receive_s + sum(times_s[start:stop]) + OUTPUT_BYTES[stop - 1] / (host if stop == 4 else link)


def shortest_period_s(n_ipu: int, times_s: dict[str, tuple[float, ...]]) -> float:
    """The shortest period of all cuts and all orders of devices."""
    devices = [kind for kind, n in COUNTS.items() for _ in range(n)]
    return min(
        max(
            stage_s(kind, times_s[kind], start, stop)
            for kind, start, stop in zip(kinds, (0, *cuts), (*cuts, 4), strict=True)
        )
        for cuts in combinations((1, 2, 3), n_ipu - 1)
        for kinds in permutations(devices, n_ipu)
    )


@pytest.mark.parametrize("n_ipu", [1, 2, 3])
def test_a_plan_is_the_best_of_all_orders_by_the_times_of_each_kind(folder: Path, n_ipu: int) -> None:
    flow = open_problem(problem(folder, *of_each(folder)))
    plan = flow.predict(Knobs(n_ipu, 1, session=PlainSession()))
    best_s = shortest_period_s(n_ipu, {"fast": FAST_S, "slow": SLOW_S})
    assert plan.cost_cycles / flow.cluster.clock_hz == pytest.approx(best_s, rel=1e-5)
    for stage in plan.stages:
        times_s = FAST_S if stage.device_kind == "fast" else SLOW_S
        assert stage.compute_cycles / 1e9 == pytest.approx(sum(times_s[stage.layers.start : stage.layers.stop]))
    assert flow.evaluate(Knobs(n_ipu, 1, session=PlainSession())).samples_per_s == pytest.approx(1 / best_s, rel=1e-5)


@pytest.mark.parametrize("n_ipu", [1, 2, 3])
def test_a_speed_divides_the_times_of_one_profile(folder: Path, n_ipu: int) -> None:
    (folder / "speed.toml").write_text(cluster_text(speeds={"fast": 2.0}))
    flow = open_problem(problem(folder, str(folder / "slow.csv"), cluster="speed.toml"))
    halved_s = tuple(seconds / 2 for seconds in SLOW_S)
    plan = flow.predict(Knobs(n_ipu, 1, session=PlainSession()))
    best_s = shortest_period_s(n_ipu, {"fast": halved_s, "slow": SLOW_S})
    assert plan.cost_cycles / 1e9 == pytest.approx(best_s, rel=1e-5)
    assert "speeds of the cluster file divide the times of the profile: fast 2, slow 1, not given" in flow.setting.notes


def test_clocks_of_unlike_kinds_change_nothing(folder: Path) -> None:
    """The profile is in seconds; a cluster of another target has clocks."""
    text = cluster_text("ipu")
    (folder / "ipu.toml").write_text(text.replace("clock_hz = 1e9", "clock_hz = 3e9", 1))
    by_seconds, by_clock = (
        open_problem(problem(folder, *of_each(folder), cluster=name))
        .evaluate(Knobs(3, 1, session=PlainSession()))
        .samples_per_s
        for name in ("two.toml", "ipu.toml")
    )
    assert by_clock == pytest.approx(by_seconds, rel=1e-5)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main([*argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_search_uses_all_devices_by_their_own_times(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiles = [word for text in of_each(folder) for word in ("--profile", text)]
    arguments = [*profiles, "--profile-format", "csv", "--cluster", str(folder / "two.toml")]
    storage = ["--storage", f"sqlite:///{folder / 'trials.db'}"]
    best = run(capsys, "search", *arguments, *storage, "--study-name", "own", "--json")["best"]
    alone_s = {"fast": stage_s("fast", FAST_S, 0, 4), "slow": stage_s("slow", SLOW_S, 0, 4)}
    replicas = sum(n / alone_s[kind] for kind, n in COUNTS.items())
    assert best["samples_per_s"] == pytest.approx(
        max(replicas, *(1 / shortest_period_s(n, {"fast": FAST_S, "slow": SLOW_S}) for n in (2, 3))), rel=1e-5
    )
    assert main(["explain", "own", *storage]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    again = run(capsys, *command.partition("autoauto ")[2].split(), "--json")
    assert again["samples_per_s"] == pytest.approx(best["samples_per_s"])


def test_a_stored_problem_opens_the_same_profiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    stored = problem(folder, "fast:1=fast.csv", "slow=slow.csv").plain
    monkeypatch.chdir("/")
    again = open_problem(Problem.read(stored, "a problem"))
    assert again.fingerprint() == open_problem(problem(folder, *of_each(folder))).fingerprint()


def test_files_with_batch_sizes_are_named_by_their_kind_alone(folder: Path) -> None:
    def rows(times_s: tuple[float, ...], sizes: tuple[int, ...]) -> str:
        layers = list(enumerate(zip(times_s, OUTPUT_BYTES, strict=True)))
        lines = [f"l{i},{s * size},{n},{size}" for size in sizes for i, (s, n) in layers]
        return "\n".join(["name,forward_s,output_bytes,batch_size", *lines])

    (folder / "fast.csv").write_text(rows(FAST_S, (1, 8)))
    (folder / "slow.csv").write_text(rows(SLOW_S, (2, 4)))
    flow = open_problem(problem(folder, f"fast={folder / 'fast.csv'}", f"slow={folder / 'slow.csv'}"))
    assert flow.traits.space is not None
    assert flow.traits.space["batch_size"] == (2, 3, 4)
    assert "at batch size 1, 8 of fast, 2, 4 of slow; between them it is interpolated" in flow.setting.notes[-1]
    with pytest.raises(BadInput, match=r"profile of slow has batch size 2, 4, got --batch-size 8, .* slow:B=FILE"):
        flow.predict(Knobs(2, 8, session=PlainSession()))


def test_a_path_with_an_equals_sign_is_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "a=b.csv").write_text(table_text(FAST_S))
    files = ProfileFiles(("a=b.csv",), "csv", (), 2, 1.0, 1.0)
    assert open_problem(Problem.read(Problem(profile=files).plain, "a problem")).graph.name == "a=b"


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        (("1={slow}",), "a profile is of one kind of device, two has fast, slow, and nothing says how fast each runs"),
        (("fast:1={fast}",), "every kind needs its profile, slow has none; record it"),
        (("fast:1={fast}", "1={slow}"), "every --profile names its kind of devices or none, .*slow.csv has none"),
        (
            ("fast:1={fast}", "old:1={slow}"),
            "--profile old:B=FILE must name devices of the cluster, two has fast, slow",
        ),
        (("fast:1={fast}", "slow:1={fast}", "slow:1={slow}"), "several of 1 of slow; .* --profile slow:8=FILE"),
        (
            ("fast:1={fast}", "slow:2={slow}"),
            "kinds need a batch size in common, got fast 1, slow 2; record one on all",
        ),
        (("fast:1={fast}", "slow:1={other}"), "fast has 4 layers, slow has 3; record one model at both"),
        (("fast:1={fast}", "slow:1={training}"), "slow has a backward pass, fast has none; record the same on both"),
    ],
)
def test_what_says_nothing_of_a_kind_is_refused_in_one_line(
    folder: Path, profiles: tuple[str, ...], message: str
) -> None:
    (folder / "other.csv").write_text("\n".join(table_text(SLOW_S).splitlines()[:-1]))
    lines = [f"l{i},1,1,1" for i in range(4)]
    (folder / "training.csv").write_text("\n".join(["name,forward_s,output_bytes,backward_s", *lines]))
    paths = {name: folder / f"{name}.csv" for name in ("fast", "slow", "other", "training")}
    with pytest.raises(BadInput, match=message) as refused:
        open_problem(problem(folder, *(text.format(**paths) for text in profiles)))
    check_one_line(refused.value)


def test_a_speed_and_a_profile_of_the_same_kind_contradict_each_other(folder: Path) -> None:
    (folder / "two.toml").write_text(cluster_text(speeds={"fast": 2.0}))
    with pytest.raises(BadInput, match="fast has a speed and a --profile of its own"):
        open_problem(problem(folder, *of_each(folder)))


def test_a_speed_is_refused_where_each_kind_is_compiled(folder: Path) -> None:
    (folder / "two.toml").write_text(cluster_text("ipu", {"fast": 2.0}))
    with pytest.raises(BadInput, match="a speed is for --profile FILE, whose times it divides, two has one of fast"):
        load_flow("resnet50", folder / "two.toml")


def test_unlike_devices_in_a_line_are_refused(folder: Path) -> None:
    line = load_cluster("seed-2-ipu")
    faster = replace(line.devices[1], clock_hz=2 * line.devices[1].clock_hz)
    target = open_problem(problem(folder, *of_each(folder))).target
    alone = replace(target, of_kinds={})  # type: ignore[type-var]
    with pytest.raises(BadInput, match=r"lists .* and nothing says how fast each runs the layers; write them as"):
        alone.on_devices(replace(line, devices=(line.devices[0], faster)))  # type: ignore[attr-defined]


def test_training_on_unlike_devices_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows = table_text(SLOW_S).splitlines()
    text = "\n".join([f"{header},backward_s", *(f"{row},0.01" for row in rows)])
    for name in ("fast", "slow"):
        (folder / f"{name}.csv").write_text(text)
    profiles = [word for text in of_each(folder) for word in ("--profile", text)]
    arguments = [*profiles, "--profile-format", "csv", "--cluster", str(folder / "two.toml"), "--mode", "training"]
    for command in (["predict"], ["search", "--storage", f"sqlite:///{folder / 'trials.db'}"]):
        assert main([*command, *arguments, "--n-ipu", "2"]) == 2
        refused = capsys.readouterr().err
        assert "training needs devices in a given order, two has fast, slow in any order" in refused
        assert "Traceback" not in refused
