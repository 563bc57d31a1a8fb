"""Whether a space fits a setting: `checked`."""

from __future__ import annotations

from autoauto.evaluate.setting import Setting
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Period
from autoauto.records.units import Precision
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.mode import Strategy
from autoauto.space.modes.training import Training
from autoauto.space.space import SearchSpace


def checked(setting: Setting, space: SearchSpace) -> SearchSpace:
    """A space with the sessions of the target, which has no configurations that cannot be evaluated.

    Raises:
        BadInput: more devices than the cluster has, a knob that the target does not have, a session that the devices
            cannot run, or a batch size that the model cannot run at.
    """
    cluster, traits = setting.cluster, setting.traits
    space = space.on_target(cluster.target, traits.sessions, traits.space)
    cores_per_device, has_stage_replicas = max(space["cores_per_device"]), any(space["stage_replicas"])
    group_sizes = space[traits.groups] if traits.groups else (1,)
    for wanted, what in (
        (space.training, "training"),
        (Strategy.PHASED in space["strategy"], "a plan of phases"),
        (has_stage_replicas, "--stage-replicas"),
        (cores_per_device > 1, "--cores-per-device"),
    ):
        if wanted:
            setting.check_one_kind(what)
    if cores_per_device > 1 and traits.groups != "cores_per_device":
        raise BadInput(f"--target {cluster.target} has no --cores-per-device; leave it out, or try --target host")
    if has_stage_replicas and not traits.stage_replicas:
        instead = "one machine" if traits.groups else "--target host"
        raise BadInput(f"--target {cluster.target} has no --stage-replicas; leave it out, or try {instead}")
    if has_stage_replicas and setting.period_of_devices is Period.BARRIER:
        raise BadInput(
            "--stage-replicas needs devices that do not wait for all others, got --period barrier; try serial"
        )
    _check_hardware(space, cluster)
    n_ipu, n_replicas, n_each = max(space["n_ipu"]), min(space["replicas"]), min(group_sizes)
    n_devices = n_ipu * n_replicas * n_each
    if cores_per_device > cluster.machine_size < len(cluster):
        raise BadInput(
            f"the cores of a device are those of one machine, {cluster.machine_size} at most on "
            f"{cluster.name}, got --cores-per-device {cores_per_device}; try fewer"
        )
    if n_devices > len(cluster):
        factors = ((n_replicas, "replicas"), (n_each, traits.groups))
        times = "".join(f" times {number} {name}" for number, name in factors if number > 1)
        raise BadInput(
            f"n_ipu{times} must be at most {len(cluster)} on {cluster.name}, got {n_devices}; try fewer, "
            "or another --cluster"
        )
    if space.training and Training not in setting.modes:
        raise BadInput(f"the {cluster.target} target runs inference, got --mode training; try --target ipu")
    if Generation in space.modes and Generation not in setting.modes:
        raise BadInput(f"--target {cluster.target} generates no text, got --output-tokens; try --target gpu")
    if space.training and setting.precision is Precision.FP8:
        raise BadInput("fp8 is for inference, got --mode training; try --precision fp16")
    if Strategy.PHASED in space["strategy"]:
        setting.check_phases_may_begin_anywhere()
    return space


def _check_hardware(space: SearchSpace, cluster: Cluster) -> None:
    """Refuse a value of a knob of sessions that the devices cannot run.

    Raises:
        BadInput: there is one.
    """
    for kind in space.sessions:
        for knob in kind.knobs:
            for value in (value for value in space[knob.name] if value is not None):
                kind(**{knob.field: value}).hardware(cluster)
