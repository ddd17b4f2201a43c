// Acquires, extends and releases locks of examples/node by order, as redlock.mjs does.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import { Lock, LockLost } from "./lock.mjs";

const [host, port] = process.argv.slice(2);
const client = new Redis(Number(port), host);
const locks = new Map(); // by their values

const orders = {
  async acquire({ name, ttl, wait }) {
    const lock = new Lock(client, name, ttl);
    if (!(await (wait ? lock.acquire(3_600_000) : lock.tryAcquire()))) return { refused: true };
    locks.set(lock.value, lock);
    return { value: lock.value };
  },
  extend: ({ value, ttl }) => locks.get(value).extend(ttl),
  release: ({ value }) => locks.get(value).release(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, order, ...args } = JSON.parse(line);
  orders[order](args)
    .catch((error) => (error instanceof LockLost ? { refused: true } : { error: String(error) }))
    .then((answer) => process.stdout.write(JSON.stringify({ id, ...answer }) + "\n"));
}
client.disconnect();
process.exit(); // the timers of locks that were not released
