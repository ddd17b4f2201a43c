// Locks in Redis that exclude those of snib, and of every client that uses SET key value NX PX.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

// ioredis sends a command again if the connection broke before the answer. So the key may be ours already.
const ACQUIRE = `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0
`;

// Compare and act in one step: between a GET and a DEL from here, the lock could pass to somebody else.
const RELEASE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
const EXTEND = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0";

// LockHeld means that somebody else holds the lock.
export class LockHeld extends Error {}

// LockLost means that the hold ended before its release: somebody else may have held the lock since.
export class LockLost extends Error {}

// A Lock is one hold on a lock. It ends by itself after ttl milliseconds, because nothing renews it.
export class Lock {
  #ended = new AbortController();
  #timer;
  #deadline = 0;

  constructor(client, name, ttl) {
    Object.assign(this, { client, name, ttl });
    this.value = randomBytes(16).toString("hex"); // only this holder knows it, so nobody else can free the lock
  }

  // left is for how many milliseconds the lock can still be relied on: 0 once the hold may have ended.
  get left() {
    return this.#ended.signal.aborted ? 0 : Math.max(0, this.#deadline - performance.now());
  }

  // signal is aborted when left is 0, but late if the event loop is blocked. Pass it to what is done under the lock.
  get signal() {
    return this.#ended.signal;
  }

  // tryAcquire acquires the lock if it is free, and tells whether it was.
  async tryAcquire() {
    if (this.#ended.signal.aborted) this.#ended = new AbortController(); // an earlier hold was lost
    return this.#setTTL(ACQUIRE, this.ttl);
  }

  // acquire waits for the lock for so many milliseconds at most, and tells whether it was acquired.
  async acquire(wait) {
    const giveUp = performance.now() + wait;
    for (let pause = 50; !(await this.tryAcquire()); pause = Math.min(2 * pause, 1000)) {
      const left = giveUp - performance.now();
      if (left <= 0) return false;
      await sleep(Math.min(left, pause * (0.5 + Math.random() / 2))); // random, so that waiters do not ask all at once
    }
    return true;
  }

  // extend lets the hold last for ttl milliseconds from now. A hold that has ended is not revived.
  async extend(ttl) {
    if (!this.left || !(await this.#setTTL(EXTEND, ttl))) throw new LockLost(this.name);
  }

  // release gives the lock up.
  async release() {
    clearTimeout(this.#timer);
    this.#deadline = 0;
    if (!(await this.client.eval(RELEASE, 1, this.name, this.value))) throw new LockLost(this.name);
  }

  async #setTTL(script, ttl) {
    if (ttl >= 2 ** 31) throw new RangeError("ttl is too long for a timer"); // it would fire at once
    const sent = performance.now(); // the key may live from here on, and not from the answer on
    if (!(await this.client.eval(script, 1, this.name, this.value, ttl))) return false;
    this.#deadline = sent + ttl * 0.99 - 2; // clocks differ, and this process needs time to notice
    if (!this.left) return false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ended.abort(new LockLost(this.name)), this.left);
    return true;
  }
}

// withLock runs work under the lock. It throws LockHeld if the lock can't be acquired in time.
export async function withLock(client, name, { ttl, wait = 0 }, work) {
  const lock = new Lock(client, name, ttl);
  if (!(await lock.acquire(wait))) throw new LockHeld(name);
  try {
    return await work(lock);
  } finally {
    await lock.release();
  }
}
