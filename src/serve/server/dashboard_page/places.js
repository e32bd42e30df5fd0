// The card of the places where prompts are kept beyond the KV cache: what each has, and what it has
// given.

function placeRowHtml(place) {
  const size = formatBytes(place.size) + (place.max_size > 0 ? ` of ${formatBytes(place.max_size)}` : "");
  const notes = [];
  if (place.out > 0) notes.push(`<b class="worse">left alone by ${formatMany(place.out, "rank")}</b>`);
  if (place.damaged > 0) notes.push(`<b class="worse">${formatCount(place.damaged)} damaged</b>`);
  return `<tr><th scope="row">${escapeText(place.tier)}</th><td>${formatCount(place.hits)}</td>` +
      `<td>${formatCount(place.tokens)}</td><td>${formatBytes(place.bytes)}</td><td>${size}</td>` +
      `<td>${formatCount(place.taken)}</td><td>${formatCount(place.evicted)}</td><td>${notes.join(", ") || "works"}</td></tr>`;
}

function drawPlaces({data}) {
  const cache = data.prompt_cache;
  document.getElementById("places-card").hidden = cache === null;
  if (cache === null) return;
  setText("places-saved", `saved ${formatTime(1e3 * cache.saved_seconds)} of computing: ${formatCount(cache.tokens)} tokens of ` +
      `${formatMany(cache.requests, "request")}; ${formatCount(cache.refused_as_dearer)} dearer than computing, ` +
      `${formatCount(cache.gave_up)} given up`);
  document.getElementById("places").innerHTML = cache.tiers.map(placeRowHtml).join("");
}
