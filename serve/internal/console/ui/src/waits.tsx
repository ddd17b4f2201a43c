import { useMemo } from "preact/hooks";
import { Absent } from "./absent";
import type { Model } from "./model";
import { Who } from "./lock";
import { duration, link, place, visible } from "./text";
import type { Holder, Process } from "./wire";

export interface Edge { from: string; to: string; waiter: Process; holder: Holder; name: string; ms: number; seen: number }

// edges returns who waits for whom. Without a host and a process id, nobody can tell who it is.
function edges(model: Model): Edge[] {
  const all: Edge[] = [];
  const key = (p: Process, other: string) => p.host && p.pid ? `p ${p.pid} ${p.host}` : other;
  for (const name of model.names) {
    const l = model.locks.get(name);
    for (const [i, w] of (l?.waiters ?? []).entries()) {
      for (const h of l!.holders) {
        all.push({ from: key(w, `w ${i} ${name}`), to: key(h, `h ${h.token} ${name}`), waiter: w, holder: h, name, ms: w.waited_ms, seen: l!.seen });
      }
    }
  }
  return all;
}

// components numbers the strongly connected parts of the graph (Tarjan's algorithm, without
// recursion). Two that are in one part wait for each other.
export function components(all: Edge[]): Map<string, number> {
  const out = new Map<string, string[]>();
  for (const e of all) {
    if (!out.has(e.from)) out.set(e.from, []);
    if (!out.has(e.to)) out.set(e.to, []);
    out.get(e.from)!.push(e.to);
  }
  const part = new Map<string, number>(), index = new Map<string, number>(), low = new Map<string, number>();
  const stack: string[] = [];
  let parts = 0;
  for (const root of out.keys()) {
    if (index.has(root)) continue;
    const path: { node: string; next: number }[] = [];
    const enter = (node: string) => {
      index.set(node, index.size);
      low.set(node, index.get(node)!);
      stack.push(node);
      path.push({ node, next: 0 });
    };
    enter(root);
    while (path.length) {
      const at = path[path.length - 1];
      const to = out.get(at.node)![at.next++];
      if (to !== undefined) {
        if (!index.has(to)) enter(to);
        else if (!part.has(to)) low.set(at.node, Math.min(low.get(at.node)!, index.get(to)!));
        continue;
      }
      path.pop();
      const up = path[path.length - 1];
      if (up) low.set(up.node, Math.min(low.get(up.node)!, low.get(at.node)!));
      if (low.get(at.node) !== index.get(at.node)) continue;
      for (let node = ""; node !== at.node; ) part.set(node = stack.pop()!, parts);
      parts++;
    }
  }
  return part;
}

const most = 300;

export function Waits({ model, now }: { model: Model; now: number }) {
  const { all, cycles } = useMemo(() => {
    const all = edges(model);
    const part = components(all);
    // Two threads of a process that want one lock are no cycle.
    const isCyclic = (e: Edge) => e.from !== e.to && part.get(e.from) === part.get(e.to);
    const cycles = new Map<number, Edge[]>();
    for (const e of all) if (isCyclic(e)) cycles.set(part.get(e.from)!, [...cycles.get(part.get(e.from)!) ?? [], e]);
    return { all: all.filter((e) => !isCyclic(e)).sort((a, b) => b.ms - a.ms), cycles: [...cycles.values()] };
  }, [model.names, model.seenAt]);
  return (
    <section aria-labelledby="title">
      <h1 id="title" tabIndex={-1}>Waits</h1>
      {cycles.map((c, i) => (
        <div class="cycle" role="group" aria-label={`Cycle ${i + 1}`} key={i}>
          <h2>Cycle: {[...new Map(c.map((e) => [e.from, visible(place(e.waiter))])).values()].join(", ")} wait for each other</h2>
          <Table edges={c} now={now} label={`Waits in cycle ${i + 1}`} />
          <p>If in each process one thread has these holds and waits, they never end. Different threads may be fine.</p>
        </div>
      ))}
      {!all.length && !cycles.length && <Absent model={model} now={now} text="Nobody waits for a lock that somebody holds." />}
      {all.length > 0 && <Table edges={all.slice(0, most)} now={now} label="Waits, longest first" />}
      {all.length > most && <p class="muted">The {most} longest of {all.length} are shown.</p>}
    </section>
  );
}

function Table({ edges, now, label }: { edges: Edge[]; now: number; label: string }) {
  return (
    <div class="scroll"><table aria-label={label}>
      <thead><tr><th scope="col">Who waits</th><th scope="col">For</th><th scope="col">Lock</th><th scope="col">Held by</th></tr></thead>
      <tbody>{edges.map((e, i) => (
        <tr key={i}><td><Who process={e.waiter} /></td><td class="time">{duration(e.ms + now - e.seen)}</td>
          <td><a class="mono wrap" href={link("lock", e.name)}>{visible(e.name)}</a></td><td><Who process={e.holder} /></td></tr>
      ))}</tbody>
    </table></div>
  );
}
