// Elements of the page, made and found; what is told to the user; the clipboard.

function byId(id) {
  return document.getElementById(id);
}

// make("button", {class: "flat", "aria-label": "Copy"}, "Copy", …): attributes, then texts or
// elements. Nothing that comes from a model or a file is ever read as HTML here.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function makeButton(icon, label, onClick) {
  const button = make("button", {type: "button", class: `flat icon ${icon}`, "aria-label": label, title: label});
  button.addEventListener("click", onClick);
  return button;
}

// One line above the composer. action: {label, run}, as "Undo".
function notify(text, {isError = false, action = null} = {}) {
  const line = make("p", {class: isError ? "notice worse" : "notice"}, make("span", {}, text));
  const close = () => line.remove();
  if (action) {
    const button = make("button", {type: "button", class: "small-button"}, action.label);
    button.addEventListener("click", () => { close(); action.run(); });
    line.append(button);
  }
  line.append(makeButton("close", "Close", close));
  const lines = byId("notices");
  while (lines.children.length >= 3) lines.firstChild.remove();
  lines.append(line);
  if (!isError) setTimeout(close, 8000);
}

// For those who hear the page.
function say(text) {
  byId("live").textContent = text;
}

// Browsers have navigator.clipboard on https and on this machine only.
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make("textarea", {class: "unseen", "aria-label": "Copied text"});
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser does not allow it");
}

// The button says that it is done.
async function copyFrom(button, text) {
  try {
    await copyText(text);
    button.classList.add("done");
    say("Copied");
    setTimeout(() => button.classList.remove("done"), 1500);
  } catch (error) {
    notify(`Not copied: ${error.message}`, {isError: true});
  }
}

function download(name, text) {
  const link = make("a", {href: URL.createObjectURL(new Blob([text], {type: "application/json"})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function newId() {
  return "m" + [...crypto.getRandomValues(new Uint8Array(8))].map((each) => each.toString(16).padStart(2, "0")).join("");
}
