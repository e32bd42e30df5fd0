// System prompt, sampling, colours: in localStorage, for all conversations but the system prompt.

const kSettingsName = "wideep-chat-settings";
const kFields = [
  {name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05},
  {name: "top_p", label: "Top p", min: 0, max: 1, step: 0.01},
  {name: "top_k", label: "Top k", min: 0, step: 1},
  {name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01},
  {name: "max_tokens", label: "Most tokens of an answer", min: 1, step: 1},
  {name: "seed", label: "Seed", step: 1},
  {name: "repetition_penalty", label: "Repetition penalty", min: 0.01, max: 2, step: 0.01},
  {name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1},
  {name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1},
  {name: "stop", label: "Stop at this text"},
  {name: "thinking", label: "Thinking", choices: ["", "on", "off"]},
];
// What a request has from elsewhere: the conversation, and how its answer is read.
const kOwnFields = ["model", "messages", "stream", "stream_options", "n"];

const settings = readSettings();

function readSettings() {
  try {
    const read = JSON.parse(localStorage.getItem(kSettingsName) ?? "{}");
    return isObject(read) ? {system: "", theme: "", extra: "", ...read, sampling: isObject(read.sampling) ? read.sampling : {}}
                          : {system: "", theme: "", extra: "", sampling: {}};
  } catch {
    return {system: "", theme: "", extra: "", sampling: {}};
  }
}

function keepSettings() {
  try {
    localStorage.setItem(kSettingsName, JSON.stringify(settings));
  } catch (error) {
    notify(`Settings are not kept: ${error.message}`, {isError: true});
  }
}

// The fields of a request that the settings say.
function samplingFields() {
  const {thinking, ...fields} = settings.sampling;
  if (thinking) fields.chat_template_kwargs = {enable_thinking: thinking === "on"};
  return {...fields, ...(settings.extra && extraError(settings.extra) === "" ? JSON.parse(settings.extra) : {})};
}

// "" or what is wrong.
function extraError(text) {
  if (text.trim() === "") return "";
  try {
    const value = JSON.parse(text);
    if (!isObject(value)) return `expected an object, as {"top_k": 20}, found ${shown(value)}`;
    const own = Object.keys(value).find((each) => kOwnFields.includes(each));
    return own ? `${own}: the page sets it itself` : "";
  } catch (error) {
    return `not JSON: ${error.message}`;
  }
}

function takeField(field, input) {
  if (!input.checkValidity()) return input.reportValidity();
  const value = input.value;
  if (value === "") {
    delete settings.sampling[field.name];
  } else {
    settings.sampling[field.name] = field.step === undefined ? value : Number(value);
  }
  keepSettings();
}

function inputOf(field) {
  const id = `field-${field.name}`;
  if (field.choices) {
    const select = make("select", {id});
    for (const each of field.choices) select.append(make("option", {value: each}, each || "the model's own"));
    return select;
  }
  return make("input", {id, type: field.step === undefined ? "text" : "number", min: field.min, max: field.max,
                        step: field.step === undefined ? undefined : "any", placeholder: "default", autocomplete: "off"});
}

function makeFields() {
  for (const field of kFields) {
    const input = inputOf(field);
    input.value = settings.sampling[field.name] ?? "";
    input.addEventListener("change", () => takeField(field, input));
    byId("fields").append(make("div", {}, make("label", {for: input.id}, field.label), input));
  }
  const extra = byId("extra");
  extra.value = settings.extra;
  extra.addEventListener("change", () => {
    const error = extraError(extra.value);
    byId("extra-error").textContent = error;
    if (error !== "") return;
    settings.extra = extra.value.trim();
    keepSettings();
  });
}

// ---- colours: those of the system, or the other ones ----

const kDarkMedia = "screen and (prefers-color-scheme: dark)";
const darkRules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule.media && rule.media.mediaText.includes("prefers-color-scheme: dark"));

function systemIsDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function applyTheme() {
  const media = {dark: "all", light: "not all"}[settings.theme] ?? kDarkMedia;
  for (const rule of darkRules) rule.media.mediaText = media;
  document.documentElement.style.colorScheme = settings.theme || "light dark";
}

function changeTheme() {
  const isDark = settings.theme ? settings.theme === "dark" : systemIsDark();
  const wanted = isDark ? "light" : "dark";
  settings.theme = wanted === (systemIsDark() ? "dark" : "light") ? "" : wanted;
  keepSettings();
  applyTheme();
  say(`${wanted} colours`);
}
