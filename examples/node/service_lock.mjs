// Locks of a lock service, snib serve, over HTTP, for Node.js 20 or later and for browsers.

// LockHeld means that somebody else holds the lock.
export class LockHeld extends Error {}

// LockLost means that the hold ended before its release: somebody else may have held the lock since.
export class LockLost extends Error {}

// Unavailable means that no replica of the service answers, or that its store does not.
export class Unavailable extends Error {}

const maxTimer = 2 ** 31 - 1; // milliseconds: a longer timer fires at once

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A Lock is one hold on a lock, which a timer renews. Make a new Lock for each hold.
export class Lock {
  #ended = new AbortController();
  #timer;
  #deadline = 0;
  #current = 0; // the replica that is asked first
  #lost; // whether the hold had ended before its release; undefined: it was not released

  constructor(urls, name, { ttl = 30_000, credential } = {}) {
    Object.assign(this, { urls, name, ttl, credential });
    this.id = crypto.randomUUID(); // a secret: whoever knows it can release the lock
  }

  // left is for how many milliseconds the lock can still be relied on: 0 once the hold may have ended. Its clock may
  // stand still while the machine is suspended.
  get left() {
    return this.#ended.signal.aborted ? 0 : Math.max(0, this.#deadline - performance.now());
  }

  // signal is aborted when the hold ends, but late if the event loop is blocked. Pass it to what is done under the lock.
  get signal() {
    return this.#ended.signal;
  }

  // check throws LockLost unless the lock can be relied on. Call it right before each step that others see.
  check() {
    if (!this.left) throw new LockLost(this.name);
  }

  // acquire acquires the lock, and waits for it for so many milliseconds at most. It throws LockHeld after that, or
  // Unavailable.
  async acquire(wait = 0) {
    const giveUp = performance.now() + wait;
    try {
      for (let left = wait; !(await this.#tryAcquire(left)); ) {
        if (!left) throw new LockHeld(this.name);
        left = Math.max(0, giveUp - performance.now()); // the last request does not wait, and its answer counts
      }
    } catch (e) {
      await this.#send("withdraw", 5000).catch(() => {}); // a grant that is on its way must not stay
      throw e;
    }
  }

  async #tryAcquire(left) {
    const wait_ms = Math.ceil(Math.min(10_000, left));
    let got = { status: 429 };
    try { // the id is the same each time: after a lost answer, the client gets the hold that it has, or keeps its place
      got = await this.#send("acquire", wait_ms + 5000, { ttl_ms: this.ttl, wait_ms });
    } catch (e) {
      if (!(e instanceof Unavailable) || !left) throw e;
    }
    if (got.status === 200) {
      Object.assign(this, { id: got.answer.id, token: got.answer.token }); // the token is for fencing
      this.#setDeadline(got.sent + got.answer.waited_ms);
      if (this.left) {
        this.#renewAfter(this.ttl / 3);
        return true;
      }
      got.status = 429; // the grant came too late to rely on: ask again
    }
    if (got.status === 429 && !left) throw new Unavailable(this.name);
    if (![202, 409, 423, 429].includes(got.status)) throw new Error(got.answer.detail);
    if (got.status !== 202) await sleep(Math.min(left, 500)); // 202 is a place in the queue, and no hold: ask again
    return false;
  }

  // fence keeps all earlier holds away from a resource. It throws LockLost if a later hold has come to it.
  async fence(resource) {
    const { status, answer } = await this.#send("fence", 5000, { name: undefined, resource, token: this.token });
    if (status === 409) throw new LockLost(this.name);
    if (status !== 204) throw new Error(answer.detail);
  }

  // release gives the lock up. After Unavailable, call it again.
  async release() {
    const again = this.#lost !== undefined;
    this.#lost ??= !this.left;
    this.#end("released");
    const { status, answer, repeated } = await this.#send("release", 5000);
    // Otherwise a request whose answer was lost has released it.
    if (status === 410 && (this.#lost ||= !(again || repeated))) throw new LockLost(this.name);
    if (![204, 410].includes(status)) throw new Error(answer.detail);
  }

  #end(why) {
    clearTimeout(this.#timer);
    this.#ended.abort(why);
  }

  #setDeadline(start) {
    this.#deadline = start + this.ttl * 0.99 - 2; // clocks differ, and this process needs time to notice
  }

  #renewAfter(pause) {
    if (this.signal.aborted) return;
    this.#timer = setTimeout(() => this.#renew(), Math.min(pause, this.left, maxTimer));
  }

  async #renew() {
    if (!this.left) return this.#end(new LockLost(this.name));
    const timeout = Math.min(maxTimer, Math.max(50, this.left / this.urls.length));
    const got = await this.#send("renew", timeout, { ttl_ms: this.ttl }).catch(() => ({}));
    if (got.status === 410) return this.#end(new LockLost(this.name));
    const isRenewed = got.status === 200 && this.left > 0; // else check may have called the hold lost
    if (isRenewed) this.#setDeadline(got.sent);
    this.#renewAfter(isRenewed ? this.ttl / 3 : this.ttl / 20);
  }

  // #send posts a message to one replica after the other until one answers in time.
  async #send(operation, timeout, fields) {
    const body = JSON.stringify({ name: this.name, id: this.id, ...fields });
    const headers = { "Content-Type": "application/json" };
    if (this.credential) headers.Authorization = `Bearer ${this.credential}`;
    const first = this.#current; // requests at the same time may change it
    for (let tries = 0; tries < this.urls.length; tries++) {
      const sent = performance.now(), at = (first + tries) % this.urls.length;
      try {
        const signal = AbortSignal.timeout(Math.ceil(timeout));
        const response = await fetch(`${this.urls[at]}/v1/${operation}`, { method: "POST", body, headers, signal });
        const text = await response.text();
        if (response.status >= 500) continue;
        const answer = JSON.parse(text || "{}");
        this.#current = at;
        return { status: response.status, answer, sent, repeated: tries > 0 };
      } catch {} // no answer, or half of one
    }
    throw new Unavailable(this.name);
  }
}
