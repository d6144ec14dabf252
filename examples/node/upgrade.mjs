// Looks at a counter under a shared lock, then takes the lock alone to change it. Needs: npm install redis
//
// No other client changes the counter between the look and the change (an upgrade).
// LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
// Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
// 75 the lock was not free in time.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

// A change by a client that has lost the lock is refused.
const WRITE = `
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'count', ARGV[2])
return 1`;

class Busy extends Error {}

// The lock belongs to this connection: so no reconnecting.
const client = createClient({
  url: process.env.LOCKPROXY_URL ?? 'redis://127.0.0.1:7379',
  socket: { reconnectStrategy: false },
});
client.on('error', () => {}); // commands report it

// An upgrade needs a named owner: without one, each LOCK on a library's connection is an owner of its own.
const owner = ['OWNER', randomUUID()];

async function lock(...mode) {
  const fence = await client.sendCommand(['LOCK', 'counter', ...mode, 'WAIT', '2000', 'GRACE', '0', ...owner]);
  if (fence === null) throw new Busy('the lock was not free in time');
  return fence;
}

async function change() {
  for (;;) {
    await lock('SHARED');
    try {
      const count = Number(await client.hGet('counter:data', 'count')) + 1;
      await sleep(Number(process.env.WORK_MS ?? 500)); // the look
      const fence = await lock(); // waits until the other holders have left
      try {
        const written = await client.eval(WRITE, { keys: ['counter:data'], arguments: [String(fence), String(count)] });
        if (!written) throw new Error('a change with a larger fence was made');
      } finally {
        await client.sendCommand(['UNLOCK', 'counter', ...owner]);
      }
      return count;
    } catch (err) {
      if (!err.message.startsWith('DEADLOCK')) throw err;
      // Another holder is about to change it, and waits for this one: let it, and look again.
    } finally {
      await client.sendCommand(['UNLOCK', 'counter', 'SHARED', ...owner]);
    }
  }
}

try {
  await client.connect();
} catch (err) {
  console.error('no lock:', err.message || err.code);
  process.exit(69);
}
try {
  console.log('count', await change());
} catch (err) {
  console.error(err instanceof Busy ? 'busy:' : 'lost:', err.message);
  process.exitCode = err instanceof Busy ? 75 : 1;
}
await client.close().catch(() => {});
