(() => {
  'use strict';
  const SVG = 'http://www.w3.org/2000/svg';
  const POINT = /(-?[.\d]+)(?:,|(?=-))(-?[.\d]+)|H(-?[.\d]+)(?:V(-?[.\d]+))?|V(-?[.\d]+)/g;
  const tip = document.createElement('div');
  tip.id = 'tip';
  tip.setAttribute('role', 'status');
  document.body.append(tip);

  const short = (value) => String(Number(value.toPrecision(4)));
  const withUnit = (text, unit) => (unit ? `${text} ${unit}` : text);
  const node = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // A coordinate of the axis as text: a moment, a number whose logarithm is drawn, or a number with its unit.
  function across(chart, x) {
    const { o: origin, x: unit } = chart.dataset;
    if (origin === 'log') return withUnit(short(Math.exp(x)), unit);
    if (origin) return new Date((Number(origin) + x) * 1000).toISOString().slice(0, 16).replace('T', ' ');
    return withUnit(short(x), unit);
  }

  // The points of a path, which lists them as "x,y" or "x-y"; steps go across with H and then up or down with V.
  function points(path) {
    const found = [];
    let [x, y] = [0, 0];
    for (const [, left, top, across, then, only] of path.getAttribute('d').matchAll(POINT)) {
      [x, y] = [Number(left ?? across ?? x), Number(top ?? then ?? only ?? y)];
      found.push([x, y]);
    }
    return found;
  }

  // The row of a tile: small tiles lie a little lower than those with a number.
  const tileRow = (mark) => Math.floor((Number(mark.getAttribute('y')) - 44) / 28);

  // The words of the tiles, which are the rows of the table.
  function wordsOf(chart) {
    const rows = chart.closest('section')?.querySelectorAll('tbody tr') ?? [];
    return [...rows].map((row) => [...row.cells].map((cell) => cell.textContent).join(': '));
  }

  // All that the keyboard reaches, in groups: a group is a series, a row of tiles, or all rows.
  function groupsOf(chart) {
    const groups = new Map();
    const words = wordsOf(chart);
    const add = (key, stop) => groups.set(key, [...(groups.get(key) ?? []), stop]);
    for (const mark of chart.querySelectorAll('.m')) {
      if (mark.matches('.tile')) {
        add(tileRow(mark), { mark, said: words.shift() ?? '' });
        continue;
      }
      const title = mark.querySelector('title');
      const said = title?.textContent ?? '';
      // The browser would show it too.
      title?.remove();
      const view = mark.closest('.view');
      if (!view) {
        add('rows', { mark, said });
        continue;
      }
      const key = `${[...chart.querySelectorAll('.view')].indexOf(view)} ${mark.dataset.n}`;
      const stops = points(mark).map(([x, y]) => ({
        view, x, y, said: `${mark.dataset.n}: ${withUnit(short(-y), view.dataset.y)} at ${across(chart, x)}`,
      }));
      groups.set(key, [...(groups.get(key) ?? []), ...stops]);
    }
    return [...groups.values()].filter((group) => group.length > 0);
  }

  class Chart {
    constructor(svg) {
      this.svg = svg;
      this.views = [...svg.querySelectorAll('.view')];
      this.groups = groupsOf(svg);
      this.group = 0;
      this.index = -1;
      this.boxes = this.views.map((view) => view.getAttribute('viewBox').split(' ').map(Number));
      this.ticks = svg.querySelector('.across')?.innerHTML;
      svg.addEventListener('pointermove', (event) => this.hover(event));
      svg.addEventListener('pointerleave', () => this.clear());
      svg.addEventListener('blur', () => this.clear());
      svg.addEventListener('keydown', (event) => this.key(event));
      if (this.canZoom()) {
        svg.addEventListener('pointerdown', (event) => { this.from = event.pointerType === 'mouse' ? event.clientX : null; });
        svg.addEventListener('pointerup', (event) => this.drop(event));
        svg.addEventListener('dblclick', () => this.zoom(...this.whole()));
      }
    }

    canZoom() { return this.views.length > 0 && this.svg.dataset.o !== 'log'; }

    whole() { const [low, , width] = this.boxes[0]; return [low, low + width]; }

    shown() { const [low, , width] = this.views[0].getAttribute('viewBox').split(' ').map(Number); return [low, low + width]; }

    clear() {
      tip.textContent = '';
      this.svg.querySelector('.at')?.remove();
      this.svg.querySelector('.now')?.classList.remove('now');
    }

    show(stop) {
      this.clear();
      let box;
      if (stop.mark) {
        stop.mark.classList.add('now');
        box = stop.mark.getBoundingClientRect();
      } else {
        const at = new DOMPoint(stop.x, stop.y).matrixTransform(stop.view.firstElementChild.getScreenCTM());
        stop.view.append(node('path', { class: 'at', d: `M${stop.x},${stop.y}h0` }));
        box = { left: at.x, right: at.x, top: at.y, bottom: at.y };
      }
      tip.textContent = stop.said;
      const left = (box.left + box.right) / 2 - tip.offsetWidth / 2;
      const above = box.top - tip.offsetHeight - 10;
      tip.style.left = `${Math.max(6, Math.min(left, innerWidth - tip.offsetWidth - 6))}px`;
      tip.style.top = `${above > 4 ? above : box.bottom + 12}px`;
    }

    hover(event) {
      const mark = event.target.closest('.row, .tile');
      const stop = mark ? this.groups.flat().find((one) => one.mark === mark) : this.nearest(event);
      if (stop) this.show(stop); else this.clear();
    }

    // The point of a series nearest to the pointer, first of all across.
    nearest({ clientX, clientY }) {
      const view = this.views.find((one) => {
        const box = one.getScreenCTM() && this.boxOf(one);
        return box && clientY >= box.top - 8 && clientY <= box.bottom + 8 && clientX >= box.left - 8 && clientX <= box.right + 8;
      });
      if (!view) return undefined;
      const matrix = view.firstElementChild.getScreenCTM();
      const at = new DOMPoint(clientX, clientY).matrixTransform(matrix.inverse());
      const [low, high] = this.shown();
      let [best, least] = [undefined, Infinity];
      for (const stop of this.groups.flat()) {
        if (stop.view !== view || stop.x < low || stop.x > high) continue;
        const distance = Math.abs((stop.x - at.x) * matrix.a) + 0.3 * Math.abs((stop.y - at.y) * matrix.d);
        if (distance < least) [best, least] = [stop, distance];
      }
      return best;
    }

    boxOf(view) {
      const outer = this.svg.getBoundingClientRect();
      const style = getComputedStyle(this.svg);
      const top = outer.top + Number(view.getAttribute('y'));
      return {
        left: outer.left + parseFloat(style.paddingLeft), right: outer.right - parseFloat(style.paddingRight),
        top, bottom: top + Number(view.getAttribute('height')),
      };
    }

    key(event) {
      const group = this.groups[this.group] ?? [];
      const single = this.groups.length === 1;
      const far = Math.max(1, Math.round(group.length / 10));
      const steps = {
        ArrowRight: 1, ArrowLeft: -1, PageDown: far, PageUp: -far, Home: -Infinity, End: Infinity,
        ...(single ? { ArrowDown: 1, ArrowUp: -1 } : {}),
      };
      const zooms = { '+': 0.5, '=': 0.5, '-': 2 };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in steps) {
        this.index = Math.max(0, Math.min(group.length - 1, this.index + steps[event.key]));
      } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
        const step = event.key === 'ArrowDown' ? 1 : -1;
        const share = this.index / Math.max(1, group.length - 1);
        this.group = (this.group + step + this.groups.length) % this.groups.length;
        this.index = Math.max(0, Math.round(share * (this.groups[this.group].length - 1)));
      } else if (event.key in zooms && this.canZoom()) {
        const [low, high] = this.shown();
        const middle = group[this.index]?.x ?? (low + high) / 2;
        const half = (high - low) * zooms[event.key] / 2;
        this.zoom(middle - half, middle + half);
      } else if ((event.key === '0' || event.key === 'Escape') && this.canZoom()) {
        this.zoom(...this.whole());
      } else {
        return;
      }
      event.preventDefault();
      const stop = this.groups[this.group]?.[this.index];
      if (stop) this.show(stop);
    }

    drop(event) {
      if (this.from == null || Math.abs(event.clientX - this.from) < 8) return;
      const inverse = this.views[0].firstElementChild.getScreenCTM().inverse();
      const place = (x) => new DOMPoint(x, 0).matrixTransform(inverse).x;
      const [one, other] = [place(this.from), place(event.clientX)];
      this.zoom(Math.min(one, other), Math.max(one, other));
    }

    zoom(low, high) {
      const [first, last] = this.whole();
      [low, high] = [Math.max(low, first), Math.min(high, last)];
      if (high - low < (last - first) / 1e4) return;
      const whole = low === first && high === last;
      this.views.forEach((view, index) => {
        const [, y, , height] = this.boxes[index];
        view.setAttribute('viewBox', `${low} ${y} ${high - low} ${height}`);
        view.classList.toggle('zoomed', !whole);
      });
      for (const note of this.svg.querySelectorAll('.note')) note.style.display = whole ? '' : 'none';
      this.clear();
      this.label(low, high, whole);
    }

    label(low, high, whole) {
      const group = this.svg.querySelector('.across');
      if (whole) { group.innerHTML = this.ticks; return; }
      const y = group.firstElementChild?.getAttribute('y') ?? 0;
      const power = 10 ** Math.floor(Math.log10((high - low) / 6));
      const step = power * [1, 2, 2.5, 5, 10].find((one) => one * power >= (high - low) / 6);
      group.replaceChildren();
      for (let at = Math.ceil(low / step) * step; at <= high; at += step) {
        const x = `${((at - low) / (high - low)) * 100}%`;
        group.append(node('text', { class: 'tick mid', x, y }, across(this.svg, at)));
      }
    }
  }

  for (const svg of document.querySelectorAll('svg.chart')) new Chart(svg);
})();
