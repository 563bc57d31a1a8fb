"""The tools over stdin and stdout of this process, by the protocol's own package: `serve_tools`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from autoauto.records.errors import AutoautoError
from autoauto.records.installation import VERSION
from autoauto.server.client import Client
from autoauto.server.mcp.tools import TOOLS, Tool

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult

_INSTRUCTIONS = (
    "Find the configuration of a cluster of devices with the highest throughput for a model: `search` asks, `wait` has "
    "the answer, `explain` says why, `export` writes what starts it. Numbers say whether they are estimated, "
    "simulated, modelled or measured; repeat that where you show them."
)


def serve_tools(client: Client, log: Callable[[str], None]) -> None:
    """Answer a client of the protocol until it closes stdin."""
    import anyio
    from mcp.server.stdio import stdio_server

    server = tool_server(client, log)

    async def run() -> None:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())

    anyio.run(run)


def tool_server(client: Client, log: Callable[[str], None]) -> Server[Any]:
    """The tools as a server of the protocol, without a transport."""
    from mcp import types
    from mcp.server.lowlevel import Server

    tools = {tool.name: tool for tool in TOOLS}

    async def list_tools(_context: Any, _parameters: Any) -> types.ListToolsResult:
        listed = []
        for tool in TOOLS:
            hints = types.ToolAnnotations(read_only_hint=tool.is_read_only, destructive_hint=False)
            name, about = tool.name, tool.description
            listed.append(types.Tool(name=name, description=about, input_schema=tool.schema, annotations=hints))
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(parameters.name)
        if tool is None:
            return _failed(f"tools here are {', '.join(tools)}, got {parameters.name!r:.80}")
        try:
            answer = await _called(tool, client, parameters.arguments or {}, context)
        except AutoautoError as error:
            return _failed(" ".join(str(error).split()))
        except OSError as error:  # of the folder of an export
            return _failed(f"{error.filename or tool.name}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 (one call must not end the others)
            log(f"{tool.name}: {error!r}")
            return _failed(f"{tool.name} failed; the stderr of `autoauto mcp` has the reason")
        text = types.TextContent(type="text", text=json.dumps(answer, indent=1))
        return types.CallToolResult(content=[text], structured_content=answer)

    return Server(
        "autoauto", version=VERSION, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def _called(tool: Tool, client: Client, given: dict[str, Any], context: Any) -> dict[str, Any]:
    """Call the server of searches in a thread, which may report how a search goes meanwhile."""
    import anyio

    n_reports = 0

    def report(line: str) -> None:
        nonlocal n_reports
        n_reports += 1
        anyio.from_thread.run(partial(context.session.report_progress, n_reports, None, line))

    call = partial(tool.call, client, given, report)
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


def _failed(message: str) -> CallToolResult:
    from mcp import types

    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)
