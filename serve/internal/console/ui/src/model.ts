// The model is what the page knows of the locks: it follows the stream of events.

import { Failure, Holder, Lock, Process, StreamEvent, hasToken, request } from "./wire";

// A Seen lock has the moment, by this page's clock, at which its relative times were true.
export interface Seen extends Lock { seen: number }

// A Span is a hold or a wait that was seen since the page was opened.
export interface Span extends Process {
  kind: "hold" | "wait"; name: string; key: string; token?: number; start: number; end?: number; granted?: boolean;
}

export type Link = "connecting" | "live" | "stale" | "down" | "login" | "forbidden";

const maxSpans = 4000;
const silence = 60_000; // after which a connection counts as dead: the service lists a large store once in 50 s

export class Model {
  locks = new Map<string, Seen>();
  names: string[] = []; // sorted
  spans: Span[] = [];
  link: Link = "connecting";
  problem = "";
  seenAt = 0; // when the service saw what the page shows, by this page's clock; 0: never
  private ahead = 0; // how far this page's clock is ahead of the service's
  private open = new Map<string, Span>();
  private listeners = new Set<() => void>();
  private scheduled = false;
  private isSorted = true;
  private stop = new AbortController();

  subscribe(f: () => void): () => void {
    this.listeners.add(f);
    return () => { this.listeners.delete(f); };
  }

  // changed draws the page once, however many events came. Hidden pages get no frames.
  private changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      if (!this.isSorted) {
        this.isSorted = true;
        this.names = [...this.locks.keys()].sort();
      }
      for (const f of this.listeners) f();
    }, 60);
  }

  private set(link: Link, problem = "") {
    this.link = link;
    this.problem = problem;
    this.changed();
  }

  // restart connects at once, with another token for example.
  restart(forget: boolean) {
    this.stop.abort();
    this.stop = new AbortController();
    if (forget) {
      this.locks.clear();
      this.spans = [];
      this.open.clear();
      this.isSorted = false;
      this.seenAt = 0;
    }
    this.set("connecting");
    void this.run(this.stop.signal);
  }

  private async run(stopped: AbortSignal) {
    for (let failures = 0; !stopped.aborted; ) {
      try {
        await this.follow(stopped, () => { failures = 0; });
        continue; // the service ends streams from time to time
      } catch (e) {
        if (stopped.aborted) return;
        const f = e instanceof Failure ? e : new Failure(0, "the connection broke");
        if (f.status === 401) return this.set("login", hasToken() ? f.message : "");
        if (f.status === 403) return this.set("forbidden", f.message);
        this.set("down", f.message);
      }
      failures++;
      await pause(Math.min(5000, 250 * 2 ** failures) * (0.75 + Math.random() / 2), stopped);
    }
  }

  private async follow(stopped: AbortSignal, alive: () => void) {
    const link = new AbortController();
    const end = () => link.abort();
    stopped.addEventListener("abort", end);
    let timer = setTimeout(end, silence);
    const began = Date.now();
    try {
      const answer = await request("v1/events", { signal: link.signal });
      this.ahead = Date.now() - (Date.parse(answer.headers.get("Date") ?? "") || Date.now());
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      let next: Map<string, Seen> | undefined;
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(end, silence);
        alive();
        const lines = (rest + value).split("\n");
        rest = lines.pop()!;
        for (const line of lines) next = this.take(JSON.parse(line), next);
      }
    } catch (e) {
      if (link.signal.aborted && !stopped.aborted) throw new Failure(0, "the service says nothing any more");
      throw e;
    } finally {
      clearTimeout(timer);
      stopped.removeEventListener("abort", end);
      link.abort();
    }
    if (Date.now() - began < 1000) throw new Failure(0, "the service ended the connection");
  }

  // take takes an event in. Next has the locks of a snapshot that is under way.
  private take(e: StreamEvent, next?: Map<string, Seen>): Map<string, Seen> | undefined {
    const now = Math.min(Date.now(), e.at ? Date.parse(e.at) + this.ahead : Infinity);
    switch (e.type) {
      case "reset":
        return new Map();
      case "lock":
        next?.set(e.lock!.name, { ...e.lock!, seen: 0 }); // until the end of the snapshot says when it was
        return next;
      case "ready":
        this.replace(next ?? new Map(), now);
        break;
      case "unavailable":
        this.set("stale", "it can't be listed: it does not answer, or has more than 100,000 locks");
        return next;
      case "acquired": case "released": case "changed":
        this.put({ ...e.lock!, seen: now }, now);
        break;
    }
    this.seenAt = now;
    this.set("live");
    return undefined;
  }

  private replace(next: Map<string, Seen>, now: number) {
    for (const name of this.locks.keys()) {
      if (!next.has(name)) this.track({ name, mode: "", holders: [], waiters: [], seen: now }, now);
    }
    for (const lock of next.values()) {
      lock.seen = now;
      this.track(lock, now);
    }
    this.locks = next;
    this.isSorted = false;
  }

  private put(lock: Seen, now: number) {
    this.track(lock, now);
    if (lock.holders.length + lock.waiters.length === 0) {
      if (this.locks.delete(lock.name)) this.isSorted = false;
      return;
    }
    if (!this.locks.has(lock.name)) this.isSorted = false;
    this.locks.set(lock.name, lock);
  }

  // track begins and ends the spans of a lock.
  private track(lock: Seen, now: number) {
    const there = new Set<string>();
    for (const h of lock.holders) {
      const key = holdKey(lock.name, h);
      there.add(key);
      this.begin(key, { kind: "hold", name: lock.name, key, token: h.token, host: h.host, pid: h.pid, label: h.label, start: now - (h.held_ms ?? 0) });
    }
    const waiting = waitKeys(lock);
    for (const [i, w] of lock.waiters.entries()) {
      const key = waiting[i];
      there.add(key);
      this.begin(key, { kind: "wait", name: lock.name, key, host: w.host, pid: w.pid, label: w.label, start: now - w.waited_ms });
    }
    const before = this.locks.get(lock.name);
    if (!before) return;
    const keys = [...before.holders.map((h) => holdKey(lock.name, h)), ...waitKeys(before)];
    for (const key of keys) {
      const span = this.open.get(key);
      if (there.has(key) || !span) continue;
      span.end = now;
      span.granted = span.kind === "wait" && lock.holders.some((h) => key.startsWith(waiterOf(lock.name, h)));
      this.open.delete(key);
    }
  }

  private begin(key: string, span: Span) {
    if (this.open.has(key)) return;
    this.open.set(key, span);
    this.spans.push(span);
    if (this.spans.length > 2 * maxSpans) { // what is still open stays
      const old = this.spans.slice(0, maxSpans).filter((s) => !s.end);
      this.spans = [...old.slice(-maxSpans), ...this.spans.slice(maxSpans)];
    }
  }
}

function holdKey(name: string, h: Holder): string { return `h ${h.token} ${name}`; }

function waiterOf(name: string, p: Process): string { return `w ${name} ${p.pid ?? 0} ${p.host ?? ""} `; }

// waitKeys returns a key for each waiter. Those of one process are numbered.
function waitKeys(lock: Lock): string[] {
  const count = new Map<string, number>();
  return lock.waiters.map((w) => {
    const one = waiterOf(lock.name, w), n = count.get(one) ?? 0;
    count.set(one, n + 1);
    return one + n;
  });
}

function pause(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    stopped.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
  });
}
