"""A problem: from flat values, to JSON and back, and with other paths of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.model_inputs import read_model_inputs
from autoauto.space.constraint import Constraint
from autoauto.space.requests.problem import Planning, Problem, ProfileFiles, named_file

WHERE = "the problem of a search"
FILES = ProfileFiles(("fast:8=fast.csv", "slow=slow.csv"), "csv", (), 2, 1.0, 0.5)
PROBLEMS = [
    Problem(),
    Problem("resnet50", "host", "host", 0.1, "fp32", options={"inputs": "real.npz", "device_memory_mib": 30}),
    Problem("net", planning=Planning("sum", 0.9, "overlap", "blocks"), constraints=(Constraint("latency_s < 1"),)),
    Problem("net", model_inputs=read_model_inputs(["height=320,x=3x8"], ["x=none"], ["past=present"])),
]


@pytest.mark.parametrize("problem", [*PROBLEMS, Problem(profile=FILES, cluster="two.toml")])
def test_flat_values_say_all_of_it(problem: Problem) -> None:
    assert Problem.of(problem.values) == problem
    assert problem.with_values() == problem
    assert problem.with_values(cluster="c600").cluster == "c600"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_it_is_read_as_it_was_written(problem: Problem) -> None:
    assert Problem.read(problem.plain, WHERE) == problem


def test_values_of_other_names_are_left_out() -> None:
    assert Problem.of({"model": "resnet50", "batch_size": 4}) == Problem("resnet50")


def test_a_bound_on_latency_is_a_constraint_and_each_is_there_once() -> None:
    texts = ("samples_per_s > 1", "latency_s <= 0.5", "n_ipu < 3")
    problem = Problem.of({"constraints": texts, "max_latency_s": 0.5})
    assert problem.constraints == tuple(map(Constraint, texts[:2]))  # the third is over knobs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"headroom": "much"}, "headroom must be a number, got 'much'"),
        ({"planning": {"cut_at": 3}}, "planning.cut_at must be a text, got 3"),
        ({"constraints": [{"text": "latency <"}]}, "a constraint compares numbers"),
        ({"profile": {"profile": ["a"]}}, "must have the field profile_format"),
    ],
)
def test_a_wrong_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=f"^{WHERE}: .*{message}"):
        Problem.read({**Problem("resnet50").plain, **change}, WHERE)


@pytest.mark.parametrize("field", ["model", "target", "planning"])
def test_a_missing_field_is_named(field: str) -> None:
    plain = Problem("resnet50").plain
    del plain[field]
    with pytest.raises(BadInput, match=f"{WHERE}: the top level must have the field {field}"):
        Problem.read(plain, WHERE)


@pytest.mark.parametrize(("gib", "mib"), [(0.5, 512), (24 / 1024, 24), (1e-300, 1), (1e300, 2**42)])
def test_the_memory_of_a_host_is_typed_in_gib_and_stored_in_mib(gib: float, mib: int) -> None:
    problem = Problem.of({"model": "resnet50", "target": "host", "device_memory_gib": gib})
    assert problem == Problem("resnet50", target="host", options={"device_memory_mib": mib})


def test_files_that_are_there_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "pod.toml", "real.npz"):
        (tmp_path / name).touch()
    plain = Problem("net.onnx", "host", "pod.toml", options={"inputs": "real.npz"}, profile=FILES).plain
    assert (plain["model"], plain["cluster"]) == (str(tmp_path / "net.onnx"), str(tmp_path / "pod.toml"))
    assert plain["options"] == {"inputs": str(tmp_path / "real.npz")}
    assert plain["profile"]["profile"] == (f"fast:8={tmp_path}/fast.csv", f"slow={tmp_path}/slow.csv")
    (tmp_path / "rows.csv").touch()
    measured = Problem("small", "gpu", options={"measured": "rows.csv"}).plain
    assert measured["options"] == {"measured": str(tmp_path / "rows.csv")}
    (tmp_path / "decoder").mkdir()
    assert Problem("decoder").plain["model"] == "decoder"  # any folder of this name
    (tmp_path / "decoder" / "config.json").touch()
    assert Problem("decoder").plain["model"] == str(tmp_path / "decoder")
    assert Problem("resnet50", cluster="bow-2000").plain["cluster"] == "bow-2000"


def test_a_search_has_a_hundred_constraints_at_most() -> None:
    texts = [f"latency_s < {number}" for number in range(1, 101)]
    assert len(Problem.of({"constraints": texts}).constraints) == 100
    with pytest.raises(BadInput, match="a search has at most 100 constraints, got 101; join some"):
        Problem.of({"constraints": [*texts, "n_ipu < 3"]})


def test_bounds_of_options_are_in_seconds() -> None:
    problem = Problem.of({"max_latency_s": 2.5, "max_ttft_ms": 300.0, "max_tpot_ms": 40.0})
    bounds = {name: each.bounds(name) for each in problem.constraints for name in each.names}
    assert bounds == {"latency_s": (2.5,), "ttft_s": (0.3,), "tpot_s": (0.04,)}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("8=trace.csv", (None, 8, "trace.csv")),
        ("fast:8=trace.csv", ("fast", 8, "trace.csv")),
        ("fast=trace.csv", ("fast", None, "trace.csv")),
        ("a:b=trace.csv", ("a:b", None, "trace.csv")),  # no size after the colon
        ("0=trace.csv", ("0", None, "trace.csv")),
        ("123456789=trace.csv", (None, 123456789, "trace.csv")),
        ("1234567890=trace.csv", ("1234567890", None, "trace.csv")),
        ("trace.csv", (None, None, "trace.csv")),
        ("folder/a=b", (None, None, "folder/a=b")),
    ],
)
def test_what_stands_before_the_path_of_a_profile(
    text: str, named: tuple[str | None, int | None, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, size, path = named_file(text)
    assert (kind, size, str(path)) == named
    assert named_file(text).with_path(lambda path: f"/x/{path}") == text.removesuffix(str(path)) + f"/x/{path}"
    (tmp_path / "fast=trace.csv").touch()  # a file of the whole name is a path
    assert named_file("fast=trace.csv")[:2] == (None, None)


def test_all_facts_of_equal_devices_or_none_go_with_a_profile() -> None:
    ProfileFiles(("a",), "csv")
    ProfileFiles(("a",), "csv", (), 2, 1.0, 0.5)
    for facts in ((2, None, None), (None, 1.0, None), (2, 1.0, None), (2, None, 0.5)):
        with pytest.raises(BadInput, match="go together; give all three"):
            ProfileFiles(("a",), "csv", (), *facts)


def test_formats_of_a_target_that_searches_them_are_no_part_of_a_problem() -> None:
    assert Problem.of({"target": "host", "precision": ("fp32", "bf16")}).precision is None
    assert Problem.of({"target": "ipu", "precision": ("fp16",)}).precision == "fp16"
    with pytest.raises(BadInput, match=r"--target host runs a model in the formats of its file.*got --precision fp8"):
        Problem.of({"target": "host", "precision": ("fp32", "fp8")})
