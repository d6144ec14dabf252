// The status page. It asks for the table that is shown every two seconds, sorts its rows, and changes only what differs.
// Texts from the proxy are set as text, never as markup.
'use strict';

const PERIOD = 2000;
const PAGE = 50; // rows
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

const state = {tab: 'locks', search: '', only: '', lock: '', sort: '', order: '', page: ''};
let live = true;
let latest = null; // the last answer

function readAddress() {
  const form = new URLSearchParams(location.hash.slice(1));
  state.tab = tables[form.get('tab')] ? form.get('tab') : 'locks';
  for (const name of ['search', 'only', 'lock', 'sort', 'order', 'page']) state[name] = form.get(name) || '';
}

function writeAddress() {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value && !(name === 'tab' && value === 'locks')) form.set(name, value);
  history.replaceState(null, '', '#' + form);
}

// change what is shown. Another choice of rows begins at its first page.
function show(change) {
  Object.assign(state, {page: ''}, change);
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
  const who = [holderOf(l)].flat();
  return l.note ? who.concat(sub(l.note)) : who;
}

function holderOf(l) {
  switch (l.holder) {
  case 'here': return l.name ? [l.name, sub(l.client)] : l.client;
  case 'gone': return [badge('client gone', 'warn'), sub('the lease will expire')];
  case 'elsewhere': return [badge('elsewhere', 'plain'), sub('process ' + l.process.slice(0, 8))];
  case 'named': return [badge('named owner', 'plain'), sub('not connected here')];
  case 'none': return [badge('free', ''), sub('a waiter gets it')];
  default: return [badge('unknown', 'bad'), sub('Redis did not say in time')];
  }
}

// several reports whether the lock may have other holders.
const several = l => l.mode === 'shared' || l.mode === 'limit';

const mode = l => l.mode === 'limit' && l.limit ? 'limit ' + whole.format(l.limit) : l.mode;

// lockNotes stand below the name of a lock: what is not as usual.
function lockNotes(l) {
  const notes = [several(l) && mode(l) + (l.holders > 1 ? `, ${whole.format(l.holders)} holders` : ''), l.user, l.database > 0 && 'db ' + l.database].filter(Boolean);
  return notes.length ? sub(notes.join(', ')) : '';
}

function lease(l) {
  if (l.lease_left_seconds < 0) return none();
  const left = make('span', {class: l.renewal && l.renewal !== 'fixed' && l.lease_left_seconds < 3 ? 'late' : ''}, duration(l.lease_left_seconds));
  return l.renewal ? [left, renewal(l)] : left;
}

function renewal(l) {
  if (l.renewal === 'fixed') return sub('fixed');
  if (!latest.upstream_up) return make('span', {class: 'sub late'}, 'not renewed: Redis is down');
  return l.renewal === 'late' ? make('span', {class: 'sub late'}, 'not renewed: no answer') : sub('renewed');
}

// waiters leads to the clients that wait for the lock. Names that cannot be sent back as they are have no way there.
function waiters(l) {
  const n = count(l.waiters);
  const fair = l.fair_waiters ? sub(l.fair_waiters + ' fair') : '';
  if (!l.waiters || l.key_base64 || l.key_bytes) return [n, fair];
  const form = new URLSearchParams({tab: 'clients', lock: l.key});
  return [make('a', {href: '#' + form, title: 'Show the clients that wait'}, n), fair];
}

function wait(seconds) {
  if (seconds < 0) return none();
  return make('span', {class: seconds >= 60 ? 'late' : seconds >= 10 ? 'soon' : ''}, duration(seconds));
}

function reason(c) {
  if (c.waits_for) return make('span', {class: 'key'}, c.waits_for);
  const words = {pin: 'a free pin', replies: 'its replies', turn: 'its next turn', client: 'the client to read', reply: 'a reply', list: 'a list', lock: 'a lock command', closing: 'closing'};
  const more = [c.paused && 'not read', c.lane_set_aside && 'lane set aside'].filter(Boolean).join(', ');
  if (!c.state && !more) return none();
  return [words[c.state] || more, c.state && more ? sub(more) : ''];
}

// identity is the user, the database and the protocol. "-" stands for a client without credentials.
function identity(text) {
  const [, user, db, proto] = text.match(/^(.*) db(\d+) resp(\d)$/) || [];
  return user === undefined ? text : [user === '-' ? 'no login' : user, sub(`db ${db}, RESP${proto}`)];
}

// columns: [name, title, class, cell, sort key, idle]. The key is a function of the row. Narrow screens leave cells out that idle says have nothing to tell.
const tables = {
  locks: {
    path: '/locks', rows: 'locks', search: 'Key, client or name',
    only: [['', 'All'], ['contended', 'Contended'], ['held', 'Held here'], ['orphaned', 'Not here']],
    start: ['waiting', 'down'],
    id: l => l.database + ' ' + (l.key_base64 || l.key) + (l.key_bytes || several(l) ? ' ' + l.fence : ''),
    columns: [
      ['key', 'Lock', 'w-key', l => [make('span', {class: 'key'}, l.key), lockNotes(l)], l => l.key],
      ['holder', 'Holder', 'w-who full', holder, l => l.holder + ' ' + (l.client || '')],
      ['held', 'Held for', 'n', l => l.held_seconds < 0 ? none() : [duration(l.held_seconds), l.holds > 1 ? sub(l.holds + ' holds') : ''], l => l.held_seconds, l => l.held_seconds < 0],
      ['lease', 'Lease left', 'n', lease, l => l.lease_left_seconds, l => l.lease_left_seconds < 0],
      ['waiters', 'Waiters', 'n', waiters, l => l.waiters, l => !l.waiters],
      ['waiting', 'Oldest wait', 'n', l => wait(l.oldest_wait_seconds), l => l.oldest_wait_seconds, l => l.oldest_wait_seconds < 0],
    ],
    empty: 'No locks.', emptier: 'No lock matches.',
  },
  clients: {
    path: '/clients', rows: 'clients', search: 'Address, name, user, lock or pin',
    only: [['', 'All'], ['waiting', 'Waiting'], ['pinned', 'Pinned'], ['unanswered', 'Unanswered']],
    start: ['connected', 'down'],
    id: c => String(c.id),
    columns: [
      ['name', 'Client', 'w-who', c => c.name ? [c.name, sub(c.address)] : c.address, c => c.name || c.address],
      ['identity', 'Identity', 'w-id', c => identity(c.identity), c => c.identity],
      ['state', 'Waits for', 'w-wide full', reason, c => c.waits_for || c.state, c => !c.waits_for && !c.state && !c.paused && !c.lane_set_aside],
      ['waiting', 'Since', 'n', c => wait(c.waiting_seconds), c => c.waiting_seconds, c => c.waiting_seconds < 0],
      ['pin', 'Pin', 'w-pin', c => c.pin ? make('span', {class: 'mono'}, c.pin.toUpperCase()) : none(), c => c.pin || '', c => !c.pin],
      ['unanswered', 'Unanswered', 'n', c => count(c.unanswered), c => c.unanswered, c => !c.unanswered],
      ['unread', 'Unread', 'n', c => c.unread_bytes ? bytes(c.unread_bytes) : none(), c => c.unread_bytes, c => !c.unread_bytes],
      ['connected', 'Connected', 'n', c => duration(c.connected_seconds), c => c.connected_seconds],
    ],
    empty: 'No clients.', emptier: 'No client matches.',
  },
  hot: {
    path: '/hot', rows: 'hot', search: 'Key',
    only: [],
    start: ['waited', 'down'],
    id: l => [l.database, l.user, l.key].join(' '),
    columns: [
      ['key', 'Lock', 'w-key', l => [make('span', {class: 'key'}, l.key), lockNotes(l)], l => l.key],
      ['waited', 'Waited, all clients', 'n', l => duration(l.waited_seconds), l => l.waited_seconds],
      ['waits', 'Waits', 'n', l => count(l.waits), l => l.waits],
      ['mean', 'Mean wait', 'n', l => duration(l.waited_seconds / l.waits), l => l.waited_seconds / l.waits],
    ],
    empty: 'No client has waited for a lock in the last hour.', emptier: 'No lock matches.',
  },
};

const order = Object.keys(tables);

// sorting is the column and the order in force.
const sorting = t => t.columns.some(c => c[0] === state.sort && c[4]) ? [state.sort, state.order || 'up'] : t.start;

// sorted are the rows in that order. Rows that are alike keep the server's.
function sorted(t, rows) {
  const [column, order] = sorting(t);
  const key = t.columns.find(c => c[0] === column)[4];
  const sign = order === 'down' ? -1 : 1;
  return [...rows].sort((a, b) => sign * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
}

// ---- a table, changed in place so that focus, selection and scrolling stay

function fill(cell, content) {
  const nodes = [content].flat().filter(n => n !== '').map(n => typeof n === 'string' ? document.createTextNode(n) : n);
  const old = [...cell.childNodes];
  if (old.length === nodes.length && old.every((o, i) => o.isEqualNode(nodes[i]))) return;
  cell.replaceChildren(...nodes);
}

function drawTable(t, answer) {
  const columns = t.columns;
  const names = columns.map(c => c[0]).join();
  let table = $('rows').firstChild;
  if (!table || table.dataset.of !== names) {
    table = make('table', {'data-of': names});
    const head = make('tr');
    for (const [name, title, kind, , key] of columns) {
      const label = key ? make('button', {type: 'button', onclick: () => sortBy(t, name)}, title) : title;
      head.append(make('th', {scope: 'col', class: kind.replace('full', ''), 'data-sort': key && name}, label));
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
  const all = sorted(t, answer[t.rows]);
  const pages = Math.max(1, Math.ceil(all.length / PAGE));
  const page = Math.min(pages, Math.max(1, parseInt(state.page, 10) || 1));
  const first = (page - 1) * PAGE;
  const rows = all.slice(first, first + PAGE);
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
      fill(tr.cells[n], cell(row));
      if (idle) tr.cells[n].classList.toggle('idle', idle(row));
    });
  });
  for (const tr of known.values()) tr.remove();
  table.hidden = !rows.length;
  const filtered = state.search || state.only || state.lock;
  setText($('empty'), filtered ? t.emptier : t.empty);
  $('empty').hidden = rows.length > 0;
  $('more').hidden = answer.matching <= rows.length;
  const most = answer.matching > all.length ? `${whole.format(all.length)} of ${whole.format(answer.matching)} are shown. Search for the others.` : '';
  setText($('range'), [`${whole.format(first + 1)}–${whole.format(first + rows.length)} of ${whole.format(all.length)}`, most].filter(Boolean).join('. '));
  for (const [id, to] of [['earlier', page - 1], ['later', page + 1]]) {
    $(id).disabled = to < 1 || to > pages;
    $(id).value = to;
  }
  $('earlier').hidden = $('later').hidden = pages === 1;
}

function sortBy(t, column) {
  const [now, order] = sorting(t);
  const falls = t.columns.find(c => c[0] === column)[2] === 'n'; // most people want the largest first
  show({sort: column, order: now === column ? (order === 'down' ? 'up' : 'down') : falls ? 'down' : 'up'});
}

// ---- the head

function drawHead(p) {
  setText($('version'), p.version);
  setText($('redis'), p.upstream_up ? 'Redis up' : 'Redis down');
  $('redis').className = p.upstream_up ? 'pill' : 'pill bad';
  $('redis').hidden = false;
  $('why').hidden = !p.upstream_error;
  setText($('why'), p.upstream_error || '');
  $('draining').hidden = !p.draining;
  setText($('uptime'), 'up ' + duration(p.uptime_seconds) + ' · ' + p.uuid.slice(0, 8));
  $('uptime').title = 'This process, as owners elsewhere are named: ' + p.uuid;
}

// frame draws what does not depend on answers.
function frame() {
  for (const tab of order) {
    const e = $('tab-' + tab);
    e.setAttribute('aria-selected', state.tab === tab);
    e.tabIndex = state.tab === tab ? 0 : -1;
  }
  $('view').setAttribute('aria-labelledby', 'tab-' + state.tab);
  const t = tables[state.tab];
  $('json').href = t.path;
  const search = $('search');
  search.placeholder = t.search;
  if (document.activeElement !== search) search.value = state.search;
  if ($('only').dataset.of !== state.tab) {
    $('only').dataset.of = state.tab;
    $('only').replaceChildren(...t.only.map(([only, title]) => make('button', {type: 'button', 'data-only': only, onclick: () => show({only})}, title)));
    const orders = t.columns.filter(c => c[4]).flatMap(([name, title]) => [['down', '↓'], ['up', '↑']].map(([order, sign]) =>
      make('option', {value: name + ' ' + order}, `${title} ${sign}`)));
    $('sorter').replaceChildren(...orders);
  }
  $('only').hidden = !t.only.length;
  $('of').hidden = !state.lock;
  setText($('of-key'), state.lock);
  for (const b of $('only').children) b.setAttribute('aria-pressed', b.dataset.only === state.only);
  $('sorter').value = sorting(t).join(' ');
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
  const form = new URLSearchParams();
  for (const name of ['search', 'only']) if (state[name]) form.set(name, state[name]);
  if (state.tab === 'clients' && state.lock) form.set('lock', state.lock);
  return tables[state.tab].path + '?' + form;
}

async function refresh() {
  clearTimeout(timer);
  const mine = ++turn;
  const t = tables[state.tab];
  try {
    const answer = await ask(query());
    if (mine !== turn) return;
    latest = answer;
    banner('');
    drawHead(answer);
    if (!state.search && !state.only && !state.lock) setText(document.querySelector(`#tab-${state.tab} i`), number(answer.matching));
    drawTable(t, answer);
    document.title = (answer.upstream_up ? '' : 'Redis down · ') + 'lockproxy';
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
$('of').addEventListener('click', () => show({lock: ''}));
for (const id of ['earlier', 'later']) $(id).addEventListener('click', () => show({page: $(id).value === '1' ? '' : $(id).value}));
$('live').addEventListener('click', () => setLive(!live));
document.addEventListener('visibilitychange', () => { if (!document.hidden && live) refresh(); });
window.addEventListener('hashchange', () => { readAddress(); frame(); refresh(); });

const open = tab => show({tab, search: '', only: '', lock: '', sort: '', order: ''});
order.forEach((tab, i) => {
  $('tab-' + tab).addEventListener('click', () => open(tab));
  $('tab-' + tab).addEventListener('keydown', e => {
    if (e.key !== 'ArrowRight' && e.key !== 'ArrowLeft') return;
    e.preventDefault();
    const next = order[(i + (e.key === 'ArrowRight' ? 1 : order.length - 1)) % order.length];
    open(next);
    $('tab-' + next).focus();
  });
});

readAddress();
frame();
refresh();
