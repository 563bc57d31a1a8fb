"""Engines in containers of this machine: `DockerLauncher`. A guard removes a container when the search ends."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from uuid import uuid4

from autoauto.engines.command import GPU_ORDER
from autoauto.launch.guarded import HERE, GuardTask, guarded_engines
from autoauto.launch.launcher import PORT_WORD, ReplicaStart, RunningEngines
from autoauto.records.errors import BadInput

_CACHE = "/huggingface"
_TOKEN, _HOME = "HF_TOKEN", "HF_HOME"
"""Hugging Face's variables: a token, for models that need one, and the folder of what was fetched."""


class DockerLauncher:
    """Starts every replica as a container of its engine's image; see `EngineLauncher`.

    Args:
        argument: another image; "" for that of the engine.
    """

    n_machines: int | None = 1

    def __init__(self, argument: str) -> None:
        if argument.startswith("-"):
            raise BadInput(f"--launch docker:IMAGE names an image, got {argument!r:.60}; try docker")
        self._image = argument
        self.where = f"docker:{argument}" if argument else "docker"

    def start(
        self, replicas: Sequence[ReplicaStart], ready_path: str, limit_s: float
    ) -> AbstractContextManager[RunningEngines]:
        """Implements `EngineLauncher`."""
        tasks = [self._task(each) for each in replicas]
        return guarded_engines(tasks, [HERE] * len(tasks), ready_path, limit_s)

    def _task(self, replica: ReplicaStart) -> GuardTask:
        """A container sees its GPUs alone and counts them from 0. Of the token only the variable is named."""
        name, command, order = f"autoauto-{uuid4().hex[:12]}", replica.command, sorted(replica.gpus)
        seen = ",".join(str(order.index(gpu)) for gpu in replica.gpus)
        environment = {**command.environment, GPU_ORDER: seen, _HOME: _CACHE}
        hub = os.environ.get(_HOME) or os.path.expanduser("~/.cache/huggingface")
        volume = f"{replica.folder}:{replica.folder}:ro" if replica.folder else f"{hub}:{_CACHE}"
        words = ["docker", "run", "--rm", "--name", name, "--ipc", "host"]
        words += ["--gpus", f'"device={",".join(map(str, order))}"']
        words += ["--publish", f"127.0.0.1:{PORT_WORD}:{PORT_WORD}", "--volume", volume, "--env", _TOKEN]
        for variable, value in environment.items():
            words += ["--env", f"{variable}={value}"]
        image = self._image or replica.image
        if command.files:  # a shell writes them: the daemon may have no folder in common with this machine
            words += ["--workdir", "/tmp", "--entrypoint", "sh", image, *_writing(replica)]
        else:
            words += ["--entrypoint", command.words[0], image, *command.words[1:]]
        return GuardTask(tuple(words), at_end=("docker", "rm", "--force", name))


def _writing(replica: ReplicaStart) -> list[str]:
    """Words of a shell that writes the files of a command and then is that."""
    arguments: list[str] = []
    script = ""
    for number, (name, text) in enumerate(replica.command.files.items()):
        script += f'printf %s "${2 * number + 1}" > "${2 * number + 2}" && '
        arguments += [text, name]
    return ["-c", f'{script}shift {len(arguments)} && exec "$@"', "sh", *arguments, *replica.command.words]


LAUNCHER = DockerLauncher
