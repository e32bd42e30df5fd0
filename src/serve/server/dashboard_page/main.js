// Asks the server once a second for what has happened since, and draws it.

const kPollMs = 1000;
const kPatienceMs = 5000;
const kRecentSeconds = 10;  // with tokens: what "now" is of imbalance
const kKeyName = "wideep-api-key";
const state = {seconds: new Map(), data: null, end: 0, last: null, recent: [], busy: false, newest: 0};
let timer = 0;

function setState(name, text) {
  document.getElementById("state").className = `state ${name}`;
  setText("state-text", text);
}

function askForKey(wasWrong) {
  document.getElementById("key-form").hidden = false;
  document.getElementById("board").hidden = true;
  setText("key-error", wasWrong ? "That is not the key." : "");
  setState("", "waiting for the key");
}

function keyHeaders() {
  const key = sessionStorage.getItem(kKeyName);
  return key ? {Authorization: `Bearer ${key}`} : {};
}

function askServer(path) {
  return fetch(location.pathname.replace(/\/+$/, "") + path, {
    headers: keyHeaders(),
    cache: "no-store",
    signal: AbortSignal.timeout(kPatienceMs),
  });
}

async function ask() {
  const reply = await askServer(`/data?since=${state.newest}`);
  if (reply.status === 401) {
    askForKey(sessionStorage.getItem(kKeyName) !== null);
    return null;
  }
  if (!reply.ok) throw new Error(`status ${reply.status}`);
  return reply.json();
}

// The second that goes on is not whole yet; it is asked for again.
function take(data) {
  if (state.data && data.started !== state.data.started) state.seconds.clear();
  for (const each of data.seconds) {
    state.seconds.set(each.time, each);
    state.newest = Math.max(state.newest, each.time);
  }
  for (const time of state.seconds.keys()) {
    if (time < data.now - data.history_seconds) state.seconds.delete(time);
  }
  state.data = data;
  state.end = Math.floor(data.now);
  const whole = [...state.seconds.values()].filter((each) => each.time < state.end && each.iterations > 0)
                    .sort((a, b) => a.time - b.time);
  state.last = whole[whole.length - 1] ?? null;
  state.recent = whole.slice(-kRecentSeconds);
  state.busy = state.last !== null && state.end - state.last.time <= 2 && data.answers_running > 0;
}

function redraw() {
  if (state.data) drawBoard(state);
}

async function poll() {
  clearTimeout(timer);
  try {
    const data = await ask();
    if (data === null) return;
    document.getElementById("key-form").hidden = true;
    document.getElementById("board").hidden = false;
    take(data);
    redraw();
    offerRequest(state);
    if (load.timer === 0) askForLoad();
    const isDegraded = data.ranks.degraded !== "";
    setState(isDegraded ? "degraded" : "live",
             (isDegraded ? "degraded" : "live") + (data.answers_running > 0 ? "" : ", idle"));
  } catch (error) {
    setState("lost", `no answer: ${error.message}`);
  }
  timer = setTimeout(poll, kPollMs);
}

// A link may bring the key, as /dashboard#key=…, which no server sees.
if (location.hash.startsWith("#key=")) {
  let key = location.hash.slice(5);
  history.replaceState(null, "", location.pathname);
  try {
    key = decodeURIComponent(key);
  } catch {
    // A "%" of the key itself.
  }
  sessionStorage.setItem(kKeyName, key);
}

document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(kKeyName, document.getElementById("key").value);
  poll();
});
addEventListener("resize", redraw);
installPalette();
poll();
