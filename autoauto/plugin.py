"""What a package of its own needs to add a target, an exporter or an importer of profiles: `docs/extend.md`.

Each name is imported from its module when it is first used, so that the file of a target loads nothing else.

>>> from autoauto.plugin import Device, Link
>>> Device("sheet", clock_hz=1e9, memory_bytes=2**30, n_tiles=1, tile_memory_bytes=2**30).name
'sheet'
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoauto.exporters.registry import Check, Deployment, Exporter
    from autoauto.graph.cut import onnx_source
    from autoauto.profile.importers.importer import Importer, ProfiledFile
    from autoauto.profile.importers.recorded import RecordedLayer, RecordedProfile
    from autoauto.records.costs.options import CompileOptions, Session
    from autoauto.records.costs.profile import GRADIENT, PARAMETER, STASH, CompiledRange, ProgramStep
    from autoauto.records.errors import BadInput, MissingExtra, OutOfMemory, Unsupported
    from autoauto.records.hardware import Cluster, Device, Link, Period
    from autoauto.records.knob import SWITCH, Knob, whole, words_or_none
    from autoauto.records.layers import Layer, LayerGraph, LayerRange, Source, Tensor
    from autoauto.records.plans.plan import Plan, Stage
    from autoauto.records.plans.timeline import Run, Runner, Timeline
    from autoauto.records.target import Origin, Target, TargetTraits
    from autoauto.records.units import Precision
    from autoauto.targets.target import NamedTarget, Request, TargetOption

__all__ = [
    "GRADIENT",
    "PARAMETER",
    "STASH",
    "SWITCH",
    "BadInput",
    "Check",
    "Cluster",
    "CompileOptions",
    "CompiledRange",
    "Deployment",
    "Device",
    "Exporter",
    "Importer",
    "Knob",
    "Layer",
    "LayerGraph",
    "LayerRange",
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
    "onnx_source",
    "whole",
    "words_or_none",
]

_MODULES = {
    "BadInput": "autoauto.records.errors",
    "Check": "autoauto.exporters.registry",
    "Cluster": "autoauto.records.hardware",
    "CompileOptions": "autoauto.records.costs.options",
    "CompiledRange": "autoauto.records.costs.profile",
    "Deployment": "autoauto.exporters.registry",
    "Device": "autoauto.records.hardware",
    "Exporter": "autoauto.exporters.registry",
    "GRADIENT": "autoauto.records.costs.profile",
    "Importer": "autoauto.profile.importers.importer",
    "Knob": "autoauto.records.knob",
    "Layer": "autoauto.records.layers",
    "LayerGraph": "autoauto.records.layers",
    "LayerRange": "autoauto.records.layers",
    "Link": "autoauto.records.hardware",
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
    "onnx_source": "autoauto.graph.cut",
    "whole": "autoauto.records.knob",
    "words_or_none": "autoauto.records.knob",
}


if not TYPE_CHECKING:  # type checkers would take any name for one of the module

    def __getattr__(name: str) -> object:
        """Import a name at its first use."""
        if name not in _MODULES:
            raise AttributeError(f"module 'autoauto.plugin' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
