"""What a package needs to add a target, a serving engine, an exporter or an importer of profiles: `docs/extend.md`.

Each name is imported from its module when it is first used, so that the file of a target loads nothing else.

>>> from autoauto.plugin import Device, Link
>>> Device("sheet", clock_hz=1e9, memory_bytes=2**30, n_tiles=1, tile_memory_bytes=2**30).name
'sheet'
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoauto.engines.command import (
        ALL_ADDRESSES,
        MASTER,
        Command,
        CommandOption,
        CommandSyntax,
        Launch,
        Launcher,
        Limits,
        blocks_of_variable,
        option_words,
        partition_variable,
    )
    from autoauto.engines.engine import ConstantShare, Engine, EngineMemory, HostCosts
    from autoauto.engines.rules import ENGINE_RULES, GroupSplit, Rule
    from autoauto.exporters.exporter import Check, Deployment, Exporter
    from autoauto.graph.cut import onnx_source
    from autoauto.profile.importers.importer import Importer, ProfiledFile
    from autoauto.profile.importers.recorded import RecordedLayer, RecordedProfile
    from autoauto.records.costs.decoder import Decoder, WeightFormat
    from autoauto.records.costs.options import CompileOptions, Session
    from autoauto.records.costs.profile import GRADIENT, PARAMETER, STASH, CompiledRange, ProgramStep
    from autoauto.records.errors import BadInput, MissingExtra, OutOfMemory, Unsupported
    from autoauto.records.hardware import Cluster, Device, Link, Period
    from autoauto.records.knob import SWITCH, Knob, whole, words_or_none
    from autoauto.records.layers import Layer, LayerGraph, LayerRange, Source, Tensor
    from autoauto.records.plans.plan import Plan, Stage
    from autoauto.records.plans.timeline import Run, Runner, Timeline
    from autoauto.records.target import CompilingTarget, Origin, Target, TargetTraits
    from autoauto.records.units import Precision
    from autoauto.targets.target import NamedTarget, Request, TargetOption

__all__ = [
    "ALL_ADDRESSES",
    "ENGINE_RULES",
    "GRADIENT",
    "MASTER",
    "PARAMETER",
    "STASH",
    "SWITCH",
    "BadInput",
    "Check",
    "Cluster",
    "Command",
    "CommandOption",
    "CommandSyntax",
    "CompileOptions",
    "CompiledRange",
    "CompilingTarget",
    "ConstantShare",
    "Decoder",
    "Deployment",
    "Device",
    "Engine",
    "EngineMemory",
    "Exporter",
    "GroupSplit",
    "HostCosts",
    "Importer",
    "Knob",
    "Launch",
    "Launcher",
    "Layer",
    "LayerGraph",
    "LayerRange",
    "Limits",
    "Link",
    "MissingExtra",
    "NamedTarget",
    "Origin",
    "OutOfMemory",
    "Period",
    "Plan",
    "Precision",
    "ProfiledFile",
    "ProgramStep",
    "RecordedLayer",
    "RecordedProfile",
    "Request",
    "Rule",
    "Run",
    "Runner",
    "Session",
    "Source",
    "Stage",
    "Target",
    "TargetOption",
    "TargetTraits",
    "Tensor",
    "Timeline",
    "Unsupported",
    "WeightFormat",
    "blocks_of_variable",
    "onnx_source",
    "option_words",
    "partition_variable",
    "whole",
    "words_or_none",
]

_MODULES = {
    "ALL_ADDRESSES": "autoauto.engines.command",
    "BadInput": "autoauto.records.errors",
    "Check": "autoauto.exporters.exporter",
    "Cluster": "autoauto.records.hardware",
    "Command": "autoauto.engines.command",
    "CommandOption": "autoauto.engines.command",
    "CommandSyntax": "autoauto.engines.command",
    "CompileOptions": "autoauto.records.costs.options",
    "CompilingTarget": "autoauto.records.target",
    "CompiledRange": "autoauto.records.costs.profile",
    "Decoder": "autoauto.records.costs.decoder",
    "Deployment": "autoauto.exporters.exporter",
    "Device": "autoauto.records.hardware",
    "ENGINE_RULES": "autoauto.engines.rules",
    "Engine": "autoauto.engines.engine",
    "EngineMemory": "autoauto.engines.engine",
    "Exporter": "autoauto.exporters.exporter",
    "GRADIENT": "autoauto.records.costs.profile",
    "GroupSplit": "autoauto.engines.rules",
    "HostCosts": "autoauto.engines.engine",
    "Importer": "autoauto.profile.importers.importer",
    "Knob": "autoauto.records.knob",
    "Launch": "autoauto.engines.command",
    "Launcher": "autoauto.engines.command",
    "Layer": "autoauto.records.layers",
    "LayerGraph": "autoauto.records.layers",
    "LayerRange": "autoauto.records.layers",
    "Limits": "autoauto.engines.command",
    "Link": "autoauto.records.hardware",
    "MASTER": "autoauto.engines.command",
    "MissingExtra": "autoauto.records.errors",
    "NamedTarget": "autoauto.targets.target",
    "Origin": "autoauto.records.target",
    "OutOfMemory": "autoauto.records.errors",
    "PARAMETER": "autoauto.records.costs.profile",
    "Period": "autoauto.records.hardware",
    "Plan": "autoauto.records.plans.plan",
    "Precision": "autoauto.records.units",
    "ProfiledFile": "autoauto.profile.importers.importer",
    "ProgramStep": "autoauto.records.costs.profile",
    "RecordedLayer": "autoauto.profile.importers.recorded",
    "RecordedProfile": "autoauto.profile.importers.recorded",
    "Request": "autoauto.targets.target",
    "Rule": "autoauto.engines.rules",
    "Run": "autoauto.records.plans.timeline",
    "Runner": "autoauto.records.plans.timeline",
    "STASH": "autoauto.records.costs.profile",
    "SWITCH": "autoauto.records.knob",
    "Session": "autoauto.records.costs.options",
    "Source": "autoauto.records.layers",
    "Stage": "autoauto.records.plans.plan",
    "Target": "autoauto.records.target",
    "TargetOption": "autoauto.targets.target",
    "TargetTraits": "autoauto.records.target",
    "Tensor": "autoauto.records.layers",
    "Timeline": "autoauto.records.plans.timeline",
    "Unsupported": "autoauto.records.errors",
    "WeightFormat": "autoauto.records.costs.decoder",
    "blocks_of_variable": "autoauto.engines.command",
    "ConstantShare": "autoauto.engines.engine",
    "onnx_source": "autoauto.graph.cut",
    "option_words": "autoauto.engines.command",
    "partition_variable": "autoauto.engines.command",
    "whole": "autoauto.records.knob",
    "words_or_none": "autoauto.records.knob",
}


if not TYPE_CHECKING:  # type checkers would take any name for one of the module

    def __getattr__(name: str) -> object:
        """Import a name at its first use."""
        if name not in _MODULES:
            raise AttributeError(f"module 'autoauto.plugin' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
