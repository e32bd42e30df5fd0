// The card of the pages that go between this server and others: what is on its way, and what was.

function sharingRowHtml(name, cells) {
  return `<tr><th scope="row">${name}</th>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
}

// Of the seconds of transfers those in which the other server still computed.
function hiddenText(taken) {
  const all = taken.seconds_hidden + taken.seconds_not_hidden;
  return all > 0 ? `${Math.round(100 * taken.seconds_hidden / all)} % of ${formatTime(1e3 * all)}` : "–";
}

function drawSharing({data}) {
  const sharing = data.page_sharing;
  document.getElementById("sharing-card").hidden = sharing === null;
  if (sharing === null) return;
  const {taken, given} = sharing;
  const arrived = sharing.awaited > 0 ? `, of which ${formatMany(sharing.arrived, "page")} have come` : "";
  setText("sharing-now", `role ${sharing.role}: computes ${formatMany(sharing.computing, "prompt")} for others, ` +
      `waits for ${formatMany(sharing.awaited, "prompt")}${arrived}`);
  document.getElementById("sharing").innerHTML =
      sharingRowHtml("taken", [`${formatCount(taken.whole)} whole, ${formatCount(taken.part)} in part, ${formatCount(taken.none)} not`,
                               formatCount(taken.pages), formatBytes(taken.bytes), hiddenText(taken)]) +
      sharingRowHtml("given", ["–", formatCount(given.pages), formatBytes(given.bytes), "–"]);
}
