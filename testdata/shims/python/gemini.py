#!/usr/bin/env python3
"""A scripted model in the place of Gemini: runs a command with a Gemini API on
loopback. It calls the first function that it is offered once for every further
line of the prompt, all at once, and then says what came back.

    python3 gemini.py python3 google_genai.py FILE...
    python3 gemini.py node ../node/google-genai.mjs FILE...
"""

import http.server
import json
import os
import subprocess
import sys
import threading


def answer(request):
    """The parts of the next content."""
    first, *rest = request["contents"]
    lines = first["parts"][0]["text"].splitlines()[1:]
    if not rest:
        function = request["tools"][0]["functionDeclarations"][0]
        schema = function.get("parameters") or function["parametersJsonSchema"]
        (parameter,) = schema["properties"]
        return [
            {"functionCall": {"id": f"fc_{i}", "name": function["name"], "args": {parameter: line}}}
            for i, line in enumerate(lines, 1)
        ]
    results = [part["functionResponse"]["response"] for part in rest[-1]["parts"]]
    assert len(results) == len(lines), results
    return [{"text": "\n".join(str(next(iter(result.values()))) for result in results)}]


class Gemini(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.partition("?")[0].endswith(":generateContent"):
            return self.send_error(404)
        content = {"role": "model", "parts": answer(request)}
        body = json.dumps({"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gemini) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {**os.environ, "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{server.server_port}", "GEMINI_API_KEY": "none"}
    sys.exit(subprocess.run(sys.argv[1:], env=env, check=False).returncode)
