// From the embedded numbers to the page.

function tableHtml(title, columns, rows) {
  const isNumber = (i) => rows.every((row) => typeof row[i] !== "string");
  const kind = (i) => isNumber(i) ? ` class="number"` : "";
  const text = (cell) => cell === null ? "–" : typeof cell === "string" ? escapeText(cell) : formatCell(cell);
  return `<div class="scroll" tabindex="0" role="region" aria-label="${escapeText(title)}"><table><thead><tr>${columns.map((column, i) => `<th${kind(i)}>${escapeText(column)}</th>`).join("")}</tr></thead><tbody>` +
      rows.map((row) => `<tr>${row.map((cell, i) => `<td${kind(i)}>${text(cell)}</td>`).join("")}</tr>`).join("") + "</tbody></table></div>";
}

// Whole numbers with all digits, others with four that count.
function formatCell(value) {
  if (Number.isInteger(value)) return formatCount(value);
  const digits = Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
  return digits > 9 ? value.toExponential(3) : value.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

// The numbers of a chart as columns and rows: of its categories, or of every point.
function chartTable(chart) {
  const name = (series) => series.published && !/publish/i.test(series.name) ? `${series.name} (published)` : series.name;
  const columns = [chart.x_label, ...chart.series.map(name)];
  if (chart.categories) {
    return {columns, rows: chart.categories.map((category, i) => [category, ...chart.series.map((series) => series.y[i])])};
  }
  const xs = [...new Set(chart.series.flatMap((series) => series.x))].sort((a, b) => a - b);
  const numbers = chart.series.map((series) => new Map(series.x.map((x, i) => [x, series.y[i]])));
  return {columns, rows: xs.map((x) => [x, ...numbers.map((each) => each.get(x) ?? null)])};
}

// Of points, several of which may have one x, the table would lose some: they have it in JSON.
function numbersHtml(chart) {
  const repeats = !chart.categories && chart.series.some((series) => new Set(series.x).size < series.x.length);
  if (repeats) return "";
  const {columns, rows} = chartTable(chart);
  return `<details><summary>Numbers</summary>${tableHtml(chart.title, columns, rows)}</details>`;
}

function addChart(chart) {
  addSection({
    title: escapeText(chart.title),
    hint: escapeText(chart.hint),
    controls: [],
    draw: (_, parts) => {
      if (chart.kind === "heat") return drawHeatChart(chart, parts);
      const width = layOutPanels(parts.panels, 1, kLeastChartWidth);
      parts.panels.innerHTML = `<figure>${chartSvg(chart, width)}${numbersHtml(chart)}</figure>`;
      parts.legend.innerHTML = legendHtml(chart);
    },
  });
}

function addTable({title, columns, rows}) {
  addSection({
    title: escapeText(title), hint: "", controls: [],
    draw: (_, parts) => {
      parts.panels.className = "panels single";
      parts.panels.innerHTML = tableHtml(title, columns, rows);
    },
  });
}

function addNotes(notes) {
  if (notes.length === 0) return;
  addSection({
    title: "Notes", hint: "", controls: [],
    draw: (_, parts) => {
      parts.panels.className = "panels single";
      parts.panels.innerHTML = `<div>${notes.map((note) => `<p class="hint">${escapeText(note)}</p>`).join("")}</div>`;
    },
  });
}

function showFigure(data) {
  document.getElementById("facts").textContent = data.source;
  installPalette();
  data.charts.forEach(addChart);
  data.tables.forEach(addTable);
  addNotes(data.notes);
  document.getElementById("footer").textContent = `Drawn by wideep figures ${data.name}. Published numbers are dashed or hollow; the same numbers are in the JSON file beside this page.`;
}

showFigure(JSON.parse(document.getElementById("data").textContent));
