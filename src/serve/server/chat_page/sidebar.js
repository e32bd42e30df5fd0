// The list of conversations: open, new, delete, export, import.

const kNarrow = "(max-width: 860px)";
let titles = [];  // {id, title, updated}, the newest first

function groupOf(time) {
  const day = new Date(new Date().setHours(0, 0, 0, 0)).getTime();
  if (time >= day) return "Today";
  if (time >= day - 86400000) return "Yesterday";
  return time >= day - 7 * 86400000 ? "Last 7 days" : "Earlier";
}

function makeTitle(summary) {
  const isOpen = current?.id === summary.id;
  const name = summary.title || "Untitled";
  const button = make("button", {type: "button", class: "flat open", "aria-current": isOpen ? "true" : undefined}, name);
  button.addEventListener("click", () => openConversation(summary.id));
  const remove = makeButton("bin", `Delete ${name}`, () => deleteConversation(summary.id));
  return make("li", {class: isOpen ? "conversation is-open" : "conversation"}, button, remove);
}

// conversation: one that is not kept yet.
async function showTitles(conversation = null) {
  titles = (await store.titles()).filter((each) => each.id !== conversation?.id);
  if (conversation) titles.push(summaryOf(conversation));
  titles.sort((a, b) => b.updated - a.updated);
  const wanted = byId("search").value.trim().toLowerCase();
  const list = [];
  let group = "";
  for (const each of titles.filter(({title}) => title.toLowerCase().includes(wanted))) {
    if (groupOf(each.updated) !== group) list.push(make("li", {class: "group"}, group = groupOf(each.updated)));
    list.push(makeTitle(each));
  }
  if (list.length === 0) list.push(make("li", {class: "group"}, wanted ? "No title has this" : "No conversations yet"));
  byId("conversations").replaceChildren(...list);
  byId("export-all").disabled = titles.length === 0;
}

function showSide(isShown) {
  document.body.classList.toggle("side-shown", isShown);
  document.body.classList.toggle("side-hidden", !isShown);
  byId("shade").hidden = !isShown || !matchMedia(kNarrow).matches;
}

function toggleSide() {
  const isNarrow = matchMedia(kNarrow).matches;
  showSide(isNarrow ? !document.body.classList.contains("side-shown") : document.body.classList.contains("side-hidden"));
}

function closeSideIfNarrow() {
  if (matchMedia(kNarrow).matches) showSide(false);
}

async function openConversation(id) {
  const conversation = running?.conversation.id === id ? running.conversation : await store.read(id);
  if (!conversation) return notify("This conversation has been deleted in another tab.");
  current = conversation;
  isAtEnd = true;
  closeSideIfNarrow();
  showThread();
  showTitles(conversation);
  byId("text").focus();
}

function startNew() {
  current = null;
  isAtEnd = true;
  closeSideIfNarrow();
  showThread();
  showTitles();
  byId("text").focus();
}

async function deleteConversation(id) {
  if (running?.conversation.id === id) return isBusy();
  const conversation = await store.read(id);
  await store.remove(id);
  otherTabs.postMessage(id);
  if (current?.id === id) startNew(); else showTitles();
  notify(`Deleted: ${conversation?.title || "Untitled"}`, {action: {label: "Undo", run: async () => {
    await keep(conversation);
    showTitles();
  }}});
}

async function exportAll() {
  const all = await Promise.all(titles.map((each) => store.read(each.id)));
  download(`wideep-chats-${new Date().toISOString().slice(0, 10)}.json`, fileOf(all.filter(Boolean)));
}

function exportOne() {
  if (!current) return;
  const name = current.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 40);
  download(`wideep-chat-${name || current.id}.json`, fileOf([current]));
}

// Conversations that are here already get a second copy, so that none is lost.
async function importText(name, text) {
  let all;
  try {
    all = readFile(text);
  } catch (error) {
    return notify(`${name}: ${error.message}`, {isError: true});
  }
  const known = new Set(titles.map((each) => each.id));
  let count = 0;
  for (const each of all) {
    if (known.has(each.id)) each.id = newId();
    known.add(each.id);
    if (!await keep(each)) break;
    ++count;
  }
  await showTitles();
  notify(`${name}: ${formatMany(count, "conversation")} imported` + (count < all.length ? ` of ${all.length}` : ""), {isError: count < all.length});
  if (all.length === 1 && count === 1) openConversation(all[0].id);
}

byId("new-chat").addEventListener("click", startNew);
byId("search").addEventListener("input", () => showTitles());
byId("open-side").addEventListener("click", toggleSide);
byId("close-side").addEventListener("click", () => showSide(false));
byId("shade").addEventListener("click", () => showSide(false));
byId("export").addEventListener("click", exportOne);
byId("export-all").addEventListener("click", exportAll);
byId("import").addEventListener("click", () => byId("import-file").click());
byId("import-file").addEventListener("change", async () => {
  const [file] = byId("import-file").files;
  byId("import-file").value = "";
  if (file) importText(file.name, await file.text());
});
otherTabs.addEventListener("message", async ({data: id}) => {
  showTitles();
  if (current?.id !== id || running?.conversation.id === id) return;
  const conversation = await store.read(id);
  if (!conversation) return startNew();
  current = conversation;
  showThread();
});
