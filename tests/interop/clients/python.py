"""What the drivers of both Python SDKs share: commands in, one JSON object a line; what the caller of the SDK sees out,
the same way."""

import json
import sys
import time

import anyio


def say(line):
    print(json.dumps(line, default=str), flush=True)


def failure(error):
    """What is the SDK's own in an exception, as far as it says."""
    told = getattr(error, "error", None)
    return {
        "say": "error",
        "kind": type(error).__name__,
        "code": getattr(told, "code", None),
        "message": str(error)[:400],
        "data": getattr(told, "data", None),
    }


def leaves(error):
    """The exceptions in a group, however deep."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [f"{type(error).__name__}: {error}"[:400]]


class Counted:
    """The transport's receiving end. Counts the answers that come out of it: the session keeps to itself that one came
    twice."""

    def __init__(self, stream, answers):
        self._stream = stream
        self._answers = answers

    def __getattr__(self, name):
        return getattr(self._stream, name)

    async def __aenter__(self):
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error):
        return await self._stream.__aexit__(*error)

    def __aiter__(self):
        return self

    async def __anext__(self):
        item = await self._stream.__anext__()
        message = getattr(item, "message", None)
        message = getattr(message, "root", message)
        if getattr(message, "id", None) is not None and not hasattr(message, "method"):
            self._answers[message.id] = self._answers.get(message.id, 0) + 1
        return item


async def heard(params):
    say({"say": "heard", "text": params.data})


async def _call(session, command):
    key, began = command["key"], time.monotonic()

    async def progress(step, *_):
        say({"say": "progress", "key": key, "step": step})

    def ms():
        return round((time.monotonic() - began) * 1000)

    try:
        result = await session.call_tool(command["tool"], command.get("arguments") or {}, progress_callback=progress)
    except Exception as error:
        say({**failure(error), "key": key, "ms": ms()})
    else:
        text = getattr(result.content[0], "text", None) if result.content else None
        is_error = getattr(result, "is_error", getattr(result, "isError", False))
        say({"say": "result", "key": key, "text": text, "is_error": is_error, "ms": ms()})


async def drive(session):
    say({"say": "ready"})
    async with anyio.create_task_group() as calls:
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            command = json.loads(line)
            if command["do"] == "close":
                break
            # Calls run side by side, as a host's do.
            calls.start_soon(_call, session, command)
        calls.cancel_scope.cancel()


def run(main):
    """Runs `main` with a table for the answers, and says how it ended."""
    answers = {}
    try:
        anyio.run(main, answers)
    except BaseException as error:
        say({"say": "transport_closed", "errors": leaves(error)})
    say({"say": "closed", "answers": list(answers.items())})
