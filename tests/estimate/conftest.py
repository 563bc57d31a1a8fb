"""Hand-written profiles and clusters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Device, Link

MakeProfile = Callable[..., ModelProfile]
MakeCluster = Callable[..., Cluster]

NOTHING = LayerProfile(0, 0, {}, {}, 0, 0, 0, 0, 0)


@pytest.fixture(scope="session")
def nothing() -> LayerProfile:
    """A layer that costs nothing."""
    return NOTHING


@pytest.fixture(scope="session")
def make_profile() -> MakeProfile:
    """Wrap layers into a profile."""

    def make(*layers: LayerProfile, tied: tuple[str | None, ...] = ()) -> ModelProfile:
        names = tuple(str(index) for index in range(len(layers)))
        return ModelProfile("hand", "none", None, names, names, tied or (None,) * len(layers), layers)

    return make


@pytest.fixture(scope="session")
def make_cluster() -> MakeCluster:
    """The vectors' cluster: a clock of 1 GiB/s, host links of 1 GB/s, links between devices of 10 GB/s."""

    def make(n_devices: int, memory_bytes: int = 1000) -> Cluster:
        host, between = Link(1024.0**3, 1_000_000), Link(10 * 1024.0**3, 100_000)
        device = Device("hand", 1024.0**3, memory_bytes, 1, memory_bytes)
        inner = (between,) * (n_devices - 1)
        return Cluster("hand", "none", (device,) * n_devices, (host, *inner), (*inner, host))

    return make
