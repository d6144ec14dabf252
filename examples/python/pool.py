"""400 threads take turns under one lock, on 16 connections. Needs: pip install redis

lockproxy.py beside this file has the lock. LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default
behind it. Exit codes: 0 done, 1 lost, 69 lockproxy cannot be reached, 75 other clients have the lock.
"""

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import redis

from lockproxy import Busy, Locks, Lost

TASKS = 400
LOCKPROXY_URL = os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379")
lock = Locks(LOCKPROXY_URL, connections=16)
data = redis.Redis.from_url(os.environ.get("REDIS_URL", LOCKPROXY_URL), max_connections=400)
inside, most = 0, 0


def task(_):
    global inside, most
    time.sleep(random.random())
    with lock("pool", wait=60):
        inside += 1
        most = max(most, inside)
        seen = int(data.get("pool:count") or 0)  # without the lock, tasks would overwrite each other's counts
        data.set("pool:count", seen + 1)
        inside -= 1


try:
    data.delete("pool:count")
    with ThreadPoolExecutor(TASKS) as threads:
        list(threads.map(task, range(TASKS)))
    print(f"count {int(data.get('pool:count'))}, at most {most} inside")
except Lost as err:
    print("lost:", err, file=sys.stderr)
    sys.exit(1)
except Busy as err:
    print("busy:", err, file=sys.stderr)
    sys.exit(75)
except redis.RedisError as err:
    print("no lock:", err, file=sys.stderr)
    sys.exit(69)
