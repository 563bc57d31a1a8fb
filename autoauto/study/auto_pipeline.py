"""The search function of [auto-pipeline] with its own arguments: `search_for_max_throughput`."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph
from autoauto.records.target import Target
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.table import TABLE
from autoauto.space.trial import Status, Trial
from autoauto.study.run import run_search
from autoauto.study.search import stored
from autoauto.study.store.study import open_study

if TYPE_CHECKING:
    from onnx import ModelProto

CreateArgs = Callable[..., Mapping[str, Any] | None]


def search_for_max_throughput(
    binary_search_configs: Mapping[str, Sequence[int]],
    grid_search_configs: Mapping[str, Any],
    create_args: CreateArgs,
    create_model: Callable[[], str | ModelProto | LayerGraph],
    create_dataset: Callable[..., object] | None = None,
    *,
    target: str | Target = "ipu",
    storage: str | None = None,
    study_name: str = "search_for_max_throughput",
    callback: Callable[[Trial], None] | None = None,
) -> tuple[dict[str, Any], list[int]]:
    """The configuration of minimum `cycles * n_ipu / batch`, and its partition: where each stage begins, and the end.

    In every cell of the grid the batch sizes are bisected for the largest that fits; every tried one is measured.

    Args:
        binary_search_configs: the name of the batch size, and its values, ascending.
        grid_search_configs: names and values of everything else.
        create_args: called with one value of every name; returns "batchSize", "clusterInfo" (one connection an IPU),
            "autoPipeConfig" with "memoryProportion", and "ipuConfig", of which the available memory proportion of
            matrix products is read; None when the values do not go together.
        create_model: called once; a built-in name, the path of an ONNX file, an ONNX model or a graph of layers.
        create_dataset: not called, because a target makes its own data.
        target: "ipu" for the cost model, "host", or a `Target` of your own.
        storage: the URL of the database that stores the trials; by default they are deleted.
        study_name: of the study there.
        callback: called with every finished trial.

    Returns:
        Both; `({}, [])` when nothing fits.

    Raises:
        BadInput: a dictionary is not as described. Exceptions of `target` pass through, unlike in [auto-pipeline].
    """
    if len(binary_search_configs) != 1:
        raise BadInput(f"binary_search_configs needs one name, the batch size's, got {list(binary_search_configs)}")
    for name, values in {**binary_search_configs, **grid_search_configs}.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise BadInput(f"{name} needs a list of values, got {values!r:.60}")
    measurer = _Measurer(create_args, create_model(), target)
    cells = _cells(binary_search_configs, grid_search_configs, create_args)
    configurations = [(cell.config, cell.args["clusterInfo"], cell.args["autoPipeConfig"]) for cell in cells]
    digest = hashlib.sha256(repr(configurations).encode()).hexdigest()
    seen: list[SearchSpace] = []
    best: Trial | None = None
    config: dict[str, Any] = {}
    with stored(storage) as url:
        for cell in cells:
            # A cell that differs from another only in a value that is no knob has a further study.
            n_equal = seen.count(cell.space)
            seen.append(cell.space)
            name = f"{study_name} {n_equal + 1}" if n_equal else study_name
            fingerprint = {"configurations": digest[:16], **measurer.fingerprint(cell)}
            study = open_study(url, name, Objective.PER_DEVICE, fingerprint)
            [batch_size] = binary_search_configs
            evaluate = measurer.evaluator(cell.config, batch_size)
            trial = run_search(cell.space, evaluate, study, Objective.PER_DEVICE, callback=callback).best
            if trial is not None and (best is None or trial.values < best.values):
                best = trial
                config = {**cell.config, batch_size: trial.knobs.batch_size}
    if best is None:
        return {}, []
    return config, list(best.plan.partition)


class _Cell(NamedTuple):
    """One choice of the values of the grid, with its space of one cell and the arguments of its first batch size."""

    config: dict[str, Any]
    space: SearchSpace
    args: Mapping[str, Any]


class _Measurer:
    """Measures configurations with the arguments that `create_args` returns for them."""

    def __init__(self, create_args: CreateArgs, model: str | ModelProto | LayerGraph, target: str | Target) -> None:
        self._create_args, self._model, self._target = create_args, model, target
        self._flows: dict[str, Flow] = {}

    def evaluator(self, config: Mapping[str, Any], batch_size: str) -> Callable[[Knobs], Trial]:
        def evaluate(knobs: Knobs) -> Trial:
            args = self._create_args(**config, **{batch_size: knobs.batch_size})
            if args is None:
                return Trial(knobs, Status.INFEASIBLE, "create_args returned None")
            if _knobs(args) != knobs:
                raise BadInput(
                    f"create_args must return the batchSize that it is given, {knobs.batch_size}, and one clusterInfo "
                    f"and ipuConfig for all of them, got {_knobs(args)} instead of {knobs}"
                )
            return self._flow(args).evaluate(knobs)

        return evaluate

    def fingerprint(self, cell: _Cell) -> dict[str, str]:
        """The part of the fingerprint that all cells share; the rest is in the configurations."""
        fingerprint = self._flow(cell.args).fingerprint()
        return {name: fingerprint[name] for name in ("model", "model_content", "target")}

    def _flow(self, args: Mapping[str, Any]) -> Flow:
        proportion = _number("memoryProportion", _entry(_entry(args, "autoPipeConfig"), "memoryProportion"))
        cluster = _entry(args, "clusterInfo")
        name = repr((cluster, proportion))
        if name not in self._flows:
            self._flows[name] = load_flow(self._model, cluster, self._target, planning_proportion=proportion)
        return self._flows[name]


def _cells(binary: Mapping[str, Sequence[int]], grid: Mapping[str, Any], create_args: CreateArgs) -> list[_Cell]:
    """Every choice of the values of the grid that goes together at some batch size."""
    [(batch_size, sizes)] = binary.items()
    cells = []
    for values in product(*grid.values()):
        config = dict(zip(grid, values, strict=True))
        all_args = (create_args(**config, **{batch_size: size}) for size in sizes)
        args = next((args for args in all_args if args is not None), None)
        if args is not None:
            knobs = _knobs(args)
            proportion = knobs.session.values["memory_proportion"]
            cells.append(_Cell(config, SearchSpace((knobs.n_ipu,), (proportion,), tuple(sizes)), args))
    return cells


def _knobs(args: Mapping[str, Any]) -> Knobs:
    connections = _entry(_entry(args, "clusterInfo"), "connection")
    options = getattr(getattr(args.get("ipuConfig"), "matmuls", None), "poplar_options", {})
    proportion = _number(
        "availableMemoryProportion", options.get("availableMemoryProportion", TABLE["memory_proportion"].default)
    )
    batch_size = _number("batchSize", _entry(args, "batchSize"))
    if not isinstance(connections, Sequence):
        raise BadInput(f"clusterInfo must have a list of connections, one an IPU, got {connections!r:.60}")
    return Knobs(len(connections), int(batch_size), memory_proportion=proportion)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadInput(f"create_args must return a number for {name!r}, got {value!r:.60}") from None


def _entry(args: Any, name: str) -> Any:
    if not isinstance(args, Mapping) or name not in args:
        raise BadInput(f"create_args must return {name!r} as in the example of auto_pipeline, got {reprlib.repr(args)}")
    return args[name]
