"""A whole search in one call: of names with `search`, of a flow with `search_flow`; the command line makes the second.

The call is the room's own, too: `autoauto.search("resnet50")` is `autoauto.search.search("resnet50")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.load import load_flow
from autoauto.records.constraint import Constraint
from autoauto.records.correction import Estimator
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster
from autoauto.records.knobs import Aim, Knobs, Objective, SearchSpace, Strategy, aim_of
from autoauto.records.layers import LayerGraph
from autoauto.records.plan import Plan
from autoauto.records.profile import Target
from autoauto.records.trial import FinishedTrial, Outcome
from autoauto.study.execution.executors import Children, Hands
from autoauto.study.execution.process import Bounds
from autoauto.study.methods.protocol import Guess
from autoauto.study.methods.registry import method_for, method_of, predictor
from autoauto.study.run import SearchProgress, SearchResult, run_search
from autoauto.study.store.study import note_space, open_study, provenance

if TYPE_CHECKING:
    from onnx import ModelProto
import hashlib

from autoauto.records.installation import VERSION
from autoauto.records.knobs import DEFAULT_NOISE, aim_name


def search(
    model: str | Path | ModelProto | LayerGraph,
    cluster: str | Path | Mapping[str, object] | Cluster | None = None,
    space: SearchSpace | None = None,
    *,
    target: str | Target = "ipu",
    objective: str = Objective.THROUGHPUT,
    method: str | None = None,
    n_measurements: int = 30,
    noise: float | None = None,
    precision: str | None = None,
    planning_proportion: float | None = None,
    overlap: bool = False,
    estimator: str = Estimator.REGRESSION,
    constraints: Iterable[str] = (),
    storage: str | None = None,
    study_name: str | None = None,
    n_workers: int | None = None,
    callback: Callable[[FinishedTrial], None] | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
) -> Outcome:
    """The best configuration of a model on a cluster, measured: what `autoauto search` finds.

    Args:
        model, cluster, target, precision, planning_proportion, overlap, estimator: as in `load_flow`.
        space, objective, method, n_measurements, noise, study_name, callback, progress: as in `search_flow`.
        constraints: expressions that must hold, for example "latency_s <= 0.004", see `Constraint`.
        storage: the URL of the database that keeps the trials, for example "sqlite:///studies/autoauto.db": an equal
            search goes on from them. By default they are forgotten at the end.
        n_workers: processes that measure side by side; by default this one measures. They are started anew, so a script
            searches under `if __name__ == "__main__":`, and a target of your own must be picklable.

    Raises:
        Infeasible: no configuration of the space fits.
        BadInput: what is given does not go together; the message says what to try.
        KeyboardInterrupt: Ctrl-C, SIGTERM.
    """
    if isinstance(aim_of(objective), tuple):
        raise BadInput(f"several objectives have no one best configuration, got {objective}; try search_flow")
    bounds = tuple(map(Constraint, (constraints,) if isinstance(constraints, str) else constraints))
    over_knobs, over_results = (tuple(bound for bound in bounds if bound.over_knobs is sort) for sort in (True, False))
    flow = load_flow(model, cluster, target, precision, planning_proportion, overlap, estimator, storage, over_results)
    result = search_flow(
        flow,
        _space_of(flow, space, over_knobs),
        objective,
        method,
        n_measurements=n_measurements,
        noise=noise,
        storage=storage,
        study_name=study_name,
        hands=None if n_workers is None else children_of(flow, n_workers),
        callback=callback,
        progress=progress,
    )
    return outcome_of(flow, result)


def search_flow(
    flow: Flow,
    space: SearchSpace | None = None,
    objective: str = Objective.THROUGHPUT,
    method: str | None = None,
    *,
    n_measurements: int = 30,
    noise: float | None = None,
    storage: str | None = None,
    study_name: str | None = None,
    about: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    hands: Hands | None = None,
    or_phased: bool = True,
    callback: Callable[[FinishedTrial], None] | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> SearchResult:
    """Search the configurations of a flow; all that was found, the best and every cell.

    Args:
        flow: from `load_flow`.
        space: what may vary; by default what `default_space` says.
        objective: its name, or those of several with commas.
        method, n_measurements: as in `method_of`; by default guided, and tpe for several objectives.
        noise: share of a value that is chance, see `run_search`; by default 0, and 0.01 on real devices.
        storage: the URL of the database that keeps the trials; by default they are forgotten at the end.
        study_name: by default made of all that the trials depend on.
        about: what trials depend on besides the flow, see `open_study`.
        notes: what else the study tells of this search.
        hands: who measures; by default this process.
        or_phased: whether phases are tried where no pipeline fits.
        callback: called with every trial as soon as it is finished and kept.
        progress: called before every try.
        tell: called with a line when the study was searched in another space before.

    Raises:
        BadInput: what is given does not go together; the message says what to try.
        KeyboardInterrupt, MeasurementsFailed: as `run_search`.
    """
    aim = aim_of(objective)
    chosen, space = method_for(aim, method), _space_of(flow, space)
    flow.check(space)
    noise = _noise_of(flow, noise, n_measurements)
    fingerprint = {**(about or {}), **fingerprint_of(flow, space)}
    name = study_name or default_study_name(flow, aim, fingerprint)
    told = {"method": str(chosen), "noise": str(noise), **provenance(), **(notes or {})}
    with kept(storage) as url:
        study = open_study(url, name, aim, fingerprint, told)
        if (changes := note_space(study, space)) and tell is not None:
            tell(changes)
        propose, guess = method_of(chosen, flow.expect, aim, noise, n_measurements), _guesser(flow, aim)

        def run_on(space: SearchSpace) -> SearchResult:
            return run_search(space, flow.evaluate, study, aim, progress, propose, noise, hands, guess, callback)

        result = run_on(space)
        if not result.front and or_phased and _can_phase(flow, space):
            result = run_on(replace(space, strategy=(Strategy.PIPELINE, Strategy.PHASED)))
    return result


def _space_of(flow: Flow, space: SearchSpace | None, constraints: tuple[Constraint, ...] = ()) -> SearchSpace:
    """What is searched: the default of the flow unless a space is given, with more constraints."""
    if not isinstance(flow, Flow):
        raise BadInput(f"what is searched is a Flow as load_flow returns it, got {flow!r:.60}; try autoauto.search")
    space = default_space(flow) if space is None else space
    if not isinstance(space, SearchSpace):
        raise BadInput(f"a space is a SearchSpace, got {space!r:.60}; try SearchSpace(n_ipu=(1, 2))")
    return replace(space, constraints=(*space.constraints, *constraints))


def _noise_of(flow: Flow, noise: float | None, n_measurements: object) -> float:
    """The share of a value that is chance, when it and `n_measurements` are numbers as they should be."""
    noise = default_noise(flow) if noise is None else noise
    if not isinstance(n_measurements, int) or n_measurements < 1:
        raise BadInput(f"n_measurements must be a whole number from 1, got {n_measurements!r}")
    if not isinstance(noise, int | float) or not 0.0 <= noise < 1.0:
        raise BadInput(f"noise is a share, a number from 0 to below 1, got {noise!r}")
    return noise


def _guesser(flow: Flow, aim: Aim) -> Guess:
    predict = predictor(flow.expect, aim)

    def guess(knobs: Knobs) -> float | None:
        forecast = predict(knobs)
        return forecast.score if forecast.works else None

    return guess


def _can_phase(flow: Flow, space: SearchSpace) -> bool:
    return flow.cluster.streaming_memory is not None and Strategy.PHASED not in space.strategy


def outcome_of(flow: Flow, result: SearchResult) -> Outcome:
    """The best of a search as an outcome; its timeline is that of the measured stages, simulated.

    Raises:
        Infeasible: there is none.
    """
    best = result.best
    if best is None:
        raise nothing_fits(result)
    return Outcome(
        knobs=best.knobs,
        estimate=best.estimate,
        measured=best.measured,
        samples_per_s=best.samples_per_s,
        estimated_samples_per_s=best.estimated_samples_per_s,
        excess_bytes=0,
        memory_bytes=int(flow.cluster.devices[0].memory_bytes),
        reason="",
        timeline=flow.timeline(best.knobs, best.measured) if isinstance(best.measured, Plan) else None,
        latency_s=best.latency_s,
    )


def nothing_fits(result: SearchResult) -> Infeasible:
    """Why a search found nothing."""
    return Infeasible(f"no configuration fits; the smallest batch size: {result.cells[-1].reason}", 0)


def children_of(flow: Flow, n_workers: int, bounds: Bounds | None = None) -> Children:
    """Processes of this machine that measure.

    Raises:
        BadInput: there are none, or several would disturb each other's measurements.
    """
    if not isinstance(n_workers, int) or n_workers < 1:
        raise BadInput(f"workers are 1 or more, got {n_workers!r}")
    if flow.cluster.target == "host" and n_workers > 1:
        raise BadInput(
            f"measurements on the cores of one machine disturb each other, got --workers {n_workers}; try --workers 1"
        )
    return Children(flow.evaluate, n_workers, bounds or Bounds())


@contextmanager
def kept(storage: str | None) -> Iterator[str]:
    """The URL of where trials go: a database for as long as the search lasts, unless `storage` shall keep them."""
    if storage is not None:
        yield storage
        return
    with TemporaryDirectory(prefix="autoauto-") as folder:
        yield f"sqlite:///{folder}/trials.db"


def default_space(flow: Flow) -> SearchSpace:
    """The space for a target and as many devices as there are.

    Real devices differ little in what part of their memory they use, and every measurement takes their time.
    """
    powers = default_n_ipu(len(flow.cluster))
    if flow.runner is None:
        return SearchSpace(powers)
    return SearchSpace(powers, (1.0,), (1, 2, 4, 8, 16, 32), replicas=powers)


def default_n_ipu(n_devices: int) -> tuple[int, ...]:
    """The grid over devices, as far as the cluster goes.

    >>> default_n_ipu(4), default_n_ipu(1)
    ((1, 2, 4), (1,))
    """
    return tuple(n for n in (1, 2, 4) if n <= n_devices)


def default_noise(flow: Flow) -> float:
    """The share of a value that is chance: none where a cost model measures."""
    return 0.0 if flow.runner is None else DEFAULT_NOISE


def fingerprint_of(flow: Flow, space: SearchSpace) -> dict[str, str]:
    """What trials must share to be comparable."""
    return {"autoauto": VERSION, "mode": "training" if space.training else "inference", **flow.fingerprint()}


def default_study_name(flow: Flow, aim: Aim, fingerprint: Mapping[str, str]) -> str:
    """What the study is about, and a digest of all that its trials depend on: an equal search resumes it."""
    digest = hashlib.sha256(repr(fingerprint).encode()).hexdigest()
    return f"{flow.graph.name}-{flow.cluster.name}-{aim_name(aim).replace(',', '-')}-{digest[:6]}"
