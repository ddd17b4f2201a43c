import { useMemo, useRef, useState } from "preact/hooks";
import { Absent } from "./absent";
import { Row, Tree } from "./list";
import { ends } from "./lock";
import type { Model, Seen } from "./model";
import { count, duration, link, place, visible } from "./text";

interface Item extends Row { lock?: Seen; prefix?: string; text: string; locks: number; waiters: number }

type Filter = "all" | "held" | "waited" | "reserved";
type Order = "name" | "held" | "waiting";

interface Node { prefix: string; nodes: Map<string, Node>; locks: Seen[]; total: number; waiters: number }

const newNode = (prefix: string): Node => ({ prefix, nodes: new Map(), locks: [], total: 0, waiters: 0 });

// group makes the tree of the prefixes of names, which end with a slash. A prefix of one lock only is
// no group.
function group(locks: Seen[]): Node {
  const root = newNode("");
  for (const lock of locks) {
    let node = root;
    for (let from = 0; ; ) {
      node.total++;
      node.waiters += lock.waiters.length;
      const to = lock.name.indexOf("/", from);
      if (to < 0 || to === lock.name.length - 1) break;
      const prefix = lock.name.slice(0, to + 1);
      let child = node.nodes.get(prefix);
      if (!child) node.nodes.set(prefix, child = newNode(prefix));
      node = child;
      from = to + 1;
    }
    node.locks.push(lock);
  }
  return root;
}

// lone returns the only lock below a node.
const lone = (node: Node): Seen => node.locks[0] ?? lone(node.nodes.values().next().value!);

const item = (lock: Seen, from: number, level: number, size: number, position: number): Item => ({
  key: "l" + lock.name, lock, level, text: visible(lock.name.slice(from)), size, position, locks: 1, waiters: lock.waiters.length, label: spoken(lock) });

function flatten(node: Node, level: number, isOpen: (prefix: string) => boolean, to: Item[]) {
  const size = node.nodes.size + node.locks.length;
  let position = 0;
  for (const child of node.nodes.values()) {
    if (child.total === 1) {
      to.push(item(lone(child), node.prefix.length, level, size, ++position));
      continue;
    }
    const expanded = isOpen(child.prefix);
    const text = visible(child.prefix.slice(node.prefix.length));
    to.push({ key: "p" + child.prefix, prefix: child.prefix, level, expanded, text, size, position: ++position, locks: child.total, waiters: child.waiters,
      label: `${text}, ${count(child.total, "lock")}, ${count(child.waiters, "waiter")}` });
    if (expanded) flatten(child, level + 1, isOpen, to);
  }
  for (const lock of node.locks) to.push(item(lock, node.prefix.length, level, size, ++position));
}

// heldSince is when the first holder got a lock, by this page's clock, as far as the store knows.
const heldSince = (l: Seen) => Math.min(...l.holders.map((h) => h.held_ms ? l.seen - h.held_ms : Infinity), Infinity);

function spoken(l: Seen): string {
  const who = l.holders.length ? "held by " + l.holders.slice(0, 3).map((h) => h.kind === "reserved" ? "a reservation" : place(h)).join(", ") : "free";
  return `${visible(l.name)}, ${who}, ${count(l.waiters.length, "waiter")}`;
}

export function Locks({ model, now, narrow }: { model: Model; now: number; narrow: boolean }) {
  const [search, setSearch] = useState("");
  const [filter, setFilter] = useState<Filter>("all");
  const [order, setOrder] = useState<Order>("name");
  const [toggled, setToggled] = useState<ReadonlyMap<string, boolean>>(new Map());
  const list = useRef<HTMLDivElement>(null);
  const { locks, names } = model;

  const found = useMemo(() => {
    const text = search.toLowerCase();
    const all: Seen[] = [];
    for (const name of names) {
      const l = locks.get(name);
      if (!l || filter === "held" && !l.holders.length || filter === "waited" && !l.waiters.length
        || filter === "reserved" && !l.holders.some((h) => h.kind === "reserved")) continue;
      if (text && !name.toLowerCase().includes(text) && !l.holders.some((h) => (place(h) + " " + (h.label ?? "")).toLowerCase().includes(text))) continue;
      all.push(l);
    }
    return all;
  }, [names, locks, search, filter, model.seenAt]);
  const rows = useMemo(() => {
    const to: Item[] = [];
    if (order !== "name") {
      const sorted = order === "waiting" ? found.toSorted((a, b) => b.waiters.length - a.waiters.length)
        : found.toSorted((a, b) => heldSince(a) < heldSince(b) ? -1 : heldSince(a) > heldSince(b) ? 1 : 0);
      return sorted.map((l, i) => item(l, 0, 1, sorted.length, i + 1));
    }
    const byDefault = search !== "" || found.length <= 200;
    flatten(group(found), 1, (prefix) => toggled.get(prefix) ?? byDefault, to);
    return to;
  }, [found, toggled, search, order]);
  const expand = (row: Item, open: boolean) => { if (row.prefix) setToggled(new Map(toggled).set(row.prefix, open)); };
  const head = (o: Order, text: string) => <button type="button" class={o} aria-pressed={order === o} onClick={() => setOrder(o)}>
    {text}{order === o ? <span aria-hidden="true"> ▾</span> : null}</button>;
  const waited = found.reduce((n, l) => n + (l.waiters.length ? 1 : 0), 0);

  return (
    <section aria-labelledby="title" class="fill" ref={list}>
      <div class="bar">
        <h1 id="title" tabIndex={-1}>Locks</h1>
        <input type="search" id="search" aria-label="Search names, hosts and labels" placeholder="Search" value={search}
          onInput={(e) => setSearch(e.currentTarget.value)} />
        <div class="choice" role="group" aria-label="Filter">
          {(["all", "held", "waited", "reserved"] as Filter[]).map((f) => (
            <button type="button" key={f} aria-pressed={filter === f} onClick={() => setFilter(f)}>
              {f === "all" ? "All" : f === "held" ? "Held" : f === "waited" ? "Waited for" : "Reserved"}
            </button>
          ))}
        </div>
        <p class="count" role="status">{model.link === "live" && `${count(found.length, "lock")}, ${waited.toLocaleString("en")} waited for`}</p>
      </div>
      <div class="heads" role="group" aria-label="Order">
        {head("name", "Lock")}<span aria-hidden="true">Holder</span>{head("held", "Held for")}{head("waiting", "Waiting")}
      </div>
      {!found.length && <div class="empty"><Absent model={model} now={now}
        text={search || filter !== "all" ? "No lock matches." : "Nobody holds a lock, and nobody waits for one."} /></div>}
      <Tree id="locks" label="Locks by prefix" rows={rows} height={narrow ? 52 : 34} expand={expand}
        activate={(row) => { if (row.lock) location.hash = link("lock", row.lock.name); else expand(row, !row.expanded); }}
        draw={(row) => row.lock ? <LockRow lock={row.lock} text={row.text} now={now} /> : (
          <>
            <span class="name"><span class="twist" aria-hidden="true">{row.expanded ? "▾" : "▸"}</span>{row.text}</span>
            <span class="who muted">{count(row.locks, "lock")}</span>
            <span class="for" />
            <span class="waits">{row.waiters > 0 && <span class="badge">{row.waiters} waiting</span>}</span>
          </>
        )} />
    </section>
  );
}

function LockRow({ lock, text, now }: { lock: Seen; text: string; now: number }) {
  const first = lock.holders[0];
  const more = lock.holders.length - 1;
  return (
    <>
      <span class="name mono"><span class="twist" aria-hidden="true">{first ? "●" : "○"}</span>{text}</span>
      <span class="who">
        {first ? visible(first.kind === "reserved" ? "reserved" : first.foreign || place(first)) + (more > 0 ? ` and ${more} more` : "") : "free"}
        {lock.slots ? ` (${lock.holders.length} of ${lock.slots} slots)` : ""}
        {first?.label ? <span class="muted"> {visible(first.label)}</span> : null}
        {first?.kind === "reserved" || first?.kind === "kept" // nobody renews these, so no event is needed to know it
          ? <span class="muted">, ends {ends(first, now - lock.seen)}</span> : null}
      </span>
      <span class="for muted">{first?.held_ms ? duration(first.held_ms + now - lock.seen) : ""}</span>
      <span class="waits">{lock.waiters.length > 0 && <span class="badge">{lock.waiters.length} waiting</span>}</span>
    </>
  );
}
