// An answer as the server streams it: OpenAI's chat completions as server-sent events.

// Fields that not every server knows. One that refuses a field is asked without it from then on.
const kOptional = ["return_progress", "return_token_ids", "stream_options.continuous_usage_stats"];

// A speed over less time than this would be that of the network's pieces.
const kLeastMs = 20;

function isTaken(field) {
  return !server.refused.has(field);
}

function requestOf(conversation, message) {
  const messages = messagesBefore(conversation, message).map((each) => ({role: each.role, content: contentOf(each)}));
  if (conversation.system.trim() !== "") messages.unshift({role: "system", content: conversation.system});
  const body = {model: modelInUse(), messages, stream: true, stream_options: {include_usage: true}, ...samplingFields()};
  if (isTaken("stream_options.continuous_usage_stats")) body.stream_options.continuous_usage_stats = true;
  if (isTaken("return_progress")) body.return_progress = true;
  if (server.returnsExperts && isTaken("return_token_ids")) body.return_token_ids = true;
  return body;
}

// A reply that streams. Throws an Error with one line.
async function startStream(makeBody, signal) {
  for (;;) {
    const reply = await fetchWithKey("v1/chat/completions", {
      method: "POST", signal, headers: {"Content-Type": "application/json"}, body: JSON.stringify(makeBody()),
    });
    if (reply.ok) return reply;
    const {message, param} = await errorOf(reply);
    const refused = reply.status === 400 || reply.status === 422
        ? kOptional.find((each) => isTaken(each) && (param === each || message.includes(each.split(".").pop()))) : undefined;
    if (refused === undefined) throw new Error(message);
    server.refused.add(refused);
  }
}

// The data of each event. Lines end with \n or \r\n; events may come in any pieces.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", data = [];
  for (;;) {
    const {value, done} = await reader.read();
    text += value ?? "";
    const lines = text.split("\n");
    text = done ? "" : lines.pop();
    for (const each of lines) {
      const line = each.replace(/\r$/, "");
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
    }
    if (!done) continue;
    if (data.length > 0) yield data.join("\n");
    return;
  }
}

// Adds what comes to the message and calls onChange({progress}) each time. clock: ms, of the start.
async function readStream(reply, message, {begun, onChange}) {
  let isWhole = false, usage = null, first = 0, last = 0, pieces = 0;
  const tokens = [];
  const note = () => { message.stats = statsOf({usage, begun, first, last, pieces}); };
  for await (const event of eventsOf(reply)) {
    if (event === "[DONE]") {
      isWhole = true;
      continue;
    }
    const chunk = JSON.parse(event);
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    if (chunk.usage) usage = chunk.usage;
    const [choice] = chunk.choices ?? [];
    const delta = choice?.delta ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning ?? "";
    const text = delta.content ?? "";
    if (Array.isArray(chunk.prompt_token_ids)) tokens.push(...chunk.prompt_token_ids);
    else if (Array.isArray(choice?.prompt_token_ids)) tokens.push(...choice.prompt_token_ids);
    if (Array.isArray(choice?.token_ids)) tokens.push(...choice.token_ids);
    if (thought !== "" || text !== "") {
      last = performance.now();
      first ||= last;
      ++pieces;
      if (thought !== "") message.reasoning = (message.reasoning ?? "") + thought;
      message.content += text;
    }
    if (choice?.finish_reason) {
      isWhole = true;
      message.cut = choice.finish_reason === "length";
    }
    note();
    onChange({progress: first === 0 ? chunk.prompt_progress : undefined});
  }
  note();
  if (tokens.length > 1) message.tokens = tokens;
  if (!isWhole) throw new Error("the server has ended the stream before the answer was whole");
}

// rate: tokens/s after the first one, which waits for the prompt.
function statsOf({usage, begun, first, last, pieces}) {
  const answer = usage?.completion_tokens ?? pieces;
  const stats = {answer, total_ms: performance.now() - begun};
  if (first > 0) stats.first_ms = first - begun;
  if (answer > 1 && last > first + kLeastMs) stats.rate = (answer - 1) / ((last - first) / 1000);
  if (usage) {
    stats.prompt = usage.prompt_tokens;
    const cached = usage.prompt_tokens_details?.cached_tokens;
    if (typeof cached === "number") stats.cached = cached;
  }
  return stats;
}
