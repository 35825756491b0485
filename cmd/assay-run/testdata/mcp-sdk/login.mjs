// A client of MCP's own SDK that logs in by OAuth. Arguments: the address, and the
// resource that it takes for the server's beside the address; "" for no other. It prints
// what the tool echo says.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";

const [address, resource] = process.argv.slice(2);
const kept = {};
const provider = {
  redirectUrl: "http://127.0.0.1/callback",
  clientMetadata: { client_name: "c", redirect_uris: ["http://127.0.0.1/callback"] },
  clientInformation: () => kept.client,
  saveClientInformation: (c) => { kept.client = c; },
  tokens: () => kept.tokens,
  saveTokens: (t) => { kept.tokens = t; },
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (v) => { kept.verifier = v; },
  redirectToAuthorization: async (url) => { // the user's browser
    const to = (await fetch(url, { redirect: "manual" })).headers.get("location");
    kept.code = new URL(to).searchParams.get("code");
  },
};
if (resource) {
  provider.validateResourceURL = async (_, offered) => {
    if (offered !== resource) throw new Error(`offered ${offered}`);
    return new URL(offered);
  };
}
const connect = async () => {
  const transport = new StreamableHTTPClientTransport(new URL(address), { authProvider: provider });
  const c = new Client({ name: "c", version: "1" });
  try {
    await c.connect(transport);
    return c;
  } catch (e) {
    if (!(e instanceof UnauthorizedError)) throw e;
    await transport.finishAuth(kept.code);
  }
};
try {
  const c = (await connect()) ?? (await connect());
  console.log((await c.callTool({ name: "echo" })).content[0].text);
} catch (e) {
  console.log(`error: ${e.message}`);
}
process.exit(0);
