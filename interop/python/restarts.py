"""redis-py while the proxies behind its balancer are restarted, until the end of the standard input: reports each claim as one line."""

import os
import sys
import threading
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PROXY, BEHIND = os.environ["LOCKPROXY_URL"], os.environ["BEHIND_URL"]
over = threading.Event()
failures = {"plain": [], "tasks": [], "holder": []}
done = {"plain": 0, "tasks": 0}
counting = threading.Lock()
inside = threading.Lock()


def count(claim, n):
    with counting:
        done[claim] += n


def session():
    """A client with one connection, which learns when that has ended: nothing is repeated on another one."""
    return redis.Redis.from_url(PROXY, single_connection_client=True, retry=Retry(NoBackoff(), 0), socket_timeout=None)


def moved(err):
    """Whether the error tells a client to connect again."""
    return isinstance(err, redis.ConnectionError) or str(err).startswith("OVERLOADED the proxy is shutting down")


def again(client, *words):
    while True:
        try:
            return client.execute_command(*words)
        except redis.RedisError as err:
            if not moved(err):
                raise


def release(client, key, owner):
    """Each acquire is a hold, also one without an answer."""
    while again(client, "UNLOCK", key, "OWNER", owner) != 1:
        pass


def pooled():
    """A client with the defaults of redis.Redis: it repeats what crossed the end of a connection. One that from_url makes does not."""
    at = urlsplit(PROXY)
    return redis.Redis(host=at.hostname, port=at.port)


def plain(name, client):
    """Commands without locks."""
    client.incr("py-count")
    with client.pipeline(transaction=False) as pipe:
        for _ in range(5):
            pipe.incr("py-count")
        pipe.execute()
    with client.pipeline(transaction=True) as pipe:
        pipe.set(name, "v").get(name)
        assert pipe.execute() == [True, b"v"]
    count("plain", 6)


def task(name, client):
    assert again(client, "LOCK", "py-task", "OWNER", name)
    assert inside.acquire(blocking=False), "two tasks hold the lock"
    again(client, "GET", "py-task-data")
    inside.release()
    release(client, "py-task", name)
    count("tasks", 1)


def hold(pool):
    """One lock, for as long as the program runs."""
    client = session()
    fence = again(client, "LOCK", "py-held", "OWNER", "holder")
    while not over.wait(0.005):
        try:
            client.ping()
            alive = True
        except redis.ConnectionError:
            alive = False
        got = pool.execute_command("TRYLOCK", "py-held", "OWNER", "rival")
        assert got is None, f"another owner got {got}"
        if not alive:
            got = again(client, "LOCK", "py-held", "OWNER", "holder", "WAIT", "0")
            assert got == fence, f"the fence was {fence}, and is {got}"
    release(client, "py-held", "holder")


def loop(claim, work, *args):
    def run():
        while not over.wait(0.001):
            attempt(claim, work, *args)

    return threading.Thread(target=run)


def attempt(claim, work, *args):
    try:
        work(*args)
    except Exception as err:
        failures[claim].append(f"{type(err).__name__}: {err}")


def main():
    pool = pooled()
    threads = [threading.Thread(target=attempt, args=("holder", hold, pool))]
    threads += [loop("plain", plain, f"py-plain-{i}", pool) for i in range(3)]
    threads += [loop("tasks", task, f"py-task-{i}", session()) for i in range(3)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()

    direct = redis.Redis.from_url(BEHIND)
    executed = int(direct.get("py-count") or 0)
    if executed != done["plain"]:
        failures["plain"].append(f"{executed} commands were executed, {done['plain']} answered")
    for claim, errors in failures.items():
        if done.get(claim, 100) < 100:
            errors.append(f"done only {done[claim]} times")
        if errors:
            print(f"FAIL {claim}: {len(errors)} failures: {'; '.join(errors[:5])}".replace("\n", " "))
        else:
            print(f"ok {claim} {done.get(claim, '')}".rstrip())


main()
