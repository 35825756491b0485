// Reports tool calls to assay-run. One file, no dependencies; does nothing
// outside of a run. One process writes a log: seq counts in this process.
import { appendFileSync, readFileSync } from 'node:fs';

export class AssayShim {
  #log = process.env.ASSAY_RUNNER_SDK_EVENT_LOG;
  #seq = 0;

  // source and name say what reports: 'openai-agents', '@openai/agents'.
  constructor({ source, name, version = '' }) {
    Object.assign(this, { source, name, version });
    if (!this.#log) return;
    try {
      // Lines of an earlier process of this run: go on counting.
      this.#seq = readFileSync(this.#log, 'utf8').split('\n').filter((l) => l.trim()).length;
    } catch (err) {
      if (err.code !== 'ENOENT') throw err;
    }
  }

  #emit(event) {
    if (!this.#log) return;
    const line = JSON.stringify({
      schema: process.env.ASSAY_RUNNER_SDK_EVENT_SCHEMA,
      run_id: process.env.ASSAY_RUNNER_RUN_ID,
      seq: this.#seq++,
      source: this.source,
      sdk_name: this.name,
      sdk_version: this.version,
      timestamp: new Date().toISOString(),
      ...event,
    });
    appendFileSync(this.#log, line + '\n'); // one write; on disk before the tool runs
  }

  started(id, tool) { this.#emit({ event_type: 'tool_call_started', tool_call_id: id, tool }); }
  completed(id, tool) { this.#emit({ event_type: 'tool_call_completed', tool_call_id: id, tool }); }
  finished() { this.#emit({ event_type: 'run_finished' }); }
  failed() { this.#emit({ event_type: 'run_failed' }); }

  // The environment for processes that a tool call starts.
  env(id, env = process.env) { return { ...env, ASSAY_TOOL_CALL_ID: id }; }

  // Reports a call around run, which gets the environment for its processes.
  async call(id, tool, run) {
    this.started(id, tool);
    try {
      return await run(this.env(id));
    } finally {
      this.completed(id, tool);
    }
  }

  // Reports every tool call of a Runner of @openai/agents.
  attach(runner) {
    runner.on('agent_tool_start', (_ctx, _agent, tool, { toolCall }) => this.started(toolCall.callId, tool.name));
    runner.on('agent_tool_end', (_ctx, _agent, tool, _result, { toolCall }) => this.completed(toolCall.callId, tool.name));
    return runner;
  }
}
