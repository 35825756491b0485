// A list of any length of which only what is on screen is in the document.

const ROW = 22;

class List {
  // render(index) gives the cells of a row; choose(index) is called when one is chosen.
  constructor({label, cls, head, total, render, choose, rowClass}) {
    Object.assign(this, {total, render, choose, rowClass});
    this.chosen = -1;
    this.space = el('div', {});
    this.root = el('div', {class: 'grid ' + cls, tabindex: 0, role: 'grid', 'aria-label': label, onscroll: () => this.draw(), onkeydown: (e) => this.key(e)},
      el('div', {class: 'head', role: 'row'}, head.map((h) => el('span', {role: 'columnheader'}, h))), this.space);
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  draw() {
    const n = this.total();
    // Browsers limit the height of an element: scale beyond a million pixels.
    this.scale = Math.max(1, (n * ROW) / 8e6);
    this.space.style.height = (n * ROW) / this.scale + 'px';
    this.root.setAttribute('aria-rowcount', n);
    const first = Math.max(0, Math.floor((this.root.scrollTop * this.scale) / ROW) - 5);
    const last = Math.min(n, first + Math.ceil(this.root.clientHeight / ROW) + 12);
    const rows = [];
    for (let i = first; i < last; i++) {
      const row = el('div', {class: 'row ' + (this.rowClass ? this.rowClass(i) : ''), role: 'row', id: this.id(i), 'aria-rowindex': i + 1, 'aria-selected': i === this.chosen, onclick: () => this.pick(i)},
        this.render(i).map((c) => (c instanceof Node ? (c.setAttribute('role', 'gridcell'), c) : el('span', {role: 'gridcell', class: 'evidence', title: c.length > 24 ? c : null}, c))));
      row.style.top = ROW + (i * ROW - this.root.scrollTop * this.scale) + this.root.scrollTop + 'px';
      rows.push(row);
    }
    this.space.replaceChildren(...rows);
    if (this.chosen >= first && this.chosen < last) this.root.setAttribute('aria-activedescendant', this.id(this.chosen));
    else this.root.removeAttribute('aria-activedescendant');
  }

  id(i) { return (this.name ||= 'list' + List.count++) + '-' + i; }

  pick(i, quiet) {
    this.chosen = i;
    if (i >= 0) {
      const top = (i * ROW) / this.scale, view = this.root.clientHeight - ROW * 2;
      if (top < this.root.scrollTop || top > this.root.scrollTop + view) this.root.scrollTop = Math.max(0, top - view / 2);
    }
    this.draw();
    if (i >= 0 && !quiet) this.choose(i);
  }

  key(e) {
    const n = this.total(), pageful = Math.max(1, Math.floor(this.root.clientHeight / ROW) - 2);
    const to = {ArrowDown: this.chosen + 1, ArrowUp: this.chosen - 1, PageDown: this.chosen + pageful, PageUp: this.chosen - pageful, Home: 0, End: n - 1}[e.key];
    if (to === undefined || !n || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    this.pick(Math.min(Math.max(to, 0), n - 1));
  }
}
List.count = 0;
