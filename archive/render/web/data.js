// The data of the page, and what a run's events are filtered by.

const page = JSON.parse(document.getElementById('data').textContent);

const GROUPS = ['process', 'read', 'write', 'network', 'privilege', 'other'];
const GROUP_WORDS = ['processes', 'reads', 'writes', 'network', 'privilege', 'other'];
const RESULTS = ['', '', 'failed', 'denied'];

// View is one run as it is looked at: which events pass the filter, what is
// selected, and which time is on screen. Parts subscribe to its changes.
class View {
  constructor(run) {
    this.run = run;
    this.n = run.shown;
    this.end = Math.max(run.end_ns / 1000, 1);
    this.from = 0;
    this.to = this.end;
    this.groups = GROUPS.map(() => true);
    this.onlyDenied = false;
    this.query = '';
    this.proc = -1;
    this.call = -1;
    this.selected = -1;
    this.now = -1; // the recording's place in time, microseconds
    this.lower = run.strings.map((s) => s.toLowerCase());
    this.procLower = run.processes.map((p) => (p.exe + ' ' + p.command).toLowerCase());
    this.rows = new Int32Array(0);
    this.listeners = [];
    this.filter();
  }

  on(f) { this.listeners.push(f); }
  changed(what) { for (const f of this.listeners) f(what); }

  // filter finds the events that pass; they stay in the order of time.
  filter() {
    const ev = this.run.events, words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = new Int32Array(this.n);
    let k = 0;
    const hit = this.run.strings.map((_, i) => words.every((w) => this.lower[i].includes(w)));
    const kinds = this.run.kinds;
    for (let i = 0; i < this.n; i++) {
      if (!this.groups[ev.group[i]] || (this.onlyDenied && ev.result[i] !== 3)) continue;
      if (this.proc >= 0 && ev.proc[i] !== this.proc) continue;
      if (this.call >= 0 && ev.call[i] !== this.call) continue;
      if (words.length && !hit[ev.value[i]]) {
        const text = this.lower[ev.value[i]] + ' ' + kinds[ev.kind[i]] + ' ' + (ev.proc[i] >= 0 ? this.procLower[ev.proc[i]] : '') + ' ' + ev.pid[i] + ' ' + RESULTS[ev.result[i]];
        if (!words.every((w) => text.includes(w))) continue;
      }
      rows[k++] = i;
    }
    this.rows = rows.subarray(0, k);
    this.changed('rows');
  }

  // at is the first row whose event is not before t.
  at(t) {
    let lo = 0, hi = this.rows.length;
    const T = this.run.events.t;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (T[this.rows[mid]] < t) lo = mid + 1; else hi = mid;
    }
    return lo;
  }

  select(event, reveal) {
    this.selected = event;
    if (event >= 0 && reveal) {
      const t = this.run.events.t[event];
      if (t < this.from || t > this.to) this.window(t - (this.to - this.from) / 2, t + (this.to - this.from) / 2);
    }
    this.changed('selected');
  }

  window(from, to) {
    const span = Math.min(Math.max(to - from, 50), this.end);
    from = Math.min(Math.max(from, 0), this.end - span);
    this.from = from;
    this.to = from + span;
    this.changed('window');
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const span = (this.to - this.from) / factor;
    const part = (around - this.from) / (this.to - this.from);
    this.window(around - span * part, around + span * (1 - part));
  }

  describe(i) {
    const ev = this.run.events, p = this.run.processes[ev.proc[i]];
    return {
      time: ev.t[i], kind: this.run.kinds[ev.kind[i]], group: ev.group[i], result: ev.result[i], value: this.run.strings[ev.value[i]],
      pid: ev.pid[i], process: p, count: ev.count[i], seq: ev.seq[i], call: ev.call[i] >= 0 ? this.run.calls[ev.call[i]] : null,
    };
  }
}

function program(p) { return p ? (p.exe.split('/').pop() || p.command.split(' ')[0] || '?') : ''; }
