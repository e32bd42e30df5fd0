// The server that the page comes from: its key, its model, and what it offers besides.

const kKeyName = "wideep-api-key";  // the dashboard's, too
// Where the page is may have a path before it, of a proxy.
const kBase = new URL(".", location.href);
const server = {models: [], hasDashboard: false, hasExperts: false, returnsExperts: false, refused: new Set()};
let keyWaiters = [];

function addressOf(path) {
  return new URL(path, kBase);
}

// The key lasts as long as the tab; where the browser keeps nothing, as long as the page.
let keyOfPage = null;

function keyInUse() {
  try {
    return sessionStorage.getItem(kKeyName);
  } catch {
    return keyOfPage;
  }
}

function useKey(key) {
  keyOfPage = key;
  try {
    sessionStorage.setItem(kKeyName, key);
  } catch {
    // As above.
  }
}

// "" or why no header can have it: fetch would throw, and nobody would be asked for another one.
function keyError(key) {
  if (key === "") return "Expected a key, found an empty one.";
  const wrong = key.match(/[^\x20-\x7e]/);
  return wrong ? `Expected a key of ASCII letters, digits and signs, found “${wrong[0]}” in it.` : "";
}

function keyHeaders() {
  const key = keyInUse();
  return key ? {Authorization: `Bearer ${key}`} : {};
}

// Resolves when the user has given a key; rejects if they do not want to.
function askForKey() {
  byId("key-error").textContent = keyInUse() === null ? "" : "The server refuses this key.";
  const dialog = byId("key-dialog");
  if (!dialog.open) {
    byId("key").value = "";
    dialog.showModal();
    byId("key").focus();
  }
  return new Promise((resolve, reject) => keyWaiters.push({resolve, reject}));
}

function endKeyDialog(isGiven) {
  const waiters = keyWaiters;
  keyWaiters = [];
  byId("key-dialog").close();
  for (const each of waiters) {
    if (isGiven) each.resolve(); else each.reject(new Error("the server wants its API key; the next message asks for it again"));
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  byId("key-error").textContent = keyError(key);
  if (keyError(key) !== "") return;
  useKey(key);
  endKeyDialog(true);
});
byId("key-cancel").addEventListener("click", () => endKeyDialog(false));
byId("key-dialog").addEventListener("cancel", (event) => { event.preventDefault(); endKeyDialog(false); });

// As fetch, with the key, for which it asks the user as often as the server wants another one.
async function fetchWithKey(path, options = {}) {
  for (;;) {
    const reply = await fetch(addressOf(path), {cache: "no-store", ...options, headers: {...keyHeaders(), ...options.headers}});
    if (reply.status !== 401) return reply;
    await askForKey();
  }
}

// What a reply that is an error says, in one line.
async function errorOf(reply) {
  const text = await reply.text();
  try {
    const {error, message, detail} = JSON.parse(text);
    const said = error?.message ?? message ?? detail ?? error;
    if (typeof said === "string") return {message: `${said} (status ${reply.status})`, param: error?.param ?? ""};
  } catch {
    // Not JSON: of a proxy, say.
  }
  return {message: `status ${reply.status}${text ? `: ${text.slice(0, 200)}` : ""}`, param: ""};
}

async function readModels() {
  const reply = await fetchWithKey("v1/models");
  if (!reply.ok) throw new Error((await errorOf(reply)).message);
  const {data} = await reply.json();
  server.models = data;
}

// Which experts have answered only an engine knows that has some, and returns them. Behind a router
// of several there is no dashboard.
async function readOffers() {
  try {
    const reply = await fetchWithKey("dashboard/data?since=99999999999");
    if (!reply.ok) return;
    const data = await reply.json();
    Object.assign(server, {hasDashboard: true, hasExperts: data.has_experts === true, returnsExperts: data.returns_experts === true});
  } catch {
    // Chats work without it.
  }
}

function modelInUse() {
  return byId("model").value || server.models[0]?.id || "";
}

function showServer() {
  const [first] = server.models;
  const isOne = server.models.length <= 1;
  byId("model").hidden = isOne;
  byId("model-name").hidden = !isOne;
  byId("model-name").textContent = first?.id ?? "no model";
  byId("model").replaceChildren(...server.models.map((each) => make("option", {value: each.id}, each.id)));
  byId("welcome-facts").textContent = first ? `${first.id}${first.max_model_len ? `, ${formatCount(first.max_model_len)} tokens of context` : ""}` : "";
  byId("dashboard-link").hidden = !server.hasDashboard;
}

// Again and again, as the server may be started after the page was opened.
async function connect() {
  try {
    await readModels();
    await readOffers();
    showServer();
  } catch (error) {
    byId("model-name").textContent = "no server";
    byId("welcome-facts").textContent = `The server does not answer: ${error.message}`;
    if (!/API key/.test(error.message)) setTimeout(connect, 3000);
  }
}
