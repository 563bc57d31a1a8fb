"""Options of those who measure, and a flow made again elsewhere."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import build_parser
from autoauto.cli.options.execution import bounds_of, flow_of, hands_of, recipe
from autoauto.cli.options.targets import open_flow
from autoauto.profile.store.shared_cache import SharedCache
from autoauto.records.errors import BadInput
from autoauto.study.execution.process import Bounds
from autoauto.study.store.study import load_study
from autoauto.targets.clusters import builtin_clusters

Door = Callable[..., Any]
STORAGE = "sqlite:///studies/autoauto.db"
SMALL = ("resnet50", "--n-ipu", "1", "--batch-size", "4", "--memory-proportion", "0.6", "--study-name", "small")


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["search", *words])


def test_this_process_measures_unless_a_bound_or_workers_are_asked_for() -> None:
    flow = open_flow(parsed())
    assert hands_of(parsed(), flow) is None
    for words, n_hands in ((("--workers", "3"), 3), (("--time-limit", "5"), 1), (("--memory-limit", "0.5"), 1)):
        hands = hands_of(parsed(*words), flow)
        assert hands is not None
        assert hands.n_hands == n_hands


def test_bounds_have_units() -> None:
    assert bounds_of(parsed("--time-limit", "2.5", "--memory-limit", "0.5")) == Bounds(2.5, 2**29)
    assert bounds_of(parsed("--memory-limit", "1e300")) == Bounds(None, 2**62)


def test_an_executor_has_a_kind_and_an_address(door: Door) -> None:
    for executor in ("ray://server:1", "dask://", "server:8786"):
        code, _, err = door("search", "--executor", executor)
        assert (code, err) == (2, f"autoauto: an executor is written dask://HOST:PORT, got {executor!r}\n")


@pytest.mark.parametrize("words", [("--workers", "0"), ("--time-limit", "0"), ("--memory-limit", "much")])
def test_bounds_are_positive(door: Door, words: tuple[str, str]) -> None:
    code, out, err = door("search", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_measurements_on_one_machines_cores_do_not_run_side_by_side(door: Door) -> None:
    code, _, err = door("search", "--target", "host", "--workers", "2")
    assert code == 2
    assert "disturb each other, got --workers 2; try --workers 1" in err


def test_a_server_keeps_what_is_compiled_too() -> None:
    url = "postgresql+psycopg2://me@server/trials"
    assert open_flow(parsed("--storage", url)).cache == SharedCache(url)
    assert not isinstance(open_flow(parsed()).cache, SharedCache)


def test_a_flow_is_made_again_from_its_study(door: Door, tmp_path: Path) -> None:
    shutil.copy(builtin_clusters()["bow-2000"], tmp_path / "mine.toml")
    words = (*SMALL, "--cluster", "mine.toml", "--overlap", "--partials", "fp32")
    assert door("search", *words).code == 0
    again = flow_of(load_study(STORAGE, "small"), STORAGE, {})
    first = open_flow(parsed(*words))
    assert again.fingerprint() == first.fingerprint()
    assert (again.overlap, again.target) == (True, first.target)
    assert str(tmp_path / "mine.toml") in recipe(parsed(*words))


def test_another_model_or_cluster_is_refused(door: Door) -> None:
    assert door("search", *SMALL).code == 0
    study = load_study(STORAGE, "small")
    with pytest.raises(BadInput, match=r"^study 'small' has model 'resnet50', this machine has 'vit-b16'"):
        flow_of(study, STORAGE, {"model": "vit-b16"})
    with pytest.raises(BadInput, match=r"^study 'small' has cluster 'bow-2000', this machine has 'c600'"):
        flow_of(study, STORAGE, {"cluster": "c600"})


def test_a_worker_holds_to_the_constraints_of_its_search(door: Door) -> None:
    bound = ("--max-latency-s", "0.5", "--constraint", "samples_per_s > 1", "--constraint", "n_ipu < 3")
    door("search", *SMALL, *bound)
    flow = flow_of(load_study(STORAGE, "small"), STORAGE, {})
    assert [constraint.text for constraint in flow.constraints] == ["samples_per_s > 1", "latency_s <= 0.5"]
