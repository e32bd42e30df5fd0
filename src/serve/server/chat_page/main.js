// The composer, the dialogs and the keys; then the page begins.

function fitText(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, 0.4 * innerHeight)}px`;
}

function submitText() {
  const content = byId("text").value;
  if ((content.trim() === "" && files.length === 0) || isBusy()) return;
  current ??= newConversation(settings.system);
  const path = pathOf(current);
  // An answer that is missing (the tab was closed) leaves a question at the end: the text follows it.
  if (!sendMessage(current, {parent: path.length > 0 ? path[path.length - 1].id : "", content, files})) return;
  files = [];
  showFiles();
  byId("text").value = "";
  fitText(byId("text"));
}

function openSettings() {
  byId("system").value = current ? current.system : settings.system;
  byId("system-default").hidden = current === null;
  document.querySelector('label[for="system"]').textContent = current ? "System prompt of this conversation" : "System prompt of new chats";
  byId("settings-dialog").showModal();
}

function takeSystem() {
  if (current) {
    current.system = byId("system").value;
    keep(current);
  } else {
    settings.system = byId("system").value;
    keepSettings();
  }
}

function editLast() {
  const last = current && pathOf(current).findLast((each) => each.role === "user");
  if (last && !running) editMessage(current, last);
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submitText();
});
byId("text").addEventListener("input", () => fitText(byId("text")));
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submitText();
  }
  if (event.key === "ArrowUp" && byId("text").value === "") {
    event.preventDefault();
    editLast();
  }
});
byId("stop").addEventListener("click", () => { stopAnswer(); byId("text").focus(); });
byId("settings").addEventListener("click", openSettings);
byId("system").addEventListener("change", takeSystem);
byId("system-default").addEventListener("click", () => {
  settings.system = byId("system").value;
  keepSettings();
  notify("New chats begin with this system prompt.");
});
byId("theme").addEventListener("click", changeTheme);
byId("title").addEventListener("change", () => {
  if (!current) return void (byId("title").value = "");
  current.title = byId("title").value.trim();
  keep(current).then(() => showTitles());
  document.title = `${current.title || "Untitled"} – wideep`;
});
byId("thread").addEventListener("scroll", () => {
  const {scrollTop, scrollHeight, clientHeight} = byId("thread");
  isAtEnd = scrollHeight - scrollTop - clientHeight < 40;
  byId("to-end").hidden = isAtEnd;
});
byId("to-end").addEventListener("click", () => {
  isAtEnd = true;
  followEnd();
});
addEventListener("keydown", (event) => {
  const isShortcut = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
  const run = isShortcut ? {k: startNew, ",": openSettings, b: toggleSide}[event.key.toLowerCase()] : undefined;
  if (run && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    run();
  }
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) stopAnswer();
});
// What has come of an answer is not lost with the tab.
addEventListener("pagehide", () => { if (running) store.write(running.conversation); });

// A link may bring the key, as /#key=…, which no server sees.
function takeKeyOfAddress() {
  if (!location.hash.startsWith("#key=")) return;
  let key = location.hash.slice(5);
  history.replaceState(null, "", location.pathname);
  try {
    key = decodeURIComponent(key);
  } catch {
    // A "%" of the key itself.
  }
  if (keyError(key) === "") useKey(key); else notify(`The key of this address is not used. ${keyError(key)}`, {isError: true});
}
takeKeyOfAddress();

async function begin() {
  applyTheme();
  makeFields();
  await openStore();
  startNew();
  await connect();
  if (current) showThread();
}
begin();
