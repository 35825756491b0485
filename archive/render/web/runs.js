// The table of several runs.

function runsTable(open) {
  const columns = [
    ['bundle', (r) => r.name], ['outcome', (r) => r.outcome + (r.exit_code ?? ''), (r) => outcome(r)], ['verified', (r) => r.verified, (r) => el('span', {class: r.verified ? 'good' : 'bad'}, r.verified ? 'yes' : 'no')],
    ['contract', (r) => r.contract || ''], ['kernel layer', (r) => r.kernel, (r) => el('span', {class: r.kernel === 'complete' ? 'good' : 'warn'}, r.kernel.replaceAll('_', ' '))],
    ['took', (r) => r.end_ns, (r) => seconds(r.end_ns / 1000), 'num'], ['events', (r) => r.total, (r) => r.total.toLocaleString('en'), 'num'], ['processes', (r) => r.processes.length + r.more_processes, null, 'num'],
    ['programs', (r) => r.programs, null, 'num'], ['files', (r) => r.files, null, 'num'], ['hosts', (r) => r.hosts, null, 'num'], ['denied', (r) => r.denied, null, 'num'], ['started', (r) => r.started.slice(0, 19)],
    ['command', (r) => r.command, null, 'command'],
  ];
  const order = page.runs.map((_, i) => i);
  let by = -1, down = false;
  const body = el('tbody', {});
  const heads = columns.map(([name, , , cls], i) => el('th', {class: cls || '', 'aria-sort': 'none'}, el('button', {onclick: () => sort(i)}, name)));
  function sort(i) {
    down = by === i && !down;
    by = i;
    const key = columns[i][1];
    order.sort((a, b) => { const x = key(page.runs[a]), y = key(page.runs[b]); return (x < y ? -1 : x > y ? 1 : a - b) * (down ? -1 : 1); });
    heads.forEach((h, k) => h.setAttribute('aria-sort', k === by ? (down ? 'descending' : 'ascending') : 'none'));
    fill();
  }
  function fill() {
    body.replaceChildren(...order.map((at) => {
      const r = page.runs[at];
      return el('tr', {}, columns.map(([name, key, show, cls], i) => el('td', {class: cls || '', 'data-name': name, title: cls === 'command' && key(r)}, i === 0 ? el('button', {onclick: () => open(at)}, evidence(r.name)) : show ? show(r) : evidence(key(r) === '' ? '' : String(key(r)).slice(0, 200)))));
    }));
  }
  fill();
  return el('section', {}, el('h2', {}, count(page.runs.length, 'run', 'runs')), el('div', {class: 'wide'}, el('table', {}, el('caption', {class: 'sr'}, 'The runs of this report; press a heading to sort'), el('thead', {}, el('tr', {}, heads)), body)));
}
