// The swimlanes: time goes right; what the run did is drawn in lanes.

const DENIED = GROUPS.length;
const LANE = {label: 92, axis: 24, bar: 13, tick: 26, gap: 6};

class Lanes {
  constructor(view) {
    this.view = view;
    this.canvas = el('canvas', {tabindex: 0, role: 'application', 'aria-label': 'Timeline. Left and right move, plus and minus zoom, 0 shows all; the table of events below has the same.'});
    this.tip = el('div', {class: 'tip', hidden: true});
    this.root = el('div', {class: 'lanes'}, this.canvas, this.tip);
    this.pack();
    this.layout();
    const c = this.canvas;
    c.addEventListener('wheel', (e) => {
      if (!e.ctrlKey && !e.shiftKey && Math.abs(e.deltaY) > Math.abs(e.deltaX)) return; // the page scrolls
      e.preventDefault();
      if (e.ctrlKey) view.zoom(Math.exp(-e.deltaY / 200), this.time(e.offsetX));
      else this.pan((e.deltaX || e.deltaY) / this.width());
    }, {passive: false});
    c.addEventListener('pointerdown', (e) => { this.drag = {x: e.offsetX, from: view.from, to: view.to, moved: false}; c.setPointerCapture(e.pointerId); });
    c.addEventListener('pointermove', (e) => this.move(e));
    c.addEventListener('pointerup', (e) => { if (this.drag && !this.drag.moved) this.click(e); this.drag = null; });
    c.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    c.addEventListener('dblclick', (e) => view.zoom(3, this.time(e.offsetX)));
    view.on(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.root);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  // pack puts bars that overlap in time into rows of their own.
  pack() {
    const run = this.view.run, end = this.view.end;
    const place = (bars, most) => {
      const free = [];
      for (const b of bars) {
        let row = free.findIndex((t) => t <= b.from);
        if (row < 0) row = free.length < most ? free.push(0) - 1 : most - 1;
        free[row] = Math.max(free[row], b.to);
        b.row = row;
      }
      return Math.max(free.length, 1);
    };
    this.procs = run.processes.map((p, i) => ({i, from: p.start_ns / 1000, to: (p.end_ns < 0 ? run.end_ns : p.end_ns) / 1000, bad: p.signal !== '' || p.exit > 0, label: program(p)}));
    this.procRows = place(this.procs, 14);
    this.calls = run.calls.map((c, i) => ({i, from: c.start_ns < 0 ? -1 : c.start_ns / 1000, to: (c.end_ns < 0 ? run.end_ns : c.end_ns) / 1000, bad: c.failed || c.beyond !== '' || c.verdict.startsWith('rejected'), label: c.tool || c.id})).filter((c) => c.from >= 0);
    this.calls.sort((a, b) => a.from - b.from);
    this.callRows = place(this.calls, 8);
    // How many processes were alive, as steps.
    const edges = this.procs.flatMap((p) => [[p.from, 1], [Math.min(p.to, end), -1]]).sort((a, b) => a[0] - b[0] || b[1] - a[1]);
    let alive = 0;
    this.alive = edges.map(([t, d]) => [t, (alive += d)]);
    this.aliveMost = Math.max(1, this.alive.reduce((most, a) => Math.max(most, a[1]), 0));
  }

  layout() {
    let y = LANE.axis;
    this.lanes = [];
    const add = (name, height, draw, extra) => { this.lanes.push({name, y, height, draw, ...extra}); y += height + LANE.gap; };
    if (this.calls.length) add('calls', this.callRows * LANE.bar, (l, g) => this.bars(l, g, this.calls, 'call'), {bars: this.calls});
    add('processes', this.procRows * LANE.bar, (l, g) => this.bars(l, g, this.procs, 'process'), {bars: this.procs});
    for (const group of [2, 1, 3, 4, 5]) {
      if (this.view.run.events.group.includes(group)) add(GROUP_WORDS[group], LANE.tick, (l, g) => this.ticks(l, g, this.bins[group], GROUPS[group]), {group});
    }
    if (this.view.run.denied) add('denied', LANE.tick, (l, g) => this.ticks(l, g, this.bins[DENIED], 'denied'), {denied: true});
    if (this.view.run.cast) add('terminal', LANE.tick, (l, g) => this.terminal(l, g));
    add('alive', LANE.tick, (l, g) => this.steps(l, g));
    this.height = y + 2;
  }

  width() { return this.wide || 50; }
  x(t) { return LANE.label + ((t - this.view.from) / (this.view.to - this.view.from)) * this.wide; }
  time(x) { return this.view.from + ((x - LANE.label) / this.width()) * (this.view.to - this.view.from); }
  pan(part) { const d = part * (this.view.to - this.view.from); this.view.window(this.view.from + d, this.view.to + d); }

  // draw draws at most once a frame.
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const start = performance.now();
    const ratio = window.devicePixelRatio || 1, w = this.root.clientWidth;
    if (!w) return;
    this.wide = Math.max(50, w - LANE.label - 8);
    this.sort();
    if (this.canvas.width !== Math.round(w * ratio) || this.canvas.height !== Math.round(this.height * ratio)) {
      this.canvas.width = Math.round(w * ratio);
      this.canvas.height = Math.round(this.height * ratio);
      this.canvas.style.height = this.height + 'px';
    }
    const g = this.canvas.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, this.height);
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    const dim = colour('dim'), line = colour('line');
    this.axis(g, dim, line);
    for (const lane of this.lanes) {
      g.fillStyle = dim;
      g.fillText(lane.name, 10, lane.y + Math.min(lane.height, LANE.tick) / 2);
      g.fillStyle = line;
      g.fillRect(0, lane.y + lane.height + LANE.gap / 2, w, 0.5);
      g.save();
      g.beginPath();
      g.rect(LANE.label, lane.y - 1, this.width(), lane.height + 2);
      g.clip();
      lane.draw(lane, g);
      g.restore();
    }
    const rule = (t, c) => { if (t >= this.view.from && t <= this.view.to) { g.fillStyle = c; g.fillRect(this.x(t) - 0.5, LANE.axis - 6, 1.5, this.height); } };
    if (this.view.selected >= 0) rule(this.view.run.events.t[this.view.selected], colour('accent'));
    if (this.view.now >= 0) rule(this.view.now, colour('bad'));
    this.took = performance.now() - start;
  }

  axis(g, dim, line) {
    const span = this.view.to - this.view.from;
    let step = Math.pow(10, Math.floor(Math.log10(span / (this.width() / 110))));
    for (const m of [1, 2, 5, 10]) if ((span / (step * m)) * 110 <= this.width()) { step *= m; break; }
    const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / 1e6))));
    for (let t = Math.ceil(this.view.from / step) * step; t <= this.view.to; t += step) {
      const x = this.x(t);
      g.fillStyle = line;
      g.fillRect(x, LANE.axis - 4, 0.5, this.height);
      g.fillStyle = dim;
      g.fillText((t / 1e6).toFixed(digits) + ' s', x + 3, 11);
    }
  }

  bars(lane, g, bars, name) {
    const {from, to} = this.view;
    const base = colour(name), bad = colour('bad'), bg = colour('panel');
    const last = new Float64Array(40).fill(-1);
    for (const b of bars) {
      if (b.to < from || b.from > to) continue;
      const x = Math.max(this.x(b.from), LANE.label - 2), end = Math.min(this.x(b.to), LANE.label + this.width() + 2);
      if (end <= last[b.row] && !b.bad) continue; // under what is drawn
      const y = lane.y + b.row * LANE.bar, wide = Math.max(end - x, 1);
      g.globalAlpha = (name === 'process' ? this.view.proc === b.i || this.view.proc < 0 : this.view.call === b.i || this.view.call < 0) ? 1 : 0.35;
      g.fillStyle = b.bad ? bad : base;
      g.fillRect(x, y, wide, LANE.bar - 2);
      last[b.row] = end;
      if (wide > 34) {
        g.fillStyle = bg;
        const most = Math.floor(wide / 6.2);
        g.fillText(b.label.length > most ? b.label.slice(0, most - 1) + '…' : b.label, x + 4, y + LANE.bar / 2 - 0.5);
      }
      g.globalAlpha = 1;
    }
  }

  // sort counts, for each column of pixels and each lane, the events there.
  sort() {
    const w = Math.ceil(this.wide);
    this.bins = Array.from({length: DENIED + 1}, () => new Uint32Array(w + 1));
    const {t: T, group, result} = this.view.run.events, {rows, from, to} = this.view, scale = this.wide / (to - from);
    for (let k = this.view.at(from); k < rows.length; k++) {
      const i = rows[k];
      if (T[i] > to) break;
      const b = ((T[i] - from) * scale) | 0;
      this.bins[group[i]][b]++;
      if (result[i] === 3) this.bins[DENIED][b]++;
    }
  }

  ticks(lane, g, bins, name) {
    const most = bins.reduce((a, b) => Math.max(a, b), 1), scale = Math.log1p(most);
    g.fillStyle = colour(name);
    for (let b = 0; b < bins.length; b++) {
      if (!bins[b]) continue;
      const h = most === 1 ? lane.height * 0.7 : lane.height * (0.25 + 0.75 * (Math.log1p(bins[b]) / scale));
      g.fillRect(LANE.label + b, lane.y + lane.height - h, 1.4, h);
    }
  }

  terminal(lane, g) {
    const c = this.view.run.cast;
    g.fillStyle = colour('good');
    for (const ms of c.times) {
      const t = ms * 1000;
      if (t >= this.view.from && t <= this.view.to) g.fillRect(this.x(t), lane.y + 6, 1.4, lane.height - 10);
    }
  }

  steps(lane, g) {
    g.fillStyle = colour('dim');
    g.globalAlpha = 0.45;
    for (let i = 0; i < this.alive.length; i++) {
      const [t, n] = this.alive[i], next = i + 1 < this.alive.length ? this.alive[i + 1][0] : this.view.end;
      if (next < this.view.from || t > this.view.to || !n) continue;
      const x = Math.max(this.x(t), LANE.label), h = (n / this.aliveMost) * lane.height;
      g.fillRect(x, lane.y + lane.height - h, Math.max(0.5, this.x(next) - x), h);
    }
    g.globalAlpha = 1;
  }

  move(e) {
    if (this.drag) {
      const d = ((this.drag.x - e.offsetX) / this.width()) * (this.drag.to - this.drag.from);
      if (Math.abs(this.drag.x - e.offsetX) > 3) this.drag.moved = true;
      if (this.drag.moved) this.view.window(this.drag.from + d, this.drag.to + d);
      return;
    }
    const found = this.find(e.offsetX, e.offsetY);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.replaceChildren(evidence(found.text));
    this.tip.style.left = Math.min(e.offsetX + 12, Math.max(0, this.root.clientWidth - 470)) + 'px';
    this.tip.style.top = Math.min(e.offsetY + 14, this.height - 30) + 'px';
  }

  // find is what is under the pointer.
  find(x, y) {
    if (x < LANE.label) return null;
    const lane = this.lanes.find((l) => y >= l.y && y <= l.y + l.height + LANE.gap);
    if (!lane) return null;
    const run = this.view.run, t = this.time(x), near = (this.view.to - this.view.from) / this.width() * 3;
    if (lane.bars) {
      const row = Math.floor((y - lane.y) / LANE.bar);
      const b = lane.bars.findLast((b) => b.row === row && t >= b.from - near && t <= b.to + near);
      if (!b) return null;
      if (lane.bars === this.procs) {
        const p = run.processes[b.i];
        return {proc: b.i, text: `${p.pid} ${p.command || p.exe} · ${seconds(b.from)} to ${p.end_ns < 0 ? 'the end' : seconds(b.to)}${p.exit > 0 ? ' · exit ' + p.exit : ''}${p.signal ? ' · ' + p.signal : ''}`};
      }
      const c = run.calls[b.i];
      return {call: b.i, text: `${c.tool} ${c.id} ${c.decision} ${c.verdict}`};
    }
    const rows = this.view.rows;
    for (let k = this.view.at(t - near); k < rows.length; k++) {
      const i = rows[k];
      if (run.events.t[i] > t + near) break;
      if (lane.denied ? run.events.result[i] === 3 : run.events.group[i] === lane.group) {
        const d = this.view.describe(i);
        return {event: i, text: `${seconds(d.time)} ${program(d.process)} ${d.kind} ${d.value}`};
      }
    }
    return null;
  }

  click(e) {
    const found = this.find(e.offsetX, e.offsetY), v = this.view;
    v.seek && v.seek(this.time(e.offsetX));
    if (!found) return;
    if (found.event !== undefined) v.select(found.event);
    if (found.proc !== undefined) { v.proc = v.proc === found.proc ? -1 : found.proc; v.filter(); v.changed('proc'); }
    if (found.call !== undefined) { v.call = v.call === found.call ? -1 : found.call; v.filter(); v.changed('call'); }
  }
}
