// Lines over the values of one column, which stand side by side.

const kLeastChartWidth = 480, kColors = 5, kLogSpan = 1e5;

function columnOf(data, key) {
  return data.columns.find((column) => column.key === key);
}

// The vertical axis: from 0, or logarithmic over at most five decades; less is drawn at its foot.
function axisOf(values, frame, isLog) {
  const most = maxOf(values);
  if (!isLog || !(most > 0)) {
    const ticks = niceTicks(most * 1.03, 5), axis = linearAxis(frame, ticks, formatNumber);
    return axis;
  }
  const low = Math.max(Math.min(...values.filter((value) => value > 0)), most / kLogSpan) * 0.8, high = most * 1.3;
  const y = (value) => frame.bottom - Math.log(Math.max(value, low) / low) / Math.log(high / low) * (frame.bottom - frame.top);
  const ticks = [];
  for (let tick = 10 ** Math.ceil(Math.log10(low)); tick <= high; tick *= 10) ticks.push({at: y(tick), text: formatNumber(Number(tick.toPrecision(3)))});
  return {y, svg: rowTicksSvg(frame, ticks)};
}

// Neighbouring points are joined; where a value is missing, the line has a gap.
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (point) found[found.length - 1].push(point);
    else found.push([]);
  }
  return found.filter((piece) => piece.length > 0);
}

function chartSvg(data, chart, width) {
  const frame = {left: 66, right: width - 24, top: 16, bottom: 296}, {rows} = data;
  const values = chart.lines.flatMap((key) => rows.map((row) => row[key])).filter((value) => value !== null);
  const axis = axisOf(chart.limit === null ? values : [...values, chart.limit], frame, chart.is_logarithmic);
  const step = (frame.right - frame.left) / Math.max(1, rows.length - 1);
  const x = (i) => rows.length === 1 ? (frame.left + frame.right) / 2 : frame.left + i * step;
  const lines = chart.lines.map((key, index) => {
    const color = index % kColors, {title} = columnOf(data, key);
    const points = rows.map((row, i) => row[key] === null ? null : [x(i), axis.y(row[key])]);
    return pieces(points).map((piece) => piece.length > 1 ? lineSvg(piece, `s${color}`) : "").join("") +
        points.map((point, i) => point === null ? "" : `<circle class="m${color}" cx="${point[0].toFixed(1)}" cy="${point[1].toFixed(1)}" r="4">` +
            `<title>${escapeText(columnOf(data, chart.x).title)} ${escapeText(rows[i][chart.x])}, ${escapeText(title)}: ${formatNumber(rows[i][key])}</title></circle>`).join("");
  });
  const stride = Math.ceil(34 / step);
  const columns = rows.map((row, i) => ({at: x(i), text: escapeText(row[chart.x])})).filter((_, i) => i % stride === 0);
  return `<svg viewBox="0 0 ${width} ${frame.bottom + 46}" role="img" aria-label="${escapeText(chart.y_title)}">` +
      axis.svg + columnTicksSvg(frame, columns) + axisTitlesSvg(frame, {x: columnOf(data, chart.x).title, y: chart.y_title}) +
      lines.join("") + limitSvg(chart, frame, axis) + "</svg>";
}

function limitSvg(chart, frame, axis) {
  if (chart.limit === null) return "";
  const at = axis.y(chart.limit).toFixed(1);
  return `<path class="limit" d="M${frame.left} ${at}H${frame.right}"/>` +
      `<text class="limit-label" x="${frame.right}" y="${Number(at) - 6}" text-anchor="end">${escapeText(chart.limit_text)}</text>`;
}
