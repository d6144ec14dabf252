// Locks for node-redis: copy this file. Needs: npm install redis
//
//   const lock = await locks({ url: 'redis://127.0.0.1:7379' });       // one for the process
//   await lock('invoice:42', { wait: 10_000 }, async ({ fence, signal }) => {   // rejects with Busy after 10 seconds
//     await fetch(url, { signal });                                     // a loss aborts it: the reason is Lost
//   });
//   await lock.close();
//
// Each lock takes a connection out of a pool of its own and returns it at the end. Further words go to LOCK as they are:
// lock('index', { wait: 10_000, words: ['SHARED', 'GRACE', '0'] }, work). docs/CLIENTS.md has the reasons.

import { once } from 'node:events';
import { createClient, createClientPool } from 'redis';

export class Busy extends Error {} // another owner has the lock
export class Lost extends Error {} // the lock ended before the work did: another owner may have worked at the same time

export async function locks({ connections = 64, ...options } = {}) {
  const client = { url: 'redis://127.0.0.1:7379', disableOfflineQueue: true, ...options };
  const pool = createClientPool(client, { minimum: 1, maximum: connections, acquireTimeout: 0 });
  const losses = createClient(client); // hears of losses, for all locks of the process
  for (const each of [pool, losses]) each.on('error', () => {}); // commands report it
  await Promise.all([pool.connect(), losses.connect()]);

  async function hold(own, key, { wait, words }, end, work) {
    const left = () => (wait === undefined ? [] : ['WAIT', String(Math.max(0, end - Date.now()))]);
    const over = new AbortController();
    let fence;
    const lose = why => over.abort(new Lost(`${key}, fence ${fence}: ${why}`));
    const told = message => message.startsWith(`${fence} `) && lose(message);
    const broken = err => lose(err.message);
    if (!own.isReady) await once(own, 'ready'); // it connects anew after a loss; an error of that is the answer
    const channel = key.includes('{') ? `lockproxy:lost:${key}` : `lockproxy:lost:{${key}}`;
    await losses.subscribe(channel, told);
    own.on('error', broken); // it connects anew, and the lock is not renewed any more
    try {
      fence = await own.sendCommand(['LOCK', key, ...words, ...left()]);
      if (fence === null) throw new Busy(key);
      let result;
      try {
        result = await work({ fence, signal: over.signal });
      } catch (err) {
        await own.sendCommand(['UNLOCK', key, 'FENCE', String(fence)]).catch(() => {}); // the work's error is the one to know
        throw err;
      }
      await own.sendCommand(['UNLOCK', key, 'FENCE', String(fence)]).catch(err => {
        throw new Lost(`${key}, fence ${fence}: ${err.message}`, { cause: err });
      });
      return result;
    } finally {
      own.off('error', broken);
      await losses.unsubscribe(channel, told).catch(() => {});
    }
  }

  const lock = (key, { wait, words = [] }, work) =>
    new Promise((resolve, reject) => {
      const end = Date.now() + (wait ?? 0);
      let late = false; // the time is over before the pool has a connection
      const timer = wait === undefined ? undefined : setTimeout(() => { late = true; reject(new Busy(key)); }, wait);
      pool.execute(async own => {
        clearTimeout(timer);
        return late ? undefined : hold(own, key, { wait, words }, end, work);
      }).then(resolve, reject);
    });
  lock.close = () => Promise.all([pool.close(), losses.close()]);
  return lock;
}
