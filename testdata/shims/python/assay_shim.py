"""Reports tool calls to assay-run. One file, standard library only; does
nothing outside of a run. Safe for threads, and for several processes that
write to one log."""

import contextlib
import datetime
import fcntl
import json
import os

_TAIL = 1 << 20  # no line is longer


class AssayShim:
    """source and name say what reports: 'google-genai', 'google-genai'."""

    def __init__(self, source, name, version=""):
        self._base = {"source": source, "sdk_name": name, "sdk_version": version}
        self._log = os.environ.get("ASSAY_RUNNER_SDK_EVENT_LOG")

    def _emit(self, event_type, **fields):
        if not self._log:
            return
        fd = os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # until it is closed
            line = {
                "schema": os.environ["ASSAY_RUNNER_SDK_EVENT_SCHEMA"],
                "run_id": os.environ["ASSAY_RUNNER_RUN_ID"],
                "seq": _next_seq(fd),
                "event_type": event_type,
                **self._base,
                **{k: v for k, v in fields.items() if v is not None},
                "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            }
            os.write(fd, json.dumps(line).encode() + b"\n")
        finally:
            os.close(fd)

    def started(self, tool_call_id, tool, traceparent=None):
        self._emit("tool_call_started", tool_call_id=tool_call_id, tool=tool, traceparent=traceparent)

    def completed(self, tool_call_id, tool):
        self._emit("tool_call_completed", tool_call_id=tool_call_id, tool=tool)

    def finished(self):
        self._emit("run_finished")

    def failed(self):
        self._emit("run_failed")

    @contextlib.contextmanager
    def call(self, tool_call_id, tool):
        """Reports a call around a block, and gives the environment for the
        processes that it starts."""
        self.started(tool_call_id, tool)
        try:
            yield self.env(tool_call_id)
        finally:
            self.completed(tool_call_id, tool)

    @staticmethod
    def env(tool_call_id, env=None):
        return {**(os.environ if env is None else env), "ASSAY_TOOL_CALL_ID": tool_call_id}


def _next_seq(fd):
    """The number after that of the last line."""
    size = os.fstat(fd).st_size
    lines = os.pread(fd, _TAIL, max(0, size - _TAIL)).splitlines()
    return json.loads(lines[-1])["seq"] + 1 if lines else 0
