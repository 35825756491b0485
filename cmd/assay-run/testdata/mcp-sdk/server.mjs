// A server of MCP's own SDK: over stdin and stdout, or, with the argument "http",
// over Streamable HTTP, whose address it prints.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const text = (t) => ({ content: [{ type: "text", text: t }] });

function make() {
  const s = new McpServer({ name: "test", version: "1" });
  s.registerTool("echo", { description: "says hello" }, () => text("echo"));
  s.registerTool("shell", { description: "runs anything" }, () => text("shell"));
  s.registerTool("slow", { description: "takes its time" }, async ({ _meta, sendNotification }) => {
    for (let i = 1; i <= 4; i++) {
      if (_meta?.progressToken !== undefined)
        await sendNotification({ method: "notifications/progress", params: { progressToken: _meta.progressToken, progress: i, total: 4 } });
      await new Promise((r) => setTimeout(r, 300));
    }
    return text("slow");
  });
  s.registerTool("ask", { description: "asks the client" }, async () => text(JSON.stringify((await s.server.createMessage({ messages: [], maxTokens: 1 })).content)));
  s.registerResource("r", "test://r", {}, () => ({ contents: [{ uri: "test://r", text: "a resource" }] }));
  s.registerResource("s", "secret://s", {}, () => ({ contents: [{ uri: "secret://s", text: "a secret" }] }));
  return s;
}

if (process.argv[2] !== "http") {
  await make().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  const events = new Map(); // an event store: streams resume from it
  let n = 0;
  const eventStore = {
    async storeEvent(stream, message) {
      const id = `${stream}|${++n}`;
      events.set(id, { stream, message, n });
      return id;
    },
    async getStreamIdForEventId(id) { return events.get(id)?.stream; },
    async replayEventsAfter(last, { send }) {
      const from = events.get(last);
      for (const [id, e] of events) if (e.stream === from.stream && e.n > from.n) await send(id, e.message);
      return from.stream;
    },
  };
  const http = createServer(async (req, res) => {
    let t = sessions.get(req.headers["mcp-session-id"]);
    if (!t) {
      t = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, eventStore, retryInterval: 100, onsessioninitialized: (id) => sessions.set(id, t) });
      await make().connect(t);
    }
    await t.handleRequest(req, res);
  });
  // A connection that breaks off: once, in the middle of the first slow answer.
  let broken = false;
  http.prependListener("request", (req, res) => {
    const write = res.write.bind(res);
    res.write = (chunk, ...rest) => {
      const ok = write(chunk, ...rest);
      if (!broken && String(chunk).includes('"progress":2')) {
        broken = true;
        setTimeout(() => req.socket.destroy(), 50);
      }
      return ok;
    };
  });
  http.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
}
