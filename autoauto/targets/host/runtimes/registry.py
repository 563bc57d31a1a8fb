"""The runtimes by name: `SESSIONS`, `runtime_named`, and those that are `installed`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from autoauto.records.errors import missing_extra
from autoauto.records.units import Precision
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.runtime import Runtime
from autoauto.targets.host.runtimes.session import HostSession


class _RuntimeEntry(NamedTuple):
    """What a runtime needs; its folder in this room is called like it, and says what its sessions vary.

    Attributes:
        session: the class of its sessions.
        package: what is imported.
        runtime: its class in `runtime.py`.
        on_gpus: whether GPUs compute.
        extra: that installs it.
        distribution: where the package comes from, if it must come from there.
    """

    session: type[HostSession]
    package: str
    runtime: str
    extra: str
    on_gpus: bool = False
    distribution: str | None = None

    @property
    def is_installed(self) -> bool:
        """Nothing is imported."""
        if find_spec(self.package) is None:
            return False
        try:
            return self.distribution is None or bool(version(self.distribution))
        except PackageNotFoundError:
            return False


_ENTRIES = {
    entry.session.runtime: entry
    for entry in (
        _RuntimeEntry(OnnxRuntimeSession, "onnxruntime", "OnnxRuntime", "host"),
        _RuntimeEntry(OpenVinoSession, "openvino", "OpenVino", "openvino"),
        _RuntimeEntry(CudaSession, "onnxruntime", "CudaRuntime", "cuda", on_gpus=True, distribution="onnxruntime-gpu"),
    )
}
SESSIONS = {name: entry.session for name, entry in _ENTRIES.items()}
"""The class of the sessions of every runtime, by its name; installed or not."""


def runtime_for(precision: Precision, among: Iterable[str] = ()) -> str:
    """The first runtime that computes in a format, by default of all.

    >>> runtime_for(Precision.FP32), runtime_for(Precision.BF16), runtime_for(Precision.TF32)
    ('onnxruntime', 'openvino', 'cuda')
    """
    return next(name for name in (*among, *SESSIONS) if precision in SESSIONS[name].precisions)


def computes_on_gpus(name: str) -> bool:
    """Whether a runtime computes on GPUs."""
    return _ENTRIES[name].on_gpus


def installed() -> tuple[str, ...]:
    """The runtimes whose packages are installed; nothing is imported."""
    return tuple(name for name, entry in _ENTRIES.items() if entry.is_installed)


def installed_for(gpus: bool) -> tuple[str, ...]:
    """The installed runtimes that compute on GPUs, or those that compute on the processor."""
    return tuple(name for name in installed() if _ENTRIES[name].on_gpus == gpus)


@cache
def installed_versions() -> str:
    """The versions of the installed runtimes, on which measured times depend.

    Raises:
        MissingExtra: there is none.
    """
    if not installed():
        raise missing_extra("running on the host", "host")
    return ", ".join(f"{name} {_version(_ENTRIES[name])}" for name in installed())


def _version(entry: _RuntimeEntry) -> str:
    """By the metadata, which takes no time, or else by the package: it may come from a distribution of another name."""
    try:
        return version(entry.distribution or entry.package)
    except PackageNotFoundError:
        return str(import_module(entry.package).__version__)


def check_installed(name: str) -> None:
    """Refuse a runtime that is not installed; nothing is imported.

    Raises:
        MissingExtra: it is not installed.
    """
    if name not in installed():
        raise missing_extra(f"--runtime {name}", _ENTRIES[name].extra)


def check_cuda_installed(what: str) -> None:
    """Refuse what needs a GPU where no runtime for GPUs is installed; nothing is imported.

    Raises:
        MissingExtra: none is installed.
    """
    if not installed_for(gpus=True):
        raise missing_extra(what, _ENTRIES[CudaSession.runtime].extra)


@cache
def runtime_named(name: str) -> Runtime:
    """A runtime; its package is imported.

    Raises:
        MissingExtra: it is not installed.
    """
    check_installed(name)
    entry = _ENTRIES[name]
    made: Runtime = getattr(import_module(f"autoauto.targets.host.runtimes.{name}.runtime"), entry.runtime)()
    return made
