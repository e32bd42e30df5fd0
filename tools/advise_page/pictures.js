// Drawings of candidates: the field of all, stacked bars, imbalance by ranks.

const kMinChartWidth = 560;

function svgOf(width, height, label, inside) {
  return `<svg viewBox="0 0 ${width} ${height.toFixed(1)}" role="img" aria-label="${escapeText(label)}">${inside}</svg>`;
}

// Round numbers of a logarithmic axis: 1, 2, 5, 10, … within the range, few enough to be read.
function logTicks(low, high) {
  const ticks = [];
  for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high; decade *= 10) {
    for (const factor of [1, 2, 5]) {
      const tick = Number((decade * factor).toPrecision(3));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

// An axis along one direction. from, to: pixels of its ends. Returns {at(value), ticks}.
function axisOf(values, from, to, isLog) {
  const most = maxOf(values);
  if (!isLog) {
    const ticks = niceTicks(most * 1.03, 6), max = ticks[ticks.length - 1];
    return {ticks, at: (value) => from + value / max * (to - from)};
  }
  const low = Math.min(...values.filter((value) => value > 0)) * 0.9, high = most * 1.12;
  const span = Math.log(high / low);
  return {ticks: logTicks(low, high), at: (value) => from + Math.log(Math.max(value, low) / low) / span * (to - from)};
}

function fieldAxes(data, width, isLog) {
  const frame = {left: 66, right: width - 14, top: 16, bottom: 416};
  const cloud = data.cloud;
  return {
    frame,
    x: axisOf(cloud.map((each) => each[0]), frame.left, frame.right, isLog),
    y: axisOf(cloud.map((each) => each[1]), frame.bottom, frame.top, isLog),
  };
}

function dotsPath(points, size) {
  const edge = size.toFixed(1);
  return points.map(([x, y]) => `M${(x - size / 2).toFixed(1)} ${(y - size / 2).toFixed(1)}h${edge}v${edge}h-${edge}z`).join("");
}

function diamondPath(x, y, size) {
  return `M${x.toFixed(1)} ${(y - size).toFixed(1)}l${size} ${size}l-${size} ${size}l-${size} -${size}z`;
}

// What lies left of the limit's line is slower than allowed.
function limitSvg(data, {frame, x}) {
  if (!data.limits.tpot) return {under: "", over: ""};
  const at = Math.min(frame.right, Math.max(frame.left, x.at(1000 / data.limits.tpot)));
  const text = `${formatNumber(data.limits.tpot)} ms between tokens`;
  const isRight = at + 190 < frame.right;
  return {
    under: `<rect class="beyond" x="${frame.left}" y="${frame.top}" width="${(at - frame.left).toFixed(1)}" height="${frame.bottom - frame.top}"/>`,
    over: `<path class="limit" d="M${at.toFixed(1)} ${frame.top}V${frame.bottom}"/>` +
        `<text class="limit-label" x="${(at + (isRight ? 6 : -6)).toFixed(1)}" y="${frame.bottom - 9}" text-anchor="${isRight ? "start" : "end"}">${text}</text>`,
  };
}

function bestSvg(data, {frame, x, y}) {
  if (!data.best) return "";
  const at = [x.at(data.best.per_user), y.at(data.best.per_rank)];
  const isRight = at[0] + 20 + data.best.layout.length * 7.4 < frame.right;
  return `<path class="best" d="${diamondPath(at[0], at[1], 8)}"/>` +
      `<text class="best-label" x="${(at[0] + (isRight ? 13 : -13)).toFixed(1)}" y="${(at[1] - 8).toFixed(1)}" ` +
      `text-anchor="${isRight ? "start" : "end"}">${escapeText(data.best.layout)}</text>`;
}

// Tokens/s of a rank over tokens/s of a user; ep: those candidates stand out, "" for none.
function fieldSvg(data, width, isLog, ep) {
  const axes = fieldAxes(data, width, isLog), {frame, x, y} = axes;
  const place = ([user, rank]) => [x.at(user), y.at(rank)];
  const front = data.pareto.map((each) => place([each.per_user, each.per_rank]));
  const limit = limitSvg(data, axes);
  const rows = y.ticks.map((tick) => ({at: y.at(tick), text: formatShort(tick)}));
  const columns = x.ticks.map((tick) => ({at: x.at(tick), text: formatShort(tick)}));
  const chosen = data.cloud.filter((each) => String(each[2]) === ep);
  return svgOf(width, frame.bottom + 46, "Tokens per second of a rank over tokens per second of a user",
      limit.under + rowTicksSvg(frame, rows) + columnTicksSvg(frame, columns) +
      axisTitlesSvg(frame, {x: "tokens/s of a user", y: "tokens/s of a rank"}) +
      `<path class="cloud" d="${dotsPath(data.cloud.map(place), 2.6)}"/>` +
      `<path class="chosen" d="${dotsPath(chosen.map(place), 3.4)}"/>` +
      (front.length > 1 ? lineSvg(front, "front") : "") +
      front.map(([px, py]) => `<circle class="front-dot" cx="${px.toFixed(1)}" cy="${py.toFixed(1)}" r="4.2"/>`).join("") +
      limit.over + bestSvg(data, axes));
}

// Pointing near a layout of the front names it.
function linkField(svg, data, width, isLog) {
  const {x, y} = fieldAxes(data, width, isLog);
  const dots = [...svg.querySelectorAll(".front-dot")];
  const shown = data.best ? [...data.pareto, data.best] : data.pareto;
  const clear = () => {
    dots.forEach((dot) => dot.classList.remove("under"));
    hideTooltip();
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = width / box.width;
    const px = (event.clientX - box.left) * scale, py = (event.clientY - box.top) * scale;
    const far = shown.map((each) => Math.hypot(x.at(each.per_user) - px, y.at(each.per_rank) - py));
    const nearest = far.indexOf(Math.min(...far));
    clear();
    if (!(far[nearest] < 40)) return;
    if (dots[nearest]) dots[nearest].classList.add("under");
    showTooltip(event, candidateHtml(shown[nearest]));
  });
  svg.addEventListener("pointerleave", clear);
  followLayouts(svg, shown, {x, y}, width, clear);
}

// The left and right arrow keys go from layout to layout.
function followLayouts(svg, shown, {x, y}, width, clear) {
  const places = shown.map((each) => ({x: x.at(each.per_user), y: y.at(each.per_rank)})).sort((a, b) => a.x - b.x);
  let at = -1;
  svg.tabIndex = 0;
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === "Escape") clear();
    if (!by) return;
    event.preventDefault();
    at = Math.min(places.length - 1, Math.max(0, at + by));
    const box = svg.getBoundingClientRect(), scale = box.width / width;
    svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + places[at].x * scale, clientY: box.top + places[at].y * scale}));
  });
}

// Without statistics it is not known.
function imbalanceText({imbalance}) {
  return imbalance === null ? "–" : imbalance.toFixed(3);
}

function candidateHtml(each) {
  return `<b>${escapeText(each.layout)}</b><br>${formatMany(each.ranks, "rank")}, ${formatMany(each.requests, "request")}<br>` +
      `${formatNumber(each.per_rank)} tokens/s of a rank, ${formatNumber(each.per_user)} of a user<br>` +
      `TPOT ${formatTime(each.tpot)}, TTFT ${formatTime(each.ttft)}<br>imbalance ${imbalanceText(each)}`;
}

const kCutAt = 3;  // × the first row: longer bars would make all others short

// Bars from left to right, one row each. rows: [{name, note, parts: {part: value}}];
// parts: [{key, name, css}]; limit: {value, text}, optional: a line across all rows.
function barsSvg(rows, parts, format, width, limit) {
  const nameWidth = 20 + maxOf(rows.map((row) => row.name.length)) * 6.7;
  const noteWidth = 14 + maxOf(rows.map((row) => row.note.length)) * 6.2;
  const rowHeight = 30, top = limit ? 22 : 4;
  const frame = {left: nameWidth, right: width - noteWidth, top, bottom: top + rows.length * rowHeight};
  const totals = rows.map((row) => sum(parts.map((part) => row.parts[part.key])));
  const most = limit ? Math.max(maxOf(totals), limit.value) : Math.min(maxOf(totals), kCutAt * totals[0]);
  const scale = (frame.right - frame.left) / most;
  const drawn = rows.map((row, i) => {
    const y = top + i * rowHeight;
    return `<text class="name${i === 0 ? " first" : ""}" x="${frame.left - 9}" y="${y + 19.5}" text-anchor="end">${escapeText(row.name)}</text>` +
        piecesSvg(row, parts, totals[i], format, {frame, y: y + 5, height: rowHeight - 10, scale}) +
        `<text class="note" x="${width}" y="${y + 19.5}" text-anchor="end">${escapeText(row.note)}</text>`;
  });
  return svgOf(width, frame.bottom + 6, "Parts of each layout", drawn.join("") + (limit ? barLimitSvg(limit, frame, scale, width) : ""));
}

// One bar. Where it is too long, it ends at the frame in a jagged edge, with its length.
function piecesSvg(row, parts, total, format, {frame, y, height, scale}) {
  let x = frame.left;
  const pieces = parts.map((part) => {
    const left = Math.min(x, frame.right);
    x += row.parts[part.key] * scale;
    const length = Math.min(x, frame.right) - left;
    return length < 0.05 ? "" : `<rect class="${part.css}" x="${left.toFixed(2)}" y="${y}" width="${length.toFixed(2)}" height="${height}">` +
        `<title>${escapeText(part.name)}: ${format(row.parts[part.key])} of ${format(total)}</title></rect>`;
  });
  if (x <= frame.right + 0.5) return pieces.join("");
  const edge = `M${frame.right + 1} ${y}l-7 ${height / 4}l7 ${height / 4}l-7 ${height / 4}l7 ${height / 4}z`;
  return pieces.join("") + `<path class="cut" d="${edge}"/>` +
      `<text class="total" x="${frame.right - 12}" y="${y + height / 2 + 4.5}" text-anchor="end">${format(total)}</text>`;
}

function barLimitSvg({value, text}, {left, top, bottom}, scale, width) {
  const at = left + value * scale;
  return `<path class="limit" d="M${at.toFixed(1)} ${top}V${bottom}"/>` +
      `<text class="limit-label" x="${Math.min(at + 60, width).toFixed(1)}" y="${top - 8}" text-anchor="end">${escapeText(text)}</text>`;
}

function partsLegend(parts) {
  return parts.map((part) => `<span class="name"><span class="key ${part.css}"></span>${escapeText(part.name)}</span>`).join("");
}

const kImbalances = [
  {key: "in_order", css: "order", name: "experts in order"},
  {key: "placed", css: "placed", name: "placed, no replicas"},
  {key: "eplb", css: "eplb", name: "EPLB, one slot more on each rank"},
  {key: "replicated", css: "ours", name: "wideep, one slot more on each rank"},
];

// Imbalance over the ranks that share the experts: every column is twice as many.
function imbalanceSvg(rows, width, isLog) {
  const frame = {left: 60, right: width - 20, top: 14, bottom: 294};
  const kFloor = 1e-3;  // what is below is drawn on the axis
  const all = rows.flatMap((row) => kImbalances.map(({key}) => row[key]));
  const y = isLog ? axisOf([kFloor, ...all.map((value) => Math.max(value, kFloor))], frame.bottom, frame.top, true)
      : axisOf([...all, 0.1], frame.bottom, frame.top, false);
  const step = (frame.right - frame.left) / Math.max(1, rows.length - 1);
  const x = (i) => frame.left + i * step;
  const lines = kImbalances.map(({key, css, name}) => {
    const points = rows.map((row, i) => [x(i), y.at(isLog ? Math.max(row[key], kFloor) : row[key])]);
    return lineSvg(points, css) + points.map(([px, py], i) => `<circle class="dot-${css}" cx="${px.toFixed(1)}" cy="${py.toFixed(1)}" r="4">` +
        `<title>EP ${rows[i].ep}, ${escapeText(name)}: ${rows[i][key].toFixed(4)}</title></circle>`).join("");
  });
  return svgOf(width, frame.bottom + 46, "Imbalance ratio over the ranks that share the experts",
      rowTicksSvg(frame, y.ticks.map((tick) => ({at: y.at(tick), text: formatNumber(tick)}))) +
      columnTicksSvg(frame, rows.map((row, i) => ({at: x(i), text: row.ep}))) +
      axisTitlesSvg(frame, {x: "EP: ranks that share the experts", y: "imbalance ratio"}) + lines.join(""));
}
