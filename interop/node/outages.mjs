// A client of a library in Redis's absence: "ready", then a line with what has happened when a line is read.
// Usage: outages.mjs ioredis | node-redis | bullmq URL. ioredis also takes sentinel://host:port,host:port/name.
import { createInterface } from 'node:readline';

const [library, url] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const address = (text) => ({ host: text.split(':')[0], port: Number(text.split(':')[1]) });

async function open() {
  switch (library) {
    case 'ioredis': {
      const { default: Redis } = await import('ioredis');
      const at = url.match(/^sentinel:\/\/(.*)\/(.*)$/);
      const client = at ? new Redis({ sentinels: at[1].split(',').map(address), name: at[2] }) : new Redis(url);
      client.on('error', () => {});
      return () => client.incr('ioredis');
    }
    case 'node-redis': {
      const { createClient } = await import('redis');
      const client = createClient({ url });
      client.on('error', () => {});
      await client.connect();
      return () => client.incr('node-redis');
    }
    default: {
      const { Queue } = await import('bullmq');
      const at = new URL(url);
      const queue = new Queue('outages', { connection: { host: at.hostname, port: Number(at.port) } });
      queue.on('error', () => {});
      return () => queue.add('job', { n: 1 });
    }
  }
}

const step = await open();
let done = 0;
let over = false;
const failures = [];
const work = async () => {
  while (!over) {
    try {
      await step();
      done++;
    } catch (err) {
      failures.push(String(err));
    }
    await sleep(20);
  }
};
const workers = Array.from({ length: 8 }, work);
while (done < 50) await sleep(10);
console.log('ready');
const lines = createInterface({ input: process.stdin });
await new Promise((resolve) => lines.once('line', resolve));
const before = done;
for (const limit = Date.now() + 60_000; done < before + 50 && Date.now() < limit; ) await sleep(50);
over = true;
await Promise.race([Promise.all(workers), sleep(5_000)]);
console.log(JSON.stringify({ done: done - before, failures: failures.length, first: failures.slice(0, 3) }));
process.exit(0);
