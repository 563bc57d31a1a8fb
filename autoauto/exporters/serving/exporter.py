"""The exporters of configurations that generate text, under the names of their engines: `serving_exporter`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import DecoderModel, Deployment, Exporter, generation
from autoauto.exporters.serving.bench import BENCH_FILE, bench_line, bench_script, n_sequences
from autoauto.exporters.serving.checks import checks, started_of
from autoauto.exporters.serving.files import dump, script, shell_script
from autoauto.exporters.serving.front import FRONT_SCRIPT, front_command, front_line, has_front
from autoauto.exporters.serving.launches import ServedProcess, decoder_model, processes
from autoauto.exporters.serving.platforms.kubernetes import KIND_LABEL
from autoauto.exporters.serving.platforms.registry import PLATFORMS
from autoauto.exporters.serving.router import router_line
from autoauto.records.costs.decoder import lacks_draft

_EXECUTABLE = 0o755


def serving_exporter(engine: Engine) -> Exporter:
    """Launch commands of every replica, for machines, Docker Compose and Kubernetes."""

    def write(deployment: Deployment, folder: Path) -> None:
        started = started_of(deployment, engine)
        every = started.processes
        for process in every:
            path = folder / f"{process.name}.sh"
            _write_program(path, script(process, engine), process.command(engine).files)
        if has_front(every):
            command = front_command(every, engine)
            text = shell_script("what is in front of both pools", command)
            _write_program(folder / FRONT_SCRIPT, text, command.files)
        if text := bench_script(deployment, every):
            _write_program(folder / BENCH_FILE, text)
        for platform in PLATFORMS:
            if platform.starts(started):
                (folder / platform.file).write_text(dump(platform.content(started)), encoding="utf-8")
                for name, text in platform.beside(started).items():
                    (folder / name).write_text(text, encoding="utf-8")

    options = f"Options are those of {engine.title} as its source defines them ({engine.launcher.source})."
    if engine.launcher.remark:
        options += f" {engine.launcher.remark}"
    return Exporter(
        name=engine.launcher.to,
        summary=f"{engine.title}, a process a replica",
        apply=(
            'for replica in replica-*.sh; do sh "$replica" & done; wait',
            *(platform.apply for platform in PLATFORMS if platform.apply),
        ),
        write=write,
        check=lambda deployment, folder: checks(deployment, engine, folder),
        notes=(
            f"{options}\n"
            f"Nothing was started, and no image pulled; that of the containers is {engine.launcher.image}.\n"
            "The Service of Kubernetes spreads connections over the replicas; on several machines without it a router "
            "does."
        ),
        serves_decoders=True,
        describe=lambda deployment: _replica_lines(deployment, engine),
    )


def _write_program(path: Path, text: str, files: Mapping[str, str] = {}) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(_EXECUTABLE)
    for name, content in files.items():
        path.with_name(name).write_text(content, encoding="utf-8")


def _replica_lines(deployment: Deployment, engine: Engine) -> str:
    every = processes(deployment, engine)
    mode, knobs = generation(deployment), deployment.knobs
    table = ["| replica | machine | GPUs | port | blocks of stages |", "|---|---|---|---|---|"]
    for process in every:
        replica, part = process.replica, process.part
        gpus = f"{part.kind} {', '.join(map(str, part.gpus))}"
        port = replica.port if part == replica.parts[0] else ""  # the other machines of a replica answer nobody
        blocks = " + ".join(map(str, replica.blocks))
        table.append(f"| {replica.name} | {part.machine} | {gpus} | {port} | {blocks} |")
    rows = "\n".join(table)
    return (
        f"Modelled for prompts of {mode.input_tokens} tokens and answers of {mode.output_tokens}. Sequences of up to "
        f"{every[0].launch.max_length} tokens are accepted;\nwhere many are longer than modelled, fewer fit at a time. "
        f"Every replica has {n_sequences(deployment)} sequences in flight, in micro-batches of\n"
        f"{knobs.batch_size}. The first stage has the embedding besides its blocks, the last one norm and head.\n\n"
        f"{_workload_lines(decoder_model(deployment))}"
        f"{rows}\n\n{_starts(every)}"
        f"{bench_line(deployment, every)}"
    )


def _workload_lines(model: DecoderModel) -> str:
    """The lines of README on drafted tokens and cached prompts, and on what a user adds for them."""
    drafts, text = model.speculation, ""
    if drafts.draft_tokens:
        text += (
            f"Modelled with {drafts.draft_tokens} drafted tokens a step, {drafts.accept_length:g} tokens a step "
            f"accepted in the mean: measure how many are.\n"
        )
        if lacks_draft(drafts, model.decoder.checkpoint):
            text += (
                "The checkpoint has no layers that draft, and no draft model was named, so **these commands do not "
                "draft**: export again\nwith --draft-model and the name of an EAGLE-3 head of the model.\n"
            )
    if model.cached_share:
        text += (
            f"Modelled with {model.cached_share:.0%} of every prompt in the prefix cache of its replica: a router must "
            "send requests with one\nbeginning to one replica. The Service of Kubernetes does not.\n"
        )
    return f"{text}\n" if text else ""


def _starts(every: tuple[ServedProcess, ...]) -> str:
    machines = {each.part.machine for each in every}
    if len(machines) == 1:
        text = "Each of the three lines starts all replicas: the scripts, Docker Compose, or Kubernetes."
        return text + router_line(every) + front_line(every)
    text = (
        f"There are {len(machines)} machines. Run on each the scripts of its own replicas, or\n"
        f"`docker compose --profile machine-0 up` with its number"
    )
    text_of_pools = front_line(every)
    if not all(each.is_whole for each in every):
        return (
            f"{text}. A replica on several machines has a process on each, with the\naddress of its first machine in "
            f"MASTER_ADDR. A Deployment of Kubernetes has no such replica, so there is no file for it.{text_of_pools}"
        )
    text += ". Kubernetes starts all"
    kinds = sorted({each.part.kind for each in every})
    if len(kinds) > 1:
        text += f"; its nodes need the label\n`{KIND_LABEL}`, one of {', '.join(kinds)}"
    return f"{text}.{text_of_pools}"
