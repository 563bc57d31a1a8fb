"""A search as it is asked for, `SearchRequest`: a problem, what may vary, what is optimised, and how long.

Options of the command line, keys of a search file and keywords of Python make one; a study stores it as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from msgspec import Meta

from autoauto.records.errors import BadInput
from autoauto.records.files.fields import stored_form
from autoauto.records.files.json import from_json, from_plain, to_json, to_plain
from autoauto.schedule.orders.registry import spec_of
from autoauto.space.constraint import MAX_CONSTRAINTS, Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.training import SCHEDULE, Training
from autoauto.space.objectives import Objective, Objectives, objectives_text, parse_objectives
from autoauto.space.requests.given import values_given
from autoauto.space.requests.problem import Problem, constraints_of
from autoauto.space.requests.target_choice import with_target
from autoauto.space.space import SearchSpace, read_values
from autoauto.space.table import KNOBS, TABLE, no_such_knob
from autoauto.targets.registry import precisions_of

Tries = str | Knobs | Mapping[str, object] | Sequence[str | Knobs | Mapping[str, object]]
"""Configurations to try first: one or several, each as in `configuration_given`."""


@dataclass(frozen=True, slots=True)
class KnobValues:
    """The values of some knobs; the devices, the model and the target say those of the others.

    Attributes:
        global_batch: samples of a step of training, from which the numbers of micro-batches follow.
    """

    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    global_batch: int | None = None

    @staticmethod
    def of(values: Mapping[str, Any]) -> KnobValues:
        """The values and constraints of knobs among values by the names of options; raises as `given_knobs`."""
        over_knobs = tuple(each for each in constraints_of(values) if each.over_knobs)
        return KnobValues(given_knobs(values), over_knobs, values.get("global_batch"))

    @staticmethod
    def read(given: Mapping[str, Any]) -> KnobValues:
        """Values by the names of knobs, each once, as a caller or a file gives them; BadInput if no knob has one."""
        if unknown := given.keys() - TABLE.keys():
            raise BadInput(no_such_knob(min(map(str, unknown))))
        values: dict[str, tuple[Any, ...]] = {}
        for name, each in given.items():
            several = each if isinstance(each, list | tuple) else (each,)
            values[name] = tuple(dict.fromkeys(read_values(name, several, TABLE[name].domain)))
            if not values[name]:
                raise BadInput(f"{name} takes one value or more, got none; leave it out for its default")
        if "batch_size" in values:
            values["batch_size"] = tuple(sorted(values["batch_size"]))
        return KnobValues(values)


def given_knobs(values: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The values of knobs among values by the names of options; in training also the defaults of those that it adds.

    The order is an exception: its default depends on the model (`autoauto/evaluate/modes/training_table.py`).

    Raises:
        BadInput: knobs of training are given without the mode, or a global batch with a number of micro-batches.
    """
    mode, global_batch = values.get("mode", "inference"), values.get("global_batch")
    if global_batch is not None and (mode != "training" or values.get("n_micro_batches") is not None):
        got = f"--mode {mode}" if mode != "training" else "--n-micro-batches too; leave one of them out"
        raise BadInput(f"--global-batch says how many micro-batches a step of --mode training has, got {got}")
    given = {knob.name: values[knob.name] for knob in KNOBS if values.get(knob.name) is not None}
    if not precisions_of(with_target(values)["target"]):  # there the precision is that of the problem, and no knob
        given.pop("precision", None)
    if mode != "training":
        if wrong := [knob.name for knob in Training.knobs if knob.name in given]:
            raise BadInput(f"only training has {', '.join(wrong)}, got --mode inference; try --mode training")
        return given
    in_training = {knob.name: (knob.default,) for knob in Training.knobs if knob is not SCHEDULE} | given
    if "stages_per_device" not in given:
        # Of every order the fewest that it runs with.
        ranges = [spec_of(order).stages_per_device for order in given.get("schedule", (SCHEDULE.default,))]
        in_training["stages_per_device"] = tuple(sorted({each[0] for each in ranges if each})) or (1,)
    return in_training


def asked_objectives(objective: str | Objectives, options: Mapping[str, object]) -> Objectives:
    """The objectives as given; the fewest devices where options of the target name a load and no other is asked for.

    Raises:
        BadInput: there is no such objective, or another one is given with such a load.
    """
    objectives = parse_objectives(objective) if isinstance(objective, str) else objective
    names = [f"--{name.replace('_', '-')}" for name in ("for_rate", "for_trace") if options.get(name)]
    if not names or objectives == Objective.DEVICES:
        return objectives
    if objectives != Objective.THROUGHPUT:
        raise BadInput(
            f"{names[0]} looks for the fewest GPUs, got --objective {objectives_text(objectives)}; try --rate"
        )
    return Objective.DEVICES


LAUNCH_LIMIT_S = 1800.0
"""Weights of large models are read, and kernels compiled, for many minutes."""


@dataclass(frozen=True, slots=True)
class MeasureConfig:
    """The measurements on real engines after a search by forecasts: how many, where and for how long.

    Attributes:
        n_most: configurations that are measured at most; 0 for none.
        launch: how engines are started, for example "local", "ssh:node1", "docker" or "endpoint:http://node1:8000".
        limit_s: seconds until an engine must answer.
        n_flips: of the choices of the answer, one knob with another value, how many are measured besides.
    """

    n_most: int = 0
    launch: str = "local"
    limit_s: float = LAUNCH_LIMIT_S
    n_flips: int = 0

    @staticmethod
    def of(values: Mapping[str, Any]) -> MeasureConfig:
        """The configuration in values by the names of options.

        Raises:
            BadInput: engines are started in two ways, or how is said and not how many.
        """
        launch, endpoints = values.get("launch"), values.get("endpoint")
        n_most = values.get("measure") or 0
        if launch and endpoints:
            raise BadInput("--launch starts engines and --endpoint is one that somebody else starts, got both; try one")
        n_flips = values.get("measure_flips") or 0
        if (launch or endpoints or n_flips) and not n_most:
            raise BadInput(
                "--launch, --endpoint and --measure-flips say how and what else engines measure; say how many: "
                "--measure 3"
            )
        way = launch or "local"
        if endpoints:
            way = f"endpoint:{','.join(endpoints)}"
        return MeasureConfig(n_most, way, values.get("launch_timeout") or LAUNCH_LIMIT_S, n_flips)


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """The space, the objectives, the method and the budget of a search.

    Attributes:
        space: what may vary: all of it, or the values of some knobs.
        method: a `Method` or its name; None is guided, and tpe for several objectives.
        n_measurements: the budget of the methods random and tpe.
        noise: share of a value that is noise; None is that of the target.
        n_repeats: how often the best is measured again at the end; None is that of the target.
        time_budget_s: seconds after which no further configuration is tried; None for as many as it takes.
        strict: whether the highest forecast of engines is the answer, also where its error is larger than the margin.
        quick: whether the whole model alone is measured, in few ways and once each.
    """

    space: SearchSpace | KnobValues = KnobValues()
    objectives: Objectives = Objective.THROUGHPUT
    method: str | None = None
    n_measurements: int = 30
    noise: float | None = None
    n_repeats: int | None = None
    tries: Tries = ()
    time_budget_s: float | None = None
    measure: MeasureConfig = MeasureConfig()
    strict: bool = False
    quick: bool = False

    @staticmethod
    def of(values: Mapping[str, Any]) -> StudyConfig:
        """The configuration in values by the names of options; other names are ignored; raises as `given_knobs`."""
        objective = values.get("objective", Objective.THROUGHPUT)
        return StudyConfig(
            space=KnobValues.of(values),
            objectives=asked_objectives(objective, values),
            method=values.get("method"),
            n_measurements=values.get("n_measurements", 30),
            noise=values.get("noise"),
            n_repeats=values.get("repeats"),
            tries=values.get("try") or (),
            time_budget_s=values.get("time_budget"),
            measure=MeasureConfig.of(values),
            strict=bool(values.get("strict")),
            quick=bool(values.get("quick")),
        )

    @property
    def plain(self) -> dict[str, Any]:
        """All fields as JSON has them; a space by the values that were given."""
        tries = [self.tries] if isinstance(self.tries, str | Knobs | Mapping) else self.tries
        others = {
            "space": _StoredSpace.of(self.space),
            "objectives": objectives_text(self.objectives),
            "tries": [values_given(each) if isinstance(each, Knobs) else each for each in tries],
        }
        plain: dict[str, Any] = to_plain({name: getattr(self, name) for name in _FIELDS} | others)
        return plain

    @staticmethod
    def read(plain: object, where: str) -> StudyConfig:
        """Read what `plain` wrote; the message of a BadInput begins with `where`."""
        stored: Any = from_plain(_STORED, plain, where)
        others = {
            "space": stored.space.read(),
            "objectives": parse_objectives(stored.objectives),
            "tries": tuple(stored.tries),
        }
        return StudyConfig(**{name: getattr(stored, name) for name in _FIELDS} | others)


@dataclass(frozen=True, slots=True)
class _StoredSpace:
    """A space as JSON has it: `grid` is a whole space by the values that were given, `knobs` are a `KnobValues`."""

    grid: dict[str, list[Any]] | None
    knobs: dict[str, list[Any]] | None
    constraints: Annotated[tuple[str, ...], Meta(max_length=MAX_CONSTRAINTS)]
    global_batch: int | None

    @staticmethod
    def of(space: SearchSpace | KnobValues) -> _StoredSpace:
        texts = tuple(constraint.text for constraint in space.constraints)
        if isinstance(space, SearchSpace):
            given = {name: list(values) for name, values in space.pairs if name in space.given}
            return _StoredSpace(given, None, texts, None)
        return _StoredSpace(None, {name: list(each) for name, each in space.values.items()}, texts, space.global_batch)

    def read(self) -> SearchSpace | KnobValues:
        constraints = tuple(map(Constraint, self.constraints))
        if self.grid is not None:
            grid: dict[str, Any] = dict(KnobValues.read(self.grid).values)
            return SearchSpace(constraints=constraints, **grid)
        return KnobValues(KnobValues.read(self.knobs or {}).values, constraints, self.global_batch)


_FIELDS = tuple(entry.name for entry in fields(StudyConfig))
_STORED = stored_form(StudyConfig, space=_StoredSpace, objectives=str, tries=list[str | dict[str, Any]])


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search as a person, a program or a study states it: all that its answer depends on."""

    problem: Problem
    study: StudyConfig = StudyConfig()

    @staticmethod
    def of(values: Mapping[str, Any]) -> SearchRequest:
        """The request of values by the names of options, for example parsed arguments; other names are ignored.

        Raises BadInput if they do not go together.
        """
        values = with_target(values)  # which may read the file of the cluster
        return SearchRequest(Problem.of(values), StudyConfig.of(values))

    def to_json(self) -> str:
        """The request as JSON, with files by their absolute paths, so that another process can open it."""
        return to_json({"problem": self.problem.plain, "study": self.study.plain}).decode()

    @staticmethod
    def from_json(text: str) -> SearchRequest:
        """Read what `to_json` wrote; a BadInput where a field is missing or wrong."""
        stored: Any = from_json(_STORED_REQUEST, text, "the request of a search")
        problem = Problem.read(stored.problem, "the problem of a search")
        return SearchRequest(problem, StudyConfig.read(stored.study, "the study of a search"))


_STORED_REQUEST = stored_form(SearchRequest, problem=dict[str, Any], study=dict[str, Any])
"""A `SearchRequest` as JSON has it, whose parts are read by themselves."""
