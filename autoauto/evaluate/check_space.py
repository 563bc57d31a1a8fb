"""Whether a space fits a setting: `checked`."""

from __future__ import annotations

from itertools import product
from math import prod

from autoauto.evaluate.setting import Setting
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Period
from autoauto.records.units import Precision
from autoauto.space.constraint import Constraint
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import Strategy
from autoauto.space.modes.training import Training
from autoauto.space.space import SearchSpace
from autoauto.targets.gpu.session import PREFILL_KIND, PREFILL_WORKERS, PrefillPool


def checked(setting: Setting, space: SearchSpace) -> SearchSpace:
    """A space with the sessions of the target, which has no configurations that cannot be evaluated.

    Raises BadInput for more devices than the cluster has, a knob that the target does not have, a session that the
    devices cannot run, or a batch size that the model cannot run at.
    """
    cluster, traits = setting.cluster, setting.traits
    space = space.on_target(cluster.target, traits.sessions, traits.space)
    if traits.n_in_flight is not None:
        space = _with_in_flight(space, traits.n_in_flight)
    cores_per_device = max(space["cores_per_device"])
    has_stage_replicas = any(space["stage_replicas"])
    for wanted, what in (
        (space.training, "training"),
        (Strategy.PHASED in space["strategy"], "a plan of phases"),
        (has_stage_replicas, "--stage-replicas"),
        (cores_per_device > 1, "--cores-per-device"),
    ):
        if wanted:
            setting.check_one_kind(what)
    if cores_per_device > 1 and traits.groups != ("cores_per_device",):
        raise BadInput(f"--target {cluster.target} has no --cores-per-device; leave it out, or try --target host")
    if has_stage_replicas and not traits.stage_replicas:
        instead = "one machine" if traits.groups else "--target host"
        raise BadInput(f"--target {cluster.target} has no --stage-replicas; leave it out, or try {instead}")
    if has_stage_replicas and setting.period_of_devices is Period.BARRIER:
        raise BadInput(
            "--stage-replicas needs devices that do not wait for all others, got --period barrier; try serial"
        )
    _check_pools(space, cluster)
    _check_hardware(space, cluster)
    fewest = {"replicas": min(space["replicas"]), **{name: min(space[name]) for name in traits.groups}}
    n_devices = max(space["n_ipu"]) * prod(fewest.values())
    if cores_per_device > cluster.machine_size < len(cluster):
        raise BadInput(
            f"the cores of a device are those of one machine, {cluster.machine_size} at most on "
            f"{cluster.name}, got --cores-per-device {cores_per_device}; try fewer"
        )
    if n_devices > len(cluster):
        times = "".join(f" times {number} {name}" for name, number in fewest.items() if number > 1)
        raise BadInput(
            f"n_ipu{times} must be at most {len(cluster)} on {cluster.name}, got {n_devices}; try fewer, "
            "or another --cluster"
        )
    _check_modes(space, setting)
    if space.training and setting.precision is Precision.FP8:
        raise BadInput("fp8 is for inference, got --mode training; try --precision fp16")
    if Strategy.PHASED in space["strategy"]:
        setting.check_phases_may_begin_anywhere()
    return space


def _check_modes(space: SearchSpace, setting: Setting) -> None:
    """Refuse a mode in which the target runs no model."""
    cluster = setting.cluster
    if space.training and Training not in setting.modes:
        raise BadInput(f"the {cluster.target} target runs inference, got --mode training; try --target ipu")
    if Generation in space.modes and Generation not in setting.modes:
        raise BadInput(f"--target {cluster.target} generates no text, got --output-tokens; try --target gpu")
    if Inference in space.modes and Inference not in setting.modes:
        raise BadInput(f"output_tokens must be 1 or more on {cluster.name}, got 0; try 1 for prompts alone")


def _with_in_flight(space: SearchSpace, n: int) -> SearchSpace:
    """The space with the batch sizes with which n samples are in flight, or as many below as divide evenly."""
    each = "n_ipu * replicas"
    bound = Constraint(f"batch_size * {each} <= {n} and (batch_size + 1) * {each} > {n}")
    if bound in space.constraints:
        return space
    n_devices = map(prod, product(space["n_ipu"], space["replicas"]))
    sizes = {n // of_each for of_each in n_devices} - {0}
    if not sizes:
        raise BadInput(f"every stage of every replica needs a request in flight, got --concurrency {n}; try more")
    return space.with_values(batch_size=tuple(sorted(sizes)), constraints=(*space.constraints, bound))


def _check_hardware(space: SearchSpace, cluster: Cluster) -> None:
    """Refuse a value of a knob of sessions that the devices cannot run."""
    for kind in space.sessions:
        for knob in kind.knobs:
            for value in space[knob.name]:
                if value is not None:
                    kind(**{knob.field: value}).hardware(cluster)


def _check_pools(space: SearchSpace, cluster: Cluster) -> None:
    """Refuse knobs of prefill workers where there are none, and those on GPUs of a kind that there is not."""
    of_workers = [knob for knob in PrefillPool.knobs if space[knob.name] != (knob.default,)]
    if of_workers and not any(space[PREFILL_WORKERS.name]):
        raise BadInput(
            f"{of_workers[0].option} is of prefill workers, got none of them; say how many --prefill-workers, or leave "
            "it out"
        )
    n_kinds, most = max(1, len(cluster.kinds)), max(space[PREFILL_KIND.name])
    if most > n_kinds:
        raise BadInput(
            f"{PREFILL_KIND.option} counts the kinds of GPUs of {cluster.name}, which has {n_kinds}, got {most}; "
            "try fewer"
        )
