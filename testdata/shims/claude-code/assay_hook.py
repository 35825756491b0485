#!/usr/bin/env python3
"""Reports Claude Code's tool calls to assay-run, as a command of its hooks: see
settings.json. Standard library only; does nothing outside of a run, and never
stands in the way of a tool call.

With assay_shell as CLAUDE_CODE_SHELL_PREFIX, all that a Bash call does is bound
to the call by its environment. The hook then puts the call's id into a comment
before the command, which permission rules do not see and assay_shell does. All
other tools work inside of Claude Code, and are told by time."""

import json
import os
import re
import sys

sys.dont_write_bytecode = True  # or it would be the tool call that wrote it
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from assay_shim import AssayShim  # noqa: E402

LOG = os.environ.get("ASSAY_RUNNER_SDK_EVENT_LOG")
BOUND = os.path.basename(os.environ.get("CLAUDE_CODE_SHELL_PREFIX", "")) == "assay_shell"
ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")  # what assay_shell takes for an id


def version():
    """No event tells it; AI_AGENT is claude-code_2-1-330_harness."""
    found = re.match(r"claude-code_(\d+)-(\d+)-(\d+)", os.environ.get("AI_AGENT", ""))
    return ".".join(found.groups()) if found else ""


def unfinished():
    """The ids of the calls that started and have not completed."""
    calls = set()
    with open(LOG, encoding="utf-8") as log:
        for event in map(json.loads, log):
            if event["event_type"] == "tool_call_started":
                calls.add(event["tool_call_id"])
            elif event["event_type"] == "tool_call_completed":
                calls.discard(event["tool_call_id"])
    return calls


def main():
    if not LOG:
        return
    event = json.load(sys.stdin)
    name, tool = event["hook_event_name"], event.get("tool_name")
    # Older versions have no tool_use_id; then one call at a time can be told.
    call = event.get("tool_use_id") or f"{event.get('session_id', 'session')}:{tool}"
    shim = AssayShim("claude-code", "claude-code", version())
    if name == "PreToolUse":
        shim.started(call, tool)
        given = event.get("tool_input", {})
        if BOUND and tool == "Bash" and given.get("command") and ID.fullmatch(call):
            given = {**given, "command": f"# ASSAY_TOOL_CALL_ID={call}\n{given['command']}"}
            json.dump({"hookSpecificOutput": {"hookEventName": name, "updatedInput": given}}, sys.stdout)
    elif name in ("PostToolUse", "PostToolUseFailure"):
        shim.completed(call, tool)
    elif name == "PostToolBatch":  # a call that was not permitted has no other end
        left = unfinished()
        for done in event["tool_calls"]:
            if done["tool_use_id"] in left:
                shim.completed(done["tool_use_id"], done["tool_name"])
    elif name == "SessionEnd" and event.get("reason") not in ("clear", "resume"):  # another session follows
        shim.finished()


try:
    main()
except Exception as err:  # an agent must not fail because of its record
    print(f"assay_hook: {err}", file=sys.stderr)
    sys.exit(1)  # 2 would block the tool
