(() => {
  'use strict';
  const root = document.documentElement;
  root.classList.add('js');
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const form = document.getElementById('filters');
  const chips = all('.chip');

  // Filters: a row stays while one of its visible cells has a wanted verdict.
  function filter() {
    const { hop, target, text, shown } = form.elements;
    const wanted = new Set(chips.filter(c => c.getAttribute('aria-pressed') === 'true').map(c => c.dataset.v));
    const words = text.value.trim().toLowerCase();
    all('.grid [data-t]').forEach(e => { e.hidden = target.value !== '' && e.dataset.t !== target.value; });
    let count = 0, total = 0;
    for (const group of all('.grid tbody')) {
      let any = false;
      for (const row of all('.claim', group)) {
        let hit = wanted.size === 0;
        for (const cell of all('.cell', row)) {
          const match = wanted.size === 0 || wanted.has(cell.dataset.v);
          cell.classList.toggle('dim', !match);
          hit ||= match && !cell.parentElement.hidden;
        }
        row.hidden = !hit || (hop.value !== '' && hop.value !== group.dataset.hop) || !row.dataset.text.includes(words);
        any ||= !row.hidden;
        total++;
        count += row.hidden ? 0 : 1;
      }
      group.hidden = !any;
    }
    shown.value = count === total ? '' : `${count} of ${total} claims`;
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

  // Evidence: the fragment says which dialog is open, so that a cell can be
  // linked to, and the browser's Back closes it.
  let open = null;
  function follow() {
    let id = '';
    try { id = decodeURIComponent(location.hash.slice(1)); } catch { /* not one of ours */ }
    const next = document.getElementById(id);
    const dialog = next instanceof HTMLDialogElement ? next : null;
    if (open && open !== dialog) { const old = open; open = null; old.close(); }
    if (dialog && !dialog.open) { open = dialog; dialog.showModal(); dialog.scrollTop = 0; }
  }
  function closed(dialog) {
    if (open !== dialog) return;
    open = null;
    history.replaceState(null, '', location.href.split('#')[0]);
    all('.cell').find(c => c.hash === '#' + dialog.id)?.focus();
  }
  all('dialog').forEach(d => {
    d.addEventListener('close', () => closed(d));
    d.addEventListener('click', e => {
      const box = d.getBoundingClientRect();
      const outside = e.clientX < box.left || e.clientX > box.right || e.clientY < box.top || e.clientY > box.bottom;
      if (e.target.closest('.close') || (e.target === d && outside && e.detail > 0)) { e.preventDefault(); d.close(); }
    });
  });
  addEventListener('hashchange', follow);
  follow();

  // Arrow keys walk from cell to cell.
  document.querySelector('.grid')?.addEventListener('keydown', e => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    const td = e.target.closest('td');
    if (!step || !td || e.altKey || e.ctrlKey || e.metaKey) return;
    const rows = all('.grid .claim').filter(r => !r.hidden);
    let y = rows.indexOf(td.parentElement), x = td.cellIndex, cell;
    do {
      y += step[0]; x += step[1];
      cell = rows[y]?.cells[x];
    } while (cell && (cell.hidden || !cell.querySelector('a')));
    const link = cell?.querySelector('a');
    if (link) { e.preventDefault(); link.focus(); }
  });
})();
