"""An MCP server over stdio in Python's standard library. It tells on stderr
what it was asked to run. Like many a parser, it takes the last of two equal
keys."""

import json
import sys

for line in sys.stdin:
    batch = json.loads(line)
    for m in batch if isinstance(batch, list) else [batch]:
        method, answer = m.get("method"), None
        if method == "initialize":
            answer = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
        elif method == "tools/list":
            answer = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("read_file", "shell", "write_file")], "nextCursor": "x"}
        elif method == "tools/call":
            print("ran", m["params"]["name"], json.dumps(m["params"].get("arguments")), file=sys.stderr, flush=True)
            answer = {"content": [{"type": "text", "text": "done"}], "isError": False}
        if "id" in m and method and answer is not None:
            # Odd spacing, so that a test can tell whether bytes were touched, and
            # ids in a notation of its own.
            print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": answer}, separators=(" , ", " :  "), ensure_ascii=False), flush=True)
sys.exit(7)
