"""The IPU as a target: tiles, workers, matrix units, exchange, code and state."""

from autoauto.targets.ipu.compile import IpuTarget
from autoauto.targets.ipu.settings import Settings

__all__ = ["IpuTarget", "Settings"]
