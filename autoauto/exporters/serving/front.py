"""The front of two pools, one of prompts and one of answers: its script, and its service in Docker Compose.

    requests --> front :8080 --> :8002 prefill-0   computes the prompt, and hands over its keys and values
                            `--> :8000 replica-0   answers

The front is a program of the engine's makers (`PoolFront`). It has the addresses of all servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autoauto.engines.command import Command, PoolFront, PoolPart, Pools
from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import Check
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.exporters.serving.replicas import FIRST_PORT
from autoauto.exporters.serving.router import ROUTER_PORT
from autoauto.records.errors import BadInput

FRONT = "front"
"""The name of the process, and of its service."""
FRONT_SCRIPT = f"{FRONT}.sh"


class PodSet(NamedTuple):
    """Processes that are alike."""

    name: str  # of all together
    process: ServedProcess  # one of them
    n_pods: int


def pod_sets(app: str, every: Sequence[ServedProcess]) -> list[PodSet]:
    """The processes of every plan, which are alike."""
    sets: list[PodSet] = []
    for plan in sorted({each.replica.plan for each in every}):
        alike = [each for each in every if each.replica.plan == plan]
        sets.append(PodSet(f"{app}-{plan}", alike[0], len(alike)))
    return sets


def has_front(every: Sequence[ServedProcess]) -> bool:
    """True if some servers compute prompts, and others answers."""
    return any(process.launch.pool for process in every)


def role_of(process: ServedProcess) -> str:
    """The role of a server of two pools: "prefill" or "decode"."""
    return "prefill" if process.replica.is_prefill else "decode"


def pool_front(engine: Engine) -> PoolFront:
    """The front of an engine; raises `BadInput` if it has none."""
    front = engine.launcher.front
    if front is None:
        raise BadInput(f"{engine.title} has no servers for prompts alone, got some; try --prefill-workers 0")
    return front


def front_command(every: Sequence[ServedProcess], engine: Engine) -> Command:
    """The front of all processes, on the machine of the first; raises as `pool_front`."""
    addressed: list[tuple[str, ServedProcess]] = []
    for process in every:
        if process.part == process.replica.parts[0]:
            addressed.append((f"{_pool_of(process).address}:{process.replica.port}", process))
    return _command_of(addressed, engine)


def front_in_kubernetes(sets: Sequence[PodSet], engine: Engine) -> Command:
    """The front of pods of StatefulSets, which have names of their own; raises as `pool_front`."""
    addressed: list[tuple[str, ServedProcess]] = []
    for name, process, n_pods in sets:
        for pod in range(n_pods):
            addressed.append((f"{name}-{pod}.{name}:{FIRST_PORT}", process))
    return _command_of(addressed, engine)


def _command_of(addressed: Sequence[tuple[str, ServedProcess]], engine: Engine) -> Command:
    parts = [(address, _pool_of(process)) for address, process in addressed]
    prefill = [(address, part.port) for address, part in parts if part.is_prefill]
    decode = [address for address, part in parts if not part.is_prefill]
    return pool_front(engine).command(Pools(prefill, decode, ROUTER_PORT))


def _pool_of(process: ServedProcess) -> PoolPart:
    assert process.launch.pool is not None
    return process.launch.pool


def front_service(every: Sequence[ServedProcess], engine: Engine, folder: str) -> dict[str, Any]:
    """The service of Docker Compose by its name; none without two pools; its container has files in `folder`."""
    if not has_front(every):
        return {}
    command = front_command(every, engine)
    service: dict[str, Any] = {
        "image": pool_front(engine).image,
        "entrypoint": list(command.words),
        "network_mode": "host",
        "depends_on": [process.name for process in every if process.part.machine == every[0].part.machine],
        "restart": "unless-stopped",  # until servers answer
    }
    if command.files:
        service["working_dir"] = folder
        service["volumes"] = [f"./{name}:{folder}/{name}:ro" for name in command.files]
    return {FRONT: service}


def front_line(every: Sequence[ServedProcess]) -> str:
    """The lines of README on the front; empty where there is none."""
    if not has_front(every):
        return ""
    n_prefill = len({each.replica.number for each in every if each.replica.is_prefill})
    last = max(each.part.machine for each in every)
    variables = ""
    if last > 0:
        variables = f"\nThey read the addresses of machines, MACHINE_0_ADDR to MACHINE_{last}_ADDR."
    return (
        f"\n\n{n_prefill} servers compute prompts alone, and the others answers. Requests go to port {ROUTER_PORT} of "
        "the front, which\nsends each to one of both. Docker Compose and Kubernetes start all; beside the scripts of "
        "replicas these are\nstarted by\n\n"
        f'    for process in prefill-*.sh {FRONT_SCRIPT}; do sh "$process" & done; wait\n{variables}'
    )


def front_checks(
    every: Sequence[ServedProcess], engine: Engine, written: Command, services: Mapping[str, Any]
) -> list[Check]:
    """Whether the front has every server; nothing is started."""
    expected = front_command(every, engine)
    started = tuple(services.get(FRONT, {}).get("entrypoint", ()))
    same = expected.words == written.words == started and expected.files == written.files
    detail = f"{sum(each.part == each.replica.parts[0] for each in every)} servers behind port {ROUTER_PORT}"
    return [Check(f"{FRONT_SCRIPT} has every server", same, detail)]
