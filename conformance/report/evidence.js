// What is drawn from the page's blocks of data: the evidence behind a cell, and a
// page for a target or a claim. All text is set as text, never as HTML.
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) if (v !== undefined && v !== false) e.setAttribute(k, v === true ? '' : v);
  e.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined && c !== ''));
  return e;
}

const unpacked = new Map();
function block(id) {
  if (!unpacked.has(id)) unpacked.set(id, unpack(document.getElementById(id).textContent));
  return unpacked.get(id);
}
async function unpack(text) {
  if (typeof DecompressionStream === 'undefined') throw new Error('This browser can’t unpack the evidence; report.json has it.');
  const bytes = Uint8Array.from(atob(text.trim()), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
}

let shared; // what all targets have in common; there once something was found
async function find(id) {
  shared = await block('shared');
  const t = shared.targets.findIndex(t => t.anchor === id);
  if (t >= 0) {
    const target = await block('data-' + t);
    return { page: () => targetPage(target) };
  }
  const row = all('.grid .claim').find(r => r.querySelector('.id').hash === '#' + id);
  if (row) return { page: () => claimPage(row) };
  const cell = all('.cell').find(c => c.hash === '#' + id);
  if (!cell) return null;
  const target = await block('data-' + cell.closest('td').dataset.t);
  return { target, finding: target.findings.find(f => f.anchor === id) };
}
const failed = e => el('p', { class: 'headline bad' }, e.message);

const info = v => shared.verdicts.find(x => x.verdict === v) || { symbol: '!', words: 'unknown verdict', fails: true };
const sym = s => el('span', { class: 'sym', 'aria-hidden': 'true' }, s);
const badge = f => el('span', { class: `badge ${f.class}` }, sym(info(f.verdict).symbol), ' ' + info(f.verdict).words);
const claimOf = id => shared.claims.find(c => c.claim === id);
const isLink = s => /^https?:\/\//.test(s);
const link = url => el('a', { href: url, rel: 'noopener noreferrer' }, url.replace(/^https?:\/\//, ''));
const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

// Backticks mark code in facts; other Markdown isn't used there.
const prose = s => s.split('`').map((part, i) => i % 2 ? el('code', null, part) : part.split(/(https?:\/\/[^\s|,;)<>]*[^\s|,;)<>.:])/).map((p, j) => j % 2 ? link(p) : p));
// A claim's ID may break at its dots.
const dotted = id => id.split(/(?<=\.)/).flatMap(part => [part, document.createElement('wbr')]);

function sources(list) {
  return el('ul', { class: 'sources' }, list.map(s => {
    if (isLink(s)) return el('li', null, link(s));
    const fact = shared.facts.find(f => f.id === s);
    if (!fact) return el('li', null, el('code', null, s));
    return el('li', null, el('code', { class: 'fact' }, s), ' ', prose(fact.text), fact.numbers ? [' ', el('span', { class: 'soft' }, prose(fact.numbers), '.')] : '',
      el('span', { class: 'from' }, `${fact.confidence}: `, prose(fact.source),
        fact.links.filter(url => isLink(url) && !fact.source.includes(url)).flatMap(url => [' · ', link(url)])));
  }));
}

// All answers of a claim from the weakest to the strongest, with who said which.
function scale(f) {
  const claim = claimOf(f.claim);
  if (!claim || claim.answers.length === 0) return null;
  return el('div', { class: 'scale' }, el('span', { class: 'soft', 'aria-hidden': 'true' }, 'weakest'),
    el('ol', { 'aria-label': 'All answers, from the weakest to the strongest' }, claim.answers.map(a => {
      const who = [['observed', f.observed], ['declared', f.declared], ['documented', f.documented]].filter(([, v]) => v === a).map(([k]) => k);
      return el('li', { class: who.includes('observed') ? 'is ' + f.class : who.length ? 'said' : '' }, el('b', null, a), who.length ? el('small', null, who.join(', ')) : '');
    })), el('span', { class: 'soft', 'aria-hidden': 'true' }, 'strongest'));
}

const versions = t => Object.entries(t.versions).map(([k, v]) => `${k} ${v}`).join(', ');
function quote(t, f) {
  const said = f.observed ? `${f.observed} (${f.basis}${f.declared && f.declared !== f.observed ? `, declared ${f.declared}` : ''})` : info(f.verdict).words;
  return `${f.claim} on ${t.name}${versions(t) ? ` (${versions(t)})` : ''}: ${said}. Onceline ${shared.toolkit}, ${shared.started}.`;
}
// The command that asks this one again, where it is the toolkit's own and needs no
// quoting in a shell.
function again(t, f) {
  const plain = /^[\w.-]+$/;
  if (!/^onceline verify\b/.test(shared.command) || !plain.test(t.name) || !plain.test(f.claim)) return shared.command;
  return `${shared.command.replace(/ --(broker|claim)[ =]\S+/g, '')} --broker ${t.name} --claim ${f.claim}`;
}

function evidence(t, f, id) {
  const claim = claimOf(f.claim);
  const parts = [
    el('div', { class: 'dhead' },
      el('div', null, el('p', { class: 'crumb' }, shared.hops[f.hop - 1] || `Hop ${f.hop}`), el('h2', { id: 'evidence-title', tabindex: '-1' }, dotted(f.claim)),
        el('p', { class: 'crumb' }, 'on ', el('a', { href: '#' + (shared.targets.find(x => x.name === t.name) || {}).anchor }, t.name), ` (${t.place})`)),
      el('button', { type: 'button', class: 'close', 'aria-label': 'Close' }, '✕')),
    el('p', { class: 'badges' }, badge(f), ' ', el('span', { class: 'badge plainb' }, f.basis), ' ', el('span', { class: 'badge plainb' }, f.took)),
    el('p', { class: 'question' }, f.question),
    claim?.meaning ? el('p', { class: 'meaning' }, claim.meaning) : null,
    el('dl', { class: 'compare' }, [['Declared', f.declared, ''], ['Documented', f.documented, ''], ['Observed', f.observed, f.class]].map(
      ([k, v, c]) => el('div', { class: c || undefined }, el('dt', null, k), el('dd', null, v || '—')))),
    scale(f),
  ];
  const section = (title, ...content) => parts.push(el('h3', null, title), ...content);
  if (f.reason) section('What was seen', el('p', { class: 'reason' }, f.reason));
  if (f.note) section('What an application should do', el('p', { class: 'reason' }, f.note));
  if (f.source.length) section('What it rests on', sources(f.source));
  const notes = f.notes.filter(n => n !== f.reason);
  if (notes.length) section('Notes of the probe', el('ul', null, notes.map(n => el('li', null, n))));
  if (f.history.length) section('History', figure(t, f), table(f));
  section('To quote it', el('p', { class: 'cite' }, quote(t, f)), el('p', { class: 'soft' }, 'This answer’s address is ', el('code', null, '#' + id), '. To ask again: '), el('code', { class: 'command' }, again(t, f)));
  return parts.filter(Boolean);
}

// The figure is drawn once it has its width, which the dialog has when it is open.
function figure(t, f) {
  const items = fold(f.history);
  const saved = items.reduce((n, it) => n + (it.folded ? it.folded.length : 0), 0);
  const label = `History of ${f.claim} on ${t.name}`;
  const box = el('div', { class: 'scroll free', tabindex: '0', role: 'region', 'aria-label': label });
  const toggle = saved ? el('button', { type: 'button', class: 'unfold', 'aria-pressed': 'false' }, `Draw all ${f.history.length} events`) : null;
  let whole = false;
  const draw = () => box.replaceChildren(diagram(label, whole ? f.history.map(event => ({ event })) : items, box.clientWidth || 700, flip));
  const flip = () => { whole = !whole; toggle.setAttribute('aria-pressed', String(whole)); draw(); };
  toggle?.addEventListener('click', flip);
  const out = el('figure', null, box, el('figcaption', null,
    f.more ? `The first ${f.history.length} of ${f.history.length + f.more} events; the others are in report.json. ` : '', toggle));
  out.draw = draw;
  return out;
}
function settle(root) { for (const f of all('figure', root)) f.draw?.(); }
let narrowWas = innerWidth;
addEventListener('resize', () => { if (innerWidth !== narrowWas) { narrowWas = innerWidth; settle(document); } });

function table(f) {
  const details = el('details', null, el('summary', null, `All events as a table (${f.history.length}${f.more ? ` of ${f.history.length + f.more}` : ''})`));
  details.addEventListener('toggle', () => {
    if (details.querySelector('table')) return;
    const head = ['At (s)', 'Actor', 'Event', 'Message', 'Note'].map(h => el('th', { scope: 'col' }, h));
    const body = f.history.map(([ms, actor, kind, id, note]) => el('tr', { class: actor === 'fault' || BREAKS.has(kind) ? 'fault' : undefined },
      el('td', null, seconds(ms)), el('td', null, actor), el('td', null, kind), el('td', null, el('code', null, id)), el('td', null, note)));
    details.append(el('div', { class: 'scroll free', tabindex: '0', role: 'region', 'aria-label': 'Events' },
      el('table', { class: 'plain events' }, el('thead', null, el('tr', null, head)), el('tbody', null, body))));
  });
  return details;
}

const back = () => el('nav', { 'aria-label': 'Back' }, el('a', { class: 'back', href: '#matrix' }, '← Matrix'));

// A target in words.
function targetPage(t) {
  const count = want => t.findings.filter(f => want(info(f.verdict))).length;
  const passed = count(v => v.passes), fails = count(v => v.fails), none = t.findings.length - passed - fails;
  const deviates = count(v => v.verdict === 'deviation');
  const sums = [`${passed - deviates} of ${plural(t.findings.length, 'claim')} answered as declared`];
  if (deviates) sums.push(`${deviates} by a listed deviation`);
  if (fails) sums.push(`${fails} not as declared, or not answered at all`);
  if (none) sums.push(`${none} not applicable or not verifiable here, which is no pass`);
  const parts = [back(), el('header', null, el('p', { class: 'crumb' }, `${t.broker}, ${t.place}`), el('h1', null, t.name),
    t.of ? el('p', { class: 'what' }, t.of) : null,
    t.error ? el('p', { class: 'headline bad' }, 'Not reached: ' + t.error) : el('p', { class: fails ? 'headline bad' : 'headline good' }, sums.join(', ') + '.'),
    el('dl', { class: 'run' }, Object.entries(t.versions).map(([k, v]) => el('div', null, el('dt', null, k), el('dd', null, v))),
      t.like ? el('div', null, el('dt', null, 'compared with'), el('dd', null, t.like)) : null))];
  const section = (title, list, lead) => {
    if (list.length) parts.push(el('section', null, el('h2', null, title), lead ? el('p', { class: 'lead' }, lead) : null, list));
  };
  const wrong = t.findings.filter(f => info(f.verdict).fails || f.verdict === 'deviation');
  section('What differs from the declaration', wrong.map(said));
  shared.hops.forEach((title, i) => section(title, t.findings.filter(f => f.hop === i + 1 && info(f.verdict).passes && f.verdict !== 'deviation').map(said)));
  section('Neither pass nor failure', t.findings.filter(f => !info(f.verdict).fails && !info(f.verdict).passes).map(said),
    'What the target has no means for, and what can’t be shown there either way.');
  if (t.deviations.length) section('Listed deviations', [el('ul', null, t.deviations.map(d => el('li', null, el('code', null, d.claim), ' answers ', el('code', null, d.answer), ': ' + d.reason)))],
    'Where this target is known to differ from the broker that it stands for, met in this run or not.');
  return parts;
}
function said(f) {
  return el('div', { class: 'said-of' },
    el('h3', null, f.question),
    el('p', { class: 'line' }, el('a', { class: `cell ${f.class}`, href: '#' + f.anchor }, el('i', { 'aria-hidden': 'true' }, info(f.verdict).symbol), el('span', null, f.observed || info(f.verdict).words),
      el('span', { class: 'sr' }, `, ${info(f.verdict).words}, evidence`)), ' ', el('code', { class: 'soft' }, dotted(f.claim)), ' ', el('span', { class: 'soft' }, f.basis)),
    f.declared !== f.observed && f.declared ? el('p', null, 'Declared: ', el('code', null, f.declared), '.') : null,
    f.documented && f.documented !== f.declared ? el('p', null, 'The vendor documents: ', el('code', null, f.documented), '.') : null,
    f.reason ? el('p', null, f.reason) : null,
    f.note ? el('p', { class: 'do' }, f.note) : null);
}

// A claim over all targets, by answer.
function claimPage(row) {
  const id = row.dataset.claim, claim = claimOf(id);
  const heads = all('.grid thead [data-t]');
  const cells = all('td', row).flatMap(td => all('.cell', td).map(a => ({ a, target: heads[td.dataset.t].querySelector('.tname') })));
  const shown = c => c.a.querySelector('span').firstChild.textContent;
  const order = [...new Set([...(claim?.answers || []), ...cells.map(shown)])];
  const hop = Number(row.closest('tbody').dataset.hop);
  return [back(), el('header', null, el('p', { class: 'crumb' }, shared.hops[hop - 1]), el('h1', { class: 'mono' }, dotted(id)), el('p', { class: 'question' }, row.querySelector('.q').textContent),
    claim?.meaning ? el('p', { class: 'what' }, claim.meaning) : null),
  el('section', null, el('h2', null, 'Answers'), claim ? el('p', { class: 'lead' }, 'From the weakest to the strongest; below them what is no answer.') : null,
    el('dl', { class: 'by-answer' }, order.map(answer => {
      const who = cells.filter(c => shown(c) === answer);
      return el('div', { class: who.length ? '' : 'nobody' }, el('dt', null, answer), el('dd', null, who.length ? who.map(c => el('a', { class: `cell ${[...c.a.classList].find(x => x.startsWith('v-'))}`, href: c.a.hash },
        el('i', { 'aria-hidden': 'true' }, c.a.querySelector('i').textContent), el('span', null, c.target.textContent))) : 'no target of this run'));
    })))];
}
