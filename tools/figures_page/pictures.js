// Charts of one figure as SVG. A chart is what figure_json (figure.cc) writes.

const kLeastChartWidth = 480, kColors = 6, kBarGap = 0.24;

function isDrawn(value, isLog) {
  return value !== null && value !== undefined && (!isLog || value > 0);
}

function classOf(series, i) {
  return `c${i % kColors}${series.published ? " published" : ""}`;
}

// What a mark shows: "this machine: 12.3 at 8"
function markTitle(chart, series, i) {
  const where = chart.categories ? chart.categories[i] : formatNumber(series.x[i]);
  return `<title>${escapeText(series.name)}: ${formatNumber(series.y[i])} at ${escapeText(where)}</title>`;
}

// Neighbouring points are joined; where a number is missing, the line has a gap.
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (point) found[found.length - 1].push(point);
    else found.push([]);
  }
  return found.filter((piece) => piece.length > 0);
}

function marksOfSeries(chart, series, index, {x, y}) {
  const points = series.y.map((value, i) => isDrawn(value, chart.log_y) && (chart.categories || isDrawn(series.x[i], chart.log_x))
      ? [x(chart.categories ? i : series.x[i]), y(value), i] : null);
  const lines = chart.kind === "points" ? "" : pieces(points).filter((piece) => piece.length > 1).map((piece) => lineSvg(piece, classOf(series, index))).join("");
  // Of many points only the line is seen.
  const radius = chart.kind === "points" || points.length <= 60 ? 4 : 0;
  return lines + (radius === 0 ? "" : points.filter((point) => point).map(([px, py, i]) =>
      `<circle class="point ${classOf(series, index)}" cx="${px.toFixed(1)}" cy="${py.toFixed(1)}" r="${radius}">${markTitle(chart, series, i)}</circle>`).join(""));
}

// Bars of one category stand side by side.
function barsOfSeries(chart, series, index, {x, y, base, slot}) {
  const width = slot * (1 - kBarGap) / chart.series.length;
  return series.y.map((value, i) => {
    if (!isDrawn(value, chart.log_y)) return "";
    const left = x(i) - slot * (1 - kBarGap) / 2 + index * width, top = Math.min(y(value), base), height = Math.abs(base - y(value));
    return `<rect class="column ${classOf(series, index)}" x="${(left + 1).toFixed(1)}" y="${top.toFixed(1)}" width="${Math.max(1, width - 2).toFixed(1)}" height="${height.toFixed(1)}">` +
        `${markTitle(chart, series, i)}</rect>`;
  }).join("");
}

const kTickRow = 14;

// Below the frame. Names that do not fit beside each other stand in two rows; numbers are left out.
function tickRowsOf(ticks) {
  const fit = apart(ticks);
  const isNumbers = ticks.every(({text}) => /^[\d.,]+$/.test(text));
  if (fit.length === ticks.length || isNumbers) return [fit];
  return [0, 1].map((row) => apart(ticks.filter((_, i) => i % 2 === row)));
}

function chartSvg(chart, width) {
  const frame = {left: 70, right: width - 24, top: 14, bottom: 300};
  const ys = chart.series.flatMap((series) => series.y).filter((value) => isDrawn(value, chart.log_y));
  const xs = chart.categories ? [] : chart.series.flatMap((series) => series.x).filter((value) => isDrawn(value, chart.log_x));
  if (ys.length === 0 || (!chart.categories && xs.length === 0)) return `<div class="empty">No numbers</div>`;
  const vertical = chart.log_y ? logAxisOf(ys, frame.bottom, frame.top) : linearAxisOf([0, ...ys], frame.bottom, frame.top, 5);
  const slot = chart.categories ? (frame.right - frame.left) / chart.categories.length : 0;
  const horizontal = chart.categories
      ? {at: (i) => frame.left + (i + 0.5) * slot, ticks: chart.categories.map((text, i) => ({at: frame.left + (i + 0.5) * slot, text}))}
      : valueAxisOf(xs, chart.log_x, frame.left + 10, frame.right - 10);
  const rows = tickRowsOf(horizontal.ticks.map((tick) => ({at: tick.at, text: tick.text ?? formatNumber(tick.value)})));
  const below = {...frame, bottom: frame.bottom + kTickRow * (rows.length - 1)};
  const base = chart.log_y ? frame.bottom : vertical.at(0);
  const places = {x: horizontal.at, y: vertical.at, base, slot};
  const draw = chart.kind === "bars" ? barsOfSeries : marksOfSeries;
  return `<svg viewBox="0 0 ${width} ${below.bottom + 46}" role="img" aria-label="${escapeText(`${chart.title}: ${chart.y_label} over ${chart.x_label}`)}">` +
      rowTicksSvg(frame, vertical.ticks.map(({value, at}) => ({at, text: formatNumber(value)}))) +
      rows.map((row, i) => columnTicksSvg({...frame, bottom: frame.bottom + kTickRow * i}, row.map((tick) => ({...tick, text: escapeText(tick.text)})))).join("") +
      axisTitlesSvg(below, {x: chart.x_label, y: chart.y_label}) +
      `<path class="base" d="M${frame.left} ${base.toFixed(1)}H${frame.right}"/>` +
      chart.series.map((series, i) => draw(chart, series, i, places)).join("") + "</svg>";
}

function legendHtml(chart) {
  return chart.series.map((series, i) => `<span class="name"><span class="key ${classOf(series, i)}"></span>${escapeText(series.name)}</span>`).join("");
}

function heatMapOf(chart, panel) {
  return {
    rows: chart.rows.length, cols: chart.columns.length,
    value: (row, col) => panel.values[row][col],
    rowLabel: (row) => chart.rows[row], colLabel: (col) => chart.columns[col],
    rowTitle: chart.y_label, colTitle: chart.x_label, format: formatShort,
  };
}

function panelStat(panel) {
  const values = panel.values.flat().filter((value) => value !== null);
  return `${panel.published ? "published, " : ""}at most ${formatShort(maxOf(values))}`;
}

function drawHeatChart(chart, parts) {
  drawHeatMaps(parts, {
    shown: chart.panels.map((panel) => ({name: panel.name, stat: panelStat(panel), map: heatMapOf(chart, panel)})),
    unit: chart.unit,
    where: (row, col) => `${chart.y_label} ${chart.rows[row]}, ${chart.x_label} ${chart.columns[col]}`,
    exact: (value) => `${formatNumber(value)} ${chart.unit}`,
  });
}
