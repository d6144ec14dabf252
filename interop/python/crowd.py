"""400 threads take turns under one lock, as docs/CLIENTS.md says for programs whose tasks cannot keep a connection:
LOCK on a pool of its own, UNLOCK by the fence on the other pool."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import redis

TASKS = 400


def client():
    pool = redis.BlockingConnectionPool.from_url(os.environ["LOCKPROXY_URL"], max_connections=16, timeout=None)
    return redis.Redis(connection_pool=pool)


locks, others = client(), client()
inside, most = 0, 0


def task(_):
    global inside, most
    time.sleep(random.random())
    while (fence := locks.execute_command("LOCK", "crowd", "WAIT", 3000)) is None:
        pass
    inside += 1
    most = max(most, inside)
    seen = int(others.get("crowd:count") or 0)
    others.set("crowd:count", seen + 1)
    inside -= 1
    assert others.execute_command("UNLOCK", "crowd", "FENCE", fence) == 1


others.delete("crowd:count")
with ThreadPoolExecutor(TASKS) as threads:
    list(threads.map(task, range(TASKS)))
print(f"count {int(others.get('crowd:count'))}, at most {most} inside")
