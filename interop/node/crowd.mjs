// 400 tasks take turns under one lock, with ioredis: a connection of its own for each lock.

import { setTimeout as sleep } from 'node:timers/promises';
import Redis from 'ioredis';

const TASKS = 400;
const data = new Redis(process.env.LOCKPROXY_URL);
let inside = 0;
let most = 0;

async function withLock(key, work) {
  const own = data.duplicate({ retryStrategy: null });
  try {
    await own.call('LOCK', key); // waits without an end: ioredis has no timeout
    try {
      return await work();
    } finally {
      await own.call('UNLOCK', key);
    }
  } finally {
    own.disconnect();
  }
}

await data.del('crowd:count');
await Promise.all(Array.from({ length: TASKS }, async () => {
  await sleep(1000 * Math.random());
  await withLock('crowd', async () => {
    most = Math.max(most, ++inside);
    const seen = Number(await data.get('crowd:count'));
    await data.set('crowd:count', seen + 1);
    inside--;
  });
}));
console.log(`count ${await data.get('crowd:count')}, at most ${most} inside`);
data.disconnect();
