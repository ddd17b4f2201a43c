// A list of any length: only the rows that can be seen are in the page.

import { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Row { key: string; level: number; expanded?: boolean; label: string; size: number; position: number }

interface Props<R extends Row> {
  id: string; label: string; rows: R[]; height: number;
  draw: (row: R) => ComponentChildren;
  activate: (row: R) => void;
  expand: (row: R, open: boolean) => void;
}

export function Tree<R extends Row>({ id, label, rows, height, draw, activate, expand }: Props<R>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [room, setRoom] = useState(600);
  const [current, setCurrent] = useState("");
  const at = Math.max(0, rows.findIndex((r) => r.key === current));

  useLayoutEffect(() => {
    const el = box.current!;
    const measure = () => setRoom(el.clientHeight);
    const watch = new ResizeObserver(measure);
    watch.observe(el);
    measure();
    return () => watch.disconnect();
  }, []);

  const show = (i: number) => {
    const el = box.current!;
    if (i * height < el.scrollTop) el.scrollTop = i * height;
    else if ((i + 1) * height > el.scrollTop + el.clientHeight) el.scrollTop = (i + 1) * height - el.clientHeight;
    setTop(el.scrollTop);
  };
  const go = (i: number) => {
    const to = Math.min(rows.length - 1, Math.max(0, i));
    if (!rows[to]) return;
    setCurrent(rows[to].key);
    show(to);
  };
  const onKey = (e: KeyboardEvent) => {
    const row = rows[at];
    if (!row || e.altKey || e.ctrlKey || e.metaKey) return;
    const page = Math.max(1, Math.floor(room / height) - 1);
    const parent = () => { for (let i = at - 1; i >= 0; i--) if (rows[i].level < row.level) return i; return at; };
    switch (e.key) {
      case "ArrowDown": go(current === "" ? 0 : at + 1); break;
      case "ArrowUp": go(at - 1); break;
      case "PageDown": go(at + page); break;
      case "PageUp": go(at - page); break;
      case "Home": go(0); break;
      case "End": go(rows.length - 1); break;
      case "ArrowRight": if (row.expanded === false) expand(row, true); else if (row.expanded) go(at + 1); break;
      case "ArrowLeft": if (row.expanded) expand(row, false); else go(parent()); break;
      case "Enter": case " ": activate(row); break;
      default: return;
    }
    e.preventDefault();
  };
  useEffect(() => { // a shorter list may end above what was shown
    const el = box.current!;
    if (el.scrollTop !== top) setTop(el.scrollTop);
  }, [rows.length]);

  const first = Math.max(0, Math.floor(top / height) - 8);
  const last = Math.min(rows.length, Math.ceil((top + room) / height) + 8);
  const shown = rows.slice(first, last);
  const here = rows[at];
  const isDrawn = here && at >= first && at < last;
  return (
    <div class="tree" role="tree" id={id} aria-label={label} tabIndex={0} ref={box} onKeyDown={onKey}
      aria-activedescendant={isDrawn && current ? id + "-" + at : undefined}
      onScroll={(e) => setTop(e.currentTarget.scrollTop)} onFocus={() => { if (current === "" && rows[0]) setCurrent(rows[0].key); }}>
      <div class="tall" role="presentation" style={{ height: rows.length * height + "px" }}>
        {shown.map((row, i) => (
          <div key={row.key} id={id + "-" + (first + i)} role="treeitem" class={"row" + (row.key === here?.key && current ? " current" : "")}
            aria-level={row.level} aria-setsize={row.size} aria-posinset={row.position} aria-expanded={row.expanded} aria-label={row.label}
            aria-selected={row.key === current} style={{ top: (first + i) * height + "px", height: height + "px", "--indent": 18 * (row.level - 1) + "px" }}
            onClick={() => { setCurrent(row.key); activate(row); }}>
            {draw(row)}
          </div>
        ))}
      </div>
    </div>
  );
}
