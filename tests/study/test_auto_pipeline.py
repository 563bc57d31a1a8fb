"""The search function of [auto-pipeline], with the example of its README."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoauto.evaluate.open import load_flow
from autoauto.records.costs.profile import CompiledRange, ProgramStep
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph
from autoauto.space.trial import Trial
from autoauto.study.auto_pipeline import search_for_max_throughput
from autoauto.study.store.study import load_study
from autoauto.targets.ipu.session import memory_proportion

HOST, NEXT = {"GBps": 7, "IdleCycle": 50000}, {"GBps": 70, "IdleCycle": 3000}
CONFIG = {"memoryProportion": 0.85, "usePoplarEstimation": False}


def ends(receive: Mapping[str, int], send: Mapping[str, int]) -> dict[str, int]:
    return {f"recv{name}": value for name, value in receive.items()} | {f"send{k}": v for k, v in send.items()}


def cluster_info(n_ipu: int) -> dict[str, Any]:
    links = [HOST, *[NEXT] * (n_ipu - 1), HOST]
    return {"clock": 1850000000, "memory": 894, "connection": [ends(*links[i : i + 2]) for i in range(n_ipu)]}


def create_args(batch_size: int, n_ipu: int, mem_portion: float) -> dict[str, Any]:
    """As in the example, with a stand-in for its IPUConfig."""
    ipu_config = SimpleNamespace(matmuls=SimpleNamespace(poplar_options={}))
    ipu_config.matmuls.poplar_options["availableMemoryProportion"] = str(mem_portion)
    return {
        "ipuConfig": ipu_config,
        "batchSize": batch_size,
        "autoPipeConfig": CONFIG,
        "clusterInfo": cluster_info(n_ipu),
    }


class Filling:
    """A layer takes 1,000 cycles a sample, and 9 MiB a sample times `mem_portion`."""

    version = "filling 1"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size,)

    def depends_on(self, device: object, options: object) -> object:
        return options

    def compile(self, graph: object, layers: Any, device: object, options: Any) -> CompiledRange:
        n_layers = layers.stop - layers.start
        n_bytes = int(n_layers * options.batch_size * 9 * 2**20 * memory_proportion(options))
        step = ProgramStep("all", 100_000 + 1000 * n_layers * options.batch_size, 0)
        return CompiledRange((step,), 0, {}, {"state": n_bytes})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_example_of_auto_pipeline() -> None:
    trials: list[Trial] = []
    n_models: list[int] = []

    def create_model() -> str:
        n_models.append(1)
        return "resnet50"

    def create_dataset(n_batch: int, batch_size: int) -> object:
        raise AssertionError("a target makes up its data")

    binary, grid = {"batch_size": list(range(1, 128))}, {"n_ipu": [1, 2, 4], "mem_portion": [0.3, 0.6, 1]}
    config, partition = search_for_max_throughput(
        binary, grid, create_args, create_model, create_dataset, callback=trials.append
    )
    assert len(trials) == 9 * 7  # ceil(log2(128)) tries in every cell
    assert {(trial.knobs.n_ipu, trial.knobs.values["memory_proportion"]) for trial in trials} == {
        (n_ipu, portion) for n_ipu in (1, 2, 4) for portion in (0.3, 0.6, 1.0)
    }
    best = min((trial for trial in trials if trial.value is not None), key=lambda trial: trial.value or 0.0)
    assert config == {
        "batch_size": best.knobs.batch_size,
        "n_ipu": best.knobs.n_ipu,
        "mem_portion": best.knobs.values["memory_proportion"],
    }
    assert len(partition) == config["n_ipu"] + 1
    assert (partition[0], partition[-1]) == (0, 121)
    flow = load_flow("resnet50", cluster_info(config["n_ipu"]), planning_proportion=0.85)
    trial = flow.evaluate(best.knobs)
    assert trial.measured is not None
    assert best.value == pytest.approx(trial.measured.cost_cycles * config["n_ipu"] / config["batch_size"], rel=0.01)
    assert n_models == [1]


BINARY, GRID = {"batch_size": list(range(1, 65))}, {"n_ipu": [1, 2], "mem_portion": [0.5, 1]}


def test_the_largest_batch_that_fits_is_found_in_every_cell(chain: Callable[..., LayerGraph]) -> None:
    trials: list[Trial] = []
    config, partition = search_for_max_throughput(
        BINARY, GRID, create_args, lambda: chain("abcd"), target=Filling(), callback=trials.append
    )
    largest: dict[tuple[int, float], int] = {}
    for trial in trials:
        if trial.fits:
            cell = trial.knobs.n_ipu, trial.knobs.values["memory_proportion"]
            largest[cell] = max(trial.knobs.batch_size, largest.get(cell, 0))
    # 894 MiB hold 99 samples of one layer, so 24 of four and 49 of two; 0.85 of it 21 and 42
    assert largest[2, 0.5] == 64
    assert 21 <= largest[1, 1.0] <= 24
    assert 42 <= largest[2, 1.0] <= 49
    assert 42 <= largest[1, 0.5] <= 49
    assert config == {"batch_size": largest[1, 0.5], "n_ipu": 1, "mem_portion": 0.5}  # the cost counts devices
    assert partition == [0, 4]


def test_trials_are_one_study_that_is_resumed(chain: Callable[..., LayerGraph], tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/trials.db"
    trials: list[Trial] = []
    first, second = (
        search_for_max_throughput(
            BINARY,
            GRID,
            create_args,
            lambda: chain("abcd"),
            target=Filling(),
            storage=storage,
            callback=trials.append,
        )
        for _ in range(2)
    )
    assert first == second
    study = load_study(storage, "search_for_max_throughput")
    assert [trial.value for trial in study.get_trials()] == [trial.value for trial in trials]


def test_names_are_free(chain: Callable[..., LayerGraph], tmp_path: Path) -> None:
    """Two values of a name that is no knob are two studies, and the better result wins."""

    def create(size: int, ipus: int, clock: int) -> dict[str, Any]:
        args = create_args(size, ipus, 0.6)
        return args | {"clusterInfo": args["clusterInfo"] | {"clock": clock}}

    storage = f"sqlite:///{tmp_path}/trials.db"
    config, _ = search_for_max_throughput(
        {"size": [8, 16]},
        {"ipus": [2], "clock": [10**9, 2 * 10**9]},
        create,
        lambda: chain("abcd"),
        target=Filling(),
        storage=storage,
    )
    assert (config["size"], config["ipus"]) == (16, 2)
    assert config["clock"] == 10**9  # bytes take fewer of longer cycles, and the cost counts cycles
    for name in ("search_for_max_throughput", "search_for_max_throughput 2"):
        assert load_study(storage, name).get_trials()


def test_configurations_that_create_args_leaves_out_are_not_tried(chain: Callable[..., LayerGraph]) -> None:
    def create(batch_size: int, n_ipu: int, mem_portion: float) -> dict[str, Any] | None:
        return create_args(batch_size, n_ipu, mem_portion) if n_ipu == 2 and batch_size <= 5 else None

    trials: list[Trial] = []
    config, partition = search_for_max_throughput(
        BINARY, GRID, create, lambda: chain("abcd"), target=Filling(), callback=trials.append
    )
    assert (config["n_ipu"], config["batch_size"], len(partition)) == (2, 5, 3)
    assert {trial.reason for trial in trials if not trial.fits and not trial.failed} == {"create_args returned None"}


def test_nothing_fits(chain: Callable[..., LayerGraph]) -> None:
    sizes = {"batch_size": [1000, 2000]}
    assert search_for_max_throughput(sizes, GRID, create_args, lambda: chain("ab"), target=Filling()) == ({}, [])
    assert search_for_max_throughput(sizes, GRID, lambda **_: None, lambda: chain("ab"), target=Filling()) == ({}, [])


@pytest.mark.parametrize(
    ("binary", "change", "message"),
    [
        ({}, {}, "binary_search_configs needs one name"),
        ({"batch_size": [1, 2], "n": [1]}, {}, "binary_search_configs needs one name"),
        ({"batch_size": [2, 1]}, {}, "batch_size must ascend"),
        (BINARY, {"batchSize": 7}, "must return the batchSize that it is given"),
        (BINARY, {"autoPipeConfig": {}}, "must return 'memoryProportion'"),
        (BINARY, {"autoPipeConfig": {"memoryProportion": "most"}}, "a number for 'memoryProportion', got 'most'"),
        (
            BINARY,
            {"autoPipeConfig": 0.85},
            "must return 'memoryProportion' as in the example of auto_pipeline, got 0.85",
        ),
        (BINARY, {"batchSize": "x"}, "a number for 'batchSize', got 'x'"),
        (BINARY, {"clusterInfo": {"connection": 2}}, "a list of connections, one an IPU, got 2"),
        ({"batch_size": 8}, {}, "batch_size needs a list of values, got 8"),
    ],
)
def test_bad_input_is_refused(
    chain: Callable[..., LayerGraph], binary: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    def create(**values: Any) -> dict[str, Any]:
        return create_args(**values) | change

    with pytest.raises(BadInput, match=message):
        search_for_max_throughput(binary, GRID, create, lambda: chain("ab"), target=Filling())


def test_an_exception_of_create_args_passes_through(chain: Callable[..., LayerGraph]) -> None:
    def create(batch_size: int, n_ipu: int, mem_portion: float) -> dict[str, Any]:
        return create_args(batch_size, n_ipu, mem_portion) | {"batchSize": batch_size // (batch_size - 1)}

    with pytest.raises(ZeroDivisionError):
        search_for_max_throughput(BINARY, GRID, create, lambda: chain("ab"), target=Filling())
