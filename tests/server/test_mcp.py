"""A client of the protocol's own package uses the tools: by stdin and stdout of the command, on a real server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import main
from autoauto.server.client import connect
from autoauto.server.mcp.stdio import tool_server
from autoauto.server.mcp.tools import TOOLS
from tests.server.conftest import ROOT, Start, small

CLOSED = "http://127.0.0.1:9"
"""Where no server is."""


@pytest.fixture(scope="module", autouse=True)
def mcp() -> Any:
    """The protocol's package; it is imported by the first test, not by every process that collects tests."""
    return pytest.importorskip("mcp")


def with_client(target: Any, use: Callable[[Any], Awaitable[None]]) -> None:
    """Let a client of the protocol use a server of it, which is a command or an object."""
    from mcp import Client

    async def run() -> None:
        async with Client(target) as client:
            await use(client)

    asyncio.run(run())


def tools_of(url: str) -> Any:
    """The tools in this process."""
    return tool_server(connect(url, "x", patience_s=0.0), pytest.fail)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_four_calls_ask_wait_explain_and_export(sqlite_storage: str, start: Start, tmp_path: Path, mcp: Any) -> None:
    server = start(sqlite_storage)
    token = server.caller("mary").token or ""
    command = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "autoauto", "mcp", "--server", server.url],
        env={**os.environ, "AUTOAUTO_TOKEN": token},
        cwd=ROOT,
    )
    reports: list[str | None] = []

    async def report(_number: float, _total: float | None, message: str | None) -> None:
        reports.append(message)

    async def use(client: Any) -> None:
        async def answer(name: str, **arguments: object) -> dict[str, Any]:
            result = await client.call_tool(name, arguments, progress_callback=report)
            assert not result.is_error, result.content
            assert json.loads(result.content[0].text) == result.structured_content
            return dict(result.structured_content)

        def asked(batch_size: int) -> dict[str, Any]:
            repeats = small(batch_size).pop("repeats")
            given = {name: small(batch_size)[name] for name in ("cluster", "space")}
            return {"model": "resnet50", **given, "options": {"repeats": repeats}}

        search_id = (await answer("search", **asked(4)))["id"]
        waited = await answer("wait", search_id=search_id, seconds=240)
        assert waited["state"] == "finished"
        assert waited["best"]["samples_per_s"] > 0
        assert "samples/s on 1 device, modelled" in waited["answer"]
        explained = await answer("explain", search_id=search_id[:8])
        assert "Why this one" in explained["explanation"]
        export = {"search_id": search_id, "to": "onnx", "folder": str(tmp_path / "new")}
        exported = await answer("export", **export)
        names = {file["name"] for file in exported["files"]}
        assert {"pipeline.json", "README.md"} <= names
        assert names == {path.name for path in (tmp_path / "new").iterdir()}

        other = await answer("search", **asked(2))
        await answer("wait", search_id=other["id"], seconds=240)
        compared = await answer("compare", first=search_id, second=other["id"])
        assert {"name": "batch_size", "first": 4, "second": 2} in compared["knobs_that_differ"]
        (speed,) = [each for each in compared["numbers"] if each["name"] == "samples_per_s"]
        assert speed["second_is_more_percent"] == pytest.approx(100 * (speed["second"] / speed["first"] - 1))
        assert [each["id"] for each in (await answer("list_searches"))["searches"]] == [other["id"], search_id]

        again = await client.call_tool("export", export)
        assert again.is_error
        assert "must be new or empty" in again.content[0].text
        wrong = await client.call_tool("search", {"model": "resnet50", "cluster": "nosuch"})
        assert wrong.is_error
        assert "a cluster is" in wrong.content[0].text
        assert "\n" not in wrong.content[0].text

    with_client(command, use)
    assert all(message and message.startswith(("waiting", "running")) for message in reports)


def test_tools_have_typed_arguments_and_descriptions() -> None:
    async def use(client: Any) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == {tool.name for tool in TOOLS}
        schema = listed["search"].input_schema
        assert schema["required"] == ["model"]
        assert schema["additionalProperties"] is False
        assert all(each["description"] for tool in listed.values() for each in tool.input_schema["properties"].values())
        assert not listed["export"].annotations.read_only_hint
        assert listed["explain"].annotations.read_only_hint
        clusters = await client.call_tool("list_clusters", {})
        assert "bow-2000" in clusters.structured_content["clusters"]

    with_client(tools_of(CLOSED), use)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search", {}, "missing required field `model`"),
        ("search", {"model": "resnet50", "batch": 3}, "unknown field `batch`"),
        ("search", {"model": "missing.onnx"}, "there is no file 'missing.onnx'; check the path"),
        ("wait", {"search_id": "0123456789", "seconds": -1}, "`float` >= 0.0 - at `$.seconds`"),
        ("explain", {"search_id": "0123456789"}, f"{CLOSED} must answer, it does not: Connection refused"),
        ("predict", {}, "tools here are search, wait, explain, compare, export"),
    ],
)
def test_an_error_is_one_line(tool: str, arguments: dict[str, Any], message: str) -> None:
    async def use(client: Any) -> None:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        (content,) = result.content
        assert message in content.text
        assert "\n" not in content.text

    with_client(tools_of(CLOSED), use)


def test_the_command_needs_a_server_and_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUTOAUTO_SERVER", raising=False)
    assert main(["mcp"]) == 2
    assert "--server must name a server of searches, got none" in capsys.readouterr().err
    monkeypatch.setattr("autoauto.cli.commands.mcp.find_spec", lambda _: None)
    assert main(["mcp", "--server", CLOSED]) == 2
    assert "needs the extra mcp; try: " in capsys.readouterr().err
