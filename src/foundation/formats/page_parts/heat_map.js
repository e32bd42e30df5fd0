// Heat maps as SVG.
//
// map: {rows, cols, value(row, col) (null: nothing was recorded),
//       rowLabel(row), colLabel(col), rowTitle, colTitle,
//       notes: {title, text(row)}             a column of text at the right, optional
//       marks: [{col, text}]                  lines before columns, with texts above, optional
//       bars: {title, values: [cols], max, mean}   a strip of bars above, optional; mean: dashed line
//       joined                                 whether columns touch, as seconds do, optional
//       format(value)                          for numbers in cells}
// layout: {left, top, cellWidth, cellHeight} and what heatLayout adds to them.

const kRowHeight = 30;
const kTallest = 340;   // pixels that many rows share
const kShortest = 90;   // pixels that few rows share: room for the axis title
const kMarkTexts = 76;  // pixels above the plot: the texts of marks are above the bars
const kThinnest = 2.5;  // pixels of a row when even these do not suffice

function heatLayout(map, width) {
  const longest = maxOf(Array.from({length: map.rows}, (_, row) => map.rowLabel(row).length));
  const left = 32 + longest * 6.6;
  const right = map.notes ? 74 : 2;
  const top = map.marks ? kMarkTexts + 2 : map.bars ? 62 : map.notes ? 20 : 4;
  const cellHeight = Math.max(kThinnest, Math.min(Math.max(kRowHeight, kShortest / map.rows), kTallest / map.rows));
  const cellWidth = (width - left - right) / map.cols;
  const plotWidth = cellWidth * map.cols;
  const plotHeight = cellHeight * map.rows;
  return {left, top, width, cellWidth, cellHeight, plotWidth, plotHeight, height: top + plotHeight + 42};
}

function heatMapSvg(map, scale, width, label) {
  const layout = heatLayout(map, width);
  return `<svg viewBox="0 0 ${width} ${layout.height.toFixed(1)}" role="img" aria-label="${escapeText(label)}">` +
      cellsSvg(map, layout, scale) + cellTextSvg(map, layout, scale) + rowAxisSvg(map, layout) + colAxisSvg(map, layout) +
      (map.notes ? notesSvg(map, layout) : "") + (map.bars ? barsSvg(map, layout) : "") + (map.marks ? marksSvg(map, layout) : "") +
      `<rect class="cursor" visibility="hidden" width="${layout.cellWidth}" height="${layout.cellHeight}"/></svg>`;
}

const kOverlap = -0.25;  // of cells that touch: no hairline may show between them

// Cells that are large enough keep apart.
function gapOf(size) {
  return size >= 12 ? 1.5 : size >= 6 ? 0.75 : kOverlap;
}

// All cells of one colour are one path: fast for many thousands.
function cellsSvg(map, {left, top, cellWidth, cellHeight}, scale) {
  const w = (cellWidth - (map.joined ? kOverlap : gapOf(cellWidth))).toFixed(2);
  const h = (cellHeight - gapOf(cellHeight)).toFixed(2);
  const paths = new Map();
  for (let row = 0; row < map.rows; ++row) {
    const y = (top + row * cellHeight).toFixed(2);
    for (let col = 0; col < map.cols; ++col) {
      const value = map.value(row, col);
      if (value === null) continue;
      const color = scale.classOf(value);
      const x = (left + col * cellWidth).toFixed(2);
      paths.set(color, (paths.get(color) || "") + `M${x} ${y}h${w}v${h}h-${w}z`);
    }
  }
  return [...paths].map(([color, d]) => `<path class="${color}" d="${d}"/>`).join("");
}

function cellTextSvg(map, layout, scale) {
  if (layout.cellHeight < 15 || map.rows * map.cols > 900) return "";
  const texts = [];
  for (let row = 0; row < map.rows; ++row) {
    for (let col = 0; col < map.cols; ++col) {
      const value = map.value(row, col);
      if (value === null) continue;
      const text = map.format(value);
      if (text.length * 6.2 + 6 > layout.cellWidth) return "";  // all or none
      const x = layout.left + (col + 0.5) * layout.cellWidth;
      const y = layout.top + (row + 0.5) * layout.cellHeight + 3.5;
      texts.push(`<text class="cell ${scale.toneOf(value)}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="middle">${text}</text>`);
    }
  }
  return texts.join("");
}

// Label every 1st, 2nd, 5th, 10th, ... so that labels keep apart.
function labelStride(cell, needed) {
  for (let decade = 1; ; decade *= 10) {
    for (const factor of [1, 2, 5]) {
      if (cell * factor * decade >= needed) return factor * decade;
    }
  }
}

function rowAxisSvg(map, layout) {
  return `<text class="axis" text-anchor="middle" transform="translate(11 ${layout.top + layout.plotHeight / 2}) rotate(-90)">${escapeText(map.rowTitle)}</text>` +
      rowLabelsSvg(map, layout);
}

function rowLabelsSvg(map, layout) {
  const stride = labelStride(layout.cellHeight, 13);
  let svg = "";
  for (let row = 0; row < map.rows; row += stride) {
    const y = layout.top + (row + 0.5) * layout.cellHeight + 4;
    svg += `<text x="${layout.left - 6}" y="${y.toFixed(1)}" text-anchor="end">${escapeText(map.rowLabel(row))}</text>`;
  }
  return svg;
}

function colAxisSvg(map, layout) {
  const longest = maxOf(Array.from({length: map.cols}, (_, col) => map.colLabel(col).length));
  const stride = labelStride(layout.cellWidth, longest * 6.6 + 8);
  const bottom = layout.top + layout.plotHeight;
  let svg = `<text class="axis" text-anchor="middle" x="${layout.left + layout.plotWidth / 2}" y="${bottom + 36}">${escapeText(map.colTitle)}</text>`;
  for (let col = 0; col < map.cols; col += stride) {
    const x = layout.left + (col + 0.5) * layout.cellWidth;
    svg += `<text x="${x.toFixed(1)}" y="${bottom + 16}" text-anchor="middle">${escapeText(map.colLabel(col))}</text>`;
  }
  return svg;
}

function notesSvg(map, layout) {
  const x = layout.left + layout.plotWidth + 72;
  const stride = labelStride(layout.cellHeight, 13);
  let svg = `<text x="${x}" y="${layout.top - 7}" text-anchor="end">${escapeText(map.notes.title)}</text>`;
  for (let row = 0; row < map.rows; row += stride) {
    const y = layout.top + (row + 0.5) * layout.cellHeight + 4;
    svg += `<text class="strong" x="${x}" y="${y.toFixed(1)}" text-anchor="end">${escapeText(map.notes.text(row))}</text>`;
  }
  return svg;
}

function barsSvg(map, layout) {
  const {title, values, max, mean} = map.bars;
  const height = 36;
  const base = layout.top - 6;
  const gap = layout.cellWidth >= 6 ? 1.5 : 0;
  const w = (layout.cellWidth - gap).toFixed(2);
  let d = "";
  values.forEach((value, col) => {
    const h = (value / max * height).toFixed(2);
    d += `M${(layout.left + col * layout.cellWidth).toFixed(2)} ${base}v-${h}h${w}v${h}z`;
  });
  let svg = `<path class="sum" d="${d}"/><text x="${layout.left}" y="${base - height - 6}">${escapeText(title)}</text>`;
  if (mean) svg += `<path class="mean" d="M${layout.left} ${(base - mean / max * height).toFixed(1)}h${layout.plotWidth}"/>`;
  return svg;
}

// The text of a mark is at its left if another one follows, else at its right.
function marksSvg(map, {left, top, cellWidth, plotHeight}) {
  const marks = map.marks.filter(({col}) => col >= 0);
  return marks.map(({col, text}, i) => {
    const x = left + col * cellWidth, leans = i + 1 < marks.length;
    return `<path class="mark" d="M${x.toFixed(1)} ${top - kMarkTexts}V${(top + plotHeight).toFixed(1)}"/>` +
        `<text class="strong" x="${(x + (leans ? -5 : 5)).toFixed(1)}" y="${top - kMarkTexts + 10}" text-anchor="${leans ? "end" : "start"}">${escapeText(text)}</text>`;
  }).join("");
}

// The cell under the pointer, or null. layout: of the map that `svg` shows.
function cellAt(svg, layout, map, event) {
  const box = svg.getBoundingClientRect();
  const scale = layout.width / box.width;
  const col = Math.floor(((event.clientX - box.left) * scale - layout.left) / layout.cellWidth);
  const row = Math.floor(((event.clientY - box.top) * scale - layout.top) / layout.cellHeight);
  const inside = col >= 0 && col < map.cols && row >= 0 && row < map.rows;
  return inside ? {row, col} : null;
}

function moveCursor(svg, layout, cell) {
  const cursor = svg.querySelector(".cursor");
  cursor.setAttribute("visibility", cell ? "visible" : "hidden");
  if (!cell) return;
  cursor.setAttribute("x", layout.left + cell.col * layout.cellWidth);
  cursor.setAttribute("y", layout.top + cell.row * layout.cellHeight);
}
