"""The file to copy, examples/python/lockproxy.py, against lockproxy: one line a claim, "ok CLAIM" or "FAIL CLAIM: reason"."""

import asyncio
import os
import sys
import time

import redis

sys.path.insert(0, os.environ["EXAMPLES"])
from lockproxy import AsyncLocks, Busy, Locks, Lost  # noqa: E402

PROXY = os.environ["LOCKPROXY_URL"]
OPTIONS = {"protocol": 2} if "protocol=2" in sys.argv[1:] else {}
other = redis.Redis.from_url(PROXY, single_connection_client=True)
LIMIT = 10  # seconds


def run(command, *args):
    return other.execute_command(command, *args)


def free(key):
    assert run("LOCKINFO", key) is None, f"{key} is still held"


def raises(kind, call):
    try:
        call()
    except kind as err:
        return err
    raise AssertionError(f"no {kind.__name__}")


def busy(lock):
    run("LOCK", "a")

    def enter(wait):
        with lock("a", wait=wait):
            pass

    raises(Busy, lambda: enter(0))
    raises(Busy, lambda: enter(0.1))
    run("UNLOCK", "a")
    enter(0)
    free("a")


def no_connection(_):
    lock = Locks(PROXY, connections=1, **OPTIONS)
    with lock("a"):
        raises(Busy, lambda: lock("b", wait=0.1).__enter__())
    with lock("b", wait=0):
        pass


def long_wait(_):
    """A LOCK that waits for longer than the client's timeout."""
    lock = Locks(PROXY, timeout=1, **OPTIONS)
    run("LOCK", "a", "PX", 1500)
    with lock("a", wait=LIMIT):
        pass
    free("a")


def lost(lock):
    def check():
        with lock("a") as held:
            held.check()
            run("FORCEUNLOCK", "a")
            held.check()

    def release():
        with lock("a"):
            run("FORCEUNLOCK", "a")

    raises(Lost, check)
    raises(Lost, release)
    with lock("a") as held:
        held.check()


def another_holder(lock):
    """A lock that another client has meanwhile."""

    def check():
        with lock("a") as held:
            run("FORCEUNLOCK", "a")
            run("LOCK", "a")
            held.check()

    raises(Lost, check)
    run("UNLOCK", "a")


def body_error(lock):
    def fail(lose):
        with lock("a"):
            if lose:
                run("FORCEUNLOCK", "a")
            raise ValueError("the body's own")

    raises(ValueError, lambda: fail(False))
    free("a")
    raises(ValueError, lambda: fail(True))
    free("a")


def words(lock):
    with lock("a", "SHARED") as one, lock("a", "SHARED", "GRACE", 0, wait=1) as two:
        one.check()
        two.check()
        assert two.fence > one.fence
    with lock("b", "LIMIT", 2) as one, lock("b", "LIMIT", 2) as two:
        one.check()
        two.check()
    free("a")
    free("b")


def cut(lock):
    """The connection ends while the lock is held. The next lock has a new one."""

    def check():
        with lock("a", "GRACE", 0) as held:
            run("CLIENT", "KILL", "ID", held.own.execute_command("CLIENT", "ID"))
            end = time.monotonic() + LIMIT
            while run("LOCKINFO", "a"):
                assert time.monotonic() < end, "the lock stays"
                time.sleep(0.005)
            held.check()

    raises(Lost, check)
    with lock("a", wait=LIMIT):
        pass
    free("a")


async def aio_busy(lock):
    run("LOCK", "a")
    for wait in (0, 0.1):
        try:
            async with lock("a", wait=wait):
                raise AssertionError("granted")
        except Busy:
            pass
    run("UNLOCK", "a")
    async with lock("a", wait=0):
        one = AsyncLocks(PROXY, connections=1, **OPTIONS)
        async with one("b"):
            try:
                async with one("c", wait=0.1):
                    raise AssertionError("no connection is free")
            except Busy:
                pass
        await one.client.aclose()
    free("a")


async def aio_lost(lock):
    """A loss cancels the body at its await, and is the exception; the task goes on."""
    try:
        async with lock("a") as held:
            await held.check()
            run("FORCEUNLOCK", "a")
            await asyncio.sleep(LIMIT)
        raise AssertionError("not told of the loss")
    except Lost:
        pass
    assert not asyncio.current_task().cancelling()
    try:
        async with lock("a"):
            run("FORCEUNLOCK", "a")
        raise AssertionError("not told of the loss at the end")
    except Lost:
        pass
    async with lock("a", wait=0):
        await asyncio.sleep(0)
    free("a")


async def aio_body_error(lock):
    for lose in (False, True):
        try:
            async with lock("a"):
                if lose:
                    run("FORCEUNLOCK", "a")
                raise ValueError("the body's own")
        except ValueError:
            pass
        free("a")


async def aio_cancelled(lock):
    """A task that is cancelled while it waits, or while it holds, leaves nothing behind."""

    async def hold():
        async with lock("a"):
            await asyncio.sleep(LIMIT)

    for ready in (False, True):
        if not ready:
            run("LOCK", "a")
        task = asyncio.create_task(hold())
        end = time.monotonic() + LIMIT
        while not (info := run("LOCKINFO", "a")) or (not ready and dict(info)[b"local-waiters"] == 0):
            assert time.monotonic() < end
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.005)  # until the client knows that LOCK is sent: Python 3.11 loses a cancellation before
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        if not ready:
            run("UNLOCK", "a")
        free("a")


async def in_loop(claim):
    lock = AsyncLocks(PROXY, **OPTIONS)
    await claim(lock)
    await lock.client.aclose()


def main():
    held = True
    for claim in (busy, no_connection, long_wait, lost, another_holder, body_error, words, cut,
                  aio_busy, aio_lost, aio_body_error, aio_cancelled):
        name = claim.__name__.replace("_", "-")
        try:
            if asyncio.iscoroutinefunction(claim):
                asyncio.run(in_loop(claim))
            else:
                claim(Locks(PROXY, **OPTIONS))
            print("ok", name, flush=True)
        except Exception as err:  # pylint: disable=broad-except
            held = False
            print(f"FAIL {name}: {type(err).__name__}: {err}".replace("\n", " "), flush=True)
    sys.exit(0 if held else 1)


main()
