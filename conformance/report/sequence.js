// A history as a sequence diagram: a lane for each party, time downwards. An event
// is [ms, actor, kind, id, note, from, to] as pagedata.go writes it.
const LANES = ['producer', 'broker', 'consumer', 'store'];
const HUES = 6; // as many .i0 … .i5 rules page.css has
const BREAKS = new Set(['kill', 'freeze', 'restart', 'crash', 'cut']);

// What may differ between events of one shape: numbers, UUIDs and other hexadecimals.
const NUMBERS = /\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)[0-9a-f]{6,}\b|\d+(\.\d+)?/gi;

const svgNS = 'http://www.w3.org/2000/svg';
function svg(name, attributes, ...children) {
  const e = document.createElementNS(svgNS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// Ends with its last characters: those of message IDs are what tells them apart.
function shorten(s, n) {
  const letters = [...s];
  if (letters.length <= n) return s;
  const tail = Math.floor((n - 1) / 3);
  return letters.slice(0, Math.max(1, n - 1 - tail)).join('') + '…' + letters.slice(letters.length - tail).join('');
}
const seconds = ms => (ms / 1000).toFixed(3);
const oneLine = s => s.trim().replace(/\s+/g, ' ');

// What repeats itself is folded: blocks of up to six events that come four times or
// more in a row, the same but for numbers and for which message it is. A message
// that comes a second time has another shape than one that is new, and what is
// marked as a fault is never folded, so no anomaly disappears in a fold.
function fold(events) {
  const seen = new Set();
  const shapes = events.map(([, actor, kind, id, note]) => {
    const key = `${kind}\n${id}`, again = seen.has(key);
    seen.add(key);
    if (actor === 'fault' || BREAKS.has(kind)) return null;
    return [actor, kind, again, note.replace(NUMBERS, '#')].join('\n');
  });
  const items = [];
  for (let i = 0; i < events.length;) {
    let best = null;
    for (let p = 1; p <= 6 && shapes[i] !== null; p++) {
      let n = p;
      while (i + n < events.length && shapes[i + n] !== null && shapes[i + n] === shapes[i + n - p]) n++;
      const times = Math.floor(n / p);
      if (times >= 4 && (!best || times * p > best.times * best.p)) best = { p, times };
    }
    if (!best) { items.push({ event: events[i++] }); continue; }
    const all = events.slice(i, i + best.p * best.times);
    for (const event of all.slice(0, best.p)) items.push({ event });
    items.push({ folded: all.slice(best.p), times: best.times - 1 });
    i += all.length;
  }
  return items;
}

// diagram draws items into a figure as wide as `width`; a narrow one has the notes
// below the arrows instead of beside them.
function diagram(label, items, width, unfold) {
  const narrow = width < 760;
  const used = new Set(['broker']);
  for (const it of items) for (const e of it.folded || [it.event]) { if (e[5]) used.add(e[5]); if (e[6]) used.add(e[6]); }
  const names = LANES.filter(l => used.has(l));
  const time = narrow ? 46 : 66;
  const lane = narrow ? Math.max(54, (width - time - 4) / names.length) : 150;
  const x = Object.fromEntries(names.map((n, i) => [n, time + lane / 2 + i * lane]));
  const right = time + names.length * lane;
  const noteX = right + 14;
  const full = narrow ? right + 4 : Math.max(width - 2, noteX + 220);
  const fits = Math.floor((narrow ? right - 8 - time : full - noteX) / 6.3);
  const hues = new Map();
  const root = svg('svg', { class: narrow ? 'seq narrow' : 'seq', role: 'img', 'aria-label': `${label}; the same events are in the table below` });
  const lines = svg('g', {});
  root.append(lines);
  for (const n of names) root.append(svg('text', { class: 'lname', x: x[n], y: 16 }, n));

  let y = 26;
  for (const it of items) {
    if (it.folded) {
      y += 26;
      const first = it.folded[0], last = it.folded.at(-1);
      const ids = [...new Set([first[3], last[3]].filter(Boolean))].map(s => shorten(oneLine(s), 16)).join(' … ');
      const words = shorten(`⋮ ${it.times} × the same again${ids ? ': ' + ids : ''}`, Math.floor((right - time) / 6.5));
      const g = svg('g', { class: 'fold', 'data-folded': it.folded.length },
        svg('title', {}, `${it.folded.length} events from ${seconds(first[0])} s to ${seconds(last[0])} s`),
        svg('text', { class: 'at', x: time - 8, y: y + 4 }, seconds(last[0])),
        svg('rect', { x: time, y: y - 11, width: right - time, height: 22, rx: 11 }),
        svg('text', { class: 'flabel', x: (time + right) / 2, y: y + 4 }, words));
      g.addEventListener('click', unfold);
      root.append(g);
      y += 8;
      continue;
    }
    const [ms, actor, kind, rawID, rawNote, from, to] = it.event;
    const id = oneLine(rawID), note = oneLine(rawNote);
    const fault = actor === 'fault' || kind === 'fault' || BREAKS.has(kind);
    y += narrow ? 34 : 30;
    const g = svg('g', { class: 'event', 'data-from': from, 'data-to': to, 'data-kind': kind });
    if (fault) g.classList.add('fault');
    if (rawID) {
      if (!hues.has(rawID)) hues.set(rawID, hues.size % HUES);
      g.classList.add('i' + hues.get(rawID));
    }
    g.append(svg('title', {}, [seconds(ms) + ' s', actor, kind, id, note].filter(Boolean).join('  ')),
      svg('text', { class: 'at', x: time - 8, y: y + 4 }, seconds(ms)));
    let beside = note;
    if (!from) {
      let words = kind === actor ? kind : `${actor} ${kind}`;
      if (id) words += ' ' + id;
      // The note goes into the band where it fits.
      if (note && (words.length + note.length + 4) * 6.8 < right - time) { words += ': ' + note; beside = ''; }
      g.classList.add('band');
      g.append(svg('rect', { x: time, y: y - 12, width: right - time, height: 24, rx: 4 }),
        svg('text', { class: 'blabel', x: (time + right) / 2, y: y + 4 }, (fault ? '⚡ ' : '◷ ') + shorten(words, Math.floor((right - time) / 6.8) - 2)));
    } else if (from === to) {
      const words = oneLine(`${kind} ${id}`);
      g.append(fault ? svg('path', { class: 'cross', d: `M${x[from] - 5} ${y - 5}l10 10m0 -10l-10 10` }) : svg('circle', { class: 'dot', cx: x[from], cy: y, r: 4 }));
      const atEnd = from === names.at(-1);
      g.append(svg('text', { class: atEnd ? 'slabel end' : 'slabel', x: x[from] + (atEnd ? -10 : 10), y: y + 4 }, shorten(words, Math.floor(lane / 6.5))));
    } else {
      const a = x[from], b = x[to], back = b < a ? 1 : -1;
      const reach = Math.abs(b - a) / lane;
      g.append(svg('path', { class: 'arrow', d: `M${a} ${y}H${b + back * 8}` }), svg('circle', { class: 'dot', cx: a, cy: y, r: 3 }),
        svg('path', { class: 'tip', d: `M${b + back} ${y}l${back * 8} -4v8z` }),
        svg('text', { class: 'alabel', x: (a + b) / 2, y: y - 5 }, shorten(oneLine(`${kind} ${id}`), Math.floor(lane * reach / 6.6))));
    }
    if (beside) {
      if (narrow) g.append(svg('text', { class: 'note', x: time, y: y + (from === to || !from ? 20 : 14) }, shorten(beside, fits)));
      else g.append(svg('text', { class: 'note', x: noteX, y: y + 4 }, shorten(beside, fits)));
      if (narrow) y += 8;
    }
    root.append(g);
  }
  const bottom = y + 16;
  for (const n of names) lines.append(svg('path', { class: 'lane', d: `M${x[n]} 24V${bottom}` }));
  root.setAttribute('width', full);
  root.setAttribute('height', bottom + 4);
  root.setAttribute('viewBox', `0 0 ${full} ${bottom + 4}`);
  return root;
}
