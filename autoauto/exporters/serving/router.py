"""One address for all replicas of a machine, by nginx: its configuration, and its service beside theirs.

requests ──▶ nginx :8080 ──▶ :8000 replica 0
                        ╰──▶ :8001 replica 1      the one with the fewest requests in flight is next
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoauto.exporters.exporter import Check
from autoauto.exporters.serving.launches import ServedProcess

ROUTER = "router"
"""The name of the service."""
ROUTER_FILE = "nginx.conf"
ROUTER_PORT = 8080
_IMAGE = "nginx:stable-alpine"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""Folders that nginx makes when it starts; by default they belong to root."""


def routed_ports(every: Sequence[ServedProcess]) -> tuple[int, ...]:
    """The ports of the replicas that one router has; none of one replica, of several machines, or of two pools."""
    if len({process.part.machine for process in every}) > 1 or len(every) < 2 or every[0].launch.pool:
        return ()
    return tuple(process.replica.port for process in every)


def nginx_configuration(ports: Sequence[int], port: int = ROUTER_PORT) -> str:
    """The configuration of nginx in the foreground, for any user, on `port`; replicas have `ports` of this machine."""
    servers = "".join(f"    server 127.0.0.1:{each};\n" for each in ports)
    folders = "".join(f"  {name}_temp_path /tmp/nginx-{port}-{name};\n" for name in _TEMPORARY)
    return (
        f"daemon off;\npid /tmp/nginx-{port}.pid;\nerror_log stderr;\nevents {{ worker_connections 8192; }}\n"
        f"http {{\n  access_log off;\n{folders}"
        f"  upstream replicas {{\n    least_conn;\n{servers}    keepalive 256;\n  }}\n"
        f"  server {{\n    listen {port};\n    client_max_body_size 0;\n    location / {{\n"
        "      proxy_pass http://replicas;\n"
        '      proxy_http_version 1.1;\n      proxy_set_header Connection "";\n      proxy_set_header Host $host;\n'
        "      proxy_buffering off;  # tokens are streamed\n"
        "      proxy_connect_timeout 5s;\n      proxy_read_timeout 1h;\n      proxy_send_timeout 1h;\n    }\n  }\n}\n"
    )


def router_service(every: Sequence[ServedProcess]) -> dict[str, Any]:
    """The service of Docker Compose by its name; none where there is no router."""
    if not routed_ports(every):
        return {}
    path = f"/etc/nginx/{ROUTER_FILE}"
    service = {
        "image": _IMAGE,
        "command": ["nginx", "-c", path],
        "network_mode": "host",
        "volumes": [f"./{ROUTER_FILE}:{path}:ro"],
        "depends_on": [process.name for process in every],
        "restart": "unless-stopped",
    }
    return {ROUTER: service}


def router_line(every: Sequence[ServedProcess]) -> str:
    """The lines of README on the router; empty where there is none."""
    if not routed_ports(every):
        return ""
    return (
        f"\n\nOne address has all replicas: port {ROUTER_PORT}, by nginx, which gives a request to the replica with "
        f"the fewest.\nDocker Compose starts it, too; beside the scripts it is started by\n\n"
        f'    nginx -c "$PWD/{ROUTER_FILE}"\n'
    )


def router_checks(every: Sequence[ServedProcess], folder: Path, services: Mapping[str, Any]) -> list[Check]:
    """Whether the router has every replica; nothing is started."""
    ports = routed_ports(every)
    if not ports:
        return []
    same = (folder / ROUTER_FILE).read_text(encoding="utf-8") == nginx_configuration(ports)
    same = same and services.get(ROUTER) == router_service(every)[ROUTER]
    return [Check(f"{ROUTER_FILE} has every replica", same, f"{len(ports)} replicas behind port {ROUTER_PORT}")]
