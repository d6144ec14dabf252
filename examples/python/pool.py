"""Eight threads share a pool of connections and take turns under one lock. Needs: pip install redis

A connection is an owner, and a pool lends one connection to many threads. So each task names an OWNER of its own, for LOCK and for UNLOCK.
LOCKPROXY_URL says where lockproxy is. Exit codes: 0 done, 1 lost, 69 lockproxy cannot be reached.
"""

import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import redis

# From a pool, retries do no harm: every attempt has the same OWNER. WAIT stays below socket_timeout, 5 s by default.
client = redis.Redis.from_url(os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379"), max_connections=16)


@contextmanager
def lock(key):
    owner = str(uuid.uuid4())
    while (fence := client.execute_command("LOCK", key, "WAIT", 3000, "OWNER", owner)) is None:
        pass  # not in time: ask again
    try:
        yield fence
    finally:
        client.execute_command("UNLOCK", key, "OWNER", owner)


def task(_):
    with lock("pool"):
        seen = int(client.get("pool:count") or 0)  # without the lock, tasks would overwrite each other's counts
        client.set("pool:count", seen + 1)


try:
    client.delete("pool:count")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(task, range(40)))
    print("count", int(client.get("pool:count")))
except redis.ConnectionError as err:
    print("no lock:", err, file=sys.stderr)
    sys.exit(69)
except redis.ResponseError as err:
    print("lost:", err, file=sys.stderr)
    sys.exit(1)
