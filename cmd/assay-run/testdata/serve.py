"""Drives assay-run serve as agents do: argument 1 is a scratch directory."""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading

from client import Client, Gone, Refused, RPCError, Unix, WebSocket, result

scratch = sys.argv[1]
runs = os.path.join(scratch, "runs")
sock = os.path.join(scratch, "s")


class Serve:
    def __init__(self, *args, lines, env=None):
        own = {k: v for k, v in os.environ.items() if k != "ASSAY_RUN_TOKEN"}
        self.p = subprocess.Popen(["assay-run", "serve", "--dir", runs, *args], env={**own, **(env or {})},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.p.kill)  # whatever fails
        self.said = [self.p.stdout.readline().strip() for _ in range(lines)]

    def end(self, how=signal.SIGTERM):
        self.p.send_signal(how)
        out, err = self.p.communicate(timeout=60)
        return self.p.returncode, out, err


def fails(says, *args):
    p = subprocess.run(["assay-run", "serve", *args], capture_output=True, text=True, timeout=30)
    assert p.returncode == 125 and says in p.stderr, (args, p)


def turns(path):
    with open(path) as f:
        lines = f.read().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines)
    got = [json.loads(line) for line in lines]
    assert [t["index"] for t in got] == list(range(len(got)))
    return got


def document_text(bundle, name):
    return subprocess.run(["tar", "-xOf", bundle, name], capture_output=True, text=True, check=True).stdout


def document(bundle, name):
    return json.loads(document_text(bundle, name))


def verify(bundle):
    p = subprocess.run(["assay-run", "verify", bundle], capture_output=True, text=True)
    assert p.returncode == 0, p.stdout + p.stderr
    return document(bundle, "result.json")


def agent(wire, name, n, done):
    """One agent and one run: n calls, then the end."""
    c = Client(wire)
    run = c.call("runs.start", {"agent_id": name, "intent": "x", "idempotency_key": "k"})["run_id"]
    assert c.call("runs.start", {"agent_id": name, "intent": "x", "idempotency_key": "k"})["run_id"] == run
    live = os.path.join(runs, name, run + ".jsonl")
    c.call("policy.register", {"name": "mine", "rule": "deny_keyword", "value": name})
    c.register("echo", lambda p: result(p["parameters"]))
    for i in range(n):
        got = c.propose("echo", {"i": i})
        assert got["recorded"] and got["outcome"]["kind"] == "success", got
        # What is acknowledged is on disk.
        assert turns(live)[i]["parameters"] == {"i": i}
    got = c.propose("echo", {"who": name})  # only the own rule denies it
    assert got["rejected_by"] == "policy", got
    got = c.propose("echo", {"who": "all"})
    assert got["outcome"]["kind"] == "success", got
    c.call("policy.register", {"name": "never", "rule": "deny_tool", "target": "shell"})
    c.register("shell", lambda p: result(None))
    got = c.propose("shell", {})
    assert got["rejected_by"] == "policy", got
    got = c.call("runs.complete", {"outcome": "success"})
    assert got["turns"] == n + 3, got
    done[name] = (live, got["bundle"], n + 3)
    try:
        c.call("runs.complete", {"outcome": "success"})
        raise AssertionError("completed twice")
    except RPCError as err:
        assert err.code == -32003, err.message
    # What would be in no bundle is not called.
    try:
        c.propose("echo", {})
        raise AssertionError("called without an open run")
    except RPCError as err:
        assert err.code == -32003, err.message
    assert len(c.call("runs.get_trace", {"run_id": run})["turns"]) == n + 3
    c.close()


fails("no directory")
fails("without a token", "--dir", runs, "--no-auth", "--listen", "ws:0.0.0.0:0")
fails("unix or ws", "--dir", runs, "--listen", "tcp:1")
fails("unknown key", "--dir", runs, "--policy", os.path.join(scratch, "bad.yaml"))

audit = os.path.join(scratch, "audit.ndjson")
s = Serve("--listen", "ws://127.0.0.1:0", "--listen", "unix:" + sock, "--grace", "200ms", "--audit", audit, lines=3)
url, path, token = s.said
assert url.startswith("ws://127.0.0.1:") and path == "unix:" + sock and token.startswith("ASSAY_RUN_TOKEN="), s.said
assert os.stat(sock).st_mode & 0o777 == 0o600
token = token.partition("=")[2]
try:
    WebSocket(url)
    raise AssertionError("let in without a token")
except Refused:
    pass

done, failed = {}, []


def guarded(*args):
    try:
        agent(*args)
    except BaseException as err:
        failed.append(err)
        raise


threads = []
for i in range(8):
    wire = WebSocket(url, token) if i % 2 else Unix(sock)
    threads.append(threading.Thread(target=guarded, args=(wire, f"agent-{i}", 10 + i, done)))
for t in threads:
    t.start()
for t in threads:
    t.join(60)
assert not failed and len(done) == 8, failed
for live, bundle, n in done.values():
    assert len(turns(live)) == n
    res = verify(bundle)
    assert res["outcome"] == "reported" and res["exit_code"] is None, res
    assert res["timings"]["child_ns"] is None, res  # there was no child
    end = json.loads(document_text(bundle, "events.ndjson").splitlines()[-1])
    assert end["type"] == "run_finished" and end["success"] is True, end
    # Every call that was named is there, and none of them was observed.
    report = document(bundle, "correlation-report.json")
    named = {json.loads(l)["tool_call_id"] for l in document_text(bundle, "layers/policy.ndjson").splitlines()}
    assert named <= {b["tool_call_id"] for b in report["bindings"]} and named, (named, report)
    assert {u["code"] for u in report["reported_not_observed"]} == {"no_kernel_layer"}, report
    # What was denied was asked for, too, as in any other run.
    surface = document(bundle, "capability-surface.json")
    assert surface["mcp_tools"] == ["echo", "shell"], surface
    assert surface["policy_decisions"] == ["allow:echo", "deny:echo", "deny:shell"], surface

# A client that vanishes: sealed as incomplete after the grace time.
c = Client(Unix(sock))
gone = c.call("runs.start", {"agent_id": "gone", "intent": ""})["run_id"]
c.call("runs.record_turns", {"turns": [{"tool": "x", "tool_call_id": "elsewhere"}]})
watch = Client(Unix(sock))
sub = watch.call("runs.subscribe", {"run_id": gone})
assert len(sub["turns"]) == 1
watch.close()
c.close()
bundle = os.path.join(runs, "gone", gone + ".tar.gz")
while not os.path.exists(bundle):
    threading.Event().wait(0.01)
assert verify(bundle)["outcome"] == "incomplete"
bindings = document(bundle, "correlation-report.json")["bindings"]
assert [b["tool_call_id"] for b in bindings] == ["elsewhere"], bindings

# One that another client keeps alive ends with the server.
c = Client(Unix(sock))
left = c.call("runs.start", {"agent_id": "left", "intent": ""})["run_id"]
c.call("runs.record_turns", {"turns": [{"tool": "x"}, {"tool": "y"}]})
code, out, err = s.end()
assert code == 0, (code, out, err)
assert verify(os.path.join(runs, "left", left + ".tar.gz"))["outcome"] == "incomplete"
assert not os.path.exists(sock)
with open(audit) as f:
    lines = [json.loads(line) for line in f]
assert len(lines) == sum(n for _, _, n in done.values()), len(lines)

# Each agent with a token of its own does what that agent may.
tokens = os.path.join(scratch, "tokens")
with open(tokens, "w") as f:
    f.write("# agents\nann ann-secret-0123456789\nbob\n")
fails("line 3: want an agent's id and its token", "--dir", runs, "--token-file", tokens)
with open(tokens, "w") as f:
    f.write("# agents\nann ann-secret-0123456789\nbob bob-secret-0123456789\n")
s = Serve("--token-file", tokens, lines=1)
ann, bob = (Client(WebSocket(s.said[0], name + "-secret-0123456789")) for name in ("ann", "bob"))
hers = ann.call("runs.start", {"agent_id": "ann", "intent": ""})["run_id"]
for method, params in (("runs.start", {"agent_id": "ann", "intent": ""}), ("runs.complete", {"run_id": hers, "outcome": "mine"}),
                       ("runs.record_turns", {"run_id": hers, "turns": [{"tool": "x"}]})):
    try:
        bob.call(method, params)
        raise AssertionError("bob did " + method)
    except RPCError as err:
        assert err.code == -32007, err.message
ann.call("runs.complete", {"outcome": "success"})
code, out, err = s.end()
assert code == 0 and "secret" not in out + err, (code, out, err)
assert verify(os.path.join(runs, "ann", hers + ".tar.gz"))["outcome"] == "reported"

# The token comes from the environment, and is not printed then.
s = Serve("--listen", "ws:127.0.0.1:0", lines=1, env={"ASSAY_RUN_TOKEN": "mine"})
Client(WebSocket(s.said[0], "mine", "query")).close()
code, out, err = s.end(signal.SIGINT)
assert code == 0 and out == "", (code, out, err)
s = Serve("--no-auth", lines=1)
Client(WebSocket(s.said[0])).close()
try:
    WebSocket(s.said[0].replace("127.0.0.1", "localhost"), headers=["Origin: http://evil.example"])
    raise AssertionError("let another origin in")
except Refused:
    pass
s.end()
print("ok")
