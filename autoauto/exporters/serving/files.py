"""Files that start replicas: a script each, one for Docker Compose, one for Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoauto.exporters.serving.command import GPU_ORDER, Command
from autoauto.exporters.serving.engines import ServingProgram
from autoauto.exporters.serving.launches import ReplicaLaunch
from autoauto.exporters.serving.replicas import FIRST_PORT, ServedReplica

COMPOSE_FILE, KUBERNETES_FILE = "compose.yaml", "kubernetes.yaml"
WORK_FOLDER = "/artifact"
"""Where containers find files that their commands read."""
_CACHE = ".cache/huggingface"
_TOKEN = "HF_TOKEN"
"""Hugging Face's variable of a token, for models that need one."""
KIND_LABEL = "autoauto/gpu"
"""The label of a node that says which GPUs it has, where there are several kinds."""
_SHARED_MEMORY = {"name": "shared-memory", "path": "/dev/shm"}
_ULIMITS = {"memlock": -1, "stack": 1 << 26}
"""Of pinned memory and stacks [trtllm-serve]."""


def script_name(replica: ServedReplica) -> str:
    """For example "replica-0.sh"."""
    return f"{replica.name}.sh"


def file_names(replica: ServedReplica, command: Command) -> dict[str, str]:
    """The names in the artifact of the files that a command reads, by their names there."""
    return {name: f"{replica.name}-{name}" for name in command.files}


def script(each: ReplicaLaunch, program: ServingProgram) -> str:
    """A script that starts a replica on its GPUs, an option a line."""
    replica, command = each.replica, _in_folder(each.replica, each.command(program))
    variables = {GPU_ORDER: ",".join(map(str, replica.gpus)), **command.environment}
    continued = " \\\n  ".join(command.lines)
    blocks = " + ".join(map(str, replica.blocks))
    exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
    return (
        f"#!/bin/sh\n# {replica.name} on machine {replica.machine}, {len(replica.gpus)} {replica.kind}: "
        f"stages of {blocks} blocks.\n"
        f'set -eu\ncd "$(dirname "$0")"\n{exports}exec {continued}\n'
    )


def _in_folder(replica: ServedReplica, command: Command) -> Command:
    """The command with the names that its files have in the artifact."""
    names = file_names(replica, command)
    return command._replace(words=tuple(names.get(word, word) for word in command.words))


def compose(every: Sequence[ReplicaLaunch], program: ServingProgram) -> dict[str, Any]:
    """A service a replica; where there are several machines, a profile has those of each."""
    several = len({each.replica.machine for each in every}) > 1
    services = {}
    for each in every:
        service = _service(each, program)
        services[each.replica.name] = (
            {**service, "profiles": [f"machine-{each.replica.machine}"]} if several else service
        )
    return {"services": services}


def _service(each: ReplicaLaunch, program: ServingProgram) -> dict[str, Any]:
    replica, command = each.replica, _in_folder(each.replica, each.command(program))
    order = sorted(replica.gpus)
    seen = ",".join(str(order.index(gpu)) for gpu in replica.gpus)  # a container counts its GPUs from 0
    folder = _folder(each)
    volumes = [f"{folder}:{folder}:ro"] if folder else [f"~/{_CACHE}:/root/{_CACHE}"]
    volumes += [f"./{name}:{WORK_FOLDER}/{name}:ro" for name in file_names(replica, command).values()]
    device = {"driver": "nvidia", "device_ids": list(map(str, replica.gpus)), "capabilities": ["gpu"]}
    return {
        "image": program.image,
        "entrypoint": [word.replace("$", "$$") for word in command.words],
        **({"working_dir": WORK_FOLDER} if command.files else {}),
        "environment": {GPU_ORDER: seen, **command.environment, _TOKEN: f"${{{_TOKEN}:-}}"},
        "network_mode": "host",
        "ipc": "host",
        "ulimits": _ULIMITS,
        "volumes": volumes,
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }


def kubernetes(every: Sequence[ReplicaLaunch], program: ServingProgram, model: str) -> list[dict[str, Any]]:
    """A Service, and for every plan a Deployment with as many pods as replicas, and what they read."""
    app = _label(model)
    ports = [{"port": FIRST_PORT, "targetPort": FIRST_PORT}]
    documents = [_document("v1", "Service", app, spec={"selector": {"app": app}, "ports": ports})]
    kinds = {each.replica.kind for each in every}
    for plan in sorted({each.replica.plan for each in every}):
        alike = [each for each in every if each.replica.plan == plan]
        name, command = f"{app}-{plan}", program.command(alike[0].launch, FIRST_PORT)
        if command.files:
            documents.append(_document("v1", "ConfigMap", name, data=dict(command.files)))
        pod = _pod(alike[0], program, command, name)
        if len(kinds) > 1:
            pod["nodeSelector"] = {KIND_LABEL: alike[0].replica.kind}
        selected, labels = ({"app": app, "plan": str(plan)} for _ in range(2))  # YAML would name one that is used twice
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": len(alike), "selector": {"matchLabels": selected}, "template": template}
        documents.append(_document("apps/v1", "Deployment", name, spec=spec))
    return documents


def _document(version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


def _pod(each: ReplicaLaunch, program: ServingProgram, command: Command, name: str) -> dict[str, Any]:
    """One replica; which GPUs of a node it gets is the choice of Kubernetes."""
    volumes: list[dict[str, Any]] = [{"name": _SHARED_MEMORY["name"], "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": _SHARED_MEMORY["name"], "mountPath": _SHARED_MEMORY["path"]}]
    if folder := _folder(each):
        volumes.append({"name": "model", "hostPath": {"path": folder}})
        mounts.append({"name": "model", "mountPath": folder})
    if command.files:
        volumes.append({"name": "files", "configMap": {"name": name}})
        mounts.append({"name": "files", "mountPath": WORK_FOLDER})
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    environment: list[Mapping[str, Any]] = [{"name": n, "value": value} for n, value in command.environment.items()]
    container = {
        "name": "engine",
        "image": program.image,
        "command": [word.replace("$(", "$$(") for word in command.words],
        **({"workingDir": WORK_FOLDER} if command.files else {}),
        "env": [*environment, {"name": _TOKEN, "valueFrom": token}],
        "ports": [{"containerPort": FIRST_PORT}],
        "resources": {"limits": {"nvidia.com/gpu": len(each.replica.gpus)}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": FIRST_PORT}, "periodSeconds": 10},
        "volumeMounts": mounts,
    }
    return {"containers": [container], "volumes": volumes}


def _folder(each: ReplicaLaunch) -> str:
    """The folder of the model on a machine; empty where it is a name on Hugging Face."""
    return each.launch.model if Path(each.launch.model).is_absolute() else ""


def _label(model: str) -> str:
    """A name that Kubernetes accepts.

    >>> _label("meta-llama/Meta-Llama-3.1-70B")
    'meta-llama-3-1-70b'
    """
    return re.sub(r"[^a-z0-9]+", "-", Path(model).name.lower()).strip("-")[:40].strip("-") or "decoder"


def dump(content: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """YAML of one document, or of a sequence of documents."""
    import yaml  # of extra gpu

    documents = [content] if isinstance(content, Mapping) else list(content)
    return str(yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False, width=1000))
