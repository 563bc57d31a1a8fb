"""Kubernetes: pods of whole replicas, a volume with the weights, and a Service in front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoauto.engines.command import Command
from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import Check
from autoauto.exporters.serving.files import (
    CACHE_FOLDER,
    HOME_VARIABLE,
    TOKEN_SECRET,
    TOKEN_VARIABLE,
    WORK_FOLDER,
    folder_of,
    label,
    read_yaml,
)
from autoauto.exporters.serving.front import FRONT, PodSet, front_in_kubernetes, has_front, pod_sets, pool_front
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.exporters.serving.platforms.platform import Platform, ReadBack, Started, counted
from autoauto.exporters.serving.replicas import FIRST_PORT
from autoauto.exporters.serving.router import ROUTER_PORT
from autoauto.records.units import GIB

FILE = "kubernetes.yaml"
KIND_LABEL = "autoauto/gpu"
"""The label of a node that says which GPUs it has, where there are several kinds."""
_POD_ADDRESS = "POD_IP"
_SHARED_MEMORY = {"name": "shared-memory", "path": "/dev/shm"}
_GPU_RESOURCE = "nvidia.com/gpu"
"""Of a node, and the taint that keeps other pods from it."""
_START_PROBES = 360
"""An hour, in which weights are fetched and loaded."""


def _documents(started: Started) -> list[dict[str, Any]]:
    """A Service, a volume for weights, and for every plan a Deployment with as many pods as replicas and their files.

    Pods of two pools have names, so that what is in front of them finds them: each plan is a StatefulSet then. A pod is
    on one machine, so every process must be a whole replica.
    """
    every, engine, model, weight_bytes = started
    app, pooled = label(model), has_front(every)
    port = ROUTER_PORT if pooled else FIRST_PORT
    ports = [{"port": FIRST_PORT, "targetPort": port}]
    selector = {"app": app, "plan": FRONT} if pooled else {"app": app}
    documents = [_document("v1", "Service", app, spec={"selector": selector, "ports": ports})]
    claim = f"{app}-weights"
    if not folder_of(every[0]):
        # A volume for the weights, which the first replica fetches and all replicas read.
        access = "ReadWriteOnce" if len(every) == 1 else "ReadWriteMany"
        size = f"{-(-weight_bytes * 5 // 4 // GIB) + 1}Gi"  # a quarter more, for what is beside the weights
        volume = {"accessModes": [access], "resources": {"requests": {"storage": size}}}
        documents.append(_document("v1", "PersistentVolumeClaim", claim, spec=volume))
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
        labels = {"app": app, "plan": str(first.replica.plan)}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": n_pods, "selector": {"matchLabels": labels}, "template": template}
        if pooled:
            by_name = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
            documents.append(_document("v1", "Service", name, spec=by_name))
            own: dict[str, Any] = {"serviceName": name, "podManagementPolicy": "Parallel"}
            documents.append(_document("apps/v1", "StatefulSet", name, spec=own | spec))
        else:  # all GPUs are in use, so a new pod waits for the old one
            recreated = {"strategy": {"type": "Recreate"}} | spec
            documents.append(_document("apps/v1", "Deployment", name, spec=recreated))
    if pooled:
        documents += _front_documents(app, sets, engine)
    return documents


def _front_documents(app: str, sets: Sequence[PodSet], engine: Engine) -> list[dict[str, Any]]:
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
    labels = {"app": app, "plan": FRONT}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    documents.append(_document("apps/v1", "Deployment", name, spec=spec))
    return documents


def _document(version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


def _pod(each: ServedProcess, engine: Engine, command: Command, name: str, claim: str) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": _SHARED_MEMORY["name"], "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": _SHARED_MEMORY["name"], "mountPath": _SHARED_MEMORY["path"]}]
    folder = folder_of(each)
    if folder:
        volumes.append({"name": "model", "hostPath": {"path": folder}})
        mounts.append({"name": "model", "mountPath": folder})
    else:
        volumes.append({"name": "weights", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": "weights", "mountPath": CACHE_FOLDER})
    if command.files:
        volumes.append({"name": "files", "configMap": {"name": name}})
        mounts.append({"name": "files", "mountPath": WORK_FOLDER})
    token = {"secretKeyRef": {"name": TOKEN_SECRET, "key": "token", "optional": True}}
    environment: list[Mapping[str, Any]] = []
    if each.launch.pool is not None:  # variables behind it name it
        environment.append({"name": _POD_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    environment += [{"name": n, "value": value} for n, value in command.environment.items()]
    environment.append({"name": HOME_VARIABLE, "value": CACHE_FOLDER})
    environment.append({"name": TOKEN_VARIABLE, "valueFrom": token})
    container: dict[str, Any] = {
        "name": "engine",
        "image": engine.launcher.image,
        "command": [word.replace("$(", "$$(") for word in command.words],  # Kubernetes replaces $(NAME)
    }
    if command.files:
        container["workingDir"] = WORK_FOLDER
    container |= {
        "env": environment,
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
    """A probe every ten seconds, which may fail `n_failures` times in a row."""
    path = {"path": engine.launcher.ready_path, "port": FIRST_PORT}
    return {"httpGet": path, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": n_failures}


def _checks(started: Started, read: ReadBack) -> Iterator[Check]:
    scripts, engine = read.scripts, started.engine
    commands: list[tuple[dict[str, Any], int]] = []
    for document in read_yaml(read.folder / FILE):
        is_front = document["metadata"]["name"].endswith(f"-{FRONT}")
        if document["kind"] not in ("Deployment", "StatefulSet") or is_front:
            continue
        spec = document["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        n_gpus = container["resources"]["limits"][_GPU_RESOURCE]
        commands += [(_of_a_plan(engine, container["command"]), n_gpus)] * spec["replicas"]
    expected: list[tuple[dict[str, Any], int]] = []
    for process in sorted(started.processes, key=lambda each: each.replica.plan):  # as the documents are
        if process.name in scripts:
            expected.append((_of_a_plan(engine, scripts[process.name].words), len(process.part.gpus)))
    yield Check(f"{FILE} starts the commands of the scripts", commands == expected, counted(len(commands), "pod"))


def _of_a_plan(engine: Engine, words: Sequence[str]) -> dict[str, Any]:
    """The options of a command that do not depend on where it runs."""
    options = engine.launcher.syntax.parse(words)
    return {name: value for name, value in options.items() if name not in engine.launcher.own_options}


def starts_pods(started: Started) -> bool:
    """True if every process is a whole replica: a pod is on one machine."""
    return all(process.is_whole for process in started.processes)


PLATFORM = Platform(FILE, f"kubectl apply -f {FILE}", starts=starts_pods, content=_documents, checks=_checks)
