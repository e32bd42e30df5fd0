// The imbalance ratio of each layer, before and after, as dots on a line with the numbers beside.

const kImbalanceKinds = [
  {value: "average", text: "average over all iterations"},
  {value: "weighted", text: "all iterations, weighted by tokens"},
  {value: "prompt", text: "average over iterations with prompt tokens"},
  {value: "generation", text: "average over iterations that only generate"},
];

// Kinds that a run has none of are not offered.
function imbalanceKinds(runs) {
  return kImbalanceKinds.filter(({value}) => runs.every((run) => run.summary.mean[value] !== null));
}

function imbalanceRows(runs, kind) {
  const rows = runs[0].layers.map((layer, i) => ({
    name: `layer ${layer}`,
    values: runs.map((run) => run.summary.layers[i][kind]),
    times: runs.map((run) => run.summary.layer_critical_path_ms[i]),
  }));
  const mean = {
    name: "mean",
    values: runs.map((run) => run.summary.mean[kind]),
    times: runs.map((run) => sum(run.summary.layer_critical_path_ms) / run.layers.length),
  };
  return [...rows, mean];
}

// Columns of numbers at the right of the dots, titled, in titled groups.
function imbalanceColumns(runs, isNarrow) {
  if (runs.length === 1) {
    return [{title: "imbalance", group: "", text: (row) => formatRatio(row.values[0])},
            {title: "critical path", group: "", text: (row) => formatTime(row.times[0])}];
  }
  const columns = (group, text) => runs.map((run, i) => ({
    title: runName(runs, i).toLowerCase(), group, text: (row) => text(row, i),
  }));
  return [...columns("imbalance ratio", (row, i) => formatRatio(row.values[i])),
          ...columns(isNarrow ? "critical path" : "critical path of the experts", (row, i) => formatTime(row.times[i]))];
}

// Where there is room, columns are wide, and the title of the axis is below its middle.
const kWideImbalance = 660;

function imbalanceColumnWidth(runs, isNarrow) {
  const longest = maxOf(runs.map((run, i) => runName(runs, i).length));
  return isNarrow ? Math.max(58, longest * 8 + 6, runs.length === 1 ? 90 : 0) : 92;
}

function leastImbalanceWidth(runs) {
  const columns = imbalanceColumns(runs, true).length;
  return Math.min(kWideImbalance, 60 + 110 + 20 + columns * imbalanceColumnWidth(runs, true));
}

function imbalanceChartSvg(runs, kind, width) {
  const rows = imbalanceRows(runs, kind);
  const isNarrow = width < kWideImbalance;
  const columns = imbalanceColumns(runs, isNarrow);
  const columnWidth = imbalanceColumnWidth(runs, isNarrow);
  const left = isNarrow ? 60 : 76;
  const step = rows.length > 26 ? 19 : 27;
  const ticks = niceTicks(maxOf(rows.flatMap((row) => row.values)), Math.max(4, Math.round(width / 140)));
  const layout = {
    left, top: 44, step, columnWidth, ticks, width, isNarrow,
    plotWidth: width - left - 20 - columns.length * columnWidth, plotHeight: rows.length * step + 8,
  };
  layout.x = (value) => layout.left + value / ticks[ticks.length - 1] * layout.plotWidth;
  const height = layout.top + layout.plotHeight + 44;
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Imbalance ratio of each layer">` +
      imbalanceAxisSvg(layout) + imbalanceHeadSvg(columns, layout) +
      rows.map((row, i) => imbalanceRowSvg(row, i, rows.length, columns, layout)).join("") + "</svg>";
}

function imbalanceAxisSvg({left, top, plotWidth, plotHeight, ticks, x, isNarrow}) {
  const bottom = top + plotHeight;
  const lines = ticks.map((tick) => `<path class="grid" d="M${x(tick).toFixed(1)} ${top}V${bottom}"/>` +
      `<text x="${x(tick).toFixed(1)}" y="${bottom + 17}" text-anchor="middle">${trimZeros(tick.toFixed(3))}</text>`);
  const [titleX, anchor] = isNarrow ? [0, "start"] : [left + plotWidth / 2, "middle"];
  return lines.join("") + `<text class="axis" x="${titleX}" y="${bottom + 38}" text-anchor="${anchor}">` +
      `imbalance ratio (max ÷ mean − 1 over ranks; 0 is even)</text>`;
}

function columnRight(index, {left, plotWidth, columnWidth}) {
  return left + plotWidth + 20 + (index + 1) * columnWidth;
}

function imbalanceHeadSvg(columns, layout) {
  return columns.map((column, i) => {
    const x = columnRight(i, layout);
    const first = i === 0 || columns[i - 1].group !== column.group;
    const last = columns.map((each) => each.group).lastIndexOf(column.group);
    return (first ? `<text x="${columnRight(last, layout)}" y="14" text-anchor="end">${column.group}</text>` : "") +
        `<text class="strong" x="${x}" y="34" text-anchor="end">${column.title}</text>`;
  }).join("");
}

function imbalanceRowSvg(row, index, count, columns, layout) {
  const isMean = index === count - 1;
  const y = layout.top + (index + 0.5) * layout.step + (isMean ? 8 : 0);
  const xs = row.values.map(layout.x);
  const from = xs.length === 2 ? xs[1] : layout.left;
  const strong = isMean ? ' class="strong"' : "";
  const rule = isMean ? `<path class="grid" d="M0 ${(y - layout.step / 2 - 4).toFixed(1)}H${layout.width}"/>` : "";
  const numbers = columns.map((column, i) =>
      `<text class="number${isMean ? " strong" : ""}" x="${columnRight(i, layout)}" y="${y + 4}" text-anchor="end">${column.text(row)}</text>`);
  return `<g class="row">${rule}<rect class="hit" x="0" y="${y - layout.step / 2}" width="${layout.left - 2}" height="${layout.step}"/>` +
      `<text${strong} x="${layout.left - 14}" y="${y + 4}" text-anchor="end">${row.name}</text>` +
      `<path class="link" d="M${from.toFixed(1)} ${y}H${xs[0].toFixed(1)}"/>` +
      xs.map((x, i) => dotSvg(x, y, i)).join("") + numbers.join("") + `<title>${imbalanceTip(row)}</title></g>`;
}

// A circle before, a diamond after: told apart without colours too.
function dotSvg(x, y, index) {
  if (index === 0) return `<circle class="before" cx="${x.toFixed(1)}" cy="${y}" r="6"/>`;
  return `<path class="after" d="M${x.toFixed(1)} ${y - 7.5}l7.5 7.5l-7.5 7.5l-7.5 -7.5z"/>`;
}

function imbalanceTip(row) {
  return `${row.name}: imbalance ratio ${row.values.map((value) => value.toFixed(4)).join(" → ")}, ` +
      `critical path ${row.times.map(formatTime).join(" → ")}`;
}
