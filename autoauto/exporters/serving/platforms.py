"""Two pools on platforms that run them on Kubernetes: a graph of Dynamo [dynamo-graph], values of llm-d [llm-d-values].

Both start the same workers as the scripts. They have a front of their own, and tell workers where others are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autoauto.engines.command import Command
from autoauto.engines.engine import Engine
from autoauto.exporters.serving.front import PodSet, pool_front
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.exporters.serving.replicas import FIRST_PORT

DYNAMO_FILE, LLM_D_FILE = "dynamo.yaml", "llm-d-values.yaml"
_TOKEN_SECRET = "hf-token"
_BEHIND_SIDECAR = 8200
"""Where a server of answers listens behind the program that llm-d puts before it."""
_OF_SERVERS = ("--host", "--port")


def platform_files(app: str, sets: Sequence[PodSet], engine: Engine, model: str) -> Mapping[str, Mapping[str, Any]]:
    """The content of files by their names, for the platforms that have the engine; raises as `pool_front`.

    Args:
        app: the name of all together.
        sets: the processes that are alike, and how many.
        engine: of all.
        model: as requests name it.
    """
    front = pool_front(engine)
    files: dict[str, Mapping[str, Any]] = {}
    if front.dynamo is not None:
        files[DYNAMO_FILE] = _graph(app, sets, engine, *front.dynamo)
    if front.llm_d_image:
        files[LLM_D_FILE] = _values(sets, engine, front.llm_d_image, model)
    return files


def _graph(app: str, sets: Sequence[PodSet], engine: Engine, module: str, image: str) -> dict[str, Any]:
    """A DynamoGraphDeployment: what is in front, and a service for every kind of worker."""
    main: dict[str, Any] = {"image": image}
    services: dict[str, Any] = {
        "Frontend": {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": main}}
    }
    for number, each in enumerate(sets):
        role, command = _role(each.process), engine.launcher.command(each.process.launch, FIRST_PORT)
        words = _without(command.words[len(engine.launcher.syntax.program) :], _OF_SERVERS)
        if engine.launcher.syntax.takes_model:  # without an option, which the worker has for it
            words = ["--model", *words]
        if "--disaggregation-mode" not in words:
            words += ["--disaggregation-mode", role]
        variables = [{"name": name, "value": value} for name, value in _variables(each.process, command).items()]
        services[f"{role.capitalize()}Worker{number}"] = {
            "componentType": "worker",
            "subComponentType": role,
            "envFromSecret": _TOKEN_SECRET,
            "replicas": each.n_pods,
            "resources": {"limits": {"gpu": str(len(each.process.part.gpus))}},
            **({"envs": variables} if variables else {}),
            "extraPodSpec": {"mainContainer": {"image": image, "command": ["python3", "-m", module], "args": words}},
        }
    kind = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment"}
    return {**kind, "metadata": {"name": app}, "spec": {"services": services}}


def _values(sets: Sequence[PodSet], engine: Engine, image: str, model: str) -> dict[str, Any]:
    """The values of the chart llm-d-modelservice, which has one kind of pods a pool: that of the most pods."""
    pools: dict[str, dict[str, Any]] = {}
    for each in sorted(sets, key=lambda each: each.n_pods):
        role = _role(each.process)
        port = FIRST_PORT if role == "prefill" else _BEHIND_SIDECAR
        command = engine.launcher.command(each.process.launch, port)
        own = each.process.launch.pool
        assert own is not None
        hosts = [name for name, value in command.environment.items() if value == own.address]
        environment: list[dict[str, Any]] = [
            {"name": name, "value": value} for name, value in command.environment.items() if name not in hosts
        ]
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        environment += [{"name": name, "valueFrom": address} for name in hosts]
        n_gpus = len(each.process.part.gpus)
        container = {
            "name": "engine",
            "image": image,
            "modelCommand": "custom",
            "command": list(command.words[:1]),
            "args": list(command.words[1:]),
            "env": environment,
            "ports": [{"containerPort": port, "protocol": "TCP"}],
            "resources": {"limits": {"nvidia.com/gpu": str(n_gpus)}, "requests": {"nvidia.com/gpu": str(n_gpus)}},
            "mountModelVolume": False,
        }
        pools[role] = {"create": True, "replicas": each.n_pods, "containers": [container]}
    artifacts = {"name": model, "uri": f"hf://{model}", "size": "1Mi", "authSecretName": _TOKEN_SECRET}
    routing = {"servicePort": FIRST_PORT, "proxy": {"targetPort": _BEHIND_SIDECAR, "connector": "nixlv2"}}
    return {"modelArtifacts": artifacts, "routing": routing, **pools}


def _role(process: ServedProcess) -> str:
    return "prefill" if process.replica.is_prefill else "decode"


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Words without some options and their values."""
    left: list[str] = []
    for index, word in enumerate(words):
        if word not in options and (index == 0 or words[index - 1] not in options):
            left.append(word)
    return left


def _variables(process: ServedProcess, command: Command) -> dict[str, str]:
    """Those that do not say where the process is, which Dynamo finds out."""
    own = process.launch.pool
    assert own is not None
    of_itself = (own.address, str(own.port))
    return {name: value for name, value in command.environment.items() if value not in of_itself}
