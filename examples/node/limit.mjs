// One of at most five jobs that run at the same time (LIMIT 5), on all machines together. Needs: npm install redis
//
// LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
// Exit codes: 0 done, 1 the permit was lost and the work does not count, 69 lockproxy cannot be reached,
// 75 five jobs run.

import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

// The permit is renewed while this connection is open: so no reconnecting.
const client = createClient({
  url: process.env.LOCKPROXY_URL ?? 'redis://127.0.0.1:7379',
  socket: { reconnectStrategy: false },
});
client.on('error', () => {}); // commands report it

let fence;
try {
  await client.connect();
  fence = await client.sendCommand(['LOCK', 'jobs', 'LIMIT', '5', 'WAIT', '2000', 'GRACE', '0']);
} catch (err) {
  console.error('no lock:', err.message || err.code);
  process.exit(69);
}
if (fence === null) {
  console.error('busy: five jobs run');
  process.exit(75);
}
console.log('fence', fence);
try {
  try {
    await sleep(Number(process.env.WORK_MS ?? 500)); // the work
  } finally {
    await client.sendCommand(['UNLOCK', 'jobs', 'FENCE', String(fence)]); // fails with LOSTLEASE or NOTHELD if it was lost
  }
  console.log('done');
} catch (err) {
  console.error('lost:', err.message);
  process.exitCode = 1;
}
await client.close().catch(() => {});
