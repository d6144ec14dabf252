"""Looks at a counter under a shared lock, then takes the lock alone to change it. Needs: pip install redis

No other client changes the counter between the look and the change (an upgrade).
LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
75 the lock was not free in time.
"""

import os
import sys
import time
import uuid

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# A change by a client that has lost the lock is refused.
WRITE = """
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'count', ARGV[2])
return 1
"""

# An upgrade needs a named owner: without one, each LOCK on a library's connection is an owner of its own.
OWNER = str(uuid.uuid4())


class Busy(Exception):
    """The lock was not free in time."""


class Lost(Exception):
    """The lock ended before the work did."""


def lock(client, *mode):
    fence = client.execute_command("LOCK", "counter", *mode, "WAIT", 2000, "GRACE", 0, "OWNER", OWNER)
    if fence is None:
        raise Busy("the lock was not free in time")
    return fence


def change(client):
    while True:
        lock(client, "SHARED")
        try:
            count = int(client.hget("counter:data", "count") or 0)
            time.sleep(int(os.environ.get("WORK_MS", "500")) / 1000)  # the look
            fence = lock(client)  # waits until the other holders have left
            try:
                if not client.eval(WRITE, 1, "counter:data", fence, count + 1):
                    raise Lost("a change with a larger fence was made")
            finally:
                client.execute_command("UNLOCK", "counter", "OWNER", OWNER)
            return count + 1
        except redis.ResponseError as err:
            if not str(err).startswith("DEADLOCK"):
                raise
            # Another holder is about to change it, and waits for this one: let it, and look again.
        finally:
            client.execute_command("UNLOCK", "counter", "SHARED", "OWNER", OWNER)


def main():
    try:
        client = redis.Redis.from_url(
            os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379"),
            single_connection_client=True,  # the lock is renewed while this connection is open
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        client.ping()
    except redis.RedisError as err:
        print("no lock:", err, file=sys.stderr)
        return 69
    try:
        print("count", change(client))
    except Busy as err:
        print("busy:", err, file=sys.stderr)
        return 75
    except (Lost, redis.RedisError) as err:
        print("lost:", err, file=sys.stderr)
        return 1
    return 0


sys.exit(main())
