"""Checks of an artifact for a serving engine: its files are read back and compared with the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autoauto.engines.command import GPU_ORDER, Command, Limits
from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import Check, Deployment
from autoauto.exporters.serving.files import read_script
from autoauto.exporters.serving.launches import ServedProcess, decoder_model, processes, weight_bytes
from autoauto.exporters.serving.platforms.platform import ReadBack, Started, counted
from autoauto.exporters.serving.platforms.registry import PLATFORMS
from autoauto.records.errors import BadInput

Processes = Sequence[ServedProcess]
Scripts = Mapping[str, Command]
"""The commands of scripts, by the name of their process."""


def started_of(deployment: Deployment, engine: Engine) -> Started:
    """The processes of a deployment, as platforms start them."""
    every, model = processes(deployment, engine), decoder_model(deployment)
    return Started(every, engine, model.served_name, weight_bytes(deployment))


def checks(deployment: Deployment, engine: Engine, folder: Path) -> Iterator[Check]:
    """Whether the engine accepts every command, and whether it says the configuration; nothing is started."""
    started = started_of(deployment, engine)
    every = started.processes
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
    parsed = f"{counted(len(scripts), 'command')} parsed by the definitions of {engine.launcher.source}"
    yield Check(accepted, limits.keys() == {process.name for process in every}, parsed)
    yield _blocks_check(every, limits, len(deployment.graph.blocks))
    files = {process.name: process.command(engine).files for process in every}
    same_files = files == {name: command.files for name, command in scripts.items()}
    yield _limits_check(every, limits, same_files=same_files)
    yield _gpus_check(every, scripts, limits)
    for platform in PLATFORMS:
        if platform.starts(started):
            yield from platform.checks(started, ReadBack(folder, scripts))
    needed = f"that needs GPUs, {engine.title} and the weights of {started.model}"
    yield Check(f"{engine.title} serves the model", None, f"nothing was started: {needed}")


def _expected(process: ServedProcess) -> Limits:
    launch = process.launch
    return Limits(
        model=launch.model,
        blocks=launch.blocks if launch.n_stages > 1 else (),
        n_gpus=len(process.part.gpus),
        n_in_flight=launch.n_in_flight,
        max_batched_tokens=launch.max_batched_tokens,
        max_length=launch.max_length,
        memory_share=launch.memory_share,
        expert_parallel=launch.split.expert_parallel,
        attention_data_parallel=launch.split.attention_data_parallel,
    )


def _blocks_check(every: Processes, limits: Mapping[str, Limits], n_blocks: int) -> Check:
    """Whether the stages of every replica have the blocks of its plan, which are all of the model."""
    expected = {process.name: _expected(process).blocks for process in every}
    given = dict.fromkeys(each.blocks or (n_blocks,) for each in limits.values())  # an engine of one stage says none
    is_whole = all(sum(blocks) == n_blocks for blocks in given)
    shown = ", ".join(f"{' + '.join(map(str, blocks))} = {sum(blocks)}" for blocks in given)
    same = {name: each.blocks for name, each in limits.items()} == expected
    what = "the stages of every replica have the blocks of the plan"
    return Check(what, same and is_whole, f"{shown} of {n_blocks} blocks")


def _limits_check(every: Processes, limits: Mapping[str, Limits], *, same_files: bool) -> Check:
    expected = {process.name: _expected(process)._replace(blocks=(), port=None) for process in every}
    first = next(iter(limits.values()))
    detail = f"{first.n_in_flight} sequences in flight"
    if first.attention_data_parallel > 1:
        detail += f" in each of {first.attention_data_parallel} ranks"
    detail += (
        f", {first.max_batched_tokens} tokens a step, {first.max_length} a sequence, "
        f"{first.memory_share:.1%} of the memory"
    )
    if first.expert_parallel > 1:
        detail += f", experts dealt among {first.expert_parallel} GPUs"
    same = same_files and {name: each._replace(blocks=(), port=None) for name, each in limits.items()} == expected
    return Check("model, sequences, tokens and memory are those of the configuration", same, detail)


def _gpus_check(every: Processes, scripts: Scripts, limits: Mapping[str, Limits]) -> Check:
    """Whether every process has as many GPUs as stages and groups, and no two have one of them, or one port."""
    used: dict[int, list[str]] = defaultdict(list)  # GPUs and ports, by machine
    machines = {process.name: process.part.machine for process in every}
    fits = True
    for name, command in scripts.items():
        gpus, port = command.environment[GPU_ORDER].split(","), limits[name].port
        fits = fits and len(gpus) == limits[name].n_gpus
        on_machine = used[machines.get(name, -1)]
        on_machine += gpus
        if port is not None:
            on_machine.append(f"port {port}")
    alone = all(len(set(given)) == len(given) for given in used.values())
    n_gpus = sum(each.n_gpus for each in limits.values())
    detail = f"{counted(n_gpus, 'GPU')} of {counted(len(used), 'machine')}"
    return Check("no two replicas have a GPU or a port in common", fits and alone, detail)
