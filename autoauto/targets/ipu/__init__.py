"""The IPU as a target: tiles, workers, matrix units, exchange, code and state."""

from autoauto.targets.ipu.compile import IpuTarget

__all__ = ["IpuTarget"]
