// The file to copy, examples/node/lockproxy.mjs, against lockproxy: one line a claim, "ok CLAIM" or "FAIL CLAIM: reason".

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
import { inTime, PROXY, until } from './claims.mjs';
import { Busy, locks, Lost } from './lockproxy.mjs';

const other = createClient({ url: PROXY });
await other.connect();
const run = (...command) => other.sendCommand(command);
const free = async key => assert.equal(await run('LOCKINFO', key), null, `${key} is still held`);
const aborted = signal => new Promise((_, reject) => {
  if (signal.aborted) reject(signal.reason);
  signal.addEventListener('abort', () => reject(signal.reason));
});

const claims = {
  async busy(lock) {
    await run('LOCK', 'a');
    await assert.rejects(lock('a', { wait: 0 }, () => {}), Busy);
    await assert.rejects(lock('a', { wait: 100 }, () => {}), Busy);
    const waiting = lock('a', {}, () => 'done');
    await until('a waiter', async () => (await run('LOCKINFO', 'a'))['local-waiters'] === 1);
    await run('UNLOCK', 'a');
    assert.equal(await waiting, 'done');
    await free('a');
  },
  async 'no-connection'() {
    const lock = await locks({ url: PROXY, connections: 1 });
    await lock('a', {}, () => assert.rejects(lock('b', { wait: 100 }, () => {}), Busy));
    await lock('b', { wait: 0 }, () => {});
    await lock.close();
  },
  async lost(lock) {
    const heard = lock('a', {}, async ({ signal }) => {
      await run('FORCEUNLOCK', 'a');
      await inTime(aborted(signal), 'the signal');
    });
    await assert.rejects(heard, Lost);
    await assert.rejects(lock('a', {}, () => run('FORCEUNLOCK', 'a')), Lost);
    await assert.rejects(lock('{t}a', {}, async ({ signal }) => {
      await run('DEL', '{t}a');
      await run('FORCEUNLOCK', '{t}a');
    }), Lost);
    await lock('a', { wait: 0 }, ({ signal }) => assert(!signal.aborted));
  },
  async 'body-error'(lock) {
    for (const lose of [false, true]) {
      await assert.rejects(lock('a', {}, async () => {
        if (lose) await run('FORCEUNLOCK', 'a');
        throw new RangeError('of the work');
      }), RangeError);
      await free('a');
    }
  },
  async words(lock) {
    await lock('a', { words: ['SHARED'] }, () => lock('a', { wait: 1000, words: ['SHARED', 'GRACE', '0'] }, () => {}));
    await lock('b', { words: ['LIMIT', '2'] }, () => lock('b', { words: ['LIMIT', '2'] }, () => {}));
    await free('a');
    await free('b');
  },
  // The connection ends while the lock is held. The next lock has a new one.
  async cut(lock) {
    const cut = lock('a', { words: ['GRACE', '0'] }, async ({ signal }) => {
      const { client } = await run('LOCKINFO', 'a');
      await run('CLIENT', 'KILL', client);
      await inTime(aborted(signal), 'the signal');
    });
    await assert.rejects(cut, Lost);
    await lock('a', { wait: 5000 }, () => sleep(1));
    await free('a');
  },
};

let held = true;
for (const [name, claim] of Object.entries(claims)) {
  try {
    const lock = await locks({ url: PROXY });
    await inTime(claim(lock), 'the claim');
    await lock.close();
    console.log(`ok ${name}`);
  } catch (err) {
    held = false;
    console.log(`FAIL ${name}: ${String(err.stack).replace(/[\r\n]+/g, ' ')}`);
  }
}
process.exit(held ? 0 : 1);
