"""Docker Compose on each machine, with a router, or with the front of two pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoauto.engines.command import GPU_ORDER, Command
from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import Check
from autoauto.exporters.serving.files import (
    CACHE_FOLDER,
    HOME_VARIABLE,
    TOKEN_VARIABLE,
    WORK_FOLDER,
    folder_of,
    read_script,
    read_yaml,
)
from autoauto.exporters.serving.front import FRONT, FRONT_SCRIPT, front_checks, front_service, has_front
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.exporters.serving.platforms.platform import Platform, ReadBack, Started, counted
from autoauto.exporters.serving.router import (
    ROUTER,
    ROUTER_FILE,
    nginx_configuration,
    routed_ports,
    router_checks,
    router_service,
)

FILE = "compose.yaml"
_ULIMITS = {"memlock": -1, "stack": 1 << 26}
"""Of pinned memory and stacks."""


def _services(every: Sequence[ServedProcess], engine: Engine) -> dict[str, Any]:
    """A service a process, and a router; where there are several machines, a profile has the processes of each."""
    several = len({process.part.machine for process in every}) > 1
    services: dict[str, Any] = {}
    for process in every:
        services[process.name] = _service(process, engine)
        if several:
            services[process.name]["profiles"] = [f"machine-{process.part.machine}"]
    services |= router_service(every)
    services |= front_service(every, engine, WORK_FOLDER)
    return {"services": services}


def _service(process: ServedProcess, engine: Engine) -> dict[str, Any]:
    gpus, command = process.part.gpus, process.command(engine)
    order = sorted(gpus)
    seen = ",".join(str(order.index(gpu)) for gpu in gpus)  # a container counts its GPUs from 0
    folder = folder_of(process)
    volumes = [f"{folder}:{folder}:ro"] if folder else [f"~/.cache/huggingface:{CACHE_FOLDER}"]
    volumes += [f"./{name}:{WORK_FOLDER}/{name}:ro" for name in command.files]
    of_hub = {TOKEN_VARIABLE: f"${{{TOKEN_VARIABLE}:-}}", HOME_VARIABLE: CACHE_FOLDER}
    device = {"driver": "nvidia", "device_ids": list(map(str, gpus)), "capabilities": ["gpu"]}
    service: dict[str, Any] = {
        "image": engine.launcher.image,
        # Compose replaces ${NAME}, as it should where a word has an address; other dollars are doubled to stay.
        "entrypoint": [word if "${" in word else word.replace("$", "$$") for word in command.words],
    }
    if command.files:
        service["working_dir"] = WORK_FOLDER
    return service | {
        "environment": {GPU_ORDER: seen, **command.environment, **of_hub},
        "network_mode": "host",
        "ipc": "host",
        "ulimits": _ULIMITS,
        "volumes": volumes,
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }


def _commands_check(scripts: Mapping[str, Command], services: Mapping[str, Any]) -> Check:
    started: dict[str, tuple[tuple[str, ...], int]] = {}
    for name, service in services.items():
        if name not in (ROUTER, FRONT):
            (gpus,) = service["deploy"]["resources"]["reservations"]["devices"]
            started[name] = (tuple(service["entrypoint"]), len(gpus["device_ids"]))
    expected: dict[str, tuple[tuple[str, ...], int]] = {}
    for name, command in scripts.items():
        expected[name] = (tuple(command.words), len(command.environment[GPU_ORDER].split(",")))
    return Check(f"{FILE} starts the commands of the scripts", started == expected, counted(len(started), "service"))


def _router(started: Started) -> dict[str, str]:
    ports = routed_ports(started.processes)
    return {ROUTER_FILE: nginx_configuration(ports)} if ports else {}


def _checks(started: Started, read: ReadBack) -> Iterator[Check]:
    (content,) = read_yaml(read.folder / FILE)
    services: Mapping[str, Any] = content["services"]
    yield _commands_check(read.scripts, services)
    yield from router_checks(started.processes, read.folder, services)
    if has_front(started.processes):
        front = read_script(read.folder / FRONT_SCRIPT)
        yield from front_checks(started.processes, started.engine, front, services)


PLATFORM = Platform(
    FILE,
    "docker compose up",
    starts=lambda _: True,
    content=lambda started: _services(started.processes, started.engine),
    beside=_router,
    checks=_checks,
)
