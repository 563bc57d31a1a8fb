"""This machine in words, for a file that describes it: `machine_source`, `machine_comments`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from autoauto.records.errors import BadInput
from autoauto.records.units import format_bytes
from autoauto.targets.host.gpu.detect import PREFIX, gpu_links, gpus
from autoauto.targets.host.machine.detect import total_bytes, usable_cores
from autoauto.targets.host.machine.machine import processor, processor_clock_hz


def machine_source(*, on_gpus: bool) -> str:
    """Where the figures of the machine's cores, or GPUs, come from."""
    links = "copies between pinned memory of the host and a GPU" if on_gpus else "messages between two cores"
    origin = "nvidia-smi" if on_gpus else "/proc, /sys and the control groups"
    return (
        f"detected on {datetime.now(UTC):%Y-%m-%d} by `autoauto clusters --detect`; memory: {origin}; "
        f"links: {links}, measured; a cycle is a nanosecond whatever the clock is"
    )


def machine_comments() -> tuple[str, ...]:
    """Processor and GPUs, one a line: names, memory, clocks, and what connects the GPUs."""
    return (_processor_line(), *_gpu_lines())


def _processor_line() -> str:
    clock_hz = processor_clock_hz()
    clock = "" if clock_hz is None else f" at {clock_hz / 1e9:.2f} GHz"
    return f"{processor()}: {usable_cores()} usable cores{clock}, {format_bytes(total_bytes())} of memory"


def _gpu_lines() -> Iterator[str]:
    try:
        detected, links = gpus(), {}
        if len(detected) > 1:
            links = gpu_links()
    except BadInput as error:
        yield f"GPUs: {error}"
        return
    if not detected:
        yield "GPUs: none that nvidia-smi finds"
    for gpu in detected:
        clock = f" at {gpu.clock_hz / 1e9:.2f} GHz" if gpu.clock_hz else ""
        name = f"{PREFIX}{gpu.number}: {gpu.name}{clock}"
        yield f"{name}, {format_bytes(gpu.memory_bytes)} of memory, driver {gpu.driver}"
    for (first, second), words in sorted(links.items()):
        if first < second:
            yield f"GPU {first} and GPU {second} of nvidia-smi: {words}"
