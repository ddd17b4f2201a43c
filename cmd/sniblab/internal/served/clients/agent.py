"""Does what it is told with a lock of examples/python, and says what comes of it."""

import sys
from concurrent.futures import ThreadPoolExecutor

from service_lock import Lock


def say(*words):
    print(*words, flush=True)


lock = Lock(sys.argv[1:], "job", ttl=10.0, on_lost=lambda: say("lost"))
does = {
    "acquire": lambda: lock.acquire(60),
    "try": lock.acquire,
    "wait": lambda: lock.acquire(1),
    "check": lock.check,
    "fence": lambda: lock.fence("disk"),
    "fences": lambda: list(ThreadPoolExecutor().map(lock.fence, ["disk", "disk"])),
    "release": lock.release,
}
for line in sys.stdin:
    try:
        does[line.strip()]()
        say("done", lock.token)
    except Exception as e:
        say(type(e).__name__)
