"""The target "host" by name: `HOST`."""

from __future__ import annotations

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Period, Topology
from autoauto.records.target import Target
from autoauto.records.units import MIB, Precision
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.target import NamedTarget, OptionValues, Request, TargetOption, flag_of

_OPTIONS = (
    TargetOption(
        "device",
        "GPUs of NVIDIA in place of cores, one process each (extra cuda); like ones, as `autoauto clusters --detect` "
        "numbers them, and twice the same for two processes on it; unlike devices in any order with cpu:N, one of N "
        "cores",
        kind=str,
        default=None,
        metavar="cuda:0,cuda:1|cpu:4,cuda:0",
    ),
    TargetOption(
        "device_memory_mib",
        "",  # set by --device-memory-gib
        kind=int,
        default=None,
        metavar="N",
    ),
    TargetOption(
        "inputs",
        "an npz file with inputs of the model by name, in place of made-up ones: all that is measured, also how far "
        "outputs in another --precision differ, is of its first samples",
        kind=str,
        default=None,
        metavar="FILE.npz",
    ),
    TargetOption(
        "dask",
        "address of a Dask scheduler: its workers, one a machine, serve the machines of the cluster, the first by name "
        "the first; by default their devices, with measured links (dask worker --resources device=N)",
        kind=str,
        default=None,
        metavar="HOST:PORT",
    ),
    TargetOption(
        "clients",
        "of a GGUF file: so many clients send requests to every server that is measured; default 16",
        kind=int,
        default=None,
        metavar="N",
    ),
)


def _devices(given: Cluster | None, options: OptionValues) -> Cluster:
    """The cores and GPUs of this machine, the devices of Dask workers, or a description of them."""
    from autoauto.targets.host.detect import host_cluster
    from autoauto.targets.host.devices import check_named, devices_named, unlike_cluster
    from autoauto.targets.host.gpu.cluster import gpu_cluster
    from autoauto.targets.host.machine import CLOCK_HZ
    from autoauto.targets.host.remote.cluster import check_served, machines_of, remote_cluster

    memory_mib = options["device_memory_mib"]
    named, machines = devices_named(options["device"]), machines_of(options["dask"])
    if named and machines is not None:
        raise BadInput("--device takes devices of this machine, got --dask with other machines; leave one of them out")
    if given is None:
        memory_bytes = None if memory_mib is None else memory_mib * MIB
        if machines is not None:
            return remote_cluster(machines, memory_bytes)
        if not named:
            return host_cluster(memory_bytes)
        gpus = [device.gpu for device in named if device.gpu]
        if len(gpus) == len(named):
            return gpu_cluster(gpus, memory_bytes)
        if memory_mib is not None:
            raise BadInput("--device-memory-gib is for like devices; write memory_bytes into a cluster file")
        return unlike_cluster(named)
    if machines is not None:
        check_served(given, machines.machines)
    elif given.machine_size < len(given):
        raise BadInput(f"{given.name} has several machines, which Dask workers serve; give --dask HOST:PORT")
    else:
        check_named(given, named)
    if any(device.clock_hz != CLOCK_HZ for device in given.devices):
        raise BadInput(f"a cycle of a host device is a nanosecond, so clock_hz must be 1e9 in {given.name}")
    if given.topology is not Topology.LINE:
        raise BadInput(f"processes of the host pass tensors on in a line, {given.name} has topology {given.topology}")
    if memory_mib is not None:
        raise BadInput("--device-memory-gib is for the detected machine; write memory_bytes into the cluster file")
    return given


def _open(request: Request) -> tuple[Target, Cluster]:
    """Processes of this machine that run the model's file, or a server of it for a GGUF file."""
    from autoauto.targets.host.devices import HostDevices, devices_named, gpus_of
    from autoauto.targets.host.remote.cluster import machines_of
    from autoauto.targets.host.samples import read_model_samples
    from autoauto.targets.host.target import HostTarget

    if request.decoder_file is not None:
        from autoauto.targets.host.runtimes.llamacpp.target import LlamaCppTarget

        for name, value in request.options.items():
            if value is not None and name != "clients":
                raise BadInput(f"a GGUF file is served on the cores of this machine, got {flag_of(name)}; leave it out")
        return LlamaCppTarget.of(request.decoder_file, request.options["clients"]), request.cluster
    if request.options["clients"] is not None:
        raise BadInput("--clients send requests to the server of a GGUF file, got another model; leave it out")
    if request.precision is not Precision.FP32:
        raise BadInput(
            f"on the host a model runs in the formats of its file, got --precision {request.precision}; leave it out, "
            "or give the formats in which a runtime computes to the SearchSpace"
        )
    if request.source is None:
        raise BadInput("the host runs a model's file, got a model without one; save it, and give its path")
    gpus = gpus_of(devices_named(request.options["device"]))
    source = request.source()
    devices = HostDevices(gpus, request.cluster.devices if request.cluster.kinds else ())
    path = request.options["inputs"]
    samples = None if path is None else read_model_samples(path, source, request.graph)
    of_machine = request.cluster.devices[: request.cluster.machine_size]
    measuring_bytes = int(sum(device.memory_bytes for device in of_machine))
    target = HostTarget(source, machines_of(request.options["dask"]), devices, samples, measuring_bytes)
    return target, request.cluster


HOST = NamedTarget(
    name="host",
    summary="processes of this machine",
    default_cluster="host",
    default_precision=Precision.FP32,
    options=_OPTIONS,
    periods=(Period.SERIAL,),
    devices=_devices,
    open=_open,
    sessions=(*SESSIONS.values(), LlamaCppSession),
    trains=False,
)
