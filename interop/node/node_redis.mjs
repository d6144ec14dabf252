// node-redis against lockproxy, with the library's defaults: one "ok CLAIM" or "FAIL CLAIM: reason" per claim.

import assert from 'node:assert/strict';
import { createClient, ErrorReply, RESP_TYPES, WatchError } from 'redis';
import { PROXY, big, everyByte, inTime, refused, report } from './claims.mjs';

async function connect(url = PROXY) {
  const client = createClient({ url });
  client.on('error', () => {}); // without a listener an error ends the process; the command in flight reports it
  await client.connect();
  return client;
}

async function open(url) {
  const client = await connect(url);
  return { command: (...args) => client.sendCommand(args), close: () => client.destroy() };
}

await report({
  async connect() {
    const client = await connect();
    assert.equal(await client.ping(), 'PONG');
    await client.set('bytes', everyByte);
    const raw = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    assert.deepEqual(await raw.get('bytes'), everyByte);
    await client.set('big', big);
    assert.equal(await client.get('big'), big);
    assert.equal(await client.get('none'), null);
  },

  async pipeline() {
    const client = await connect();
    const multi = client.multi();
    const sent = [];
    for (let i = 0; i < 1000; i++) sent.push(client.set(`p:${i}`, i), client.get(`p:${i}`));
    const failed = refused('WRONGTYPE', client.lPush('p:499', 'x'));
    const replies = await inTime(Promise.all(sent));
    await failed;
    assert.deepEqual(replies.filter((_, i) => i % 2 === 1), Array.from({ length: 1000 }, (_, i) => String(i)));
    for (let i = 0; i < 100; i++) multi.get(`p:${i}`);
    assert.deepEqual(await multi.execAsPipeline(), Array.from({ length: 100 }, (_, i) => String(i)));
  },

  async transaction() {
    const client = await connect();
    await client.set('t', 1);
    await client.watch('t');
    const value = Number(await client.get('t'));
    assert.deepEqual(await client.multi().set('t', value + 1).incr('t').get('t').exec(), ['OK', 3, '3']);
  },

  async watch() {
    const [client, other] = [await connect(), await connect()];
    await client.set('w', 1);
    await client.watch('w');
    await other.set('w', 2);
    await assert.rejects(client.multi().set('w', 3).exec(), WatchError);
    assert.equal(await client.get('w'), '2');
  },

  async pubsub() {
    const [client, subscriber] = [await connect(), await connect()];
    const got = { message: [], pattern: [] };
    let all;
    const complete = new Promise((resolve) => { all = resolve; });
    const arrived = (kind) => (message) => {
      got[kind].push(Number(message));
      if (got.message.length + got.pattern.length === 200) all();
    };
    await subscriber.subscribe('news', arrived('message'));
    await subscriber.pSubscribe('n*s', arrived('pattern'));
    const hundred = Array.from({ length: 100 }, (_, i) => i);
    for (const i of hundred) assert.equal(await client.publish('news', String(i)), 2);
    await inTime(complete, '200 messages');
    assert.deepEqual(got, { message: hundred, pattern: hundred });
    await subscriber.unsubscribe();
    await subscriber.pUnsubscribe();
    assert.equal(await client.publish('news', 'x'), 0);
    assert.equal(await subscriber.ping(), 'PONG');
  },

  async 'blocking-pop'() {
    const [client, other] = [await connect(), await connect()];
    const popped = client.blPop('queue', 0);
    await other.rPush('queue', 'job');
    const { key, element } = await inTime(popped);
    assert.deepEqual([key, element], ['queue', 'job']);
    assert.equal(await client.blPop('queue', 0.1), null);
  },

  async script() {
    const client = await connect();
    const text = "return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)";
    const call = { keys: ['s'], arguments: ['4'] };
    assert.equal(await client.eval(text, call), 8);
    const sha = await client.scriptLoad(text);
    assert.equal(await client.evalSha(sha, call), 16);
    await client.scriptFlush();
    await refused('NOSCRIPT', client.evalSha(sha, call));
  },
}, open, ErrorReply);
