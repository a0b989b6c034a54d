"""A member on FastMCP that asks its client things, and tells what becomes of it; it knows nothing of the hall."""

import asyncio
import sys
from pathlib import Path

from fastmcp import Context, FastMCP
from mcp.types import EmptyResult, SamplingMessage, SubscribeRequestParams, TextContent, UnsubscribeRequestParams

mcp = FastMCP("asking")
watching: dict[str, object] = {}
later: set[asyncio.Task] = set()


async def sampled(ctx: Context, prompt: str) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    asked = ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
    return (await asked).content.text


@mcp.tool
async def sample(prompt: str, ctx: Context) -> str:
    """Says what the client's model says."""
    return await sampled(ctx, prompt)


@mcp.tool
async def elicit(question: str, ctx: Context) -> str:
    """Says what the client's user says."""
    return (await ctx.elicit(question, str)).data


@mcp.tool
async def roots(ctx: Context) -> str:
    """Says what the client's roots are."""
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@mcp.tool
async def sample_often(prompt: str, times: int, ctx: Context) -> str:
    """Asks one after the other, and says all answers."""
    return " ".join([await sampled(ctx, f"{prompt} {n}") for n in range(times)])


@mcp.tool
async def sample_later(prompt: str, mark: str, ctx: Context) -> str:
    """Asks when the call is over and MARK.go is there, and writes the answer to MARK.answer."""
    session = ctx.session

    async def ask() -> None:
        while not Path(f"{mark}.go").exists():
            await asyncio.sleep(0.01)
        message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        try:
            answer = (await session.create_message([message], max_tokens=10)).content.text
        except Exception as error:
            answer = repr(error)
        Path(f"{mark}.tmp").write_text(answer)
        Path(f"{mark}.tmp").rename(f"{mark}.answer")

    later.add(asyncio.create_task(ask()))
    return "later"


@mcp.tool
async def change() -> str:
    """Tells all who watch the motto that it has changed; says how many they are."""
    for session in list(watching.values()):
        await session.send_resource_updated("asking://motto")
    return str(len(watching))


@mcp.tool
async def count(to: int, ctx: Context) -> str:
    """Tells how far it has come, and how far it has come at the end."""
    for n in range(1, to + 1):
        await ctx.report_progress(n, to)
    return f"counted to {to}"


@mcp.tool
async def log(level: str, text: str, ctx: Context) -> str:
    """Says it to the log of the client."""
    await ctx.log(text, level=level)
    return "said"


@mcp.tool
async def wait(mark: str, ctx: Context) -> str:
    """Makes MARK.begun, waits for MARK.go, and makes MARK.cancelled if nobody wants to know any more."""
    Path(f"{mark}.begun").touch()
    try:
        while not Path(f"{mark}.go").exists():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        Path(f"{mark}.cancelled").touch()
        raise
    return "went"


@mcp.tool
async def whose(ctx: Context) -> str:
    """The session as this server has it."""
    return ctx.session_id


@mcp.prompt
def greeting(name: str) -> str:
    """Greets somebody."""
    return f"Say hello to {name}"


@mcp.resource("asking://motto")
def motto() -> str:
    """A text."""
    return "ask, and it shall be given"


async def subscribe(ctx, params: SubscribeRequestParams) -> EmptyResult:
    watching[ctx.request.headers["mcp-session-id"]] = ctx.session
    return EmptyResult()


async def unsubscribe(ctx, params: UnsubscribeRequestParams) -> EmptyResult:
    watching.pop(ctx.request.headers["mcp-session-id"], None)
    return EmptyResult()


# FastMCP has no word for it; what it stands on has.
mcp._mcp_server.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
mcp._mcp_server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)


if __name__ == "__main__":
    mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]))
