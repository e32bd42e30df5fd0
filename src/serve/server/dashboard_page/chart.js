// Lines, bars and a heat map over the last seconds. Every chart has the same time axis, and a cursor
// that shows the second under the mouse.

// Seconds shown: all that there are, up to three minutes.
let span = 60;

function fitSpan(seconds, end) {
  const first = Math.min(end, ...seconds.keys());
  span = Math.min(180, Math.max(60, Math.ceil((end - first) / 30) * 30));
}

// The frame of a chart that fills its holder; end: the first second that is not shown.
function timeFrame(holder, end) {
  const {clientWidth: width, clientHeight: height} = holder;
  const frame = {end, width, height, left: 44, right: width - 8, top: 6, bottom: height - 20};
  const pixels = (frame.right - frame.left) / span;
  frame.x = (time) => frame.right - (end - time) * pixels;
  frame.second = (x) => end - Math.ceil((frame.right - x) / pixels);
  return frame;
}

function timesSvg(frame) {
  const ticks = [];
  for (let ago = 0; ago <= span; ago += span > 90 ? 60 : 30) {
    ticks.push({
      at: frame.x(frame.end - ago), anchor: ago === 0 ? "end" : ago === span ? "start" : "middle",
      text: ago === 0 ? "now" : ago % 60 !== 0 ? `${ago} s ago` : `${ago / 60} min ago`,
    });
  }
  return columnTicksSvg(frame, ticks);
}

// The second that ends the iteration which was under way at `time`, if that one ended none itself.
function endOfIterationAt(time, seconds, end) {
  for (let later = time + 1; later < end; ++later) {
    if (seconds.has(later)) return seconds.get(later).busy_seconds > later - time ? seconds.get(later) : undefined;
  }
  return undefined;
}

// series: [{name, class, of(second) → number or null, filled}], the first on top. lasts: a value of
// an iteration is that of all seconds that it takes. gaps: a second without a value has none, not 0.
function drawLines(holder, {label, seconds, end, series, format, least, most, gaps, lasts}) {
  const frame = timeFrame(holder, end);
  const times = Array.from({length: span}, (_, i) => end - span + i);
  const secondAt = (time) => seconds.get(time) ?? (lasts ? endOfIterationAt(time, seconds, end) : undefined);
  const valueOf = (each, time) => secondAt(time) ? each.of(secondAt(time)) : gaps ? null : 0;
  const values = series.flatMap((each) => times.map((time) => valueOf(each, time) ?? 0));
  const axis = linearAxis(frame, niceTicks(Math.max(least, ...values), most ?? 4), format);
  const lines = [...series].reverse().flatMap((each) =>
      runsOf(times, (time) => valueOf(each, time)).map((run) =>
          runSvg(run.map(({time, value}) => [frame.x(time + 0.5), axis.y(value)]), frame, each)));
  show(holder, frame, label, axis.svg + timesSvg(frame) + lines.join(""), (time) => series.map((each) => {
    const value = valueOf(each, time);
    return `${each.name} <b>${value === null ? "–" : format(value)}</b>`;
  }));
}

// Unbroken runs of seconds that have a value.
function runsOf(times, valueOf) {
  const runs = [];
  let run = null;
  for (const time of times) {
    const value = valueOf(time);
    if (value === null) { run = null; continue; }
    if (run === null) runs.push(run = []);
    run.push({time, value});
  }
  return runs;
}

function runSvg(points, frame, {class: className, filled}) {
  if (points.length === 1) return `<circle class="dot ${className}" cx="${points[0][0].toFixed(1)}" cy="${points[0][1].toFixed(1)}" r="2"/>`;
  return (filled ? areaSvg(points, frame, className) : "") + lineSvg(points, className);
}

function drawBars(holder, {label, seconds, end, of, format, tell, empty}) {
  const frame = timeFrame(holder, end);
  const bars = [...seconds.values()].filter((each) => each.time >= end - span && each.time < end && of(each) > 0);
  if (bars.length === 0 && empty) {  // no axis: its lines would cross the text
    const text = `<text class="empty" x="${frame.width / 2}" y="${(frame.top + frame.bottom) / 2 + 4}" text-anchor="middle">${empty}</text>`;
    return show(holder, frame, label, text, () => []);
  }
  const axis = linearAxis(frame, niceTicks(Math.max(4, ...bars.map(of)), 3), format);
  const width = Math.max(1.5, (frame.right - frame.left) / span - 0.5).toFixed(1);
  let svg = axis.svg + timesSvg(frame);
  for (const each of bars) {
    const y = axis.y(of(each));
    svg += `<rect class="bar after" x="${frame.x(each.time).toFixed(1)}" y="${y.toFixed(1)}" width="${width}" height="${(frame.bottom - y).toFixed(1)}" rx="0.5"/>`;
  }
  show(holder, frame, label, svg, (time) => seconds.has(time) ? tell(seconds.get(time)) : []);
}

const kMost = 0.5;  // more, or less, of the mean: where the colours of loads end

// Over the mean of the ranks that computed; null for the others.
function relativeLoads(second) {
  const loads = (second?.rank_load ?? []).filter((load) => load !== null);
  const mean = sum(loads) / loads.length;
  return mean > 0 ? second.rank_load.map((load) => load === null ? null : load / mean) : null;
}

// Rank × time: what a rank's experts computed in a second, over the mean of all ranks.
function drawRankLoads(holder, {seconds, end, numRanks}) {
  const frame = timeFrame(holder, end);
  const scale = divergingScale(kMost);
  const loads = Array.from({length: span}, (_, i) => relativeLoads(seconds.get(end - span + i)));
  const layout = {left: frame.left, top: frame.top, cellWidth: (frame.right - frame.left) / span,
                  cellHeight: (frame.bottom - frame.top) / numRanks};
  const map = {rows: numRanks, cols: span, joined: true, value: (rank, i) => loads[i] ? loads[i][rank] : null,
               rowLabel: (rank) => rank === 0 ? "rank 0" : String(rank)};
  const svg = cellsSvg(map, layout, scale) + rowLabelsSvg(map, layout) + timesSvg(frame);
  show(holder, frame, "Load of each rank's experts over time, relative to the mean", svg, (time, y) => {
    const rank = Math.floor((y - frame.top) / layout.cellHeight);
    const ofTime = loads[time - end + span];
    if (!ofTime || rank < 0 || rank >= numRanks) return [];
    if (ofTime[rank] === null) return [`rank ${rank} did not compute`];
    return [`rank ${rank} <b>${formatRatio(ofTime[rank])}</b> × the mean`,
            `${formatCount(seconds.get(time).rank_load[rank])} (token, expert) pairs`];
  }, numRanks);
  document.getElementById("heat-legend").innerHTML = `${1 - kMost} <svg width="128" height="12" role="img" aria-label="colours">` +
      rampSvg(scale, {top: 0, step: 2, height: 12}) + `</svg> ${1 + kMost} × the mean`;
}

// Puts the drawing in place of the last. tell(second, y): lines of the tooltip; rows: that y tells
// apart.
function show(holder, frame, label, svg, tell, rows = 1) {
  holder.innerHTML = `<svg width="${frame.width}" height="${frame.height}" role="img" aria-label="${escapeText(label)}">${svg}<path class="cursor"/></svg>`;
  holder.drawn = {frame, tell, rows};
  if (holder.pointer) pointAt(holder, holder.pointer);
  if (holder.listens) return;
  holder.listens = true;
  nameGroup(holder, label);
  holder.addEventListener("pointermove", (event) => pointAt(holder, holder.pointer = event));
  holder.addEventListener("pointerleave", () => {
    holder.pointer = null;
    holder.querySelector(".cursor").removeAttribute("d");
    hideTooltip();
  });
  followKeys(holder, () => secondsGrid(holder.drawn), true);
}

// What the tabulator reaches needs a name of its own; the drawing in it is a new one each second.
function nameGroup(holder, label) {
  holder.setAttribute("role", "group");
  holder.setAttribute("aria-label", label);
}

// The cells that keys go through: a column for each second.
function secondsGrid({frame: {left, right, top, bottom, width, height}, rows}) {
  return {left, top, cellWidth: (right - left) / span, cellHeight: (bottom - top) / rows, width, height, cols: span, rows};
}

function pointAt(holder, mouse) {
  const {frame, tell} = holder.drawn;
  const cursor = holder.querySelector(".cursor");
  const box = holder.getBoundingClientRect();
  const x = mouse.clientX - box.left, time = frame.second(x);
  const lines = x >= frame.left && x <= frame.right ? tell(time, mouse.clientY - box.top) : [];
  cursor.removeAttribute("d");
  if (lines.length === 0) return hideTooltip();
  cursor.setAttribute("d", `M${frame.x(time + 0.5)} ${frame.top}V${frame.bottom}`);
  showTooltip(mouse, [new Date(time * 1000).toLocaleTimeString("en-GB"), ...lines].join("<br>"));
}
