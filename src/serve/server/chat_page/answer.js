// Sending, answering, stopping. One answer at a time: the next one is asked for when it has ended.

const kDrawMs = 50;     // between two drawings of an answer that grows; at least four times what one takes
const kKeepMs = 2000;   // between two times that it is kept
let current = null;     // the conversation that is shown
let running = null;     // {conversation, message, controller, progress}
let isAtEnd = true;     // the thread is scrolled to its end, and follows it

function isBusy() {
  if (running) notify("An answer is under way: stop it first (Esc).");
  return running !== null;
}

function followEnd() {
  const thread = byId("thread");
  if (isAtEnd) thread.scrollTop = thread.scrollHeight;
  byId("to-end").hidden = isAtEnd;
}

function showThread() {
  shownMessages.clear();
  const path = current ? pathOf(current) : [];
  byId("welcome").hidden = path.length > 0;
  byId("messages").replaceChildren(...path.map((each) => makeMessage(current, each)));
  byId("title").value = current?.title ?? "";
  byId("export").disabled = path.length === 0;
  document.title = current?.title ? `${current.title} – wideep` : "wideep";
  showRunning();
  followEnd();
}

function showRunning() {
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
}

// A new message of the user, and its answer.
function sendMessage(conversation, {parent, content, files}) {
  if (isBusy()) return false;
  const message = addMessage(conversation, {parent, role: "user", content, ...(files?.length ? {files} : {})});
  if (conversation.title === "") conversation.title = titleOf(content || files[0].name);
  answer(conversation, message);
  return true;
}

function regenerate(conversation, message) {
  if (!isBusy()) answer(conversation, messageOf(conversation, message.parent));
}

// Adds an answer to the user's message, and fills it.
async function answer(conversation, question) {
  const message = addMessage(conversation, {parent: question.id, role: "assistant", content: "", model: modelInUse()});
  running = {conversation, message, controller: new AbortController(), progress: undefined};
  isAtEnd = true;
  showThread();
  showTitles(conversation);
  keep(conversation);
  say("Answering");
  let kept = performance.now(), timer = 0, pause = kDrawMs;
  const draw = () => {
    timer = 0;
    const start = performance.now();
    updateAnswer(message);
    followEnd();
    pause = Math.max(kDrawMs, 4 * (performance.now() - start));
    if (performance.now() - kept < kKeepMs) return;
    kept = performance.now();
    keep(conversation);
  };
  try {
    const {signal} = running.controller;
    const begun = performance.now();
    const reply = await startStream(() => requestOf(conversation, message), signal);
    await readStream(reply, message, {begun, onChange: ({progress}) => {
      running.progress = progress;
      timer ||= setTimeout(draw, pause);
    }});
  } catch (error) {
    if (running.controller.signal.aborted) message.stopped = true;
    else message.error = `No whole answer: ${error.message}`;
  }
  clearTimeout(timer);
  running = null;
  conversation.updated = Date.now();
  const shownOne = shownMessages.get(message.id);
  if (shownOne) {
    updateAnswer(message);
    endMessage(shownOne);
  }
  showRunning();
  followEnd();
  await keep(conversation);
  showTitles();
  say(message.error ?? (message.stopped ? "Stopped" : "The answer is whole"));
}

function stopAnswer() {
  running?.controller.abort();
}
