// A card of the page with title, hint, selectors, legend and panels; drawn again on each choice, and
// when its width changes.

// controls: [{key, label, options: [{value, text}], value, steps}]; steps: with buttons for the
// neighbours. draw(chosen, parts) fills parts.legend and parts.panels.
function addSection({title, hint, controls, draw}) {
  const card = document.createElement("section");
  card.className = "card";
  card.innerHTML = `<h2>${title}</h2><p class="hint">${hint}</p><div class="bar"></div><div class="panels"></div>`;
  document.getElementById("report").append(card);
  const bar = card.querySelector(".bar");
  const selects = controls.map((control) => addControl(bar, control, redraw));
  const legend = document.createElement("div");
  legend.className = "legend";
  bar.append(legend);

  function redraw() {
    const chosen = {};
    controls.forEach((control, i) => { chosen[control.key] = selects[i].value; });
    draw(chosen, {legend, panels: card.querySelector(".panels")});
  }
  let width = card.clientWidth;
  addEventListener("resize", () => {
    if (width === card.clientWidth) return;
    width = card.clientWidth;
    redraw();
    letKeysScroll(card, card.scrollWidth > card.clientWidth);
  });
  redraw();
  letKeysScroll(card, card.scrollWidth > card.clientWidth);
}

// Gives the panels so many columns, where there is room, and returns the width to draw one with: its
// own, so that texts keep their size on every screen. A panel narrower than `least` scrolls.
function layOutPanels(panels, columns, least) {
  panels.className = columns === 1 ? "panels single" : columns === 3 ? "panels thirds" : "panels";
  const width = Math.floor(parseFloat(getComputedStyle(panels).gridTemplateColumns));
  panels.classList.toggle("scroll", width < least);
  letKeysScroll(panels, width < least);
  panels.style.setProperty("--least", `${least}px`);
  return Math.max(least, width);
}

// What scrolls must be within the reach of the tabulator.
function letKeysScroll(element, scrolls) {
  if (scrolls) element.tabIndex = 0;
  else element.removeAttribute("tabindex");
}

function addControl(bar, {label, options, value, steps}, redraw) {
  const box = document.createElement("label");
  const texts = options.map((each) => `<option value="${escapeText(each.value)}">${escapeText(each.text)}</option>`);
  box.innerHTML = `${escapeText(label)} <select>${texts.join("")}</select>`;
  bar.append(box);
  const select = box.querySelector("select");
  select.value = value;
  select.addEventListener("change", redraw);
  if (steps && options.length > 1) {
    for (const [text, by, what] of [["‹", -1, "previous"], ["›", 1, "next"]]) addStep(box, select, text, by, what, redraw);
  }
  return select;
}

function addStep(box, select, text, by, what, redraw) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.setAttribute("aria-label", what);
  button.addEventListener("click", () => {
    const next = select.selectedIndex + by;
    if (next < 0 || next >= select.length) return;
    select.selectedIndex = next;
    redraw();
  });
  box.append(button);
}

const kMinMapWidth = 300;

// Fills legend and panels with heat maps that share one colour scale.
// shown: [{name, className, stat, map}] (map null: nothing to show, `stat` says why)
// unit: title of the legend; where(row, col): the cell's name; exact(value): its value with unit.
function drawHeatMaps(parts, {shown, unit, where, exact}) {
  const max = maxOf(shown.filter((each) => each.map).map((each) => maxOfMap(each.map)));
  const ticks = niceTicks(max, 5);
  const scale = sequentialScale(ticks[ticks.length - 1]);
  parts.legend.innerHTML = legendSvg(scale, ticks, unit);
  const width = layOutPanels(parts.panels, shown.length, kMinMapWidth);
  parts.panels.innerHTML = shown.map((each) => panelHtml(each, scale, width)).join("");
  linkPanels(parts.panels, shown, width, where, exact);
}

function maxOfMap(map) {
  let max = 0;
  for (let row = 0; row < map.rows; ++row) {
    for (let col = 0; col < map.cols; ++col) max = Math.max(max, map.value(row, col) || 0);
  }
  return max;
}

function panelHtml({name, className, stat, map}, scale, width) {
  const dot = className ? `<span class="dot ${className}"></span>` : "";
  const body = map ? heatMapSvg(map, scale, width, `${name}: ${stat}`) : `<div class="empty">${escapeText(stat)}</div>`;
  return `<figure><figcaption><span class="name">${dot}${escapeText(name)}</span>` +
      `<span class="stat">${map ? escapeText(stat) : ""}</span></figcaption>${body}</figure>`;
}

// Pointing at a cell marks it in every panel and shows its values.
function linkPanels(panels, shown, width, where, exact) {
  const drawn = [...panels.querySelectorAll("figure")].map((figure, i) => ({
    ...shown[i], svg: figure.querySelector("svg"), layout: shown[i].map && heatLayout(shown[i].map, width),
  })).filter((each) => each.map);
  const show = (cell, event) => {
    for (const each of drawn) moveCursor(each.svg, each.layout, cell);
    if (!cell) return hideTooltip();
    const lines = drawn.map((each) => {
      const value = each.map.value(cell.row, cell.col);
      return `<br>${drawn.length > 1 ? escapeText(each.name) + ": " : ""}${value === null ? "not recorded" : escapeText(exact(value, cell.row, cell.col, each))}`;
    });
    showTooltip(event, `<b>${escapeText(where(cell.row, cell.col))}</b>${lines.join("")}`);
  };
  for (const {svg, layout, map} of drawn) {
    for (const kind of ["pointermove", "pointerdown"]) {
      svg.addEventListener(kind, (event) => show(cellAt(svg, layout, map, event), event));
    }
    svg.addEventListener("pointerleave", () => show(null));
    followKeys(svg, () => ({...layout, cols: map.cols, rows: map.rows}));
  }
}
