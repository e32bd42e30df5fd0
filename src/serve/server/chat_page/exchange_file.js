// Conversations in a file: {"format": "wideep-chat", "version": 1, "conversations": […]}. A file
// that is read is checked whole first; what is wrong is named by its place.

const kFileFormat = "wideep-chat";
const kFileVersion = 1;
const kIdPattern = /^m[0-9a-f]{1,32}$/;

function fileOf(conversations) {
  const all = conversations.map((each) => ({
    ...each, messages: each.messages.map(({tokens, ...message}) => message),
  }));
  return JSON.stringify({format: kFileFormat, version: kFileVersion, exported: new Date().toISOString(), conversations: all}, null, 1);
}

function shown(value) {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 40 ? text.slice(0, 39) + "…" : text;
}

function expectThat(isRight, place, expected, found) {
  if (!isRight) throw new Error(`${place}: expected ${expected}, found ${shown(found)}`);
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function readFiles(files, place) {
  expectThat(Array.isArray(files), place, "a list", files);
  return files.map((each, i) => {
    expectThat(isObject(each) && typeof each.name === "string" && typeof each.text === "string", `${place}[${i}]`,
               "an object with name and text", each);
    return {name: each.name, text: each.text};
  });
}

function readStats(stats, place) {
  expectThat(isObject(stats), place, "an object", stats);
  const read = {};
  for (const name of ["prompt", "cached", "answer", "first_ms", "total_ms", "rate"]) {
    if (stats[name] === undefined || stats[name] === null) continue;
    expectThat(Number.isFinite(stats[name]) && stats[name] >= 0, `${place}.${name}`, "a number of at least 0", stats[name]);
    read[name] = stats[name];
  }
  return read;
}

function readMessage(value, place, known) {
  expectThat(isObject(value), place, "an object", value);
  expectThat(kIdPattern.test(value.id) && !known.has(value.id), `${place}.id`, "an id (m and hexadecimal digits) that no other message has", value.id);
  expectThat(value.parent === "" || known.has(value.parent), `${place}.parent`, '"" or the id of a message before it', value.parent);
  expectThat(["user", "assistant"].includes(value.role), `${place}.role`, '"user" or "assistant"', value.role);
  expectThat(typeof value.content === "string", `${place}.content`, "a text", value.content);
  const message = {id: value.id, parent: value.parent, role: value.role, content: value.content, created: Number(value.created) || Date.now()};
  for (const name of ["reasoning", "error", "model"]) {
    if (value[name] === undefined) continue;
    expectThat(typeof value[name] === "string", `${place}.${name}`, "a text", value[name]);
    message[name] = value[name];
  }
  for (const name of ["stopped", "cut"]) {
    if (value[name] !== undefined) message[name] = value[name] === true;
  }
  if (value.files !== undefined) message.files = readFiles(value.files, `${place}.files`);
  if (value.stats !== undefined) message.stats = readStats(value.stats, `${place}.stats`);
  return message;
}

function readConversation(value, place) {
  expectThat(isObject(value), place, "an object", value);
  expectThat(kIdPattern.test(value.id), `${place}.id`, "an id (m and hexadecimal digits)", value.id);
  expectThat(typeof value.title === "string", `${place}.title`, "a text", value.title);
  expectThat(typeof value.system === "string", `${place}.system`, "a text", value.system);
  expectThat(Array.isArray(value.messages), `${place}.messages`, "a list", value.messages);
  const known = new Set();
  const messages = value.messages.map((each, i) => {
    const message = readMessage(each, `${place}.messages[${i}]`, known);
    known.add(message.id);
    return message;
  });
  const chosen = {};
  for (const [parent, id] of Object.entries(isObject(value.chosen) ? value.chosen : {})) {
    if ((parent === "" || known.has(parent)) && known.has(id)) chosen[parent] = id;
  }
  return {id: value.id, title: value.title, system: value.system, chosen, messages,
          created: Number(value.created) || Date.now(), updated: Number(value.updated) || Date.now()};
}

// Throws an Error with one line.
function readFile(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`not JSON: ${error.message}`);
  }
  expectThat(isObject(file) && file.format === kFileFormat, "format", `"${kFileFormat}", of an export of this page`, file?.format);
  expectThat(file.version === kFileVersion, "version", String(kFileVersion), file.version);
  expectThat(Array.isArray(file.conversations), "conversations", "a list", file.conversations);
  return file.conversations.map((each, i) => readConversation(each, `conversations[${i}]`));
}
