// A client of MCP's own SDK. Arguments: "stdio" and a command, or "http" and an
// address. It prints what it saw, one JSON document.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [kind, ...rest] = process.argv.slice(2);
const transport = kind === "stdio"
  ? new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env, stderr: "inherit" })
  : new StreamableHTTPClientTransport(new URL(rest[0]), {
      requestInit: { headers: { Authorization: `Bearer ${process.env.ASSAY_MCP_TOKEN}` } },
      reconnectionOptions: { initialReconnectionDelay: 100, maxReconnectionDelay: 1000, reconnectionDelayGrowFactor: 1.5, maxRetries: 5 },
    });
const c = new Client({ name: "c", version: "1" }, { capabilities: { sampling: {} } });
c.setRequestHandler(CreateMessageRequestSchema, () => ({ model: "m", role: "assistant", content: { type: "text", text: "sampled" } }));
await c.connect(transport);
const seen = { progress: [] };
const attempt = async (name, f) => { try { seen[name] = await f(); } catch (e) { seen[name] = `error ${e.code}: ${e.message}`; } };
const call = (name) => () => c.callTool({ name }, undefined, { onprogress: (p) => seen.progress.push(p.progress), timeout: 30000 }).then((r) => r.content[0].text);
await attempt("tools", async () => (await c.listTools()).tools.map((t) => t.name));
await attempt("resources", async () => (await c.listResources()).resources.map((r) => r.uri));
await attempt("echo", call("echo"));
await attempt("shell", call("shell"));
await attempt("ask", call("ask"));
await attempt("read", async () => (await c.readResource({ uri: "test://r" })).contents[0].text);
await attempt("secret", async () => (await c.readResource({ uri: "secret://s" })).contents[0].text);
const slow = attempt("slow", call("slow"));
await attempt("beside", call("shell")); // a denial in the middle of a stream
await slow;
console.log(JSON.stringify(seen));
await c.close();
process.exit(0);
