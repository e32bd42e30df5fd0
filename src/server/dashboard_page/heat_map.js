// Rank × time: each cell is what a rank's experts computed in a second, over the mean of all ranks.
// 1 has the colour of nothing to see; busier ranks are warm, idler ones cold.

const kMost = 0.5;  // more, or less, of the mean: where the colours end

function colorsOf(dark) {
  return dark ? {cold: [46, 116, 181], even: [38, 44, 53], hot: [245, 138, 66], none: [22, 26, 32]}
              : {cold: [86, 152, 212], even: [238, 240, 243], hot: [196, 64, 8], none: [255, 255, 255]};
}

function colorOf(relative, colors) {
  const t = Math.min(1, Math.abs(relative - 1) / kMost);
  const end = relative < 1 ? colors.cold : colors.hot;
  return colors.even.map((each, i) => Math.round(each + (end[i] - each) * t ** 0.85));
}

function relativeLoads(second) {
  const sum = second.rank_load.reduce((a, b) => a + b, 0);
  if (sum === 0) return null;
  return second.rank_load.map((load) => load * second.rank_load.length / sum);
}

function drawHeatMap(holder, {seconds, end, numRanks, dark}) {
  const frame = new TimeFrame(holder, end);
  const colors = colorsOf(dark);
  const cells = document.createElement("canvas");
  cells.width = span;
  cells.height = numRanks;
  const context = cells.getContext("2d");
  const pixels = context.createImageData(span, numRanks);
  for (let column = 0; column < span; ++column) {
    const second = seconds.get(end - span + column);
    const loads = second ? relativeLoads(second) : null;
    for (let rank = 0; rank < numRanks; ++rank) {
      const at = 4 * (rank * span + column);
      pixels.data.set([...(loads ? colorOf(loads[rank], colors) : colors.none), 255], at);
    }
  }
  context.putImageData(pixels, 0, 0);
  const svg = frame.svg("Load of each rank's experts over time, relative to the mean");
  const height = (frame.bottom - frame.top) / numRanks;
  const every = Math.ceil(14 / height);
  svg.append(element("image", {href: cells.toDataURL(), x: frame.left, y: frame.top, width: frame.right - frame.left,
                               height: frame.bottom - frame.top, preserveAspectRatio: "none",
                               style: "image-rendering: pixelated"}));
  for (let rank = 0; rank < numRanks; ++rank) {
    if (rank > 0 && height >= 8) {
      svg.append(element("path", {stroke: "var(--card)", d: `M${frame.left} ${frame.top + rank * height}H${frame.right}`}));
    }
    if (rank % every !== 0) continue;
    svg.append(element("text", {x: frame.left - 6, y: frame.top + (rank + 0.5) * height + 4, "text-anchor": "end"},
                       rank === 0 ? "rank 0" : rank));
  }
  frame.drawTimes(svg);
  show(holder, svg, frame, (time, y) => {
    const rank = Math.floor((y - frame.top) / height);
    const second = seconds.get(time);
    const loads = second ? relativeLoads(second) : null;
    if (!loads || rank < 0 || rank >= numRanks) return [];
    return [`rank ${rank} <b>${formatRatio(loads[rank])}</b> × the mean`,
            `${formatCount(second.rank_load[rank])} (token, expert) pairs`];
  });
}

function drawHeatLegend(holder, dark) {
  const colors = colorsOf(dark);
  const stops = [-4, -3, -2, -1, 0, 1, 2, 3, 4].map((each) => `rgb(${colorOf(1 + each / 4 * kMost, colors)})`);
  holder.innerHTML = `${1 - kMost} <i class="ramp"></i> ${1 + kMost} × the mean`;
  holder.querySelector("i").style.background = `linear-gradient(to right, ${stops})`;
}
