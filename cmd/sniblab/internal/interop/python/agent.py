"""Acquires, extends and releases locks by order, as node/redlock.mjs does."""

import sys

import redis

import orders
from redis_lock import Lock, LockLost

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
locks = {}  # by their values


def carry_out(request):
    if request["order"] == "acquire":
        lock = Lock(client, request["name"], request["ttl"] / 1000)
        if not (lock.acquire(3600) if request.get("wait") else lock.try_acquire()):
            return {"refused": True}
        locks[lock.value] = lock
        return {"value": lock.value}
    lock = locks[request["value"]]
    try:
        if request["order"] == "extend":
            lock.extend(request["ttl"] / 1000)
        else:
            lock.release()
    except LockLost:
        return {"refused": True}
    return {}


orders.serve(carry_out)
