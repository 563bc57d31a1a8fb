"""The target "ipu" by name: `IPU`."""

from __future__ import annotations

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Period
from autoauto.records.layers import LayerGraph
from autoauto.records.target import Target
from autoauto.records.units import Precision
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.step import Framework
from autoauto.targets.target import NamedTarget, OptionValues, Request, TargetOption

_OPTIONS = (
    TargetOption("synthetic_data", "data is made on the device: the host's links cost nothing"),
    TargetOption(
        "partials",
        "format of partial sums of fp16 and fp8 products; Poplar's own default is fp32; default fp16",
        kind=str,
        default=None,
        choices=(Precision.FP16, Precision.FP32),
    ),
    TargetOption(
        "float_operators",
        "ONNX operators that run in fp32 between casts, for example Gelu,LayerNormalization",
        kind=str,
        default="",
        metavar="OP,OP",
    ),
    TargetOption("erf_gelu", "Gelu by the error function, as PopRT's enable_erf_gelu; by default by tanh"),
    TargetOption(
        "framework",
        "what runs steps of training, hence what a step takes on the hosts; default popart",
        kind=str,
        default=None,
        choices=tuple(Framework),
    ),
)


def _devices(given: Cluster | None, options: OptionValues) -> Cluster:
    from autoauto.targets.clusters import load_cluster

    return load_cluster(IPU.default_cluster) if given is None else given


def _open(request: Request) -> tuple[Target, Cluster]:
    """The cost model and its devices."""
    from autoauto.targets.ipu.operator_cost import CompilerSettings
    from autoauto.targets.ipu.operators.registry import default_notes
    from autoauto.targets.ipu.target import IpuTarget

    cluster, options = request.cluster, request.options
    operators = [name for name in options["float_operators"].split(",") if name]
    in_model = {layer.op for layer in request.graph.layers}
    if others := [name for name in operators if name not in in_model]:
        from onnx.defs import has as has_operator

        if unknown := [name for name in others if not has_operator(name)]:
            raise BadInput(f"--float-operators takes ONNX operators, got {unknown[0]!r}; try Gelu,LayerNormalization")
    if options["synthetic_data"]:
        cluster = cluster.with_synthetic_data()
    partials = Precision(options["partials"] or Precision.FP16)
    settings = CompilerSettings(partials, frozenset(operators), options["erf_gelu"])
    notes = (*_format_notes(request.graph, request.precision), *default_notes(request.graph))
    return IpuTarget(settings, notes, Framework(options["framework"] or Framework.POPART)), cluster


def _format_notes(graph: LayerGraph, precision: Precision) -> tuple[str, ...]:
    own = {Precision.FP16: ("float16",), Precision.FP32: ("float32",)}.get(precision, ())
    if not graph.formats or graph.formats == own:
        return ()
    return (f"computed in {precision}, the file has {' and '.join(graph.formats)}",)


IPU = NamedTarget(
    name="ipu",
    summary="a cost model of Graphcore's devices",
    default_cluster="bow-2000",
    default_precision=Precision.FP16,
    options=_OPTIONS,
    periods=tuple(Period),
    devices=_devices,
    open=_open,
    sessions=(IpuSession,),
)
