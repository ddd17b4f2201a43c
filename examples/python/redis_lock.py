"""Locks in Redis that exclude those of snib, and of every client that uses SET key value NX PX."""

import contextlib
import random
import secrets
import time

# redis-py sends a command again if the connection broke before the answer. So the key may be ours already.
ACQUIRE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0
"""

# Compare and act in one step: between a GET and a DEL from here, the lock could pass to somebody else.
RELEASE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
EXTEND = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"


class LockHeld(Exception):
    """Somebody else holds the lock."""


class LockLost(Exception):
    """The hold ended before its release: somebody else may have held the lock since."""


class Lock:
    """One hold on a lock. It ends by itself after ttl seconds, because nothing renews it."""

    def __init__(self, client, name, ttl):
        self.client, self.name, self.ttl = client, name, ttl
        self.value = secrets.token_hex(16)  # only this holder knows it, so nobody else can free the lock
        self.deadline = 0.0

    def try_acquire(self):
        """Acquire the lock if it is free, and return whether it was."""
        return self._set_ttl(ACQUIRE, self.ttl)

    def acquire(self, wait):
        """Acquire the lock, wait for it for so many seconds at most, and return whether it was acquired."""
        give_up, pause = time.monotonic() + wait, 0.05
        while not self.try_acquire():
            left = give_up - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, random.uniform(pause / 2, pause)))  # random, so that waiters do not ask all at once
            pause = min(2 * pause, 1)
        return True

    def left(self):
        """Return for how many seconds the lock can still be relied on: 0 once the hold may have ended."""
        return max(0.0, self.deadline - time.monotonic())

    def extend(self, ttl):
        """Let the hold last for ttl seconds from now. A hold that has ended is not revived."""
        if not (self.left() and self._set_ttl(EXTEND, ttl)):
            raise LockLost(self.name)

    def release(self):
        """Give the lock up."""
        self.deadline = 0.0
        if not self.client.eval(RELEASE, 1, self.name, self.value):
            raise LockLost(self.name)

    def _set_ttl(self, script, ttl):
        sent = time.monotonic()  # the key may live from here on, and not from the answer on
        if not self.client.eval(script, 1, self.name, self.value, int(ttl * 1000)):
            return False
        self.deadline = sent + ttl * 0.99 - 0.002  # clocks differ, and this process needs time to notice
        return self.left() > 0


@contextlib.contextmanager
def locked(client, name, ttl, wait=0.0):
    """Run the body of a with statement under the lock. Raise LockHeld if it can't be acquired in time."""
    lock = Lock(client, name, ttl)
    if not lock.acquire(wait):
        raise LockHeld(name)
    try:
        yield lock
    finally:
        lock.release()
