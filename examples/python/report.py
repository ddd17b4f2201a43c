"""Write a report under the lock jobs/report, which "snib run jobs/report -- COMMAND" takes, too."""

import sys

import redis

from redis_lock import LockHeld, locked

client = redis.Redis.from_url(sys.argv[1])
try:
    with locked(client, "jobs/report", ttl=30, wait=5) as lock:
        for page in range(3):
            if lock.left() < 10:  # a page takes less than 10 s
                lock.extend(30)  # raises LockLost if the hold is over
            print("page", page)
except LockHeld:
    sys.exit("another host writes the report")
