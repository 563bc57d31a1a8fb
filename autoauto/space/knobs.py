"""One configuration: `Knobs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from autoauto.records.costs.options import CompileOptions, Session
from autoauto.records.costs.profile import WeightUpdate
from autoauto.records.errors import BadInput
from autoauto.records.knob import HasKnobs, Knob, whole
from autoauto.records.schedule import StepShape
from autoauto.records.units import Precision
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import MAX_VALUES, Mode, Strategy
from autoauto.space.modes.registry import MODES, mode_of
from autoauto.space.sessions import SESSION_KNOBS, owners_of, session_of, target_of, with_values
from autoauto.targets.ipu.session import IpuSession

DEFAULT_PLANNING_PROPORTION = 0.85
"""Share of a device's memory that a planned stage may fill by plain sums: memoryProportion of [auto-pipeline]."""
MAX_SAMPLES = 2**20  # in a micro-batch; far beyond any device, so that bytes and cycles stay exact integers

N_IPU = Knob(
    "n_ipu",
    whole(MAX_VALUES),
    1,
    "devices in the pipeline",
    "1,2,4",
    ("1", "powers of two and divisors of all devices"),
    searched=(1, 2, 4),
    is_shown=True,
)
REPLICAS = Knob(
    "replicas",
    whole(MAX_VALUES),
    1,
    "pipelines side by side",
    "1,2",
    ("1", "as --n-ipu, as many as there are devices for"),
    breaks_ties=True,
)
BATCH_SIZE = Knob(
    "batch_size",
    whole(MAX_SAMPLES),
    1,
    "samples in a micro-batch",
    "1:128",
    ("1", "1:128, both ends included, or 1,2,4,8,16,32 on the host, to 256 on GPUs"),
    searched=tuple(range(1, 129)),
    is_shown=True,
    breaks_ties=True,
)


@dataclass(frozen=True, slots=True, init=False)
class Knobs(HasKnobs):
    """One configuration: how many devices and samples, in which mode, and how each device computes.

    Beside its fields it takes the knobs of the mode and of the session by their names, and so do `with_values` and
    attributes: `Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8).memory_proportion` is 0.6.

    Attributes:
        n_ipu: devices of one pipeline, of whichever target; for phases the number of devices that run the same phases
            on different data.
        batch_size: samples in one micro-batch.
        replicas: pipelines of `n_ipu` devices each, side by side, each with micro-batches of its own; in training their
            gradients are summed once a step.
        mode: inference or training by pipelines, or phases, with its own knobs.
        session: how a device computes, with the knobs of the target.

    Raises:
        BadInput: a value is out of range, values do not go together, or no mode and session have a knob of that name.

    >>> Knobs(n_ipu=2, memory_proportion=0.3, batch_size=8).session
    IpuSession(memory_proportion=0.3, io_tiles=0)
    """

    knobs: ClassVar[tuple[Knob, ...]] = (N_IPU, REPLICAS, BATCH_SIZE)
    n_ipu: int
    batch_size: int
    replicas: int
    mode: Mode
    session: Session

    def __init__(
        self,
        n_ipu: int = 1,
        batch_size: int = 1,
        replicas: int = 1,
        mode: Mode | None = None,
        session: Session | None = None,
        **values: Any,
    ) -> None:
        if values:
            mode, session = _with_values(mode, session, values)
        set_field = object.__setattr__
        set_field(self, "n_ipu", n_ipu)
        set_field(self, "batch_size", batch_size)
        set_field(self, "replicas", replicas)
        set_field(self, "mode", Inference() if mode is None else mode)
        set_field(self, "session", IpuSession() if session is None else session)
        for name in ("n_ipu", "replicas"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        _check_batch_size(batch_size)
        self.session.check_devices(n_ipu, in_phases=self.is_phased)
        self.mode.check(n_ipu, replicas)

    if not TYPE_CHECKING:  # our own code says whose knob it reads

        def __getattr__(self, name: str) -> Any:
            """The value of a knob of the mode or the session."""
            if name.startswith("_"):
                raise AttributeError(name)
            values = self.values
            if name not in values:
                raise AttributeError(_why_absent(self, name))
            return values[name]

    def with_values(self, **values: Any) -> Self:
        """The configuration with other values of knobs, by their names."""
        return replace(self, **values)

    def with_batch_sizes(self, sizes: Iterable[int]) -> Iterator[Self]:
        """The configuration at several batch sizes. Of a space there are many, so only the size is checked."""
        set_field = object.__setattr__
        for size in sizes:
            _check_batch_size(size)
            knobs = object.__new__(type(self))
            set_field(knobs, "n_ipu", self.n_ipu)
            set_field(knobs, "batch_size", size)
            set_field(knobs, "replicas", self.replicas)
            set_field(knobs, "mode", self.mode)
            set_field(knobs, "session", self.session)
            yield knobs

    @property
    def values(self) -> dict[str, Any]:
        """The values of all knobs that the configuration has, by the fields that they set."""
        values: dict[str, Any] = {"n_ipu": self.n_ipu, "replicas": self.replicas, "batch_size": self.batch_size}
        if self.session.runtime is not None:
            values["runtime"] = self.session.runtime
        return values | self.session.values | self.mode.values

    @property
    def training(self) -> bool:
        """True if there is a backward pass."""
        return self.mode.training

    @property
    def is_phased(self) -> bool:
        """True if the model runs in phases."""
        return self.mode.strategy is Strategy.PHASED

    @property
    def step(self) -> StepShape:
        """The numbers that make a step of a pipeline."""
        return StepShape(self.mode.order, self.n_ipu, self.mode.n_micro_batches, self.mode.stages_per_device)

    @property
    def weight_update(self) -> WeightUpdate:
        """The update of the weights at the end of a step of training."""
        return self.mode.weight_update(self.replicas)

    @property
    def n_devices(self) -> int:
        """Devices of the cluster that all replicas take, and what the session takes beside them."""
        return self.n_ipu * self.replicas * self.session.group_size + self.session.n_beside

    @property
    def n_samples(self) -> int:
        """Samples of one step of training, of all phases, or of one micro-batch of inference by every pipeline."""
        return self.batch_size * self.mode.n_micro_batches * (self.n_ipu if self.is_phased else self.replicas)


def _check_batch_size(size: int) -> None:
    if not isinstance(size, int) or not 1 <= size <= MAX_SAMPLES:
        raise BadInput(f"batch_size must be 1 to {MAX_SAMPLES}, got {size}")


def _with_values(
    mode: Mode | None, session: Session | None, values: Mapping[str, Any]
) -> tuple[Mode | None, Session | None]:
    of_session = {name: value for name, value in values.items() if name in SESSION_KNOBS}
    of_mode = {name: value for name, value in values.items() if name in _MODE_KNOBS}
    if unknown := values.keys() - of_session.keys() - of_mode.keys():
        raise BadInput(f"there is no knob {min(unknown)}; knobs are {', '.join([*_MODE_KNOBS, *SESSION_KNOBS])}")
    if of_session:
        session = session_of(of_session) if session is None else with_values(session, of_session)
    if of_mode and mode is not None:
        of_mode = {"schedule": mode.order, **mode.values, **of_mode}
    if of_mode:
        mode = mode_of(of_mode)
    return mode, session


def _why_absent(knobs: Knobs, name: str) -> str:
    """Whose knob it is that a configuration does not have.

    >>> print(_why_absent(Knobs(), "tensor_parallel"))
    tensor_parallel is a knob of --target gpu, the configuration has IpuSession and Inference
    >>> print(_why_absent(Knobs(), "optimizer"))
    optimizer is a knob of training, the configuration has IpuSession and Inference
    """
    owners = [mode.purpose for mode in MODES if any(knob.field == name for knob in mode.knobs)]
    owners += dict.fromkeys(map(target_of, owners_of(name)))
    if not owners:
        return f"a configuration has no {name}"
    own = f"{type(knobs.session).__name__} and {type(knobs.mode).__name__}"
    return f"{name} is a knob of {' or '.join(owners)}, the configuration has {own}"


_MODE_KNOBS = tuple(dict.fromkeys(["strategy", *(knob.field for mode in reversed(MODES) for knob in mode.knobs)]))

_COMPILED = tuple(each.name for each in fields(CompileOptions) if each.name not in ("precision", "training", "session"))


def compile_options(knobs: Knobs, precision: Precision, device: int = 0) -> CompileOptions:
    """The options by which a target compiles a configuration for a device of its pipeline.

    It has all options but the precision and the session by their names, so any knob of a mode that changes what is
    compiled.
    """
    values = knobs.values
    others = {name: values[name] for name in _COMPILED if name in values}
    session = knobs.session.on_device(device)
    return CompileOptions(precision=precision, training=knobs.training, session=session, **others)
