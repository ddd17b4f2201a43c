import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Audit } from "./audit";
import { Holders } from "./holders";
import { Leaks } from "./leaks";
import { Lock } from "./lock";
import { Locks } from "./locks";
import { Model } from "./model";
import { Reservations } from "./reservations";
import { Store } from "./store";
import { duration } from "./text";
import { Waits } from "./waits";
import { hasToken, setToken } from "./wire";

const model = new Model();
const views = [["locks", "Locks"], ["holders", "Holders"], ["waits", "Waits"], ["reservations", "Reservations"], ["leaks", "Leaks"], ["store", "Store"], ["audit", "Audit"]];

// route takes the address apart: a view, and what it shows. A malformed one is that of the locks.
function route(): string[] {
  try {
    const parts = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    return parts[0] ? parts : ["locks"];
  } catch {
    return ["locks"];
  }
}

function App() {
  const [, draw] = useState(0);
  const [now, setNow] = useState(Date.now());
  const [at, setAt] = useState(route);
  const [narrow, setNarrow] = useState(matchMedia("(max-width: 700px)").matches);
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  useEffect(() => model.subscribe(() => { draw((n) => n + 1); setNow(Date.now()); }), []);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    const move = () => setAt(route());
    const query = matchMedia("(max-width: 700px)");
    const turn = () => setNarrow(query.matches);
    addEventListener("hashchange", move);
    query.addEventListener("change", turn);
    return () => { clearInterval(timer); removeEventListener("hashchange", move); query.removeEventListener("change", turn); };
  }, []);
  useLayoutEffect(() => { // a new view is read from its heading on: at once, and not while somebody types already
    const title = main.current?.querySelector<HTMLElement>("h1");
    document.title = `${title?.textContent ?? "snib"} · ${location.host} · snib`;
    if (!isFirst.current) title?.focus();
    isFirst.current = false;
  }, [at.join("/")]);
  const [view, a, b] = at;
  if (model.link === "login") return <Login />;
  return (
    <>
      <a class="skip" href="#" onClick={(e) => { e.preventDefault(); main.current?.querySelector<HTMLElement>("h1")?.focus(); }}>Skip to the content</a>
      <header>
        <strong class="brand">snib</strong> <span class="muted">{location.host}</span>
        <nav aria-label="Views">
          {views.map(([id, text]) => <a key={id} href={"#/" + id} aria-current={id === view || id === "locks" && view === "lock" ? "page" : undefined}>{text}</a>)}
        </nav>
        <Link now={now} />
        {hasToken() && <button type="button" onClick={() => { setToken(""); model.restart(true); }}>Log out</button>}
      </header>
      <Banner now={now} />
      <main ref={main}>
        {view === "lock" && a !== undefined ? <Lock key={a} model={model} now={now} name={a} />
          : view === "holders" ? <Holders key={a + ":" + b} model={model} now={now} host={a} pid={b} />
          : view === "waits" ? <Waits model={model} now={now} />
          : view === "reservations" ? <Reservations model={model} now={now} />
          : view === "leaks" ? <Leaks model={model} />
          : view === "store" ? <Store model={model} />
          : view === "audit" ? <Audit model={model} />
          : <Locks model={model} now={now} narrow={narrow} />}
      </main>
    </>
  );
}

// Link says how old is what the page shows.
function Link({ now }: { now: number }) {
  const age = model.seenAt ? now - model.seenAt : 0;
  const text = model.link === "live" ? age < 5000 ? "live" : `seen ${duration(age)} ago` : model.link === "connecting" ? "connecting" : "not live";
  return <span class={"link " + model.link} id="link"><span class="dot" aria-hidden="true" />{text}</span>;
}

function Banner({ now }: { now: number }) {
  const isBad = model.link === "down" || model.link === "stale" || model.link === "forbidden";
  const age = model.seenAt ? `What you see is ${duration(now - model.seenAt)} old.` : "Nothing was seen yet.";
  return (
    <div role="alert" class={isBad ? "banner" : "banner none"} id="banner">
      {isBad && <>
        <strong>{model.link === "down" ? "No connection" : model.link === "stale" ? "The store is unavailable" : "Not allowed"}:</strong> {model.problem}.{" "}
        {model.link !== "forbidden" && <span aria-hidden="true">{age} The page tries again by itself.</span>}
        {model.link === "forbidden" && <button type="button" onClick={() => { setToken(""); model.restart(true); }}>Log in as somebody else</button>}
      </>}
    </div>
  );
}

function Login() {
  const [text, setText] = useState("");
  return (
    <main class="login">
      <form onSubmit={(e) => { e.preventDefault(); setToken(text.trim()); model.restart(true); }}>
        <h1>snib</h1>
        <label>Token
          <input type="password" id="token" autocomplete="off" autofocus value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <p class="muted">It stays in this tab, and is sent to this service only.</p>
        {model.problem && <p role="alert" class="problem">{model.problem}</p>}
        <button type="submit" disabled={!text.trim()}>Log in</button>
      </form>
    </main>
  );
}

render(<App />, document.getElementById("app")!);
model.restart(false);
