"""graph: an ONNX file or a built-in name becomes a `LayerGraph`, and ranges of its layers become models."""

from autoauto.graph.load import builtin_models, load_graph
from autoauto.graph.quantise import quantise
from autoauto.graph.rebatch import rebatch
from autoauto.graph.source import OnnxSource, onnx_source

__all__ = ["OnnxSource", "builtin_models", "load_graph", "onnx_source", "quantise", "rebatch"]
