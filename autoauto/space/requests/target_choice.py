"""The target of a model on a cluster where none is named: `chosen_target`.

the cluster   h100_sxm-8, 8xH100              gpu
              cpu, host                       host
              bow-2000, FILE.toml             as its file says
the model     FILE.gguf                       host
              a decoder                       gpu, if its GPUs are named
neither                                       ipu
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.targets.host.entry import HOST
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS

_GGUF, _CONFIG = ".gguf", "config.json"
_SYSTEM = re.compile(r"[a-z]\w*", re.ASCII | re.IGNORECASE)
_CPU = "cpu"
"""Another name of the target and the cluster "host"."""


def with_target(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of options with the target that they mean, and its cluster; those that it returns stay.

    Raises as `chosen_target`.
    """
    target, cluster = values.get("target"), values.get("cluster")
    if values.get("gpus") is not None:
        system = str(cluster or "h100_sxm")
        if not _SYSTEM.fullmatch(system):
            raise BadInput(
                f"--gpus says how many GPUs there are of a system, as --cluster h100 --gpus 4, got --cluster "
                f"{system:.60}; leave one of them out"
            )
        cluster = f"{system}-{values['gpus']}"
    if cluster == _CPU:
        cluster = HOST.default_cluster
    if target is None:
        is_profiled = values.get("profile") is not None
        target = DEFAULT_TARGET if is_profiled else chosen_target(values.get("model"), cluster)
    return {**values, "cluster": cluster, "gpus": None, "target": HOST.name if target == _CPU else target}


def chosen_target(model: object, cluster: object, *, reads_files: bool = True) -> str:
    """The name of the target that a cluster is for, else the one that serves a model.

    Args:
        reads_files: False where names come from a client, who must not learn which files there are.

    Raises:
        BadInput: the model is a decoder and no GPUs are named, or the file of the cluster cannot be read.
    """
    if isinstance(cluster, str | Path):
        return _target_of_cluster(str(cluster), reads_files=reads_files)
    if cluster is not None or not isinstance(model, str | Path):
        target = str(getattr(cluster, "target", DEFAULT_TARGET))
        return target if target in TARGETS else DEFAULT_TARGET
    if Path(model).suffix.lower() == _GGUF:
        return HOST.name
    if is_decoder(str(model), reads_files=reads_files):
        raise BadInput(
            f"{model!s:.80} is a decoder, which engines serve on GPUs, and no GPUs are named; try --cluster h100_sxm-8 "
            "(`autoauto clusters --target gpu` lists others)"
        )
    return DEFAULT_TARGET


def _target_of_cluster(name: str, *, reads_files: bool) -> str:
    from autoauto.targets.clusters import builtin_clusters, target_of_file  # a library reads files of clusters

    for entry in TARGETS.values():
        if name == entry.default_cluster or entry.has_cluster(name):
            return entry.name
    path = builtin_clusters().get(name)
    if path is None and reads_files and Path(name).suffix == ".toml" and Path(name).is_file():
        path = Path(name)
    target = DEFAULT_TARGET if path is None else target_of_file(path)
    return target if target in TARGETS else DEFAULT_TARGET


def is_decoder(model: str, *, reads_files: bool = True) -> bool:
    """True of a folder with a config.json, of such a file, and of what has the form of a name on a hub."""
    path = Path(model)
    if reads_files and path.exists():
        return path.name == _CONFIG or (path / _CONFIG).is_file()
    if model.startswith("https://"):
        return True
    owner, slash, name = model.partition("/")
    has_two_parts = bool(slash and owner.strip(".~") and name) and "/" not in name
    return has_two_parts and path.suffix != ".onnx"
