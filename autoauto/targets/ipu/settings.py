"""Options of Graphcore's tools that a figure may have been measured with: `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from autoauto.records.units import Precision


@dataclass(frozen=True, slots=True)
class Settings:
    """How the tools were asked to compile.

    Attributes:
        partials: format of partial sums; PopRT's benchmarks ask for fp16, Poplar's own default is fp32, with which half
            of the matrix units rest. fp32 products have fp32 sums whatever it says.
        float_operators: ONNX operators that run in fp32 with casts around them (PopRT's `fp16_skip_op_types`).
    """

    partials: Precision = Precision.FP16
    float_operators: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """What differs from the defaults, for a target's version.

        >>> str(Settings()), str(Settings(Precision.FP32, frozenset({"Gelu"})))
        ('', ' partials fp32 float Gelu')
        """
        partials = "" if self.partials is Precision.FP16 else f" partials {self.partials}"
        return partials + (f" float {','.join(sorted(self.float_operators))}" if self.float_operators else "")


DEFAULTS = Settings()
