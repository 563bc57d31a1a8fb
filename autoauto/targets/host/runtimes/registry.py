"""The runtimes by name: `runtime_named`, and those that are `installed`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from autoauto.records.errors import missing_extra
from autoauto.records.profile import HostRuntime
from autoauto.targets.host.runtimes.protocol import Runtime


class _RuntimeEntry(NamedTuple):
    """What a runtime needs; its file in this room is called like it.

    Attributes:
        package: what is imported.
        runtime: its class.
        extra: that installs it.
        distribution: where the package comes from, if it must come from there.
    """

    package: str
    runtime: str
    extra: str
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


_CLASSES = {
    HostRuntime.ONNXRUNTIME: _RuntimeEntry("onnxruntime", "OnnxRuntime", "host"),
    HostRuntime.OPENVINO: _RuntimeEntry("openvino", "OpenVino", "openvino"),
    HostRuntime.CUDA: _RuntimeEntry("onnxruntime", "CudaRuntime", "cuda", "onnxruntime-gpu"),
}


def installed() -> tuple[HostRuntime, ...]:
    """The runtimes whose packages are installed; nothing is imported."""
    return tuple(name for name in HostRuntime if _CLASSES[name].is_installed)


def installed_for(gpus: bool) -> tuple[HostRuntime, ...]:
    """The installed runtimes that compute on GPUs, or those that compute on the processor."""
    return tuple(name for name in installed() if (name is HostRuntime.CUDA) == gpus)


@cache
def installed_versions() -> str:
    """The versions of the installed runtimes, on which measured times depend.

    Raises:
        MissingExtra: there is none.
    """
    if not installed():
        raise missing_extra("running on the host", "host")
    return ", ".join(f"{name} {_version(_CLASSES[name])}" for name in installed())


def _version(entry: _RuntimeEntry) -> str:
    """By the metadata, which takes no time, or else by the package: it may come from a distribution of another name."""
    try:
        return version(entry.distribution or entry.package)
    except PackageNotFoundError:
        return str(import_module(entry.package).__version__)


def check_installed(name: HostRuntime) -> None:
    """Refuse a runtime that is not installed; nothing is imported.

    Raises:
        MissingExtra: it is not installed.
    """
    if name not in installed():
        raise missing_extra(f"--runtime {name}", _CLASSES[name].extra)


def check_cuda_installed(what: str) -> None:
    """Refuse what needs a GPU where no runtime for GPUs is installed; nothing is imported.

    Raises:
        MissingExtra: none is installed.
    """
    if HostRuntime.CUDA not in installed():
        raise missing_extra(what, _CLASSES[HostRuntime.CUDA].extra)


@cache
def runtime_named(name: HostRuntime) -> Runtime:
    """A runtime; its package is imported.

    Raises:
        MissingExtra: it is not installed.
    """
    check_installed(name)
    entry = _CLASSES[name]
    made: Runtime = getattr(import_module(f"autoauto.targets.host.runtimes.{name}"), entry.runtime)()
    return made
