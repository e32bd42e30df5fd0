// The card of a model that is larger than memory: which experts are there, and how often these are
// what tokens need.

function expertsRowHtml(rank) {
  const read = rank.read_seconds > 0 ? `${formatBytes(rank.read_bytes)} at ${formatBytes(rank.read_bytes / rank.read_seconds)}/s` : "nothing";
  const share = part => rank.chosen > 0 ? `${(100 * part / rank.chosen).toFixed(1)} %` : "";
  return `<tr><th scope="row">rank ${rank.rank}</th><td>${formatCount(rank.resident)} of ${formatCount(rank.owned)}</td>` +
      `<td>${share(rank.hits)}</td><td>${share(rank.read_ahead)}</td><td>${read}</td>` +
      `<td>${formatTime(1e3 * rank.waited_seconds)}</td>` +
      `<td>${rank.lost > 0 ? `<b class="worse">${formatCount(rank.lost)}</b>` : "none"}</td></tr>`;
}

function expertsLayerHtml(layer) {
  const rate = layer.chosen > 0 ? layer.hits / layer.chosen : 0;
  return `<tr><th scope="row">${layer.layer}</th><td>${formatCount(layer.resident)}</td><td>${(100 * rate).toFixed(1)} %</td></tr>`;
}

function drawExperts({data}) {
  const experts = data.experts;
  document.getElementById("experts-card").hidden = experts === null;
  if (experts === null) return;
  document.getElementById("experts").innerHTML = experts.ranks.map(expertsRowHtml).join("");
  document.getElementById("experts-layers").innerHTML = experts.layers.map(expertsLayerHtml).join("");
}
