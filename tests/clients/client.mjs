// A client built on one of the TypeScript SDKs, which does what it is told on its standard input, a JSON object a
// line, and says what comes of it on its standard output in the same way. client.py is its sister.
//
//   node client.mjs DIRECTORY v1|v2 legacy|2026-07-28
//
// DIRECTORY holds the node_modules to be used. {"n": 1, "do": "call", …} is answered with {"n": 1, "ok": …} or
// {"n": 1, "failed": …}, progress before it with {"n": 1, "progress": …}. What members say unasked comes as
// {"heard": METHOD, "params": …}, and what they ask as {"asked": METHOD, "params": …}.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";

const [directory, sdk, era] = process.argv.slice(2);
const require = createRequire(join(directory, "package.json"));
const say = (fact) => process.stdout.write(`${JSON.stringify(fact)}\n`);

const { Client, StreamableHTTPClientTransport, request } = sdk === "v2" ? v2() : v1();

function v1() {
    const types = require("@modelcontextprotocol/sdk/types.js");
    const schemas = {
        "sampling/createMessage": types.CreateMessageRequestSchema,
        "elicitation/create": types.ElicitRequestSchema,
        "roots/list": types.ListRootsRequestSchema,
    };
    return {
        ...require("@modelcontextprotocol/sdk/client/index.js"),
        ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
        request: (method) => schemas[method],
    };
}

function v2() {
    return { ...require("@modelcontextprotocol/client"), request: (method) => method };
}

let client;
let transport;
let logLevel;
const calls = new Map();
const subscriptions = new Map();

function heard({ method, params }) {
    say({ heard: method.replace("notifications/", ""), params });
}

const deeds = {
    async connect({ url, token, name, answers }) {
        const capabilities = {};
        if (answers.sampling !== undefined) capabilities.sampling = {};
        if (answers.elicitation !== undefined) capabilities.elicitation = {};
        if (answers.roots !== undefined) capabilities.roots = { listChanged: true };
        const versionNegotiation = era === "legacy" ? undefined : { mode: { pin: era } };
        client = new Client({ name, version: "1" }, { capabilities, versionNegotiation });
        const answer = (method, make) => {
            client.setRequestHandler(request(method), (asked) => {
                say({ asked: method, params: asked.params });
                return make();
            });
        };
        if (capabilities.sampling) {
            answer("sampling/createMessage", () => ({
                model: "none",
                role: "assistant",
                content: { type: "text", text: answers.sampling },
            }));
        }
        if (capabilities.elicitation) {
            answer("elicitation/create", () => ({ action: "accept", content: { value: answers.elicitation } }));
        }
        if (capabilities.roots) {
            answer("roots/list", () => ({ roots: answers.roots.map((uri) => ({ uri })) }));
        }
        client.fallbackNotificationHandler = async (notification) => heard(notification);
        client.onerror = (error) => say({ trouble: String(error) });
        const requestInit = { headers: { Authorization: `Bearer ${token}` } };
        transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
        await client.connect(transport);
        if (era !== "legacy") {
            await client.listen({ toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true });
        }
        return {
            session: transport.sessionId ?? null,
            protocol: transport.protocolVersion ?? null,
            capabilities: client.getServerCapabilities(),
        };
    },
    async tools() {
        const names = [];
        let cursor;
        do {
            const page = await client.listTools(cursor === undefined ? undefined : { cursor });
            names.push(...page.tools.map((tool) => tool.name));
            cursor = page.nextCursor;
        } while (cursor !== undefined);
        return names;
    },
    async call({ n, name, arguments: given }) {
        const stop = new AbortController();
        calls.set(n, stop);
        const options = { signal: stop.signal, onprogress: (progress) => say({ n, progress }) };
        const params = { name, arguments: given };
        if (logLevel !== undefined) params._meta = { "io.modelcontextprotocol/logLevel": logLevel };
        return sdk === "v2" ? client.callTool(params, options) : client.callTool(params, undefined, options);
    },
    async cancel({ call }) {
        calls.get(call).abort("the test wants no answer");
        return {};
    },
    prompts: async () => (await client.listPrompts()).prompts.map((prompt) => prompt.name),
    resources: async () => (await client.listResources()).resources.map((resource) => resource.uri),
    templates: async () =>
        (await client.listResourceTemplates()).resourceTemplates.map((template) => template.uriTemplate),
    prompt: ({ name, arguments: given }) => client.getPrompt({ name, arguments: given }),
    read: ({ uri }) => client.readResource({ uri }),
    async subscribe({ uri }) {
        if (era === "legacy") return client.subscribeResource({ uri });
        subscriptions.set(uri, await client.listen({ resourceSubscriptions: [uri] }));
        return {};
    },
    async unsubscribe({ uri }) {
        if (era === "legacy") return client.unsubscribeResource({ uri });
        await subscriptions.get(uri).close();
        return {};
    },
    complete: ({ ref, argument }) => client.complete({ ref, argument }),
    // The stateless revision has it said with each call.
    async level({ level }) {
        if (era === "legacy") return client.setLoggingLevel(level);
        logLevel = level;
        return {};
    },
    ping: () => client.ping(),
    identity: async () => transport.sessionId ?? null,
    async close() {
        if (transport.sessionId !== undefined) await transport.terminateSession();
        await client.close();
        return {};
    },
};

for await (const line of createInterface({ input: process.stdin })) {
    const told = JSON.parse(line);
    const { n } = told;
    deeds[told.do](told).then(
        (ok) => say({ n, ok: ok ?? null }),
        (error) => say({ n, failed: { code: error.code ?? null, message: String(error.message ?? error) } }),
    );
}
process.exit(0);
