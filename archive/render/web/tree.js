// The process tree.

class Tree {
  constructor(view) {
    this.view = view;
    const procs = view.run.processes;
    this.children = procs.map(() => []);
    this.roots = [];
    procs.forEach((p, i) => (p.parent >= 0 && p.parent < procs.length ? this.children[p.parent] : this.roots).push(i));
    this.closed = new Set();
    if (procs.length > 400) procs.forEach((p, i) => { if (this.children[i].length > 20) this.closed.add(i); });
    this.open();
    this.list = new List({
      label: 'Process tree. Enter shows only the events of a process; left and right close and open it.', cls: 'tree', head: ['process', 'pid', 'took', 'ended'], total: () => this.rows.length,
      render: (i) => {
        const [at, depth] = this.rows[i], p = procs[at];
        const name = el('span', {class: 'evidence', title: p.command, dir: 'ltr'}, '\u00a0'.repeat(Math.min(depth, 30) * 2), this.children[at].length ? el('span', {class: 'dim', onclick: (e) => { e.stopPropagation(); this.flip(at); }}, this.closed.has(at) ? '▸ ' : '▾ ') : '\u00a0\u00a0', p.execs ? p.command || p.exe : `${program(p)} (fork)`);
        return [name, String(p.pid), p.end_ns < 0 ? '' : seconds((p.end_ns - p.start_ns) / 1000), p.signal || (p.exit < 0 ? 'not seen' : 'exit ' + p.exit)];
      },
      rowClass: (i) => { const p = procs[this.rows[i][0]]; return p.signal || p.exit > 0 ? 'failed' : ''; },
      choose: (i) => { view.proc = this.rows[i][0]; view.filter(); },
    });
    this.list.root.addEventListener('keydown', (e) => {
      const row = this.rows[this.list.chosen];
      if (!row) return;
      if ((e.key === 'ArrowLeft') !== this.closed.has(row[0]) && (e.key === 'ArrowLeft' || e.key === 'ArrowRight') && this.children[row[0]].length) { e.preventDefault(); e.stopPropagation(); this.flip(row[0]); }
    });
    view.on((what) => { if (what === 'proc' || what === 'rows') this.list.pick(this.rows.findIndex((r) => r[0] === view.proc), true); });
  }

  open() {
    this.rows = [];
    const stack = this.roots.map((r) => [r, 0]).reverse();
    while (stack.length) {
      const [at, depth] = stack.pop();
      this.rows.push([at, depth]);
      if (!this.closed.has(at)) for (let k = this.children[at].length - 1; k >= 0; k--) stack.push([this.children[at][k], depth + 1]);
    }
  }

  flip(at) {
    if (!this.closed.delete(at)) this.closed.add(at);
    this.open();
    this.list.draw();
  }
}
