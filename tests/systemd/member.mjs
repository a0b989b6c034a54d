// A member on bare Node: `node member.mjs PORT`. Tools: `hot {n}`, enough work for V8 to compile it to machine code;
// `write {path}`, which says what came of it. Exit 2 when the port is taken.
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";

const tools = {
  hot({ n }) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum = (sum * 31 + i) % 1000003;
    return String(sum);
  },
  write({ path }) {
    try {
      writeFileSync(path, "written");
      return "ok";
    } catch (error) {
      return error.code;
    }
  },
};

const answers = {
  initialize: () => ({
    protocolVersion: "2025-06-18",
    capabilities: { tools: {} },
    serverInfo: { name: "node", version: process.version },
  }),
  "tools/list": () => ({ tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: "object" } })) }),
  "tools/call": ({ name, arguments: given }) => ({ content: [{ type: "text", text: tools[name](given) }] }),
};

const server = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const { id, method, params } = body ? JSON.parse(body) : {};
  const answer = answers[method];
  if (!answer) return response.writeHead(id === undefined ? 202 : 404).end();
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ jsonrpc: "2.0", id, result: answer(params) }));
});
server.on("error", (error) => process.exit(error.code === "EADDRINUSE" ? 2 : 1));
server.listen(Number(process.argv[2]), "127.0.0.1");
