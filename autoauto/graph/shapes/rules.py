"""Shape rules of operators for which onnx has none, or a wrong one: `SHAPE_RULES`, by domain and operator.

A rule reads a node and the values of its operands, and returns the element type and the shape of every output in order.
A shape that depends on data is None. It raises `ValueError` with the reason where the operands do not fit. To add one,
put it into the table of the file that fits; the definitions are those of the documentation of the domain
[onnxruntime-contrib]. What else operands must be, for an operator of any domain, `operand_rules.py` says.

    contrib.py               what ONNX Runtime's optimiser fuses and lays out anew
    contrib_attention.py     attention and embeddings of transformers
    contrib_quantised.py     what its quantiser writes
    classic.py               trees, linear models and encoders of `ai.onnx.ml`
    standard.py              standard operators of which onnx gives a wrong shape
"""

from __future__ import annotations

from autoauto.graph.shapes import classic, contrib, contrib_attention, contrib_quantised, standard
from autoauto.graph.shapes.shape_rule import ShapeRule, like_first, or_open

_RULES: dict[tuple[str, str], ShapeRule] = {
    ("", "GroupNormalization"): like_first,
    ("", "MeanVarianceNormalization"): like_first,
    **classic.RULES,
    **contrib.RULES,
    **contrib_attention.RULES,
    **contrib_quantised.RULES,
    **standard.RULES,
}

SHAPE_RULES: dict[tuple[str, str], ShapeRule] = {key: or_open(rule) for key, rule in _RULES.items()}
"""By domain and operator."""
