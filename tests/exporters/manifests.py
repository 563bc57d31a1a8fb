"""What documents of Kubernetes and services of Compose refer to is there: `check_documents`, `check_services`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def check_documents(documents: Sequence[Mapping[str, Any]]) -> None:
    """Volumes, files, claims, labels and ports that a document names are in it or in another one, and none twice."""
    names = {kind: [each["metadata"]["name"] for each in documents if each["kind"] == kind] for kind in KINDS}
    assert sum(map(len, names.values())) == len(documents)
    assert all(len({*each}) == len(each) for each in names.values())
    pods = [each["spec"]["template"] for each in documents if each["kind"] in ("Deployment", "StatefulSet")]
    files, claims = [], set()
    for pod in pods:
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        for container in pod["spec"]["containers"]:
            mounts = container.get("volumeMounts", ())
            assert sorted(each["name"] for each in mounts) == sorted(volumes)
            paths = {each["name"]: each["mountPath"] for each in mounts}
            assert len({*paths.values()}) == len(paths)
            assert container.get("workingDir") == paths.get("files")
            variables = [each["name"] for each in container.get("env", ())]
            assert len({*variables}) == len(variables)
        files += [each["configMap"]["name"] for each in volumes.values() if "configMap" in each]
        claims |= {each["persistentVolumeClaim"]["claimName"] for each in volumes.values() if CLAIM in each}
        for each in volumes.values():
            folder = each.get("hostPath", {}).get("path")
            assert folder in (None, paths[each["name"]])
    assert sorted(files) == sorted(names["ConfigMap"])
    assert sorted(claims) == names["PersistentVolumeClaim"]
    for each in documents:
        if each["kind"] in ("Deployment", "StatefulSet"):
            assert each["spec"]["selector"]["matchLabels"] == each["spec"]["template"]["metadata"]["labels"]
        if each["kind"] == "Service":
            wanted = each["spec"]["selector"].items()
            chosen = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
            assert chosen
            for pod in chosen:
                open_ports = {port["containerPort"] for own in pod["spec"]["containers"] for port in own["ports"]}
                assert {port["targetPort"] for port in each["spec"].get("ports", ())} <= open_ports


KINDS = ("Service", "PersistentVolumeClaim", "ConfigMap", "Deployment", "StatefulSet")
CLAIM = "persistentVolumeClaim"


def check_services(services: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Files that a service mounts are in the folder of the artifact, and where its command begins."""
    for service in services.values():
        for volume in service.get("volumes", ()):
            outside, inside, *_ = volume.split(":")
            if outside.startswith("./"):
                assert (folder / outside).is_file()
                assert inside.startswith("/etc/") or Path(inside).parent == Path(service["working_dir"])
