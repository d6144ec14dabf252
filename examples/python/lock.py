"""Does a piece of work under the lock "report". Needs: pip install redis

LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes WORK_MS
milliseconds.
Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
75 another client has the lock.
"""

import os
import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# The store of the result compares fences, and refuses the write of a client that has lost the lock meanwhile.
WRITE = """
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
return 1
"""


class Lost(Exception):
    """The lock ended before the work did."""


def work():
    time.sleep(int(os.environ.get("WORK_MS", "500")) / 1000)


def main():
    # A lock without PX is renewed while its connection is open: so one connection, and no retries,
    # which would ask again on another. WAIT stays below socket_timeout, 5 s by default.
    url = os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379")
    data = redis.Redis.from_url(os.environ.get("REDIS_URL", url))
    try:
        client = redis.Redis.from_url(url, single_connection_client=True, retry=Retry(NoBackoff(), 0))
        # GRACE 0: if this process dies, the lock is free at once.
        fence = client.execute_command("LOCK", "report", "WAIT", 2000, "GRACE", 0)
    except redis.RedisError as err:
        print("no lock:", err, file=sys.stderr)
        return 69
    if fence is None:
        print("busy: another client has the lock", file=sys.stderr)
        return 75
    print("fence", fence)
    try:
        try:
            work()
            if not data.eval(WRITE, 1, "report:result", fence, "python"):
                raise Lost("a client with a larger fence has written")
        finally:
            try:
                client.execute_command("UNLOCK", "report")
            except redis.ResponseError as err:
                if str(err).startswith(("LOSTLEASE", "NOTHELD")):
                    raise Lost(str(err)) from err
                raise
    except (Lost, redis.ConnectionError) as err:
        print("lost:", err, file=sys.stderr)
        return 1
    print("done")
    return 0


sys.exit(main())
