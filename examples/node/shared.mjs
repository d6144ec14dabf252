// Reads an index, or rebuilds it: shared.mjs, shared.mjs rebuild. Needs: npm install redis
//
// Any number read it at the same time (SHARED), and none while it is rebuilt.
// LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
// Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
// 75 the lock was not free in time.

import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

// A rebuild writes two halves, and no reader may see one old and one new. A rebuild that has lost the lock is refused.
const WRITE = `
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], ARGV[2], ARGV[1])
return 1`;

const work = () => sleep(Number(process.env.WORK_MS ?? 500));

// The lock belongs to this connection: so no reconnecting.
const client = createClient({
  url: process.env.LOCKPROXY_URL ?? 'redis://127.0.0.1:7379',
  socket: { reconnectStrategy: false },
});
client.on('error', () => {}); // commands report it

async function read() {
  const first = await client.hGet('index:data', 'first');
  await work();
  if ((await client.hGet('index:data', 'second')) !== first) throw new Error('the index was rebuilt meanwhile');
  return `read ${first}`;
}

async function rebuild(fence) {
  for (const half of ['first', 'second']) {
    if (half === 'second') await work();
    const written = await client.eval(WRITE, { keys: ['index:data'], arguments: [String(fence), half] });
    if (!written) throw new Error('a rebuild with a larger fence has written');
  }
  return `rebuilt ${fence}`;
}

const rebuilds = process.argv[2] === 'rebuild';
const shared = rebuilds ? [] : ['SHARED'];
let fence;
try {
  await client.connect();
  fence = await client.sendCommand(['LOCK', 'index', ...shared, 'WAIT', '2000', 'GRACE', '0']);
} catch (err) {
  console.error('no lock:', err.message || err.code);
  process.exit(69);
}
if (fence === null) {
  console.error('busy: the lock was not free in time');
  process.exit(75);
}
try {
  let told;
  try {
    told = await (rebuilds ? rebuild(fence) : read());
  } finally {
    await client.sendCommand(['UNLOCK', 'index', ...shared]); // fails with LOSTLEASE or NOTHELD if the lock was lost
  }
  console.log(told);
} catch (err) {
  console.error('lost:', err.message);
  process.exitCode = 1;
}
await client.close().catch(() => {});
