#!/usr/bin/env python3
"""A model provider with a script: provider.py PORT-FILE THINK [COMMAND...]

It answers requests of Anthropic's messages API. The model asks for the commands, one after the other, as calls of the
agent's Bash tool, thinks for THINK seconds before each, and then says that it is done. The port is written to PORT-FILE.
"""
import http.server
import json
import os
import sys
import time

port_file, think, commands = sys.argv[1], float(sys.argv[2]), sys.argv[3:]


def results(messages):
    """How many calls have a result."""
    blocks = [b for m in messages if isinstance(m["content"], list) for b in m["content"]]
    return sum(b.get("type") == "tool_result" for b in blocks)


class Provider(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        done = results(request.get("messages", []))
        block, delta, why = {"type": "text", "text": ""}, {"type": "text_delta", "text": "The test passes."}, "end_turn"
        if request.get("tools") and done < len(commands):
            time.sleep(think)
            call = json.dumps({"command": commands[done], "description": "step %d" % (done + 1)})
            block = {"type": "tool_use", "id": "toolu_%d" % (done + 1), "name": "Bash", "input": {}}
            delta, why = {"type": "input_json_delta", "partial_json": call}, "tool_use"
        events = [
            {"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model"), "content": [],
                "usage": {"input_tokens": 900, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": why}, "usage": {"output_tokens": 40}},
            {"type": "message_stop"},
        ]
        body = "".join("event: %s\ndata: %s\n\n" % (e["type"], json.dumps(e)) for e in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
with open(port_file + ".new", "w") as f:
    f.write(str(server.server_port))
os.rename(port_file + ".new", port_file)
server.serve_forever()
