// The matrix: its filters, the keyboard in it, and which view an address opens.
document.documentElement.classList.add('js');
const form = document.getElementById('filters');
const chips = all('.chip');
const rows = all('.grid .claim');

// A row stays while one of its cells in the columns that stay has a wanted verdict;
// and where verdicts are wanted, a column does only while it has one of them.
function filter() {
  const { hop, broker, target, text, shown } = form.elements;
  const wanted = new Set(chips.filter(c => c.getAttribute('aria-pressed') === 'true').map(c => c.dataset.v));
  const words = text.value.trim().toLowerCase();
  const heads = all('.grid thead [data-t]');
  const out = heads.map(h => (target.value !== '' && h.dataset.t !== target.value) || (broker.value !== '' && h.dataset.b !== broker.value));
  const has = heads.map(() => wanted.size === 0);
  let count = 0;
  for (const row of rows) {
    let hit = wanted.size === 0;
    const asked = (hop.value === '' || hop.value === row.parentElement.dataset.hop) && row.dataset.text.includes(words);
    for (const cell of all('.cell', row)) {
      const match = wanted.size === 0 || wanted.has(cell.dataset.v), t = cell.parentElement.dataset.t;
      cell.classList.toggle('dim', !match);
      if (match && asked && !out[t]) hit = has[t] = true;
    }
    row.hidden = !hit || !asked;
    count += row.hidden ? 0 : 1;
  }
  out.forEach((o, t) => { out[t] = o || !has[t]; });
  for (const c of all('.grid [data-t]')) c.hidden = out[c.dataset.t];
  for (const group of all('.grid tbody')) group.hidden = all('.claim', group).every(r => r.hidden);
  const columns = out.filter(o => !o).length;
  shown.value = count === rows.length && columns === heads.length ? '' : `${count} of ${rows.length} claims, ${columns} of ${heads.length} targets`;
  const left = document.querySelector('.none-left');
  if (left) left.hidden = count > 0 && columns > 0;
  rove();
}
form.addEventListener('input', filter);
form.addEventListener('submit', e => e.preventDefault());
form.addEventListener('reset', () => {
  chips.forEach(c => c.setAttribute('aria-pressed', 'false'));
  setTimeout(filter); // the fields are cleared after this event
});
chips.forEach(c => c.addEventListener('click', () => {
  c.setAttribute('aria-pressed', String(c.getAttribute('aria-pressed') !== 'true'));
  filter();
}));

// The matrix is one stop of the Tab key; arrow keys walk in it, Home and End along a
// row. Thousands of stops would shut the keyboard out of what comes after it.
const grid = document.querySelector('.grid');
let stop = null;
function rove(to) {
  const visible = a => a && a.offsetParent !== null;
  if (!to && visible(stop)) return;
  to ||= all('.cell', grid || document).find(visible) || null;
  if (stop) stop.tabIndex = -1;
  stop = to;
  if (stop) stop.tabIndex = 0;
}
if (grid) {
  for (const a of grid.querySelectorAll('a')) a.tabIndex = -1;
  rove(grid.querySelector('.cell')); // unseen: to ask would lay the page out twice
  grid.addEventListener('focusin', e => { if (e.target.closest('a')) rove(e.target.closest('a')); });
  grid.addEventListener('keydown', walk);
}
function walk(e) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9] }[e.key];
  const from = e.target.closest('td, th');
  if (!step || !from || e.altKey || e.ctrlKey || e.metaKey || e.shiftKey) return;
  const lines = [grid.rows[0], ...rows.filter(r => !r.hidden)];
  const links = line => [...line.cells].map((c, x) => ({ x, a: c.hidden ? null : c.querySelector('a') })).filter(l => l.a);
  let y = lines.indexOf(from.parentElement), to;
  if (step[0] === 0) {
    const line = links(lines[y]), at = line.findIndex(l => l.x === from.cellIndex);
    to = line[Math.max(0, Math.min(line.length - 1, at + step[1]))];
  } else {
    for (y += step[0]; !to && lines[y]; y += step[0]) to = links(lines[y]).find(l => l.x === from.cellIndex);
  }
  if (!to) return;
  e.preventDefault();
  to.a.focus();
}

// The fragment says what is open: the evidence of a cell over the matrix or over a
// target's or a claim's page. So each can be linked to, and Back closes it.
const main = document.getElementById('main');
const top_ = document.querySelector('.top');
const sheet = document.getElementById('page');
const dialog = document.getElementById('evidence');
let under = ''; // the address of what is below the dialog
let left = { y: 0, focus: null }; // where the reader was in the matrix when a page took its place
let turn = 0; // a later address overtakes one that is still being unpacked

async function follow() {
  const mine = ++turn;
  let id = '';
  try { id = decodeURIComponent(location.hash.slice(1)); } catch { /* not one of ours */ }
  let view;
  try { view = id && !document.getElementById(id) ? await find(id) : null; } catch (e) { view = { failed: e }; }
  if (mine !== turn) return;
  if (view && view.finding) {
    dialog.replaceChildren(...evidence(view.target, view.finding, id));
    if (!dialog.open) dialog.showModal();
    document.getElementById('evidence-title').focus({ preventScroll: true });
    dialog.scrollTop = 0;
    settle(dialog);
    return;
  }
  if (dialog.open) { dialog.returnValue = 'left'; dialog.close(); }
  const moved = under !== location.hash;
  under = location.hash;
  const content = view && (view.failed ? [failed(view.failed)] : view.page());
  const returns = main.hidden && !content;
  if (!main.hidden && content) left = { y: scrollY, focus: document.activeElement };
  main.hidden = top_.hidden = Boolean(content);
  sheet.hidden = !content;
  sheet.replaceChildren(...(content || []));
  document.title = content ? `${sheet.querySelector('h1')?.textContent || 'Evidence'} · Onceline` : title;
  if (content) {
    if (moved) { scrollTo(0, 0); sheet.focus({ preventScroll: true }); }
    return;
  }
  if (returns) { scrollTo(0, left.y); left.focus?.focus({ preventScroll: true }); }
  if (id && document.getElementById(id)) document.getElementById(id).scrollIntoView();
}
const title = document.title;

dialog.addEventListener('close', () => {
  if (dialog.returnValue !== 'left' && location.hash !== under) history.replaceState(null, '', under || location.pathname + location.search);
  dialog.returnValue = '';
});
dialog.addEventListener('click', e => {
  const box = dialog.getBoundingClientRect();
  const outside = e.clientX < box.left || e.clientX > box.right || e.clientY < box.top || e.clientY > box.bottom;
  if (e.target.closest('.close') || (e.target === dialog && outside && e.detail > 0)) { e.preventDefault(); dialog.close(); }
});
addEventListener('hashchange', follow);
follow();
