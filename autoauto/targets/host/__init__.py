"""This machine as a target: real processes, real memory limits, measured seconds."""

from autoauto.targets.host.compile import HostTarget
from autoauto.targets.host.detect import host_cluster
from autoauto.targets.host.measure import spread_line

__all__ = ["HostTarget", "host_cluster", "spread_line"]
