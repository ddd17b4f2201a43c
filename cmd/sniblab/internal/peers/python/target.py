"""The targets that are written in Python: python3 target.py NAME.

A target is a function of the first message of the judge. It returns a function that waits for
the lock so many seconds, and returns a hold or None. A hold is a pair of functions: whether the
lock is still held, and the release.
"""

import json
import sys
import threading

output = threading.Lock()


def send(**message):
    with output:
        print(json.dumps(message), flush=True)


def redis_client(start):
    import redis

    client = redis.Redis.from_url(start["url"])
    client.ping()
    return client


def redis_py(start, timeout=None):
    client = redis_client(start)

    def acquire(wait):
        lock = client.lock(start["name"], timeout=timeout)
        return (lock.owned, lock.release) if lock.acquire(blocking_timeout=wait) else None

    return acquire


def redis_py_timeout(start):
    return redis_py(start, timeout=start["ttl"] / 1000)


def python_redis_lock(start, **options):
    import redis_lock

    client = redis_client(start)

    def acquire(wait):
        lock = redis_lock.Lock(client, start["name"], **options)
        held = lambda: lock.get_owner_id() == lock.id
        return (held, lock.release) if lock.acquire(timeout=int(wait)) else None

    return acquire


def python_redis_lock_renewal(start):
    return python_redis_lock(start, expire=start["ttl"] // 1000, auto_renewal=True)


def pottery(start):
    from pottery import Redlock

    client = redis_client(start)

    def acquire(wait):
        lock = Redlock(key=start["name"], masters={client}, auto_release_time=start["ttl"] / 1000)
        return (lambda: lock.locked() > 0, lock.release) if lock.acquire(timeout=wait) else None

    return acquire


def kazoo(start, listen=False):
    from kazoo.client import KazooClient, KazooState
    from kazoo.exceptions import LockTimeout

    client = KazooClient(hosts=start["url"].removeprefix("zk://"), timeout=start["ttl"] / 1000)
    states = []  # since the last acquisition began

    if listen:
        client.add_listener(lambda state: states.append(state))
    client.start(20)

    def acquire(wait):
        lock = client.Lock("/" + start["name"], start["client"])
        states.clear()
        try:
            if not lock.acquire(timeout=wait):
                return None
        except LockTimeout:
            return None

        def held():
            if not listen:
                return lock.is_acquired
            return KazooState.LOST not in states and (not states or states[-1] == KazooState.CONNECTED)

        return held, lock.release

    return acquire


def kazoo_listener(start):
    return kazoo(start, listen=True)


def serve(open_lock):
    acquire = open_lock(json.loads(sys.stdin.readline()))
    send(type="ready")
    hold = None
    for line in sys.stdin:
        message = json.loads(line)
        answer = {"id": message["id"]}
        try:
            if message["type"] == "acquire":
                hold = acquire(message["wait"] / 1000)
                answer["type"] = "granted" if hold else "denied"
            elif message["type"] == "held":
                answer["type"] = "held"
                answer["held"] = still_held(hold)
            else:
                hold[1]()
                answer["type"] = "released"
        except Exception as error:
            answer = {"id": message["id"], "type": "error", "error": repr(error)}
        send(**answer)


def still_held(hold):
    """An application that can't look at its lock does not write."""
    try:
        return bool(hold[0]())
    except Exception:
        return False


targets = {
    "redis-py": redis_py,
    "redis-py-timeout": redis_py_timeout,
    "python-redis-lock": python_redis_lock,
    "python-redis-lock-renewal": python_redis_lock_renewal,
    "pottery": pottery,
    "kazoo": kazoo,
    "kazoo-listener": kazoo_listener,
}

if __name__ == "__main__":
    serve(targets[sys.argv[1]])
