// The targets that are written for Node.js: node target.mjs NAME.
// A target returns a function that waits for the lock so many milliseconds, and resolves to a hold or null. A hold has
// two functions, held and release.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import Redlock, { ExecutionError, ResourceLockedError } from "redlock";

const send = (message) => process.stdout.write(JSON.stringify(message) + "\n");

async function connect({ url }) {
  const client = new Redis(url);
  client.on("error", () => {}); // it connects again
  await client.ping();
  return client;
}

// isRefusal reports whether the lock was somebody else's in each attempt, and nothing worse.
async function isRefusal(error) {
  if (!(error instanceof ExecutionError) || error.attempts.length === 0) return false;
  for (const { votesAgainst } of await Promise.all(error.attempts)) {
    for (const vote of votesAgainst.values()) {
      if (!(vote instanceof ResourceLockedError)) return false;
    }
  }
  return true;
}

// orDenied resolves to null if the lock was not granted because somebody else has it.
async function orDenied(grant) {
  try {
    return await grant;
  } catch (error) {
    if (await isRefusal(error)) return null;
    throw error;
  }
}

const targets = {
  async "node-redlock"(start) {
    const redlock = new Redlock([await connect(start)]);
    return () =>
      orDenied(
        redlock
          .acquire([start.name], start.ttl)
          .then((lock) => ({ held: () => Date.now() < lock.expiration, release: () => lock.release() })),
      );
  },

  async "node-redlock-using"(start) {
    const redlock = new Redlock([await connect(start)]);
    return () =>
      orDenied(
        new Promise((granted, failed) => {
          let finish;
          const released = redlock.using(
            [start.name],
            start.ttl,
            (signal) =>
              new Promise((done) => {
                finish = done;
                granted({ held: () => !signal.aborted, release: () => (finish(), released) });
              }),
          );
          released.catch(failed);
        }),
      );
  },
};

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const acquire = await targets[process.argv[2]](JSON.parse((await lines.next()).value));
send({ type: "ready" });
let hold = null;
for await (const line of lines) {
  const { type, id } = JSON.parse(line);
  try {
    if (type === "acquire") {
      hold = await acquire();
      send({ type: hold ? "granted" : "denied", id });
    } else if (type === "held") {
      send({ type: "held", id, held: hold.held() });
    } else {
      await hold.release();
      send({ type: "released", id });
    }
  } catch (error) {
    send({ type: "error", id, error: String(error) });
  }
}
process.exit();
