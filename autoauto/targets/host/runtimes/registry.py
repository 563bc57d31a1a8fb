"""The runtimes by name: `SESSIONS`, `runtime_named`, and those that are `installed`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from typing import TYPE_CHECKING

from autoauto.records.costs.options import DeviceType, Session
from autoauto.records.errors import missing_extra
from autoauto.records.units import Precision
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.session import HostSession, RuntimePackage

if TYPE_CHECKING:
    from autoauto.targets.host.runtimes.runtime import Runtime

SESSIONS: Mapping[str, type[HostSession]] = {
    kind.runtime: kind for kind in (OnnxRuntimeSession, OpenVinoSession, CudaSession)
}
"""The class of the sessions of every runtime, by its name; installed or not."""


def runtime_for(precision: Precision, among: Iterable[str] = ()) -> str:
    """The first runtime that computes in a format, by default of all.

    >>> runtime_for(Precision.FP32), runtime_for(Precision.BF16), runtime_for(Precision.TF32)
    ('onnxruntime', 'openvino', 'cuda')
    """
    return next(name for name in (*among, *SESSIONS) if precision in SESSIONS[name].precisions)


def computes_on_gpus(name: str) -> bool:
    """True if a runtime computes on GPUs."""
    return SESSIONS[name].device_type is DeviceType.GPU


def installed() -> tuple[str, ...]:
    """The runtimes whose packages are installed; nothing is imported."""
    return tuple(name for name, kind in SESSIONS.items() if kind.package.is_installed)


def installed_for(gpus: bool) -> tuple[str, ...]:
    """The installed runtimes that compute on GPUs, or those that compute on the CPU."""
    return tuple(name for name in installed() if computes_on_gpus(name) == gpus)


@cache
def installed_versions() -> str:
    """The versions of the installed runtimes, on which measured times depend.

    Raises:
        MissingExtra: there is none.
    """
    if not installed():
        raise missing_extra("running on the host", "host")
    return ", ".join(f"{name} {_version(SESSIONS[name].package)}" for name in installed())


def _version(package: RuntimePackage) -> str:
    """The version in the metadata, or else in the package: it may come from a distribution of another name."""
    try:
        return version(package.distribution)
    except PackageNotFoundError:
        return str(import_module(package.module).__version__)


def requirements(sessions: Iterable[Session]) -> list[str]:
    """The packages that pip installs for some sessions.

    onnxruntime-gpu has all that onnxruntime has under the same module name, so it replaces it.

    >>> requirements([CudaSession(precision=Precision.FP16), OnnxRuntimeSession(), OpenVinoSession()])
    ['onnxruntime-gpu[cuda,cudnn]', 'onnx', 'openvino']
    """
    of_host = sorted((each for each in sessions if isinstance(each, HostSession)), key=attrgetter("runtime"))
    of_gpus = {each.package.module for each in of_host if computes_on_gpus(each.runtime)}
    names: dict[str, None] = {}  # each once, in order
    for each in of_host:
        if computes_on_gpus(each.runtime) or each.package.module not in of_gpus:
            names.update(dict.fromkeys(each.requirements))
    return list(names)


def check_installed(name: str) -> None:
    """Raise MissingExtra for a runtime that is not installed; nothing is imported."""
    if name not in installed():
        raise missing_extra(f"--runtime {name}", SESSIONS[name].package.extra)


def check_cuda_installed(what: str) -> None:
    """Raise MissingExtra for what needs a GPU where no runtime for GPUs is installed; nothing is imported."""
    if not installed_for(gpus=True):
        raise missing_extra(what, CudaSession.package.extra)


@cache
def runtime_named(name: str) -> Runtime:
    """A runtime; its package is imported.

    Raises:
        MissingExtra: it is not installed.
    """
    check_installed(name)
    made: Runtime = import_module(f"autoauto.targets.host.runtimes.{name}.runtime").RUNTIME()
    return made
