"""The description of a server at `/`: JSON for programs, a page for browsers."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from autoauto.http.responses import json_response
from autoauto.records.installation import VERSION
from autoauto.records.units import format_number
from autoauto.serve.artifact import ServedModel

if TYPE_CHECKING:
    from aiohttp import web

_PROTOCOL = "Open Inference Protocol (KServe v2), REST"


def root_response(model: ServedModel, base: str, accept: str, *, is_ready: bool) -> web.Response:
    """The answer to a request of `/`."""
    from aiohttp import web

    url = f"{base}/v2/models/{model.name}"
    facts: dict[str, Any] = {
        "server": f"autoauto {VERSION}",
        "model": model.name,
        "ready": is_ready,
        "protocol": _PROTOCOL,
        "inputs": [port.metadata for port in model.inputs],
        "outputs": [port.metadata for port in model.outputs],
        "batch_size": model.batch_size,
        "plan_samples_per_s": model.samples_per_s,
        "plan_origin": str(model.origin),
        "links": {
            "model": url,
            "infer": f"{url}/infer",
            "ready": f"{base}/v2/health/ready",
            "metrics": f"{base}/metrics",
        },
    }
    if "text/html" in accept:
        return web.Response(text=_page(facts), content_type="text/html")
    return json_response(facts)


def _page(facts: dict[str, Any]) -> str:
    state = "ready" if facts["ready"] else "not ready"
    inputs = ", ".join(f"{port['name']}, {port['datatype']} {port['shape']}" for port in facts["inputs"])
    links = ""
    for name, url in facts["links"].items():
        links += f"<li>{escape(name)}: <a href='{escape(url)}'>{escape(url)}</a></li>"
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(facts['model'])}</title>"
        f"<h1>{escape(facts['model'])}</h1><p>Served by {escape(facts['server'])}, {state}: {escape(_PROTOCOL)}. "
        f"Batch size {facts['batch_size']}; the plan gives {format_number(facts['plan_samples_per_s'])} samples/s "
        f"({escape(facts['plan_origin'])}). Requests are sent to <code>POST {escape(facts['links']['infer'])}</code>, "
        f"with inputs {escape(inputs)}.</p><ul>{links}</ul>"
        f"<p><code>autoauto bench {escape(facts['links']['model'])}</code> measures it.</p></html>"
    )
