"""Acquires, extends and releases locks by order, as node/redlock.mjs does."""

import json
import sys
import threading

import redis

from redis_lock import Lock, LockLost

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
locks = {}  # by their values
output = threading.Lock()


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


def answer(request):
    try:
        result = carry_out(request)
    except Exception as error:
        result = {"error": repr(error)}
    with output:
        print(json.dumps({"id": request["id"], **result}), flush=True)


for line in sys.stdin:
    threading.Thread(target=answer, args=[json.loads(line)], daemon=True).start()
