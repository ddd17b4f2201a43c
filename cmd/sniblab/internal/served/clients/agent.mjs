// Does what it is told with a lock of examples/node, and says what comes of it.
import { createInterface } from "node:readline";

import { Lock, LockLost } from "./service_lock.mjs";

const lock = new Lock(process.argv.slice(2), "job", { ttl: 10_000 });
lock.signal.addEventListener("abort", () => {
  if (lock.signal.reason instanceof LockLost) console.log("lost");
});
const does = {
  acquire: () => lock.acquire(60_000),
  try: () => lock.acquire(),
  wait: () => lock.acquire(1000),
  check: () => lock.check(),
  fence: () => lock.fence("disk"),
  fences: () => Promise.all([lock.fence("disk"), lock.fence("disk")]),
  release: () => lock.release(),
};
for await (const line of createInterface(process.stdin)) {
  try {
    await does[line]();
    console.log("done", lock.token);
  } catch (e) {
    console.log(e.constructor.name);
  }
}
process.exit();
