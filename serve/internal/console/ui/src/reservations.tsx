import { useEffect, useRef, useState } from "preact/hooks";
import { Absent } from "./absent";
import { ends } from "./lock";
import type { Model, Seen } from "./model";
import { duration, link, visible } from "./text";
import { Holder, Store, get, post } from "./wire";

const hour = 3_600_000, year = 8760 * hour;

interface Entry { lock: Seen; hold: Holder }

// act sends a message, and returns what went wrong; "" if nothing did.
async function act(path: string, message: unknown): Promise<string> {
  try {
    await post(path, message);
    return "";
  } catch (err) {
    return (err as Error).message;
  }
}

export function Reservations({ model, now }: { model: Model; now: number }) {
  const all: Entry[] = [];
  for (const name of model.names) {
    const lock = model.locks.get(name);
    for (const hold of lock?.holders ?? []) if (hold.kind === "reserved") all.push({ lock: lock!, hold });
  }
  return (
    <section aria-labelledby="title">
      <h1 id="title" tabIndex={-1}>Reservations</h1>
      <p class="muted">A reservation holds a lock for people: no process has it, and nobody renews it.</p>
      <Reserve model={model} />
      {all.length ? all.map((e) => <Reserved key={e.lock.name + e.hold.token} entry={e} now={now} />) : <Absent model={model} now={now} text="No lock is reserved." />}
    </section>
  );
}

// useLimit returns for how many ms the store keeps a lock at most; 0: for as long as anybody wants.
function useLimit(model: Model): number {
  const [limit, setLimit] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    get<Store>("v1/store", stop.signal).then((s) => setLimit((s.max_ttl_ms ?? 0) < 10 * year ? s.max_ttl_ms ?? 0 : 0), () => { /* the service says it, too */ });
    return () => stop.abort();
  }, [model.link]);
  return limit;
}

function Reserve({ model }: { model: Model }) {
  const limit = useLimit(model);
  const [name, setName] = useState("");
  const [note, setNote] = useState("");
  const [hours, setHours] = useState("");
  const [problem, setProblem] = useState("");
  const [done, setDone] = useState("");
  const send = async (e: Event) => {
    e.preventDefault();
    const failed = await act("v1/acquire", { name, label: note.trim(), reserve: true, brief: true, ttl_ms: Math.round(Number(hours) * hour) || undefined });
    setProblem(failed);
    setDone(failed ? "" : name);
    if (!failed) { setName(""); setNote(""); setHours(""); }
  };
  return (
    <form class="card" onSubmit={send} aria-label="Reserve a lock">
      <label>Lock <input id="reserve-name" required autocomplete="off" spellcheck={false} value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
      <label>Why <input id="reserve-note" required maxLength={250} autocomplete="off" value={note} onInput={(e) => setNote(e.currentTarget.value)} /></label>
      <label>Hours <input id="reserve-hours" type="number" min="0.01" max={(limit || 10 * year) / hour} step="any" required={limit > 0}
        placeholder={limit ? `at most ${duration(limit)} in this store` : "until it is handed back"} value={hours} onInput={(e) => setHours(e.currentTarget.value)} /></label>
      {problem && <p role="alert" class="problem">{problem}</p>}
      {done && <p role="status"><span class="mono wrap">{visible(done)}</span> is reserved.</p>}
      <div class="actions"><button type="submit">Reserve</button></div>
    </form>
  );
}

function Reserved({ entry: { lock, hold }, now }: { entry: Entry; now: number }) {
  const [editing, setEditing] = useState<"" | "take over" | "hand back">("");
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const age = now - lock.seen;
  const send = async (e: Event) => {
    e.preventDefault();
    const what = { name: lock.name, token: hold.token, reserved: true };
    const failed = editing === "take over" ? await act("v1/label", { ...what, label: text.trim() }) : await act("v1/break", { ...what, reason: text.trim() });
    setProblem(failed);
    if (!failed) setEditing("");
  };
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => { field.current?.focus(); }, [editing]); // once: later it would take what is typed elsewhere
  const begin = (what: "take over" | "hand back") => { setEditing(what); setText(""); setProblem(""); };
  return (
    <div class="card">
      <h2><a class="mono wrap" href={link("lock", lock.name)}>{visible(lock.name)}</a></h2>
      <dl>
        <dt>Why</dt><dd class="wrap">{visible(hold.label ?? "")}</dd>
        <dt>Since</dt><dd>{hold.held_ms ? duration(hold.held_ms + age) : "the store does not know"}</dd>
        <dt>Ends</dt><dd>{ends(hold, age)}</dd>
        <dt>Waiting</dt><dd>{lock.waiters.length}</dd>
      </dl>
      {!Number.isSafeInteger(hold.token) ? <p class="muted">This token is too great for a browser. End the reservation by command: snib release.</p> : editing === "" ? (
        <div class="actions">
          <button type="button" onClick={() => begin("take over")}>Take over…</button>
          <button type="button" onClick={() => begin("hand back")}>Hand back…</button>
        </div>
      ) : (
        <form onSubmit={send} onKeyDown={(e) => { if (e.key === "Escape") setEditing(""); }} aria-label={editing === "take over" ? "Take the reservation over" : "Hand the lock back"}>
          <label>{editing === "take over" ? "New note" : "Reason"}
            <input class="reserved-text" required maxLength={250} autocomplete="off" ref={field} value={text} onInput={(e) => setText(e.currentTarget.value)} />
          </label>
          {problem && <p role="alert" class="problem">{problem}</p>}
          <div class="actions">
            <button type="button" onClick={() => setEditing("")}>Cancel</button>
            <button type="submit">{editing === "take over" ? "Take over" : "Hand back"}</button>
          </div>
        </form>
      )}
    </div>
  );
}
