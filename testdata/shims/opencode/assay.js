// Reports OpenCode's tool calls to assay-run: a plugin, for .opencode/plugin/. It does
// nothing outside of a run. What the shell of a call runs is bound to the call by its
// environment.
import { AssayShim } from "./assay/assay-shim.mjs"

export const AssayRun = async () => {
  const shim = new AssayShim({ source: "opencode", name: "opencode" })
  const open = new Map()
  return {
    "tool.execute.before": async ({ tool, callID }) => {
      open.set(callID, tool)
      shim.started(callID, tool)
    },
    "tool.execute.after": async ({ tool, callID }) => {
      open.delete(callID)
      shim.completed(callID, tool)
    },
    "shell.env": async ({ callID }, output) => {
      if (callID && open.has(callID)) output.env.ASSAY_TOOL_CALL_ID = callID
    },
    event: async ({ event }) => {
      if (event.type !== "session.idle" && event.type !== "session.error") return
      for (const [callID, tool] of open) shim.completed(callID, tool) // one that failed has no other end
      open.clear()
    },
  }
}
