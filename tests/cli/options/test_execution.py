"""Options of commands that measure: processes, limits, executors."""

import argparse
from pathlib import Path

import pytest

from autoauto.cli.main import build_parser
from autoauto.cli.options.model import open_flow
from autoauto.cli.options.study import bounds_of, executor_maker
from autoauto.profile.cache import ProfileCache
from autoauto.records.errors import BadInput
from autoauto.study.execution.process import Bounds
from tests.cli.conftest import RunCli


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["search", *words])


def test_this_process_measures_unless_the_arguments_name_workers_or_a_limit() -> None:
    flow = open_flow(parsed())
    assert executor_maker(parsed(), flow) is None
    for words, n_slots in ((("--workers", "3"), 3), (("--time-limit", "5"), 1), (("--memory-limit", "0.5"), 1)):
        make = executor_maker(parsed(*words), flow)
        assert make is not None
        assert make().n_slots == n_slots


def test_limits_have_units() -> None:
    assert bounds_of(parsed("--time-limit", "2.5", "--memory-limit", "0.5")) == Bounds(2.5, 2**29)
    assert bounds_of(parsed("--memory-limit", "1e300")) == Bounds(None, 2**62)


def test_an_executor_has_a_kind_and_an_address(run_cli: RunCli) -> None:
    for executor in ("ray://server:1", "dask://", "server:8786"):
        code, _, err = run_cli("search", "--executor", executor)
        assert (code, err) == (2, f"autoauto: an executor is written dask://HOST:PORT, got {executor!r}\n")


def test_workers_of_dask_measure_one_configuration_each_or_all_together() -> None:
    words = ("--executor", "dask://here:1", "--dask", "here:1")
    with pytest.raises(BadInput, match="with --dask all of them together measure one; leave one of them out"):
        executor_maker(parsed(*words), open_flow(parsed()))


@pytest.mark.parametrize("words", [("--workers", "0"), ("--time-limit", "0"), ("--memory-limit", "much")])
def test_limits_are_positive(run_cli: RunCli, words: tuple[str, str]) -> None:
    code, out, err = run_cli("search", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_measurements_on_one_machines_cores_do_not_run_side_by_side(run_cli: RunCli) -> None:
    code, _, err = run_cli("search", "--target", "host", "--workers", "2")
    assert code == 2
    assert "disturb each other, got --workers 2; try --workers 1" in err


def test_compiled_layers_are_cached_in_a_postgresql_storage() -> None:
    url = "postgresql://me@server/trials"
    assert open_flow(parsed("--storage", url)).setting.cache == ProfileCache(url)
    assert isinstance(open_flow(parsed()).setting.cache.location, Path)
