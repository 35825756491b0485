// The terminal recording. The emulator keeps the screen; this draws it.

class Cast {
  constructor(view) {
    this.view = view;
    this.cast = view.run.cast;
    this.length = this.cast.times.length ? this.cast.times[this.cast.times.length - 1] : 0;
    this.screen = el('div', {class: 'screen mono', role: 'img', 'aria-label': 'Terminal', tabindex: 0});
    this.slider = el('input', {type: 'range', min: 0, max: Math.max(this.length, 1), value: 0, 'aria-label': 'Place in the recording', oninput: () => this.seek(Number(this.slider.value))});
    this.button = el('button', {onclick: () => this.toggle()}, 'Play');
    this.label = el('span', {class: 'dim'});
    this.speed = el('select', {'aria-label': 'Speed'}, [1, 2, 4, 16].map((n) => el('option', {value: n}, n + '×')));
    this.root = el('section', {}, el('h2', {}, 'Terminal'), this.screen, el('div', {class: 'player'}, this.button, this.slider, this.label, this.speed),
      this.cast.cut ? el('p', {class: 'warn'}, 'The recording is longer than this page holds; the bundle has all of it.') : null);
    this.reset();
    view.seek = (us) => this.seek(Math.min(us / 1000, this.length));
    this.seek(this.length);
  }

  reset() {
    this.term = new emulator.Terminal({cols: this.cast.cols, rows: this.cast.rows, scrollback: 0, allowProposedApi: true});
    this.next = 0;
    this.resized = 0;
  }

  seek(ms, playing) {
    if (!playing) this.stop();
    if (this.next && this.cast.times[this.next - 1] > ms) this.reset();
    let text = '';
    const {times, texts, resize} = this.cast;
    while (this.next < times.length && times[this.next] <= ms) {
      if (this.resized < resize.length && resize[this.resized][0] <= this.next) {
        const [, cols, rows] = resize[this.resized++];
        const before = text;
        text = '';
        this.term.write(before, () => this.term.resize(cols, rows));
      }
      text += texts[this.next++];
    }
    this.ms = ms;
    this.slider.value = ms;
    this.label.textContent = `${(ms / 1000).toFixed(1)} of ${(this.length / 1000).toFixed(1)} s`;
    this.view.now = ms * 1000;
    this.view.changed('now');
    this.term.write(text, () => this.draw());
  }

  draw() {
    const buffer = this.term.buffer.active, lines = [];
    for (let y = 0; y < this.term.rows; y++) {
      const line = buffer.getLine(buffer.baseY + y), row = el('div', {});
      let run = '', style = '';
      const flush = () => { if (run) row.append(styled(run, style)); run = ''; };
      for (let x = 0; line && x < line.length; x++) {
        const cell = line.getCell(x);
        if (!cell || cell.getWidth() === 0) continue;
        const s = cellStyle(cell);
        if (s !== style) { flush(); style = s; }
        run += visible(cell.getChars()) || ' ';
      }
      flush();
      lines.push(row);
    }
    this.screen.replaceChildren(...lines);
  }

  toggle() { if (this.playing) this.stop(); else this.play(); }

  stop() { this.playing = false; this.button.textContent = 'Play'; }

  play() {
    if (this.ms >= this.length) this.seek(0);
    this.playing = true;
    this.button.textContent = 'Pause';
    let last = performance.now();
    const step = (now) => {
      if (!this.playing) return;
      const ms = this.ms + (now - last) * Number(this.speed.value);
      last = now;
      this.seek(Math.min(ms, this.length), true);
      if (ms >= this.length) this.stop(); else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}

// visible takes out what a screen does not show but a browser might obey.
function visible(s) { return s.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, ''); }

const ANSI = ['#1b1f24', '#e06c75', '#7fbf7f', '#d9b25f', '#6ca0e8', '#c07ad6', '#5bb8c4', '#d7dde5', '#6b7480', '#ff8a93', '#a3e0a3', '#f2cf7f', '#93bffb', '#dda0f0', '#84dbe6', '#ffffff'];

function palette(n) {
  if (n < 16) return ANSI[n];
  if (n >= 232) { const v = 8 + (n - 232) * 10; return `rgb(${v},${v},${v})`; }
  const c = n - 16, part = (v) => (v ? 55 + v * 40 : 0);
  return `rgb(${part(Math.floor(c / 36))},${part(Math.floor(c / 6) % 6)},${part(c % 6)})`;
}

function cellStyle(cell) {
  const pick = (rgb, pal, value) => (rgb ? '#' + value.toString(16).padStart(6, '0') : pal ? palette(value) : '');
  let fg = pick(cell.isFgRGB(), cell.isFgPalette(), cell.getFgColor()), bg = pick(cell.isBgRGB(), cell.isBgPalette(), cell.getBgColor());
  if (cell.isInverse()) [fg, bg] = [bg || '#101418', fg || '#dfe5ec'];
  return [fg, bg, cell.isBold() ? 'b' : '', cell.isItalic() ? 'i' : '', cell.isUnderline() ? 'u' : '', cell.isDim() ? 'd' : ''].join('|');
}

function styled(text, style) {
  if (!style || style === '|||||') return text;
  const [fg, bg, b, i, u, d] = style.split('|'), s = el('span', {}, text);
  if (fg) s.style.color = fg;
  if (bg) s.style.background = bg;
  if (b) s.style.fontWeight = '700';
  if (i) s.style.fontStyle = 'italic';
  if (u) s.style.textDecoration = 'underline';
  if (d) s.style.opacity = '0.65';
  return s;
}
