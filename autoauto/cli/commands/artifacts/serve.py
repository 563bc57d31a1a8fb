"""Serve the found configuration over HTTP.

Requests and answers are those of the Open Inference Protocol.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.commands.artifacts.export import deployment_of_study
from autoauto.cli.options.server import add_listen
from autoauto.cli.options.study import add_storage, requested_study, storage_words
from autoauto.cli.options.values import at_most, not_negative
from autoauto.cli.output.lines import print_line, warn
from autoauto.processes.folders import temporary_folder
from autoauto.records.errors import BadInput, missing_extra
from autoauto.records.units import MIB, format_number

if TYPE_CHECKING:
    from autoauto.exporters.exporter import Deployment

EXAMPLE = "serve artifact --listen 127.0.0.1:8000"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study or a folder, an address, and the limits of what waits."""
    parser.add_argument(
        "study",
        metavar="STUDY|FOLDER",
        help="a study of --target host, or a folder that `autoauto export --to onnx` wrote for such a plan",
    )
    add_storage(parser)
    add_listen(parser, 8000)
    parser.add_argument(
        "--max-delay-ms",
        type=not_negative,
        metavar="MS",
        help="how long a sample waits at most for others when there is room for a micro-batch; default: a tenth of the "
        "plan's period",
    )
    parser.add_argument(
        "--max-queue",
        type=at_most(10_000_000),
        metavar="N",
        help="samples that wait at most, others are refused (429); default: 8 micro-batches a pipeline, at least 64",
    )
    parser.add_argument(
        "--max-request-mib",
        type=at_most(100_000),
        metavar="N",
        help="size of a request at most; default: a micro-batch in JSON, at least 16",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it.

    Raises:
        MissingExtra: a library is not installed.
        BadInput: there is nothing of that name, or it cannot be served here.
    """
    if not all(map(find_spec, ("aiohttp", "prometheus_client", "onnxruntime"))):
        raise missing_extra("serving", "serve")
    import asyncio

    from autoauto.serve.artifact import Artifact
    from autoauto.serve.server import ServerOptions, serve

    host, port = args.listen
    options = ServerOptions(
        host=host,
        port=port,
        allowed_hosts=tuple(args.allow_host),
        max_queue=args.max_queue,
        max_delay_s=None if args.max_delay_ms is None else args.max_delay_ms / 1000,
        max_request_bytes=None if args.max_request_mib is None else args.max_request_mib * MIB,
    )
    with _folder(args) as folder:
        artifact = Artifact(folder)
    model = artifact.model
    plan = f"batch size {model.batch_size}, {format_number(model.samples_per_s)} samples/s ({model.origin})"

    def on_ready(url: str) -> None:
        print_line(f"{model.name}: {url}/v2/models/{model.name}, {plan}")

    asyncio.run(serve(artifact, options, on_ready, warn))
    return 0


@contextmanager
def _folder(args: argparse.Namespace) -> Iterator[Path]:
    """The folder that the arguments name, or one with the winner of a study while the context lasts."""
    if Path(args.study).is_dir():
        yield Path(args.study)
        return
    from autoauto.exporters.registry import write_artifact

    try:
        study = requested_study(args)
    except BadInput as error:
        raise BadInput(f"there is no folder {args.study!r}; and {error}") from error
    deployment = deployment_of_study(study, args.storage)
    _check_served_here(deployment, study.study_name, args.storage)
    with temporary_folder("autoauto-serve-") as temporary:
        write_artifact(deployment, "onnx", temporary / "artifact")
        yield temporary / "artifact"


def _check_served_here(deployment: Deployment, study_name: str, storage: str) -> None:
    """Refuse plans that another program serves, and say which.

    Raises:
        BadInput: the plan is one of text that an engine generates, or of devices that this machine has not.
    """
    from autoauto.engines.registry import ENGINES
    from autoauto.targets.host.runtimes.session import HostSession

    session = deployment.knobs.session
    engine = getattr(session, "engine", None)
    stored = storage_words(storage)
    if engine is not None:
        to = ENGINES[engine].launcher.to
        command = ["autoauto", "export", study_name, "--to", to, "--output", f"{study_name}-{to}", *stored]
        raise BadInput(f"study {study_name!r} generates text, an engine serves it: {shlex.join(command)}")
    if not isinstance(session, HostSession):
        raise BadInput(
            f"a study of --target host with stages is served here, {study_name!r} is of {deployment.cluster.name}; its "
            f"report has the command that starts it: {shlex.join(['autoauto', 'report', study_name, *stored])}"
        )
