"""Files that start replicas: a script each, one for Docker Compose, one for Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoauto.engines.command import GPU_ORDER, MASTER, Command
from autoauto.engines.engine import Engine
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.exporters.serving.replicas import FIRST_PORT
from autoauto.records.units import GIB

COMPOSE_FILE, KUBERNETES_FILE = "compose.yaml", "kubernetes.yaml"
WORK_FOLDER = "/artifact"
"""Where containers find files that their commands read."""
_CACHE = "/huggingface"
_TOKEN, _HOME = "HF_TOKEN", "HF_HOME"
"""Hugging Face's variables: a token, for models that need one, and the folder of what was fetched."""
KIND_LABEL = "autoauto/gpu"
"""The label of a node that says which GPUs it has, where there are several kinds."""
_SHARED_MEMORY = {"name": "shared-memory", "path": "/dev/shm"}
_GPU_RESOURCE = "nvidia.com/gpu"
"""Of a node, and the taint that keeps other pods from it."""
_START_PROBES = 360
"""An hour, in which weights are fetched and loaded."""
_ULIMITS = {"memlock": -1, "stack": 1 << 26}
"""Of pinned memory and stacks."""


def script_name(process: ServedProcess) -> str:
    """For example "replica-0.sh"."""
    return f"{process.name}.sh"


def script(process: ServedProcess, engine: Engine) -> str:
    """A script that starts a process on its GPUs, an option a line."""
    part, command = process.part, process.command(engine)
    variables = {GPU_ORDER: ",".join(map(str, part.gpus)), **command.environment}
    needs = "" if process.is_whole else f': "{MASTER[:-1]}:?is the address of the first machine of the replica}}"\n'
    continued = " \\\n  ".join(command.lines)
    blocks = " + ".join(map(str, process.replica.blocks))
    exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
    return (
        f"#!/bin/sh\n# {process.name} on machine {part.machine}, {len(part.gpus)} {part.kind}; "
        f"stages of {blocks} blocks.\n"
        f'set -eu\ncd "$(dirname "$0")"\n{needs}{exports}exec {continued}\n'
    )


def compose(every: Sequence[ServedProcess], engine: Engine) -> dict[str, Any]:
    """A service a process; where there are several machines, a profile has those of each."""
    several = len({process.part.machine for process in every}) > 1
    return {
        "services": {
            process.name: _service(process, engine)
            | ({"profiles": [f"machine-{process.part.machine}"]} if several else {})
            for process in every
        }
    }


def _service(process: ServedProcess, engine: Engine) -> dict[str, Any]:
    gpus, command = process.part.gpus, process.command(engine)
    order = sorted(gpus)
    seen = ",".join(str(order.index(gpu)) for gpu in gpus)  # a container counts its GPUs from 0
    folder = _folder(process)
    volumes = [f"{folder}:{folder}:ro"] if folder else [f"~/.cache/huggingface:{_CACHE}"]
    volumes += [f"./{name}:{WORK_FOLDER}/{name}:ro" for name in command.files]
    device = {"driver": "nvidia", "device_ids": list(map(str, gpus)), "capabilities": ["gpu"]}
    return {
        "image": engine.launcher.image,
        "entrypoint": [word if word.startswith(MASTER) else word.replace("$", "$$") for word in command.words],
        **({"working_dir": WORK_FOLDER} if command.files else {}),
        "environment": {GPU_ORDER: seen, **command.environment, _TOKEN: f"${{{_TOKEN}:-}}", _HOME: _CACHE},
        "network_mode": "host",
        "ipc": "host",
        "ulimits": _ULIMITS,
        "volumes": volumes,
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }


def kubernetes(every: Sequence[ServedProcess], engine: Engine, model: str, weight_bytes: int) -> list[dict[str, Any]]:
    """A Service, a volume for weights, and for every plan a Deployment with as many pods as replicas and their files.

    A pod is on one machine, so every process must be a whole replica.
    """
    assert all(process.is_whole for process in every)
    app = _label(model)
    ports = [{"port": FIRST_PORT, "targetPort": FIRST_PORT}]
    documents = [_document("v1", "Service", app, spec={"selector": {"app": app}, "ports": ports})]
    claim = f"{app}-weights"
    if not _folder(every[0]):
        documents.append(_claim(claim, len(every), weight_bytes))
    kinds = {each.part.kind for each in every}
    for plan in sorted({each.replica.plan for each in every}):
        alike = [each for each in every if each.replica.plan == plan]
        name, command = f"{app}-{plan}", engine.launcher.command(alike[0].launch, FIRST_PORT)
        if command.files:
            documents.append(_document("v1", "ConfigMap", name, data=dict(command.files)))
        pod = _pod(alike[0], engine, command, name, claim)
        if len(kinds) > 1:
            pod["nodeSelector"] = {KIND_LABEL: alike[0].part.kind}
        selected, labels = ({"app": app, "plan": str(plan)} for _ in range(2))  # YAML would name one that is used twice
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {
            "replicas": len(alike),
            "strategy": {"type": "Recreate"},  # all GPUs are in use, so a new pod waits for the old one
            "selector": {"matchLabels": selected},
            "template": template,
        }
        documents.append(_document("apps/v1", "Deployment", name, spec=spec))
    return documents


def _document(version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


def _pod(each: ServedProcess, engine: Engine, command: Command, name: str, claim: str) -> dict[str, Any]:
    """One replica; which GPUs of a node it gets is the choice of Kubernetes."""
    volumes: list[dict[str, Any]] = [{"name": _SHARED_MEMORY["name"], "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": _SHARED_MEMORY["name"], "mountPath": _SHARED_MEMORY["path"]}]
    if folder := _folder(each):
        volumes.append({"name": "model", "hostPath": {"path": folder}})
        mounts.append({"name": "model", "mountPath": folder})
    else:
        volumes.append({"name": "weights", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": "weights", "mountPath": _CACHE})
    if command.files:
        volumes.append({"name": "files", "configMap": {"name": name}})
        mounts.append({"name": "files", "mountPath": WORK_FOLDER})
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    environment: list[Mapping[str, Any]] = [{"name": n, "value": value} for n, value in command.environment.items()]
    container = {
        "name": "engine",
        "image": engine.launcher.image,
        "command": [word.replace("$(", "$$(") for word in command.words],
        **({"workingDir": WORK_FOLDER} if command.files else {}),
        "env": [*environment, {"name": _HOME, "value": _CACHE}, {"name": _TOKEN, "valueFrom": token}],
        "ports": [{"containerPort": FIRST_PORT}],
        "resources": {"limits": {_GPU_RESOURCE: len(each.part.gpus)}},
        "startupProbe": _probe(engine, _START_PROBES),
        "readinessProbe": _probe(engine, 3),
        "livenessProbe": _probe(engine, 12),
        "volumeMounts": mounts,
    }
    tolerated = {"key": _GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
    return {"containers": [container], "tolerations": [tolerated], "volumes": volumes}


def _probe(engine: Engine, n_failures: int) -> dict[str, Any]:
    """A request every ten seconds, which may fail so many times in a row."""
    path = {"path": engine.launcher.ready_path, "port": FIRST_PORT}
    return {"httpGet": path, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": n_failures}


def _claim(name: str, n_replicas: int, n_bytes: int) -> dict[str, Any]:
    """A volume that keeps the weights, which all replicas read and the first of them fetches."""
    access = "ReadWriteOnce" if n_replicas == 1 else "ReadWriteMany"
    size = f"{-(-n_bytes * 5 // 4 // GIB) + 1}Gi"  # a quarter more, for what is beside the weights
    spec = {"accessModes": [access], "resources": {"requests": {"storage": size}}}
    return _document("v1", "PersistentVolumeClaim", name, spec=spec)


def _folder(each: ServedProcess) -> str:
    """The folder of the model on a machine; empty where it is a name on Hugging Face."""
    return each.launch.model if Path(each.launch.model).is_absolute() else ""


def _label(model: str) -> str:
    """A name that Kubernetes accepts: it begins with a letter.

    >>> _label("meta-llama/Meta-Llama-3.1-70B")
    'serve-meta-llama-3-1-70b'
    """
    return "serve-" + re.sub(r"[^a-z0-9]+", "-", Path(model).name.lower()).strip("-")[:40].strip("-")


def dump(content: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """YAML of one document, or of a sequence of documents."""
    import yaml  # of extra gpu

    documents = [content] if isinstance(content, Mapping) else list(content)
    return str(yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False, width=1000))
