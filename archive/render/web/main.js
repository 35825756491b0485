// The page: tabs, one view for each run, and the keys.

const app = document.getElementById('app');
const tabs = [];
let current = null;

function runView(run) {
  const view = new View(run);
  const events = new Events(view), lanes = new Lanes(view), tree = new Tree(view);
  const cast = run.cast && emulator ? new Cast(view) : null;
  const root = el('article', {}, head(run), health(run),
    el('section', {'aria-label': 'Timeline'}, el('h2', {}, 'Timeline'), events.toolbar, lanes.root, events.detail),
    el('div', {class: 'split'},
      el('div', {}, el('section', {}, el('h2', {}, 'Events'), events.list.root, run.left_out ? el('p', {class: 'dim'}, `${count(run.left_out, 'event', 'events')} of loaders, locales, runtimes and the runner itself ${run.left_out === 1 ? 'is' : 'are'} left out; the bundle has them.`) : null), cast ? cast.root : null, output(run)),
      el('div', {}, el('section', {}, el('h2', {}, `Processes (${(run.processes.length + run.more_processes).toLocaleString('en')})`), tree.list.root, run.more_processes ? el('p', {class: 'dim'}, `${run.more_processes} more are in the bundle.`) : null), calls(view),
        run.marks.length ? el('section', {}, el('h2', {}, 'Milestones'), el('ul', {class: 'words'}, run.marks.map((m) => el('li', {class: 'line', title: m.text}, el('span', {class: 'dim mono'}, seconds(m.t_ns / 1000) + '  '), evidence(m.text))))) : null)));
  return {root, view, events, lanes, tree, cast};
}

function tab(name, make) {
  const t = {name, make, button: el('button', {role: 'tab', 'aria-selected': 'false', title: name, onclick: () => open(tabs.indexOf(t))}, name)};
  tabs.push(t);
}

function open(i) {
  if (current && current.cast) current.cast.stop();
  tabs.forEach((t, k) => t.button.setAttribute('aria-selected', k === i));
  tabs[i].made ||= tabs[i].make();
  current = tabs[i].made;
  content.replaceChildren(current.root);
}

const content = el('div', {role: 'tabpanel'});
const many = page.runs.length > 1;
if (many) tab('Runs', () => ({root: runsTable((at) => open(tabs.findIndex((t) => t.run === at)))}));
if (page.diff) tab('Difference', () => ({root: difference(page.diff)}));
page.runs.forEach((run, i) => { tab(run.name.split('/').pop(), () => runView(run)); tabs[tabs.length - 1].run = i; });
app.append(live, help);
if (many) app.append(el('nav', {role: 'tablist', 'aria-label': 'Views'}, tabs.map((t) => t.button)));
app.append(content, el('footer', {class: 'dim'}, el('p', {}, `Made by ${page.generator}. This file is a view: the bundles are the evidence.`)));
open(0);

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || !current || !current.view || help.open) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
  if (typing) return;
  const {view, events, lanes, tree, cast} = current;
  const keys = {
    '/': () => events.search.focus(), n: () => events.next(1), N: () => events.next(-1), d: () => events.onlyDenied(), '+': () => view.zoom(2), '=': () => view.zoom(2), '-': () => view.zoom(0.5), 0: () => view.window(0, view.end),
    ArrowLeft: () => lanes.pan(-0.15), ArrowRight: () => lanes.pan(0.15), t: () => tree.list.root.focus(), e: () => events.list.root.focus(), '?': () => help.showModal(),
    Escape: () => { view.proc = -1; view.call = -1; events.search.value = ''; events.now(); view.filter(); view.changed('proc'); },
    ' ': () => cast && cast.toggle(),
  };
  if (e.key >= '1' && e.key <= '6') events.toggle(Number(e.key) - 1);
  else if (e.key === ' ' && (!cast || /^(BUTTON|SUMMARY)$/.test(e.target.tagName))) return;
  else if (keys[e.key]) keys[e.key]();
  else return;
  e.preventDefault();
});
document.documentElement.dataset.ready = 'true';
