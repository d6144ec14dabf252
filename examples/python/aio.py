"""Eight asyncio tasks share a pool of connections and take turns under one lock. Needs: pip install redis

A connection is an owner, and a pool lends one connection to many tasks. So each task names an OWNER of its own, for LOCK and for UNLOCK.
LOCKPROXY_URL says where lockproxy is. Exit codes: 0 done, 1 lost, 69 lockproxy cannot be reached.
"""

import asyncio
import os
import sys
import uuid
from contextlib import asynccontextmanager

import redis
import redis.asyncio


@asynccontextmanager
async def lock(client, key):
    owner = str(uuid.uuid4())
    while (fence := await client.execute_command("LOCK", key, "WAIT", 3000, "OWNER", owner)) is None:
        pass  # not in time: ask again
    try:
        yield fence
    finally:
        await client.execute_command("UNLOCK", key, "OWNER", owner)


async def task(client):
    for _ in range(5):
        async with lock(client, "aio"):
            seen = int(await client.get("aio:count") or 0)  # without the lock, tasks would overwrite each other's counts
            await client.set("aio:count", seen + 1)


async def main():
    url = os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379")
    async with redis.asyncio.Redis.from_url(url, max_connections=16) as client:
        await client.delete("aio:count")
        await asyncio.gather(*(task(client) for _ in range(8)))
        print("count", int(await client.get("aio:count")))


try:
    asyncio.run(main())
except redis.ConnectionError as err:
    print("no lock:", err, file=sys.stderr)
    sys.exit(69)
except redis.ResponseError as err:
    print("lost:", err, file=sys.stderr)
    sys.exit(1)
