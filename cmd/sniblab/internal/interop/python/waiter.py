"""Waits for a lock with the Lock of redis-py, which polls every 100 ms, and says that it has it."""

import sys

import redis

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
lock = client.lock(sys.argv[3], timeout=60, sleep=0.1)
print("waits", flush=True)
lock.acquire()
print("got it", flush=True)
sys.stdin.read()
lock.release()
