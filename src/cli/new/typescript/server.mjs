// @ts-check
// A member of a Guild Hall on Node alone: an MCP server over HTTP. Its types stand in comments, where an editor and
// tsc find them, so that any Node from 20 on runs the file as it is, without packages and without a build.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { parseArgs } from "node:util";

/**
 * @typedef {"string" | "boolean" | "integer" | "number" | "array" | "object"} JsonType
 * @typedef {{ type: JsonType, description: string }} Property
 * @typedef {object} Tool
 * @property {string} description What an agent reads
 * @property {Record<string, Property>} properties JSON Schema of the arguments
 * @property {string[]} required
 * @property {(args: any) => string | Promise<string>} call
 */

/** Thrown by a tool: its message tells the agent what to do otherwise. */
class Refusal extends Error {}

// ---- The tools ----

/** @type {Record<string, Tool>} */
const tools = {
  greet: {
    description: "Greet somebody by name.",
    properties: { name: { type: "string", description: "Who is to be greeted" } },
    required: ["name"],
    /** @param {{ name: string }} args */
    call({ name }) {
      if (!name.trim()) throw new Refusal("name is empty: say who is to be greeted");
      return `Hello, ${name}!`;
    },
  },
};

// ---- MCP over HTTP, for any tools ----

const manifest = JSON.parse(readFileSync(new URL("guild-member.json", import.meta.url), "utf8"));
const REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const MAX_BODY = 4 * 1024 * 1024; // bytes

/**
 * @param {string} method
 * @param {any} params
 */
async function answer(method, params) {
  switch (method) {
    case "initialize": {
      const asked = params?.protocolVersion;
      const result = {
        protocolVersion: REVISIONS.includes(asked) ? asked : REVISIONS[0],
        capabilities: { tools: {} },
        serverInfo: { name: manifest.name, version: manifest.version },
      };
      return { result };
    }
    case "ping":
      return { result: {} };
    case "tools/list":
      return { result: { tools: Object.keys(tools).map(definition) } };
    case "tools/call": {
      const name = String(params?.name);
      if (Object.hasOwn(tools, name)) return { result: await call(name, params.arguments ?? {}) };
      const known = Object.keys(tools).join(", ");
      return { error: { code: -32602, message: `unknown tool ${name}; known: ${known}` } };
    }
    default:
      return { error: { code: -32601, message: `unknown method ${method}` } };
  }
}

/** @param {string} name */
function definition(name) {
  const { description, properties, required } = tools[name];
  return { name, description, inputSchema: { type: "object", properties, required } };
}

/**
 * @param {string} name
 * @param {unknown} args
 */
async function call(name, args) {
  try {
    check(args, tools[name]);
    return { content: [{ type: "text", text: await tools[name].call(args) }] };
  } catch (error) {
    // A fault of the tool: the log has it whole, and the server lives on.
    if (!(error instanceof Refusal)) console.error(error);
    const text = error instanceof Refusal ? error.message : `${name} failed: ${error}`;
    return { content: [{ type: "text", text }], isError: true };
  }
}

/**
 * @param {unknown} args
 * @param {Tool} tool
 */
function check(args, { properties, required }) {
  if (typeOf(args) !== "object") throw new Refusal("arguments must be an object");
  const given = /** @type {Record<string, unknown>} */ (args);
  for (const name of required)
    if (!Object.hasOwn(given, name))
      throw new Refusal(`${name} is missing: ${properties[name].description}`);
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(properties, name))
      throw new Refusal(`unknown argument ${name}; known: ${Object.keys(properties).join(", ")}`);
    const { type } = properties[name];
    const fits = type === "integer" ? Number.isInteger(value) : typeOf(value) === type;
    if (!fits) throw new Refusal(`${name} must be of type ${type}`);
  }
}

/** @param {unknown} value */
function typeOf(value) {
  return value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
}

const http = createServer(async (request, response) => {
  /** @param {number} status @param {object} [message] @param {Record<string, string>} [headers] */
  const reply = (status, message, headers = {}) => {
    const body = message ? JSON.stringify(message) : "";
    if (message) headers["Content-Type"] = "application/json";
    // The request's body may be unread: nothing can follow it.
    if (status >= 400) headers.Connection = "close";
    response.writeHead(status, { ...headers, "Content-Length": Buffer.byteLength(body) }).end(body);
  };
  if (request.url !== "/mcp") return reply(404);
  if (request.method !== "POST") return reply(405, undefined, { Allow: "POST" });
  if (request.headers.origin) return reply(403); // a web page, which has no business here
  const pieces = [];
  let length = 0;
  try {
    for await (const piece of request) {
      length += piece.length;
      if (length <= MAX_BODY) pieces.push(piece);
    }
  } catch {
    return; // it hung up
  }
  if (length > MAX_BODY) return reply(413);
  let message;
  try {
    message = JSON.parse(Buffer.concat(pieces).toString());
  } catch {
    return reply(400);
  }
  if (typeof message?.method !== "string") return reply(400);
  if (message.id === undefined) return reply(202); // a notification
  reply(200, { jsonrpc: "2.0", id: message.id, ...(await answer(message.method, message.params)) });
});

// Contract 1: the port comes in the arguments, where the hall put it in place of ${PORT}.
const port = Number(parseArgs({ options: { port: { type: "string" } } }).values.port);

// Contract 2: on 127.0.0.1 alone; 2 if the port is taken, so that the hall tries another.
http.on("error", (/** @type {NodeJS.ErrnoException} */ error) => {
  console.error(`cannot listen on 127.0.0.1:${port}: ${error.message}`);
  process.exit(error.code === "EADDRINUSE" ? 2 : 1);
});

// Contract 3: 0 when asked to stop.
process.on("SIGTERM", () => process.exit(0));

http.listen({ port, host: "127.0.0.1" });
