"""Reads an index, or rebuilds it: shared.py, shared.py rebuild. Needs: pip install redis

Any number read it at the same time (SHARED), and none while it is rebuilt.
LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
75 the lock was not free in time.
"""

import os
import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# A rebuild writes two halves, and no reader may see one old and one new. A rebuild that has lost the lock is refused.
WRITE = """
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], ARGV[2], ARGV[1])
return 1
"""


class Lost(Exception):
    """The lock ended before the work did."""


def work():
    time.sleep(int(os.environ.get("WORK_MS", "500")) / 1000)


def read(client, _):
    first = client.hget("index:data", "first")
    work()
    if client.hget("index:data", "second") != first:
        raise Lost("the index was rebuilt meanwhile")
    return f"read {first}"


def rebuild(client, fence):
    for half in ("first", "second"):
        if half == "second":
            work()
        if not client.eval(WRITE, 1, "index:data", fence, half):
            raise Lost("a rebuild with a larger fence has written")
    return f"rebuilt {fence}"


def main():
    task, shared = (rebuild, []) if sys.argv[1:] == ["rebuild"] else (read, ["SHARED"])
    try:
        client = redis.Redis.from_url(
            os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379"),
            single_connection_client=True,  # the lock belongs to this connection
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        fence = client.execute_command("LOCK", "index", *shared, "WAIT", 2000, "GRACE", 0)
    except redis.RedisError as err:
        print("no lock:", err, file=sys.stderr)
        return 69
    if fence is None:
        print("busy: the lock was not free in time", file=sys.stderr)
        return 75
    try:
        try:
            told = task(client, fence)
        finally:
            client.execute_command("UNLOCK", "index", *shared)  # LOSTLEASE or NOTHELD: the lock was lost
    except (Lost, redis.RedisError) as err:
        print("lost:", err, file=sys.stderr)
        return 1
    print(told)
    return 0


sys.exit(main())
