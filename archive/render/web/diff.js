// What differs between two runs.

const ANSWERS = {
  equal: ['good', 'The runs are equal: nothing differs in what they did, as far as it can be observed.'],
  different: ['bad', 'The runs differ.'],
  unknown: ['warn', 'Nothing is known to differ, but not everything could be compared.'],
};

function difference(d) {
  const [cls, text] = ANSWERS[d.answer];
  const changes = (title, list) => list.length ? el('section', {}, el('h3', {}, title), el('table', {}, el('thead', {}, el('tr', {}, ['', 'base', 'head'].map((h) => el('th', {}, h)))), el('tbody', {}, list.map((c) => el('tr', {}, el('td', {}, c.what), el('td', {}, evidence(c.base || 'none')), el('td', {}, evidence(c.head || 'none'))))))) : null;
  const values = (list, sign, sure) => el('ul', {class: 'mono'}, list.map((v) => el('li', {class: sure ? (sign === '+' ? 'added' : 'removed') : 'maybe'}, el('span', {'aria-label': (sign === '+' ? 'only in head' : 'only in base') + (sure ? '' : ', as far as was observed')}, (sure ? ' ' : '?') + sign + ' '), evidence(v))));
  const gaps = (side, list) => (list || []).map((g) => el('div', {class: 'dim'}, side + ': ', evidence(g)));
  const sections = d.sections.filter((s) => s.added.length || s.removed.length || (s.base_gaps || []).length || (s.head_gaps || []).length);
  return el('section', {class: 'diff'}, el('h2', {}, 'Difference'), el('p', {}, el('span', {class: 'badge ' + cls}, d.answer), text),
    el('p', {class: 'dim'}, 'base: ', evidence(d.base.name), ' · head: ', evidence(d.head.name)),
    changes('Verdict', d.verdict),
    sections.map((s) => el('section', {}, el('h3', {}, s.name[0].toUpperCase() + s.name.slice(1)),
      s.compared ? [values(s.removed, '-', !(s.head_gaps || []).length), values(s.added, '+', !(s.base_gaps || []).length)] : el('p', {class: 'warn'}, 'Not compared: it was not observed in both runs.'),
      gaps('base', s.base_gaps), gaps('head', s.head_gaps))),
    changes('What could be observed', d.observed));
}
