// What the page says in words: the head of a run, its health, its calls.

function outcome(run) {
  const ok = run.outcome === 'exited' && run.exit_code === 0;
  const text = run.outcome + (run.exit_code !== null ? ' ' + run.exit_code : '') + (run.signal ? ' ' + run.signal : '');
  return el('span', {class: 'badge ' + (ok ? 'good' : 'bad')}, text);
}

function badges(run) {
  return [
    outcome(run),
    el('span', {class: 'badge ' + (run.verified ? 'good' : 'bad')}, run.verified ? 'verified' : 'does not verify'),
    el('span', {class: 'badge ' + (run.kernel === 'complete' ? 'good' : 'warn')}, 'kernel layer ' + run.kernel.replaceAll('_', ' ')),
    run.contract ? el('span', {class: 'badge ' + (run.contract === 'passed' ? 'good' : 'bad')}, 'contract ' + run.contract) : null,
    run.denied ? el('span', {class: 'badge bad'}, count(run.denied, 'denial', 'denials')) : null,
  ];
}

function head(run) {
  return el('header', {}, el('h1', {class: 'mono'}, evidence(run.command || run.run_id)), el('div', {}, badges(run)),
    run.findings.length ? el('section', {'aria-label': 'What the evaluation found'}, el('h2', {}, 'What the evaluation found'), el('ul', {class: 'words'}, run.findings.map((f) =>
      el('li', {class: 'less'}, el('span', {class: 'badge ' + (f.state === 'fail' ? 'bad' : '')}, f.state), ' ', f.rule, ': ', evidence(f.texts[0]),
        f.texts.length > 1 ? el('ul', {}, f.texts.slice(1).map((t) => el('li', {}, evidence(t)))) : null)))) : null,
    run.error ? el('p', {class: 'bad'}, evidence(run.error)) : null,
    run.verified ? null : el('div', {class: 'banner', role: 'alert'}, el('strong', {}, 'This bundle does not verify. '), 'What follows is what it says, and proves nothing.', el('ul', {}, run.problems.map((p) => el('li', {}, evidence(p))))),
    run.shown < run.total ? el('div', {class: 'banner warn', role: 'note'}, `This page shows ${run.shown.toLocaleString('en')} of ${count(run.total, 'event', 'events')}: denials, connections and privileged calls first, and an even sample of the rest. The bundle has all of them; assay-run query finds any.`) : null,
    el('dl', {class: 'facts'}, run.facts.map(([k, v]) => el('div', {}, el('dt', {}, k), el('dd', {class: 'evidence'}, v)))));
}

function health(run) {
  return el('section', {'aria-label': 'What may be claimed'}, el('h2', {}, 'What may be claimed'), el('ul', {class: 'words'}, run.words.map((w) =>
    el('li', {class: w.good ? '' : 'less'}, w.text, (w.why || []).length ? el('ul', {}, w.why.map((y) => el('li', {}, evidence(y)))) : null, w.remedy ? el('div', {class: 'dim'}, 'To see more: ', evidence(w.remedy)) : null))));
}

const BEYOND = {beyond_claim: 'It did more than its name says.', denied_call: 'Policy denied it, and it did something.', unknown_call: 'Nobody reported it.'};

function calls(view) {
  const run = view.run;
  if (!run.calls.length) return null;
  const rows = run.calls.map((c, i) => el('div', {class: 'call' + (c.beyond ? ' beyond' : ''), tabindex: 0, role: 'button', onclick: () => only(i), onkeydown: (e) => { if (e.key === 'Enter') only(i); }},
    el('strong', {}, evidence(c.tool || '?')), ' ', evidence(c.id, 'span', 'dim mono'), ' ', c.decision ? el('span', {class: 'badge ' + (c.decision === 'deny' ? 'bad' : 'good')}, c.decision) : '', c.failed ? el('span', {class: 'badge bad'}, 'failed') : '', c.verdict ? evidence(c.verdict, 'span', 'warn') : '',
    el('div', {class: 'dim'}, `${count(c.events, 'event', 'events')}${c.method ? ' by ' + c.method : ''}${c.start_ns >= 0 ? ' · at ' + seconds(c.start_ns / 1000) : ''}${c.start_ns >= 0 && c.end_ns >= 0 ? ' · took ' + seconds((c.end_ns - c.start_ns) / 1000) : ''}${c.unseen ? ' · not observed: ' + c.unseen.replaceAll('_', ' ') : ''}`),
    c.model ? el('div', {class: 'dim'}, 'proposed by ', evidence(c.model)) : null,
    c.beyond ? el('div', {class: 'bad'}, BEYOND[c.beyond] || c.beyond) : null,
    [['wrote', c.written], ['contacted', c.hosts], ['ran', c.commands]].map(([verb, list]) => list.length ? el('div', {class: 'mono'}, el('span', {class: 'dim'}, verb + ' '), evidence(list.slice(0, 6).join(', ') + (list.length > 6 ? ` … and ${list.length - 6} more` : ''))) : null),
    c.params ? el('div', {class: 'mono dim'}, evidence(c.params.slice(0, 600))) : null));
  function only(i) {
    view.call = view.call === i ? -1 : i;
    view.filter();
    view.changed('call');
    if (run.calls[i].start_ns >= 0 && view.call >= 0) view.changed('window');
  }
  return el('section', {}, el('h2', {}, `Tool calls (${run.calls.length + run.more_calls})`), el('div', {class: 'calls'}, rows), run.more_calls ? el('p', {class: 'dim'}, `… and ${run.more_calls} more`) : null);
}

function output(run) {
  return run.output.filter((o) => o.text).map((o) => el('section', {}, el('h2', {}, o.name), el('pre', {class: 'evidence', tabindex: 0, dir: 'ltr'}, o.text), o.cut ? el('p', {class: 'dim'}, `The first part of ${o.size.toLocaleString('en')} bytes.`) : null));
}
