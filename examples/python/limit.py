"""One of at most five jobs that run at the same time (LIMIT 5), on all machines together. Needs: pip install redis

LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
Exit codes: 0 done, 1 the permit was lost and the work does not count, 69 lockproxy cannot be reached,
75 five jobs run.
"""

import os
import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def main():
    try:
        client = redis.Redis.from_url(
            os.environ.get("LOCKPROXY_URL", "redis://127.0.0.1:7379"),
            single_connection_client=True,  # the permit is renewed while this connection is open
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        fence = client.execute_command("LOCK", "jobs", "LIMIT", 5, "WAIT", 2000, "GRACE", 0)
    except redis.RedisError as err:
        print("no lock:", err, file=sys.stderr)
        return 69
    if fence is None:
        print("busy: five jobs run", file=sys.stderr)
        return 75
    print("fence", fence, flush=True)
    try:
        try:
            time.sleep(int(os.environ.get("WORK_MS", "500")) / 1000)  # the work
        finally:
            client.execute_command("UNLOCK", "jobs", "FENCE", fence)  # LOSTLEASE or NOTHELD: it was lost
    except redis.RedisError as err:
        print("lost:", err, file=sys.stderr)
        return 1
    print("done")
    return 0


sys.exit(main())
