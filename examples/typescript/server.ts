// Dice on the official SDK. The same file runs under Node and under Bun: node/ and bun/ hold their manifests.

import { randomInt } from "node:crypto";
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function parse(notation: string) {
  const match = /^(\d*)d(\d+)([+-]\d+)?$/i.exec(notation);
  const [count, sides, modifier] = [match?.[1] || 1, match?.[2], match?.[3] ?? 0].map(Number);
  // Asked this way round, so that NaN is refused too.
  if (!(count >= 1 && count <= 100 && sides >= 2 && sides <= 1000 && Math.abs(modifier) <= 1000))
    throw new Error(
      `cannot roll "${notation}": write 2d6+1; 1-100 dice, 2-1000 sides, at most 1000 more or less`,
    );
  return { count, sides, modifier };
}

function dice() {
  const server = new McpServer({ name: "dice", version: "0.1.0" });

  server.registerTool(
    "roll",
    {
      description: "Roll dice. 2d6+1 means two six-sided dice and one more.",
      inputSchema: { notation: z.string().describe("such as d20, 2d6+1 or 4d8-2") },
      outputSchema: { rolls: z.array(z.int()), modifier: z.int(), total: z.int() },
    },
    ({ notation }) => {
      const { count, sides, modifier } = parse(notation); // what it throws reaches the agent as an error result
      const rolls = Array.from({ length: count }, () => randomInt(1, sides + 1));
      const total = rolls.reduce((sum, roll) => sum + roll, modifier);
      return {
        content: [{ type: "text", text: `${notation} = ${total} [${rolls.join(", ")}]` }],
        structuredContent: { rolls, modifier, total },
      };
    },
  );

  server.registerTool(
    "flip",
    { description: "Flip a coin.", outputSchema: { side: z.enum(["heads", "tails"]) } },
    () => {
      const side = randomInt(2) ? "heads" : "tails";
      return { content: [{ type: "text", text: side }], structuredContent: { side } };
    },
  );

  return server;
}

// Contract 1: the port comes in the arguments, where the hall put it in place of ${PORT}.
const port = Number(parseArgs({ options: { port: { type: "string" } } }).values.port);

// Contract 2: MCP over POST /mcp, on 127.0.0.1 alone. Without sessions: a hall that restarts finds this process
// and goes on with it. A request with an Origin comes from a web page, which has no business here.
const http = createServer(async (request, response) => {
  if (request.url !== "/mcp") return void response.writeHead(404).end();
  if (request.method !== "POST") return void response.writeHead(405, { Allow: "POST" }).end();
  if (request.headers.origin) return void response.writeHead(403).end();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: undefined,
    enableJsonResponse: true,
  });
  response.on("close", () => transport.close());
  await dice().connect(transport);
  await transport.handleRequest(request, response);
});

// Contract 3: 2 if the port is taken, so that the hall tries another; 0 when asked to stop; 1 on any other error,
// which is what the runtime does by itself.
http.on("error", (error: NodeJS.ErrnoException) => {
  console.error(`cannot listen on 127.0.0.1:${port}: ${error.message}`);
  process.exit(error.code === "EADDRINUSE" ? 2 : 1);
});
process.on("SIGTERM", () => process.exit(0));

http.listen(port, "127.0.0.1");
