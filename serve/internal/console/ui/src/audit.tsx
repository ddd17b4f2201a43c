import { useEffect, useState } from "preact/hooks";
import type { Model } from "./model";
import { link, visible } from "./text";
import { AuditEvent, Failure, get } from "./wire";

const pause = 5000; // between two looks at the log, in ms

// lockOf returns the name of an event's lock as this page calls it; "" if it is in a namespace, whose
// names this page may not know.
const lockOf = (e: AuditEvent) => e.name && !e.namespace ? e.name : "";

// kindOf says what happened: all that needs the right to reserve is one event in the log.
function kindOf(e: AuditEvent): string {
  if (e.event !== "reserve") return e.event;
  return e.op === "label" ? "take over" : e.op === "break" ? "hand back" : "reserve";
}

export function Audit({ model }: { model: Model }) {
  const [events, setEvents] = useState<AuditEvent[]>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const look = async () => {
      try {
        setEvents((await get<{ events: AuditEvent[] }>("v1/audit?limit=200", stop.signal)).events);
        setProblem("");
      } catch (err) {
        if (stop.signal.aborted) return;
        setProblem((err as Error).message);
        if (err instanceof Failure && err.status >= 400 && err.status < 500) return; // asking again does not help
      }
      timer = setTimeout(look, pause);
    };
    void look();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [model.link]);
  return (
    <section aria-labelledby="title">
      <h1 id="title" tabIndex={-1}>Audit</h1>
      {problem && <p role="alert" class="problem">{problem}</p>}
      {events && (events.length ? <Events events={events} /> : <p>Nothing was broken, reserved or refused since this replica was started.</p>)}
      <p class="muted">This is the log of one replica since its start, newest first. Its file has all of it.</p>
    </section>
  );
}

function Events({ events }: { events: AuditEvent[] }) {
  return (
    <div class="scroll"><table aria-label="Events">
      <thead><tr><th scope="col">Time</th><th scope="col">Event</th><th scope="col">Who</th><th scope="col">Lock</th><th scope="col">Token</th><th scope="col">Reason</th></tr></thead>
      <tbody>{events.map((e, i) => (
        <tr key={i}>
          <td class="time"><time dateTime={e.time}>{new Date(e.time).toLocaleString(undefined, { dateStyle: "short", timeStyle: "long" })}</time></td>
          <td>{kindOf(e)}{e.outcome ? ", " + e.outcome : ""}{e.left_out ? ` (${e.left_out} before it left out)` : ""}</td>
          <td class="wrap">{visible(e.who || "nobody known")} <span class="muted">{visible(e.remote)}</span></td>
          <td class="wrap">{lockOf(e) ? <a class="mono" href={link("lock", lockOf(e))}>{visible(lockOf(e))}</a>
            : <span class="mono">{visible((e.namespace ? e.namespace + ": " : "") + (e.name ?? ""))}</span>}</td>
          <td class="mono">{e.token ?? ""}</td>
          <td class="wrap">{visible(e.reason ?? "")}</td>
        </tr>
      ))}</tbody>
    </table></div>
  );
}
