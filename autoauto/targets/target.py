"""Targets that users choose by name: `NamedTarget`, its options (`TargetOption`), and the `Request` to open it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from autoauto.records.costs.decoder import Decoder, DecoderFile
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Period
from autoauto.records.layers import LayerGraph, Source
from autoauto.records.target import Target, traits_of
from autoauto.records.units import Precision

OptionValues = Mapping[str, Any]
"""The value of every option of a target, by name."""


def flag_of(name: str) -> str:
    """The name of an option on the command line.

    >>> flag_of("synthetic_data")
    '--synthetic-data'
    """
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class TargetOption:
    """An option that only one target has.

    Attributes:
        name: as a Python name; the command line writes it with hyphens.
        help: what it does, for `--help`; empty for one that another option sets.
        kind: bool is a switch, int a whole number from 1, float a number from 0, str a text.
        choices: the texts that it may be; empty for any.
        metavar: what stands for its value in `--help`.
    """

    name: str
    help: str
    kind: type = bool
    default: object = False
    choices: tuple[str, ...] = ()
    metavar: str | None = None

    @property
    def flag(self) -> str:
        """The name of the option on the command line."""
        return flag_of(self.name)

    def accepts(self, value: object) -> bool:
        """True if the option may have this value."""
        if value == self.default:
            return True
        if self.kind is float:
            return type(value) in (int, float) and isfinite(value) and value >= 0  # type: ignore[arg-type, operator]
        if not isinstance(value, self.kind) or isinstance(value, bool) != (self.kind is bool):  # a bool is an int, too
            return False
        if self.choices:
            return value in self.choices
        return not isinstance(value, int) or self.kind is bool or value >= 1


class Request(NamedTuple):
    """The model, devices and options for which a named target is opened.

    Attributes:
        source: opens the model's file, to cut ranges of layers out of it; None when the model was given without one.
        decoder: the model, if it was read as a decoder; else None.
        decoder_file: the file that the decoder was read from, if an engine of this machine can read it, too.
    """

    graph: LayerGraph
    source: Callable[[], Source] | None
    cluster: Cluster
    precision: Precision
    options: OptionValues
    decoder: Decoder | None = None
    decoder_file: DecoderFile | None = None


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A target that users choose by its name: all that is needed to open a `Target`.

    Each is an entry point of the group "autoauto.targets" and imports nothing heavy before it is opened.
    How the opened target measures, and the defaults of a search on it, are its `TargetTraits`.

    Attributes:
        name: of the target; its clusters have it as `Cluster.target`.
        default_cluster: the name of the devices that are used when none are named.
        periods: what users may say that its devices do at the same time, besides `TargetTraits.period`.
        devices: the devices of a cluster that was named, checked against the options; of None the default ones.
        sessions: how it may compute, each with knobs of its own.
        precisions: the formats of weights and activations that it may be opened for.
        trains: whether its devices train models, so that `--help` shows how; `TargetTraits.trains` decides.
        serves_decoders: whether its models are decoders, which are read from a `config.json`, and not ONNX files.
        cluster_named: the devices of a name; None where it is none of its own. By default it has no names.
        has_cluster: True of names from which it makes devices, so that such a cluster decides the target.
        open: the target, and the cluster as the options have it; refuses options that the model does not allow.
    """

    name: str
    summary: str
    default_cluster: str
    default_precision: Precision
    options: tuple[TargetOption, ...]
    periods: tuple[Period, ...]
    devices: Callable[[Cluster | None, OptionValues], Cluster]
    open: Callable[[Request], tuple[Target, Cluster]]
    sessions: tuple[type[Session], ...] = ()
    precisions: tuple[Precision, ...] = (Precision.FP16, Precision.FP32, Precision.FP8)
    trains: bool = True
    serves_decoders: bool = False
    cluster_named: Callable[[str], Cluster | None] = lambda _: None
    has_cluster: Callable[[str], bool] = lambda _: False

    def opened(self, request: Request) -> tuple[Target, Cluster]:
        """Open the target, and check what `open` gives.

        Raises:
            BadInput: the target computes in sessions that are not among `sessions`, so that their knobs would be
                missing where a command or a stored trial is read; or as `open`.
        """
        target, cluster = self.open(request)
        if unnamed := [kind.__name__ for kind in traits_of(target).sessions if kind not in self.sessions]:
            raise BadInput(
                f"the sessions of target {self.name} must be among those of its NamedTarget, got {', '.join(unnamed)}; "
                "name them there, too"
            )
        return target, cluster

    def read_options(self, given: Mapping[str, object]) -> OptionValues:
        """The value of every option, by default its default.

        Raises:
            BadInput: an option of another target, or a value that an option cannot have.
        """
        known = {option.name: option for option in self.options}
        foreign = [flag_of(name) for name in given if name not in known]
        if foreign:
            raise BadInput(f"--target {self.name} has no {', '.join(foreign)}; leave them out, or try another --target")
        for name, value in given.items():
            option = known[name]
            if not option.accepts(value):
                kinds = {bool: "true or false", int: "a whole number from 1", float: "a number from 0", str: "a text"}
                may_be = f"one of {', '.join(option.choices)}" if option.choices else kinds[option.kind]
                raise BadInput(f"{option.flag} must be {may_be}, got {value!r}")
        return {option.name: given.get(option.name, option.default) for option in self.options}
