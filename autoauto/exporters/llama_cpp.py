"""The command of llama.cpp's server for a GGUF file: a script a server, and a file for Docker Compose.

router :8000 ──┬──▶ server-0 :8080, cores 0 and 1        nginx, in Compose, where there are several servers
               └──▶ server-1 :8081, cores 2 and 3
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

from autoauto.engines.llama_cpp import FIRST_PORT, LlamaServerOptions, read_command, server_command
from autoauto.exporters.exporter import Check, DecoderModel, Deployment, Exporter, generation
from autoauto.graph.decoders.gguf import opened_path
from autoauto.records.costs.decoder import Workload
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.runtimes.llamacpp.server import RunningServer
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession

COMPOSE_FILE, ROUTER_FILE = "compose.yaml", "nginx.conf"
IMAGE, ROUTER_IMAGE = "ghcr.io/ggml-org/llama.cpp:server", "nginx:stable"
ROUTER_PORT = 8000
_ANSWER_S, _EXECUTABLE = 120.0, 0o755


class LlamaServer(NamedTuple):
    """A server of the artifact."""

    name: str  # of its script and its service
    cores: tuple[int, ...]  # the hardware threads that are its own; none where it is alone
    options: LlamaServerOptions

    @property
    def words(self) -> tuple[str, ...]:
        """Of its command, with the cores on which it runs."""
        words = tuple(server_command(self.options))
        if self.cores:
            words = ("taskset", "-c", ",".join(map(str, self.cores)), *words)
        return words


def processes(deployment: Deployment) -> tuple[LlamaServer, ...]:
    """The servers of a configuration; raises `BadInput` for one of another engine."""
    knobs, model, mode = deployment.knobs, deployment.source, generation(deployment)
    if not isinstance(knobs.session, LlamaCppSession) or not isinstance(model, DecoderModel):
        raise BadInput("--to llama-cpp starts llama.cpp with a GGUF file, got a configuration of another engine")
    requests = Workload(mode.input_tokens, mode.output_tokens)
    every = []
    for number in range(knobs.replicas):
        own = () if knobs.replicas == 1 else cores_of(number, knobs.session.cores_per_device)
        path = str(opened_path(Path(model.name)))
        options = knobs.session.options(path, knobs.batch_size, requests, FIRST_PORT + number)
        every.append(LlamaServer(f"server-{number}", own, options))
    return tuple(every)


def script(process: LlamaServer) -> str:
    """A script that starts a server."""
    return f'#!/bin/sh\nset -eu\nexec {shlex.join(process.words)} "$@"\n'


def compose(every: Sequence[LlamaServer]) -> str:
    """A service a server, each on its cores; and where there are several, one that shares requests out."""
    lines = ["services:"]
    for process in every:
        model = Path(process.options.model)
        # Parts of a model may be links, as in the cache of Hugging Face, to files that lie in one folder.
        folders = dict.fromkeys((model.parent, model.resolve().parent))
        volumes = [f"{folder}:{folder}:ro" for folder in folders]
        _, *words = server_command(process.options)
        lines += [f"  {process.name}:", f"    image: {IMAGE}", f"    command: {json.dumps(words)}"]
        if process.cores:
            lines.append(f"    cpuset: {json.dumps(','.join(map(str, process.cores)))}")
        lines += ["    network_mode: host", f"    volumes: {json.dumps(volumes)}"]
    if len(every) > 1:
        lines += ["  router:", f"    image: {ROUTER_IMAGE}", "    network_mode: host"]
        lines.append(f"    volumes: [{json.dumps(f'./{ROUTER_FILE}:/etc/nginx/nginx.conf:ro')}]")
    return "\n".join(lines) + "\n"


def router(every: Sequence[LlamaServer]) -> str:
    """The configuration of nginx: a request goes to the server with the fewest, and its answer is streamed."""
    servers = "".join(f"    server 127.0.0.1:{process.options.port};\n" for process in every)
    return (
        f"events {{}}\nhttp {{\n  upstream servers {{\n    least_conn;\n{servers}  }}\n"
        f"  server {{\n    listen {ROUTER_PORT};\n    location / {{\n      proxy_pass http://servers;\n"
        "      proxy_buffering off;\n      proxy_read_timeout 1h;\n    }\n  }\n}\n"
    )


def write(deployment: Deployment, folder: Path) -> None:
    """Write the scripts and the files of Compose; raises `BadInput` for another engine."""
    every = processes(deployment)
    for process in every:
        path = folder / f"{process.name}.sh"
        path.write_text(script(process), encoding="utf-8")
        path.chmod(_EXECUTABLE)
    (folder / COMPOSE_FILE).write_text(compose(every), encoding="utf-8")
    if len(every) > 1:
        (folder / ROUTER_FILE).write_text(router(every), encoding="utf-8")


def read_script(path: Path) -> LlamaServer:
    """The server that a script starts; raises `BadInput` if llama.cpp would refuse its options."""
    words = shlex.split(path.read_text(encoding="utf-8"), comments=True)
    words = words[words.index("exec") + 1 : -1]  # without the arguments that are passed on
    own: tuple[int, ...] = ()
    if words[0] == "taskset":
        own = tuple(map(int, words[2].split(",")))
        words = words[3:]
    return LlamaServer(path.stem, own, read_command(words))


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Start the server of every script, and let it answer a request of the length that was measured."""
    every = [read_script(path) for path in sorted(folder.glob("server-*.sh"))]
    same = every == list(processes(deployment))
    detail = ", ".join(f"{each.options.n_slots} slots on --threads {each.options.n_threads}" for each in every)
    yield Check("the scripts say the configuration", same, detail)
    mode = generation(deployment)
    what = "llama.cpp comes up with every option and answers a request"
    if not LlamaCppSession.package.is_installed:
        yield Check(what, None, "the extra llamacpp is not installed")
        return
    counts = []
    try:
        for process in every:
            with RunningServer(server_command(process.options), process.cores) as server:
                counts.append(answered_tokens(server.address, mode.input_tokens, mode.output_tokens))
    except (DoesNotFit, OSError, ValueError, KeyError) as error:
        yield Check(what, False, str(error))
        return
    said = " and ".join(map(str, dict.fromkeys(counts)))
    yield Check(what, {*counts} == {mode.output_tokens}, f"{said} tokens to a prompt of {mode.input_tokens}")
    yield Check("containers serve the model", None, f"no image was pulled; theirs are {IMAGE} and {ROUTER_IMAGE}")


def answered_tokens(url: str, input_tokens: int, output_tokens: int) -> int:
    """The tokens of a server's answer to a prompt, by its own count; `URLError` or `KeyError` without one."""
    asked = {"prompt": [1] * input_tokens, "max_tokens": output_tokens, "ignore_eos": True}
    request = Request(f"{url}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    if not url.startswith("http://127.0.0.1:"):
        raise URLError(f"the server must be one of this machine, got {url}")
    with urlopen(request, timeout=_ANSWER_S) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


def _describe(deployment: Deployment) -> str:
    every, mode = processes(deployment), generation(deployment)
    table = ["| server | port | cores | slots |", "|---|---|---|---|"]
    for each in every:
        cores = ", ".join(map(str, each.cores)) or "any"
        table.append(f"| {each.name} | {each.options.port} | {cores} | {each.options.n_slots} |")
    rows = "\n".join(table)
    shared = ""
    if len(every) > 1:
        shared = (
            f"\n\nClients spread their requests over the ports, or ask nginx of Compose on port {ROUTER_PORT}, which "
            "gives each\nto the server with the fewest."
        )
    return (
        f"For prompts of {mode.input_tokens} tokens and answers of {mode.output_tokens}. "
        f"Longer ones need a larger --ctx-size.\n\n"
        f"{rows}{shared}"
    )


EXPORTER = Exporter(
    name="llama-cpp",
    summary="llama.cpp's server, a process a replica",
    apply=('for server in server-*.sh; do sh "$server" & done; wait', "docker compose up"),
    write=write,
    check=check,
    keeps_session=True,
    serves_decoders=True,
    describe=_describe,
    notes="Threads wait without spinning (--poll 0). The scripts need `llama-server` of llama.cpp on the PATH.",
)
