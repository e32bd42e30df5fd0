// A conversation is a tree of messages: another answer to the same message, or another wording of
// it, is a branch beside it. `chosen` has, of each message (and "" of the first ones), which of
// those that follow it is shown.
//
//   {id, title, created, updated, system, chosen: {parent: id}, messages: [message, …]}
//   message: {id, parent, role, content, reasoning?, files?: [{name, text}], model?, stats?, stopped?, cut?,
//            error?, tokens?}
//
// A message stands behind its parent. Times are milliseconds since 1970.

function newConversation(system) {
  const now = Date.now();
  return {id: newId(), title: "", created: now, updated: now, system, chosen: {}, messages: []};
}

function addMessage(conversation, message) {
  const whole = {id: newId(), created: Date.now(), ...message};
  conversation.messages.push(whole);
  conversation.chosen[whole.parent] = whole.id;
  conversation.updated = whole.created;
  return whole;
}

function messageOf(conversation, id) {
  return conversation.messages.find((each) => each.id === id);
}

// Those with the same parent, in the order in which they were made.
function branchesOf(conversation, message) {
  return conversation.messages.filter((each) => each.parent === message.parent);
}

// What is shown, from the first message on.
function pathOf(conversation) {
  const followers = new Map();
  for (const each of conversation.messages) {
    if (!followers.has(each.parent)) followers.set(each.parent, []);
    followers.get(each.parent).push(each);
  }
  const path = [];
  for (let parent = ""; followers.has(parent);) {
    const all = followers.get(parent);
    const next = all.find((each) => each.id === conversation.chosen[parent]) ?? all[all.length - 1];
    path.push(next);
    parent = next.id;
  }
  return path;
}

// The messages before this one, the first one first.
function messagesBefore(conversation, message) {
  const before = [];
  for (let id = message.parent; id !== "";) {
    const each = messageOf(conversation, id);
    before.unshift(each);
    id = each.parent;
  }
  return before;
}

function chooseBranch(conversation, message, step) {
  const all = branchesOf(conversation, message);
  const next = all[all.indexOf(message) + step];
  if (next) conversation.chosen[message.parent] = next.id;
}

// As the model gets it: files before the text, each in a fence that its own text does not close.
function contentOf(message) {
  const files = (message.files ?? []).map(({name, text}) => {
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((each) => each[0].length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}\n\n`;
  });
  return files.join("") + message.content;
}

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > 60 ? line.slice(0, 59) + "…" : line;
}
