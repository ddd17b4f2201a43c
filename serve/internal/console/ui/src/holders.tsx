import { useMemo, useState } from "preact/hooks";
import { Absent } from "./absent";
import type { Model } from "./model";
import { count, duration, link, place, visible } from "./text";
import type { Process } from "./wire";

interface Entry { name: string; kind: "holds" | "waits for"; ms: number; seen: number; process: Process; token?: number }
interface Party { host: string; pid: number; entries: Entry[]; holds: number }

function parties(model: Model): Party[] {
  const all = new Map<string, Party>();
  const add = (e: Entry) => {
    const key = `${e.process.pid ?? 0} ${e.process.host ?? ""}`;
    let p = all.get(key);
    if (!p) all.set(key, p = { host: e.process.host ?? "", pid: e.process.pid ?? 0, entries: [], holds: 0 });
    p.entries.push(e);
    if (e.kind === "holds") p.holds++;
  };
  for (const name of model.names) {
    const l = model.locks.get(name);
    for (const h of l?.holders ?? []) if (h.kind !== "reserved") add({ name, kind: "holds", ms: h.held_ms ?? -1, seen: l!.seen, process: h, token: h.token });
    for (const w of l?.waiters ?? []) add({ name, kind: "waits for", ms: w.waited_ms, seen: l!.seen, process: w });
  }
  return [...all.values()].sort((a, b) => a.host < b.host ? -1 : a.host > b.host ? 1 : a.pid - b.pid);
}

const most = 100;

export function Holders({ model, now, host, pid }: { model: Model; now: number; host?: string; pid?: string }) {
  const [search, setSearch] = useState("");
  const [limit, setLimit] = useState(most);
  const all = useMemo(() => parties(model), [model.names, model.seenAt]);
  const one = host !== undefined;
  const found = all.filter((p) => one ? p.host === host && (pid === undefined || p.pid === Number(pid)) : place(p).toLowerCase().includes(search.toLowerCase()));
  return (
    <section aria-labelledby="title">
      {one && <p><a href={link("holders")}>Holders</a></p>}
      <div class="bar">
        <h1 id="title" class="wrap" tabIndex={-1}>{one ? visible(pid === undefined ? host! : place({ host, pid: Number(pid) })) : "Holders"}</h1>
        {!one && <input type="search" aria-label="Search hosts" placeholder="Search" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />}
      </div>
      {!found.length && <Absent model={model} now={now} text={one ? "It holds nothing, and waits for nothing." : search ? "No process matches." : "Nobody holds a lock or waits for one."} />}
      {found.slice(0, limit).map((p) => <Card key={p.host + ":" + p.pid} party={p} now={now} open={one || found.length <= 10} linked={pid === undefined} />)}
      {found.length > limit && <button type="button" onClick={() => setLimit(limit + most)}>Show more of {count(found.length, "process").replace("processs", "processes")}</button>}
      <p class="muted">Host and process are what the clients say of themselves.</p>
    </section>
  );
}

function Card({ party, now, open, linked }: { party: Party; now: number; open: boolean; linked: boolean }) {
  const [limit, setLimit] = useState(most);
  const [isOpen, setOpen] = useState(open);
  const name = visible(place(party));
  return (
    <details class="card" open={isOpen} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary><strong>{name}</strong> <span class="muted">holds {party.holds}, waits for {party.entries.length - party.holds}</span></summary>
      {isOpen && <>
        {linked && (party.host || party.pid) ? <p><a href={link("holders", party.host, String(party.pid))}>Only this process</a>{party.host ? <> · <a href={link("holders", party.host)}>all of {visible(party.host)}</a></> : null}</p> : null}
        <div class="scroll"><table aria-label={"Locks of " + name}>
          <thead><tr><th scope="col">Lock</th><th scope="col">State</th><th scope="col">For</th><th scope="col">Token</th><th scope="col">Label</th></tr></thead>
          <tbody>{party.entries.slice(0, limit).map((e, i) => (
            <tr key={i}><td><a class="mono wrap" href={link("lock", e.name)}>{visible(e.name)}</a></td><td>{e.kind === "holds" ? "holds" : <span class="badge">waits</span>}</td>
              <td class="time">{e.ms < 0 ? "unknown" : duration(e.ms + now - e.seen)}</td><td class="mono">{e.token ?? ""}</td><td class="wrap">{visible(e.process.label ?? "")}</td></tr>
          ))}</tbody>
        </table></div>
        {party.entries.length > limit && <button type="button" onClick={() => setLimit(limit + most)}>Show more of {party.entries.length}</button>}
      </>}
    </details>
  );
}
