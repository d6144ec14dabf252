"""A client or worker of a library in Redis's absence: "ready", then a line with what has happened when a line is read.

Usage: outages.py redis-py | celery | rq URL. redis-py also takes sentinel://host:port,host:port/name.
"""

import json
import os
import subprocess
import sys
import threading
import time

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel

LIBRARY, URL = sys.argv[1], sys.argv[2]
HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 60  # seconds


def report(done, failures):
    print(json.dumps({"done": done, "failures": len(failures), "first": failures[:3]}), flush=True)


def commands():
    """Commands one after the other, from several threads, as redis-py's documentation has them tried again."""
    patience = dict(retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 12), retry_on_error=[ConnectionError, TimeoutError])
    if URL.startswith("sentinel://"):
        at, name = URL.removeprefix("sentinel://").split("/")
        client = Sentinel([addr.split(":") for addr in at.split(",")]).master_for(name, **patience)
    else:
        client = redis.Redis.from_url(URL, **patience)
    done, failures, over = [], [], threading.Event()

    def work(n):
        while not over.is_set():
            try:
                client.incr(f"py-{n}")
                done.append(time.monotonic())
            except redis.RedisError as err:
                failures.append(f"{type(err).__name__}: {err}")
            time.sleep(0.02)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    while len(done) < 50:
        time.sleep(0.01)
    print("ready", flush=True)
    sys.stdin.readline()
    back, limit = time.monotonic(), time.monotonic() + LIMIT
    while sum(at > back for at in done) < 50 and time.monotonic() < limit:
        time.sleep(0.05)
    over.set()
    for thread in threads:
        thread.join()
    report(sum(at > back for at in done), failures)


def worker(command, enqueue, served):
    """A worker outlives the outage, and works on what is enqueued behind it."""
    process = subprocess.Popen(command, cwd=HERE, env={**os.environ, "BROKER": URL}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    log = []
    reader = threading.Thread(target=lambda: log.extend(process.stderr))
    reader.start()
    failures = []

    def serves():
        before, limit = served(), time.monotonic() + LIMIT
        enqueue()
        while served() <= before:
            if process.poll() is not None:
                failures.append(f"the worker has ended with {process.returncode}: {''.join(log)[-300:]}")
                return 0
            if time.monotonic() > limit:
                failures.append("the worker does not work")
                return 0
            time.sleep(0.05)
        return 1

    serves()
    print("ready", flush=True)
    sys.stdin.readline()
    done = serves()
    process.terminate()
    process.wait(LIMIT)
    reader.join()
    report(done, failures)


def counter():
    """What tasks count up, past the proxy, with patience."""
    client = redis.Redis.from_url(URL, retry=Retry(ExponentialBackoff(cap=0.5), 60), retry_on_error=[ConnectionError, TimeoutError])
    return lambda: int(client.get("served-" + LIBRARY) or 0)


if LIBRARY == "redis-py":
    commands()
elif LIBRARY == "celery":
    os.environ["BROKER"] = URL
    import outages_tasks

    program = [sys.executable, "-m", "celery", "-A", "outages_tasks", "worker", "--pool", "solo", "--loglevel", "error"]
    worker(program, lambda: outages_tasks.count_celery.delay(), counter())
else:
    os.environ["BROKER"] = URL
    import outages_tasks
    import rq

    queue = rq.Queue(connection=redis.Redis.from_url(URL, retry=Retry(ExponentialBackoff(cap=0.5), 60), retry_on_error=[ConnectionError]))
    program = [os.path.join(os.path.dirname(sys.executable), "rq"), "worker", "--url", URL, "--quiet", "--worker-class", "rq.SimpleWorker"]
    worker(program, lambda: queue.enqueue(outages_tasks.count_rq), counter())
