"""Locks of a lock service, snib serve, over HTTP. They need nothing but Python 3.8 or later."""

import contextlib
import http.client
import json
import secrets
import threading
import time
import urllib.error
import urllib.request


class LockHeld(Exception):
    """Somebody else holds the lock."""


class LockLost(Exception):
    """The hold ended before its release: somebody else may have held the lock since."""


class Unavailable(Exception):
    """No replica of the service answers, or its store does not."""


def now():
    """Read a clock that goes on while the machine is suspended, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lock:
    """One hold on a lock. A thread renews it, and calls on_lost if it is lost. Make a new Lock for each hold."""

    def __init__(self, urls, name, ttl=30.0, credential=None, on_lost=lambda: None):
        self.urls, self.name, self.ttl, self.credential, self.on_lost = list(urls), name, ttl, credential, on_lost
        self.current = 0  # the replica that is asked first
        self.id = secrets.token_hex(16)  # a secret: whoever knows it can release the lock
        self.token = None  # the fencing token
        self.deadline, self.ended = 0.0, threading.Event()
        self.lost = None  # whether the hold had ended before its release; None: it was not released

    def acquire(self, wait=0.0):
        """Acquire the lock, and wait for it for so many seconds at most. Raise LockHeld after that, or Unavailable."""
        give_up, left = now() + wait, wait
        try:
            while not self._try_acquire(left):
                if not left:
                    raise LockHeld(self.name)
                left = max(0.0, give_up - now())  # the last request does not wait, and its answer counts
        except BaseException:
            with contextlib.suppress(Unavailable):
                self._send("withdraw", 5)  # a grant that is on its way must not stay
            raise
        threading.Thread(target=self._renew, daemon=True).start()

    def _try_acquire(self, left):
        wait = min(10.0, left)
        try:  # the id is the same each time: after a lost answer, the client gets the hold that it has, or keeps its place
            status, got, sent, _ = self._send("acquire", wait + 5, ttl_ms=self._ttl_ms(), wait_ms=int(1000 * wait))
        except Unavailable:
            if not left:
                raise
            status = 429
        if status == 200:
            self.id, self.token = got["id"], got["token"]
            self._set_deadline(sent + got["waited_ms"] / 1000)
            if self.left():
                return True
            status = 429  # the grant came too late to rely on: ask again
        if status == 429 and not left:
            raise Unavailable(self.name)
        if status not in (202, 409, 423, 429):
            raise ValueError(got.get("detail", status))
        if status != 202:  # that is a place in the queue, and no hold: the next request keeps it
            time.sleep(min(left, 0.5))
        return False

    def left(self):
        """Return for how many seconds the lock can still be relied on: 0 once the hold may have ended."""
        return 0.0 if self.ended.is_set() else max(0.0, self.deadline - now())

    def check(self):
        """Raise LockLost unless the lock can be relied on. Call it right before each step that others see."""
        if not self.left():
            raise LockLost(self.name)

    def fence(self, resource):
        """Keep all earlier holds away from a resource. Raise LockLost if a later hold has come to it."""
        status, got, _, _ = self._send("fence", 5, name=None, resource=resource, token=self.token)
        if status == 409:
            raise LockLost(self.name)
        if status != 204:
            raise ValueError(got.get("detail", status))

    def release(self):
        """Give the lock up. After Unavailable, call it again."""
        again = self.lost is not None
        if not again:
            self.lost = not self.left()
        self.ended.set()
        status, got, _, repeated = self._send("release", 5)
        if status == 410:  # maybe because a request whose answer was lost has released it
            self.lost = self.lost or not (again or repeated)
            if self.lost:
                raise LockLost(self.name)
        if status not in (204, 410):
            raise ValueError(got.get("detail", status))

    def _renew(self):
        pause = self.ttl / 3
        while not self.ended.wait(min(pause, self.left())) and self.left():
            pause = self.ttl / 20
            with contextlib.suppress(Unavailable):
                status, _, sent, _ = self._send("renew", max(0.05, self.left() / len(self.urls)), ttl_ms=self._ttl_ms())
                if status == 200 and self.left():  # else check may have called the hold lost
                    self._set_deadline(sent)
                    pause = self.ttl / 3
                elif status == 410:
                    self.deadline = 0.0
        if not self.ended.is_set():
            self.on_lost()

    def _ttl_ms(self):
        return int(self.ttl * 1000)

    def _set_deadline(self, start):
        self.deadline = start + self.ttl * 0.99 - 0.002  # clocks differ, and this process needs time to notice

    def _send(self, operation, timeout, **fields):
        """Post a message to one replica after the other until one answers in time.

        Return the status, the answer, when it was sent, and whether it was sent before without an answer.
        """
        message = {"name": self.name, "id": self.id, **fields}
        body = json.dumps({k: v for k, v in message.items() if v is not None}).encode()
        headers = {"Content-Type": "application/json"}
        if self.credential:
            headers["Authorization"] = "Bearer " + self.credential
        first = self.current  # requests of other threads may change it
        for tries in range(len(self.urls)):
            at = (first + tries) % len(self.urls)
            request, sent = urllib.request.Request(f"{self.urls[at]}/v1/{operation}", body, headers), now()
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # no answer, half of one, or a proxy's
                try:
                    response = urllib.request.urlopen(request, timeout=timeout)
                except urllib.error.HTTPError as e:
                    response = e
                with response:
                    if response.code < 500:
                        answer, self.current = json.loads(response.read() or b"{}"), at
                        return response.code, answer, sent, tries > 0
        raise Unavailable(self.name)
