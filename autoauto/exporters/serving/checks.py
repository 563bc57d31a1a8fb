"""What is read back of an artifact for a serving engine: `checks`."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from autoauto.engines.command import GPU_ORDER, Command, Limits
from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import Check, Deployment
from autoauto.exporters.serving.files import COMPOSE_FILE, KUBERNETES_FILE
from autoauto.exporters.serving.front import FRONT, FRONT_SCRIPT, front_checks, has_front
from autoauto.exporters.serving.launches import ServedProcess, decoder_model, processes
from autoauto.exporters.serving.router import ROUTER, router_checks
from autoauto.records.errors import BadInput

Processes = Sequence[ServedProcess]
Scripts = Mapping[str, Command]
"""The commands of scripts, by the name of their process."""


def checks(deployment: Deployment, engine: Engine, folder: Path) -> Iterator[Check]:
    """Whether the engine accepts every command, and whether it says the configuration; nothing is started."""
    every = processes(deployment, engine)
    paths = sorted([*folder.glob("replica-*.sh"), *folder.glob("prefill-*.sh")])
    scripts = {path.stem: read_script(path) for path in paths}
    accepted = f"{engine.title} accepts every option"
    try:
        limits = {name: engine.launcher.limits(command) for name, command in scripts.items()}
        for command in scripts.values():
            engine.launcher.syntax.check_others(command.environment.keys() - {GPU_ORDER})
    except (BadInput, KeyError, ValueError) as error:
        yield Check(accepted, False, str(error))
        return
    parsed = f"{_counted(len(scripts), 'command')} parsed by the definitions of {engine.launcher.source}"
    yield Check(accepted, limits.keys() == {process.name for process in every}, parsed)
    yield _blocks_check(every, limits, len(deployment.graph.blocks))
    files = {process.name: process.command(engine).files for process in every}
    same_files = files == {name: command.files for name, command in scripts.items()}
    yield _limits_check(every, limits, same_files=same_files)
    yield _gpus_check(every, scripts, limits)
    services = _read_services(folder / COMPOSE_FILE)
    yield _compose_check(scripts, services)
    yield from router_checks(every, folder, services)
    if has_front(every):
        yield from front_checks(every, engine, read_script(folder / FRONT_SCRIPT), services)
    if all(process.is_whole for process in every):
        yield _kubernetes_check(every, scripts, engine, folder / KUBERNETES_FILE)
    needed = f"that needs GPUs, {engine.title} and the weights of {decoder_model(deployment).served_name}"
    yield Check(f"{engine.title} serves the model", None, f"nothing was started: {needed}")


def read_script(path: Path) -> Command:
    """The command of a script, its variables, and the files that it reads."""
    words = shlex.split(path.read_text(encoding="utf-8").replace("\\\n", " "), comments=True)
    start = words.index("exec")
    exported = (word.split("=", 1) for before, word in pairwise(words[:start]) if before == "export")
    command = tuple(words[start + 1 :])
    files = {word: path.parent / word for word in command if "/" not in word and (path.parent / word).is_file()}
    return Command(command, dict(exported), {name: file.read_text(encoding="utf-8") for name, file in files.items()})


def _expected(process: ServedProcess) -> Limits:
    launch = process.launch
    return Limits(
        launch.model,
        launch.blocks if launch.n_stages > 1 else (),
        len(process.part.gpus),
        launch.n_in_flight,
        launch.max_batched_tokens,
        launch.max_length,
        launch.memory_share,
        launch.split.expert_parallel,
        attention_data_parallel=launch.split.attention_data_parallel,
    )


def _blocks_check(every: Processes, limits: Mapping[str, Limits], n_blocks: int) -> Check:
    """Whether the stages of every replica have the blocks of its plan, which are all of the model."""
    expected = {process.name: _expected(process).blocks for process in every}
    given = dict.fromkeys(each.blocks or (n_blocks,) for each in limits.values())
    is_whole = all(sum(blocks) == n_blocks for blocks in given)
    shown = ", ".join(f"{' + '.join(map(str, blocks))} = {sum(blocks)}" for blocks in given)
    same = {name: each.blocks for name, each in limits.items()} == expected
    what = "the stages of every replica have the blocks of the plan"
    return Check(what, same and is_whole, f"{shown} of {n_blocks} blocks")


def _limits_check(every: Processes, limits: Mapping[str, Limits], *, same_files: bool) -> Check:
    """Whether model, sequences, tokens and memory are those of the plan."""
    expected = {process.name: _expected(process)._replace(blocks=(), port=None) for process in every}
    first = next(iter(limits.values()))
    ranks = f" in each of {first.attention_data_parallel} ranks" * (first.attention_data_parallel > 1)
    detail = (
        f"{first.n_in_flight} sequences in flight{ranks}, {first.max_batched_tokens} tokens a step, "
        f"{first.max_length} a sequence, {first.memory_share:.1%} of the memory"
    )
    if first.expert_parallel > 1:
        detail += f", experts dealt among {first.expert_parallel} GPUs"
    same = same_files and {name: each._replace(blocks=(), port=None) for name, each in limits.items()} == expected
    return Check("model, sequences, tokens and memory are those of the configuration", same, detail)


def _gpus_check(every: Processes, scripts: Scripts, limits: Mapping[str, Limits]) -> Check:
    """Whether every process has as many GPUs as stages and groups, and no two have one of them, or one port."""
    used: dict[int, list[str]] = defaultdict(list)
    machines = {process.name: process.part.machine for process in every}
    for name, command in scripts.items():
        on_machine = used[machines.get(name, -1)]
        on_machine += command.environment[GPU_ORDER].split(",")
        if (port := limits[name].port) is not None:
            on_machine.append(f"port {port}")
    fits = all(len(scripts[name].environment[GPU_ORDER].split(",")) == each.n_gpus for name, each in limits.items())
    alone = all(len(set(given)) == len(given) for given in used.values())
    n_gpus = sum(each.n_gpus for each in limits.values())
    detail = f"{_counted(n_gpus, 'GPU')} of {_counted(len(used), 'machine')}"
    return Check("no two replicas have a GPU or a port in common", fits and alone, detail)


def _read_yaml(path: Path) -> list[Any]:
    """All documents of a file.

    Raises:
        BadInput: it is no YAML.
    """
    import yaml  # of extra gpu

    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"{path.name} must be YAML, got: {error!s:.80}") from None


def _read_services(path: Path) -> Mapping[str, Any]:
    """The services of Docker Compose by name."""
    (content,) = _read_yaml(path)
    services: Mapping[str, Any] = content["services"]
    return services


def _compose_check(scripts: Scripts, services: Mapping[str, Any]) -> Check:
    """Whether a service starts what every script does, with as many GPUs."""
    engines = {name: each for name, each in services.items() if name not in (ROUTER, FRONT)}
    started = {name: (tuple(each["entrypoint"]), len(_devices(each))) for name, each in engines.items()}
    expected = {
        name: (command.words, len(command.environment[GPU_ORDER].split(","))) for name, command in scripts.items()
    }
    return Check(
        f"{COMPOSE_FILE} starts the commands of the scripts", started == expected, _counted(len(started), "service")
    )


def _devices(service: Mapping[str, Any]) -> Sequence[str]:
    ids: list[str] = service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
    return ids


def _kubernetes_check(every: Processes, scripts: Scripts, engine: Engine, path: Path) -> Check:
    """Whether pods start what the scripts of the replicas of a plan do, with as many GPUs."""
    documents = [each for each in _read_yaml(path) if each["kind"] in ("Deployment", "StatefulSet")]
    deployments = [each["spec"] for each in documents if not each["metadata"]["name"].endswith(f"-{FRONT}")]
    started, n_pods = [], 0
    for spec in deployments:
        (container,) = spec["template"]["spec"]["containers"]
        n_gpus = container["resources"]["limits"]["nvidia.com/gpu"]
        started += [(_of_a_plan(engine, container["command"]), n_gpus)] * spec["replicas"]
        n_pods += spec["replicas"]
    by_plan = sorted(every, key=lambda process: process.replica.plan)
    expected = [
        (_of_a_plan(engine, scripts[each.name].words), len(each.part.gpus)) for each in by_plan if each.name in scripts
    ]
    return Check(f"{path.name} starts the commands of the scripts", started == expected, _counted(n_pods, "pod"))


def _of_a_plan(engine: Engine, words: Sequence[str]) -> dict[str, Any]:
    """The options of a command that do not depend on where it runs."""
    return {
        name: value
        for name, value in engine.launcher.syntax.parse(words).items()
        if name not in engine.launcher.own_options
    }


def _counted(n: int, what: str) -> str:
    """For example "2 pods"."""
    return f"{n} {what}{'s' * (n != 1)}"
