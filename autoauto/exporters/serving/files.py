"""Files that start replicas: a script each, one for Docker Compose, one for Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoauto.engines.command import GPU_ORDER, MASTER, Command
from autoauto.engines.engine import Engine
from autoauto.exporters.serving.front import (
    FRONT,
    PodSet,
    front_in_kubernetes,
    front_service,
    has_front,
    pod_sets,
    pool_front,
)
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.exporters.serving.replicas import FIRST_PORT
from autoauto.exporters.serving.router import ROUTER_PORT, router_service
from autoauto.records.units import GIB

COMPOSE_FILE, KUBERNETES_FILE = "compose.yaml", "kubernetes.yaml"
WORK_FOLDER = "/artifact"
"""Where containers find files that their commands read."""
_CACHE = "/huggingface"
_TOKEN, _HOME = "HF_TOKEN", "HF_HOME"
"""Hugging Face's variables: a token, for models that need one, and the folder of what was fetched."""
KIND_LABEL = "autoauto/gpu"
"""The label of a node that says which GPUs it has, where there are several kinds."""
_ADDRESSES = {MASTER[2:-1]: "the first machine of the replica"}
"""What variables of addresses are, but those of machines by their number."""
_POD_ADDRESS = "POD_IP"
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
    blocks = " + ".join(map(str, process.replica.blocks))
    what = f"{process.name} on machine {part.machine}, {len(part.gpus)} {part.kind}; stages of {blocks} blocks."
    gpus = ",".join(map(str, part.gpus))
    return shell_script(what, command._replace(environment={GPU_ORDER: gpus, **command.environment}))


def shell_script(what: str, command: Command) -> str:
    """A script that starts a command, an option a line."""
    given = " ".join([*command.words, *command.environment.values()])
    needs = ""
    for name in sorted(set(re.findall(r"\$\{(\w+)\}", given))):
        whose = _ADDRESSES.get(name) or f"machine {name.split('_')[1]}"
        needs += f': "${{{name}:?is the address of {whose}}}"\n'
    exports = "".join(f"export {name}={value}\n" for name, value in command.environment.items())
    continued = " \\\n  ".join(command.lines)
    return f'#!/bin/sh\n# {what}\nset -eu\ncd "$(dirname "$0")"\n{needs}{exports}exec {continued}\n'


def compose(every: Sequence[ServedProcess], engine: Engine) -> dict[str, Any]:
    """A service a process, and a router; where there are several machines, a profile has the processes of each."""
    several = len({process.part.machine for process in every}) > 1
    return {
        "services": {
            process.name: _service(process, engine)
            | ({"profiles": [f"machine-{process.part.machine}"]} if several else {})
            for process in every
        }
        | router_service(every)
        | front_service(every, engine, WORK_FOLDER)
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
        "entrypoint": [word if "${" in word else word.replace("$", "$$") for word in command.words],
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

    Pods of two pools have names, so that what is in front of them finds them: each plan is a StatefulSet then. A pod is
    on one machine, so every process must be a whole replica.
    """
    assert all(process.is_whole for process in every)
    app, pooled = label(model), has_front(every)
    port = ROUTER_PORT if pooled else FIRST_PORT
    ports = [{"port": FIRST_PORT, "targetPort": port}]
    selector = {"app": app, "plan": FRONT} if pooled else {"app": app}
    documents = [_document("v1", "Service", app, spec={"selector": selector, "ports": ports})]
    claim = f"{app}-weights"
    if not _folder(every[0]):
        documents.append(_claim(claim, len(every), weight_bytes))
    kinds = {each.part.kind for each in every}
    sets = pod_sets(app, every)
    for name, first, n_pods in sets:
        launch = first.launch
        if launch.pool is not None:
            launch = launch._replace(pool=launch.pool._replace(address=f"$({_POD_ADDRESS})"))
        command = engine.launcher.command(launch, FIRST_PORT)
        if command.files:
            documents.append(_document("v1", "ConfigMap", name, data=dict(command.files)))
        pod = _pod(first, engine, command, name, claim)
        if len(kinds) > 1:
            pod["nodeSelector"] = {KIND_LABEL: first.part.kind}
        selected, labels = (
            {"app": app, "plan": str(first.replica.plan)} for _ in range(2)
        )  # YAML would name one that is used twice
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": n_pods, "selector": {"matchLabels": selected}, "template": template}
        if pooled:
            by_name = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": dict(selected)}
            documents.append(_document("v1", "Service", name, spec=by_name))
            own: dict[str, Any] = {"serviceName": name, "podManagementPolicy": "Parallel"}
            documents.append(_document("apps/v1", "StatefulSet", name, spec=own | spec))
        else:  # all GPUs are in use, so a new pod waits for the old one
            recreated = {"strategy": {"type": "Recreate"}} | spec
            documents.append(_document("apps/v1", "Deployment", name, spec=recreated))
    return [*documents, *_front_documents(app, sets, engine)] if pooled else documents


def _front_documents(app: str, sets: Sequence[PodSet], engine: Engine) -> list[dict[str, Any]]:
    """What is in front of two pools: a Deployment of one pod, and the file that it reads."""
    name, command = f"{app}-{FRONT}", front_in_kubernetes(sets, engine)
    container: dict[str, Any] = {
        "name": FRONT,
        "image": pool_front(engine).image,
        "command": list(command.words),
        "ports": [{"containerPort": ROUTER_PORT}],
    }
    pod: dict[str, Any] = {"containers": [container]}
    documents: list[dict[str, Any]] = []
    if command.files:
        documents.append(_document("v1", "ConfigMap", name, data=dict(command.files)))
        container |= {"workingDir": WORK_FOLDER, "volumeMounts": [{"name": "files", "mountPath": WORK_FOLDER}]}
        pod["volumes"] = [{"name": "files", "configMap": {"name": name}}]
    selected, labels = ({"app": app, "plan": FRONT} for _ in range(2))
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": selected}, "template": template}
    return [*documents, _document("apps/v1", "Deployment", name, spec=spec)]


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
    environment: list[Mapping[str, Any]] = []
    if each.launch.pool is not None:  # variables behind it name it
        environment.append({"name": _POD_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    environment += [{"name": n, "value": value} for n, value in command.environment.items()]
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


def label(model: str) -> str:
    """A name that Kubernetes accepts: it begins with a letter.

    >>> label("meta-llama/Meta-Llama-3.1-70B")
    'serve-meta-llama-3-1-70b'
    """
    return "serve-" + re.sub(r"[^a-z0-9]+", "-", Path(model).name.lower()).strip("-")[:40].strip("-")


def dump(content: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """YAML of one document, or of a sequence of documents."""
    import yaml  # of extra gpu

    documents = [content] if isinstance(content, Mapping) else list(content)
    return str(yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False, width=1000))
