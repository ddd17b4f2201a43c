import { useEffect, useState } from "preact/hooks";
import type { Model } from "./model";
import { duration, visible } from "./text";
import { Finding, Store as Info, get } from "./wire";

const strengths: Record<string, string> = {
  none: "none: tokens may go back when the store loses its data",
  clock: "clock: tokens stay ordered as long as the server's clock does not go back",
  durable: "durable: tokens stay ordered as long as the store keeps its data",
};

export function Store({ model }: { model: Model }) {
  const [info, setInfo] = useState<Info>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    get<Info>("v1/store", stop.signal).then((i) => { setInfo(i); setProblem(""); }, (e) => { if (!stop.signal.aborted) setProblem(e.message); });
    return () => stop.abort();
  }, [model.link]);
  const yes = (b: boolean) => b ? "yes" : "no";
  return (
    <section aria-labelledby="title">
      <h1 id="title" tabIndex={-1}>Store</h1>
      {problem && <p role="alert" class="problem">{problem}</p>}
      <Doctor />
      {info && <>
        <h2>Promises</h2>
        <dl class="card">
          <dt>Backend</dt><dd>{info.backend}</dd>
          {info.id && <><dt>Store</dt><dd class="mono wrap">{info.id}</dd></>}
          <dt>Fencing tokens</dt><dd>{strengths[info.fencing] ?? info.fencing}</dd>
          <dt>Read side</dt><dd>{yes(info.shared)}</dd>
          <dt>Slots</dt><dd>{yes(info.slots)}</dd>
          <dt>Shortest TTL</dt><dd>{info.min_ttl_ms ? info.min_ttl_ms + " ms" : "no limit"}</dd>
          <dt>Longest TTL</dt><dd>{info.max_ttl_ms ? duration(info.max_ttl_ms) : "no limit"}</dd>
          <dt>One request waits</dt><dd>{duration(info.max_wait_ms)} at most</dd>
          <dt>A place is kept for</dt><dd>{duration(info.place_ms)}</dd>
          <dt>API</dt><dd class="mono">{info.api}</dd>
          <dt>Replica version</dt><dd class="mono wrap">{visible(info.program)}</dd>
        </dl>
        <h2>Assumptions</h2>
        {info.assumptions.length ? <ul>{info.assumptions.map((a) => <li key={a}>{a}</li>)}</ul> : <p>None.</p>}
        {info.unmet && <><h2>Not met</h2><ul>{info.unmet.map((u) => <li key={u}>{u}</li>)}</ul></>}
      </>}
    </section>
  );
}

const verdicts: Record<string, string> = { ok: "good", note: "note", unmet: "not met" };

// Doctor examines the store when it is asked to: that takes a lock for a moment.
function Doctor() {
  const [found, setFound] = useState<Finding[]>();
  const [state, setState] = useState<"" | "running">("");
  const [problem, setProblem] = useState("");
  const run = async () => {
    setState("running");
    setProblem("");
    try {
      setFound((await get<{ findings: Finding[] }>("v1/doctor")).findings);
    } catch (err) {
      setProblem((err as Error).message);
    }
    setState("");
  };
  return (
    <>
      <h2>Examination</h2>
      <p><button type="button" disabled={state === "running"} onClick={run}>{found ? "Examine again" : "Examine the store"}</button>{" "}
        <span class="muted">As <span class="mono">snib doctor</span> does. It takes a lock of its own for a moment.</span></p>
      {problem && <p role="alert" class="problem">{problem}</p>}
      {found && <div class="scroll"><table aria-label="Findings">
        <thead><tr><th scope="col">Verdict</th><th scope="col">Checked</th><th scope="col">Found</th><th scope="col">Advice</th></tr></thead>
        <tbody>{found.map((f, i) => (
          <tr key={i}><td>{f.verdict === "ok" ? "good" : <span class={f.verdict === "unmet" ? "problem" : "badge"}>{verdicts[f.verdict] ?? f.verdict}</span>}</td>
            <td>{visible(f.check)}</td><td class="wrap">{visible(f.value)}</td><td class="wrap">{visible(f.advice ?? "")}</td></tr>
        ))}</tbody>
      </table></div>}
    </>
  );
}
