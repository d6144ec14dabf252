// The status page. It asks for /status and for the table that is shown every two seconds, and changes only what differs.
// Texts from the proxy are set as text, never as markup.
'use strict';

const PERIOD = 2000;
const LIMIT = 100;
const $ = id => document.getElementById(id);

// ---- small helpers

function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== false && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1});
const number = n => n < 10000 ? whole.format(Math.round(n)) : short.format(n);
const rate = n => n > 0 && n < 10 ? n.toFixed(1) : number(n);

function bytes(n) {
  for (const unit of ['B', 'KB', 'MB', 'GB']) {
    if (n < 1024 || unit === 'GB') return (n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)) + ' ' + unit;
    n /= 1024;
  }
}

// duration of s seconds for people: two units at most.
function duration(s) {
  if (s < 0) return '–';
  if (s < 0.9995) return Math.round(s * 1000) + ' ms';
  if (s < 9.95) return s.toFixed(1) + ' s';
  s = Math.round(s);
  if (s < 60) return s + ' s';
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = units.findIndex(u => s >= u[1]);
  const [a, b] = [units[first], units[first + 1]];
  const rest = Math.floor(s % a[1] / b[1]);
  return Math.floor(s / a[1]) + ' ' + a[0] + (rest ? ' ' + rest + ' ' + b[0] : '');
}

// ---- what is shown, kept in the address so that it can be reloaded and sent

const state = {tab: 'locks', search: '', only: '', sort: '', order: '', offset: 0};
let live = true;
let proxy = null; // the last answer of /status

function readAddress() {
  const form = new URLSearchParams(location.hash.slice(1));
  state.tab = tables[form.get('tab')] || form.get('tab') === 'connections' ? form.get('tab') : 'locks';
  for (const name of ['search', 'only', 'sort', 'order']) state[name] = form.get(name) || '';
  state.offset = Math.max(0, parseInt(form.get('offset') || '0', 10) || 0);
}

function writeAddress() {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value && !(name === 'tab' && value === 'locks')) form.set(name, value);
  history.replaceState(null, '', '#' + form);
}

// change what is shown, from the first page unless that changes the page.
function show(change) {
  Object.assign(state, {offset: 0}, change);
  writeAddress();
  frame();
  refresh();
}

// ---- cells: each returns nodes, or a text

const sub = text => make('span', {class: 'sub'}, text);
const badge = (text, kind) => make('span', {class: 'pill ' + kind}, text);
const count = n => n > 0 ? number(n) : make('span', {class: 'zero'}, '0');
const none = () => make('span', {class: 'zero'}, '–');

function holder(l) {
  switch (l.holder) {
  case 'here': return l.name ? [l.name, sub(l.client)] : l.client;
  case 'gone': return [badge('client gone', 'warn'), sub('the lease runs out')];
  case 'elsewhere': return [badge('elsewhere', 'plain'), sub('process ' + l.process.slice(0, 8))];
  case 'named': return [badge('named owner', 'plain'), sub('not connected here')];
  case 'none': return [badge('free', ''), sub('a waiter gets it')];
  default: return [badge('unknown', 'bad'), sub('Redis did not say in time')];
  }
}

function lease(l) {
  if (l.lease_left_seconds < 0) return none();
  const kind = l.holder === 'here' ? (l.renewed ? 'renewed' : 'fixed') : '';
  const left = make('span', {class: l.renewed && l.lease_left_seconds < 3 ? 'late' : ''}, duration(l.lease_left_seconds));
  return kind ? [left, sub(kind)] : left;
}

function wait(seconds) {
  if (seconds < 0) return none();
  return make('span', {class: seconds >= 60 ? 'late' : seconds >= 10 ? 'soon' : ''}, duration(seconds));
}

function end(l) {
  return make('button', {type: 'button', disabled: l.holder === 'none' || l.holder === 'unknown' || l.key_bytes > 0, onclick: () => confirmEnd(l)}, 'Force unlock');
}

function reason(c) {
  if (c.waits_for) return make('span', {class: 'key'}, c.waits_for);
  const words = {pin: 'a free pin', replies: 'its replies', turn: 'its next turn', client: 'the client to read', reply: 'a reply', list: 'a list', lock: 'a lock command', admission: 'admission', closing: 'closing'};
  const more = [c.paused && 'not read', c.lane_set_aside && 'lane set aside'].filter(Boolean).join(', ');
  if (!c.state && !more) return none();
  return [words[c.state] || more, c.state && more ? sub(more) : ''];
}

// identity is the user, the database and the protocol. "-" stands for a client without credentials.
function identity(text) {
  const [, user, db, proto] = text.match(/^(.*) db(\d+) resp(\d)$/) || [];
  return user === undefined ? text : [user === '-' ? 'no login' : user, sub(`db ${db}, RESP${proto}`)];
}

// columns: [name, title, class, cell, sort key, idle]. Narrow screens leave cells out that idle says have nothing to tell.
const tables = {
  locks: {
    path: '/locks', rows: 'locks', search: 'Key, client or name',
    only: [['', 'All'], ['contended', 'Contended'], ['held', 'Held here'], ['orphaned', 'Not here']],
    start: ['waiting', 'down'],
    id: l => l.database + ' ' + (l.key_base64 || l.key) + (l.key_bytes ? ' ' + l.fence : ''),
    columns: [
      ['key', 'Lock', 'w-key', l => [make('span', {class: 'key'}, l.key), l.database || l.user ? sub([l.user, l.database ? 'db ' + l.database : ''].filter(Boolean).join(', ')) : ''], 'key'],
      ['holder', 'Holder', 'w-who full', holder, 'holder'],
      ['held', 'Held for', 'n', l => l.held_seconds < 0 ? none() : [duration(l.held_seconds), l.holds > 1 ? sub(l.holds + ' holds') : ''], 'held', l => l.held_seconds < 0],
      ['lease', 'Lease left', 'n', lease, 'lease', l => l.lease_left_seconds < 0],
      ['waiters', 'Waiters', 'n', l => [count(l.waiters), l.fair_waiters ? sub(l.fair_waiters + ' fair') : ''], 'waiters', l => !l.waiters],
      ['waiting', 'Oldest wait', 'n', l => wait(l.oldest_wait_seconds), 'waiting', l => l.oldest_wait_seconds < 0],
      ['end', '', 'w-act act full', end, ''],
    ],
    empty: 'No locks.', emptier: 'No lock matches.',
  },
  clients: {
    path: '/clients', rows: 'clients', search: 'Address, name, user, lock or pin',
    only: [['', 'All'], ['waiting', 'Waiting'], ['pinned', 'Pinned'], ['unanswered', 'Unanswered']],
    start: ['id', 'up'],
    id: c => String(c.id),
    columns: [
      ['name', 'Client', 'w-who', c => c.name ? [c.name, sub(c.address)] : c.address, 'address'],
      ['identity', 'Identity', 'w-id', c => identity(c.identity), 'identity'],
      ['state', 'Waits for', 'w-wide full', reason, 'state', c => !c.waits_for && !c.state && !c.paused && !c.lane_set_aside],
      ['waiting', 'Since', 'n', c => wait(c.waiting_seconds), 'waiting', c => c.waiting_seconds < 0],
      ['pin', 'Pin', 'w-pin', c => c.pin ? make('span', {class: 'mono'}, c.pin.toUpperCase()) : none(), 'pin', c => !c.pin],
      ['unanswered', 'Unanswered', 'n', c => count(c.unanswered), 'unanswered', c => !c.unanswered],
      ['unread', 'Unread', 'n', c => c.unread_bytes ? bytes(c.unread_bytes) : none(), 'unread', c => !c.unread_bytes],
      ['connected', 'Connected', 'n', c => duration(c.connected_seconds), 'id'],
    ],
    empty: 'No clients.', emptier: 'No client matches.',
  },
};

// shown are the columns at present.
const shown = t => t.columns.filter(c => c[0] !== 'end' || proxy && proxy.force_unlock);

// sorting is the column and the order in force. Connected sorts by id: the oldest has the smallest.
const sorting = t => state.sort ? [state.sort, state.order || 'up'] : t.start;

// ---- a table, changed in place so that focus, selection and scrolling stay

function fill(cell, content) {
  const nodes = [content].flat().filter(n => n !== '').map(n => typeof n === 'string' ? document.createTextNode(n) : n);
  const old = [...cell.childNodes];
  if (old.length === nodes.length && old.every((o, i) => o.isEqualNode(nodes[i]) && o.nodeName !== 'BUTTON')) return;
  cell.replaceChildren(...nodes);
}

function drawTable(t, answer) {
  const columns = shown(t);
  const names = columns.map(c => c[0]).join();
  let table = $('rows').firstChild;
  if (!table || table.dataset.of !== names) {
    table = make('table', {'data-of': names});
    const head = make('tr');
    for (const [, title, kind, , sort] of columns) {
      const label = sort ? make('button', {type: 'button', onclick: () => sortBy(t, sort)}, title) : make('span', {}, title ? title : make('span', {class: 'hide'}, 'Actions'));
      head.append(make('th', {scope: 'col', class: kind.replace('full', ''), 'data-sort': sort}, label));
    }
    table.append(make('thead', {}, head), make('tbody'));
    $('rows').replaceChildren(table);
  }
  const [column, order] = sorting(t);
  for (const th of table.tHead.rows[0].cells) {
    if (th.dataset.sort && th.dataset.sort === column) th.setAttribute('aria-sort', order === 'down' ? 'descending' : 'ascending');
    else th.removeAttribute('aria-sort');
  }
  const body = table.tBodies[0];
  const rows = answer[t.rows];
  const known = new Map([...body.rows].map(r => [r.dataset.id, r]));
  rows.forEach((row, i) => {
    const id = t.id(row);
    let tr = known.get(id);
    known.delete(id);
    if (!tr) {
      tr = make('tr', {'data-id': id});
      for (const [, title, kind] of columns) tr.append(make('td', {class: kind.replace(/w-\w+ ?/, ''), 'data-label': title}));
    }
    if (body.rows[i] !== tr) body.insertBefore(tr, body.rows[i] || null);
    columns.forEach(([, , , cell, , idle], n) => {
      // A button keeps its node, and so its focus; what it is about is the row's.
      if (cell === end && tr.cells[n].firstChild) Object.assign(tr.cells[n].firstChild, {disabled: end(row).disabled});
      else fill(tr.cells[n], cell === end ? make('button', {type: 'button', disabled: end(row).disabled, onclick: () => confirmEnd(tr.lock)}, 'Force unlock') : cell(row));
      if (idle) tr.cells[n].classList.toggle('idle', idle(row));
    });
    tr.lock = row;
  });
  for (const tr of known.values()) tr.remove();
  table.hidden = !rows.length;
  const filtered = state.search || state.only;
  setText($('empty'), filtered ? t.emptier : t.empty);
  $('empty').hidden = rows.length > 0;
  const last = answer.offset + rows.length;
  $('pager').hidden = answer.matching <= LIMIT && !answer.offset;
  setText($('range'), rows.length ? `${whole.format(answer.offset + 1)}–${whole.format(last)} of ${whole.format(answer.matching)}` : '');
  $('previous').disabled = answer.offset === 0;
  $('next').disabled = last >= answer.matching || last > 10000;
}

function sortBy(t, column) {
  const [now, order] = sorting(t);
  const falls = ['waiting', 'waiters', 'held', 'unanswered', 'unread'].includes(column); // most people want the largest first
  show({sort: column, order: now === column ? (order === 'down' ? 'up' : 'down') : falls ? 'down' : 'up'});
}

// ---- tiles, with a line of the last five minutes

const tiles = [
  ['Commands', 'commands', p => [rate(latest(p, 'commands')), 'per second']],
  ['Lock grants', 'grants', p => [rate(latest(p, 'grants')), 'per second']],
  ['Locks held', 'locks_held', p => [number(p.locks_held), '']],
  ['Clients waiting', 'lock_waiters', p => [number(p.lock_waiters), p.oldest_wait_seconds < 0 ? '' : 'oldest ' + duration(p.oldest_wait_seconds)], p => p.oldest_wait_seconds >= 60],
  ['Clients', 'clients', p => [number(p.clients), '']],
  ['Locks lost', 'locks_lost', p => [number(p.lines.locks_lost.reduce((a, b) => a + b, 0) * p.period_seconds), 'in 5 min'], p => p.lines.locks_lost.some(v => v > 0)],
];

function latest(p, name) {
  const line = p.lines[name];
  return line.length ? line[line.length - 1] : 0;
}

const SVG = 'http://www.w3.org/2000/svg';

function drawTiles(p) {
  const box = $('tiles');
  if (!box.firstChild) {
    for (const [title] of tiles) {
      const svg = document.createElementNS(SVG, 'svg');
      svg.setAttribute('viewBox', '0 0 150 34');
      svg.setAttribute('preserveAspectRatio', 'none');
      svg.setAttribute('aria-hidden', 'true');
      for (const kind of ['area', 'line']) {
        const path = document.createElementNS(SVG, 'path');
        path.setAttribute('class', kind);
        svg.append(path);
      }
      box.append(make('div', {class: 'tile'}, make('h2', {}, title), make('p'), svg));
    }
  }
  tiles.forEach(([, name, text, alarm], i) => {
    const tile = box.children[i];
    const [value, unit] = text(p);
    fill(tile.querySelector('p'), [value, unit ? make('small', {}, unit) : '']);
    tile.classList.toggle('alarm', Boolean(alarm && alarm(p)));
    const line = p.lines[name];
    const top = Math.max(...line, 1);
    const points = line.map((v, n) => `${150 - (line.length - 1 - n) * 150 / 149} ${(32 - v / top * 28).toFixed(2)}`);
    const path = points.length > 1 ? 'M' + points.join('L') : '';
    tile.querySelector('.line').setAttribute('d', path);
    tile.querySelector('.area').setAttribute('d', path && `${path}L150 34L${points[0].split(' ')[0]} 34Z`);
  });
}

// ---- the head, and the connections

function drawHead(p) {
  setText($('version'), p.version);
  setText($('redis'), p.upstream_up ? 'Redis up' : 'Redis down');
  $('redis').className = p.upstream_up ? 'pill' : 'pill bad';
  $('redis').hidden = false;
  $('draining').hidden = !p.draining;
  setText($('uptime'), 'up ' + duration(p.uptime_seconds) + ' · ' + p.uuid.slice(0, 8));
  $('uptime').title = 'This process, as owners elsewhere are named: ' + p.uuid;
}

function meter(title, used, limit, text) {
  const m = make('meter', {min: 0, max: limit || 1, low: 0.7 * limit, high: 0.9 * limit, optimum: 0, value: Math.min(used, limit || 1), 'aria-label': title});
  return make('div', {}, make('b', {}, title), make('span', {}, `${text(used)} of ${text(limit)}`), m);
}

function plainTable(titles, rows, kinds) {
  const cells = (tag, row) => row.map((c, i) => make(tag, {class: kinds[i], 'data-label': titles[i]}, ...(tag === 'th' ? [make('span', {}, c)] : [c].flat())));
  return make('table', {}, make('thead', {}, make('tr', {}, ...cells('th', titles))), make('tbody', {}, ...rows.map(r => make('tr', {}, ...cells('td', r)))));
}

function drawConnections(p) {
  const l = p.limits || {};
  const parts = [
    make('h2', {}, 'Limits'),
    make('div', {class: 'meters'},
      meter('Clients', p.clients, l['max-clients'], number), meter('Waiters', p.lock_waiters, l['max-waiters'], number),
      meter('Pins', p.pins_used + p.pins_idle, l['max-pins'], number), meter('Memory of clients', p.memory_bytes, p.memory_limit_bytes, bytes)),
    make('div', {class: 'pair'},
      make('section', {},
        make('h2', {}, 'Pins in use', make('small', {}, 'by the command that needs one')),
        p.pins.length ? plainTable(['Command', 'Pins'], p.pins.map(r => [make('span', {class: 'mono'}, r.command.toUpperCase()), number(r.pins)]), ['', 'n'])
          : make('p', {class: 'empty'}, 'No pin is in use.')),
      make('section', {},
        make('h2', {}, 'Lanes', make('small', {}, 'connections that clients share')),
        p.lanes.length ? plainTable(['Identity', 'Used for', 'State', 'Clients', 'Unanswered', 'Unwritten'], p.lanes.map(r => [
          [...[identity(r.identity)].flat(), r.server ? sub(r.server) : ''], r.use === 'all' ? 'all commands' : r.use,
          !r.up ? badge('not connected', 'bad') : r.use === 'set aside' ? badge('stands still', 'warn') : badge('connected', ''),
          count(r.clients), count(r.commands), r.bytes ? bytes(r.bytes) : none(),
        ]), ['', '', '', 'n', 'n', 'n']) : make('p', {class: 'empty'}, 'No lane is open.'))),
  ];
  const fresh = make('div', {}, ...parts);
  const old = $('connections').firstChild;
  if (!old || !old.isEqualNode(fresh)) $('connections').replaceChildren(fresh);
}

// frame draws what does not depend on answers.
function frame() {
  for (const tab of ['locks', 'clients', 'connections']) {
    const e = $('tab-' + tab);
    e.setAttribute('aria-selected', state.tab === tab);
    e.tabIndex = state.tab === tab ? 0 : -1;
  }
  $('view').setAttribute('aria-labelledby', 'tab-' + state.tab);
  const t = tables[state.tab];
  $('tools').hidden = $('rows').hidden = !t;
  $('connections').hidden = Boolean(t);
  $('json').href = t ? t.path : '/status';
  if (!t) {
    $('empty').hidden = $('pager').hidden = true;
    return;
  }
  const search = $('search');
  search.placeholder = t.search;
  if (document.activeElement !== search) search.value = state.search;
  if ($('only').dataset.of !== state.tab) {
    $('only').dataset.of = state.tab;
    $('only').replaceChildren(...t.only.map(([only, title]) => make('button', {type: 'button', 'data-only': only, onclick: () => show({only})}, title)));
    const orders = t.columns.filter(c => c[4]).flatMap(([, title, , , sort]) => [['down', '↓'], ['up', '↑']].map(([order, sign]) =>
      make('option', {value: sort + ' ' + order}, `${title} ${sign}`)));
    $('sorter').replaceChildren(...orders);
  }
  for (const b of $('only').children) b.setAttribute('aria-pressed', b.dataset.only === state.only);
  $('sorter').value = sorting(t).join(' ');
}

// ---- ending a lock

let doomed = null;

function confirmEnd(l) {
  doomed = l;
  setText($('confirm-key'), l.key);
  const facts = [['Holder', [holder(l)].flat().map(n => n.textContent ?? n).filter(Boolean).join(' · ')], ['Database', String(l.database)]];
  if (l.fence) facts.push(['Fence', String(l.fence)]);
  if (l.held_seconds >= 0) facts.push(['Held for', duration(l.held_seconds)]);
  facts.push(['Waiters here', String(l.waiters)]);
  $('confirm-facts').replaceChildren(...facts.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
  $('confirm-problem').hidden = true;
  $('confirm-go').disabled = false;
  $('confirm').showModal();
}

async function endDoomed() {
  const l = doomed;
  $('confirm-go').disabled = true;
  const body = {database: l.database, user: l.user, fence: l.fence};
  if (l.key_base64) body.key_base64 = l.key_base64;
  else body.key = l.key;
  try {
    const answer = await fetch('/force-unlock', {
      method: 'POST', headers: {'Content-Type': 'application/json', 'X-Lockproxy-Token': proxy.token}, body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const {ended} = await answer.json();
    $('confirm').close();
    tell(ended ? 'The lock has been ended.' : 'Nothing was ended: the lock is free, or has another holder by now.');
    refresh();
  } catch (e) {
    setText($('confirm-problem'), e.message);
    $('confirm-problem').hidden = false;
    $('confirm-go').disabled = false;
  }
}

let telling = 0;

function tell(text) {
  setText($('toast'), text);
  $('toast').hidden = false;
  clearTimeout(telling);
  telling = setTimeout(() => { $('toast').hidden = true; }, 5000);
}

// ---- asking

let turn = 0; // of the last question: answers to older ones are dropped
let timer = 0;

async function ask(path) {
  const answer = await fetch(path, {signal: AbortSignal.timeout(8000)});
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

function query() {
  const t = tables[state.tab];
  const [sort, order] = sorting(t);
  const form = new URLSearchParams({sort, order, offset: state.offset, limit: LIMIT});
  for (const name of ['search', 'only']) if (state[name]) form.set(name, state[name]);
  return t.path + '?' + form;
}

async function refresh() {
  clearTimeout(timer);
  const mine = ++turn;
  const t = tables[state.tab];
  try {
    const [p, answer] = await Promise.all([ask('/status'), t ? ask(query()) : null]);
    if (mine !== turn) return;
    proxy = p;
    banner(p.age_seconds > 0 ? `The proxy does not answer. The numbers are ${duration(p.age_seconds)} old.` : '');
    drawHead(p);
    drawTiles(p);
    if (t === tables.locks && !state.search && !state.only) setText(document.querySelector('#tab-locks i'), number(answer.matching));
    setText(document.querySelector('#tab-clients i'), number(p.clients));
    if (t) drawTable(t, answer);
    else drawConnections(p);
    document.title = (p.upstream_up ? '' : 'Redis down · ') + (p.lock_waiters ? number(p.lock_waiters) + ' waiting · ' : '') + 'lockproxy';
  } catch (e) {
    if (mine !== turn) return;
    banner(e instanceof TypeError ? 'The proxy cannot be reached. The page shows its last answer.' : 'No fresh answer: ' + e.message);
  }
  document.documentElement.dataset.turn = mine;
  if (live && !document.hidden) timer = setTimeout(refresh, PERIOD);
}

function banner(text) {
  setText($('banner'), text);
  $('banner').hidden = !text;
}

function setLive(on) {
  live = on;
  $('live').setAttribute('aria-pressed', on);
  setText($('live').querySelector('b'), on ? 'Live' : 'Paused');
  if (on) refresh();
  else clearTimeout(timer);
}

// ---- events

let typing = 0;
$('search').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => show({search: $('search').value.trim()}), 200);
});
$('tools').addEventListener('submit', e => e.preventDefault());
$('sorter').addEventListener('change', () => {
  const [sort, order] = $('sorter').value.split(' ');
  show({sort, order});
});
$('previous').addEventListener('click', () => show({offset: Math.max(0, state.offset - LIMIT)}));
$('next').addEventListener('click', () => show({offset: state.offset + LIMIT}));
$('live').addEventListener('click', () => setLive(!live));
$('confirm-go').addEventListener('click', endDoomed);
document.addEventListener('visibilitychange', () => { if (!document.hidden && live) refresh(); });
window.addEventListener('hashchange', () => { readAddress(); frame(); refresh(); });

const order = ['locks', 'clients', 'connections'];
const open = tab => show({tab, search: '', only: '', sort: '', order: ''});
order.forEach((tab, i) => {
  $('tab-' + tab).addEventListener('click', () => open(tab));
  $('tab-' + tab).addEventListener('keydown', e => {
    const step = {ArrowRight: 1, ArrowLeft: 2}[e.key];
    if (!step) return;
    e.preventDefault();
    e.stopPropagation();
    const next = order[(i + step) % 3];
    open(next);
    $('tab-' + next).focus();
  });
});

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || $('confirm').open) return;
  if (e.target.matches('input, select')) {
    if (e.key === 'Escape' && e.target === $('search')) {
      $('search').value = '';
      $('search').blur();
      show({search: ''});
    }
    return;
  }
  if (e.key === ' ' && e.target.matches('button, a')) return; // it presses the button
  const keys = {
    '/': () => $('search').focus(), ' ': () => setLive(!live),
    1: () => open('locks'), 2: () => open('clients'), 3: () => open('connections'),
    ArrowLeft: () => $('previous').disabled || $('pager').hidden || $('previous').click(),
    ArrowRight: () => $('next').disabled || $('pager').hidden || $('next').click(),
  };
  if (keys[e.key]) {
    e.preventDefault();
    keys[e.key]();
  }
});

readAddress();
frame();
refresh();
