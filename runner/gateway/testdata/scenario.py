"""Drives every method of the socket and every way out of a call."""

import json
import os
import sys
import threading

from client import Client, Gone, Refused, RPCError, Unix, WebSocket, result

URL, TOKEN, SOCKET = os.environ["ASSAY_RUN_URL"], os.environ["ASSAY_RUN_TOKEN"], os.environ["ASSAY_RUN_SOCKET"]
RUN = os.environ["RUN_ID"]
turns = 0


def ws():
    return Client(WebSocket(URL, TOKEN))


def refused(code, says, f, *args, **more):
    try:
        got = f(*args, **more)
    except RPCError as err:
        assert err.code == code and says in err.message, (code, says, err.code, err.message)
        return
    raise AssertionError(f"not refused ({says}): {got}")


def outcome(got, kind, by=None, **more):
    global turns
    assert got["outcome"]["kind"] == kind, got
    assert got.get("rejected_by") == by, got
    for key, value in more.items():
        assert got["outcome"].get(key) == value, (key, value, got)
    turns += got["recorded"]
    return got


def authentication():
    for how in ("header", "query"):
        Client(WebSocket(URL, TOKEN, how)).close()
    Client(WebSocket(URL, headers=["authorization: bearer " + TOKEN])).close()
    for token, more in ((None, {}), ("wrong", {}), ("wrong", {"how": "query"}), (TOKEN + "x", {}),
                        (TOKEN, {"headers": ["Origin: http://evil.example"]})):
        try:
            WebSocket(URL, token, **more)
        except Refused as err:
            assert "401" in str(err) or "403" in str(err), err
        else:
            raise AssertionError(f"let in with {token} {more}")


def frames():
    """What a WebSocket can carry besides one text frame a message."""
    w = WebSocket(URL, TOKEN)
    ask = b'{"jsonrpc":"2.0","id":1,"method":"runs.list"}'
    w.frame(9, b"are you there")  # a ping, whose pong recv skips
    w.frame(1, ask[:10], fin=False)
    w.frame(9, b"")
    w.frame(0, ask[10:20], fin=False)
    w.frame(0, ask[20:])
    assert "runs" in json.loads(w.recv())["result"]
    w.send("\n {\n\"jsonrpc\" : \"2.0\",\r\n \"id\":2,\"method\":\"runs.list\"}\n")
    assert json.loads(w.recv())["id"] == 2
    w.close()

    def ends(code, *sent):
        w = WebSocket(URL, TOKEN)
        try:
            for args in sent:
                w.frame(*args)
            while True:
                w.recv()
        except Gone:
            assert int.from_bytes(w.closed[:2], "big") == code, w.closed
        except OSError:
            pass  # it was cut off while it sent
        w.close()

    ends(1003, (2, ask))  # binary
    ends(1009, (1, b"x" * (5 << 20)))  # too large
    ends(1009, *[(1 if i == 0 else 0, b"x" * (1 << 20), False) for i in range(6)])  # too large in pieces
    ends(1002, (3, b"x"))  # no such opcode
    ends(1002, (0, b"x"))  # goes on with nothing


def before_the_run(c):
    """Calls without an open run are audited and no turns."""
    assert c.register("echo", lambda p: result(p["parameters"])) == {"registered": ["echo"]}
    got = outcome(c.propose("echo", {"a": [1, {"b": None}]}), "success")
    assert got["output"] == {"a": [1, {"b": None}]} and not got["recorded"], got
    refused(-32003, "not open", c.call, "runs.record_turns", {"run_id": RUN, "turns": [{"tool": "x"}]})
    refused(-32003, "not open", c.call, "runs.complete", {"outcome": "success"})
    refused(-32002, "does not exist", c.call, "runs.get_trace", {"run_id": "run_other"})


def start(c):
    refused(-32602, "agent_id", c.call, "runs.start", {"agent_id": "../up", "intent": "x"})
    refused(-32602, "unknown key", c.call, "runs.start", {"agent_id": "a", "intent": "x", "colour": "red"})
    refused(-32602, "params", c.call, "runs.start", [1])
    got = c.call("runs.start", {"agent_id": "agent-7", "intent": "test it", "outcome_description": "all well", "idempotency_key": "k1"})
    assert got == {"run_id": RUN}, got
    assert c.call("runs.start", {"agent_id": "agent-7", "intent": "again", "idempotency_key": "k1"}) == {"run_id": RUN}
    refused(-32003, "already", c.call, "runs.start", {"agent_id": "other", "intent": ""})


def tools(c):
    for tool, says in (
        ({"name": ""}, "name"), ({"name": "x" * 200}, "name"), ({"name": "x", "colour": 1}, "unknown key"),
        ({"name": "x", "parameters": {"$ref": "http://evil.example/s.json"}}, "$ref"),
        ({"name": "x", "parameters": {"$ref": "file:///etc/passwd"}}, "$ref"),
        ({"name": "x", "parameters": {"$ref": "#/$defs/none"}}, "points to nothing"),
        ({"name": "x", "parameters": {"$ref": "#"}}, "leads back"),
        ({"name": "x", "parameters": {"allOf": [{"$ref": "#"}]}}, "leads back"),
        ({"name": "x", "parameters": {"type": "nothing"}}, "parameters"),
        ({"name": "x", "parameters": {"pattern": "("}}, "parameters"),
        ({"name": "x", "parameters": []}, "object"),
        ({"name": "x", "max_concurrent": -1}, "max_concurrent"),
        ({"name": "x", "deadline_ms": -1}, "deadline_ms"),
    ):
        refused(-32602, says, c.call, "tools.register", [tool])
    refused(-32602, "twice", c.call, "tools.register", [{"name": "x"}, {"name": "x"}])
    refused(-32602, "at least one", c.call, "tools.register", [])
    defs = {"l0": {"type": "string"}}
    for i in range(40):
        defs[f"l{i + 1}"] = {"anyOf": [{"$ref": f"#/$defs/l{i}"}, {"$ref": f"#/$defs/l{i}"}]}
    refused(-32602, "too long to check", c.call, "tools.register", [{"name": "x", "parameters": {"$ref": "#/$defs/l40", "$defs": defs}}])
    branch = {"properties": {"a": {"$ref": "#"}}, "required": ["b"]}
    refused(-32602, "too long to check", c.call, "tools.register", [{"name": "x", "parameters": {"anyOf": [branch, branch]}}])

    # An unknown tool, and one of another connection.
    outcome(c.propose("nothing", {}), "tool_not_found", "tool")
    other = ws()
    outcome(other.propose("echo", {}), "tool_not_found", "tool")
    other.close()

    # A schema; none and an empty one accept anything.
    tree = {"type": "object", "required": ["path"], "additionalProperties": False,
            "properties": {"path": {"type": "string", "pattern": "^/"}, "n": {"type": "integer", "maximum": 5},
                           "child": {"$ref": "#"}}}
    c.register("strict", lambda p: result("ok"), parameters=tree)
    outcome(c.propose("strict", {"path": "/a", "n": 5, "child": {"path": "/b"}}), "success")
    for bad, says in (({}, "required"), ({"path": "secret"}, "pattern"), ({"path": "/", "n": 5.5}, "type"),
                      ({"path": "/", "n": 99999999999999999999}, "n"), ({"path": "/", "x": 1}, "parameters"),
                      ({"path": "/", "child": {}}, "required"), (None, "required"), ([], "type"), ("text", "type")):
        got = outcome(c.propose("strict", bad), "invalid_args", "schema")
        assert says in got["outcome"]["message"] and "secret" not in got["outcome"]["message"], got
    for schema in ({}, None, True):
        c.register("free", lambda p: result(None), parameters=schema)
        got = outcome(c.propose("free", [1, "x"]), "success")
        assert got["output"] is None and "output" in got, got
    assert all(e["tool"] != "strict" or e["parameters"]["path"].startswith("/") for e in c.executed)


def capabilities(c):
    c.register("net", lambda p: result(1), capabilities=["net.connect", "fs.read"])
    outcome(c.propose("net", {}, proposal={"capabilities": ["fs.read", "net.connect"]}), "success")
    outcome(c.propose("net", {}, proposal={"capabilities": []}), "capability_denied", "capability", missing=["fs.read", "net.connect"])
    c.register("raw", lambda p: result(1), capabilities=["raw"])  # the policy file does not grant it
    outcome(c.propose("raw", {}), "capability_denied", "capability", missing=["raw"])


def policies(c):
    for rule, says in (
        ({"name": "x", "rule": "allow_tool", "target": "echo"}, "unknown rule"),
        ({"name": "x", "rule": "deny_tool"}, "target"),
        ({"rule": "deny_tool", "target": "echo"}, "name"),
        ({"name": "file_rule", "rule": "deny_tool", "target": "zzz"}, "already used"),
        ({"name": "tools.deny", "rule": "deny_tool", "target": "zzz"}, "already used"),
        ({"name": "x", "rule": "deny_tool", "target": "echo", "colour": 1}, "unknown key"),
    ):
        refused(-32602, says, c.call, "policy.register", rule)
    rules = [
        {"name": "no_shell", "rule": "deny_tool", "target": "shell"},
        {"name": "no_etc", "rule": "deny_tool_param", "target": "echo", "key": "path", "value_path": "/etc"},
        {"name": "no_rm", "rule": "deny_tool_param_matching", "target": "echo", "key": "cmd", "pattern": r"\brm\b"},
        {"name": "bad", "rule": "deny_tool_param_matching", "target": "broken", "key": "x", "pattern": "("},
        {"name": "hosts", "rule": "allow_tool_param", "target": "fetch", "key": "host", "value": ["a.example", "b.example"]},
        {"name": "words", "rule": "deny_keyword", "target": "", "key": "", "pattern": "", "value": "hunter2"},
        {"name": "few", "rule": "rate_limit_tool", "target": "rare", "value": "2/1h"},
        {"name": "checked", "rule": "require_state", "target": "deploy", "key": "verdict", "value": "pass"},
    ]
    for rule in rules:
        assert c.call("policy.register", rule) == {"registered": rule["name"]}
    for name in ("shell", "broken", "fetch", "rare", "deploy", "from_file"):
        c.register(name, lambda p: result("ran"))

    def denied(rule, param, tool, parameters):
        got = outcome(c.propose(tool, parameters), "policy_denied", "policy", rule=rule)
        assert got["violations"][0].get("param") == param, got
        assert "hunter2" not in json.dumps(got["violations"]) and "output" not in got, got

    denied("no_shell", None, "shell", {})
    denied("no_etc", "path", "echo", {"path": "/etc/passwd"})
    denied("no_rm", "cmd", "echo", {"cmd": "sudo rm -rf /"})
    denied("bad", "x", "broken", {"x": "anything"})
    for host in ({}, {"host": ""}, {"host": "c.example"}, {"host": ["a.example"]}):
        denied("hosts", "host", "fetch", host)
    outcome(c.propose("fetch", {"host": "a.example"}), "success")
    denied("words", None, "echo", {"deep": [{"x": "my HUNTER2 key"}]})
    outcome(c.propose("rare", {}), "success")
    outcome(c.propose("rare", {}, dry_run=True), "success")
    outcome(c.propose("rare", {}), "success")
    denied("few", None, "rare", {})
    denied("tools.deny", None, "from_file", {})
    # Another client is under the same rules: the run's.
    other = ws()
    other.register("echo", lambda p: result(1))
    outcome(other.propose("echo", {"path": "/etc"}), "policy_denied", "policy", rule="no_etc")
    other.close()
    # Every violation is told, the first decides.
    got = outcome(c.propose("echo", {"path": "/etc", "cmd": "rm hunter2"}), "policy_denied", "policy", rule="no_etc")
    assert [v["rule"] for v in got["violations"]] == ["no_etc", "no_rm", "words"], got
    # A state that only the gateway sees.
    c.register("check_outcome", lambda p: result({"passed": p["parameters"]["passed"]}))
    denied("checked", None, "deploy", {})
    outcome(c.propose("check_outcome", {"passed": False}), "success")
    denied("checked", None, "deploy", {})
    outcome(c.propose("check_outcome", {"passed": True}), "success")
    outcome(c.propose("deploy", {}), "success")
    ran = {e["tool"] for e in c.executed}
    assert not ran & {"shell", "broken", "from_file"}, ran


def rates(c):
    c.register("limited", lambda p: result(1), rate_limit_per_min=2)
    for _ in range(2):
        outcome(c.propose("limited", {}), "success")
    got = outcome(c.propose("limited", {}), "rate_limited", "rate_limit")
    assert 0 < got["outcome"]["retry_after_ms"] <= 60000, got
    # Registering again does not reset it.
    c.register("limited", lambda p: result(1), rate_limit_per_min=2)
    outcome(c.propose("limited", {}), "rate_limited", "rate_limit")

    release, entered = threading.Event(), threading.Event()

    def hold(params):
        def later():
            release.wait(10)
            c.send({"jsonrpc": "2.0", "id": ids.pop(), "result": "late"})
        threading.Thread(target=later).start()
        entered.set()

    ids = []
    got_before = c.got

    def spy(message):
        if isinstance(message, dict) and message.get("method") == "tools.execute" and message["params"]["tool"] == "single":
            ids.append(message["id"])
        got_before(message)

    c.got = spy
    c.register("single", hold, max_concurrent=1)
    first = c.start("proposal.submit", {"proposal": {"id": "p", "source": "", "actions": [{"id": "a", "type": "tool_call", "tool": "single", "parameters": {}}]}})
    assert entered.wait(10)
    outcome(c.propose("single", {}), "rate_limited", "rate_limit")
    release.set()
    outcome(c.finish(first)["actions"][0], "success")
    release.clear()
    entered.clear()
    second = c.start("proposal.submit", {"proposal": {"id": "p", "source": "", "actions": [{"id": "a", "type": "tool_call", "tool": "single", "parameters": {}}]}})
    assert entered.wait(10)  # its place is free again
    release.set()
    outcome(c.finish(second)["actions"][0], "success")


def failures(c):
    c.register("fails", lambda p: {"error": {"code": 7, "message": "no such file"}})
    got = outcome(c.propose("fails", {}), "execution_failed", code="tool_error", retryable=False)
    assert got["error"] == {"code": 7, "message": "no such file"} and "output" not in got, got

    # An answer that cannot be taken ends its call, a request that cannot has one.
    deep = 1
    for _ in range(70):
        deep = [deep]
    c.register("deep", lambda p: {"result": deep})
    got = outcome(c.propose("deep", {}), "execution_failed", code="tool_error", retryable=False)
    assert "nested deeper" in got["error"]["message"], got
    note = c.notes.get(timeout=10)
    assert note["id"] is None and note["error"]["code"] == -32600, note
    c.register("nan", lambda p: {"result": float("nan")})  # which json.dumps writes, and JSON does not have
    got = outcome(c.propose("nan", {}), "execution_failed", code="tool_error", retryable=False)
    assert "not valid JSON" in got["error"]["message"], got
    note = c.notes.get(timeout=10)
    assert note["id"] is None and note["error"]["code"] == -32700, note
    refused(-32600, "nested deeper", c.propose, "deep", {"deep": deep})

    c.register("never", lambda p: None, deadline_ms=100)
    outcome(c.propose("never", {}), "execution_failed", code="deadline", retryable=True)
    note = c.notes.get(timeout=10)
    assert note["method"] == "tools.cancel" and note["params"]["reason"] == "deadline", note

    c.register("stuck", lambda p: None)
    answer = c.start("proposal.submit", {"proposal": {"id": "p", "source": "", "actions": [
        {"id": "a", "type": "tool_call", "tool": "stuck", "parameters": {}},
        {"id": "b", "type": "tool_call", "tool": "stuck", "parameters": {}}]}}, id="cancel-me")
    while c.call("$/cancelRequest", {"id": "cancel-me"}) != {"cancelled": True} or c.executed[-1]["tool"] != "stuck":
        pass
    for got in c.finish(answer)["actions"]:
        outcome(got, "execution_failed", code="cancelled")
    note = c.notes.get(timeout=10)  # for the one that was dispatched
    assert note["params"]["reason"] == "cancelled" and note["params"]["action_id"] == "a" and c.notes.empty(), note
    assert c.call("$/cancelRequest", {"id": "nobody"}) == {"cancelled": False}

    # A client that vanishes in the middle of a call.
    global turns
    other = ws()
    entered = threading.Event()
    other.register("lost", lambda p: entered.set())
    other.start("proposal.submit", {"proposal": {"id": "p", "source": "gone", "actions": [{"id": "a", "type": "tool_call", "tool": "lost", "parameters": {}}]}})
    assert entered.wait(10)
    other.close()
    turns += 1
    # An answer that nobody asked for, and one too many, harm nothing.
    before = c.call("metrics.snapshot")["late_results"]
    for id in (10**9, "x", None, -1, 1.5):
        c.send({"jsonrpc": "2.0", "id": id, "result": 1})
    assert c.call("metrics.snapshot")["late_results"] == before + 5


def outputs(c):
    c.register("drive_cli", lambda p: result(p["parameters"]["out"]))
    for out in ({"exit_code": 3, "stdout": "x"}, {"timed_out": True, "exit_code": 0}, {"timed_out": False, "exit_code": 0}, "text"):
        outcome(c.propose("drive_cli", {"prompt": "do it", "out": out}), "success")
    big = "é\u2028\x00" * 20000
    got = outcome(c.propose("echo", {"big": big}), "success")
    assert got["output"] == {"big": big}  # only the record is cut
    for _ in range(3):
        outcome(c.propose("echo", {"text": "repeat " * 1000}), "success")
    outcome(c.propose("echo", {"many": [str(i) + "x" * 1000 for i in range(1000)]}), "success")
    # A tool call id of the SDK's own is kept.
    got = outcome(c.propose("echo", {}, action={"tool_call_id": "call_abc"}), "success")
    assert got["tool_call_id"] == "call_abc" and c.executed[-1]["tool_call_id"] == "call_abc"
    got = outcome(c.propose("echo", {}), "success")
    assert got["tool_call_id"] == got["call_id"] == c.executed[-1]["tool_call_id"] and len(got["call_id"]) == 26
    # Dry runs run nothing.
    n = len(c.executed)
    got = outcome(c.propose("echo", {"a": 1}, dry_run=True), "success")
    assert got["dry_run"] and "output" not in got and len(c.executed) == n, got


def proposals(c):
    action = {"id": "a", "type": "tool_call", "tool": "echo", "parameters": {}}
    for params, says in (
        ({}, "proposal is missing"), ({"proposal": {"id": "p", "source": "", "actions": []}}, "1 to"),
        ({"proposal": {"id": "p", "source": "", "actions": [action, action]}}, "same id"),
        ({"proposal": {"id": "p", "source": "", "actions": [{**action, "type": "shell"}]}}, "tool_call"),
        ({"proposal": {"id": "p", "source": "", "actions": [{**action, "id": ""}]}}, "id must have"),
        ({"proposal": {"id": "p", "source": "", "actions": [{**action, "x": 1}]}}, "unknown key"),
        ({"proposal": {"id": "p", "source": "", "actions": [{**action, "tool_call_id": "x" * 129}]}}, "at most 128"),
        ({"proposal": {"id": "p", "source": "", "actions": [{**action, "denied": {"rule": ""}}]}}, "rule must have"),
        ({"proposal": {"id": "p", "source": "assay-run:gateway", "actions": [{**action, "denied": {"rule": "r"}}]}}, "assay-run:gateway is"),
        ({"proposal": {"id": "p", "source": "assay-run:gateway", "actions": [{**action, "allowed": True}]}}, "assay-run:gateway is"),
        ({"proposal": {"id": "p", "source": "x", "actions": [{**action, "allowed": True, "denied": {"rule": "r"}}]}}, "both allowed and denied"),
        ({"proposal": {"id": "p", "source": "", "actions": [{**action, "id": str(i)} for i in range(1001)]}}, "1 to 1000"),
    ):
        refused(-32602, says, c.call, "proposal.submit", params)
    refused(-32002, "does not exist", c.call, "proposal.submit", {"run_id": "run_x", "proposal": {"id": "p", "source": "", "actions": [action]}})
    # One proposal, several fates, in order.
    got = c.call("proposal.submit", {"proposal": {"id": "p9", "source": "agent-7", "actions": [
        {**action, "id": "a1"}, {**action, "id": "a2", "tool": "shell"}, {**action, "id": "a3", "tool": "fails"}, {**action, "id": "a4"}]}})
    assert got["id"] == "p9" and got["run_id"] == RUN and [a["id"] for a in got["actions"]] == ["a1", "a2", "a3", "a4"], got
    for a, kind, by in zip(got["actions"], ("success", "policy_denied", "execution_failed", "success"), (None, "policy", None, None)):
        outcome(a, kind, by)
    # What the client's own policy denied is on record, registered or not.
    n = len(c.executed)
    got = c.call("proposal.submit", {"proposal": {"id": "p10", "source": "proxy", "actions": [
        {**action, "tool": "unheard_of", "denied": {"rule": "its_rule", "param": "path"}}]}})["actions"][0]
    outcome(got, "policy_denied", "policy")
    assert got["outcome"]["rule"] == "its_rule" and got["recorded"] and len(c.executed) == n, got


def protocol(c):
    refused(-32601, "unknown method", c.call, "runs.destroy")
    for text, code in (
        ("{", -32700), ("nonsense", -32700), ('{"jsonrpc":"2.0","id":1,"id":2,"method":"runs.list"}', -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{"a":1,"a":2}}', -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{"a":[{"b":1,"b":2}]}}', -32700),
        ('"text"', -32600), ("1", -32600), ("[]", -32600), ("null", -32600), ("{}", -32600),
        ('{"jsonrpc":"1.0","id":1,"method":"runs.list"}', -32600), ('{"jsonrpc":"2.0","id":{},"method":"runs.list"}', -32600),
        ('{"jsonrpc":"2.0","id":"%s","method":"runs.list"}' % ("x" * 300), -32600),
        ('{"jsonrpc":"2.0","id":1,"method":5}', -32600), ('{"jsonrpc":"2.0","id":1,"method":"a","result":1}', -32600),
        ('{"jsonrpc":"2.0","result":1}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"runs.list","params":' + "[" * 100 + "]" * 100 + "}", -32600),
        ("[" * 100000, -32600), ('{"a":' * 100000, -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{"n":1e999999999}}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{"n":' + "9" * 400 + "}}", -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{"s":"\\ud800"}}', -32700),
    ):
        with c.lock:
            c.wire.send(text)
        got = c.notes.get(timeout=10)
        assert got["error"]["code"] == code, (text[:80], got)
    # Notifications get no answer, batches get one.
    c.send({"jsonrpc": "2.0", "method": "runs.list"})
    c.send({"jsonrpc": "2.0", "method": "runs.destroy"})
    with c.lock:
        c.wire.send(json.dumps([
            {"jsonrpc": "2.0", "id": "b1", "method": "runs.list"}, {"jsonrpc": "2.0", "method": "runs.list"},
            {"jsonrpc": "2.0", "id": "b2", "method": "nothing"}, 7]))
    got = [c.notes.get(timeout=10) for _ in range(3)]
    assert sorted(str(m["id"]) for m in got) == ["None", "b1", "b2"], got
    assert c.notes.empty()


def turns_and_traces(c):
    global turns
    sub = c.call("runs.subscribe", {"run_id": RUN})
    seen = list(sub["turns"])
    n = turns
    good = {"tool": "x", "index": 999, "seq": 5, "run_id": "other", "schema": "s", "source": "me",
            "parameters": {"a": 1}, "output": "o", "prompt": "p", "cli_outcome": {"kind": "exited", "code": 0},
            "verifier_verdict": "pass", "tool_call_id": "t", "t_start_ns": 1, "t_end_ns": 2}
    got = c.call("runs.record_turns", {"run_id": RUN, "turns": [good, {"tool": "y"}, {"tool": "z", "policy_rejected": {"rule": "r", "param": "p"}}]})
    turns += 3
    assert got == {"run_id": RUN, "first_index": n, "count": 3}, (got, n)
    for bad, says in (
        ({"tool": "x", "colour": 1}, "unknown key"), ({"tool": "x", "verifier_verdict": "maybe"}, "verifier_verdict"),
        ({"tool": "x", "cli_outcome": {"kind": "exited"}}, "cli_outcome"), ({"tool": "x", "policy_rejected": {"rule": ""}}, "policy_rejected"),
        ({"tool": "x", "policy_rejected": {"rule": "r"}, "output": 1}, "no output"),
    ):
        refused(-32602, says, c.call, "runs.record_turns", {"run_id": RUN, "turns": [{"tool": "ok"}, bad]})
    refused(-32602, "1 to", c.call, "runs.record_turns", {"run_id": RUN, "turns": []})
    while len(seen) < turns:
        note = c.notes.get(timeout=10)
        assert note["method"] == "runs.turns" and note["params"]["subscription"] == sub["subscription"], note
        seen += note["params"]["turns"]
    assert [t["index"] for t in seen] == list(range(turns)), "a gap or a repeat"
    trace = c.call("runs.get_trace", {"run_id": RUN})
    whole = list(trace["turns"])
    while "next_index" in trace:
        trace = c.call("runs.get_trace", {"run_id": RUN, "from_index": trace["next_index"]})
        whole += trace["turns"]
    assert whole == seen, (len(whole), len(seen))
    assert c.call("runs.get_trace", {"from_index": 2, "limit": 3})["turns"] == seen[2:5]
    refused(-32602, "from_index", c.call, "runs.get_trace", {"from_index": 10**6})
    last = seen[-3:]
    assert [t["source"] for t in last] == ["reported"] * 3 and last[0]["reported"] == {"t_start_ns": 1, "t_end_ns": 2}
    assert last[0]["t_start_ns"] == last[0]["t_end_ns"] > 1000 and last[2]["rejected_by"] == "policy"
    runs = c.call("runs.list")["runs"]
    assert len(runs) == 1 and runs[0]["run_id"] == RUN and runs[0]["turns"] == turns and runs[0]["state"] == "open", runs
    assert c.call("runs.unsubscribe", {"subscription": sub["subscription"]})
    return seen


def complete(c):
    refused(-32602, "outcome", c.call, "runs.complete", {})
    sub = c.call("runs.subscribe", {"from_index": turns})
    assert sub["turns"] == []
    got = c.call("runs.complete", {"run_id": RUN, "outcome": "success"})
    assert got == {"run_id": RUN, "outcome": "success", "turns": turns}, got
    note = c.notes.get(timeout=10)
    assert note["method"] == "runs.ended" and note["params"]["outcome"] == "success", note
    refused(-32003, "completed", c.call, "runs.complete", {"outcome": "success"})
    refused(-32003, "completed", c.call, "runs.start", {"agent_id": "agent-7", "intent": ""})
    assert not outcome(c.propose("echo", {}), "success")["recorded"]


def main():
    authentication()
    frames()
    c = ws()
    before_the_run(c)
    start(c)
    for part in (tools, capabilities, policies, rates, failures, outputs, proposals):
        part(c)
    # The same protocol by the line.
    u = Client(Unix(SOCKET))
    u.register("echo", lambda p: result(p["parameters"]))
    outcome(u.propose("echo", {"by": "line"}), "success")
    protocol(u)
    u.close()
    protocol(c)
    while c.call("metrics.snapshot")["turns"] < turns:
        pass  # the call that was lost is on its way
    seen = turns_and_traces(c)
    complete(c)
    metrics = c.call("metrics.snapshot")
    assert metrics["calls"] == metrics["events"] == sum(metrics["outcomes"].values()), metrics
    print(json.dumps({"turns": turns, "metrics": metrics, "seen": seen}))


main()
