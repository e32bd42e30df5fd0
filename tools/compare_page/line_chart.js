// Imbalance over layers, one line a planner, on a logarithmic axis: planners differ by powers of
// ten. What is below the axis is drawn on its bottom line.

const kChartHeight = 330;
const kChartTop = 14;
const kChartLeft = 66;

// Marks tell the lines apart where colours do not.
const kMarks = [
  (x, y) => `M${x - 3.4} ${y}a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z`,
  (x, y) => `M${x} ${y - 4.4}l4.4 4.4l-4.4 4.4l-4.4 -4.4z`,
  (x, y) => `M${x - 3.2} ${y - 3.2}h6.4v6.4h-6.4z`,
  (x, y) => `M${x} ${y - 4}l4.2 7.2h-8.4z`,
  (x, y) => `M${x} ${y + 4}l4.2 -7.2h-8.4z`,
  (x, y) => `M${x - 4.4} ${y - 1.5}h8.8v3h-8.8z`,
];

function markPath(index, points) {
  const mark = kMarks[index % kMarks.length];
  return `<path class="m${index % kMarks.length}" d="${points.map(([x, y]) => mark(Number(x.toFixed(1)), Number(y.toFixed(1)))).join("")}"/>`;
}

function linePath(points) {
  return "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
}

// Whole powers of ten around what is to be shown, at least two and at most eight of them.
function logRange(values) {
  const positive = values.filter((value) => value > 1e-9);
  if (positive.length === 0) return {low: -3, high: -1};
  const high = Math.ceil(Math.log10(maxOf(positive)) - 1e-9);
  const least = Math.floor(Math.log10(Math.min(...positive)) + 1e-9);
  return {low: Math.min(high - 2, Math.max(least, high - 6)), high};
}

function chartScales(layers, values) {
  const {low, high} = logRange(values);
  const width = kFullWidth - kChartLeft - 14;
  const step = width / Math.max(1, layers.length - 1);
  return {
    low, high, step, width, bottom: kChartTop + kChartHeight,
    x: (i) => kChartLeft + (layers.length === 1 ? width / 2 : i * step),
    y: (value) => {
      const depth = value > 0 ? (high - Math.log10(value)) / (high - low) : 1;
      return kChartTop + kChartHeight * Math.min(1, Math.max(0, depth));
    },
  };
}

function tickText(power, low) {
  const text = power >= -4 ? String(Number((10 ** power).toPrecision(1))) : `1e${power}`;
  return power === low ? `≤ ${text}` : text;
}

function chartAxesSvg(layers, scales) {
  let svg = "";
  for (let power = scales.low; power <= scales.high; ++power) {
    const y = scales.y(10 ** power).toFixed(1);
    svg += `<path class="grid" d="M${kChartLeft} ${y}h${scales.width}"/>` +
        `<text x="${kChartLeft - 8}" y="${Number(y) + 4}" text-anchor="end">${tickText(power, scales.low)}</text>`;
  }
  const stride = labelStride(scales.step, 26);
  for (let i = 0; i < layers.length; i += stride) {
    svg += `<text x="${scales.x(i).toFixed(1)}" y="${scales.bottom + 18}" text-anchor="middle">${layers[i]}</text>`;
  }
  return svg + `<text class="axis" x="${kChartLeft + scales.width / 2}" y="${scales.bottom + 38}" text-anchor="middle">layer</text>` +
      `<text class="axis" transform="translate(12 ${kChartTop + kChartHeight / 2}) rotate(-90)" text-anchor="middle">imbalance ratio</text>`;
}

// series: [{name, values: [layer]}], bound: [layer]; index in series = colour and mark.
function lineChartSvg(layers, series, bound) {
  const scales = chartScales(layers, [...series.flatMap((each) => each.values), ...bound]);
  const pointsOf = (values) => values.map((value, i) => [scales.x(i), scales.y(value)]);
  const lines = series.map((each, index) => {
    const points = pointsOf(each.values);
    return `<path class="series s${index % kMarks.length}" d="${linePath(points)}"/>` +
        (scales.step >= 7 ? markPath(index, points) : "");
  });
  return `<svg viewBox="0 0 ${kFullWidth} ${scales.bottom + 46}" role="img" aria-label="Imbalance ratio of each layer and planner">` +
      chartAxesSvg(layers, scales) + lines.join("") + `<path class="bound" d="${linePath(pointsOf(bound))}"/>` +
      `<rect class="cursor" visibility="hidden" y="${kChartTop}" height="${kChartHeight}"/></svg>`;
}

function keyHtml(index, name) {
  const body = index === null ? `<path class="bound" d="M0 6h26"/>`
      : `<path class="series s${index % kMarks.length}" d="M0 6h26"/>${markPath(index, [[13, 6]])}`;
  return `<span class="name"><svg class="key fixed" viewBox="0 0 26 12">${body}</svg>${escapeText(name)}</span>`;
}

// Pointing at a layer names all its values.
function linkChart(svg, layers, series, bound) {
  const {x, step} = chartScales(layers, []);
  const cursor = svg.querySelector(".cursor");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * kFullWidth / box.width;
    const i = Math.min(layers.length - 1, Math.max(0, Math.round((at - kChartLeft) / step)));
    cursor.setAttribute("x", x(i) - 1);
    cursor.setAttribute("width", 2);
    cursor.setAttribute("visibility", "visible");
    const lines = [...series, {name: "lower bound", values: bound}].map((each) =>
        `<br>${escapeText(each.name)}: ${formatImbalance(each.values[i])}`);
    showTooltip(event, `<b>layer ${layers[i]}</b>${lines.join("")}`);
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    hideTooltip();
  });
}
