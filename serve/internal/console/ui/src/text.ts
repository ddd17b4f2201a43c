// How things are written.

import type { Process } from "./wire";

export function duration(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const count = (n: number, word: string) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

// place names a process, or says that it is unknown.
export function place(p: Process): string {
  if (!p.host && !p.pid) return "unknown process";
  return (p.host || "unknown host") + (p.pid ? ":" + p.pid : "");
}

const hidden = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// visible shows characters that a name could hide: controls, and those that change the direction.
export function visible(text: string): string {
  return text.replace(hidden,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

// quote quotes a text for a shell. Characters that a terminal obeys are written as numbers, which
// bash and zsh understand: who pastes the text must not run what is in a name.
export function quote(text: string): string {
  if (text.search(hidden) >= 0) return "$'" + visible(text.replace(/[\\']/g, "\\$&")) + "'";
  return /^[A-Za-z0-9_./:@%+=-]+$/.test(text) && !text.startsWith("-") ? text : "'" + text.replaceAll("'", "'\\''") + "'";
}

export const link = (view: string, ...parts: string[]) => "#/" + [view, ...parts.map(encodeURIComponent)].join("/");
