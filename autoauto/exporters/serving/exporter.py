"""The exporters of configurations that generate text, under the names of their engines: `serving_exporter`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import Check, Deployment, Exporter
from autoauto.exporters.serving.checks import checks
from autoauto.exporters.serving.files import (
    COMPOSE_FILE,
    KIND_LABEL,
    KUBERNETES_FILE,
    compose,
    dump,
    kubernetes,
    script,
    script_name,
)
from autoauto.exporters.serving.launches import ServedProcess, decoder_model, generation, processes, weight_bytes

_EXECUTABLE = 0o755


def serving_exporter(engine: Engine) -> Exporter:
    """Launch commands of every replica, for machines, Docker Compose and Kubernetes."""

    def write(deployment: Deployment, folder: Path) -> None:
        every = processes(deployment, engine)
        for process in every:
            path = folder / script_name(process)
            path.write_text(script(process, engine), encoding="utf-8")
            path.chmod(_EXECUTABLE)
            for name, text in process.command(engine).files.items():
                (folder / name).write_text(text, encoding="utf-8")
        (folder / COMPOSE_FILE).write_text(dump(compose(every, engine)), encoding="utf-8")
        if all(process.is_whole for process in every):
            content = kubernetes(every, engine, decoder_model(deployment).served_name, weight_bytes(deployment))
            (folder / KUBERNETES_FILE).write_text(dump(content), encoding="utf-8")

    def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
        yield from checks(deployment, engine, folder)

    return Exporter(
        name=engine.launcher.to,
        summary=f"{engine.title}, a process a replica",
        apply=(
            'for replica in replica-*.sh; do sh "$replica" & done; wait',
            "docker compose up",
            "kubectl apply -f kubernetes.yaml",
        ),
        write=write,
        check=check,
        notes=_notes(engine),
        serves_decoders=True,
        describe=lambda deployment: _replica_lines(deployment, engine),
    )


def _notes(engine: Engine) -> str:
    remark = f" {engine.launcher.remark}" * bool(engine.launcher.remark)
    return (
        f"Options are those of {engine.title} as its source defines them ({engine.launcher.source}).{remark}\n"
        f"Nothing was started, and no image pulled; that of the containers is {engine.launcher.image}.\n"
        "The Service of Kubernetes spreads connections over the replicas; elsewhere a router does."
    )


def _replica_lines(deployment: Deployment, engine: Engine) -> str:
    """A table of replicas, and what was modelled."""
    every, mode, knobs = processes(deployment, engine), generation(deployment), deployment.knobs
    rows = "\n".join(
        f"| {each.replica.number} | {each.part.machine} | {each.part.kind} {', '.join(map(str, each.part.gpus))} | "
        f"{each.replica.port if each.part == each.replica.parts[0] else ''} | "
        f"{' + '.join(map(str, each.replica.blocks))} |"
        for each in every
    )
    return (
        f"Modelled for prompts of {mode.input_tokens} tokens and answers of {mode.output_tokens}. Sequences of up to "
        f"{every[0].launch.max_length} tokens are accepted;\nwhere many are longer than modelled, fewer fit at a time. "
        f"Every replica has {every[0].launch.n_in_flight} sequences in flight, in micro-batches of\n"
        f"{knobs.batch_size}. The first stage has the embedding besides its blocks, the last one norm and head.\n\n"
        f"| replica | machine | GPUs | port | blocks of stages |\n|---|---|---|---|---|\n{rows}\n\n{_starts(every)}"
    )


def _starts(every: tuple[ServedProcess, ...]) -> str:
    """What the lines start, and where."""
    machines = {each.part.machine for each in every}
    if len(machines) == 1:
        return "Each of the three lines starts all replicas: the scripts, Docker Compose, or Kubernetes."
    text = (
        f"There are {len(machines)} machines. Run on each the scripts of its own replicas, or\n"
        f"`docker compose --profile machine-0 up` with its number"
    )
    if not all(each.is_whole for each in every):
        return (
            f"{text}. A replica on several machines has a process on each, with the\naddress of its first machine in "
            "MASTER_ADDR. A Deployment of Kubernetes has no such replica, so there is no file for it."
        )
    kinds = sorted({each.part.kind for each in every})
    label = f"; its nodes need the label\n`{KIND_LABEL}`, one of {', '.join(kinds)}" if len(kinds) > 1 else ""
    return f"{text}. Kubernetes starts all{label}."
