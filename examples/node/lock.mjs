// Does a piece of work under the lock "report". Needs: npm install redis
//
// LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes WORK_MS
// milliseconds.
// Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
// 75 another client has the lock.

import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

// The store of the result compares fences, and refuses the write of a client that has lost the lock meanwhile.
const WRITE = `
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
return 1`;

const work = () => sleep(Number(process.env.WORK_MS ?? 500));

// A lock without PX is renewed while its connection is open: so no reconnecting, which would go on
// without the lock.
const url = process.env.LOCKPROXY_URL ?? 'redis://127.0.0.1:7379';
const client = createClient({ url, socket: { reconnectStrategy: false } });
const data = createClient({ url: process.env.REDIS_URL ?? url, socket: { reconnectStrategy: false } });
for (const each of [client, data]) each.on('error', () => {}); // commands report it
let fence;
try {
  await client.connect();
  await data.connect();
  // GRACE 0: if this process dies, the lock is free at once.
  fence = await client.sendCommand(['LOCK', 'report', 'WAIT', '2000', 'GRACE', '0']);
} catch (err) {
  console.error('no lock:', err.message || err.code);
  process.exit(69);
}
if (fence === null) {
  console.error('busy: another client has the lock');
  process.exit(75);
}
console.log('fence', fence);
try {
  try {
    await work();
    if (!(await data.eval(WRITE, { keys: ['report:result'], arguments: [String(fence), 'node'] }))) {
      throw new Error('a client with a larger fence has written');
    }
  } finally {
    await client.sendCommand(['UNLOCK', 'report']); // fails with LOSTLEASE or NOTHELD if the lock was lost
  }
  console.log('done');
} catch (err) {
  console.error('lost:', err.message);
  process.exitCode = 1;
}
await Promise.allSettled([client.close(), data.close()]);
