"""Reports tool calls to assay-run. One file, standard library only; does
nothing outside of a run. Safe for threads, and for several processes that
write to one log."""

import contextlib
import contextvars
import datetime
import fcntl
import functools
import inspect
import json
import os
import uuid

_TAIL = 1 << 20  # no line is longer
_current = contextvars.ContextVar("assay_tool_call_id")


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
        token = _current.set(tool_call_id)
        try:
            yield self.env()
        finally:
            _current.reset(token)
            self.completed(tool_call_id, tool)

    def tool(self, function):
        """Reports every call of a function, or coroutine function, that an SDK
        calls by itself and without a call's id. The id is made here; the
        function gets it into its processes with env()."""
        name = function.__name__

        def call():
            return self.call(f"{name}-{uuid.uuid4().hex}", name)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def reported(*args, **kwargs):
                with call():
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def reported(*args, **kwargs):
                with call():
                    return function(*args, **kwargs)

        return reported

    @staticmethod
    def env(tool_call_id=None, env=None):
        """The environment for processes of a call, or of the one that runs."""
        return {**(os.environ if env is None else env), "ASSAY_TOOL_CALL_ID": tool_call_id or _current.get()}


def _next_seq(fd):
    """The number after that of the last line."""
    size = os.fstat(fd).st_size
    lines = os.pread(fd, _TAIL, max(0, size - _TAIL)).splitlines()
    return json.loads(lines[-1])["seq"] + 1 if lines else 0
