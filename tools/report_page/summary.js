// The headline numbers: tiles and a table; how runs are named and marked.

function runName(runs, index) {
  const {name} = runs[index];
  return runs.length === 1 ? "Run" : name[0].toUpperCase() + name.slice(1);
}

function runClass(index) {
  return index === 0 ? "before" : "after";
}

// The mark of a run, as in the charts.
function dotHtml(index) {
  return `<span class="dot ${runClass(index)}"></span>`;
}

// How a value changed, in words; `goal` ("lower" or "higher") says which way is better.
function formatChange(before, after, goal) {
  if (before === null || after === null) return {text: "–", quality: "same"};
  // The times of one run vary by more than 3 %.
  if (before === after || Math.abs(after - before) < 0.03 * Math.max(before, after)) {
    return {text: "same", quality: "same"};
  }
  const direction = after < before ? "lower" : "higher";
  const times = Math.max(before, after) / Math.min(before, after);
  const amount = Number.isFinite(times) ? `${formatTimes(times)} ` : "";
  const quality = goal === undefined ? "same" : direction === goal ? "better" : "worse";
  return {text: `${direction === "lower" ? "▼" : "▲"} ${amount}${direction}`, quality};
}

function formatTimes(times) {
  return times.toFixed(times < 9.95 ? (times < 1.095 ? 2 : 1) : 0) + "×";
}

function worstLayer(run) {
  const index = indexOfMax(run.summary.layers.map((layer) => layer.average));
  return {layer: run.layers[index], ratio: run.summary.layers[index].average};
}

// rows: what, value of a run, its text, which way is better (if any).
function summaryRows() {
  const mean = (kind) => (run) => run.summary.mean[kind];
  const part = (key) => (run) => run.summary[key];
  return [
    {what: "Imbalance ratio, mean over layers and iterations", value: mean("average"), text: formatRatio, goal: "lower"},
    {what: "… weighted by tokens", value: mean("weighted"), text: formatRatio, goal: "lower"},
    {what: "… iterations with prompt tokens", value: mean("prompt"), text: formatRatio, goal: "lower"},
    {what: "… iterations that only generate", value: mean("generation"), text: formatRatio, goal: "lower"},
    {what: "… of the worst layer", value: (run) => worstLayer(run).ratio, goal: "lower",
     text: (ratio, run) => `${formatRatio(ratio)} (layer ${worstLayer(run).layer})`},
    {what: "Critical path of the experts", value: part("critical_path_ms"), text: formatTime, goal: "lower"},
    {what: "Generated tokens per second", value: part("tokens_per_second"), text: formatNumber, goal: "higher"},
    {what: "Wall time", value: part("wall_ms"), text: formatTime, goal: "lower"},
    {what: "Slots per layer", value: (run) => run.num_slots, text: formatCount},
    {what: "Iterations recorded", value: (run) => run.iterations.length, text: formatCount},
    {what: "Prompt tokens", value: part("prompt_tokens"), text: formatCount},
    {what: "Generated tokens", value: part("generated_tokens"), text: formatCount},
  ];
}

function summaryTableHtml(runs) {
  const heads = runs.map((run, i) => `<th class="number">${runs.length === 2 ? dotHtml(i) : ""}${runName(runs, i)}</th>`);
  const change = runs.length === 2 ? '<th class="number">Change</th>' : "";
  const body = summaryRows().map((row) => summaryRowHtml(runs, row)).join("");
  return `<table><thead><tr><th></th>${heads.join("")}${change}</tr></thead><tbody>${body}</tbody></table>`;
}

function summaryRowHtml(runs, row) {
  const values = runs.map(row.value);
  const cells = values.map((value, i) => `<td class="number">${escapeText(value === null ? "–" : row.text(value, runs[i]))}</td>`);
  if (runs.length === 2) {
    const change = formatChange(values[0], values[1], row.goal);
    cells.push(`<td class="number ${change.quality}">${change.text}</td>`);
  }
  return `<tr><td>${row.what}</td>${cells.join("")}</tr>`;
}

function tileHtml(runs, {title, value, text, goal, foot}) {
  const values = runs.map(value);
  const from = runs.length === 2 ? `<span class="from">${text(values[0])} → </span>` : "";
  const change = runs.length === 2 ? formatChange(values[0], values[1], goal) : null;
  return `<div class="tile"><h2>${title}</h2><div class="value">${from}${text(values[values.length - 1])}</div>` +
      (change ? `<div class="change ${change.quality}">${change.text}</div>` : "") + `<div class="foot">${foot}</div></div>`;
}

function tilesHtml(runs) {
  const weighted = runs.map((run) => formatRatio(run.summary.mean.weighted)).join(" → ");
  const tiles = [
    {title: "Mean imbalance ratio", value: (run) => run.summary.mean.average, text: formatRatio, goal: "lower",
     foot: `weighted by tokens: ${weighted}`},
    {title: "Critical path of the experts", value: (run) => run.summary.critical_path_ms, text: formatTime, goal: "lower",
     foot: "CPU time of the slowest rank, summed over layers and iterations"},
    {title: "Generated tokens per second", value: (run) => run.summary.tokens_per_second, text: formatNumber, goal: "higher",
     foot: "over the whole run, prompts included"},
    {title: "Wall time", value: (run) => run.summary.wall_ms, text: formatTime, goal: "lower",
     foot: "follows the critical path only where every rank has a core of its own"},
  ];
  return `<div class="tiles">${tiles.map((tile) => tileHtml(runs, tile)).join("")}</div>`;
}

function addSummary(runs) {
  const card = document.createElement("section");
  const topK = runs[0].top_k;
  card.innerHTML = tilesHtml(runs) + `<div class="card"><h2>Summary</h2>${summaryTableHtml(runs)}` +
      `<p class="small">The pictures count <b>pairs</b>: a token that goes to ${formatMany(topK, "expert")} makes ` +
      `${formatMany(topK, "pair")}, the unit of the experts’ work. The <b>imbalance ratio</b> is max ÷ mean − 1 of the ` +
      `pairs that the ranks receive: 0 is even; at 1 the busiest rank has twice its share and the others wait for it.</p></div>`;
  document.getElementById("report").append(card);
}
