// What the check asks a page; it reads what is shown, and presses what a reader
// would press.
window.look = (() => {
  const all = (s, from = document) => [...from.querySelectorAll(s)];
  const frame = () => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)));
  const turn = () => new Promise(r => setTimeout(r)); // what is due is done; nothing is painted for it
  const shown = e => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const text = e => e.innerText.trim();
  const until = async (what, condition) => {
    const end = performance.now() + 10000;
    for (;;) {
      const v = condition();
      if (v) return v;
      if (performance.now() > end) throw new Error('never: ' + what);
      await turn();
    }
  };
  const describe = e => {
    if (!e || e === document.body) return 'body';
    const name = (e.getAttribute('aria-label') || e.textContent || e.name || '').trim().replace(/\s+/g, ' ').slice(0, 60);
    return `${e.localName}${e.id ? '#' + e.id : ''}${typeof e.className === 'string' && e.className ? '.' + e.className.split(' ')[0] : ''} "${name}"`;
  };
  // The page hears of a new address before this does.
  const go = hash => location.hash === hash ? turn() : new Promise(r => { addEventListener('hashchange', () => r(), { once: true }); location.hash = hash; });
  const calm = async () => { await frame(); await turn(); await frame(); };
  const dialog = () => document.getElementById('evidence');

  return {
    calm, go,
    // Milliseconds from the start of the navigation until the page is drawn.
    async drawn() {
      await until('the page is loaded', () => performance.getEntriesByType('navigation')[0].loadEventEnd > 0);
      const load = performance.getEntriesByType('navigation')[0].loadEventEnd;
      const paint = performance.getEntriesByType('paint').map(p => p.startTime);
      return Math.max(load, ...paint);
    },
    matrix() {
      const heads = all('.grid thead [data-t]').filter(shown).map(h => ({ t: h.dataset.t, name: text(h.querySelector('.tname')) }));
      const rows = all('.grid .claim').filter(shown).map(r => ({
        claim: r.querySelector('.id').textContent, question: r.querySelector('.q').textContent, hop: Number(r.closest('tbody').dataset.hop),
        cells: all('td', r).filter(shown).map(td => all('.cell', td).map(a => ({ verdict: a.dataset.v, text: a.querySelector('span').firstChild.textContent, href: a.hash, name: a.textContent }))),
      }));
      return { heads: heads.map(h => h.name), rows, shown: document.querySelector('#filters output').value };
    },
    async chip(verdict) { document.querySelector(`.chip[data-v="${verdict}"]`).click(); await calm(); return look.matrix(); },
    async field(name, value) {
      const f = document.getElementById('filters').elements[name];
      f.value = value;
      f.dispatchEvent(new Event('input', { bubbles: true }));
      await calm();
      return look.matrix();
    },
    async reset() { document.querySelector('#filters [type=reset]').click(); await calm(); await calm(); return look.matrix(); },
    // What a dialog that was opened shows.
    async evidence(hash) {
      if (location.hash !== hash) location.hash = hash;
      await until(`the evidence of ${hash}`, () => dialog().open && dialog().querySelector('.cite') && dialog().textContent.includes(hash));
      const d = dialog(), svg = d.querySelector('svg.seq');
      return {
        title: d.querySelector('#evidence-title').textContent, question: d.querySelector('.question').textContent,
        answers: all('.compare dd', d).map(e => e.textContent), badges: all('.badge', d).map(text),
        headings: all('h3', d).map(e => e.textContent), links: all('.sources a', d).map(a => a.href),
        cite: d.querySelector('.cite').textContent, command: d.querySelector('.command').textContent,
        scale: all('.scale li', d).map(e => e.querySelector('b').textContent), focus: describe(document.activeElement),
        lanes: svg ? all('.lname', svg).map(e => e.textContent) : [],
        events: svg ? all('.event', svg).length : 0, folded: svg ? all('.fold', svg).reduce((n, g) => n + Number(g.dataset.folded), 0) : 0,
        faults: svg ? all('.event.fault', svg).length : 0, width: svg ? svg.getBoundingClientRect().width : 0,
      };
    },
    // The same for all of a list, as far as it can be wrong: [hash, claim, events, faults].
    async sweep(list) {
      const wrong = [];
      for (const [hash, claim, events, faults] of list) {
        const e = await look.evidence(hash);
        if (e.title !== claim) wrong.push(`${hash} shows ${e.title}`);
        if (e.events + e.folded !== events) wrong.push(`${hash} draws ${e.events} and folds ${e.folded} of ${events} events`);
        if (e.faults < faults) wrong.push(`${hash} marks ${e.faults} of ${faults} faults`);
      }
      dialog().close();
      await calm();
      return wrong;
    },
    async unfold() {
      const button = dialog().querySelector('.unfold');
      if (!button) return -1;
      button.click();
      await frame();
      return all('svg.seq .event', dialog()).length;
    },
    async events() {
      dialog().querySelector('summary').click();
      const body = await until('the table of events', () => dialog().querySelector('.events tbody'));
      return all('tr', body).length;
    },
    marks: () => all('svg.seq .event', dialog()).map(g => ({
      from: g.dataset.from, to: g.dataset.to, kind: g.dataset.kind, fault: g.classList.contains('fault'), band: Boolean(g.querySelector('rect')),
      tip: Boolean(g.querySelector('.tip')), label: (g.querySelector('.alabel, .slabel, .blabel') || {}).textContent, title: g.querySelector('title').textContent,
    })),
    // Where arrows begin and end, by the lanes' names under which they do.
    aims: () => {
      const x = Object.fromEntries(all('svg.seq .lname', dialog()).map(t => [Number(t.getAttribute('x')), t.textContent]));
      const near = v => x[Object.keys(x).map(Number).reduce((a, b) => Math.abs(b - v) < Math.abs(a - v) ? b : a)];
      return all('svg.seq .event .tip', dialog()).map(t => {
        const dot = t.parentElement.querySelector('.dot');
        return near(Number(dot.getAttribute('cx'))) + '>' + near(Number(/^M([\d.-]+)/.exec(t.getAttribute('d'))[1]));
      });
    },
    async sheet(hash) {
      const heading = () => document.querySelector('#page:not([hidden]) h1');
      const before = location.hash === hash ? null : heading(); // stays until what is asked for has been unpacked
      await go(hash);
      const p = (await until(`the page of ${hash}`, () => heading() !== before && heading())).closest('#page');
      await frame();
      return {
        title: p.querySelector('h1').textContent, text: p.innerText, said: all('.said-of', p).map(e => e.querySelector('h3').textContent), links: all('.cell', p).map(a => a.hash),
        home: shown(document.getElementById('main')), document: document.title, focus: describe(document.activeElement),
      };
    },
    async home() { await go('#matrix'); await until('the matrix', () => shown(document.querySelector('.grid'))); return document.title; },
    async returned() { await until('the matrix', () => shown(document.querySelector('.grid'))); await calm(); return { y: scrollY }; },
    mutants: () => all('#mutants tbody tr').map(r => all('th, td', r).map(text)),
    run: () => text(document.querySelector('.top')),
    // What reaches out of the page to the right.
    overflow() {
      // Not innerWidth: a phone zooms out until the widest thing fits into it.
      const wide = document.scrollingElement.scrollWidth - document.documentElement.clientWidth, out = [];
      if (wide > 0) out.push(`the page is ${wide} px too wide`);
      const d = dialog();
      if (d.open && d.scrollWidth > d.clientWidth) out.push(`the dialog is ${d.scrollWidth - d.clientWidth} px too wide`);
      return out;
    },
    state: () => ({ open: dialog().open, hash: location.hash, focus: describe(document.activeElement), href: document.activeElement.getAttribute('href') || '', inside: dialog().contains(document.activeElement), grid: Boolean(document.activeElement.closest?.('.grid')) }),
    // The focused element, and what is wrong with it.
    stop() {
      const e = document.activeElement, s = getComputedStyle(e), box = e.getBoundingClientRect();
      return { what: describe(e), body: e === document.body, seen: shown(e) && box.width > 0 && box.bottom > 0 && box.top < innerHeight, outline: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2,
        index: all('*').indexOf(e), grid: Boolean(e.closest('.grid')) };
    },
    // Marks of a well-made document.
    structure() {
      const wrong = [], ids = new Set();
      for (const e of all('[id]')) { if (ids.has(e.id)) wrong.push(`the ID ${e.id} twice`); ids.add(e.id); }
      if (!document.documentElement.lang) wrong.push('no language');
      if (!document.querySelector('meta[name=viewport]')) wrong.push('no viewport');
      const heads = all('h1, h2, h3, h4').filter(shown);
      if (heads.filter(h => h.localName === 'h1' && !dialog().contains(h)).length !== 1) wrong.push('not one h1');
      let level = 1;
      for (const h of heads.filter(h => !dialog().contains(h))) {
        const l = Number(h.localName[1]);
        if (l > level + 1) wrong.push(`${describe(h)} skips a level`);
        level = l;
      }
      for (const th of all('th')) if (!th.scope) wrong.push(`${describe(th)} has no scope`);
      for (const a of all('a[href^="#"]')) {
        const id = decodeURIComponent(a.hash.slice(1));
        if (!id.includes('--') && !document.getElementById(id)) wrong.push(`${describe(a)} leads nowhere`);
      }
      for (const e of all('main, header, footer, nav, section, article')) if (e.matches('section[aria-labelledby]') && !document.getElementById(e.getAttribute('aria-labelledby'))) wrong.push(`${describe(e)} is labelled by nothing`);
      for (const e of all('[aria-hidden=true]')) if (e.matches('a, button, input, select') || e.querySelector('a, button, input, select')) wrong.push(`${describe(e)} hides what can be focused`);
      return wrong;
    },
    // Text whose colour is too near to what is behind it: 4.5 to 1 is the least.
    contrast() {
      const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 }; };
      const light = rgb => { const [r, g, b] = rgb.map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
      const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > .99) return c.rgb; } return [255, 255, 255]; };
      const seen = new Set(), wrong = [];
      for (const e of all('body *')) {
        if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.closest('script, title, noscript, .sr, .dim, :disabled, option') || !shown(e)) continue;
        const s = getComputedStyle(e);
        let fg, bg;
        if (e.namespaceURI.endsWith('svg')) { fg = s.fill; const rect = e.parentElement.querySelector('rect'); bg = rect && !e.matches('.at, .note') ? parse(getComputedStyle(rect).fill).rgb : behind(e.closest('svg').parentElement); }
        else { fg = s.color; bg = behind(e); }
        const a = light(parse(fg).rgb), b = light(bg), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        const key = `${fg} on ${bg}`;
        if (ratio < 4.5 && !seen.has(key)) { seen.add(key); wrong.push(`${describe(e)} has ${ratio.toFixed(2)} to 1 (${key})`); }
      }
      return wrong;
    },
    // Controls that a finger misses: WCAG 2.2 asks for 24 px.
    small: () => all('button, select, input, summary, .cell').filter(shown).map(e => [e, e.getBoundingClientRect()]).filter(([, b]) => b.height < 24 || b.width < 24).map(([e]) => describe(e)),
    background: () => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number),
    // Elements that no report may bring into the page.
    foreign: () => all('img, iframe, object, embed, video, audio, x, link[rel=stylesheet], base, svg foreignObject, svg a, form[action]').map(describe)
      .concat(all('a[href]').filter(a => !/^(#|https?:)/.test(a.getAttribute('href'))).map(describe))
      .concat(all('script').length === all('script[type="text/plain"]').length + 1 ? [] : ['a script that isn’t the page’s']),
    pwned: () => Object.keys(window).filter(k => k.startsWith('pwned')),
    all: () => all('.cell').map(a => a.hash),
    sheets: () => all('.tname, .claim .id').map(a => a.hash),
  };
})();
