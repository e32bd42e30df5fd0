// Imbalance over layers, one line a planner, on a logarithmic axis: planners differ by powers of
// ten. What is below the axis is drawn on its bottom line.

const kLeastChartWidth = 360;
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

// Whole powers of ten around what is to be shown, at least two and at most eight of them.
function logRange(values) {
  const positive = values.filter((value) => value > 1e-9);
  if (positive.length === 0) return {low: -3, high: -1};
  const high = Math.ceil(Math.log10(maxOf(positive)) - 1e-9);
  const least = Math.floor(Math.log10(Math.min(...positive)) + 1e-9);
  return {low: Math.min(high - 2, Math.max(least, high - 6)), high};
}

// Where layers and values are in a drawing of that width.
function layerAxes(layers, values, width) {
  const {low, high} = logRange(values);
  const frame = {left: kChartLeft, right: width - 14, top: kChartTop, bottom: kChartTop + kChartHeight};
  const step = (frame.right - frame.left) / Math.max(1, layers.length - 1);
  return {
    frame, low, high, step,
    x: (i) => layers.length === 1 ? (frame.left + frame.right) / 2 : frame.left + i * step,
    y: (value) => {
      const depth = value > 0 ? (high - Math.log10(value)) / (high - low) : 1;
      return frame.top + kChartHeight * Math.min(1, Math.max(0, depth));
    },
  };
}

function tickText(power, low) {
  const text = power >= -4 ? String(Number((10 ** power).toPrecision(1))) : `1e${power}`;
  return power === low ? `≤ ${text}` : text;
}

function layerAxesSvg(layers, {frame, low, high, step, x, y}) {
  const powers = Array.from({length: high - low + 1}, (_, i) => low + i);
  const stride = labelStride(step, 26);
  const rows = powers.map((power) => ({at: y(10 ** power), text: tickText(power, low)}));
  const columns = layers.map((layer, i) => ({at: x(i), text: layer})).filter((_, i) => i % stride === 0);
  return rowTicksSvg(frame, rows) + columnTicksSvg(frame, columns) + axisTitlesSvg(frame, {x: "layer", y: "imbalance ratio"});
}

// series: [{name, values: [layer]}], bound: [layer]; index in series = colour and mark.
function layerChartSvg(layers, series, bound, width) {
  const axes = layerAxes(layers, [...series.flatMap((each) => each.values), ...bound], width);
  const pointsOf = (values) => values.map((value, i) => [axes.x(i), axes.y(value)]);
  const lines = series.map(({values}, index) => {
    const points = pointsOf(values);
    return points.length === 0 ? "" : lineSvg(points, `s${index % kMarks.length}`) + (axes.step >= 7 ? markPath(index, points) : "");
  });
  return `<svg viewBox="0 0 ${width} ${axes.frame.bottom + 46}" role="img" aria-label="Imbalance ratio of each layer and planner">` +
      layerAxesSvg(layers, axes) + lines.join("") + (bound.length ? lineSvg(pointsOf(bound), "bound") : "") +
      `<rect class="cursor" visibility="hidden" y="${kChartTop}" height="${kChartHeight}"/></svg>`;
}

function keyHtml(index, name) {
  const body = index === null ? `<path class="line bound" d="M0 6h26"/>`
      : `<path class="line s${index % kMarks.length}" d="M0 6h26"/>${markPath(index, [[13, 6]])}`;
  return `<span class="name"><svg class="key fixed" viewBox="0 0 26 12" role="img" aria-label="line of ${escapeText(name)}">${body}</svg>${escapeText(name)}</span>`;
}

// Pointing at a layer names all its values.
function linkLayerChart(svg, layers, series, bound, width) {
  const {x, step} = layerAxes(layers, [], width);
  const cursor = svg.querySelector(".cursor");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * width / box.width;
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
  followKeys(svg, () => ({left: x(0) - step / 2, top: kChartTop, cellWidth: step, cellHeight: kChartHeight, width,
                          height: kChartTop + kChartHeight + 46, cols: layers.length, rows: 1}));
}
