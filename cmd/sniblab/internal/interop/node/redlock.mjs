// Takes, extends and releases locks by order: one JSON object for each line of stdin, and one with the same id as the answer on stdout.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import Redlock, { ExecutionError, ResourceLockedError } from "redlock";

const [host, port] = process.argv.slice(2);
const client = new Redis(Number(port), host);
const redlock = new Redlock([client]);
const once = { retryCount: 0 };
const patiently = { retryCount: -1, retryDelay: 50, retryJitter: 20 };
const locks = new Map(); // by their values

const orders = {
  async acquire({ name, ttl, wait }) {
    const lock = await redlock.acquire([name], ttl, wait ? patiently : once);
    locks.set(lock.value, lock);
    return { value: lock.value };
  },
  async extend({ value, ttl }) {
    locks.set(value, await redlock.extend(locks.get(value), ttl, once));
  },
  async release({ value }) {
    await redlock.release(locks.get(value), once);
  },
};

// isRefusal reports whether the lock was somebody else's, and nothing worse.
async function isRefusal(error) {
  if (!(error instanceof ExecutionError) || error.attempts.length === 0) return false;
  for (const { votesAgainst } of await Promise.all(error.attempts)) {
    for (const vote of votesAgainst.values()) {
      if (!(vote instanceof ResourceLockedError)) return false;
    }
  }
  return true;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, order, ...args } = JSON.parse(line);
  orders[order](args)
    .catch(async (error) => ((await isRefusal(error)) ? { refused: true } : { error: String(error) }))
    .then((answer) => process.stdout.write(JSON.stringify({ id, ...answer }) + "\n"));
}
client.disconnect();
