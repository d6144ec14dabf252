// What both Node clients share: the claims about locks and the mixed operations, by raw command, and the report.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export const DIRECT = process.env.REDIS_URL;
export const PROXY = process.env.LOCKPROXY_URL;
const LIMIT = 10_000; // ms that anything may take

export const everyByte = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
export const big = '0123456789abcdef'.repeat(65536);

// until waits for something that nothing announces.
export async function until(what, holds) {
  const end = Date.now() + LIMIT;
  while (!(await holds())) {
    assert(Date.now() < end, `waited in vain for ${what}`);
    await sleep(5);
  }
}

// inTime is the promise's result, or an error if there is none in time.
export async function inTime(promise, what = 'a reply', ms = LIMIT) {
  const timer = new AbortController();
  try {
    return await Promise.race([
      promise,
      sleep(ms, undefined, { signal: timer.signal }).then(() => assert.fail(`waited in vain for ${what}`)),
    ]);
  } finally {
    timer.abort();
  }
}

async function stillWaits(promise, ms = 100) {
  const waits = Symbol('waits');
  assert.equal(await Promise.race([promise, sleep(ms, waits)]), waits, 'did not wait');
}

export async function refused(code, promise) {
  await assert.rejects(inTime(promise), (err) => {
    assert(err.message.startsWith(code), `got error ${err.message}, want ${code}`);
    return true;
  });
}

// lockClaims: open resolves to a session with one connection, {command(...args), close()}.
function lockClaims(open) {
  return {
    async lock() {
      const s = await open();
      const fences = [];
      for (const verb of ['LOCK', 'TRYLOCK', 'FAIRLOCK']) {
        fences.push(await s.command(verb, 'a', 'WAIT', '1000'));
        assert.equal(await s.command('UNLOCK', 'a'), 1);
      }
      fences.push(await s.command('LOCK', 'a', 'PX', '5000'));
      assert(fences[0] >= 1);
      for (let i = 1; i < fences.length; i++) assert(fences[i] > fences[i - 1], `fences ${fences}`);
      assert.equal(await s.command('UNLOCK', 'a', 'FENCE', String(fences.at(-1))), 1);
      await refused('ERR', s.command('LOCK', 'a', 'PX', '1', 'EX', '1'));
    },
    async 'lock-reentry'() {
      const s = await open();
      const fence = await s.command('LOCK', 'b');
      assert.equal(await s.command('LOCK', 'b', 'WAIT', '50'), null);
      await refused('ERR', s.command('UNLOCK', 'b'));
      assert.equal(await s.command('UNLOCK', 'b', 'FENCE', String(fence)), 1);
      const named = await s.command('LOCK', 'b', 'OWNER', 'job-9');
      assert.equal(await s.command('LOCK', 'b', 'OWNER', 'job-9'), named);
      assert.equal(await s.command('UNLOCK', 'b', 'OWNER', 'job-9'), 0);
      assert.equal(await s.command('UNLOCK', 'b', 'OWNER', 'job-9'), 1);
      await refused('NOTHELD', s.command('UNLOCK', 'b', 'OWNER', 'job-9'));
    },
    async 'lock-busy'() {
      const [holder, other] = [await open(), await open()];
      await holder.command('LOCK', 'c');
      assert.equal(await other.command('TRYLOCK', 'c'), null);
      assert.equal(await other.command('LOCK', 'c', 'WAIT', '50'), null);
      await refused('NOTHELD', other.command('UNLOCK', 'c'));
      assert.equal(await holder.command('UNLOCK', 'c'), 1);
    },
    async 'lock-wait'() {
      const [holder, other] = [await open(), await open()];
      const fence = await holder.command('LOCK', 'd');
      const waiting = other.command('LOCK', 'd');
      await stillWaits(waiting);
      assert.equal(await holder.command('UNLOCK', 'd'), 1);
      assert((await inTime(waiting)) > fence);
    },
    async 'lock-fair'() {
      const holder = await open();
      let fence = await holder.command('FAIRLOCK', 'e');
      const waiters = [];
      for (let i = 1; i <= 3; i++) {
        const s = await open();
        waiters.push({ s, granted: s.command('FAIRLOCK', 'e') });
        await until(`${i} in the queue`, async () => (await holder.command('LLEN', 'redisson_lock_queue:{e}')) === i);
      }
      assert.equal(await holder.command('UNLOCK', 'e'), 1);
      for (const [i, { s, granted }] of waiters.entries()) {
        const next = await inTime(granted);
        assert(next > fence);
        fence = next;
        for (const later of waiters.slice(i + 1)) await stillWaits(later.granted, 20);
        assert.equal(await s.command('UNLOCK', 'e'), 1);
      }
    },
    async 'lock-hangup'() {
      const [holder, other] = [await open(), await open()];
      await holder.command('LOCK', 'f', 'GRACE', '0');
      const waiting = other.command('LOCK', 'f');
      await stillWaits(waiting);
      holder.close();
      assert((await inTime(waiting)) > 0);
    },
    async 'lock-lost'() {
      const s = await open();
      await s.command('LOCK', 'g', 'PX', '1000');
      await until('the lease to end', async () => (await s.command('EXISTS', 'g')) === 0);
      await refused('LOSTLEASE', s.command('UNLOCK', 'g'));
      await s.command('LOCK', 'h');
      await s.command('DEL', 'h');
      await refused('LOSTLEASE', s.command('UNLOCK', 'h'));
    },
    async 'lock-owner'() {
      const [one, other] = [await open(), await open()];
      await one.command('LOCK', 'i', 'OWNER', 'job-7');
      await refused('NOTHELD', other.command('UNLOCK', 'i', 'OWNER', 'job-8'));
      assert.equal(await other.command('UNLOCK', 'i', 'OWNER', 'job-7'), 1);
    },
    async 'lock-tasks'() {
      const s = await open();
      const task = (key, named) => async (id) => {
        const owner = named ? ['OWNER', `task-${id}`] : [];
        let fence;
        try {
          fence = await s.command('LOCK', key, ...owner);
        } catch (err) {
          return err.message;
        }
        await s.command('INCR', 'entries');
        await s.command('UNLOCK', key, ...(named ? owner : ['FENCE', String(fence)]));
        return 'done';
      };
      const told = 'DEADLOCK a LOCK blocks its connection, as BLPOP does: give locks a connection of their own';
      for (const one of [task('j:1', true), task('j:2', false)]) {
        const ends = await inTime(Promise.all([1, 2, 3].map(one)), 'three tasks on one connection');
        assert.deepEqual(ends.slice(0, 2), ['done', told]);
        assert(ends[2] === told || ends[2] === 'done', ends[2]);
      }
    },
  };
}

// mixed compares the operations' replies. Half of them are sent one by one, the others 50 at a time.
async function mixed(open, ErrorReply) {
  const commands = JSON.parse(readFileSync(process.env.OPERATIONS, 'utf8'));
  const [direct, proxied] = [await open(DIRECT), await open(PROXY)];
  // Any other error than an error reply is a failure, not an outcome to compare.
  const outcome = (s, command) => s.command(...command).catch((err) => {
    if (!(err instanceof ErrorReply)) throw err;
    return `${err.constructor.name} ${err.message}`;
  });
  const half = commands.length / 2;
  for (let i = 0; i < half; i++) {
    const [got, want] = await inTime(Promise.all([outcome(proxied, commands[i]), outcome(direct, commands[i])]));
    assert.deepEqual(got, want, `operation ${i} ${String(commands[i]).slice(0, 200)}`);
  }
  for (let start = half; start < commands.length; start += 50) {
    const some = commands.slice(start, start + 50);
    const all = (s) => Promise.all(some.map((command) => outcome(s, command)));
    const [got, want] = await inTime(Promise.all([all(proxied), all(direct)]));
    some.forEach((command, i) => {
      assert.deepEqual(got[i], want[i], `in the pipeline at ${start} ${String(command).slice(0, 200)}`);
    });
  }
}

// report runs the claims of one library and ends the process.
export async function report(own, open, ErrorReply) {
  process.exitCode = 1; // until all is done
  const claims = { ...own, mixed: () => mixed(open, ErrorReply), ...lockClaims(open) };
  let held = true;
  for (const [name, claim] of Object.entries(claims)) {
    try {
      await inTime(claim(), 'the whole claim', 6 * LIMIT);
      console.log(`ok ${name}`);
    } catch (err) {
      held = false;
      console.log(`FAIL ${name}: ${String(err.message ?? err).replace(/[\r\n]+/g, ' ').slice(0, 1000)}`);
    }
  }
  process.exit(held ? 0 : 1);
}
