"""Dice on FastMCP."""

import errno
import random
import re
import signal
import socket
import sys
from typing import Annotated, Literal

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from pydantic import BaseModel, Field

dice = FastMCP("dice", version="0.1.0")


class Rolled(BaseModel):
    rolls: list[int]
    modifier: int
    total: int


class Flipped(BaseModel):
    side: Literal["heads", "tails"]


def parse(notation: str) -> tuple[int, int, int]:
    match = re.fullmatch(r"([0-9]{0,3})d([0-9]{1,4})([+-][0-9]{1,4})?", notation, re.IGNORECASE)
    if match:
        count, sides, modifier = int(match[1] or 1), int(match[2]), int(match[3] or 0)
        if 1 <= count <= 100 and 2 <= sides <= 1000 and abs(modifier) <= 1000:
            return count, sides, modifier
    raise ToolError(
        f'cannot roll "{notation}": write 2d6+1; 1-100 dice, 2-1000 sides, at most 1000 more or less'
    )


@dice.tool(output_schema=Rolled.model_json_schema())
def roll(notation: Annotated[str, Field(description="such as d20, 2d6+1 or 4d8-2")]):
    """Roll dice. 2d6+1 means two six-sided dice and one more."""
    count, sides, modifier = parse(notation)
    rolls = [random.randint(1, sides) for _ in range(count)]
    total = sum(rolls) + modifier
    return ToolResult(
        content=f"{notation} = {total} {rolls}",
        structured_content=Rolled(rolls=rolls, modifier=modifier, total=total),
    )


@dice.tool(output_schema=Flipped.model_json_schema())
def flip():
    """Flip a coin."""
    side = random.choice(("heads", "tails"))
    return ToolResult(content=side, structured_content=Flipped(side=side))


def main():
    # Contract 1: the port comes in the arguments, where the hall put it in place of ${PORT}.
    # Not argparse: it exits with 2 on a wrong argument, and to the hall 2 means that the port is taken.
    port = int(sys.argv[sys.argv.index("--port") + 1])

    # Contract 3: 0 when asked to stop; uvicorn stops in good order, then raises the signal again. 2 if the port
    # is taken, so that the hall tries another; uvicorn exits with 1 there, so we bind. 1 on any other error,
    # which is what Python does by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        print(f"cannot listen: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    # Connections inherit it. Asyncio sets it only where it made the socket; without it an answer waits 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # Contract 2: MCP over POST /mcp, on 127.0.0.1 alone. Without sessions: a hall that restarts finds this
    # process and goes on with it.
    dice.run(
        "http",
        sockets=[listener],
        path="/mcp",
        stateless_http=True,
        json_response=True,
        host_origin_protection=True,
        show_banner=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
