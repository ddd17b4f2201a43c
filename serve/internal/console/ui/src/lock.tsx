import { useEffect, useRef, useState } from "preact/hooks";
import { Absent } from "./absent";
import type { Model, Seen, Span } from "./model";
import { duration, link, place, quote, visible } from "./text";
import { Failure, Holder, Lock as WireLock, Process, get, post } from "./wire";

// useLock asks for one lock every two seconds, for the times that events don't tell. An event is newer
// than the last answer.
function useLock(model: Model, name: string): Seen | undefined {
  const [asked, setAsked] = useState<Seen>();
  const known = model.locks.get(name);
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      if (document.hidden || model.link !== "live") return;
      try {
        const l = await get<WireLock>("v1/lock?name=" + encodeURIComponent(name), stop.signal);
        setAsked({ ...l, seen: Date.now() });
      } catch { /* the stream of events tells whether the service answers */ }
    };
    void ask();
    const timer = setInterval(ask, 2000);
    return () => { stop.abort(); clearInterval(timer); };
  }, [name, model.link]);
  useEffect(() => setAsked(undefined), [known]);
  return asked ?? known;
}

export function Lock({ model, now, name }: { model: Model; now: number; name: string }) {
  const lock = useLock(model, name);
  const [breaking, setBreaking] = useState<Holder>();
  const spans = model.spans.filter((s) => s.name === name).slice(-60);
  const age = lock ? now - lock.seen : 0;
  return (
    <section aria-labelledby="title">
      <p><a href={link("locks")}>Locks</a></p>
      <h1 id="title" class="mono wrap" tabIndex={-1}>{visible(name)}</h1>
      {lock && <p class="muted">{lock.mode}{lock.slots ? `, ${lock.slots} slots` : ""}</p>}
      <h2>{lock && lock.holders.length > 1 ? "Holders" : "Holder"}</h2>
      {!lock?.holders.length && <Absent model={model} now={now} text="Nobody holds this lock." />}
      {lock?.holders.map((h, i) => (
        <div class="card" key={h.token || i}>
          <dl>
            <dt>Process</dt><dd>{h.foreign ? visible(h.foreign) + " (not of snib)" : <Who process={h} />}</dd>
            {h.label && <><dt>Label</dt><dd class="wrap">{visible(h.label)}</dd></>}
            <dt>Token</dt><dd class="mono">{h.token || "none"}</dd>
            <dt>Held for</dt><dd>{h.held_ms ? duration(h.held_ms + age) : "the store does not know"}</dd>
            <dt>Ends</dt><dd>{ends(h, age)}</dd>
            {h.inherited && <><dt>Inherited by</dt><dd>{h.heirs?.length ? h.heirs.map(place).join(", ") : "processes that can't be seen"}</dd></>}
          </dl>
          {!Number.isSafeInteger(h.token) ? <p class="muted">This token is too great for a browser. Break the hold by command: snib release.</p> : h.token
            ? <button type="button" class="danger" onClick={() => setBreaking(h)}>Break…</button>
            : <p class="muted">This hold has no token, so this page can't say which one to end. Use the command: snib release.</p>}
        </div>
      ))}
      <h2>Queue</h2>
      {!lock?.waiters.length ? <Absent model={model} now={now} text="Nobody waits." /> : (
        <div class="scroll"><table aria-label="Queue">
          <thead><tr><th scope="col">Place</th><th scope="col">Process</th><th scope="col">Waits for</th><th scope="col">Asks for</th><th scope="col">Label</th></tr></thead>
          <tbody>{lock.waiters.map((w, i) => (
            <tr key={i}><td>{i + 1}</td><td><Who process={w} /></td><td class="time">{duration(w.waited_ms + age)}</td>
              <td>{w.shared ? "the read side" : "the lock"}</td><td class="wrap">{visible(w.label ?? "")}</td></tr>
          ))}</tbody>
        </table></div>
      )}
      <p class="muted">Of clients that wait at other replicas, only the first of each replica is known here.</p>
      <h2>Timeline</h2>
      <Timeline spans={spans} now={model.link === "live" ? now : model.seenAt} />
      {breaking && <Break name={name} hold={breaking} isAlone={lock?.holders.length === 1} close={() => setBreaking(undefined)} />}
    </section>
  );
}

// ends says when a hold ends that was seen so long ago, in ms.
export function ends(h: Holder, age: number): string {
  if (h.endless) return "only by a release, or by force";
  if (h.kind === "kept") return `in ${duration(h.left_ms - age)}: it was released, and is kept for its least time`;
  if (h.kind === "reserved") return h.left_ms > 365 * 86_400_000 ? "when it is handed back" : `in ${duration(h.left_ms - age)}`;
  if (h.inherited) return "when the last of these processes ends";
  return `in ${duration(h.left_ms - age)}, unless it is renewed`;
}

export function Who({ process }: { process: Process & { kind?: string } }) {
  if (process.kind === "reserved") return <a href={link("reservations")}>a reservation</a>;
  if (!process.host && !process.pid) return <>{place(process)}</>;
  return <a href={link("holders", process.host ?? "", String(process.pid ?? 0))}>{visible(place(process))}</a>;
}

function Timeline({ spans, now }: { spans: Span[]; now: number }) {
  if (!spans.length) return <p>No hold and no wait was seen since this page was opened.</p>;
  const from = Math.max(Math.min(...spans.map((s) => s.start)), now - 3_600_000);
  const total = Math.max(1000, now - from);
  const shown = spans.filter((s) => (s.end ?? now) >= from).reverse();
  const at = (t: number) => 100 * Math.min(1, Math.max(0, (t - from) / total));
  return (
    <>
      <p class="muted">The last {duration(total)}, newest first. What began and ended between two looks at the store is missing.</p>
      <ol class="timeline">{shown.map((s) => {
        const text = `${s.kind === "hold" ? `token ${s.token}` : "waiting"}, ${visible(place(s))}${s.label ? ", " + visible(s.label) : ""}: ` +
          `${duration((s.end ?? now) - s.start)}${s.end ? s.granted ? ", granted" : ", ended" : s.kind === "hold" ? ", holds" : ", waits"}`;
        const x = at(s.start);
        return (
          <li key={s.key + s.start}>
            <span class="wrap">{text}</span>
            <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
              <rect class={s.kind} x={x} y="0" width={Math.max(0.5, at(s.end ?? now) - x)} height="6" />
            </svg>
          </li>
        );
      })}</ol>
      <p class="legend"><span class="key hold" aria-hidden="true" /> hold <span class="key wait" aria-hidden="true" /> wait</p>
    </>
  );
}

function Break({ name, hold, isAlone, close }: { name: string; hold: Holder; isAlone: boolean; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState("");
  const [state, setState] = useState<"asking" | "sending" | "done">("asking");
  const [copied, setCopied] = useState(false);
  const last = useRef<HTMLButtonElement>(null);
  useEffect(() => { dialog.current!.showModal(); }, []);
  useEffect(() => { last.current?.focus(); }, [state]); // the focused button has gone
  const isReady = typed === visible(name) && reason.trim() !== "" && state === "asking";
  const command = `snib release ${name.startsWith("-") ? "-- " : ""}${quote(name)} --force --reason ${quote(reason || "REASON")}`;
  const send = async (e: Event) => {
    e.preventDefault();
    if (!isReady) return;
    setState("sending");
    setProblem("");
    try {
      await post("v1/break", { name, token: hold.token, reason: reason.trim() });
      setState("done");
    } catch (err) {
      const f = err as Failure;
      setState("asking");
      setProblem(f.status === 403 ? "You may not break this lock: " + f.message : f.status === 410 ? "Nothing was ended: " + f.message
        : f.status === 0 ? "No answer came. The hold may have ended or not: look before you try again." : f.message);
    }
  };
  const copy = async () => {
    try { await navigator.clipboard.writeText(command); setCopied(true); } catch { setProblem("The browser does not let this page copy: select the text."); }
  };
  return (
    <dialog ref={dialog} aria-labelledby="break-title" onClose={close}>
      {state === "done" ? (
        <>
          <h2 id="break-title">The hold has ended</h2>
          <p role="status">Token {hold.token} of <span class="mono wrap">{visible(name)}</span> was broken.</p>
          <div class="actions"><button type="button" ref={last} onClick={() => dialog.current!.close()}>Close</button></div>
        </>
      ) : (
        <form onSubmit={send}>
          <h2 id="break-title">Break the hold with token {hold.token}?</h2>
          <p>{visible(place(hold))} learns of it at its next renewal, and may work on until then. If its resource does not check fencing tokens, two may work at a time.</p>
          <label>Type the name: <span class="mono wrap">{visible(name)}</span>
            <input id="break-name" autocomplete="off" spellcheck={false} value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
          </label>
          <label>Reason
            <input id="break-reason" maxLength={250} autocomplete="off" value={reason} onInput={(e) => setReason(e.currentTarget.value)} />
          </label>
          {isAlone && <>
            <p class="muted">The same as a command, which ends whatever hold there is then:</p>
            <pre class="wrap" id="break-command" tabIndex={0}>{visible(command)}</pre>
          </>}
          {problem && <p role="alert" class="problem">{problem}</p>}
          <div class="actions">
            {isAlone && <button type="button" onClick={copy}>{copied ? "Copied" : "Copy the command"}</button>}
            <button type="button" onClick={() => dialog.current!.close()}>Cancel</button>
            <button type="submit" class="danger" disabled={!isReady}>Break</button>
          </div>
        </form>
      )}
    </dialog>
  );
}
