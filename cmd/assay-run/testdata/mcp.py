"""An MCP client that is hostile. Arguments: a policy, a decision log, the
server. With ASSAY_RUN_SOCKET set, it is part of a run."""

import json
import os
import subprocess
import sys

policy, log, server = sys.argv[1:]
in_run = "ASSAY_RUN_SOCKET" in os.environ
p = subprocess.Popen(["assay-run", "mcp", "--policy", policy, "--decision-log", log, "--event-source", "urn:test", "--", sys.executable, server],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def send(text):
    p.stdin.write((text if isinstance(text, str) else json.dumps(text)) + "\n")
    p.stdin.flush()


def ask(message):
    send(message)
    return p.stdout.readline()


def call(id, name, arguments=None, **more):
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments or {}, **more}}


def denied(answer, id, says):
    m = json.loads(answer)
    assert m["id"] == id and "result" not in m and says in m["error"]["message"], (answer, says)
    assert "secret" not in answer, answer


# What is no tools/call goes through byte for byte.
line = ask({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}})
assert line.startswith('{"jsonrpc" :  "2.0" , "id" :  "init" , "result"'), line
send({"jsonrpc": "2.0", "method": "notifications/initialized"})

# Denied tools are not on the list; the rest of the answer is as it was.
line = ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
assert [t["name"] for t in json.loads(line)["result"]["tools"]] == ["read_file", "write_file"], line
assert line.endswith(' , "nextCursor" :  "x"}}\n') and '"id" :  1' in line, line

# An id is the same however it is written, and a denial repeats it as it was.
line = ask('{"jsonrpc":"2.0","id":"\\u00fc","method":"tools/list"}')
assert '"id" :  "ü"' in line and "shell" not in line, line
for id in "9007199254740993", "1.5", '"\\u00fc"', "null":
    line = ask('{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"shell","_meta":{"tool_call_id":"odd"}}}' % id)
    assert '"id":%s,' % id in line and "tools.deny" in line, line
line = ask('{"jsonrpc":"2.0","id":"\\u00fc","method":"tools/call","params":{"name":"write_file"}}')
assert '"id" :  "ü"' in line and "done" in line, line

line = ask(call(2, "read_file", {"path": "/srv/a"}))
assert '"id" :  2' in line and "done" in line, line
denied(ask(call(3, "shell", {"cmd": "secret"})), 3, "tools.deny")
denied(ask(call("four", "read_file", {"path": "/etc/secret"})), "four", "no_etc")
line = ask(call(5, "write_file", {"_meta": {"tool_call_id": "from_arguments"}}))
assert "done" in line, line
line = ask(call(6, "write_file", {}, _meta={"tool_call_id": "from_params"}))
assert "done" in line, line

# What two parsers could read in two ways goes nowhere.
for text, says in (
    ('{"jsonrpc":"2.0","id":9,"method":"tools/list","method":"tools/call","params":{"name":"shell"}}', "repeats"),
    ('{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"read_file","name":"shell"}}', "repeats"),
    ('{"jsonrpc":"2.0","id":9,"Method":"tools/call","params":{"name":"shell"}}', "ambiguous"),
    ('{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"Name":"shell","name":"read_file"}}', "ambiguous"),
    ('{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/a","path":"/etc/x"}}}', "repeats"),
    ("{nonsense", "JSON"), ('{"jsonrpc":"2.0","id":9,"method":"tools/call"}', "params"),
    ('{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5}}', "tools/call"),
    ('{"jsonrpc":"2.0","id":[9],"method":"tools/call","params":{"name":"shell"}}', "id"),
):
    m = json.loads(ask(text))
    assert says in m["error"]["message"], (text, m)
# A call that asks for no answer is no call.
send({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "/nobody"}}})

# A batch is checked message by message.
send([call(10, "shell"), call(11, "read_file", {"path": "/srv/b"}), {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "shell"}}])
# What was denied of it comes in a batch, with the server's answer or, as this one sends no batch, beside it.
answers = [p.stdout.readline() for _ in range(2)]
refused, = (a for line in answers if isinstance(a := json.loads(line), list))
assert len(refused) == 1, answers
denied(json.dumps(refused[0]), 10, "tools.deny")
assert any('"id" :  11' in a and "done" in a for a in answers), answers

if in_run:
    denied(ask(call(12, "write_file", {"path": "/run/forbidden"})), 12, "of_the_run")
    # What the run's policy cannot look at does not get past it, nor what follows.
    deep = {"path": "/run/forbidden"}
    for _ in range(60):
        deep = {"d": deep}
    denied(ask(call(13, "write_file", deep)), 13, "deeper")
    denied(ask(call(14, "write_file", {"path": "/run/forbidden", "text": "x" * (5 << 20)})), 14, "larger")
    denied(ask(call(15, "write_file", {"path": "/run/forbidden"})), 15, "of_the_run")

p.stdin.close()
out, err = p.stdout.read(), p.stderr.read()
assert out == "" and p.wait(30) == 7, (out, err, p.returncode)
ran = [line for line in err.splitlines() if line.startswith("ran ")]
assert ran == ["ran write_file null", 'ran read_file {"path": "/srv/a"}', 'ran write_file {"_meta": {"tool_call_id": "from_arguments"}}', "ran write_file {}",
               'ran read_file {"path": "/srv/b"}'], ran
with open(log) as f:
    events = [json.loads(line) for line in f]
assert all(e["type"] == "assay.tool.decision" and e["source"] == "urn:test" for e in events), events
got = [(e["data"]["tool"], e["data"]["tool_call_id"], e["data"]["decision"]) for e in events]
want = [("shell", "odd", "deny")] * 4 + [("write_file", "ü", "allow"), ("read_file", "2", "allow"), ("shell", "3", "deny"), ("read_file", "four", "deny"), ("write_file", "from_arguments", "allow"),
        ("write_file", "from_params", "allow"), ("shell", "10", "deny"), ("read_file", "11", "allow")]
assert got == want + ([("write_file", str(id), "allow") for id in range(12, 16)] if in_run else []), got
print("ok")
