"""What a search does where it is not told: the space, the noise, the name of its study."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from autoauto.flow import Flow
from autoauto.records.trial import DEFAULT_NOISE, Aim, SearchSpace, aim_name
from autoauto.records.version import VERSION


def default_space(flow: Flow) -> SearchSpace:
    """The space for a target and as many devices as there are.

    Real devices differ little in what part of their memory they use, and every measurement takes their time.
    """
    powers = default_n_ipu(len(flow.cluster))
    if flow.runner is None:
        return SearchSpace(powers)
    return SearchSpace(powers, (1.0,), (1, 2, 4, 8, 16, 32), replicas=powers)


def default_n_ipu(n_devices: int) -> tuple[int, ...]:
    """The grid over devices, as far as the cluster goes.

    >>> default_n_ipu(4), default_n_ipu(1)
    ((1, 2, 4), (1,))
    """
    return tuple(n for n in (1, 2, 4) if n <= n_devices)


def default_noise(flow: Flow) -> float:
    """The share of a value that is chance: none where a cost model measures."""
    return 0.0 if flow.runner is None else DEFAULT_NOISE


def fingerprint_of(flow: Flow, space: SearchSpace) -> dict[str, str]:
    """What trials must share to be comparable."""
    return {"autoauto": VERSION, "mode": "training" if space.training else "inference", **flow.fingerprint()}


def default_study_name(flow: Flow, aim: Aim, fingerprint: Mapping[str, str]) -> str:
    """What the study is about, and a digest of all that its trials depend on: an equal search resumes it."""
    digest = hashlib.sha256(repr(fingerprint).encode()).hexdigest()
    return f"{flow.graph.name}-{flow.cluster.name}-{aim_name(aim).replace(',', '-')}-{digest[:6]}"
