// Pictures of the experts' load in the last minutes: from rank to rank, expert over time, and the
// last move. Their data are asked for more seldom than the rest, and only what is new.

const kLoadPollMs = 5000;
// shown: the first second of a window, "all", or null for the last one.
const load = {windows: new Map(), layer: null, move: null, facts: null, shown: null, started: 0, timer: 0};

async function askForLoad() {
  clearTimeout(load.timer);
  const newest = Math.max(0, ...load.windows.keys());
  const layer = load.layer === null ? "" : `&layer=${load.layer}`;
  try {
    const reply = await askServer(`/load?since=${newest}${layer}`);
    if (reply.ok) takeLoad(await reply.json(), layer);
  } catch { /* the state of the page says it */ }
  load.timer = setTimeout(askForLoad, kLoadPollMs);
}

// Replies to questions about another layer are late ones.
function takeLoad(facts, layer) {
  if (load.layer !== null && layer !== `&layer=${load.layer}`) return;
  if (load.started !== state.data?.started) load.windows.clear();
  load.started = state.data?.started;
  load.facts = facts;
  load.layer ??= facts.layer;
  load.move = facts.move;
  for (const each of facts.windows) load.windows.set(each.time, each);
  const first = Math.max(...load.windows.keys()) - 180;
  for (const time of load.windows.keys()) if (time < first) load.windows.delete(time);
  drawLoad();
}

function drawLoad() {
  if (!load.facts || load.facts.layers.length === 0 || document.getElementById("board").hidden) return;
  document.getElementById("load-board").hidden = false;
  offerLayers();
  offerWindows();
  drawSent();
  drawExperts();
  drawMove();
}

// Keeps what is chosen. options: [{value, text}]
function offer(id, options, value) {
  const select = document.getElementById(id);
  const html = options.map((each) => `<option value="${each.value}">${each.text}</option>`).join("");
  if (select.dataset.offered !== html) {
    select.innerHTML = html;
    select.dataset.offered = html;
  }
  select.value = value;
}

function offerLayers() {
  offer("experts-layer", load.facts.layers.map((layer) => ({value: String(layer), text: `layer ${layer}`})), String(load.layer));
}

function windowsWithSent() {
  return [...load.windows.values()].filter((each) => each.sent).sort((a, b) => b.time - a.time);
}

function clockText(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

function offerWindows() {
  const windows = windowsWithSent();
  if (typeof load.shown === "number" && !windows.some((each) => each.time === load.shown)) load.shown = null;
  offer("sent-window", [{value: "now", text: `last ${load.facts.window_seconds} s`}, {value: "all", text: "all of these"},
                        ...windows.slice(1).map((each) => ({value: String(each.time), text: `from ${clockText(each.time)}`}))],
        load.shown === null ? "now" : String(load.shown));
}

// Draws a heat map as wide as its holder. tell(row, col): lines of the tooltip.
function drawMap(id, map, scale, label, tell) {
  const holder = document.getElementById(id);
  const width = holder.clientWidth;
  holder.innerHTML = heatMapSvg(map, scale, width, label);
  holder.drawn = {map, tell, svg: holder.querySelector("svg"), layout: heatLayout(map, width)};
  if (!holder.listens) listenToMap(holder, label);
  holder.tabIndex = 0;
}

function listenToMap(holder, label) {
  holder.listens = true;
  nameGroup(holder, label);
  holder.addEventListener("pointermove", (event) => {
    if (!holder.drawn) return;
    const {map, tell, svg, layout} = holder.drawn, cell = cellAt(svg, layout, map, event);
    moveCursor(svg, layout, cell);
    if (cell && map.value(cell.row, cell.col) !== null) return showTooltip(event, tell(cell.row, cell.col).join("<br>"));
    hideTooltip();
  });
  holder.addEventListener("pointerleave", () => {
    if (holder.drawn) moveCursor(holder.drawn.svg, holder.drawn.layout, null);
    hideTooltip();
  });
  followKeys(holder, () => {
    const {map, layout} = holder.drawn ?? {map: {cols: 1, rows: 1}, layout: {left: 0, top: 0, cellWidth: 1, cellHeight: 1, width: 1, height: 1}};
    return {...layout, cols: map.cols, rows: map.rows};
  });
}

function showEmpty(id, text) {
  const holder = document.getElementById(id);
  holder.innerHTML = `<p class="empty-picture">${text}</p>`;
  holder.drawn = null;
  holder.removeAttribute("tabindex");
}

function legendOf(id, scale, least, most) {
  document.getElementById(id).innerHTML = `${least} <svg width="128" height="12" role="img" aria-label="colours">` +
      rampSvg(scale, {top: 0, step: 2, height: 12}) + `</svg> ${most}`;
}

function sentGrid() {
  const windows = windowsWithSent();
  if (windows.length === 0) return null;
  if (load.shown === "all") {
    return windows[0].sent.map((row, from) => row.map((_, to) => sum(windows.map((each) => each.sent[from][to]))));
  }
  return (windows.find((each) => each.time === load.shown) ?? windows[0]).sent;
}

function drawSent() {
  const sent = sentGrid();
  if (!sent || sum(sent.flat()) === 0) return showEmpty("sent-map", "no tokens in the last minutes");
  const ranks = load.facts.num_ranks, mean = sum(sent.flat()) / ranks ** 2;
  const received = sent[0].map((_, to) => sum(sent.map((row) => row[to])));
  const scale = sequentialScale(Math.max(2, maxOf(sent.flat()) / mean));
  drawMap("sent-map", {
    rows: ranks, cols: ranks, value: (row, col) => sent[row][col] / mean, rowLabel: String, colLabel: String,
    rowTitle: "sending rank", colTitle: "receiving rank", format: formatRatio,
    bars: {title: "received (dashed: even share)", values: received, max: maxOf(received), mean: sum(received) / ranks},
  }, scale, "Pairs from each rank to each rank", (row, col) =>
    [row === col ? `rank ${row} to itself` : `rank ${row} to rank ${col}`,
     `<b>${formatCount(sent[row][col])}</b> (token, expert) pairs`, `${formatRatio(sent[row][col] / mean)} × the mean`]);
  legendOf("sent-legend", scale, "0", `${formatRatio(Math.max(2, maxOf(sent.flat()) / mean))} × the mean`);
}

function drawExperts() {
  const windows = [...load.windows.values()].filter((each) => each.experts && sum(each.experts) > 0).sort((a, b) => a.time - b.time);
  if (windows.length === 0) return showEmpty("experts-map", "no tokens in the last minutes");
  const experts = load.facts.num_experts;
  const means = windows.map((each) => sum(each.experts) / experts);
  const totals = Array.from({length: experts}, (_, expert) => sum(windows.map((each) => each.experts[expert])));
  // A few experts of one window are far above the rest, which would have no contrast.
  const shares = windows.flatMap((each, i) => each.experts.map((count) => count / means[i])).sort((a, b) => a - b);
  const most = Math.max(2, shares[Math.floor(0.99 * (shares.length - 1))]);
  const scale = sequentialScale(most);
  drawMap("experts-map", {
    rows: windows.length, cols: experts, value: (row, col) => windows[row].experts[col] / means[row],
    rowLabel: (row) => clockText(windows[row].time), colLabel: String, rowTitle: "", colTitle: "expert", format: formatRatio,
    bars: {title: "all of these (dashed: mean)", values: totals, max: maxOf(totals), mean: sum(totals) / experts},
  }, scale, "Pairs of each expert over time", (row, col) =>
    [`expert ${col}, ${clockText(windows[row].time)}`, `<b>${formatCount(windows[row].experts[col])}</b> (token, expert) pairs`,
     `${formatRatio(windows[row].experts[col] / means[row])} × the mean`]);
  legendOf("experts-legend", scale, "0", `${formatRatio(most)} × the mean`);
}

function imbalanceOf(loads) {
  const total = sum(loads);
  return total > 0 ? maxOf(loads) * loads.length / total - 1 : 0;
}

// Where the copies were ready before the next iteration, the two are one.
function marksOf(decided, switched) {
  return decided === switched ? [{col: switched, text: "decided and switched"}]
      : [{col: decided, text: "decided"}, {col: switched, text: "switched"}];
}

// The layer's ranks before the last move, while weights are copied, and after it.
function drawMove() {
  const {move} = load;
  setText("move-facts", "");
  if (!move || move.loads.length === 0) {
    return showEmpty("move-map", state.data?.balances_online ? "no expert has moved yet" : "off: start with layer_updates_per_iter above 0");
  }
  const loads = move.loads.map((each) => each.received), ratios = loads.map(imbalanceOf);
  const means = loads.map((each) => sum(each) / each.length);
  const number = (col) => move.loads[col].iteration;
  const meanOf = (from, to) => {
    const of = ratios.filter((_, col) => number(col) >= from && number(col) < to);
    return of.length > 0 ? formatRatio(sum(of) / of.length) : "–";
  };
  setText("move-facts", `layer ${move.layer}, ${formatMany(move.moves, "expert")}: imbalance ${meanOf(0, move.decided + 1)} → ` +
                            `${meanOf(move.decided + 1, move.switched)} → ${meanOf(move.switched, Infinity)}`);
  const columnOf = (iteration) => move.loads.findIndex((each) => each.iteration >= iteration);
  drawMap("move-map", {
    rows: loads[0].length, cols: loads.length, value: (row, col) => means[col] > 0 ? loads[col][row] / means[col] : null,
    rowLabel: String, colLabel: (col) => String(number(col)), rowTitle: "rank", colTitle: "iteration", format: formatRatio,
    bars: {title: "imbalance", values: ratios, max: maxOf(ratios) || 1},
    marks: marksOf(columnOf(move.decided + 1), columnOf(move.switched)),
  }, divergingScale(kMost), "Loads of the ranks before, during and after the last move", (row, col) =>
    [`rank ${row}, iteration ${number(col)}`, `<b>${formatRatio(loads[col][row] / means[col])}</b> × the mean`,
     `${formatCount(loads[col][row])} (token, expert) pairs`]);
}

document.getElementById("experts-layer").addEventListener("change", (event) => {
  load.layer = Number(event.target.value);
  load.windows.clear();
  askForLoad();
});
document.getElementById("sent-window").addEventListener("change", (event) => {
  const {value} = event.target;
  load.shown = value === "now" ? null : value === "all" ? value : Number(value);
  drawLoad();
});
addEventListener("resize", drawLoad);
