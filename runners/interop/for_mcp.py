"""`Calls` over the Model Context Protocol, by the official SDK (extra `mcp`), on standard input and output."""

import signal
from collections.abc import Callable
from importlib import metadata
from typing import NoReturn

import anyio
import mcp_types as types
from anyio.abc import TaskStatus
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from runners.interop.mcp_calls import BEGIN, Calls


def server_of(calls: Calls) -> Server:
    """A server for one client: episodes are played one after the other."""
    tools = [
        types.Tool(name=one["name"], description=one["description"], input_schema=one["parameters"])
        for one in (tool["function"] for tool in calls.tools)
    ]
    turns = anyio.Lock()

    async def list_tools(
        context: ServerRequestContext, page: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: ServerRequestContext, call: types.CallToolRequestParams) -> types.CallToolResult:
        async with turns:  # a step may take seconds: meanwhile other messages are answered
            reply = await anyio.to_thread.run_sync(calls.call, call.name, call.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(text=reply.text)],
            structured_content=dict(reply.episode) or None,
            is_error=reply.refused,
        )

    return Server(
        f"turnwise {calls.env.name}",
        version=metadata.version("turnwise"),
        instructions=f"{calls.instructions}\nCall {BEGIN} first.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve(calls: Calls, end: Callable[[int], NoReturn]) -> None:
    """Answers until the client closes the standard input; `end` is called with the number of SIGINT or SIGTERM."""
    server = server_of(calls)
    async with anyio.create_task_group() as beside:
        await beside.start(_end_by_signal, end)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        beside.cancel_scope.cancel()


async def _end_by_signal(end: Callable[[int], NoReturn], *, task_status: TaskStatus[None]) -> None:
    """By the event loop: a handler of Python's own has to wait until a loop that waits for a message wakes."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as numbers:
        task_status.started()
        async for number in numbers:
            end(number)
