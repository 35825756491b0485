"""Agents of a run, one a mode (argument 1): what they tell the gateway, and
what they do."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

from client import Client, RPCError, Unix, result

SOCKET, RUN = os.environ["ASSAY_RUN_SOCKET"], os.environ["ASSAY_RUNNER_RUN_ID"]


def connect():
    return Client(Unix(SOCKET))


def begin(c):
    assert c.call("runs.start", {"agent_id": "agent", "intent": "test"}) == {"run_id": RUN}


def touch(path):
    with open(path, "w"):
        pass


def hidden():
    """A tool that claims only to read, and what nobody's tool does."""
    c = connect()
    begin(c)

    def read(p):
        touch("hidden")
        with open("in") as f:
            return result(f.read())

    c.register("read_file", read)
    c.register("list_dir", lambda p: result(os.listdir(".")))
    touch("before")
    assert c.propose("read_file", {"path": "in"}, action={"tool_call_id": "tc_1"})["outcome"]["kind"] == "success"
    touch("between")
    c.propose("list_dir", {}, action={"tool_call_id": "tc_2"})
    touch("after")
    c.call("runs.complete", {"outcome": "done"})
    try:
        c.call("runs.complete", {"outcome": "done"})
        raise AssertionError("completed twice")
    except RPCError as err:
        assert "completed" in err.message, err.message


def vanish():
    """A client that goes away with its run open."""
    c = connect()
    assert c.register("echo", lambda p: result(1))
    assert not c.propose("echo", {})["recorded"]  # no run is open
    begin(c)
    assert c.propose("echo", {})["recorded"]
    c.call("runs.record_turns", {"turns": [{"tool": "x"}, {"tool": "y"}]})
    os._exit(0)


def overlap():
    """100 calls, all open before one of them does anything. Each of them has
    short-lived processes touch files named after it: every other one is known
    by a cgroup, the rest by the environment."""
    c = connect()
    begin(c)
    go, left = threading.Event(), threading.Semaphore(0)
    for i in range(100):
        touch(f"file-{i}-")

    def run(message):
        p = message["params"]
        i = p["parameters"]["i"]
        tool = ["sh", "-c", 'cat file-$0 file-$0 > /dev/null; sh -c "echo > out-$0"; touch made-$0; (rm made-$0; env -i cat file-$0 > copy-$0)', f"{i}-"]
        env = dict(os.environ)
        if i % 2:
            tool = ["assay-run", "call", "--id", p["tool_call_id"], "--", *tool]
        else:
            env["ASSAY_TOOL_CALL_ID"] = p["tool_call_id"]
        left.release()
        go.wait()
        code = subprocess.run(tool, env=env).returncode
        c.send({"jsonrpc": "2.0", "id": message["id"], **result({"exit_code": code})})

    got = c.got
    c.got = lambda m: threading.Thread(target=run, args=(m,)).start() if m.get("method") == "tools.execute" else got(m)
    c.register("drive_cli", None)
    answers = [c.start("proposal.submit", {"proposal": {"id": f"p{i}", "source": "agent", "actions": [
        {"id": "a", "type": "tool_call", "tool": "drive_cli", "tool_call_id": f"call-{i}", "parameters": {"prompt": f"do {i}", "i": i}}]}}) for i in range(100)]
    for _ in range(100):
        left.acquire()
    go.set()
    for a in answers:
        assert c.finish(a)["actions"][0]["output"] == {"exit_code": 0}
    c.call("runs.complete", {"outcome": "done"})


def logs():
    """A call that the SDK's log and the gateway both tell of."""
    n = 0

    def sdk(event, **more):
        nonlocal n
        with open(os.environ["ASSAY_RUNNER_SDK_EVENT_LOG"], "a") as f:
            f.write(json.dumps({"schema": os.environ["ASSAY_RUNNER_SDK_EVENT_SCHEMA"], "run_id": RUN, "seq": n, "event_type": event, "source": "t", **more}) + "\n")
        n += 1

    def decide(i):
        with open(os.environ["ASSAY_RUNNER_POLICY_DECISION_LOG"], "a") as f:
            f.write(json.dumps({"type": "assay.tool.decision", "source": "log", "data": {"tool": "echo", "tool_call_id": f"tc_{i}", "decision": "allow"}}) + "\n")

    def recorded(layer, text):
        """A line's time is when the runner heard of it."""
        path = os.path.join(os.environ["XDG_STATE_HOME"], "assay-run", "spool", RUN, "layers", layer + ".ndjson")
        while not os.path.exists(path) or text not in open(path).read():
            time.sleep(0.001)

    c = connect()
    begin(c)
    c.register("echo", lambda p: (time.sleep(0.02), result(1))[1])
    for i in range(20):
        sdk("tool_call_started", tool_call_id=f"tc_{i}", tool="echo")
        decide(i)
        for layer in ("sdk", "policy"):
            recorded(layer, f'"tool_call_id":"tc_{i}"')
        assert c.propose("echo", {}, action={"tool_call_id": f"tc_{i}"})["recorded"]
        sdk("tool_call_completed", tool_call_id=f"tc_{i}", tool="echo")
    sdk("run_finished")
    c.call("runs.complete", {"outcome": "done"})


def peak():
    """The most memory that the runner, our parent, ever had, in MiB."""
    runner = f"/proc/{os.getppid()}/"
    with open(runner + "cmdline") as f:
        assert f.read().startswith("assay-run\0")
    with open(runner + "status") as f:
        status = f.read()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def line(message):
    return json.dumps(message).encode() + b"\n"


def call(id, tool, parameters=None):
    return line({"jsonrpc": "2.0", "id": id, "method": "proposal.submit", "params": {"proposal": {"id": "p", "source": "flood", "actions": [
        {"id": "a", "type": "tool_call", "tool": tool, "parameters": parameters or {}}]}}})


def flood(count, pad="0", deadline="0"):
    """count calls sent without waiting for an answer, each with a padding of so
    many bytes. With a deadline in milliseconds their callbacks are never
    answered."""
    count, pad, deadline = int(count), "x" * int(pad), int(deadline)
    s = socket.socket(socket.AF_UNIX)
    s.connect(SOCKET)
    tool = {"name": "t", **({"deadline_ms": deadline} if deadline else {})}
    s.sendall(line({"jsonrpc": "2.0", "id": "start", "method": "runs.start", "params": {"agent_id": "a", "intent": ""}}) +
              line({"jsonrpc": "2.0", "id": "tools", "method": "tools.register", "params": [tool]}))
    out, room, closing = [], threading.Condition(), False

    def write():
        while True:
            with room:
                room.wait_for(lambda: out or closing)
                if not out:
                    return
                data, out[:] = b"".join(out), []
            s.sendall(data)

    def make():  # meanwhile the answers are read, because the gateway waits 30 s for a client that reads none
        for first in range(0, count, 1000):
            batch = b"".join(call(i, "t", {"pad": pad}) for i in range(first, min(first + 1000, count)))
            with room:
                out.append(batch)
                room.notify()

    writer = threading.Thread(target=write)
    writer.start()
    threading.Thread(target=make).start()
    kinds = {}
    answered = 0
    for text in s.makefile("rb"):
        m = json.loads(text)
        if m.get("method") == "tools.execute" and not deadline:
            with room:
                out.append(b'{"jsonrpc":"2.0","id":%b,"result":1}\n' % json.dumps(m["id"]).encode())
                room.notify()
        elif isinstance(m.get("id"), int) and "method" not in m:
            kind = m["result"]["actions"][0]["outcome"]["kind"] if "result" in m else m["error"]["message"]
            kinds[kind] = kinds.get(kind, 0) + 1
            answered += 1
            if answered == count:
                break
    with room:
        closing = True
        room.notify()
    writer.join()
    print(json.dumps({"kinds": kinds, "peak": peak()}))


def half_messages():
    """Clients that stop in the middle of a message, more of them than there are places."""
    conns = []
    for i in range(300):
        s = socket.socket(socket.AF_UNIX)
        s.connect(SOCKET)
        try:
            s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{"x":"' + b"x" * (3 << 20))
        except OSError:
            pass  # there was no place or no room, and it was told so
        conns.append(s)
    return conns


def told(s):
    """What a client was told, None while it still may finish its message."""
    s.setblocking(False)
    try:
        return s.recv(1 << 16)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def halves():
    """Many half messages, and one that is more than anybody can hold."""
    for rounds in range(5):
        conns = half_messages()
        said = [(s, told(s)) for s in conns]
        refused = sum(b"more than 256 connections" in (m or b"") for _, m in said)
        full = sum(b"too many requests in flight" in (m or b"") for _, m in said)
        for s in conns[:8]:
            s.close()
        waiting = [s for s, m in said[8:] if m is None]
        while True:  # places are free again
            try:
                connect().call("runs.list")
                break
            except Exception:
                time.sleep(0.01)
        # Where one's time was up meanwhile, it may be that one that was waited for.
        if all(told(s) is None for s in waiting):
            break
        for s in conns:
            s.close()
    else:
        sys.exit("a client is answered only once the time of half a message is up")
    answer = b""
    while b"too large" not in answer:  # or there was no place yet
        s = socket.socket(socket.AF_UNIX)
        s.connect(SOCKET)
        try:
            for _ in range(100):
                s.sendall(b"[" * (1 << 20))
        except OSError:
            pass
        answer = s.recv(1 << 16)
    print(json.dumps({"refused": refused, "full": full, "waiting": len(waiting), "peak": peak()}))
    sys.stdout.flush()
    os._exit(0)  # all of them with us


globals()[sys.argv[1]](*sys.argv[2:])
