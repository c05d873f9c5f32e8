import sys
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from python import Counted, drive, heard, run


@asynccontextmanager
async def counted(answers):
    async with streamable_http_client(sys.argv[1]) as (receive, send):
        yield Counted(receive, answers), send


async def main(answers):
    # The default, "auto", begins with a probe for the era without sessions.
    async with Client(counted(answers), mode="legacy", logging_callback=heard) as client:
        await drive(client)


run(main)
