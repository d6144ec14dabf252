// ioredis against lockproxy, with the library's defaults: one "ok CLAIM" or "FAIL CLAIM: reason" per claim.

import assert from 'node:assert/strict';
import { Redis, ReplyError } from 'ioredis';
import { PROXY, big, everyByte, inTime, refused, report } from './claims.mjs';

function connect(url = PROXY) {
  const client = new Redis(url);
  client.on('error', () => {}); // the command in flight reports it
  return client;
}

async function open(url) {
  const client = connect(url);
  return { command: (name, ...args) => client.call(name, ...args), close: () => client.disconnect() };
}

await report({
  async connect() {
    const client = connect();
    assert.equal(await client.ping(), 'PONG');
    await client.set('bytes', everyByte);
    assert.deepEqual(await client.getBuffer('bytes'), everyByte);
    await client.set('big', big);
    assert.equal(await client.get('big'), big);
    assert.equal(await client.get('none'), null);
  },

  async pipeline() {
    const client = connect();
    const pipeline = client.pipeline();
    for (let i = 0; i < 1000; i++) {
      if (i === 500) pipeline.lpush('p:499', 'x');
      else pipeline.set(`p:${i}`, i).get(`p:${i}`);
    }
    const replies = await inTime(pipeline.exec());
    const errors = replies.filter(([err]) => err);
    assert.equal(errors.length, 1);
    assert.match(errors[0][0].message, /^WRONGTYPE/);
    const values = replies.filter(([err, value]) => !err && value !== 'OK').map(([, value]) => Number(value));
    assert.deepEqual(values, Array.from({ length: 1000 }, (_, i) => i).filter((i) => i !== 500));
  },

  async transaction() {
    const client = connect();
    await client.set('t', 1);
    await client.watch('t');
    const value = Number(await client.get('t'));
    assert.deepEqual(await client.multi().set('t', value + 1).incr('t').get('t').exec(), [[null, 'OK'], [null, 3], [null, '3']]);
  },

  async watch() {
    const [client, other] = [connect(), connect()];
    await client.set('w', 1);
    await client.watch('w');
    await other.set('w', 2);
    assert.equal(await client.multi().set('w', 3).exec(), null);
    assert.equal(await client.get('w'), '2');
  },

  async pubsub() {
    const [client, subscriber] = [connect(), connect()];
    const got = { message: [], pattern: [] };
    let all;
    const complete = new Promise((resolve) => { all = resolve; });
    const arrived = (kind, message) => {
      got[kind].push(Number(message));
      if (got.message.length + got.pattern.length === 200) all();
    };
    subscriber.on('message', (_, message) => arrived('message', message));
    subscriber.on('pmessage', (_pattern, _channel, message) => arrived('pattern', message));
    await subscriber.subscribe('news');
    await subscriber.psubscribe('n*s');
    const hundred = Array.from({ length: 100 }, (_, i) => i);
    for (const i of hundred) assert.equal(await client.publish('news', i), 2);
    await inTime(complete, '200 messages');
    assert.deepEqual(got, { message: hundred, pattern: hundred });
    // By name: without one, ioredis 6.0.0 never settles its promise in RESP3, against Redis itself as well.
    await subscriber.unsubscribe('news');
    await subscriber.punsubscribe('n*s');
    assert.equal(await client.publish('news', 'x'), 0);
    assert.equal(await subscriber.ping(), 'PONG');
  },

  async 'blocking-pop'() {
    const [client, other] = [connect(), connect()];
    const popped = client.blpop('queue', 0);
    await other.rpush('queue', 'job');
    assert.deepEqual(await inTime(popped), ['queue', 'job']);
    assert.equal(await client.blpop('queue', 0.1), null);
  },

  async script() {
    const client = connect();
    client.defineCommand('twice', { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)" });
    assert.equal(await client.twice('s', 4), 8);
    const sha = await client.script('LOAD', 'return ARGV[1]');
    assert.equal(await client.evalsha(sha, 0, 'v'), 'v');
    await client.script('FLUSH');
    await refused('NOSCRIPT', client.evalsha(sha, 0, 'v'));
    assert.equal(await client.twice('s', 1), 10); // loads it again
  },
}, open, ReplyError);
