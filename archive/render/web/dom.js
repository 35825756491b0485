// Elements. Text is always text: nothing here parses markup.

function el(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (k.startsWith('aria-') && typeof v === 'boolean') e.setAttribute(k, String(v));
    else if (v === false || v === null || v === undefined) continue;
    else if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k === 'class') e.className = v;
    else e.setAttribute(k, v === true ? '' : String(v));
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// evidence is text that a run chose.
function evidence(text, tag = 'span', cls = '') {
  return el(tag, {class: 'evidence ' + cls, dir: 'ltr'}, String(text));
}

function seconds(us) { return (us / 1e6).toFixed(us < 100e6 ? 3 : 1) + ' s'; }

function count(n, one, many) { return n.toLocaleString('en') + ' ' + (n === 1 ? one : many); }

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim(); }

// announce tells a screen reader.
const live = el('div', {class: 'sr', role: 'status', 'aria-live': 'polite'});
function announce(text) { live.textContent = text; }
