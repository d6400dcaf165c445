// The throughput plot: one line a vendor, its limit dashed in the same colour, and the same numbers as a table.
"use strict";

const panel = document.querySelector("[data-throughput]");
const colours = ["#2f9e78", "#3a74c9", "#d99312", "#a05ad0", "#d63a35", "#4b9aa8", "#8a8f2a", "#c2588f"];
const ROWS = 10;
const WHOLE = Array.from({ length: 12 }, (_, n) => [1, 2, 5].map((one) => one * 10 ** n)).flat(); // steps of the axis
const numbers = new Intl.NumberFormat(document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang);
let plot = null;
let shape = "";
// The server's zone, as everywhere on the page.
const minutes = panel && new Intl.DateTimeFormat(document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang, { hour: "2-digit", minute: "2-digit", timeZone: panel.dataset.zone });
const clockOf = (seconds) => minutes.format(new Date(seconds * 1000));

const ink = () => getComputedStyle(document.body).getPropertyValue("--body-quiet-color").trim() || "#666";
// As wide as the longest number of the axis.
function widthOf(chart, texts) {
  if (!texts) return 50;
  chart.ctx.font = chart.axes[1].font[0];
  return Math.max(50, 20 + Math.ceil(Math.max(...texts.map((text) => chart.ctx.measureText(text || "").width)) / devicePixelRatio));
}

const grid = () => getComputedStyle(document.body).getPropertyValue("--hairline-color").trim() || "#ddd";

function series(shown) {
  const lines = shown.vendors.map((one, n) => ({ label: one.name, stroke: colours[n % colours.length], width: 1.5, points: { show: false } }));
  const limits = shown.vendors.map((one, n) => ({
    label: say("{vendor} limit", { vendor: one.name }), class: "limit", stroke: colours[n % colours.length], width: 1, points: { show: false }, dash: [6, 4], show: one.limit !== null,
  }));
  return [{ label: say("Time") }, ...lines, ...limits];
}

function data(shown) {
  const limits = shown.vendors.map((one) => shown.times.map(() => one.limit));
  return [shown.times, ...shown.vendors.map((one) => one.values), ...limits];
}

function draw(shown) {
  const place = panel.querySelector(".canvas");
  panel.querySelector(".empty").hidden = shown.vendors.length > 0;
  const wanted = JSON.stringify([shown.vendors.map((one) => [one.name, one.limit === null]), ink(), place.clientWidth]);
  if (wanted === shape) return plot && plot.setData(data(shown));
  shape = wanted;
  if (plot) plot.destroy();
  plot = null;
  if (!shown.vendors.length) return;
  const axis = () => ({ stroke: ink(), grid: { stroke: grid(), width: 1 }, ticks: { stroke: grid(), width: 1 } });
  const time = { ...axis(), values: (_, at) => at.map(clockOf) };
  const counts = { ...axis(), incrs: WHOLE, values: (_, at) => at.map((count) => numbers.format(count)), size: widthOf };
  const scales = { y: { range: (_, low, high) => [0, Math.max(1, high * 1.08)] } };
  plot = new uPlot({ width: place.clientWidth, height: 240, series: series(shown), axes: [time, counts], scales }, data(shown), place);
}

function tabulate(shown) {
  const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const row = (tag, texts) => { const made = document.createElement("tr"); made.append(...texts.map((text) => cell(tag, text))); return made; };
  const table = document.createElement("table");
  table.append(row("th", [say("Minute"), ...shown.vendors.map((one) => one.name)]));
  for (let at = shown.times.length - 1; at >= Math.max(0, shown.times.length - ROWS); at--) {
    table.append(row("td", [clockOf(shown.times[at]), ...shown.vendors.map((one) => one.values[at])]));
  }
  panel.querySelector("details .results").replaceChildren(table);
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(`${panel.dataset.throughput}?minutes=${panel.querySelector("select").value}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok) return;
    const shown = await answer.json();
    draw(shown);
    tabulate(shown);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // the server is away: the layer says so
  }
}

if (panel) {
  panel.querySelector("select").addEventListener("change", refresh);
  window.addEventListener("resize", refresh);
  // The next question comes after the answer to the last one, and later where the server is slow.
  const follow = async () => {
    const began = performance.now();
    try {
      await refresh();
    } finally {
      setTimeout(follow, Math.max(5000, rest(performance.now() - began)));
    }
  };
  follow();
}
