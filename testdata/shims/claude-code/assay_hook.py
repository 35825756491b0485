#!/usr/bin/env python3
"""Reports Claude Code's tool calls to assay-run, as a command of its hooks: see
settings.json. Standard library only; does nothing outside of a run, and never
stands in the way of a tool call.

With --bind it also has Bash commands executed with ASSAY_TOOL_CALL_ID, by
putting an export before them, so that what they execute is bound to their call
also when calls overlap. What the shell does itself (its redirections, its
builtins) and all other tools are told by time, and so is everything without
--bind, which changes the command that Claude Code shows."""

import json
import os
import shlex
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from assay_shim import AssayShim  # noqa: E402


def main():
    event = json.load(sys.stdin)
    name, tool = event.get("hook_event_name"), event.get("tool_name")
    # Older versions have no tool_use_id; then one call at a time can be told.
    call = event.get("tool_use_id") or f"{event.get('session_id', 'session')}:{tool}"
    shim = AssayShim("claude-code", "claude-code", event.get("version", ""))
    if name == "PreToolUse":
        shim.started(call, tool)
        command = event.get("tool_input", {}).get("command")
        if "--bind" in sys.argv and tool == "Bash" and command and "ASSAY_RUNNER_RUN_ID" in os.environ:
            bound = f"export ASSAY_TOOL_CALL_ID={shlex.quote(call)}; {command}"
            json.dump(
                {"hookSpecificOutput": {"hookEventName": name, "updatedInput": {**event["tool_input"], "command": bound}}},
                sys.stdout,
            )
    elif name in ("PostToolUse", "PostToolUseFailure"):
        shim.completed(call, tool)
    elif name == "SessionEnd":
        shim.finished()


try:
    main()
except Exception as err:  # an agent must not fail because of its record
    print(f"assay_hook: {err}", file=sys.stderr)
    sys.exit(1)  # 2 would block the tool
