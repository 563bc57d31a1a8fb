"""Scripts that start processes, `script`; names that files of several platforms share; readers of the files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from autoauto.engines.command import GPU_ORDER, MASTER, Command
from autoauto.engines.engine import Engine
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.records.errors import BadInput

WORK_FOLDER = "/artifact"
"""Where containers find files that their commands read."""
CACHE_FOLDER = "/huggingface"
TOKEN_VARIABLE, HOME_VARIABLE = "HF_TOKEN", "HF_HOME"
"""Hugging Face's variables: a token, for models that need one, and the folder of what was fetched."""
TOKEN_SECRET = "hf-token"
"""The secret of a cluster that holds the token."""
_ADDRESSES = {MASTER[2:-1]: "the first machine of the replica"}
"""The meaning of variables that hold addresses; those of machines have the number of the machine."""


def script(process: ServedProcess, engine: Engine) -> str:
    """A script that starts a process on its GPUs, an option a line."""
    part, command = process.part, process.command(engine)
    blocks = " + ".join(map(str, process.replica.blocks))
    what = f"{process.name} on machine {part.machine}, {len(part.gpus)} {part.kind}; stages of {blocks} blocks."
    gpus = ",".join(map(str, part.gpus))
    return shell_script(what, command._replace(environment={GPU_ORDER: gpus, **command.environment}))


def shell_script(what: str, command: Command) -> str:
    """A script that starts a command, an option a line."""
    given = " ".join([*command.words, *command.environment.values()])
    needs = ""
    for name in sorted(set(re.findall(r"\$\{(\w+)\}", given))):  # variables of addresses, which have no default
        whose = _ADDRESSES.get(name) or f"machine {name.split('_')[1]}"
        needs += f': "${{{name}:?is the address of {whose}}}"\n'
    exports = "".join(f"export {name}={value}\n" for name, value in command.environment.items())
    continued = " \\\n  ".join(command.lines)
    return f'#!/bin/sh\n# {what}\nset -eu\ncd "$(dirname "$0")"\n{needs}{exports}exec {continued}\n'


def label(model: str) -> str:
    """A name that Kubernetes accepts: it begins with a letter.

    >>> label("meta-llama/Meta-Llama-3.1-70B")
    'serve-meta-llama-3-1-70b'
    """
    return "serve-" + re.sub(r"[^a-z0-9]+", "-", Path(model).name.lower()).strip("-")[:40].strip("-")


def dump(content: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """YAML of one document, or of a sequence of documents; what is used twice is written twice."""
    import yaml  # of extra gpu

    plain = type("PlainDumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})  # else it writes anchors
    documents = [content] if isinstance(content, Mapping) else list(content)
    return str(yaml.dump_all(documents, Dumper=plain, sort_keys=False, default_flow_style=False, width=1000))


def folder_of(each: ServedProcess) -> str:
    """The folder of the model on a machine; empty where it is a name on Hugging Face."""
    return each.launch.model if Path(each.launch.model).is_absolute() else ""


def read_script(path: Path) -> Command:
    """The command of a script, its variables, and the files that it reads."""
    words = shlex.split(path.read_text(encoding="utf-8").replace("\\\n", " "), comments=True)
    start = words.index("exec")
    exported = (word.split("=", 1) for before, word in pairwise(words[:start]) if before == "export")
    command = tuple(words[start + 1 :])
    files = {word: path.parent / word for word in command if "/" not in word and (path.parent / word).is_file()}
    return Command(command, dict(exported), {name: file.read_text(encoding="utf-8") for name, file in files.items()})


def read_yaml(path: Path) -> list[Any]:
    """All documents of a file; raises `BadInput` if it is no YAML."""
    import yaml  # of extra gpu

    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"{path.name} must be YAML, got: {error!s:.80}") from None
