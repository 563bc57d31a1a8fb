"""A whole search in one call: `search` takes names, `search_flow` a flow; both state it for `search_study`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path

from optuna import Study

from autoauto.evaluate.flow import Flow, largest_transfers
from autoauto.evaluate.open import named, open_problem, with_uploads
from autoauto.records.costs.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph, OnnxModel
from autoauto.records.model_inputs import model_inputs
from autoauto.records.plans.plan import CutAt, Plan
from autoauto.records.target import Origin, Target
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objective, Objectives, objective_tuple, parse_objectives
from autoauto.space.requests.problem import Planning
from autoauto.space.requests.request import SearchRequest, StudyConfig, Tries, asked_objectives
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import (
    CHOICES,
    CLOCK,
    NOTES,
    POOLS,
    RATE_CURVES,
    SIZING,
    TRANSFERRED,
    USERS_FRONT,
    Alternative,
    KnobChoice,
    Sizing,
    choices_text,
    users_front_text,
)
from autoauto.space.trial import Trial
from autoauto.study.analysis.best import (
    STRICT,
    expected_alternatives,
    measurements_of,
    not_dominated,
    store_alternatives,
    summarise,
)
from autoauto.study.analysis.choices import Forecasts, doubtful, worth_of_choices
from autoauto.study.arguments import (
    Extent,
    asked_space,
    check_measuring,
    check_objectives,
    checked_repeats,
    chosen_method,
    n_repeats_of,
    space_of,
)
from autoauto.study.defaults import default_study_name, fingerprint_of
from autoauto.study.execution.executors import Executor, InlineExecutor, ProcessExecutor
from autoauto.study.execution.process import Bounds
from autoauto.study.methods.protocol import Predictor
from autoauto.study.methods.registry import predictor
from autoauto.study.methods.surveyed import Survey
from autoauto.study.run import UNOBSERVED, Observers, SearchProgress, SearchResult, SearchTask, nothing_fits, run_task
from autoauto.study.store.database import attributes_of, set_attribute, temporary_database
from autoauto.study.store.provenance import provenance
from autoauto.study.store.study import REQUEST, note_answer, note_space, note_start, open_study
from autoauto.study.store.trials import stored_trials
from autoauto.study.verify_winner import verify_winner, with_auto_pipeline

N_OF_FRONT = 20
"""So many configurations of a front of forecasts are tried first, evenly chosen."""


def search(
    model: str | Path | OnnxModel | LayerGraph,
    cluster: str | Path | Mapping[str, object] | Cluster | None = None,
    space: SearchSpace | Mapping[str, object] | None = None,
    *,
    target: str | Target | None = None,
    objective: str = Objective.THROUGHPUT,
    method: str | None = None,
    n_measurements: int = 30,
    noise: float | None = None,
    precision: str | None = None,
    planning_proportion: float | None = None,
    period: str | None = None,
    estimator: str = Estimator.REGRESSION,
    cut_at: str = CutAt.LAYERS,
    options: Mapping[str, object] | None = None,
    constraints: Iterable[str] = (),
    storage: str | None = None,
    study_name: str | None = None,
    n_workers: int | None = None,
    n_repeats: int | None = None,
    callback: Callable[[Trial], None] | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    states: Mapping[str, str] | None = None,
    tries: Tries = (),
    time_budget_s: float | None = None,
    strict: bool = False,
) -> Trial:
    """The best configuration of a model on a cluster, measured and verified, as the command `autoauto search` finds it.

    Its timeline is simulated from the measured stages; for phases there is none.

    Args:
        model: a built-in name, the path of an ONNX file, an ONNX model or a graph of layers.
        cluster: a built-in name, the path of a TOML file or of a JSON file, an IPUClusterInfo [auto-pipeline], or
            the cluster itself; by default "bow-2000", and this machine for the target "host".
        space: what may vary: a `SearchSpace`, or values of some knobs, `{"n_ipu": [1, 2]}`; by default all ways to use
            the devices as replicas of pipelines, three memory proportions and the batch sizes 1 to 128 on IPUs.
        target: as in `load_flow`; by default that of the cluster, else of the model.
        objective: what is optimised, an `Objective` or its name.
        method: how configurations are chosen, a `Method` or its name; by default guided.
        n_measurements: the budget of the methods random and tpe.
        noise: share of a value that is noise; by default 0, and 0.01 on real devices.
        precision, planning_proportion, period, estimator, cut_at: of the estimates, as in `load_flow`.
        options: those that only the target has, as in `load_flow`, for example `{"inputs": "inputs.npz"}` on the host.
        constraints: expressions that must hold, for example "latency_s <= 0.004", see `Constraint`.
        storage: the URL of the database that stores the trials, for example "sqlite:///studies/autoauto.db": an equal
            search resumes from them, and `autoauto worker` can join where model, cluster and target are names or paths.
            By default they are deleted at the end. `trials_dataframe` reads them.
        study_name: the name of the study there; by default made of everything that the trials depend on.
        n_workers: number of processes that measure; by default this one does. They are started with `spawn`, so a
            script searches under `if __name__ == "__main__":`, and a target of your own must be picklable.
        n_repeats: how often the best is measured again at the end; by default 3 on real devices and 1 on a cost model.
        callback: called with every trial once it is finished and stored.
        progress: called with a `SearchProgress` before every try, and at the end.
        shapes, batch_axes, states: of the model's inputs, as in `load_flow`, for example `{"height": 320}`.
        tries: configurations of the space to try first, each as values of knobs, `{"n_ipu": 2, "batch_size": 8}` or
            "n_ipu=2,batch_size=8"; other knobs have their defaults.
        time_budget_s: seconds after which no further configuration is tried: the best so far is verified, and is the
            answer. What is measured at that moment is finished. An equal search continues from the trials.
        strict: whether the highest forecast of engines on GPUs is the answer. By default one with fewer stages or
            smaller groups is, where the error of forecasts does not tell it apart from the highest.

    Raises:
        Infeasible: no configuration of the space fits.
        BadInput: the arguments do not go together; the message says what to try.
        KeyboardInterrupt: Ctrl-C, SIGTERM.
    """
    observers = Observers(callback, progress)
    if isinstance(parse_objectives(objective), tuple):
        raise BadInput(f"several objectives have no single best configuration, got {objective}; try search_flow")
    if not isinstance(constraints, Iterable):
        raise BadInput(f"constraints are texts such as ['latency_s <= 0.004'], got {constraints!r:.60}")
    texts = [constraints] if isinstance(constraints, str) else constraints
    bounds = [Constraint(text) for text in texts]
    over_knobs = tuple(bound for bound in bounds if bound.over_knobs)
    over_results = tuple(bound for bound in bounds if not bound.over_knobs)
    problem, objects = named(model, cluster, target)
    problem = replace(
        problem,
        precision=precision,
        planning=Planning(estimator, planning_proportion, period, cut_at),
        constraints=over_results,
        options=options or {},
        model_inputs=model_inputs(shapes, batch_axes, states),
    )
    flow = open_problem(problem, storage, objects)
    config = StudyConfig(
        asked_space(space, over_knobs),
        asked_objectives(objective, problem.options),
        method,
        n_measurements,
        noise,
        n_repeats,
        tries,
        time_budget_s,
        strict=strict,
    )
    request = SearchRequest(problem, config) if objects.is_none else None
    trials_in = StudyStorage(storage, study_name, request=request)
    make_executor = None if n_workers is None else partial(process_executor, flow, n_workers)
    result = search_study(flow, config, trials_in, make_executor, observers)
    if result.best is None:
        raise nothing_fits(result)
    plan = result.best.plan
    timeline = flow.timeline(result.best.knobs, plan) if isinstance(plan, Plan) else None
    return replace(result.best, timeline=timeline)


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
    make_executor: Callable[[], Executor] | None = None,
    n_repeats: int | None = None,
    callback: Callable[[Trial], None] | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    verification_progress: Callable[[int, int], None] | None = None,
    on_space_change: Callable[[str], None] | None = None,
    tries: Tries = (),
    time_budget_s: float | None = None,
    strict: bool = False,
) -> SearchResult:
    """Search the configurations of a flow, and verify the best.

    Args:
        flow: from `load_flow`.
        space: what may vary; by default `default_space`.
        objective: its name, or those of several with commas.
        method, n_measurements: as in `search`; by default guided, and tpe for several objectives.
        noise: share of a value that is noise, see `run_search`; by default 0, and 0.01 on real devices.
        storage: the URL of the database that stores the trials; by default they are deleted at the end.
        study_name: by default made of everything that the answer depends on.
        about, notes: further parts of the fingerprint and further attributes of the study, see `open_study`.
        make_executor: makes an executor for each run and for the verification; by default this process measures.
        n_repeats: turns of `verify_winner`, 0 for none; by default 3 on real devices and 1 on a cost model.
        callback, progress: as in `run_search`.
        verification_progress: as `progress` of `verify_winner`.
        on_space_change: called with a line of text when an earlier search of the study had another space.
        tries, time_budget_s, strict: as in `search`.

    Raises:
        BadInput: the arguments do not go together; the message says what to try.
        KeyboardInterrupt, MeasurementsFailed: as `run_search`.
    """
    if not isinstance(flow, Flow):
        raise BadInput(f"search_flow takes a Flow as load_flow returns it, got {flow!r:.60}; try autoauto.search")
    config = StudyConfig(
        asked_space(space),
        parse_objectives(objective),
        method,
        n_measurements,
        noise,
        n_repeats,
        tries,
        time_budget_s,
        strict=strict,
    )
    trials_in = StudyStorage(storage, study_name, about or {}, notes or {})
    observers = Observers(callback, progress, verification_progress, on_space_change)
    return search_study(flow, config, trials_in, make_executor, observers)


@dataclass(frozen=True, slots=True)
class StudyStorage:
    """The database and the study in which a search stores its trials, and what is stored beside them.

    Attributes:
        url: of the database; None for one that is deleted at the end.
        name: of the study; None for one made of everything that the answer depends on.
        about: further parts of the fingerprint, see `open_study`.
        request: what workers open; None where it has objects that only this process has.
    """

    url: str | None = None
    name: str | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    request: SearchRequest | None = None

    def open(self, url: str, flow: Flow, task: SearchTask, method: Method) -> Study:
        """The study of a search, in the database at `url`."""
        fingerprint = {**self.about, **fingerprint_of(flow, task.space)}
        name = self.name or default_study_name(flow, task.objectives, fingerprint, task.space, method, task.noise)
        attributes = {
            "method": str(method),
            "noise": str(task.noise),
            "origin": str(flow.traits.origin),
            STRICT: str(task.strict),
        }
        if notes := flow.setting.notes_of(cell[0] for cell in task.space.cells):
            attributes[NOTES] = json.dumps(notes)
        if flow.setting.shown_clock_hz is not None:
            attributes[CLOCK] = str(flow.setting.shown_clock_hz)
        if self.request is not None:
            attributes[REQUEST] = self.request.to_json()
        return open_study(url, name, task.objectives, fingerprint, {**attributes, **provenance(), **self.notes})


def search_study(
    flow: Flow,
    config: StudyConfig,
    storage: StudyStorage,
    make_executor: Callable[[], Executor] | None = None,
    observers: Observers = UNOBSERVED,
) -> SearchResult:
    """Search the configurations of a flow, and verify the best; raises as `search_flow`."""
    checked_repeats(config.n_repeats)
    check_objectives(flow, config.objectives)
    objectives = config.objectives
    space = space_of(flow, config.space, objectives, quick=config.quick)
    if config.measure.n_most:
        check_measuring(flow, objectives, storage.request)
    extent = Extent.of(space, config.tries, config.time_budget_s)
    mode = flow.first_mode
    exceeds = flow.exceeds if mode.simulates else None
    survey = Survey(flow.forecasts, objective_tuple(objectives)[0], exceeds) if mode.forecasts_cells else None
    first = (*extent.first, *_front_of_forecasts(space, objectives, survey))
    choice = chosen_method(flow, config, space, first)
    # The method and the lookahead share it, so that both see the same forecasts.
    estimate = predictor(
        flow.forecast,
        objectives,
        flow.upper_bound,
        flow.is_bounded_by,
        flow.step_bounds,
        survey,
        memory_never_falls=flow.traits.memory_never_falls,
    )
    task = SearchTask(
        space,
        objectives,
        choice.proposer(estimate, objectives),
        choice.noise,
        config.strict,
        estimate.expected_score,
        extent.is_over,
    )
    make_executor = make_executor or partial(InlineExecutor, flow.evaluate)
    # Where only the highest throughput counts, what is slower need not be measured to its end.
    races = choice.method is Method.GUIDED and objectives == Objective.THROUGHPUT
    flow.race(() if races else None)  # before processes take the flow with them
    executor = make_executor()  # before the study is made: this may raise
    with stored(storage.url) as url:
        study = storage.open(url, flow, task, choice.method)
        if (changes := note_space(study, space)) and observers.on_space_change is not None:
            observers.on_space_change(changes)
        note_start(study)
        earlier = stored_trials(study).finished
        mode.continue_from(tuple(earlier.values()))
        if races:
            flow.race(trial for knobs, trial in earlier.items() if knobs in space)
        try:
            result = run_task(task, study, executor, observers)
        finally:
            flow.race(None)  # the turns that follow are as long as each other
        notes = _Notes(flow, study, space, objective_tuple(objectives)[0], survey)
        if survey is None:
            notes.note_alternatives(estimate, result)
        elif choice.method is Method.GUIDED and (front := survey.front):  # other methods do not forecast all
            set_attribute(study, USERS_FRONT, users_front_text(front))
        result = verify_winner(
            flow,
            study,
            result,
            objectives,
            n_repeats_of(flow, config),
            make_executor,
            observers.verification_progress,
        )
        measures = config.measure.n_most > 0 and result.best is not None and not extent.is_over()
        if measures:
            _measure(notes, config, storage, extent, observers)
        notes.note_result(result, is_measured=measures, has_time=not extent.is_over())
        summary = summarise(
            study,
            url,
            (*result.others, *result.trials.values(), *(each for each in stored_trials(study).own if each.origin)),
            n_finalists=1,
        )
        if storage.request is None or flow.traits.runs_plans:  # a report has no flow to ask, or not these devices
            summary = with_auto_pipeline(flow, study, summary)
        note_answer(study, summary.winner)  # every view of the study shows this one: earlier verifications count, too
        if result.best is not None:  # where engines were measured, none of these may keep the bounds
            best = summary.winner and replace(summary.winner, made_for=flow.made_for)  # it may be read
            result = replace(result, best=best, front=result.front if best else ())
        # Trials that have turns with their means.
        return replace(result, trials={trial.knobs: trial for trial in summary.trials}, summary=summary)


@dataclass(frozen=True, slots=True)
class _Notes:
    flow: Flow
    study: Study
    space: SearchSpace
    objective: Objective
    survey: Survey | None

    def note_alternatives(self, estimate: Predictor, result: SearchResult) -> None:
        alternatives: tuple[Alternative, ...] = ()
        if result.best is not None:
            flow = self.flow
            alternatives = expected_alternatives(self.space, estimate, flow.forecast, result.trials, flow.upper_bound)
        store_alternatives(self.study, alternatives)

    def note_result(self, result: SearchResult, *, is_measured: bool, has_time: bool) -> None:
        """Store what explains the verified result; of measured engines the choices are stored already."""
        survey, best = self.survey, result.best
        if survey is not None and best is not None and not is_measured:
            if survey.counts_devices:
                self._note_sizing(survey, result, best.knobs)
            elif not survey.simulates:
                self.note_choices(best.knobs)
        # A search that was finished before makes no forecasts.
        if survey is not None and survey.fitting and self.flow.pools == (1, 2):
            self._note_pools(survey, result)
        if best is not None:
            if isinstance(best.plan, Plan):
                transfers = largest_transfers(self.flow, best.plan, best.knobs.batch_size)
                set_attribute(self.study, TRANSFERRED, json.dumps(transfers))
            if has_time and (curves := self.flow.mode(best.knobs).rate_curves(best)):
                set_attribute(self.study, RATE_CURVES, curves.text)

    def note_choices(self, best: Knobs) -> tuple[KnobChoice, ...]:
        """Store what other values of the knobs of the best would give; of a measured study those of its answer."""
        measured = measurements_of(self.study)
        answer = measured.best.knobs if measured and measured.best else best
        forecasts = Forecasts(self.flow.forecasts, self.flow.forecast, self.objective)
        choices = worth_of_choices(self.space, forecasts, answer)
        set_attribute(self.study, CHOICES, choices_text(choices))
        return choices

    def _note_sizing(self, survey: Survey, result: SearchResult, best: Knobs) -> None:
        """Store how sure it is that no fewer devices do, and when of a trace they would."""
        for cell in self.space.cells:  # other methods than guided did not ask all forecasts
            survey(cell)
        fewer = {each for cell in self.space.cells for each in cell if each.n_devices < best.n_devices}
        may_work = {trial.knobs for trial in survey.fitting} & fewer
        n_tried = len(may_work & result.trials.keys())
        windows = self.flow.mode(best).replicas_by_window(best)
        shares = []
        for n, n_windows in Counter(windows).items():
            shares.append((n * best.n_devices // best.replicas, n_windows / len(windows)))
        n_untried = len(may_work) - n_tried
        window_s = self.flow.first_mode.window_s
        sizing = Sizing(n_tried, len(fewer - may_work), n_untried, window_s, tuple(sorted(shares)))
        set_attribute(self.study, SIZING, json.dumps(sizing._asdict()))

    def _note_pools(self, survey: Survey, result: SearchResult) -> None:
        """Store which of the best of one pool and of two gives more, and why.

        Where arrivals are simulated forecasts are bounds, so trials are compared.
        """
        from autoauto.evaluate.serving.flow import ServingFlow  # of extra gpu

        trials: Iterable[Trial] = survey.fitting
        origin = Origin.ESTIMATED
        if survey.simulates:
            trials = [trial for trial in result.trials.values() if trial.fits]
            origin = Origin.SIMULATED
        one_pool, two_pools = [], []
        for trial in trials:
            if trial.knobs.session.n_beside:
                two_pools.append(trial)
            else:
                one_pool.append(trial)
        if survey.simulates and not (one_pool and two_pools):
            # The others were ruled out by their bounds, or by one simulation.
            better, other = ("one pool", "two pools") if one_pool else ("two pools", "one pool")
            set_attribute(self.study, POOLS, f"{better}: no configuration of {other} that was tried gives as much")
            return
        assert isinstance(self.flow.serving, ServingFlow)
        best_of_one = max(one_pool, key=self.objective.worth, default=None)
        best_of_two = max(two_pools, key=self.objective.worth, default=None)
        text = self.flow.serving.pools_text(best_of_one, best_of_two)
        set_attribute(self.study, POOLS, f"{text}, {origin}")


def _measure(notes: _Notes, config: StudyConfig, storage: StudyStorage, extent: Extent, observers: Observers) -> None:
    """Measure the best of the forecasts on engines, and then some other values of the knobs of the answer."""
    from autoauto.study.measure_engines import Measuring, measure_also, measure_engines  # aiohttp, of extra gpu

    assert storage.request is not None
    model = with_uploads(storage.request.problem).model or ""
    measuring = Measuring(
        notes.flow,
        notes.study,
        notes.space,
        config.objectives,
        config.noise or 0.0,
        config.measure,
        model,
        extent.is_over,
        observers.on_measurement or (lambda _: None),
        observers.is_stopped,
    )
    measured = measure_engines(measuring)
    if measured.best is None:
        return
    choices = notes.note_choices(measured.best.knobs)
    if config.measure.n_flips:
        measure_also(measuring, doubtful(choices, config.measure.n_flips))
        notes.note_choices(measured.best.knobs)  # of another answer where one is better


def _front_of_forecasts(space: SearchSpace, objectives: Objectives, survey: Survey | None) -> tuple[Knobs, ...]:
    """Of several objectives the front of a survey of the whole space, at most `N_OF_FRONT` of it."""
    several = objective_tuple(objectives)
    if survey is None or len(several) == 1:
        return ()
    for cell in space.cells:
        survey(cell)
    scores = {each.knobs: tuple(objective.worth(each) for objective in several) for each in survey.fitting}
    front = not_dominated(scores)
    return tuple(front[:: ceil(len(front) / N_OF_FRONT)]) if front else ()


def process_executor(flow: Flow, n_workers: int, bounds: Bounds | None = None) -> ProcessExecutor:
    """An executor of `n_workers` processes of this machine.

    Raises:
        BadInput: the number is no positive integer, or several processes would disturb each other's measurements.
    """
    if not isinstance(n_workers, int) or n_workers < 1:
        raise BadInput(f"workers are 1 or more, got {n_workers!r}")
    if flow.traits.one_at_a_time and n_workers > 1:
        raise BadInput(
            f"measurements on the cores of one machine disturb each other, got --workers {n_workers}; try --workers 1"
        )
    return ProcessExecutor(flow.evaluate, n_workers, bounds or Bounds())


def stored(storage: str | None) -> AbstractContextManager[str]:
    """The URL of the database of a search: `storage`, or without it a temporary database."""
    return temporary_database() if storage is None else nullcontext(storage)


def flow_of_study(study: Study, storage: str, **changes: str) -> Flow:
    """The flow of the search of a study, opened on this machine, where its files may have other paths (`changes`).

    Raises:
        BadInput: the study does not store its flow, or something that its trials depend on differs on this machine.
    """
    known = attributes_of(study)
    if REQUEST not in known:
        raise BadInput(
            f"study {study.study_name!r} does not store its model and cluster, so no worker can join it; "
            "`autoauto search` makes one that does"
        )
    try:
        problem = SearchRequest.from_json(known[REQUEST]).problem
        flow = open_problem(problem.with_values(**changes) if changes else problem, storage)
    except BadInput as error:
        raise BadInput(f"study {study.study_name!r}: {error}") from error
    for name, value in flow.fingerprint().items():
        if known.get(name) != value:
            raise BadInput(
                f"study {study.study_name!r} has {name} {known.get(name)!r}, this machine has {value!r}; "
                "workers need the same model, cluster and version of autoauto"
            )
    return flow
