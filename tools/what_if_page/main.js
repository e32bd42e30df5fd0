// From the embedded numbers to the page.

function addChart(data, chart) {
  addSection({
    title: escapeText(chart.y_title),
    hint: chart.is_logarithmic ? "The axis is logarithmic; what lies below it is drawn at its foot." : "",
    controls: [],
    draw: (_, parts) => {
      const width = layOutPanels(parts.panels, 1, kLeastChartWidth);
      parts.panels.innerHTML = chartSvg(data, chart, width);
      parts.legend.innerHTML = chart.lines.map((key, i) =>
          `<span class="name"><span class="key m${i % kColors}"></span>${escapeText(columnOf(data, key).title)}</span>`).join("");
    },
  });
}

function cellText(column, value) {
  if (value === null) return "–";
  return column.is_text ? escapeText(value) : value.toLocaleString("en-US", {minimumFractionDigits: column.decimals, maximumFractionDigits: column.decimals});
}

function addTable(data) {
  const kind = (column) => column.is_text ? "" : ` class="number"`;
  addSection({
    title: "All numbers",
    hint: "",
    controls: [],
    draw: (_, parts) => {
      parts.panels.className = "panels single";
      parts.panels.innerHTML = `<div class="scroll" tabindex="0" role="region" aria-label="All numbers"><table><thead><tr>${data.columns.map((column) => `<th${kind(column)}>${escapeText(column.title)}</th>`).join("")}</tr></thead><tbody>` +
          data.rows.map((row) => `<tr>${data.columns.map((column) => `<td${kind(column)}>${cellText(column, row[column.key])}</td>`).join("")}</tr>`).join("") + `</tbody></table></div>`;
    },
  });
}

function showAnswer(data) {
  document.getElementById("facts").innerHTML = data.facts.map((fact) => `<p>${escapeText(fact)}</p>`).join("");
  data.charts.forEach((chart) => addChart(data, chart));
  addTable(data);
  document.getElementById("footer").textContent = `Drawn by ${data.command}.`;
}

showAnswer(JSON.parse(document.getElementById("data").textContent));
