"""Acquires and releases locks in ZooKeeper by order, with kazoo.

The name of a lock is its kind, mutex or semaphore, and its path. Its ttl is how long to wait.
"""

import sys

import orders
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

client = KazooClient(hosts=f"{sys.argv[1]}:{sys.argv[2]}", timeout=10)
client.start(30)
locks = {}


def carry_out(request):
    if request["order"] == "release":
        locks.pop(request["value"]).release()
        return {}
    kind, path = request["name"].split(" ", 1)
    if kind == "semaphore":
        lock = client.Semaphore(path, max_leases=2)
    else:
        lock = client.Lock(path, extra_lock_patterns=["-lock-", "-__WRIT__", "-__READ__"])
    try:
        if not lock.acquire(timeout=request["ttl"] / 1000):
            return {"refused": True}
    except LockTimeout:
        return {"refused": True}
    value = str(request["id"])
    locks[value] = lock
    return {"value": value}


orders.serve(carry_out)
client.stop()
