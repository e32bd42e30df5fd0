// One message on the page: what was said, what was thought, its branches, and what it took.

// message id → {element, view, …} of those that are shown.
const shownMessages = new Map();
const kExpertsOf = "wideep-experts-of";  // of localStorage; the dashboard reads it

function partsOf(message) {
  return [message.stats?.rate ? `${formatNumber(message.stats.rate)} tokens/s` : "",
          message.stats?.answer ? formatMany(message.stats.answer, "token") : "",
          message.stats?.first_ms ? `first after ${formatRoughTime(message.stats.first_ms)}` : "",
          cachedText(message.stats),
          message.stopped ? "stopped" : "", message.cut ? "cut at the most tokens" : ""].filter((each) => each !== "");
}

// "80 % of 240 prompt tokens cached"
function cachedText(stats) {
  if (!stats?.prompt) return "";
  const prompt = formatMany(stats.prompt, "prompt token");
  return stats.cached === undefined ? prompt : `${Math.round((100 * stats.cached) / stats.prompt)} % of ${prompt} cached`;
}

function progressText({total, cache, processed}) {
  return `Reading the prompt: ${formatCount(processed)} of ${formatMany(total, "token")}` + (cache > 0 ? `, ${formatCount(cache)} of them cached` : "");
}

// n of m, with arrows, where there is more than one wording or answer.
function makeBranches(conversation, message) {
  const all = branchesOf(conversation, message);
  if (all.length < 2) return [];
  const place = all.indexOf(message);
  const go = (step) => {
    chooseBranch(conversation, message, step);
    keep(conversation);
    const next = all[place + step].id;
    showThread();
    shownMessages.get(next)?.element.querySelector(step < 0 ? ".left:not(:disabled), .right" : ".right:not(:disabled), .left")?.focus();
  };
  const left = makeButton("left", "The one before", () => go(-1));
  const right = makeButton("right", "The next one", () => go(1));
  left.disabled = place === 0;
  right.disabled = place === all.length - 1;
  return [left, make("span", {class: "branch"}, `${place + 1} of ${all.length}`), right];
}

function makeFilesOf(message) {
  return (message.files ?? []).map(({name, text}) =>
    make("details", {class: "file"}, make("summary", {}, make("i", {class: "icon clip"}), `${name} `, make("small", {}, formatBytes(new Blob([text]).size))),
         make("pre", {class: "file-text", tabindex: "0", role: "region", "aria-label": `Text of ${name}`}, text.length > 20000 ? text.slice(0, 20000) + "\n…" : text)));
}

// Which experts have answered: the dashboard runs the same tokens once more, and draws them.
function makeExperts(message) {
  if (!server.hasExperts) return [];
  const button = makeButton("experts", "Which experts answered", () => openExperts(message));
  return [button];
}

function openExperts(message) {
  if (!server.returnsExperts) {
    return notify("Which experts answered: start the server with --enable-return-routed-experts, and this opens the dashboard with them.");
  }
  if (!message.tokens) return notify("The tokens of this answer are not known here (an imported or stopped one): regenerate it.");
  // The last token was never fed to the model.
  try {
    localStorage.setItem(kExpertsOf, JSON.stringify({tokens: message.tokens.slice(0, -1), title: titleOf(message.content)}));
  } catch (error) {
    return notify(`The dashboard cannot be told which tokens: ${error.message}`, {isError: true});
  }
  open(addressOf("dashboard#experts"), "_blank");
}

function makeActions(conversation, message) {
  const row = make("div", {class: "actions"}, ...makeBranches(conversation, message));
  const copy = makeButton("copy", "Copy", () => copyFrom(copy, message.content));
  row.append(copy);
  if (message.role === "user") {
    row.append(makeButton("pencil", "Edit", () => editMessage(conversation, message)));
  } else {
    row.append(makeButton("again", "Regenerate", () => regenerate(conversation, message)), ...makeExperts(message));
    row.append(make("span", {class: "stats"}, partsOf(message).join(" · ")));
  }
  return row;
}

function makeMessage(conversation, message) {
  const isUser = message.role === "user";
  const element = make("li", {class: `message ${message.role}`}, make("h2", {class: "unseen"}, isUser ? "You" : "Answer"));
  const shownOne = {element, message, conversation};
  if (isUser) {
    const bubble = make("div", {class: "bubble"}, ...makeFilesOf(message));
    if (message.content !== "") bubble.append(make("p", {class: "said"}, message.content));
    element.append(bubble);
  } else {
    shownOne.summary = make("summary", {}, "Thinking");
    shownOne.thought = make("div", {class: "thought"});
    shownOne.thinking = make("details", {class: "thinking", hidden: true}, shownOne.summary, shownOne.thought);
    shownOne.body = make("div", {class: "md"});
    shownOne.state = make("p", {class: "state", hidden: true});
    shownOne.view = new MarkdownView(shownOne.body);
    element.append(shownOne.thinking, shownOne.body, shownOne.state);
  }
  shownMessages.set(message.id, shownOne);
  if (!isUser) updateAnswer(message);
  if (running?.message !== message) endMessage(shownOne);
  return element;
}

function updateThinking(shownOne) {
  const {reasoning = "", content, id} = shownOne.message;
  const isAtWork = running?.message.id === id && content === "";
  shownOne.thinking.hidden = reasoning.trim() === "";
  shownOne.summary.textContent = isAtWork ? "Thinking…" : "Thought";
  if (shownOne.thought.textContent !== reasoning) shownOne.thought.textContent = reasoning;
}

// Of an answer that is shown, what has come meanwhile.
function updateAnswer(message) {
  const shownOne = shownMessages.get(message.id);
  if (!shownOne) return;
  const isRunning = running?.message === message;
  updateThinking(shownOne);
  if (isRunning) shownOne.view.update(message.content); else shownOne.view.finish(message.content);
  const progress = isRunning ? running.progress : undefined;
  const isWaiting = isRunning && message.content === "" && !message.reasoning;
  shownOne.state.hidden = !isWaiting;
  shownOne.state.replaceChildren();
  if (!isWaiting) return;
  if (progress) {
    shownOne.state.append(make("progress", {max: progress.total, value: progress.processed, "aria-label": "The prompt"}), progressText(progress));
  } else {
    shownOne.state.append(make("span", {class: "dots", "aria-hidden": "true"}), make("span", {class: "unseen"}, "Waiting for the answer"));
  }
}

// When nothing more comes to it: what can be done with it, and what was wrong.
function endMessage(shownOne) {
  const {element, message, conversation} = shownOne;
  element.querySelectorAll(":scope > .actions, :scope > .failed").forEach((each) => each.remove());
  if (message.error) element.append(make("p", {class: "failed worse"}, message.error));
  element.append(makeActions(conversation, message));
}

function editMessage(conversation, message) {
  const {element} = shownMessages.get(message.id);
  const area = make("textarea", {class: "edit", rows: "3", "aria-label": "Another wording"});
  const send = make("button", {class: "main"}, "Send");
  const cancel = make("button", {type: "button"}, "Cancel");
  const form = make("form", {class: "edit-form"}, area, make("div", {class: "buttons"}, cancel, send));
  area.value = message.content;
  const end = () => { showThread(); byId("text").focus(); };
  cancel.addEventListener("click", end);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (area.value.trim() === "" && !message.files) return;
    sendMessage(conversation, {parent: message.parent, content: area.value, files: message.files});
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
    if (event.key === "Escape") {
      event.stopPropagation();
      end();
    }
  });
  element.querySelector(".bubble").replaceWith(form);
  element.querySelector(".actions")?.remove();
  fitText(area);
  area.focus();
}
