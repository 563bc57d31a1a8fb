"""A model of eight layers on two devices, with costs that can be computed by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.profile.cache import ProfileCache
from autoauto.records.costs.correction import Estimator
from autoauto.records.hardware import Cluster, Link
from autoauto.records.layers import LayerGraph
from tests.evaluate.linear import DEVICE, LinearTarget


@pytest.fixture
def flow(chain: Callable[..., LayerGraph], tmp_path: Path) -> Flow:
    link = Link(1e12, 0)
    cluster = Cluster("pair", "ipu", (DEVICE, DEVICE), (link, link), (link, link))
    return Flow(
        Setting(
            chain(kinds=["a"] * 8),
            cluster,
            LinearTarget(),
            cache=ProfileCache(tmp_path / "cache.db"),
            estimator=Estimator.SUM,
        )
    )
