"""The names that a package imports to add a target, a serving engine, an exporter or an importer: `docs/extend.md`.

Each name is imported from its module when it is first used, so that the file of a target loads nothing else.

>>> from autoauto.plugin import Device, Link
>>> Device("sheet", clock_hz=1e9, memory_bytes=2**30, n_tiles=1, tile_memory_bytes=2**30).name
'sheet'
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoauto.engines.command import ALL_ADDRESSES as ALL_ADDRESSES
    from autoauto.engines.command import MASTER as MASTER
    from autoauto.engines.command import Command as Command
    from autoauto.engines.command import CommandOption as CommandOption
    from autoauto.engines.command import CommandSyntax as CommandSyntax
    from autoauto.engines.command import Launch as Launch
    from autoauto.engines.command import Launcher as Launcher
    from autoauto.engines.command import Limits as Limits
    from autoauto.engines.command import Placing as Placing
    from autoauto.engines.command import blocks_of_variable as blocks_of_variable
    from autoauto.engines.command import option_words as option_words
    from autoauto.engines.command import partition_variable as partition_variable
    from autoauto.engines.engine import ConstantShare as ConstantShare
    from autoauto.engines.engine import Engine as Engine
    from autoauto.engines.engine import EngineMemory as EngineMemory
    from autoauto.engines.engine import HostCosts as HostCosts
    from autoauto.engines.engine import MeasuredRows as MeasuredRows
    from autoauto.engines.rules import ENGINE_RULES as ENGINE_RULES
    from autoauto.engines.rules import GroupSplit as GroupSplit
    from autoauto.engines.rules import Rule as Rule
    from autoauto.engines.stand_in import KernelExceptions as KernelExceptions
    from autoauto.engines.step_rules import StepRules as StepRules
    from autoauto.exporters.exporter import Check as Check
    from autoauto.exporters.exporter import Deployment as Deployment
    from autoauto.exporters.exporter import Exporter as Exporter
    from autoauto.graph.cut import onnx_source as onnx_source
    from autoauto.profile.importers.importer import Importer as Importer
    from autoauto.profile.importers.importer import ProfiledFile as ProfiledFile
    from autoauto.profile.importers.recorded import RecordedLayer as RecordedLayer
    from autoauto.profile.importers.recorded import RecordedProfile as RecordedProfile
    from autoauto.records.costs.decoder import Decoder as Decoder
    from autoauto.records.costs.decoder import WeightFormat as WeightFormat
    from autoauto.records.costs.options import CompileOptions as CompileOptions
    from autoauto.records.costs.options import Session as Session
    from autoauto.records.costs.profile import GRADIENT as GRADIENT
    from autoauto.records.costs.profile import PARAMETER as PARAMETER
    from autoauto.records.costs.profile import STASH as STASH
    from autoauto.records.costs.profile import CompiledRange as CompiledRange
    from autoauto.records.costs.profile import ProgramStep as ProgramStep
    from autoauto.records.errors import BadInput as BadInput
    from autoauto.records.errors import MissingExtra as MissingExtra
    from autoauto.records.errors import OutOfMemory as OutOfMemory
    from autoauto.records.errors import Unsupported as Unsupported
    from autoauto.records.hardware import Cluster as Cluster
    from autoauto.records.hardware import Device as Device
    from autoauto.records.hardware import Link as Link
    from autoauto.records.hardware import Period as Period
    from autoauto.records.knob import SWITCH as SWITCH
    from autoauto.records.knob import Knob as Knob
    from autoauto.records.knob import whole as whole
    from autoauto.records.knob import words_or_none as words_or_none
    from autoauto.records.layers import Layer as Layer
    from autoauto.records.layers import LayerGraph as LayerGraph
    from autoauto.records.layers import LayerRange as LayerRange
    from autoauto.records.layers import Source as Source
    from autoauto.records.layers import Tensor as Tensor
    from autoauto.records.plans.plan import Plan as Plan
    from autoauto.records.plans.plan import Stage as Stage
    from autoauto.records.plans.timeline import Run as Run
    from autoauto.records.plans.timeline import Runner as Runner
    from autoauto.records.plans.timeline import Timeline as Timeline
    from autoauto.records.target import CompilingTarget as CompilingTarget
    from autoauto.records.target import Origin as Origin
    from autoauto.records.target import Target as Target
    from autoauto.records.target import TargetTraits as TargetTraits
    from autoauto.records.units import Precision as Precision
    from autoauto.targets.target import NamedTarget as NamedTarget
    from autoauto.targets.target import Request as Request
    from autoauto.targets.target import TargetOption as TargetOption

# The same names again: those above are for type checkers, these are imported.
_NAMES = {
    "autoauto.engines.command": "ALL_ADDRESSES MASTER Command CommandOption CommandSyntax Launch Launcher Limits "
    "Placing blocks_of_variable option_words partition_variable",
    "autoauto.engines.engine": "ConstantShare Engine EngineMemory HostCosts MeasuredRows",
    "autoauto.engines.rules": "ENGINE_RULES GroupSplit Rule",
    "autoauto.engines.stand_in": "KernelExceptions",
    "autoauto.engines.step_rules": "StepRules",
    "autoauto.exporters.exporter": "Check Deployment Exporter",
    "autoauto.graph.cut": "onnx_source",
    "autoauto.profile.importers.importer": "Importer ProfiledFile",
    "autoauto.profile.importers.recorded": "RecordedLayer RecordedProfile",
    "autoauto.records.costs.decoder": "Decoder WeightFormat",
    "autoauto.records.costs.options": "CompileOptions Session",
    "autoauto.records.costs.profile": "GRADIENT PARAMETER STASH CompiledRange ProgramStep",
    "autoauto.records.errors": "BadInput MissingExtra OutOfMemory Unsupported",
    "autoauto.records.hardware": "Cluster Device Link Period",
    "autoauto.records.knob": "SWITCH Knob whole words_or_none",
    "autoauto.records.layers": "Layer LayerGraph LayerRange Source Tensor",
    "autoauto.records.plans.plan": "Plan Stage",
    "autoauto.records.plans.timeline": "Run Runner Timeline",
    "autoauto.records.target": "CompilingTarget Origin Target TargetTraits",
    "autoauto.records.units": "Precision",
    "autoauto.targets.target": "NamedTarget Request TargetOption",
}
_MODULES = dict(sorted((name, module) for module, names in _NAMES.items() for name in names.split()))
__all__ = list(_MODULES)


if not TYPE_CHECKING:  # type checkers would take any name for one of the module

    def __getattr__(name: str) -> object:
        """Import a name at its first use."""
        if name not in _MODULES:
            raise AttributeError(f"module 'autoauto.plugin' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
