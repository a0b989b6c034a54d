"""A client built on the Python SDK, old or new: does what it is told on its standard input, a JSON object a line,
and says what comes of it on its standard output. client.mjs, its sister, has the words.

    python client.py legacy|2026-07-28
"""

import asyncio
import contextlib
import json
import sys
from contextlib import AsyncExitStack

import mcp.types as types
from mcp import ClientSession

ERA = sys.argv[1]
try:
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client
except ImportError:
    from datetime import timedelta

    from mcp.client.streamable_http import streamablehttp_client

    Client = None


def say(fact):
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class One:
    """The client, from `connect` to `close`."""

    def __init__(self):
        self.stack = AsyncExitStack()
        self.session = None
        self.calls = {}
        self.listening = {}
        self.session_id = None
        self.meta = {}

    async def connect(self, *, url, token, name, answers, **_):
        async def sample(context, params):
            say({"asked": "sampling/createMessage", "params": plain(params)})
            content = types.TextContent(type="text", text=answers["sampling"])
            return types.CreateMessageResult(role="assistant", model="none", content=content)

        async def elicit(context, params):
            say({"asked": "elicitation/create", "params": plain(params)})
            return types.ElicitResult(action="accept", content={"value": answers["elicitation"]})

        async def roots(context):
            say({"asked": "roots/list"})
            return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in answers["roots"]])

        async def heard(message):
            if isinstance(message, Exception):
                return say({"trouble": repr(message)})
            message = getattr(message, "root", message)
            if isinstance(getattr(message, "method", None), str) and message.method.startswith("notifications/"):
                if message.method != "notifications/progress":
                    params = plain(message.params) if message.params else None
                    say({"heard": message.method.removeprefix("notifications/"), "params": params})

        callbacks = {
            "sampling_callback": sample if "sampling" in answers else None,
            "elicitation_callback": elicit if "elicitation" in answers else None,
            "list_roots_callback": roots if "roots" in answers else None,
            "message_handler": heard,
            "client_info": types.Implementation(name=name, version="1"),
        }
        headers = {"Authorization": f"Bearer {token}"}
        if Client is None:
            streams = await self.stack.enter_async_context(streamablehttp_client(url, headers=headers))
            self.session = await self.stack.enter_async_context(ClientSession(*streams[:2], **callbacks))
            settled = await self.session.initialize()
            self.session_id = streams[2]
            return {
                "session": streams[2](),
                "protocol": settled.protocolVersion,
                "capabilities": plain(settled.capabilities),
            }
        import httpx2

        asked = {}

        async def look(response):
            headers = [response.headers, response.request.headers]
            asked["session"] = next((h["mcp-session-id"] for h in headers if "mcp-session-id" in h), None)

        http = httpx2.AsyncClient(
            headers=headers, timeout=httpx2.Timeout(60, read=600), event_hooks={"response": [look]}
        )
        await self.stack.enter_async_context(http)
        transport = streamable_http_client(url, http_client=http)
        mode = "legacy" if ERA == "legacy" else ERA
        self.session = await self.stack.enter_async_context(
            Client(transport, mode=mode, cache=None, **callbacks)
        )
        if ERA != "legacy":
            await self.listen(
                "lists", tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            )
        self.session_id = lambda: asked.get("session")
        return {
            "session": self.session_id(),
            "protocol": self.session.protocol_version,
            "capabilities": plain(self.session.server_capabilities),
        }

    async def listen(self, key, **wanted):
        """Keeps a subscription open; what it brings goes by the message handler too."""
        ready = asyncio.Event()

        async def keep():
            async with self.session.listen(**wanted) as subscription:
                ready.set()
                async for _ in subscription:
                    pass

        self.listening[key] = asyncio.create_task(keep())
        await asyncio.wait(
            [self.listening[key], asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        if self.listening[key].done():
            await self.listening[key]

    async def every(self, ask, field):
        items, cursor = [], None
        while True:
            page = await ask(cursor=cursor) if cursor else await ask()
            items += getattr(page, field)
            cursor = getattr(page, "nextCursor", None) or getattr(page, "next_cursor", None)
            if not cursor:
                return items

    async def tools(self, **_):
        return [tool.name for tool in await self.every(self.session.list_tools, "tools")]

    async def prompts(self, **_):
        return [prompt.name for prompt in await self.every(self.session.list_prompts, "prompts")]

    async def resources(self, **_):
        return [str(resource.uri) for resource in await self.every(self.session.list_resources, "resources")]

    async def templates(self, **_):
        listed = await self.session.list_resource_templates()
        return [plain(template)["uriTemplate"] for template in plain_list(listed)]

    async def call(self, *, n, name, **told):
        async def progress(done, total, message):
            say({"n": n, "progress": {"progress": done, "total": total, "message": message}})

        # Its own cancellation is what an SDK turns into a notification; older ones leave that to their users.
        self.calls[n] = asyncio.current_task()
        return plain(await self.session.call_tool(name, told["arguments"], progress_callback=progress, **self.meta))

    async def cancel(self, *, call, **_):
        if Client is None:
            params = types.CancelledNotificationParams(requestId=self.request_of(call), reason="no answer is wanted")
            cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
            await self.session.send_notification(types.ClientNotification(cancelled))
        self.calls[call].cancel()
        return {}

    def request_of(self, call):
        # The numbers of the requests that wait are nobody's business in this SDK; the last one is that of the call.
        return max(self.session._response_streams)

    async def prompt(self, *, name, **told):
        return plain(await self.session.get_prompt(name, told["arguments"]))

    async def read(self, *, uri, **_):
        return plain(await self.session.read_resource(uri))

    async def subscribe(self, *, uri, **_):
        if ERA != "legacy":
            return await self.listen(uri, resource_subscriptions=[uri])
        return plain(await self.session.subscribe_resource(uri))

    async def unsubscribe(self, *, uri, **_):
        if ERA != "legacy":
            self.listening.pop(uri).cancel()
            return {}
        return plain(await self.session.unsubscribe_resource(uri))

    async def complete(self, *, ref, argument, **_):
        is_prompt = ref["type"] == "ref/prompt"
        kinds = [getattr(types, name, None) for name in ("PromptReference", "ResourceTemplateReference")]
        reference = (kinds[0] if is_prompt else kinds[1]).model_validate(ref)
        return plain(await self.session.complete(reference, argument))

    async def level(self, *, level, **_):
        if ERA != "legacy":
            # The stateless revision has it said with each call.
            self.meta = {"meta": {"io.modelcontextprotocol/logLevel": level}}
            return {}
        return plain(await self.session.set_logging_level(level))

    async def identity(self, **_):
        return self.session_id()

    async def ping(self, **_):
        return plain(await self.session.send_ping())

    async def close(self, **_):
        for task in self.listening.values():
            task.cancel()
        await self.stack.aclose()
        return {}


def plain_list(listed):
    return getattr(listed, "resourceTemplates", None) or getattr(listed, "resource_templates", [])


async def main():
    one = One()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def do(told):
        n = told["n"]
        try:
            say({"n": n, "ok": await getattr(one, told["do"])(**told)})
        except asyncio.CancelledError:
            say({"n": n, "failed": {"code": None, "message": "cancelled"}})
        except Exception as error:
            code = getattr(getattr(error, "error", None), "code", None)
            say({"n": n, "failed": {"code": code, "message": str(error)}})

    running = set()
    while line := await lines.readline():
        told = json.loads(line)
        if told["do"] in ("connect", "close"):
            # Both have to be done by one task: the SDK's own tasks belong to it.
            await do(told)
        else:
            task = asyncio.create_task(do(told))
            running.add(task)
            task.add_done_callback(running.discard)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
