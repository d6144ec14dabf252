// 400 tasks take turns under one lock, on 16 connections. Needs: npm install redis
//
// lockproxy.mjs beside this file has the lock. LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default
// behind it. Exit codes: 0 done, 1 lost, 69 lockproxy cannot be reached, 75 other clients have the lock.

import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
import { Busy, locks, Lost } from './lockproxy.mjs';

const TASKS = 400;
const url = process.env.LOCKPROXY_URL ?? 'redis://127.0.0.1:7379';
let inside = 0;
let most = 0;

try {
  const lock = await locks({ url, connections: 16, socket: { reconnectStrategy: false } });
  const data = createClient({ url: process.env.REDIS_URL ?? url });
  await data.connect();

  const task = async () => {
    await sleep(1000 * Math.random());
    await lock('pool', { wait: 60_000 }, async () => {
      most = Math.max(most, ++inside);
      const seen = Number(await data.get('pool:count')); // without the lock, tasks would overwrite each other's counts
      await data.set('pool:count', seen + 1);
      inside--;
    });
  };

  await data.del('pool:count');
  await Promise.all(Array.from({ length: TASKS }, task));
  console.log(`count ${await data.get('pool:count')}, at most ${most} inside`);
  await lock.close();
  await data.close();
} catch (err) {
  const [why, code] = err instanceof Lost ? ['lost', 1] : err instanceof Busy ? ['busy', 75] : ['no lock', 69];
  console.error(`${why}: ${err.message || err.code}`);
  process.exit(code);
}
