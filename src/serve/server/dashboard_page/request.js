// One request alone: sends a text and draws which experts of each layer its tokens have used. What
// the router chooses for a text does not depend on the requests beside it.

const kAnswerTokens = 32;
const kExpertsOf = "wideep-experts-of";  // of localStorage; the chat page writes it

// The numbers of a file of numpy.save with int32, and its shape.
function readNpy(base64) {
  const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const length = view.getUint16(8, true);
  const head = String.fromCharCode(...bytes.slice(10, 10 + length));
  const shape = head.match(/'shape': \(([^)]*)\)/)[1].split(",").filter((each) => each.trim()).map(Number);
  if (!head.includes("'<i4'")) throw new Error(`experts are not int32: ${head}`);
  return {shape, values: new Int32Array(bytes.buffer.slice(10 + length))};
}

// [layer][expert] tokens
function countExperts({shape: [positions, layers, topK], values}, numExperts) {
  const counts = Array.from({length: layers}, () => new Array(numExperts).fill(0));
  for (let i = 0; i < positions * layers * topK; ++i) ++counts[Math.floor(i / topK) % layers][values[i]];
  return counts;
}

function drawRequest(counts, tokens) {
  const used = counts.map((row) => row.filter((each) => each > 0).length);
  const scale = sequentialScale(maxOf(counts.flat()));
  drawMap("request-map", {
    rows: counts.length, cols: counts[0].length, value: (row, col) => counts[row][col],
    rowLabel: (row) => String(load.facts.layers[row]), colLabel: String, rowTitle: "MoE layer", colTitle: "expert",
    notes: {title: "used", text: (row) => `${used[row]} of ${counts[row].length}`}, format: formatShort,
  }, scale, "Experts of one request", (row, col) =>
    [`layer ${load.facts.layers[row]}, expert ${col}`, `<b>${formatCount(counts[row][col])}</b> of ${formatMany(tokens, "token")}`]);
  legendOf("request-legend", scale, "0", formatMany(maxOf(counts.flat()), "token"));
}

// prompt: a text, or token ids. title: what is told of it; without one its answer is.
async function showExperts({prompt, tokens, title}) {
  setText("request-answer", "waiting for the answer…");
  try {
    const reply = await fetch(location.pathname.replace(/\/dashboard\/*$/, "/v1/completions"), {
      method: "POST", headers: {...keyHeaders(), "Content-Type": "application/json"},
      body: JSON.stringify({model: state.data.model, prompt, max_tokens: tokens, temperature: 0}),
    });
    const answer = await reply.json();
    if (!reply.ok) throw new Error(answer.error.message);
    const [choice] = answer.choices;
    setText("request-answer", title ?? choice.text);
    const experts = readNpy(choice.routed_experts);
    drawRequest(countExperts(experts, load.facts.num_experts), experts.shape[0]);
  } catch (error) {
    setText("request-answer", `no answer: ${error.message}`);
  }
}

function tryRequest(event) {
  event.preventDefault();
  const prompt = document.getElementById("request-text").value;
  if (prompt !== "") showExperts({prompt, tokens: kAnswerTokens});
}

// The chat page asks which experts have answered, with #experts and the tokens of the chat and its
// answer but the last one, which no expert has seen. Run once more, as a prompt, these go the same
// way: the router decides by the tokens before alone.
function showAsked() {
  const asked = JSON.parse(localStorage.getItem(kExpertsOf) ?? "null");
  history.replaceState(null, "", location.pathname);
  document.getElementById("request-map").closest("figure").scrollIntoView();
  if (!asked) return setText("request-answer", "the answer that was asked for is not known any more: ask again on the chat page");
  showExperts({prompt: asked.tokens, tokens: 1, title: `Chat and answer, ${formatMany(asked.tokens.length, "token")}: ${asked.title}`});
}

// Told once: whether the server returns experts does not change while it runs.
function offerRequest({data}) {
  if (location.hash === "#experts" && data.returns_experts && load.facts) showAsked();
  document.getElementById("request-form").hidden = !data.returns_experts;
  document.getElementById("request-off").hidden = data.returns_experts;
}

document.getElementById("request-form").addEventListener("submit", tryRequest);
