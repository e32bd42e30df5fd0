// From the embedded numbers to the page.

const kStepParts = [
  {key: "experts", css: "experts", name: "experts"},
  {key: "attention", css: "attention", name: "attention"},
  {key: "dense", css: "dense", name: "dense products"},
  {key: "dispatch", css: "dispatch", name: "dispatch"},
  {key: "combine", css: "combine", name: "combine"},
  {key: "joint", css: "joint", name: "all-reduces and stages"},
  {key: "fixed", css: "fixed-part", name: "fixed"},
];

const kMemoryParts = [
  {key: "experts", css: "experts", name: "experts"},
  {key: "replicas", css: "replicas", name: "slots beyond the experts"},
  {key: "dense", css: "dense", name: "attention and dense weights"},
  {key: "vocabulary", css: "vocabulary", name: "embeddings and LM head"},
  {key: "cache", css: "cache", name: "cache of all requests"},
];

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function tileHtml(title, value, foot) {
  return `<div class="tile"><h2>${escapeText(title)}</h2><div class="value">${escapeText(value)}</div><div class="foot">${escapeText(foot)}</div></div>`;
}

function addRecommendation(data) {
  const card = document.createElement("section");
  card.className = "card";
  const {best} = data;
  if (!best) {
    card.innerHTML = `<h2>No recommendation</h2><p class="recommended">${escapeText(data.nearest)}</p>`;
  } else {
    const limit = (ms) => ms ? `at most ${formatTime(ms)} allowed` : "no limit given";
    card.innerHTML = `<h2>Recommended</h2><p class="recommended">${escapeText(best.layout)}</p><div class="tiles">` +
        tileHtml("Tokens/s of a rank", formatNumber(best.per_rank), `± ${(100 * best.error).toFixed(0)} %, predicted`) +
        tileHtml("Tokens/s of a user", formatNumber(best.per_user), `${formatCount(best.requests)} requests at the same time`) +
        tileHtml("Between two tokens", formatTime(best.tpot), limit(data.limits.tpot)) +
        tileHtml("To the first token", formatTime(best.ttft), limit(data.limits.ttft)) +
        tileHtml("Ranks", formatCount(best.ranks), `EP ${best.ep}`) +
        tileHtml("Imbalance", imbalanceText(best), best.imbalance === null ? "not known without --stats" : "0 is perfect") + `</div>` +
        `<ul class="because">${data.reasons.map((reason) => `<li>${escapeText(reason)}</li>`).join("")}</ul>`;
  }
  card.innerHTML += `<p class="small">${escapeText(sentence(data.statistics))}</p>`;
  document.getElementById("report").append(card);
}

function addField(data) {
  const sizes = [...new Set(data.cloud.map((each) => each[2]))].sort((a, b) => a - b);
  addSection({
    title: "What is possible",
    hint: `Each grey dot is a layout with a batch; <b>up is cheaper, right is faster for a user</b>. Of those on the line none is better in both. ` +
        `${data.limits.tpot ? "Left of the dashed line answers are slower than allowed." : ""}`,
    controls: [{key: "axes", label: "Axes", options: [{value: "log", text: "logarithmic"}, {value: "linear", text: "linear"}], value: "log"},
               {key: "ep", label: "Mark", options: [{value: "", text: "none"}, ...sizes.map((ep) => ({value: String(ep), text: `EP ${ep}`}))], value: "", steps: true}],
    draw: ({axes, ep}, parts) => {
      const width = layOutPanels(parts.panels, 1, kMinChartWidth), isLog = axes === "log";
      parts.panels.innerHTML = fieldSvg(data, width, isLog, ep);
      parts.legend.innerHTML = `<span class="name"><span class="key best"></span>recommended</span><span class="name"><span class="key front"></span>none is better in both</span>` +
          `<span class="name"><span class="key cloud"></span>others</span>${ep ? `<span class="name"><span class="key chosen"></span>EP ${escapeText(ep)}</span>` : ""}`;
      linkField(parts.panels.querySelector("svg"), data, width, isLog);
    },
  });
}

// The recommendation and what differs from it in one thing.
function compared(data) {
  return [{...data.best, change: "recommended", meets: true}, ...data.neighbours];
}

function addSteps(data) {
  addSection({
    title: "Where the time goes",
    hint: "An iteration without prompt tokens, of the recommendation and of layouts that <b>differ in one thing</b>, each with the batch that is best for it. " +
        "At the right: tokens/s of a rank, with prompts. Of a token of a rank shorter is better.",
    controls: [{key: "per", label: "Of", options: [{value: "token", text: "a token of a rank"}, {value: "step", text: "an iteration"}], value: "token"}],
    draw: ({per}, parts) => {
      const rows = compared(data).map((each) => {
        const factor = per === "step" ? 1 : each.ranks / each.requests / each.tokens_of_step;
        return {name: each.change, note: `${formatNumber(each.per_rank)}/s${each.meets ? "" : ", too slow"}`,
                parts: Object.fromEntries(Object.entries(each.step).map(([key, value]) => [key, value * factor]))};
      });
      const width = layOutPanels(parts.panels, 1, kMinChartWidth);
      parts.panels.innerHTML = barsSvg(rows, kStepParts, formatTime, width);
      parts.legend.innerHTML = partsLegend(kStepParts.filter(({key}) => rows.some((row) => row.parts[key] > 0)));
    },
  });
}

function addImbalance(data) {
  if (data.imbalance.length < 2) return;
  addSection({
    title: "Imbalance by the number of ranks",
    hint: `Of the rows that ranks receive, max ÷ mean − 1, mean over layers; <b>0 is perfect</b>. ${escapeText(sentence(data.statistics))}`,
    controls: [{key: "axis", label: "Axis", options: [{value: "linear", text: "linear"}, {value: "log", text: "logarithmic"}], value: "linear"}],
    draw: ({axis}, parts) => {
      const width = layOutPanels(parts.panels, 1, kMinChartWidth);
      parts.panels.innerHTML = imbalanceSvg(data.imbalance, width, axis === "log");
      parts.legend.innerHTML = partsLegend(kImbalances);
    },
  });
}

function addMemory(data) {
  addSection({
    title: "Memory of a rank",
    hint: "With the cache of all its requests at their longest. What a machine has beyond the line stays free.",
    controls: [],
    draw: (_, parts) => {
      const rows = compared(data).map((each) => ({name: each.change, note: formatBytes(sum(Object.values(each.memory))), parts: each.memory}));
      const width = layOutPanels(parts.panels, 1, kMinChartWidth);
      const value = data.memory_bytes * data.memory_share;
      parts.panels.innerHTML = barsSvg(rows, kMemoryParts, formatBytes, width, {value, text: `${formatBytes(value)} may be used`});
      parts.legend.innerHTML = partsLegend(kMemoryParts);
    },
  });
}

function addTable(data) {
  const cells = (each) => [formatNumber(each.per_rank), formatNumber(each.per_user), formatTime(each.tpot), formatTime(each.ttft),
                           formatCount(each.requests), formatCount(each.ranks), imbalanceText(each)];
  const rowOf = (each, css) => `<tr class="${css}">${cells(each).map((text) => `<td class="number">${text}</td>`).join("")}<td>${escapeText(each.layout)}</td></tr>`;
  addSection({
    title: "The layouts of the line",
    hint: "From the fastest for a user to the cheapest.",
    controls: [],
    draw: (_, parts) => {
      const heads = ["tokens/s of a rank", "of a user", "TPOT", "TTFT", "requests", "ranks", "imbalance"];
      parts.panels.className = "panels single";
      parts.panels.innerHTML = `<div class="scroll" tabindex="0" role="region" aria-label="The layouts of the line"><table><thead><tr>${heads.map((head) => `<th class="number">${head}</th>`).join("")}<th>layout</th></tr></thead><tbody>` +
          (data.best ? rowOf(data.best, "best-row") : "") + data.pareto.map((each) => rowOf(each, "")).join("") + `</tbody></table></div>`;
    },
  });
}

function showAdvice(data) {
  document.getElementById("facts").textContent = `${data.model} · ${data.device} · prompts of ${formatCount(data.isl)} tokens, answers of ${formatCount(data.osl)} · ` +
      `${formatCount(data.layouts)} layouts weighed, ${formatCount(data.too_large)} of them without room`;
  addRecommendation(data);
  addField(data);
  if (data.best) addSteps(data);
  addImbalance(data);
  if (data.best) addMemory(data);
  addTable(data);
  document.getElementById("footer").textContent = "Drawn by wideep advise. Predictions: docs/advisor.md says how far they are off.";
}

showAdvice(JSON.parse(document.getElementById("data").textContent));
