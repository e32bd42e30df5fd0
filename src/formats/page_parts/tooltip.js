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
