// The box beside the pointer, #tooltip of the page.

function showTooltip({clientX, clientY}, html) {
  const tooltip = document.getElementById("tooltip");
  tooltip.innerHTML = html;
  tooltip.hidden = false;
  const {width, height} = tooltip.getBoundingClientRect();
  const x = clientX + 16 + width > window.innerWidth ? clientX - width - 12 : clientX + 16;
  const y = clientY + 18 + height > window.innerHeight ? clientY - height - 12 : clientY + 18;
  tooltip.style.left = `${Math.max(4, x)}px`;
  tooltip.style.top = `${Math.max(4, y)}px`;
}

function hideTooltip() {
  document.getElementById("tooltip").hidden = true;
}

// The arrow keys move a pointer over a picture, as the mouse does; Escape and leaving it end that.
// element: what listens to pointermove and pointerleave. grid(): {left, top, cellWidth, cellHeight,
// width, height} of its cells, in pixels of the drawing. The first key points at the last column
// (last) or the first one.
function followKeys(element, grid, last) {
  const kSteps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  let at = null;
  const send = (kind, {left, top, cellWidth, cellHeight, width, height}) => {
    const box = element.getBoundingClientRect();
    element.dispatchEvent(new PointerEvent(kind, {
      clientX: box.left + (left + (at.col + 0.5) * cellWidth) * box.width / width,
      clientY: box.top + (top + (at.row + 0.5) * cellHeight) * box.height / height,
    }));
  };
  const end = () => {
    if (at) send("pointerleave", grid());
    at = null;
  };
  element.tabIndex = 0;
  element.addEventListener("blur", end);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return end();
    const step = kSteps[event.key], {cols, rows} = grid();
    if (!step) return;
    event.preventDefault();
    const within = (place, count) => Math.min(count - 1, Math.max(0, place));
    at = at ? {col: within(at.col + step[0], cols), row: within(at.row + step[1], rows)} : {col: last ? cols - 1 : 0, row: 0};
    send("pointermove", grid());
  });
}
