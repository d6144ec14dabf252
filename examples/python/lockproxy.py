"""Locks for redis-py, with threads and with asyncio: copy this file. Needs Python 3.11, pip install redis

With asyncio take Python 3.12: before it, asyncio.wait_for in redis-py may lose the cancellation of a task that waits.

    lock = Locks("redis://127.0.0.1:7379")              # one for the process; with asyncio AsyncLocks, and async with
    with lock("invoice:42", wait=10) as held:           # raises Busy after 10 seconds
        for line in lines:
            held.check()                                # raises Lost; with asyncio the body is cancelled as well
            book(line, fence=held.fence)

Each lock takes a connection out of a pool of its own and returns it at the end. Further words go to LOCK as they are:
lock("index", "SHARED", "GRACE", 0, wait=10). docs/CLIENTS.md has the reasons.
"""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from math import inf
from time import monotonic

import redis.asyncio
from redis.backoff import NoBackoff


class Busy(Exception):
    """Another owner has the lock."""


class Lost(Exception):
    """The lock ended before the body did: another owner may have worked at the same time."""


class Held:
    """A lock that is held, and before that the attempts to get it."""

    def __init__(self, key, words, wait, timeout):
        self.key, self.words, self.fence, self.own, self.loss = key, words, None, None, None
        self.end, self.most = inf if wait is None else monotonic() + wait, max(timeout - 5, timeout / 2)

    def attempt(self):
        """The LOCK to send next. Its WAIT ends before the client's timeout."""
        wait = max(0, min(self.most, self.end - monotonic()))
        return "LOCK", self.key, *self.words, "WAIT", int(1000 * wait)

    def granted(self, fence):
        if fence is None and monotonic() >= self.end:
            raise Busy(self.key)
        self.fence = fence
        return fence is not None

    def release(self):
        return "UNLOCK", self.key, "FENCE", self.fence

    def lost(self, why):
        return Lost(f"{self.key}, fence {self.fence}: {why}")

    def shown(self, info):
        """Raises Lost unless LOCKINFO, a map or in RESP2 a list, shows this grant."""
        fields = info.items() if isinstance(info, dict) else zip(*[iter(info or ())] * 2)
        for name, value in fields:
            if name in (b"fence", "fence") and value == self.fence:
                return True
            if name in (b"holders", "holders") and any(self.shown(holder) for holder in value):
                return True
        return False

    def check(self):
        try:
            shown = self.shown(self.own.execute_command("LOCKINFO", self.key))
        except redis.RedisError as err:
            raise self.lost(err) from err
        if not shown:
            raise self.lost("it has ended")


class Locks:
    def __init__(self, url="redis://127.0.0.1:7379", connections=64, timeout=30, **options):
        retry = redis.retry.Retry(NoBackoff(), 0)  # a LOCK that the client repeats would be another one
        self.client = redis.Redis.from_url(url, socket_timeout=timeout, retry=retry, **options)
        self.free, self.timeout = threading.BoundedSemaphore(connections), timeout

    @contextmanager
    def __call__(self, key, *words, wait=None):
        held = Held(key, words, wait, self.timeout)
        if not self.free.acquire(timeout=wait):
            raise Busy(key)
        try:
            with self.client.client() as held.own:
                try:
                    while not held.granted(held.own.execute_command(*held.attempt())):
                        pass
                    try:
                        yield held
                    except BaseException:
                        with suppress(redis.RedisError):  # the body's exception is the one to know
                            held.own.execute_command(*held.release())
                        raise
                    try:
                        held.own.execute_command(*held.release())
                    except redis.RedisError as err:
                        raise held.lost(err) from err
                except Busy:
                    raise
                except BaseException:
                    held.own.connection.disconnect()  # whatever is on its way there ends with it
                    raise
        finally:
            self.free.release()


class AsyncHeld(Held):
    async def check(self):
        try:
            shown = self.shown(await self.own.execute_command("LOCKINFO", self.key))
        except redis.RedisError as err:
            raise self.lost(err) from err
        if not shown:
            raise self.lost("it has ended")

    async def watch(self, body, ended):
        """Cancels the body when the lock is lost. Looks each second."""
        while not self.loss and not ended.is_set():
            try:
                await asyncio.wait_for(ended.wait(), 1)
            except asyncio.TimeoutError:
                try:
                    await self.check()
                except Lost as loss:
                    self.loss = loss
                    if not ended.is_set():
                        body.cancel()


class AsyncLocks:
    def __init__(self, url="redis://127.0.0.1:7379", connections=64, timeout=30, **options):
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        self.client = redis.asyncio.Redis.from_url(url, socket_timeout=timeout, retry=retry, **options)
        self.free, self.timeout = asyncio.Semaphore(connections), timeout

    @asynccontextmanager
    async def __call__(self, key, *words, wait=None):
        held, ended = AsyncHeld(key, words, wait, self.timeout), asyncio.Event()
        try:
            await asyncio.wait_for(self.free.acquire(), None if wait is None else max(wait, 0.01))
        except asyncio.TimeoutError:
            raise Busy(key) from None
        try:
            async with self.client.client() as held.own:
                try:
                    while not held.granted(await held.own.execute_command(*held.attempt())):
                        pass
                    watch = asyncio.create_task(held.watch(asyncio.current_task(), ended))
                    try:
                        try:
                            yield held
                        finally:
                            ended.set()
                            await watch
                    except BaseException as err:
                        with suppress(redis.RedisError):
                            await held.own.execute_command(*held.release())
                        if held.loss and isinstance(err, asyncio.CancelledError):
                            asyncio.current_task().uncancel()
                            raise held.loss from None
                        raise
                    try:
                        await held.own.execute_command(*held.release())
                    except redis.RedisError as err:
                        raise held.lost(err) from err
                except Busy:
                    raise
                except BaseException:
                    await held.own.connection.disconnect()
                    raise
        finally:
            self.free.release()
