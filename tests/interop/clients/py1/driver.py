import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from python import Counted, drive, heard, run


async def main(answers):
    async with streamable_http_client(sys.argv[1]) as (receive, send, _):
        async with ClientSession(Counted(receive, answers), send, logging_callback=heard) as session:
            await session.initialize()
            await drive(session)


run(main)
