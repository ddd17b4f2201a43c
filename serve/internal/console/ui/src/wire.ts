// The messages of the API, as package remotelock/wire has them.

export interface Process { host?: string; pid?: number; label?: string }

export interface Holder extends Process {
  token: number;
  kind?: "detached" | "reserved" | "pending" | "kept";
  held_ms?: number;
  left_ms: number;
  endless?: boolean;
  inherited?: boolean;
  heirs?: Process[];
  foreign?: string;
  count?: number;
}

export interface Waiter extends Process { shared?: boolean; waited_ms: number }

export interface Lock { name: string; mode: string; slots?: number; holders: Holder[]; waiters: Waiter[] }

export interface StreamEvent { type: string; at?: string; lock?: Lock; holder?: Holder }

export interface Store {
  api: string; program: string; id?: string; backend: string; fencing: string; shared: boolean; slots: boolean;
  min_ttl_ms?: number; max_ttl_ms?: number; max_wait_ms: number; place_ms: number; assumptions: string[]; unmet?: string[];
}

export interface Finding { check: string; verdict: string; value: string; advice?: string }

export interface Leak { kind: string; name: string; problem: string; library?: string; unsure?: boolean }

export interface AuditEvent {
  time: string; event: string; outcome?: string; who?: string; remote: string;
  op?: string; namespace?: string; name?: string; token?: string; reason?: string; left_out?: number;
}

// Failure is an answer that is not what was asked for; status 0 means that there was none.
export class Failure extends Error {
  constructor(readonly status: number, text: string) { super(text); }
}

const tokenKey = "snib-token";
let token = sessionStorage.getItem(tokenKey) ?? "";

export const hasToken = () => token !== "";

// setToken keeps the bearer token for this tab, until it is closed.
export function setToken(text: string) {
  token = text;
  if (text) sessionStorage.setItem(tokenKey, text);
  else sessionStorage.removeItem(tokenKey);
}

// request sends a request. Paths are relative, so that a proxy may add a prefix.
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", "Bearer " + token);
  let answer: Response;
  try {
    answer = await fetch("../" + path, { ...init, headers, cache: "no-store", credentials: "omit" });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new Failure(0, "the service does not answer");
  }
  if (answer.ok) return answer;
  let text = answer.statusText;
  try {
    const problem = await answer.json();
    text = problem.detail || problem.title || text;
  } catch { /* the answer is not the service's */ }
  throw new Failure(answer.status, text || "status " + answer.status);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, { signal })).json();
}

export async function post(path: string, message: unknown): Promise<void> {
  await request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(message) });
}
