"""Every configuration forecast, and the best measured: `surveyed`, where a measurement gives what the forecast says.

So the best is that of the whole space, and so is the front of what GPUs give and users get: `users_front`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import islice
from math import inf

from autoauto.evaluate.serving.margins import simplest_of_tie
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.methods.protocol import Forecast, Observation, Proposal, Proposals

CLOSE = 1e-6
"""By which share measurements and forecasts differ that round differently."""
PATIENCE = 8
"""So many configurations are tried whose forecasts are above the best, or that come next to working where none does."""
N_COMPARED = 4
"""So many other choices are simulated beside the best."""
_COUNTS = ("n_ipu", "replicas", "batch_size")


class Survey:
    """Forecasts of whole cells, each made once.

    Args:
        forecasts: makes the trials of a cell, without plans.
        objective: scores them.
        exceeds: see below.

    Attributes:
        exceeds: says whether a measurement gives a score or more, where arrivals are simulated and forecasts are upper
            bounds; None where a measurement gives what the forecast says.
        fitting: all forecasts so far that fit and meet the constraints, without plans.
    """

    def __init__(
        self,
        forecasts: Callable[[Sequence[Knobs]], Sequence[Trial]],
        objective: Objective,
        exceeds: Callable[[Knobs, float], bool] | None = None,
    ) -> None:
        self._forecasts, self._objective, self.exceeds = forecasts, objective, exceeds
        self._known: dict[Knobs, Forecast] = {}
        self.fitting: list[Trial] = []

    @property
    def counts_devices(self) -> bool:
        """True if the fewest devices are searched."""
        return self._objective is Objective.DEVICES

    @property
    def simulates(self) -> bool:
        """True if arrivals are simulated."""
        return self.exceeds is not None

    def __call__(self, cell: Sequence[Knobs]) -> list[Forecast]:
        """The forecasts of configurations that differ in their batch size alone."""
        known = [self._known[knobs] for knobs in cell if knobs in self._known]
        if len(known) < len(cell):
            trials = self._forecasts(cell)
            self.fitting += [trial for trial in trials if trial.fits]
            known = []
            for knobs, trial in zip(cell, trials, strict=True):
                score = self._objective.worth(trial) if trial.runs else None
                is_unsupported = trial.status is Status.UNSUPPORTED
                self._known[knobs] = Forecast(score, trial.excess, trial.violation, unsupported=is_unsupported)
                known.append(self._known[knobs])
        return known

    @property
    def front(self) -> list[Trial]:
        """The `users_front` of all forecasts so far; empty where arrivals are simulated, which forecasts only bound."""
        return [] if self.simulates else users_front(self.fitting)


def surveyed(space: SearchSpace, known: Mapping[Knobs, Observation], survey: Survey) -> Proposals:
    """Measure the best forecasts until none is above the best measurement, then the best of every other choice.

    At last the simplest that is not told apart from the best. Where arrivals are simulated, forecasts are bounds: those
    above the best are measured, the largest first, where one simulation at the best's throughput does not rule it out.

    Other choices are the values of all knobs but counts, and pipelines of one stage: they say why others lost.
    """
    n_cells = len(space.cells)
    forecasts = yield from forecast_all(space, survey)
    expected = {knobs: forecast.score or 0.0 for knobs, forecast in forecasts.items() if forecast.works}
    ranked = sorted(expected, key=expected.__getitem__, reverse=True)
    scores = {knobs: observation.score or 0.0 for knobs, observation in known.items()}

    def measured(knobs: Knobs) -> Proposals:
        if knobs not in scores:
            observation = yield Proposal(knobs, n_cells, n_cells)
            assert observation is not None
            scores[knobs] = observation.score or 0.0

    exceeds = survey.exceeds
    for knobs in islice(ranked, None if exceeds else PATIENCE):
        best = max(scores.values(), default=0.0)
        if expected[knobs] * (1 - CLOSE) <= best:
            break
        # One simulation at the throughput of the best costs less than searching for the configuration's own.
        if exceeds and best and knobs not in scores:
            yield Proposal(None, n_cells, n_cells, knobs)
            if not exceeds(knobs, best):
                continue
        yield from measured(knobs)
    for knobs in islice(_best_of_choices(ranked), N_COMPARED if exceeds else None):
        yield from measured(knobs)
    # The margin of the best may be smaller than the error of forecasts: then a simpler one is the answer.
    if ranked and "tensor_parallel" in ranked[0].values:
        kinds: dict[object, Knobs] = {}
        for knobs in ranked:
            kinds.setdefault((knobs.session, knobs.mode, knobs.n_ipu), knobs)  # the best batch size of each
        yield from measured(simplest_of_tie(ranked[0], {knobs: expected[knobs] for knobs in kinds.values()}))
    if not any(scores.values()):
        for knobs in nearest(forecasts):
            yield from measured(knobs)


def forecast_all(space: SearchSpace, survey: Survey) -> Generator[Proposal, Observation | None, dict[Knobs, Forecast]]:
    """Forecast every cell of a space, with a proposal for the progress of each; returns all forecasts."""
    cells, forecasts = space.cells, dict[Knobs, Forecast]()
    for number, cell in enumerate(cells):
        yield Proposal(None, number, len(cells), cell[0])
        forecasts.update(zip(cell, survey(cell), strict=True))
    return forecasts


def nearest(forecasts: Mapping[Knobs, Forecast]) -> list[Knobs]:
    """The `PATIENCE` configurations nearest to working: first those that run, last those that no size makes run."""

    def distance(knobs: Knobs) -> tuple[bool, bool, float]:
        forecast = forecasts[knobs]
        return forecast.unsupported, forecast.score is None, forecast.shortfall

    return sorted(forecasts, key=distance)[:PATIENCE]


def _best_of_choices(ranked: Sequence[Knobs]) -> Iterator[Knobs]:
    """The first configuration with every value of every knob but counts, and the first without a pipeline."""
    kinds: dict[object, Knobs] = {}
    for knobs in ranked:
        kinds.setdefault((knobs.session, knobs.mode, knobs.n_ipu == 1), knobs)
    seen: set[tuple[str, object]] = set()
    for knobs in kinds.values():
        choices = {(name, value) for name, value in knobs.values.items() if name not in _COUNTS}
        if knobs.n_ipu == 1:
            choices.add(("n_ipu", 1))
        if not choices <= seen:
            seen |= choices
            yield knobs


def users_front(trials: Sequence[Trial]) -> list[Trial]:
    """Of trials that generate text those that no other beats in tokens/s of a GPU and of a user, the fastest first."""
    front: list[Trial] = []
    most = 0.0
    # From the fastest for a user on, a trial is on the front if it gives more of a GPU than all before it.
    for trial in sorted(trials, key=lambda each: (each.tokens.tpot_s or inf, -each.device_samples_per_s)):
        if trial.device_samples_per_s > most and trial.tokens.tpot_s:
            most = trial.device_samples_per_s
            front.append(trial)
    return front
