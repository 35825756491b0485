// The table of events, and the search and the filters above it.

class Events {
  constructor(view) {
    this.view = view;
    const ev = view.run.events;
    this.list = new List({
      label: 'Events', cls: 'events', head: ['time', 'pid', 'program', 'kind', 'what'], total: () => view.rows.length,
      render: (i) => {
        const d = view.describe(view.rows[i]);
        return [seconds(d.time), String(d.pid || ''), program(d.process), d.kind, d.value + (d.count > 1 ? '  ×' + d.count : '')];
      },
      rowClass: (i) => RESULTS[ev.result[view.rows[i]]],
      choose: (i) => view.select(view.rows[i], true),
    });
    this.detail = el('div', {class: 'detail', 'aria-live': 'polite'}, el('span', {class: 'dim'}, 'Choose an event.'));
    this.count = el('span', {class: 'dim'});
    this.search = el('input', {type: 'search', placeholder: 'find in events   (press /)', 'aria-label': 'Find in events', oninput: () => this.later()});
    this.search.addEventListener('keydown', (e) => {
      if (e.key === 'Enter') { e.preventDefault(); this.now(); this.next(e.shiftKey ? -1 : 1); }
      if (e.key === 'Escape') { this.search.value = ''; this.now(); this.list.root.focus(); }
    });
    this.buttons = GROUPS.map((g, i) => el('button', {class: 'group', 'aria-pressed': 'true', title: 'Press ' + (i + 1), onclick: () => this.toggle(i)}, swatch(g), GROUP_WORDS[i]));
    this.denied = el('button', {'aria-pressed': 'false', class: 'bad', onclick: () => this.onlyDenied()}, 'denied only');
    this.clear = el('button', {hidden: true, onclick: () => { view.proc = -1; view.call = -1; view.filter(); view.changed('proc'); }}, '');
    this.toolbar = el('div', {class: 'toolbar', role: 'toolbar', 'aria-label': 'Search and filters'}, this.search, this.buttons.filter((_, i) => ev.group.includes(i)), view.run.denied ? this.denied : null, this.clear, this.count,
      el('span', {class: 'space'}),
      el('button', {'aria-label': 'Zoom in', title: '+', onclick: () => view.zoom(2)}, '+'), el('button', {'aria-label': 'Zoom out', title: '-', onclick: () => view.zoom(0.5)}, '−'),
      el('button', {title: '0', onclick: () => view.window(0, view.end)}, 'all'), el('button', {'aria-label': 'Keys', title: '?', onclick: () => help.showModal()}, '?'));
    view.on((what) => this.update(what));
    this.update('rows');
  }

  later() { clearTimeout(this.timer); this.timer = setTimeout(() => this.now(), 120); }
  now() {
    clearTimeout(this.timer);
    if (this.view.query === this.search.value) return;
    this.view.query = this.search.value;
    this.view.filter();
    announce(count(this.view.rows.length, 'event', 'events') + ' found');
  }

  toggle(i) {
    this.view.groups[i] = !this.view.groups[i];
    this.buttons[i].setAttribute('aria-pressed', this.view.groups[i]);
    this.view.filter();
  }

  onlyDenied() {
    this.view.onlyDenied = !this.view.onlyDenied;
    this.denied.setAttribute('aria-pressed', this.view.onlyDenied);
    this.view.filter();
  }

  next(step) {
    const n = this.view.rows.length;
    if (n) this.list.pick((((this.list.chosen + step) % n) + n) % n);
  }

  update(what) {
    const v = this.view;
    if (what === 'rows') {
      this.count.textContent = v.rows.length === v.n ? count(v.n, 'event', 'events') : `${v.rows.length.toLocaleString('en')} of ${count(v.n, 'event', 'events')}`;
      const p = v.run.processes[v.proc], c = v.run.calls[v.call];
      this.clear.hidden = !p && !c;
      this.clear.textContent = '✕ only ' + (p ? `${program(p)} (${p.pid})` : c ? c.tool || c.id : '');
      this.list.pick(v.rows.indexOf(v.selected), true);
    }
    if (what === 'selected') {
      const at = v.rows.indexOf(v.selected);
      if (at !== this.list.chosen) this.list.pick(at, true);
      if (v.selected < 0) return;
      const d = v.describe(v.selected);
      this.detail.replaceChildren(
        el('div', {}, el('strong', {}, d.kind + ' '), el('span', {class: 'dim'}, `${seconds(d.time)} · line ${d.seq + 1}`), d.count > 1 ? ` · ${d.count} times` : '', RESULTS[d.result] ? el('span', {class: d.result === 3 ? 'bad' : 'warn'}, ' · ' + RESULTS[d.result]) : ''),
        el('div', {class: 'mono'}, evidence(d.value)),
        el('div', {class: 'dim mono'}, d.process ? evidence(`by ${d.process.pid} ${d.process.command || d.process.exe}`) : '', d.call ? evidence(` · part of ${d.call.tool} ${d.call.id}`) : ''));
    }
  }
}

function swatch(name) {
  const s = el('span', {class: 'swatch'});
  s.style.background = `var(--${name})`;
  return s;
}

const help = el('dialog', {'aria-label': 'Keys'}, el('h2', {}, 'Keys'), el('table', {}, [
  ['/', 'find in events'], ['Enter, n, N', 'next and previous event found'], ['1 to 6', 'show or hide a group of events'], ['d', 'denied only'],
  ['← →', 'move in time'], ['+ −', 'zoom'], ['0', 'show all of the run'], ['t', 'go to the process tree'], ['e', 'go to the events'], ['space', 'play or pause the recording'], ['Esc', 'take filters away'],
].map(([k, what]) => el('tr', {}, el('td', {}, el('kbd', {}, k)), el('td', {}, what)))), el('form', {method: 'dialog'}, el('button', {}, 'Close')));
