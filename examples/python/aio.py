"""400 asyncio tasks take turns under one lock, on 16 connections. Needs: pip install redis

lockproxy.py beside this file has the lock. LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default
behind it. Exit codes: 0 done, 1 lost, 69 lockproxy cannot be reached, 75 other clients have the lock.
"""

import asyncio
import os
import random
import sys

import redis.asyncio

from lockproxy import AsyncLocks, Busy, Lost

TASKS = 400
LOCKPROXY_URL = os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379")
lock = AsyncLocks(LOCKPROXY_URL, connections=16)
data = redis.asyncio.Redis.from_url(os.environ.get("REDIS_URL", LOCKPROXY_URL))
inside, most = 0, 0


async def task():
    global inside, most
    await asyncio.sleep(random.random())
    async with lock("aio", wait=60):
        inside += 1
        most = max(most, inside)
        seen = int(await data.get("aio:count") or 0)  # without the lock, tasks would overwrite each other's counts
        await data.set("aio:count", seen + 1)
        inside -= 1


async def main():
    await data.delete("aio:count")
    await asyncio.gather(*(task() for _ in range(TASKS)))
    print(f"count {int(await data.get('aio:count'))}, at most {most} inside")
    await lock.client.aclose()
    await data.aclose()


try:
    asyncio.run(main())
except Lost as err:
    print("lost:", err, file=sys.stderr)
    sys.exit(1)
except Busy as err:
    print("busy:", err, file=sys.stderr)
    sys.exit(75)
except redis.RedisError as err:
    print("no lock:", err, file=sys.stderr)
    sys.exit(69)
