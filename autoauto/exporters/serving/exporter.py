"""The exporters of configurations that generate text, under the names of their engines: `serving_exporter`."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoauto.exporters.registry import Check, Deployment, Exporter
from autoauto.exporters.serving.command import GPU_ORDER, Command
from autoauto.exporters.serving.engines import Limits, ServingProgram
from autoauto.exporters.serving.files import (
    COMPOSE_FILE,
    KIND_LABEL,
    KUBERNETES_FILE,
    compose,
    dump,
    file_names,
    kubernetes,
    script,
    script_name,
)
from autoauto.exporters.serving.launches import ReplicaLaunch, decoder_model, generation, launches
from autoauto.records.errors import BadInput

_EXECUTABLE = 0o755


def serving_exporter(program: ServingProgram) -> Exporter:
    """Launch commands of every replica, for machines, Docker Compose and Kubernetes."""

    def write(deployment: Deployment, folder: Path) -> None:
        every = launches(deployment, program)
        for each in every:
            path = folder / script_name(each.replica)
            path.write_text(script(each, program), encoding="utf-8")
            path.chmod(_EXECUTABLE)
            command = each.command(program)
            for name, in_artifact in file_names(each.replica, command).items():
                (folder / in_artifact).write_text(command.files[name], encoding="utf-8")
        model = decoder_model(deployment).served_name
        (folder / COMPOSE_FILE).write_text(dump(compose(every, program)), encoding="utf-8")
        (folder / KUBERNETES_FILE).write_text(dump(kubernetes(every, program, model)), encoding="utf-8")

    def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
        yield from _checks(deployment, program, folder)

    return Exporter(
        name=program.to,
        summary=f"{program.package}, a process a replica",
        apply=(
            'for replica in replica-*.sh; do sh "$replica" & done; wait',
            "docker compose up",
            "kubectl apply -f kubernetes.yaml",
        ),
        write=write,
        check=check,
        notes=_notes(program),
        describe=lambda deployment: _replica_lines(deployment, program),
    )


def _notes(program: ServingProgram) -> str:
    return (
        f"Options are those of {program.package} as its source defines them ({program.source}). Nothing was started, and\n"
        f"no image pulled; the name of that in the files for containers is {program.image}. Only\n"
        "the Service of Kubernetes gives requests to the replicas in turn; elsewhere clients do, or a router."
    )


def _replica_lines(deployment: Deployment, program: ServingProgram) -> str:
    """A table of replicas, and what was modelled."""
    every, mode, knobs = launches(deployment, program), generation(deployment), deployment.knobs
    rows = "\n".join(
        f"| {each.replica.number} | {each.replica.machine} | {each.replica.kind} "
        f"{', '.join(map(str, each.replica.gpus))} | {each.replica.port} | "
        f"{' + '.join(map(str, each.replica.blocks))} |"
        for each in every
    )
    return (
        f"Modelled for prompts of {mode.input_tokens} tokens and answers of {mode.output_tokens}; longer ones do not "
        f"fit. Every replica has {every[0].launch.n_in_flight}\nsequences in flight, in micro-batches of "
        f"{knobs.batch_size}. The first stage has the embedding besides its blocks, the last one norm and head.\n\n"
        f"| replica | machine | GPUs | port | blocks of stages |\n|---|---|---|---|---|\n{rows}\n\n{_starts(every)}"
    )


def _starts(every: tuple[ReplicaLaunch, ...]) -> str:
    """What the lines start, and where."""
    machines = {each.replica.machine for each in every}
    if len(machines) == 1:
        return "Each of the three lines starts all replicas: the scripts, Docker Compose, or Kubernetes."
    kinds = sorted({each.replica.kind for each in every})
    label = f" Nodes have the label `{KIND_LABEL}`, one of {', '.join(kinds)}." if len(kinds) > 1 else ""
    return (
        f"There are {len(machines)} machines. Run on each the scripts of its own replicas, or\n"
        f"`docker compose --profile machine-0 up` with its number; Kubernetes starts all.{label}"
    )


def _checks(deployment: Deployment, program: ServingProgram, folder: Path) -> Iterator[Check]:
    every = launches(deployment, program)
    written = {path.stem: _read_script(path) for path in sorted(folder.glob("replica-*.sh"))}
    try:
        limits = [program.limits(command) for command in written.values()]
    except (BadInput, KeyError, ValueError) as error:
        yield Check(f"{program.package} accepts every option", False, str(error))
        return
    detail = f"{_counted(len(written), 'command')} parsed by the definitions of {program.source}"
    yield Check(f"{program.package} accepts every option", True, detail)
    yield _blocks_check(every, limits, len(deployment.graph.blocks))
    yield _limits_check(every, limits)
    yield _gpus_check(every, written, limits)
    yield _containers_check(every, program, folder)
    needed = f"that needs GPUs, {program.package} and the weights of {decoder_model(deployment).served_name}"
    yield Check(f"{program.package} serves the model", None, f"nothing was started: {needed}")


def _read_script(path: Path) -> Command:
    """The command of a script, its variables, and the files that it reads, by their names beside it."""
    words = shlex.split(path.read_text(encoding="utf-8").replace("\\\n", " "), comments=True)
    start = words.index("exec")
    exported = (word.split("=", 1) for before, word in zip(words, words[1:start], strict=False) if before == "export")
    command = tuple(words[start + 1 :])
    files = {word: path.with_name(word) for word in command if word.startswith(path.stem)}
    contents = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.is_file()}
    return Command(command, dict(exported), contents)


def _expected(each: ReplicaLaunch) -> Limits:
    launch = each.launch
    return Limits(
        launch.model,
        launch.blocks if launch.n_stages > 1 else (),
        len(each.replica.gpus),
        launch.n_in_flight,
        launch.max_batched_tokens,
        launch.max_length,
        launch.memory_share,
    )


def _blocks_check(every: tuple[ReplicaLaunch, ...], limits: list[Limits], n_blocks: int) -> Check:
    """Whether the stages of every replica have the blocks of its plan, which are all of the model."""
    same = [each.blocks for each in limits] == [_expected(each).blocks for each in every]
    given = dict.fromkeys(each.blocks or (n_blocks,) for each in limits)
    is_whole = all(sum(blocks) == n_blocks for blocks in given)
    shown = ", ".join(f"{' + '.join(map(str, blocks))} = {sum(blocks)}" for blocks in given)
    what = "the stages of every replica have the blocks of the plan"
    return Check(what, same and is_whole, f"{shown} of {n_blocks} blocks")


def _limits_check(every: tuple[ReplicaLaunch, ...], limits: list[Limits]) -> Check:
    """Whether model, sequences, tokens and memory are those of the plan."""
    same = [each._replace(blocks=()) for each in limits] == [_expected(each)._replace(blocks=()) for each in every]
    first = limits[0]
    detail = (
        f"{first.n_in_flight} sequences in flight, {first.max_batched_tokens} tokens a step, {first.max_length} a "
        f"sequence, {first.memory_share:.1%} of the memory"
    )
    return Check("model, sequences, tokens and memory are those of the configuration", same, detail)


def _gpus_check(every: tuple[ReplicaLaunch, ...], written: Mapping[str, Command], limits: list[Limits]) -> Check:
    """Whether every process has as many GPUs as stages and groups, and no two have one of them, or one port."""
    machines = {each.replica.name: each.replica.machine for each in every}
    used: dict[int, list[str]] = defaultdict(list)
    fits = machines.keys() == written.keys()
    for (name, command), limit in zip(written.items(), limits, strict=True):
        gpus = command.environment[GPU_ORDER].split(",")
        used[machines.get(name, 0)] += [*gpus, f"port {command.words[command.words.index('--port') + 1]}"]
        fits = fits and len(gpus) == limit.n_gpus
    alone = all(len(set(given)) == len(given) for given in used.values())
    n_gpus = sum(limit.n_gpus for limit in limits)
    detail = f"{_counted(n_gpus, 'GPU')} of {_counted(len(used), 'machine')}"
    return Check("no two replicas have a GPU or a port in common", fits and alone, detail)


def _containers_check(every: tuple[ReplicaLaunch, ...], program: ServingProgram, folder: Path) -> Check:
    """Whether the files for containers parse, and start what the scripts start."""
    import yaml  # of extra gpu

    what = f"{COMPOSE_FILE} and {KUBERNETES_FILE} start the same commands"
    try:
        services = yaml.safe_load((folder / COMPOSE_FILE).read_text(encoding="utf-8"))["services"]
        documents = list(yaml.safe_load_all((folder / KUBERNETES_FILE).read_text(encoding="utf-8")))
    except (yaml.YAMLError, KeyError) as error:
        return Check(what, False, f"no YAML of the form that was written: {error}")
    started = [tuple(service["entrypoint"]) for service in services.values()]
    scripts = [_read_script(folder / script_name(each.replica)).words for each in every]
    pods = [document["spec"] for document in documents if document["kind"] == "Deployment"]
    parsed = [program.syntax.parse(_container(pod)["command"]) for pod in pods]
    n_pods = sum(pod["replicas"] for pod in pods)
    n_gpus = sum(pod["replicas"] * _container(pod)["resources"]["limits"]["nvidia.com/gpu"] for pod in pods)
    same = started == scripts and n_pods == len(every) and n_gpus == sum(len(each.replica.gpus) for each in every)
    known = [program.syntax.parse(words) for words in scripts]
    same = same and all(_without_places(one) in list(map(_without_places, known)) for one in parsed)
    return Check(what, same, f"{_counted(len(services), 'service')}, {_counted(n_pods, 'pod')}")


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    container: Mapping[str, Any] = pod["template"]["spec"]["containers"][0]
    return container


def _without_places(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that do not depend on where a replica runs."""
    return {name: value for name, value in options.items() if name not in ("--port", "--extra_llm_api_options")}


def _counted(n: int, what: str) -> str:
    """For example "2 pods"."""
    return f"{n} {what}{'s' * (n != 1)}"
