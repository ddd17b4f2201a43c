import { useEffect, useState } from "preact/hooks";
import type { Model } from "./model";
import { count, link, visible } from "./text";
import { Leak, get } from "./wire";

export function Leaks({ model }: { model: Model }) {
  const [leaks, setLeaks] = useState<Leak[]>();
  const [problem, setProblem] = useState("");
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    setLeaks(undefined);
    setProblem("");
    get<{ leaks: Leak[] }>("v1/leaks", stop.signal).then((l) => setLeaks(l.leaks), (e) => { if (!stop.signal.aborted) setProblem(e.message); });
    return () => stop.abort();
  }, [round]);
  return (
    <section aria-labelledby="title">
      <div class="bar">
        <h1 id="title" tabIndex={-1}>Leaks</h1>
        <button type="button" disabled={!leaks && !problem} onClick={() => setRound(round + 1)}>Search again</button>
        <p class="count" role="status">{leaks ? count(leaks.length, "leak") : problem ? "" : "searching"}</p>
      </div>
      <p class="muted">What will not end by itself, or later than it should. The service looks twice, a second apart, and keeps the result for ten seconds.</p>
      {problem && <p role="alert" class="problem">{problem}</p>}
      {leaks && !leaks.length && <p>Nothing was found.</p>}
      {leaks && leaks.length > 0 && (
        <div class="scroll"><table aria-label="Leaks">
          <thead><tr><th scope="col">Kind</th><th scope="col">Lock</th><th scope="col">Problem</th></tr></thead>
          <tbody>{leaks.map((l, i) => (
            <tr key={i}><td>{l.kind}{l.unsure ? ", perhaps" : ""}</td>
              <td class="wrap">{model.locks.has(l.name) ? <a class="mono" href={link("lock", l.name)}>{visible(l.name)}</a> : <span class="mono">{visible(l.name)}</span>}</td>
              <td class="wrap">{visible(l.problem)}{l.library ? <span class="muted"> {visible(l.library)}</span> : null}</td></tr>
          ))}</tbody>
        </table></div>
      )}
      <p class="muted">The command <span class="mono">snib leaks --fix</span> repairs them.</p>
    </section>
  );
}
