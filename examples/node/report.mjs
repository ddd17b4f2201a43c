// Writes a report under the lock jobs/report, which "snib run jobs/report -- COMMAND" takes, too.
import Redis from "ioredis";
import { LockHeld, withLock } from "./lock.mjs";

const client = new Redis(process.argv[2]);
try {
  await withLock(client, "jobs/report", { ttl: 30_000, wait: 5_000 }, async (lock) => {
    for (let page = 0; page < 3; page++) {
      if (lock.left < 10_000) await lock.extend(30_000); // a page takes less than 10 s; throws LockLost if the hold is over
      console.log("page", page);
    }
  });
} catch (error) {
  if (!(error instanceof LockHeld)) throw error;
  console.error("another host writes the report");
  process.exitCode = 1;
} finally {
  client.disconnect();
}
