"""redis-py against lockproxy: reports each claim as one line, "ok CLAIM" or "FAIL CLAIM: reason".

Arguments: none for the library's defaults, or protocol=2.
"""

import json
import os
import sys
import threading
import time

import redis

DIRECT, PROXY = os.environ["REDIS_URL"], os.environ["LOCKPROXY_URL"]
OPTIONS = {"protocol": 2} if "protocol=2" in sys.argv[1:] else {}
LIMIT = 10  # seconds that anything may take


def client(url=PROXY, **options):
    return redis.Redis.from_url(url, **OPTIONS, **options)


def session():
    """A client with one connection."""
    return client(single_connection_client=True)


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what} got {got!r:.300}, want {want!r:.300}")


def refused(code, call, *args):
    try:
        reply = call(*args)
    except redis.ResponseError as err:
        text = str(err)
        assert text.startswith(code), f"got error {text!r}, want {code}"
    else:
        raise AssertionError(f"got {reply!r}, want {code}")


def until(what, holds):
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)


class Waiting(threading.Thread):
    """A command that waits in a thread and session of its own."""

    def __init__(self, *command):
        super().__init__(daemon=True)
        self.session, self.command, self.reply = session(), command, None
        self.session.ping()
        self.start()

    def run(self):
        try:
            self.reply = self.session.execute_command(*self.command)
        except Exception as err:  # pylint: disable=broad-except
            self.reply = err

    def result(self):
        self.join(LIMIT)
        assert not self.is_alive(), f"{self.command} still waits"
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def still_waits(self, seconds=0.1):
        self.join(seconds)
        assert self.is_alive(), f"{self.command} did not wait: {self.reply!r}"


def connect():
    r = client()
    equal(r.ping(), True)
    every = bytes(range(256))
    r.set("bytes", every)
    equal(r.get("bytes"), every)
    big = b"0123456789abcdef" * 65536
    r.set("big", big)
    equal(len(r.get("big")), len(big))
    equal(r.get("none"), None)


def pipeline():
    r = client()
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            if i == 500:
                p.lpush("p:499", "x")
            else:
                p.set(f"p:{i}", i).get(f"p:{i}")
        replies = p.execute(raise_on_error=False)
    errors = [reply for reply in replies if isinstance(reply, Exception)]
    equal(len(errors), 1)
    assert "WRONGTYPE" in str(errors[0]) or "wrong kind" in str(errors[0]), errors
    values = [int(v) for v in replies if isinstance(v, bytes)]
    equal(values, [i for i in range(1000) if i != 500])


def transaction():
    r = client()
    r.set("t", 1)
    with r.pipeline() as p:
        p.watch("t")
        value = int(p.get("t"))
        p.multi()
        p.set("t", value + 1).incr("t").get("t")
        equal(p.execute(), [True, 3, b"3"])


def watch():
    r, other = client(), client()
    r.set("w", 1)
    with r.pipeline() as p:
        p.watch("w")
        other.set("w", 2)
        p.multi()
        p.set("w", 3)
        try:
            p.execute()
        except redis.WatchError:
            equal(r.get("w"), b"2")
            return
    raise AssertionError("EXEC went through")


def pubsub():
    r = client()
    with r.pubsub() as sub:
        sub.subscribe("news")
        sub.psubscribe("n*s")
        for _ in range(2):
            assert "subscribe" in sub.get_message(timeout=LIMIT)["type"]
        for i in range(100):
            equal(r.publish("news", i), 2)
        got = [sub.get_message(timeout=LIMIT) for _ in range(200)]
        for kind in "message", "pmessage":
            equal([int(m["data"]) for m in got if m["type"] == kind], list(range(100)), kind)
        sub.unsubscribe()
        sub.punsubscribe()
        for _ in range(2):
            assert "unsubscribe" in sub.get_message(timeout=LIMIT)["type"]
        equal(r.publish("news", "x"), 0)


def blocking_pop():
    r = client()
    waiting = Waiting("BLPOP", "queue", 0)
    waiting.still_waits()
    r.rpush("queue", "job")
    equal(list(waiting.result()), [b"queue", b"job"])
    equal(r.blpop("queue", timeout=0.1), None)


def script():
    r = client()
    double = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)")
    equal(double(keys=["s"], args=[4]), 8)
    r.script_flush()
    try:
        r.evalsha(double.sha, 1, "s", 1)
        raise AssertionError("a script survived SCRIPT FLUSH")
    except redis.exceptions.NoScriptError:
        pass
    equal(double(keys=["s"], args=[1]), 10)  # loads it again
    equal(r.eval("return {KEYS[1], ARGV[1]}", 1, "k", "v"), [b"k", b"v"])


def mixed():
    with open(os.environ["OPERATIONS"], encoding="utf-8") as file:
        commands = json.load(file)
    direct, proxied = client(DIRECT), client(PROXY)

    def one(r, command):
        try:
            return repr(r.execute_command(*command))
        except redis.ResponseError as err:
            return f"{type(err).__name__} {err}"

    def many(r, some):
        with r.pipeline(transaction=False) as p:
            for command in some:
                p.execute_command(*command)
            return [f"{type(v).__name__} {v!r}" for v in p.execute(raise_on_error=False)]

    half = len(commands) // 2
    for i, command in enumerate(commands[:half]):
        equal(one(proxied, command), one(direct, command), f"operation {i} {command!r:.200}:")
    for start in range(half, len(commands), 50):
        some = commands[start : start + 50]
        for command, got, want in zip(some, many(proxied, some), many(direct, some), strict=True):
            equal(got, want, f"in the pipeline at {start} {command!r:.200}:")


def lock():
    c = session().execute_command
    fences = []
    for verb in "LOCK", "TRYLOCK", "FAIRLOCK":
        fences.append(c(verb, "a", "WAIT", 1000))
        equal(c("UNLOCK", "a"), 1)
    fences.append(c("LOCK", "a", "PX", 5000))
    assert fences[0] >= 1 and fences == sorted(set(fences)), fences
    equal(c("UNLOCK", "a", "FENCE", fences[-1]), 1)
    refused("syntax error", c, "LOCK", "a", "PX", 1, "EX", 1)  # redis-py takes the code ERR off


def lock_reentry():
    c = session().execute_command
    fence = c("LOCK", "b")
    equal(c("LOCK", "b", "WAIT", 50), None)
    refused("this connection has asked", c, "UNLOCK", "b")
    equal(c("UNLOCK", "b", "FENCE", fence), 1)
    fence = c("LOCK", "b", "OWNER", "job-9")
    equal(c("LOCK", "b", "OWNER", "job-9"), fence)
    equal(c("UNLOCK", "b", "OWNER", "job-9"), 0)
    equal(c("UNLOCK", "b", "OWNER", "job-9"), 1)
    refused("NOTHELD", c, "UNLOCK", "b", "OWNER", "job-9")


def lock_busy():
    holder, other = session().execute_command, session().execute_command
    holder("LOCK", "c")
    equal(other("TRYLOCK", "c"), None)
    equal(other("LOCK", "c", "WAIT", 50), None)
    refused("NOTHELD", other, "UNLOCK", "c")
    equal(holder("UNLOCK", "c"), 1)


def lock_wait():
    c = session().execute_command
    fence = c("LOCK", "d")
    waiting = Waiting("LOCK", "d")
    waiting.still_waits()
    equal(c("UNLOCK", "d"), 1)
    assert waiting.result() > fence, "the fence did not grow"


def lock_fair():
    r = session()
    fence = r.execute_command("FAIRLOCK", "e")
    waiting = []
    for i in range(3):
        waiting.append(Waiting("FAIRLOCK", "e"))
        until(f"{i + 1} in the queue", lambda n=i + 1: r.llen("redisson_lock_queue:{e}") == n)
    equal(r.execute_command("UNLOCK", "e"), 1)
    for i, w in enumerate(waiting):
        granted = w.result()
        assert granted > fence, "the fence did not grow"
        fence = granted
        for later in waiting[i + 1 :]:
            later.still_waits(0.02)
        equal(w.session.execute_command("UNLOCK", "e"), 1)


def lock_hangup():
    holder = session()
    holder.execute_command("LOCK", "f", "GRACE", 0)
    waiting = Waiting("LOCK", "f")
    waiting.still_waits()
    holder.close()
    assert waiting.result() > 0


def lock_lost():
    r = session()
    r.execute_command("LOCK", "g", "PX", 1000)
    until("the lease to end", lambda: r.exists("g") == 0)
    refused("LOSTLEASE", r.execute_command, "UNLOCK", "g")
    r.execute_command("LOCK", "h")
    r.delete("h")
    refused("LOSTLEASE", r.execute_command, "UNLOCK", "h")


def lock_owner():
    one, other = session().execute_command, session().execute_command
    one("LOCK", "i", "OWNER", "job-7")
    refused("NOTHELD", other, "UNLOCK", "i", "OWNER", "job-8")
    equal(other("UNLOCK", "i", "OWNER", "job-7"), 1)


def main():
    held = True
    for claim in (connect, pipeline, transaction, watch, pubsub, blocking_pop, script, mixed, lock,
                  lock_reentry, lock_busy, lock_wait, lock_fair, lock_hangup, lock_lost, lock_owner):
        name = claim.__name__.replace("_", "-")
        try:
            claim()
            print("ok", name, flush=True)
        except Exception as err:  # pylint: disable=broad-except
            held = False
            reason = f"{type(err).__name__}: {err}".replace("\n", " ").replace("\r", " ")
            print(f"FAIL {name}: {reason}", flush=True)
    sys.exit(0 if held else 1)


main()
