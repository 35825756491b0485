#!/usr/bin/env python3
"""A scripted model in the place of Anthropic's, so that Claude Code runs without
a network: runs a command with a Messages API on loopback that answers with the
turns of a file, each a list of content blocks.

    python3 model.py turns.json claude -p 'Write a file.'
"""

import http.server
import json
import os
import subprocess
import sys
import threading

with open(sys.argv[1], encoding="utf-8") as script:
    TURNS = json.load(script)


def events(turn, request):
    """The streamed answer: every block whole, in one piece."""
    blocks = TURNS[turn] if turn < len(TURNS) else [{"type": "text", "text": "done"}]
    called = any(block["type"] == "tool_use" for block in blocks)
    message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": request["model"]}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": message | {"usage": {"input_tokens": 1, "output_tokens": 1}}}
    for i, block in enumerate(blocks):
        if block["type"] == "tool_use":
            empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
        yield {"type": "content_block_start", "index": i, "content_block": block | empty}
        yield {"type": "content_block_delta", "index": i, "delta": delta}
        yield {"type": "content_block_stop", "index": i}
    delta = {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


class Messages(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.partition("?")[0] != "/v1/messages" or not request.get("stream"):
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        for event in events(turn, request):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_):
        pass


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Messages) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {
        **os.environ,
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    sys.exit(subprocess.run(sys.argv[2:], env=env, check=False).returncode)
