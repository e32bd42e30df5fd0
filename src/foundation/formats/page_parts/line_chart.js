// Axes and lines of charts as SVG. A frame is the rectangle that the chart's values fill, in pixels
// of the drawing: {left, right, top, bottom}.

// Lines across, with numbers at the left. ticks: [{at (y), text}]
function rowTicksSvg({left, right}, ticks) {
  return ticks.map(({at, text}) => `<path class="grid" d="M${left} ${at.toFixed(1)}H${right}"/>` +
      `<text x="${left - 7}" y="${(at + 4).toFixed(1)}" text-anchor="end">${text}</text>`).join("");
}

// Texts below. ticks: [{at (x), text, anchor ("middle")}]
function columnTicksSvg({bottom}, ticks) {
  return ticks.map(({at, text, anchor}) =>
      `<text x="${at.toFixed(1)}" y="${bottom + 16}" text-anchor="${anchor ?? "middle"}">${text}</text>`).join("");
}

// One axis from 0 in round numbers. Returns its ticks' SVG and y(value).
function linearAxis(frame, ticks, format) {
  const max = ticks[ticks.length - 1];
  const y = (value) => frame.bottom - value / max * (frame.bottom - frame.top);
  return {y, svg: rowTicksSvg(frame, ticks.map((tick) => ({at: y(tick), text: format(tick)})))};
}

// The titles of both axes, below and, from bottom to top, at the left edge.
function axisTitlesSvg({left, right, top, bottom}, {x, y}) {
  return `<text class="axis" x="${(left + right) / 2}" y="${bottom + 37}" text-anchor="middle">${escapeText(x)}</text>` +
      (y ? `<text class="axis" transform="translate(12 ${(top + bottom) / 2}) rotate(-90)" text-anchor="middle">${escapeText(y)}</text>` : "");
}

// points: [[x, y]]
function linePath(points) {
  return "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
}

function lineSvg(points, className) {
  return `<path class="line ${className}" d="${linePath(points)}"/>`;
}

// What lies between a line and the bottom of the frame.
function areaSvg(points, {bottom}, className) {
  const first = points[0][0].toFixed(1), last = points[points.length - 1][0].toFixed(1);
  return `<path class="area ${className}" d="${linePath(points)}L${last} ${bottom}L${first} ${bottom}Z"/>`;
}
