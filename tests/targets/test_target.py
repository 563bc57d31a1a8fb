"""A target by name opens to what its entry says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.graph.load import load_graph
from autoauto.records.errors import BadInput
from autoauto.records.target import traits_of
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.entry import IPU
from autoauto.targets.target import Request


def test_a_session_that_the_entry_does_not_name_is_refused() -> None:
    graph = load_graph("resnet50")
    request = Request(graph, None, load_cluster("bow-2000"), Precision.FP16, IPU.read_options({}))
    target, cluster = IPU.opened(request)
    assert traits_of(target).sessions == IPU.sessions
    assert cluster == request.cluster
    with pytest.raises(BadInput, match=r"^the sessions of target ipu must be among .*, got IpuSession; name them"):
        replace(IPU, sessions=()).opened(request)
