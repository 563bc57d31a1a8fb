"""A search in a file: its keys, its values, and the line of a mistake."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autoauto.cli.main import build_parser, parsed
from autoauto.cli.search_config import unknown
from autoauto.records.errors import BadInput
from autoauto.space.objectives import Objective
from tests.cli.conftest import RunCli
from tests.drawn import n_examples

FILE = """\
model = "resnet50"            # comments are free
objective = ["throughput", "latency"]
study_name = "two"
noise = 0
overlap = true
constraints = [
  "latency_s <= 0.02",
  "n_ipu * replicas <= 16",
]

[knobs]
n_ipu = [1, 2]
memory_proportion = 0.6
batch_size = { from = 2, to = 8, step = 3 }
"""


@cache
def parser() -> argparse.ArgumentParser:
    """Parsing does not change it, and hundreds of drawn files are parsed."""
    return build_parser()


def parse(tmp_path: Path, text: str, *words: str) -> argparse.Namespace:
    path = tmp_path / "search.toml"
    path.write_text(text, encoding="utf-8")
    return parsed(parser(), ["search", "--config", str(path), *words])


def test_keys_set_options(tmp_path: Path) -> None:
    args = parse(tmp_path, FILE)
    assert (args.model, args.study_name, args.noise, args.overlap) == ("resnet50", "two", 0.0, True)
    assert args.objective == (Objective.THROUGHPUT, Objective.LATENCY)
    assert args.constraints == ["latency_s <= 0.02", "n_ipu * replicas <= 16"]
    assert (args.n_ipu, args.memory_proportion, args.batch_size) == ((1, 2), (0.6,), (2, 5, 8))
    assert args.method is None


def test_arguments_on_the_command_line_win(tmp_path: Path) -> None:
    words = ("vit-b16", "--objective", "throughput", "--n-ipu", "4", "--constraint", "n_ipu<9", "--method", "random")
    args = parse(tmp_path, FILE, *words)
    assert (args.model, args.objective, args.n_ipu) == ("vit-b16", Objective.THROUGHPUT, (4,))
    assert (args.method, args.study_name) == ("random", "two")
    assert args.constraints == ["latency_s <= 0.02", "n_ipu * replicas <= 16", "n_ipu < 9"]


def test_every_option_of_a_search_may_be_in_a_file(tmp_path: Path) -> None:
    text = """\
schema = 1
target = "ipu"
cluster = "bow-2000"
precision = "fp16"
estimator = "sum"
planning_proportion = 0.8
mode = "training"
method = "tpe"
objective = "per-device"
noise = 0.01
n_measurements = 7
max_latency_s = 1
workers = 2
time_limit = 5.5
storage = "sqlite:///x.db"
"""
    args = parse(tmp_path, text)
    assert (args.planning_proportion, args.n_measurements, args.max_latency_s, args.workers) == (0.8, 7, 1.0, 2)
    assert (args.mode, args.method, args.objective) == ("training", "tpe", Objective.PER_DEVICE)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('\nmodell = "resnet50"', 2, "there is no key 'modell'; did you mean 'model'?"),
        ("xyzzy = 1", 1, "there is no key 'xyzzy'; keys are model, "),
        ("a = 1\n[knob]\nn_ipu = 2", 1, "there is no key 'a'"),
        ("[knob]\nn_ipu = 2", 1, "did you mean 'knobs'?"),
        ("n_ipu = 2", 1, "n_ipu is a knob; write it under [knobs]"),
        ("json = true", 1, "there is no key 'json'"),
        ('[search]\nmodel = "resnet50"', 1, "there is no table [search]; options stand at the top without a table"),
        ("batch-size = 3", 1, "batch-size is a knob; write it under [knobs], as batch_size"),
        ('study-name = "a"', 1, "there is no key 'study-name'; did you mean 'study_name'"),
        ('# x\nmethod = "guidde"', 2, "did you mean 'guided'?"),
        ("model = 5", 1, "model must be a text, got 5"),
        ("noise = true", 1, "noise must be a finite number, got True"),
        ("noise = nan", 1, "noise must be a finite number, got nan"),
        ("noise = 1.5", 1, "a share must be a number from 0"),
        ("overlap = 1", 1, "overlap must be true or false, got 1"),
        ("n_measurements = 0", 1, "whole number from 1"),
        ("n_measurements = 2.0", 1, "n_measurements must be a whole number, got 2.0"),
        ('objective = ["throughput", "latncy"]', 1, "objectives are one or more of"),
        ("objective = []", 1, "objective must be a text or a list of 1 or more, got []"),
        ('constraints = [\n  "n_ipu < 3",\n  "latncy_s < 1",\n]', 3, "did you mean 'latency_s'?"),
        ("schema = 2", 1, "schema must be 1, got 2"),
        ("schema = true", 1, "schema must be 1, got True"),
        ("constraints = [3]", 1, "constraints[0] must be a text, got 3"),
        ("overlap_io = true", 1, "there is no key 'overlap_io'"),
        ("[knobs]\nio_tiles = -1", 2, "io_tiles must be a whole number from 0 to 65,536, got -1"),
        ("model = 1\nmodel = 2", 2, "must be TOML"),
        ("[knobs]\nx = 1", 2, "there is no knob 'x'"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'search.toml'}, line {line}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_key_with_nothing_close_lists_the_keys() -> None:
    assert unknown("q", ["model", "method"]) == "there is no key 'q'; keys are model, method"


def test_a_search_from_a_file_runs_and_is_reproduced(run_cli: RunCli) -> None:
    Path("small.toml").write_text(
        'model = "resnet50"\ncluster = "m2000"\nstudy_name = "small"\nmax_latency_s = 0.003\n'
        "[knobs]\nn_ipu = [1, 2]\nmemory_proportion = 0.6\nbatch_size = [4, 8]\n",
        encoding="utf-8",
    )
    best = json.loads(run_cli("search", "--config", "small.toml", "--json").out)["best"]
    assert best["latency_s"] <= 0.003
    study = optuna.load_study(study_name="small", storage="sqlite:///studies/autoauto.db")
    assert study.user_attrs["constraints"] == "latency_s <= 0.003"
    study.set_user_attr("command", "autoauto search --config small.toml")  # a test is not typed
    entries = json.loads(run_cli("explain", "small", "--json").out)["commands"]
    commands = {entry["name"]: entry["command"] for entry in entries}
    again = shlex.split(commands["Measure it again"])
    assert again[:5] == ["autoauto", "measure", "resnet50", "--cluster", "m2000"]
    assert "--config" in commands["Search again"]
    assert run_cli(*again[1:]).code == 0


def test_a_file_that_is_missing_is_one_line(run_cli: RunCli) -> None:
    code, out, err = run_cli("search", "--config", "none.toml")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[3].glob("studies/*.toml")), ids=lambda path: path.name)
def test_the_files_in_studies_are_valid(path: Path) -> None:
    args = parsed(parser(), ["search", "--config", str(path)])
    assert args.study_name == path.stem


def words_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from ("model", "knobs", "objective", "constraints", "method", "noise", "overlap", "n_measurements", "n_ipu")
    yield from ("batch_size", "recompute", "schedule", "memory_proportion", "fixed", "grid", "bisect", "sampled")
    yield from ("from", "to", "step", "max_latency_s", "storage", "strategy")


LEAVES = st.one_of(
    st.integers(-3, 300),
    st.booleans(),
    st.sampled_from(["0.5", "1e400", "nan", "1979-05-27", "99999999999999999999", "0.3"]).map(lambda text: (text,)),
    st.sampled_from(
        ["tpe", "guided", "grid-bisect", "latency", "latency_s < 1", "n_ipu <", "1f1b", "phased", "%s", ""]
    ),
)
KEYS = st.sampled_from(sorted(words_of(argparse.ArgumentParser())))
VALUES = st.recursive(
    LEAVES, lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(KEYS, part, max_size=3)), max_leaves=5
)


def toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return str(value[0])
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{key} = {toml(part)}' for key, part in value.items())}}}"
        case _:
            return json.dumps(value)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, VALUES, max_size=4))
@example({}, {"batch_size": {"from": 1, "to": 10**9}})
@example({"method": "tpe"}, {"batch_size": {"bisect": [1, 2]}})
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=n_examples(300)
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, top: dict[str, Any], knobs: dict[str, Any]) -> None:
    lines = [f"{key} = {toml(value)}" for key, value in top.items() if key != "knobs"]
    text = "\n".join([*lines, "[knobs]", *(f"{key} = {toml(value)}" for key, value in knobs.items())])
    try:
        parse(tmp_path, text)
    except BadInput as error:
        refusal = str(error)
    else:
        return
    assert "\n" not in refusal
    assert ", line " in refusal


@given(st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_wrong_text_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    try:
        parse(tmp_path, text.replace("\ud800", ""))
    except BadInput as error:
        refusal = str(error)
    else:
        return
    assert refusal.count("\n") == 0
