"""A server on the official Python SDK whose tools depend on their session: python server.py PORT."""

import sys
from collections import defaultdict

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("notebook")
notebooks: defaultdict[str, list[str]] = defaultdict(list)


@server.tool()
async def append(text: str, context: Context) -> str:
    """Appends a line and tells all lines of this session."""
    lines = notebooks[context.request_context.request.headers["mcp-session-id"]]
    lines.append(text)
    return "|".join(lines)


@server.tool()
async def count(steps: int, context: Context) -> str:
    """Tells of its progress step by step."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps)
    return f"{steps} steps"


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
