"""Two pools as a graph of Dynamo [dynamo-graph]: the workers of the scripts, which learn addresses from Dynamo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoauto.engines.command import Command
from autoauto.exporters.serving.files import TOKEN_SECRET, label
from autoauto.exporters.serving.front import has_front, pod_sets, pool_front, role_of
from autoauto.exporters.serving.launches import ServedProcess
from autoauto.exporters.serving.platforms.kubernetes import starts_pods
from autoauto.exporters.serving.platforms.platform import Platform, Started
from autoauto.exporters.serving.replicas import FIRST_PORT

_OF_SERVERS = ("--host", "--port")


def _graph(started: Started) -> dict[str, Any]:
    app, engine = label(started.model), started.engine
    sets, of_engine = pod_sets(app, started.processes), pool_front(engine).dynamo
    assert of_engine is not None
    module, image = of_engine
    main: dict[str, Any] = {"image": image}
    services: dict[str, Any] = {
        "Frontend": {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": main}}
    }
    for number, each in enumerate(sets):
        role, command = role_of(each.process), engine.launcher.command(each.process.launch, FIRST_PORT)
        words = _without(command.words[len(engine.launcher.syntax.program) :], _OF_SERVERS)
        if engine.launcher.syntax.takes_model:  # without an option, which the worker has for it
            words = ["--model", *words]
        if "--disaggregation-mode" not in words:
            words += ["--disaggregation-mode", role]
        variables = [{"name": name, "value": value} for name, value in _variables(each.process, command).items()]
        worker: dict[str, Any] = {
            "componentType": "worker",
            "subComponentType": role,
            "envFromSecret": TOKEN_SECRET,
            "replicas": each.n_pods,
            "resources": {"limits": {"gpu": str(len(each.process.part.gpus))}},
        }
        if variables:
            worker["envs"] = variables
        container = {"image": image, "command": ["python3", "-m", module], "args": words}
        services[f"{role.capitalize()}Worker{number}"] = worker | {"extraPodSpec": {"mainContainer": container}}
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": app},
        "spec": {"services": services},
    }


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    left: list[str] = []
    for index, word in enumerate(words):
        if word not in options and (index == 0 or words[index - 1] not in options):
            left.append(word)
    return left


def _variables(process: ServedProcess, command: Command) -> dict[str, str]:
    """The variables of a process, without those with its own address and port: Dynamo sets these."""
    own = process.launch.pool
    assert own is not None
    of_itself = (own.address, str(own.port))
    return {name: value for name, value in command.environment.items() if value not in of_itself}


def _starts(started: Started) -> bool:
    return has_front(started.processes) and starts_pods(started) and pool_front(started.engine).dynamo is not None


PLATFORM = Platform("dynamo.yaml", "", starts=_starts, content=_graph)
