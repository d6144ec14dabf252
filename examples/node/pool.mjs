// Eight tasks share a pool of connections and take turns under one lock. Needs: npm install redis
//
// A connection is an owner, and a pool lends one connection to many tasks. So each task names an OWNER of its own, for LOCK and for UNLOCK.
// A pool, because a LOCK that waits holds up the commands behind it on its connection.
// LOCKPROXY_URL says where lockproxy is. Exit codes: 0 done, 1 lost, 69 lockproxy cannot be reached.

import { randomUUID } from 'node:crypto';
import { createClientPool } from 'redis';

const finish = (code, why) => {
  console.error(why);
  process.exit(code);
};

const pool = createClientPool(
  { url: process.env.LOCKPROXY_URL ?? 'redis://127.0.0.1:7379', socket: { reconnectStrategy: false } },
  { minimum: 1, maximum: 16 },
);
pool.on('error', () => {}); // commands report it
try {
  await pool.connect();
} catch (err) {
  finish(69, `no lock: ${err.message || err.code}`);
}

async function withLock(key, work) {
  const owner = randomUUID();
  while ((await pool.sendCommand(['LOCK', key, 'WAIT', '3000', 'OWNER', owner])) === null); // not in time: ask again
  try {
    return await work();
  } finally {
    await pool.sendCommand(['UNLOCK', key, 'OWNER', owner]);
  }
}

const task = async () => {
  for (let i = 0; i < 5; i++) {
    await withLock('pool', async () => {
      const seen = Number(await pool.get('pool:count')); // without the lock, tasks would overwrite each other's counts
      await pool.set('pool:count', seen + 1);
    });
  }
};

try {
  await pool.del('pool:count');
  await Promise.all(Array.from({ length: 8 }, task));
  console.log('count', Number(await pool.get('pool:count')));
} catch (err) {
  finish(1, `lost: ${err.message}`);
}
await pool.close();
